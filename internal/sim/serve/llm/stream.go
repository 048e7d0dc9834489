package llm

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/headway-go/headway/internal/sim/serve"
)

// event is an event of a stream. Data that is a string is sent as it is.
type event struct {
	name string // for the event field; empty if there is none
	data any
	bare bool // without any field, as in errors of Gemini
}

// script generates the events of one stream.
type script interface {
	begin() []event
	// piece returns the events for the next text, after which sent tokens have been sent.
	piece(text string, sent int) []event
	end() []event
	// broken returns the events of an error in the middle.
	broken() []event
}

// reply responds to an admitted call, and counts its usage before that.
func (p port) reply(v *serve.Visit, r *http.Request, a *answer, f fault) {
	v.Use(a.asked())
	if a.stream {
		s := stream{visit: v, ctx: r.Context(), frame: frame{array: a.array, newline: newlines[p.dialect == dialect(gemini{})]}}
		p.play(&s, a, f)
		return
	}
	if !v.Pause(r.Context(), p.api.lasts(a.generated(), v.Slow)) {
		return
	}
	v.Use(serve.Usage{Output: int64(a.generated())})
	v.Free()
	body := encode(p.plain(a))
	v.Header().Set("Content-Type", "application/json")
	v.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if f.ailment == cutting {
		_, _ = v.Write(body[:len(body)/2])
		_ = http.NewResponseController(v).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = v.Write(body) // the client may have disconnected
}

// play sends a stream at its rate, until it ends, is cut or the client disconnects.
func (p port) play(s *stream, a *answer, f fault) {
	h := s.visit.Header()
	h.Set("Content-Type", "text/event-stream")
	if a.array {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Cache-Control", "no-cache")
	began, course := time.Now(), p.script(a)
	if !s.send(course.begin()) {
		return
	}
	for sent, chunks := 0, 0; sent < a.output; chunks++ {
		if (f.ailment == cutting || f.ailment == erring) && chunks == f.after {
			break
		}
		next := min(sent+pieceTokens, a.output)
		due := p.api.lasts(a.thoughts+next, s.visit.Slow)
		if !s.visit.Pause(s.ctx, due-time.Since(began)) {
			return
		}
		grown := next - sent
		if sent == 0 {
			grown += a.thoughts
		}
		s.visit.Use(serve.Usage{Output: int64(grown)})
		if next == a.output {
			s.visit.Free()
		}
		if !s.send(course.piece(a.text[sent*bytesPerToken:next*bytesPerToken], next)) {
			return
		}
		sent = next
	}
	last := course.end
	switch f.ailment {
	case cutting:
		panic(http.ErrAbortHandler) // cuts the connection, or resets an HTTP/2 stream
	case erring:
		last = course.broken
	default:
	}
	_ = s.send(last()) && s.close()
}

// stream writes events to a client, and flushes each at once.
type stream struct {
	visit *serve.Visit
	ctx   context.Context
	frame frame
}

// send returns false if the client has disconnected.
func (s *stream) send(all []event) bool {
	for _, e := range all {
		if s.ctx.Err() != nil {
			return false
		}
		if _, err := s.visit.Write(s.frame.event(e)); err != nil {
			return false
		}
	}
	return http.NewResponseController(s.visit).Flush() == nil
}

func (s *stream) close() bool {
	_, err := io.WriteString(s.visit, s.frame.last())
	return err == nil
}

// newlines are the line endings; Gemini's streams have a different one.
var newlines = map[bool]string{false: "\n", true: "\r\n"}

// frame formats events for both kinds of streams.
type frame struct {
	newline string
	array   bool
	count   int
}

func (f *frame) event(e event) []byte {
	var out []byte
	data, ok := e.data.(string)
	if !ok {
		data = string(encode(e.data))
	}
	f.count++
	switch {
	case f.array && f.count == 1:
		return append(append(out, '['), data...)
	case f.array:
		return append(append(out, ",\r\n"...), data...)
	case e.bare:
		out = append(out, data...)
	default:
		if e.name != "" {
			out = append(append(append(out, "event: "...), e.name...), f.newline...)
		}
		out = append(append(out, "data: "...), data...)
	}
	return append(append(out, f.newline...), f.newline...)
}

func (f *frame) last() string {
	if f.array {
		return "]"
	}
	return ""
}
