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

// slowClientGuard bounds how slow a client may be. There is no bound on a whole
// request or answer: a stream may take hours, as long as something moves.
type slowClientGuard struct {
	// stall is how long a body may send nothing, and drain how long a client may
	// take nothing of an answer.
	stall, drain time.Duration
	// rate is the least bytes a second of a body on average, once it took stall.
	rate int64
	// rest is how long the server reads on in a body that the handler left, before
	// it answers without.
	rest time.Duration
}

// What the daemon grants its clients unless the configuration says otherwise.
var defaultGuard = slowClientGuard{stall: 30 * time.Second, drain: time.Minute, rate: 1 << 10, rest: 5 * time.Second}

// guardOf is what a configuration grants clients.
func guardOf(c config.Clients) slowClientGuard {
	g := defaultGuard
	g.stall = cmp.Or(c.BodyStall, g.stall)
	g.rate = cmp.Or(c.BodyRate, g.rate)
	g.drain = cmp.Or(c.AnswerStall, g.drain)
	return g
}

// around puts the bounds around a handler. Deadlines that the handler sets hold
// beside them: the earlier one counts.
func (g slowClientGuard) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &guardedWriter{ResponseWriter: w, slowClientGuard: g, control: http.NewResponseController(w), http1: r.ProtoMajor == 1}
		if r.Body != nil && r.Body != http.NoBody {
			body := &guardedBody{ReadCloser: r.Body, out: out, began: time.Now()}
			// net/http looks at the body of its own request to see whether it may
			// answer before the body is there: that one stays as it is.
			r = r.WithContext(r.Context())
			r.Body = body
			defer body.leave()
		}
		defer out.begin() // for what the server itself writes after the handler
		next.ServeHTTP(out, r)
	})
}

// guardedBody gives each read its deadline.
type guardedBody struct {
	io.ReadCloser
	out   *guardedWriter
	began time.Time
	read  int64
	// Upstream may still be sent the body when the handler ends.
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
		// A deadline that stays would end the wait for the answer.
		b.over.Store(true)
		_ = b.out.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// leave bounds what the server reads of the body before it answers, when the
// handler ended without.
func (b *guardedBody) leave() {
	if b.over.Load() {
		return
	}
	rest := b.out.rest
	if b.failed.Load() {
		rest = 0 // it had its time
	}
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	_ = b.out.control.SetReadDeadline(earlier(time.Now().Add(rest), b.out.read))
}

// guardedWriter gives each write its deadline.
type guardedWriter struct {
	http.ResponseWriter
	slowClientGuard
	control *http.ResponseController
	http1   bool // there a deadline that passes between two writes does no harm

	mu          sync.Mutex // a body may be read beside the handler
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
	// HTTP/2 ends a stream whose deadline passes, written to or not.
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

// Flush is for http.Flusher; who wants the error uses FlushError.
func (w *guardedWriter) Flush() { _ = w.FlushError() }

// FlushError flushes within the bounds.
func (w *guardedWriter) FlushError() error {
	w.begin()
	defer w.end()
	return w.control.Flush()
}
