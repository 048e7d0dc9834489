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

// rounds look after the calls under way, with one timer for all of them: to set and to stop
// timers of its own would take a short call longer than all else that is done for it. The
// zero value is ready for use.
type rounds struct {
	mu    sync.Mutex
	timer *time.Timer
	due   time.Time // when the timer goes off; zero while it is not set
	first *alarm
}

// alarm looks after one thing that is under way.
type alarm struct {
	// look is asked at due or later, and says when to ask again; zero is never. It is
	// called with the lock of the rounds held.
	look func(now time.Time) (again time.Time)
	// cut is called, with the same lock held, when the proxy is stopped; it may be nil.
	cut func()

	due           time.Time
	before, after *alarm
	set           bool
}

// set begins to look after what an alarm is for, or changes when to look; zero is never.
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

// wake sees to it that the timer goes off at an instant. r.mu must be held.
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

// drop looks no more: look and cut are not called once it has returned.
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

// ring runs when the timer goes off.
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

// rest stops the timer where nothing is under way any more.
func (r *rounds) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil && r.timer != nil && r.timer.Stop() {
		r.due = time.Time{}
	}
}

// cutAll ends what is under way.
func (r *rounds) cutAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := r.first; a != nil; a = a.after {
		if a.cut != nil {
			a.cut()
		}
	}
}

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

	rounds *rounds
	alarm  alarm

	mu      sync.Mutex
	over    bool
	writing bool // to the client
}

// newWatch begins to watch. It must be stopped before the handler returns.
func newWatch(r *rounds, cancel context.CancelCauseFunc, rc *http.ResponseController, silence, limit time.Duration) *watch {
	w := &watch{rounds: r, cancel: cancel, rc: rc, began: time.Now(), limit: limit}
	w.silence.Store(int64(silence))
	w.alarm.look = w.look
	r.set(&w.alarm, w.began.Add(min(silence, limit)))
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
	now := time.Now()
	w.moved.Store(int64(now.Sub(w.began)))
	w.silence.Store(int64(silence))
	w.rounds.set(&w.alarm, now.Add(min(silence, w.limit-now.Sub(w.began))))
}

// move records that a byte moved. The alarm is not set again: when it goes off, look
// compares times.
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

// look runs when the alarm goes off.
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
	w.rounds.drop(&w.alarm)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}
