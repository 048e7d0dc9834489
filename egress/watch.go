package egress

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Causes with which a call's context ends.
var (
	errCut     = errors.New("egress: the proxy was stopped")
	errSilent  = errors.New("egress: upstream was silent for too long")
	errStalled = errors.New("egress: the client sent nothing of its body for too long")
	errLong    = errors.New("egress: the call took too long")
)

// watch ends an attempt if no byte moves for too long in either direction, or if it takes
// too long as a whole.
type watch struct {
	cancel context.CancelCauseFunc
	rc     *http.ResponseController
	began  time.Time
	limit  time.Duration // as a whole

	waits func() bool // whether it is the client's body that is waited for; may be nil

	moved   atomic.Int64 // since it began
	silence atomic.Int64 // that is allowed

	mu      sync.Mutex
	timer   *time.Timer
	over    bool
	writing bool // to the client
}

// newWatch begins to watch. It must be stopped before the handler returns.
func newWatch(cancel context.CancelCauseFunc, rc *http.ResponseController, silence, limit time.Duration) *watch {
	w := &watch{cancel: cancel, rc: rc, began: time.Now(), limit: limit}
	w.silence.Store(int64(silence))
	w.mu.Lock() // the timer may go off before it is kept
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(min(silence, limit), w.look)
	return w
}

// uploads has it asked, when nothing moved, whether the client's body is waited for.
func (w *watch) uploads(waits func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = waits
}

// allow sets how long no byte may move from now on.
func (w *watch) allow(silence time.Duration) {
	w.move()
	w.silence.Store(int64(silence))
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.timer.Reset(min(silence, w.limit-time.Since(w.began)))
	}
}

// move records that a byte moved. The timer is not reset: when it fires, look compares
// times.
func (w *watch) move() { w.moved.Store(int64(time.Since(w.began))) }

// enter says that a write to the client begins; false when it must not, because
// nobody would free it.
func (w *watch) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = !w.over
	return w.writing
}

// leave says that the write is over.
func (w *watch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = false
}

// look runs when the timer fires.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	now := time.Since(w.began)
	quiet := now - time.Duration(w.moved.Load())
	switch allowed := time.Duration(w.silence.Load()); {
	case now >= w.limit:
		w.end(errLong)
	case quiet >= allowed && w.waits != nil && w.waits():
		w.end(errStalled)
	case quiet >= allowed:
		w.end(errSilent)
	default:
		w.timer.Reset(min(allowed-quiet, w.limit-now))
	}
}

// cut ends the watching, because the call's context ended.
func (w *watch) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.end(nil)
	}
}

// bodyGrace is how long what is left of a client's body is read when the attempt is over:
// a client whose connection ended while it sends might not read its answer.
const bodyGrace = time.Second

// end cancels upstream, and frees who is stuck in a write to a client that does
// not read, or in a read of one that sends nothing. The lock is held, and the watch
// was not stopped, so that the connection is still this call's.
func (w *watch) end(why error) {
	w.over = true
	w.timer.Stop()
	if why != nil {
		w.cancel(why)
	}
	if w.writing {
		_ = w.rc.SetWriteDeadline(time.Now()) // not every writer has deadlines
	}
	if w.waits != nil && w.waits() {
		until := time.Now()
		if why != errStalled { //nolint:errorlint // it is one of ours
			until = until.Add(bodyGrace)
		}
		_ = w.rc.SetReadDeadline(until)
	}
}

// stop ends the watching.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}
