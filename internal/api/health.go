package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/headway-go/headway/reason"
)

// Health is the answer to /healthz and /readyz when all is well.
type Health struct {
	// Status is "ok".
	Status string `json:"status"`
}

// send answers with JSON. What could not be written cannot be told.
func (a *API) send(w http.ResponseWriter, v any) error {
	_ = a.respond(w, v)
	return nil
}

// respond writes a value as JSON; the error says that the client did not get it.
func (a *API) respond(w http.ResponseWriter, v any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		a.log.LogAttrs(context.Background(), slog.LevelError, "answer cannot be written as JSON", slog.Any("error", err))
		a.refuse(w, &Problem{Status: http.StatusInternalServerError, Title: "Internal error", Detail: "the daemon's log says what failed"})
		return err
	}
	return write(w, body.Bytes())
}

// write sends a whole JSON body to the end.
func write(w http.ResponseWriter, body []byte) error {
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	control := http.NewResponseController(w)
	// Without a deadline of its own a client that does not read would hold us.
	_ = control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := w.Write(body); err != nil {
		return err
	}
	if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (a *API) healthy(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	return a.send(w, Health{Status: "ok"})
}

// ready tells everybody whether, and only the log why not: it may name files.
func (a *API) ready(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if a.o.Ready == nil {
		return a.send(w, Health{Status: "ok"})
	}
	err := a.o.Ready()
	if err == nil {
		return a.send(w, Health{Status: "ok"})
	}
	a.log.LogAttrs(r.Context(), slog.LevelDebug, "not ready", slog.Any("error", err))
	why := reason.Internal
	if refusal, ok := errors.AsType[*reason.Refusal](err); ok {
		why = refusal.Reason
	}
	return &Problem{
		Status: http.StatusServiceUnavailable, Title: "Not ready", Reason: why.String(), RetryInMS: 1000,
		Detail: "no requests are served now; the daemon's log says why",
	}
}

func (a *API) describe(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	_ = write(w, a.openapi) // what could not be written cannot be told
	return nil
}
