// Package governor runs package quota in a process: it adds the clock, the lock, the
// timer, the waiting, the log and the storage across restarts that the pure state machine
// lacks. It approves calls for many goroutines, and lets calls wait that can be served in
// time.
//
// Events due by time alone (the end of a throttle, a new day, an expired permit, a grant)
// happen on time without a call: one timer is set for the earliest of them. Nothing
// polls.
//
// With a [Store], daily use survives a restart. The store never holds less than what was
// approved: before an approval exceeds what is stored for one of its scopes, the use is
// saved plus a lease of a quarter of what this process used, at most a 64th of the daily
// cap, and nothing in the first saves. So most approvals need no write, and a killed
// process forgets no use; it loses the unused rest of its lease until the next day.
// [Governor.Close] stores the exact use. If the store fails, approvals that need it are
// refused.
//
// To pace one connection use the root package. To try limits in virtual time use package
// quota.
//
// A [Governor] is safe for concurrent use. Subscribers are called one event at a time, in
// order, and outside the lock. Time is monotonic; a change of the wall clock is noticed
// at the next call or timer, and days only go forward.
//
// Stability: stable.
package governor

import (
	"cmp"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// DefaultMaxWait is the longest wait in [Governor.ApproveWait] by default.
const DefaultMaxWait = 15 * time.Second

// Options configure a governor.
type Options struct {
	// Config holds the limits.
	Config quota.Config
	// Store keeps the daily use across restarts. Default nil: the use is kept in memory
	// only. The caller closes the store, after the governor.
	Store Store
	// Fleet is the server that holds the budgets, where several processes share them, and Share
	// says how. The governor closes it. Default nil: the budgets are this governor's own. In a
	// fleet Store is what this member knows of the use, kept every few seconds, for a server
	// that loses it.
	Fleet Fleet
	Share quota.FleetOptions
	// MaxWait bounds the wait in ApproveWait. Default [DefaultMaxWait].
	MaxWait time.Duration
	// OnEvent, if set, subscribes from the start; see [Governor.Subscribe].
	OnEvent func(quota.Event)
	// Log receives transitions as warnings and infos, and single refusals and scale
	// changes as debug lines. Default nil: no log.
	Log *slog.Logger
}

// Governor approves calls. Make one with [New]; it must be closed. Safe for concurrent
// use.
type Governor struct {
	clock   clock
	store   Store
	fleet   *member // nil without a fleet
	log     *slog.Logger
	maxWait time.Duration

	mu          sync.Mutex
	core        *quota.Governor
	drift       time.Duration // of the wall clock from the monotonic one, as last reported to the core
	closed      bool
	timer       *time.Timer
	alarm       time.Duration // when the timer fires; quota.Never if it is not set
	waiting     map[quota.Waiter]*waiter
	wakers      []waker
	grants      []quota.Grant
	book        ledger
	subscribers []*subscriber
	telling     bool
	lost        uint64

	saving     sync.Mutex // one save at a time; taken before mu
	saves      atomic.Int64
	saveFailed atomic.Int64
	approvals  atomic.Int64
	latencySum atomic.Int64 // total, in nanoseconds
}

// clock returns the monotonic time since the origin, and the wall-clock time.
type clock func() (now time.Duration, wall time.Time)

// New returns a governor with every bucket full and today's use from the store. The error
// is the store's, or names the field of the configuration, its value and its bound.
func New(o Options) (*Governor, error) {
	origin := time.Now()
	return newGovernor(o, origin, func() (time.Duration, time.Time) {
		t := time.Now()
		return t.Sub(origin), t.Round(0)
	})
}

func newGovernor(o Options, origin time.Time, c clock) (*Governor, error) {
	core, err := quota.New(o.Config, origin.Round(0))
	if err != nil {
		return nil, err
	}
	g := &Governor{
		clock: c, store: o.Store, log: o.Log, maxWait: cmp.Or(o.MaxWait, DefaultMaxWait),
		core: core, alarm: quota.Never, waiting: map[quota.Waiter]*waiter{}, drift: origin.Sub(time.Unix(0, 0)),
	}
	if o.MaxWait < 0 {
		return nil, &quota.FieldError{Field: "max wait", Value: o.MaxWait.String(), Bound: "above 0"}
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if o.OnEvent != nil {
		g.subscribers = append(g.subscribers, &subscriber{o.OnEvent})
	}
	g.mu.Lock()
	now := g.now()
	if err := g.restore(now); err != nil {
		g.mu.Unlock()
		return nil, err
	}
	g.arm(now)
	g.mu.Unlock()
	if o.Fleet != nil {
		g.join(&o)
	}
	g.tell()
	return g, nil
}

// now reads the clock with the lock held, and reports to the core if the wall clock was
// set.
func (g *Governor) now() time.Duration {
	now, wall := g.clock()
	if g.fleet != nil {
		wall = wall.Add(g.fleet.skew)
	}
	if drift := wall.Sub(time.Unix(0, 0)) - now; (drift - g.drift).Abs() > time.Second {
		g.drift = drift
		g.core.Anchor(now, wall)
	}
	return now
}

// at returns the wall-clock time of now.
func (g *Governor) at(now time.Duration) time.Time {
	return time.Unix(0, 0).Add(g.drift + now)
}

// Approve answers at once. If the call is approved, the error is nil, and the permit must
// be settled with [Governor.RecordUsage] or given back with [Governor.Cancel]. Otherwise
// the error is a *reason.Refusal with the time to come back; it wraps a *quota.Denial
// with scope and code, unless the governor is closed or its store fails. Waiting requests
// go before a request of no greater priority.
func (g *Governor) Approve(r quota.Request) (quota.Decision, error) {
	g.mu.Lock()
	now := g.now()
	asked := g.ask(&r, true)
	if g.closed {
		g.mu.Unlock()
		return quota.Decision{}, closed()
	}
	if asked != nil {
		g.mu.Unlock()
		return g.handOut(now, asked.at, asked.decision, 0)
	}
	d := g.core.Approve(now, r)
	at := g.at(now)
	generation := g.settled(now)
	g.mu.Unlock()
	g.tell()
	return g.handOut(now, at, d, generation)
}

// handOut returns an approval once the store covers it.
func (g *Governor) handOut(asked time.Duration, at time.Time, d quota.Decision, generation uint64) (quota.Decision, error) {
	if !d.Approved {
		return d, d.Refusal(at)
	}
	if err := g.save(generation); err != nil {
		// Cancel cannot fail: the permit was not handed out.
		g.apply(func(now time.Duration) { _, _ = g.core.Cancel(now, d.Permit) })
		return quota.Decision{}, &reason.Refusal{Reason: reason.Internal, Scope: "quota", Err: err}
	}
	now, _ := g.clock()
	g.approvals.Add(1)
	g.latencySum.Add(int64(max(0, now-asked)))
	return d, nil
}

// RecordUsage settles a permit with what the call used. first is false if the permit had
// already ended. The error is a *quota.FieldError for usage out of its bound, or a
// *quota.Denial with RATE_APPROVAL_CONFLICT; see [quota.Governor.RecordUsage]. It still
// works after [Governor.Close], but the use is no longer stored.
func (g *Governor) RecordUsage(id quota.Permit, actual quota.Usage) (first bool, err error) {
	g.change(func(now time.Duration) { first, err = g.core.RecordUsage(now, id, actual) })
	return first, err
}

// Cancel gives a permit back if nothing was sent. first is false if the permit had
// already ended, so that Cancel is safe to defer. The error is a *quota.Denial if the
// permit was never issued.
func (g *Governor) Cancel(id quota.Permit) (first bool, err error) {
	g.change(func(now time.Duration) { first, err = g.core.Cancel(now, id) })
	return first, err
}

// Drain reports that n more output tokens of a stream were received, so that output
// beyond the estimate is charged as it happens. The error is that of RecordUsage; a
// permit that has ended is a conflict.
func (g *Governor) Drain(id quota.Permit, n int64) (err error) {
	g.change(func(now time.Duration) { err = g.core.Drain(now, id, n) })
	return err
}

// Overrun reports that the provider refused a call for its rate although it was within
// the limits. From now on the limits are spread, even if they have a burst; see
// [quota.Governor.Overrun]. Call it before the permit is settled.
func (g *Governor) Overrun(id quota.Permit) {
	g.change(func(now time.Duration) {
		if g.core.Overrun(now, id) {
			g.log.Info("[RG][ADAPT] the provider refused a burst within the limits: they are spread from now on")
		}
	})
}

// HoldBack reports that something besides the budgets refused a request, and for how
// long; see [quota.Governor.HoldBack].
func (g *Governor) HoldBack(r quota.Request, wait time.Duration) {
	g.change(func(now time.Duration) { g.core.HoldBack(now, r, wait) })
}

// Backoff records that a client of this scope backs off instead of calling, for the
// reason in the decision.
func (g *Governor) Backoff(s quota.Scope, d quota.Decision) {
	g.change(func(now time.Duration) { g.core.Backoff(now, s, d) })
}

// UpdateConfig applies a JSON merge patch (RFC 7396) to the configuration. The result is
// validated and takes effect as a whole; use carries over. The error names the field, its
// value and its bound; then nothing has changed.
func (g *Governor) UpdateConfig(patch []byte) (err error) {
	g.change(func(now time.Duration) {
		err = g.core.UpdateConfig(now, patch)
		clear(g.book.leases) // they were computed from other caps
	})
	if err != nil {
		g.log.Warn("[RG][CONFIG] patch rejected", slog.Any("error", err))
	}
	return err
}

// Replace replaces the whole configuration; see [Governor.UpdateConfig].
func (g *Governor) Replace(c quota.Config) (err error) {
	g.change(func(now time.Duration) {
		err = g.core.Replace(now, c)
		clear(g.book.leases) // they were computed from other caps
	})
	if err != nil {
		g.log.Warn("[RG][CONFIG] configuration rejected", slog.Any("error", err))
	}
	return err
}

// change changes the core and does what follows from it. What the store cannot save now
// is saved before the next approval is returned.
func (g *Governor) change(do func(now time.Duration)) {
	_ = g.save(g.apply(do)) // an error is counted and logged there
}

// apply is change without the store; it returns the generation that the store has to
// cover.
func (g *Governor) apply(do func(now time.Duration)) (generation uint64) {
	g.mu.Lock()
	now := g.now()
	do(now)
	generation = g.settled(now)
	wake := g.waking()
	g.mu.Unlock()
	g.tell()
	wake.all()
	return generation
}

// settled does what follows every change, with the lock held: it ends the waits that are
// over, sets the timer and returns the generation that the store has to cover.
func (g *Governor) settled(now time.Duration) (generation uint64) {
	generation = g.lease(now)
	defer func() {
		if g.core.Lacks() {
			g.fleet.kick()
		}
	}()
	if g.core.Waiting() > 0 {
		g.grants = g.core.Grants(now, g.grants[:0])
		if len(g.grants) > 0 {
			generation = max(generation, g.lease(now))
			g.release(now, generation)
		}
	}
	g.arm(now)
	return generation
}

// arm sets the timer for the next transition, unless it fires earlier anyway.
func (g *Governor) arm(now time.Duration) {
	at, ok := g.core.NextTransition(now)
	if !ok || g.closed || at >= g.alarm {
		return
	}
	g.alarm = at
	if g.timer == nil {
		g.timer = time.AfterFunc(at-now, g.ring)
		return
	}
	g.timer.Reset(at - now)
}

// ring is called when the timer fires.
func (g *Governor) ring() {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	now := g.now()
	g.alarm = quota.Never
	g.core.Advance(now)
	generation := g.settled(now)
	g.mu.Unlock()
	g.tell()
	_ = g.save(generation) // an error is counted and logged there
}

// Close refuses all waiting and future requests, stops the timer and stores the exact
// use, counting open permits by their estimates. It does not close the store. The error
// is the store's. It may be called more than once.
func (g *Governor) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	now := g.now()
	for id, w := range g.waiting {
		g.core.Withdraw(now, id)
		w.done <- outcome{closed: true}
	}
	clear(g.waiting)
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	generation := g.book.exact()
	wake := g.waking()
	g.mu.Unlock()
	wake.all()
	g.leave()
	err := g.save(generation)
	g.tell()
	return err
}

func closed() error { return &reason.Refusal{Reason: reason.Closed, Scope: "quota"} }
