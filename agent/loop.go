package agent

import (
	"context"
	"sync"
	"time"

	"github.com/headway-go/headway/quota"
)

// Loop is a [Pacer] with the real clock. One goroutine waits for the cycles; any
// goroutine may report events. Make one with [NewLoop]. Safe for concurrent use.
type Loop struct {
	origin time.Time

	mu      sync.Mutex
	pacer   *Pacer
	changed chan struct{} // closed when the rhythm changes
}

// NewLoop returns a loop whose first cycle is due at once. Its errors are those of [New].
func NewLoop(c Config) (*Loop, error) {
	p, err := New(c)
	if err != nil {
		return nil, err
	}
	return &Loop{origin: time.Now(), pacer: p, changed: make(chan struct{})}, nil
}

// Wait returns when the next cycle is due, and counts it as begun. Events reported
// meanwhile lengthen or shorten the wait. If the context ends, Wait returns its cause,
// and no cycle has begun.
func (l *Loop) Wait(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		left, changed := l.begin()
		if left == 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// begin begins a cycle if one is due; left is 0 then.
func (l *Loop) begin() (left time.Duration, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.origin)
	if left = l.pacer.Due(now); left == 0 {
		l.pacer.Begin(now)
	}
	return left, l.changed
}

// Observe calls [Pacer.Observe] with the current time.
func (l *Loop) Observe(e quota.Event) bool {
	return l.tell(func(now time.Duration) bool { return l.pacer.Observe(now, e) })
}

// Restate calls [Pacer.Restate] with the current time.
func (l *Loop) Restate(scope quota.Scope, state quota.State, factor float64) bool {
	return l.tell(func(now time.Duration) bool { return l.pacer.Restate(now, scope, state, factor) })
}

// ObserveHeader calls [Pacer.ObserveHeader] with the current time, as in
// loop.ObserveHeader(response.Header.Get).
func (l *Loop) ObserveHeader(get func(name string) string) bool {
	return l.tell(func(now time.Duration) bool { return l.pacer.ObserveHeader(now, get) })
}

// Backoff calls [Pacer.Backoff] with the current time.
func (l *Loop) Backoff(d time.Duration) {
	l.tell(func(now time.Duration) bool { l.pacer.Backoff(now, d); return true })
}

// Interval calls [Pacer.Interval] with the current time.
func (l *Loop) Interval() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pacer.Interval(time.Since(l.origin))
}

// Hint calls [Pacer.Hint] with the current time.
func (l *Loop) Hint() Hint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pacer.Hint(time.Since(l.origin))
}

// tell changes the pacer and wakes the waiting goroutine if that made a difference.
func (l *Loop) tell(change func(now time.Duration) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !change(time.Since(l.origin)) {
		return false
	}
	close(l.changed)
	l.changed = make(chan struct{})
	return true
}
