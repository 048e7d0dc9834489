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

// rounds watches all calls under way with a single timer. For a short call, its own timers
// would cost more than everything else. The zero value is ready for use.
type rounds struct {
	mu    sync.Mutex
	timer *time.Timer
	due   time.Time // when the timer fires; zero while it is not set
	first *alarm
}

// alarm is the entry of rounds for one call or attempt.
type alarm struct {
	// look is called at due or later, with the lock of rounds held. It returns when to
	// call it again; zero for never.
	look func(now time.Time) (again time.Time)
	// cut is called when the proxy stops, with the same lock held. It may be nil.
	cut func()

	due           time.Time
	before, after *alarm
	set           bool
}

// set adds an alarm, or changes when it is due; zero for never.
func (r *rounds) set(a *alarm, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.due = due; !a.set {
		a.set = true
		if a.before, a.after = nil, r.first; r.first != nil {
			r.first.before = a
		}
		r.first = a
	}
	r.wake(due)
}

// wake sets the timer to fire at an instant or before. r.mu must be held.
func (r *rounds) wake(due time.Time) {
	if due.IsZero() || !r.due.IsZero() && !due.Before(r.due) {
		return
	}
	if r.due = due; r.timer == nil {
		r.timer = time.AfterFunc(time.Until(due), r.ring)
	} else {
		r.timer.Reset(time.Until(due))
	}
}

// drop removes an alarm. Its look and cut are not called after drop returns.
func (r *rounds) drop(a *alarm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.set {
		return
	}
	if a.set = false; a.before != nil {
		a.before.after = a.after
	} else {
		r.first = a.after
	}
	if a.after != nil {
		a.after.before = a.before
	}
	a.before, a.after = nil, nil
}

// ring runs when the timer fires.
func (r *rounds) ring() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = time.Time{}
	now := time.Now()
	var next time.Time
	for a := r.first; a != nil; a = a.after {
		if !a.due.IsZero() && !now.Before(a.due) {
			a.due = a.look(now)
		}
		if !a.due.IsZero() && (next.IsZero() || a.due.Before(next)) {
			next = a.due
		}
	}
	r.wake(next)
}

// rest stops the timer when no call is under way.
func (r *rounds) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil && r.timer != nil && r.timer.Stop() {
		r.due = time.Time{}
	}
}

// cutAll cuts all calls under way.
func (r *rounds) cutAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := r.first; a != nil; a = a.after {
		if a.cut != nil {
			a.cut()
		}
	}
}

// watch ends an attempt when no byte moves in either direction for too long, or when the
// whole attempt takes too long.
type watch struct {
	cancel context.CancelCauseFunc
	rc     *http.ResponseController
	began  time.Time
	limit  time.Duration // of the whole attempt

	waits func() bool // reports whether the client's body is awaited; may be nil

	moved   atomic.Int64 // when the last byte moved, since began
	silence atomic.Int64 // allowed without a byte

	rounds *rounds
	alarm  alarm

	mu      sync.Mutex
	over    bool
	writing bool // a write to the client is under way
}

// newWatch starts a watch. The caller must stop it before the handler returns.
func newWatch(r *rounds, cancel context.CancelCauseFunc, rc *http.ResponseController, silence, limit time.Duration) *watch {
	w := &watch{rounds: r, cancel: cancel, rc: rc, began: time.Now(), limit: limit}
	w.silence.Store(int64(silence))
	w.alarm.look = w.look
	r.set(&w.alarm, w.began.Add(min(silence, limit)))
	return w
}

// uploads sets the function that reports whether the client's body is awaited.
func (w *watch) uploads(waits func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = waits
}

// allow sets the allowed time without a byte, from now on.
func (w *watch) allow(silence time.Duration) {
	now := time.Now()
	w.moved.Store(int64(now.Sub(w.began)))
	w.silence.Store(int64(silence))
	w.rounds.set(&w.alarm, now.Add(min(silence, w.limit-now.Sub(w.began))))
}

// move records that a byte moved. It does not change the alarm: look compares times when the
// alarm is due.
func (w *watch) move() { w.moved.Store(int64(time.Since(w.began))) }

// enter records the begin of a write to the client. It returns false when the watch has ended,
// since nothing would free a blocked write.
func (w *watch) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = !w.over
	return w.writing
}

// leave records the end of the write.
func (w *watch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = false
}

// look runs when the alarm is due.
func (w *watch) look(at time.Time) (again time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return again
	}
	now := at.Sub(w.began)
	quiet := now - time.Duration(w.moved.Load())
	switch allowed := time.Duration(w.silence.Load()); {
	case now >= w.limit:
		w.end(errLong)
	case quiet >= allowed && w.waits != nil && w.waits():
		w.end(errStalled)
	case quiet >= allowed:
		w.end(errSilent)
	default:
		again = at.Add(min(allowed-quiet, w.limit-now))
	}
	return again
}

// cut ends the watch when the call's context has ended.
func (w *watch) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.end(nil)
	}
}

// bodyGrace is how long the rest of a client's body is read after the attempt. A client whose
// connection is closed while it sends might not read its answer.
const bodyGrace = time.Second

// end cancels the upstream request, and frees a write to a client that does not read or a
// read from one that does not send. The lock is held and the watch not stopped, so the
// connection still belongs to this call.
func (w *watch) end(why error) {
	w.over = true
	if why != nil {
		w.cancel(why)
	}
	if w.writing {
		_ = w.rc.SetWriteDeadline(time.Now()) // not every writer supports deadlines
	}
	if w.waits != nil && w.waits() {
		until := time.Now()
		if why != errStalled { //nolint:errorlint // one of the causes above, never wrapped
			until = until.Add(bodyGrace)
		}
		_ = w.rc.SetReadDeadline(until)
	}
}

// stop ends the watch.
func (w *watch) stop() {
	w.rounds.drop(&w.alarm)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}
