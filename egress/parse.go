package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/reason"
)

// read finds out what the call asks for. The body of one that may cost tokens
// is read first, bounded in size and time; any other is streamed.
func (x *exchange) read() *provider.Refusal {
	r, d := x.r, &x.up.Description
	bound := x.up.MaxUpload
	if x.whole = r.Body == nil || r.Body == http.NoBody || x.readFirst(); x.whole {
		bound = x.up.MaxBody
	}
	if r.ContentLength > bound {
		return oversized(bound)
	}
	if x.whole {
		if fault := x.readBody(); fault != nil {
			return fault
		}
	}
	_ = x.rc.SetReadDeadline(time.Time{}) // there, or under the watch of the attempt
	x.plain = x.body
	unread := false
	if x.whole && d.API != provider.HTTP && encoded(r.Header) {
		var fault *provider.Refusal
		if x.plain, fault = x.inflate(); fault != nil {
			return fault
		}
		unread = x.plain == nil
	}
	asked, err := d.Call(r.Method, x.path(), x.plain)
	if unread && (err != nil || asked.Metered) {
		return &provider.Refusal{
			Status: http.StatusUnsupportedMediaType, Reason: reason.ClientError, RetryIn: -1,
			Message: "The body cannot be read: a call that costs tokens may be compressed with gzip only.",
		}
	}
	if err != nil {
		return invalid("The body is not what this call takes: " + err.Error() + ".")
	}
	x.asked = asked
	x.told.Model, x.told.Metered, x.told.Streamed = clip(asked.Model), asked.Metered, asked.Stream
	key := x.key
	if asked.Model == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		key.Models = nil // looking around needs no model
	}
	key.Uploads = key.Uploads && asked.Files // what runs a model has to name it
	if key.Permit(x.up.Name, asked.Model) != nil {
		return forbidden("The key may not use this provider or model.")
	}
	x.told.Budget = asked.Model
	if asked.Metered && x.up.Models != nil {
		if x.told.Budget = x.up.Models(asked.Model); x.told.Budget == "" {
			return unconfigured()
		}
	}
	return nil
}

// path is the rest of the path, decoded.
func (x *exchange) path() string {
	path, err := url.PathUnescape(x.rest)
	if err != nil {
		return x.rest // net/http has decoded it before, so this does not happen
	}
	return path
}

// readFirst reports whether the body has to be known before it is sent: when it
// is JSON, or may be, or when the call costs tokens whatever the client calls it.
// What costs nothing but a call only has to be known when it may be sent again.
func (x *exchange) readFirst() bool {
	if x.up.Description.API == provider.HTTP {
		return x.up.Retries > 0 && x.r.ContentLength >= 0 && x.r.ContentLength <= x.up.MaxBody
	}
	kind, err := mediaType(x.r.Header.Get("Content-Type"))
	if err != nil || kind == "" || kind == "application/json" || strings.HasSuffix(kind, "+json") || strings.HasPrefix(kind, "text/") {
		return true
	}
	asked, err := x.up.Description.Call(x.r.Method, x.path(), nil)
	return err != nil || asked.Metered
}

// mediaType is a content type without its parameters.
func mediaType(v string) (kind string, err error) {
	if v == "application/json" || v == "text/event-stream" {
		return v, nil // as nearly all are: nothing to parse
	}
	kind, _, err = mime.ParseMediaType(v)
	return kind, err
}

// readBody reads the body whole.
func (x *exchange) readBody() *provider.Refusal {
	if x.r.Body == nil || x.r.Body == http.NoBody {
		return nil
	}
	defer context.AfterFunc(x.proxy.cutting, func() { _ = x.rc.SetReadDeadline(time.Now()) })()
	most := x.up.MaxBody
	body := http.MaxBytesReader(x.w, x.r.Body, most)
	// A client's word is believed only up to a little: it costs the client nothing.
	const trust = 64 << 10
	room := min(max(x.r.ContentLength, 511), trust) + 1
	x.body = make([]byte, 0, room)
	for {
		if len(x.body) == cap(x.body) {
			x.body = append(x.body, 0)[:len(x.body)]
		}
		n, err := body.Read(x.body[len(x.body):cap(x.body)])
		x.body = x.body[:len(x.body)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			continue
		}
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			return oversized(most)
		}
		if x.proxy.cutting.Err() != nil {
			return new(drained())
		}
		// net/http ends the context after a deadline too.
		if x.r.Context().Err() != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return &provider.Refusal{Status: statusClientGone, Reason: reason.Canceled}
		}
		return &provider.Refusal{
			Status: http.StatusRequestTimeout, Reason: reason.Timeout, RetryIn: -1,
			Message: "The body did not come whole, or not in time.",
		}
	}
}

// inflate gives what a compressed body holds, nil when it cannot be read. The
// bound of bodies holds for it too.
func (x *exchange) inflate() ([]byte, *provider.Refusal) {
	if !strings.EqualFold(strings.TrimSpace(x.r.Header.Get("Content-Encoding")), "gzip") || len(x.r.Header["Content-Encoding"]) > 1 {
		return nil, nil
	}
	from, err := gzip.NewReader(bytes.NewReader(x.body))
	if err != nil {
		return nil, nil
	}
	plain, err := io.ReadAll(io.LimitReader(from, x.up.MaxBody+1))
	if err != nil {
		return nil, nil
	}
	if int64(len(plain)) > x.up.MaxBody {
		return nil, oversized(x.up.MaxBody)
	}
	return plain, nil
}

// encoded reports whether a body is compressed.
func encoded(h http.Header) bool {
	v := h.Get("Content-Encoding")
	return v != "" && !strings.EqualFold(v, "identity")
}
