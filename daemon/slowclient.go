package daemon

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway/daemon/config"
)

// slowClientGuard bounds how slow a client may be. A whole request or answer may take any
// time while data moves, as streams do.
type slowClientGuard struct {
	// stall bounds the time without data from a request body, drain the time in which a
	// client reads nothing of an answer.
	stall, drain time.Duration
	// rate is the minimum average of a request body in bytes per second, after stall.
	rate int64
	// rest bounds how long the server reads the remainder of a body that the handler
	// left unread, before it answers.
	rest time.Duration
}

// defaultGuard has the bounds for settings that the configuration leaves out.
var defaultGuard = slowClientGuard{stall: 30 * time.Second, drain: time.Minute, rate: 1 << 10, rest: 5 * time.Second}

// guardOf returns the bounds of a configuration.
func guardOf(c config.Clients) slowClientGuard {
	g := defaultGuard
	g.stall = cmp.Or(c.BodyStall, g.stall)
	g.rate = cmp.Or(c.BodyRate, g.rate)
	g.drain = cmp.Or(c.AnswerStall, g.drain)
	return g
}

// around applies the bounds to a handler. Where the handler sets a deadline too, the earlier
// one holds.
func (g slowClientGuard) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &guardedWriter{ResponseWriter: w, slowClientGuard: g, control: http.NewResponseController(w), http1: r.ProtoMajor == 1}
		if r.Body != nil && r.Body != http.NoBody {
			body := &guardedBody{ReadCloser: r.Body, out: out, began: time.Now()}
			// Copy the request: net/http inspects the body of its own one to decide
			// whether it can answer before the body was read.
			r = r.WithContext(r.Context())
			r.Body = body
			defer body.leave()
		}
		defer out.begin() // bounds what the server writes after the handler
		next.ServeHTTP(out, r)
	})
}

// guardedBody sets a deadline for each read.
type guardedBody struct {
	io.ReadCloser
	out   *guardedWriter
	began time.Time
	read  int64
	// Atomic, since a transport may still read the body when the handler has ended.
	over, failed atomic.Bool
}

// Read reads within the bounds.
func (b *guardedBody) Read(p []byte) (int, error) {
	if b.over.Load() {
		return b.ReadCloser.Read(p)
	}
	bounds := b.out.slowClientGuard
	until := time.Now().Add(bounds.stall)
	if slowest := b.began.Add(bounds.stall + time.Duration(float64(b.read)/float64(bounds.rate)*float64(time.Second))); slowest.Before(until) {
		until = slowest
	}
	b.out.mu.Lock()
	until = earlier(until, b.out.read)
	b.out.mu.Unlock()
	if err := b.out.control.SetReadDeadline(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	b.failed.Store(err != nil)
	if err == io.EOF {
		// A deadline left in place would cut the wait for the answer.
		b.over.Store(true)
		_ = b.out.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// leave bounds how long the server reads the remainder of the body, after a handler that
// did not read it whole.
func (b *guardedBody) leave() {
	if b.over.Load() {
		return
	}
	rest := b.out.rest
	if b.failed.Load() {
		rest = 0 // its time is used up
	}
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	_ = b.out.control.SetReadDeadline(earlier(time.Now().Add(rest), b.out.read))
}

// guardedWriter sets a deadline for each write.
type guardedWriter struct {
	http.ResponseWriter
	slowClientGuard
	control *http.ResponseController
	http1   bool // a deadline that passes between two writes is harmless there

	mu          sync.Mutex // a body may be read while the handler writes
	read, write time.Time  // deadlines of the handler's own
}

func earlier(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Unwrap is for http.ResponseController.
func (w *guardedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetReadDeadline is for http.ResponseController.
func (w *guardedWriter) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read = t
	return w.control.SetReadDeadline(t)
}

// SetWriteDeadline is for http.ResponseController.
func (w *guardedWriter) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write = t
	return w.control.SetWriteDeadline(t)
}

func (w *guardedWriter) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.control.SetWriteDeadline(earlier(time.Now().Add(w.drain), w.write))
}

func (w *guardedWriter) end() {
	if w.http1 {
		return
	}
	// HTTP/2 resets a stream when its deadline passes, even between writes.
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.control.SetWriteDeadline(w.write)
}

// Write writes within the bounds.
func (w *guardedWriter) Write(p []byte) (int, error) {
	w.begin()
	defer w.end()
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher. FlushError returns the error too.
func (w *guardedWriter) Flush() { _ = w.FlushError() }

// FlushError flushes within the bounds.
func (w *guardedWriter) FlushError() error {
	w.begin()
	defer w.end()
	return w.control.Flush()
}
