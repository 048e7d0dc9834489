package agent

import (
	"context"
	"sync"
	"time"

	"github.com/headway-go/headway/quota"
)

// Loop is a [Pacer] on the real clock: one goroutine waits for each cycle, any
// may tell it of events. Make one with [NewLoop]. Safe for concurrent use.
type Loop struct {
	origin time.Time

	mu      sync.Mutex
	pacer   *Pacer
	changed chan struct{} // closed when the rhythm changes
}

// NewLoop makes a loop whose first cycle is due at once. Its errors are New's.
func NewLoop(c Config) (*Loop, error) {
	p, err := New(c)
	if err != nil {
		return nil, err
	}
	return &Loop{origin: time.Now(), pacer: p, changed: make(chan struct{})}, nil
}

// Wait returns when the next cycle is due and counts it as begun. A wait that
// is under way follows what is learned meanwhile, longer or shorter. The error
// is the context's cause; then no cycle has begun.
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

// Observe is [Pacer.Observe] at this instant.
func (l *Loop) Observe(e quota.Event) bool {
	return l.tell(func(now time.Duration) bool { return l.pacer.Observe(now, e) })
}

// Restate is [Pacer.Restate] at this instant.
func (l *Loop) Restate(scope quota.Scope, state quota.State, factor float64) bool {
	return l.tell(func(now time.Duration) bool { return l.pacer.Restate(now, scope, state, factor) })
}

// ObserveHeader is [Pacer.ObserveHeader] at this instant, as in
// loop.ObserveHeader(response.Header.Get).
func (l *Loop) ObserveHeader(get func(name string) string) bool {
	return l.tell(func(now time.Duration) bool { return l.pacer.ObserveHeader(now, get) })
}

// Backoff is [Pacer.Backoff] at this instant.
func (l *Loop) Backoff(d time.Duration) {
	l.tell(func(now time.Duration) bool { l.pacer.Backoff(now, d); return true })
}

// Interval is [Pacer.Interval] at this instant.
func (l *Loop) Interval() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pacer.Interval(time.Since(l.origin))
}

// Hint is [Pacer.Hint] at this instant.
func (l *Loop) Hint() Hint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pacer.Hint(time.Since(l.origin))
}

// tell changes the pacer and wakes who waits if that made a difference.
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
