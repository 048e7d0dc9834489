package governor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

type subscriber struct{ tell func(quota.Event) }

// Subscribe calls f for every event from now on, one at a time, in order and without the
// lock held: f may call the governor. f runs on the goroutine that caused the event and
// should return soon. While it runs, up to Config.EventBuffer later events are kept;
// beyond that the oldest are dropped and counted in [Statistics]. cancel ends the
// subscription; one more event may still be delivered.
func (g *Governor) Subscribe(f func(quota.Event)) (cancel func()) {
	s := &subscriber{f}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.subscribers = append(slices.Clone(g.subscribers), s)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.subscribers = slices.DeleteFunc(slices.Clone(g.subscribers), func(o *subscriber) bool { return o == s })
	}
}

// tell logs and publishes events. Only one goroutine at a time does so, for all, so that
// events keep their order; the others go on.
func (g *Governor) tell() {
	g.mu.Lock()
	if g.telling {
		g.mu.Unlock()
		return
	}
	g.telling = true
	// Deferred, so that a panic of a subscriber does not silence the others.
	defer func() {
		g.telling = false
		g.mu.Unlock()
	}()
	var events []quota.Event
	for {
		var lost uint64
		events, lost = g.core.TakeEvents(events[:0])
		g.lost += lost
		if len(events) == 0 {
			return
		}
		g.publish(events)
	}
}

// publish logs the events and calls the subscribers, with the lock released.
func (g *Governor) publish(events []quota.Event) {
	to := g.subscribers
	g.mu.Unlock()
	defer g.mu.Lock()
	for _, e := range events {
		g.note(e)
		for _, s := range to {
			s.tell(e)
		}
	}
}

// lines are the level and text of the log line for each event.
var lines = map[quota.EventType]struct {
	level slog.Level
	text  string
}{
	quota.EventThrottle:      {slog.LevelWarn, "[RG][THROTTLE] calls have to wait"},
	quota.EventExhausted:     {slog.LevelWarn, "[RG][HARD] the daily cap is used up"},
	quota.EventResume:        {slog.LevelInfo, "[RG][RESUME] calls may go on"},
	quota.EventSoftPressure:  {slog.LevelInfo, "[RG][SOFT] under pressure"},
	quota.EventConfig:        {slog.LevelInfo, "[RG][CONFIG] configuration swapped"},
	quota.EventAdaptiveScale: {slog.LevelDebug, "[RG][ADAPT] scale changed"},
	quota.EventDenied:        {slog.LevelDebug, "[RG][APPROVE] refused"},
	quota.EventBackoff:       {slog.LevelDebug, "[RG][APPROVE] client backs off"},
}

// note writes the event's log line. It contains no caller's note, permit or usage.
func (g *Governor) note(e quota.Event) {
	ctx := context.Background()
	if l, known := lines[e.Type]; known && g.log.Enabled(ctx, l.level) {
		g.log.LogAttrs(ctx, l.level, l.text, describe(e)...) //nolint:sloglint // One of the table's.
	}
}

// describe returns the fields of an event that are set.
func describe(e quota.Event) []slog.Attr {
	attrs := []slog.Attr{slog.String("scope", e.Scope.String())}
	for _, f := range [...]struct{ key, value string }{
		{"model", e.Model}, {"reason", string(e.Reason)}, {"code", string(e.Code)}, {"cap", e.CapType}, {"config_digest", e.Digest},
	} {
		if f.value != "" {
			attrs = append(attrs, slog.String(f.key, f.value))
		}
	}
	if e.RetryInMS > 0 {
		attrs = append(attrs, slog.Int64("retry_in_ms", e.RetryInMS))
	}
	if e.Type == quota.EventSoftPressure {
		attrs = append(attrs, slog.Float64("utilization", e.Utilization), slog.Bool("forecast", e.Forecast))
	}
	if e.Type == quota.EventAdaptiveScale {
		attrs = append(attrs, slog.Float64("factor", e.Factor))
	}
	if e.Count > 1 {
		attrs = append(attrs, slog.Int64("count", e.Count))
	}
	return attrs
}

// Statistics are totals since [New], for metrics.
type Statistics struct {
	quota.Statistics
	// Models are the approvals and refusals of each model.
	Models map[string]Calls `json:"models"`
	// MeanApprovalLatency is the mean time from the call to the return of an approval,
	// including lock, queue and store. Zero before the first.
	MeanApprovalLatency time.Duration `json:"meanApprovalLatencyNs"`
	// EventsLost counts events that were dropped before a slow subscriber received them.
	EventsLost uint64 `json:"eventsLost"`
	// Saves and failed saves of the daily use.
	Saves       int64 `json:"saves"`
	SavesFailed int64 `json:"savesFailed"`
}

// Calls counts approved and denied calls.
type Calls struct {
	Approved int64 `json:"approved"`
	Denied   int64 `json:"denied"`
}

// Snapshot returns the current state; see [quota.Snapshot].
func (g *Governor) Snapshot() (s quota.Snapshot) {
	g.change(func(now time.Duration) { s = g.core.Snapshot(now) })
	if s.Fleet != nil {
		s.Fleet.Server = g.fleet.server.Server()
	}
	return s
}

// Statistics returns the current totals.
func (g *Governor) Statistics() Statistics {
	s := g.Snapshot()
	t := Statistics{
		Statistics: s.Statistics, Models: make(map[string]Calls, len(s.Models)),
		Saves: g.saves.Load(), SavesFailed: g.saveFailed.Load(),
	}
	for name, m := range s.Models {
		t.Models[name] = Calls{m.Ledger.Approved, m.Ledger.Denied}
	}
	if n := g.approvals.Load(); n > 0 {
		t.MeanApprovalLatency = time.Duration(g.latencySum.Load() / n)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t.EventsLost = g.lost
	return t
}

// Factor returns the scale factor for the decision interval of an agent on this path; see
// [quota.Governor.Factor].
func (g *Governor) Factor(r quota.Request) (factor float64) {
	g.change(func(now time.Duration) { factor = g.core.Factor(now, r) })
	return factor
}

// Forecast returns a forecast for each budget of a scope; see [quota.Governor.Forecast].
func (g *Governor) Forecast(s quota.Scope) (f []quota.Forecast) {
	g.change(func(now time.Duration) { f = g.core.Forecast(now, s) })
	return f
}

// Config returns the configuration in force, with its defaults. Its maps must not be
// changed.
func (g *Governor) Config() quota.Config {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.Config()
}

// waiter is a call that waits in ApproveWait.
type waiter struct {
	done chan outcome // capacity 1; sent to once, by the goroutine that removes it from waiting
}

// outcome is how a wait ended.
type outcome struct {
	decision   quota.Decision
	at         time.Time
	generation uint64
	closed     bool
}

// ApproveWait is [Governor.Approve], but waits its turn: the greatest priority goes
// first, then the tenant that was granted least for its weight, then first come, first
// served. It waits until the context's deadline, and no longer than Options.MaxWait. A
// request that cannot be served by then is refused at once, and so is one that no wait
// helps: a daily cap, an unknown model, a full queue.
//
// The error is that of Approve, even if the context's deadline ends the wait. If the
// context is canceled, or had ended before, it is a *reason.Refusal that matches
// context.Canceled or context.DeadlineExceeded.
func (g *Governor) ApproveWait(ctx context.Context, r quota.Request) (quota.Decision, error) {
	if err := ctx.Err(); err != nil {
		return quota.Decision{}, gaveUp(err)
	}
	maxWait := g.maxWait
	if deadline, ok := ctx.Deadline(); ok {
		maxWait = min(maxWait, time.Until(deadline))
	}
	g.mu.Lock()
	g.ask(&r, false)
	now := g.now()
	if g.closed {
		g.mu.Unlock()
		return quota.Decision{}, closed()
	}
	// Strictly before the deadline, so that an approval never coincides with the end of
	// its context.
	id, d := g.core.Enqueue(now, r, now+max(maxWait-1, 1))
	if id == 0 {
		at := g.at(now)
		g.settled(now)
		g.mu.Unlock()
		g.tell()
		return d, d.Refusal(at)
	}
	w := &waiter{done: make(chan outcome, 1)}
	g.waiting[id] = w
	g.settled(now)
	g.mu.Unlock()
	g.tell()
	select {
	case o := <-w.done:
		return g.receive(now, o)
	default: // not served at once, so check for an ended context
	}
	select {
	case o := <-w.done:
		return g.receive(now, o)
	case <-ctx.Done():
		return g.abandon(id, w, ctx.Err())
	}
}

// receive ends a wait with its outcome.
func (g *Governor) receive(asked time.Duration, o outcome) (quota.Decision, error) {
	if o.closed {
		return quota.Decision{}, closed()
	}
	return g.handOut(asked, o.at, o.decision, o.generation)
}

// abandon ends a wait because the context ended. An approval granted at the same moment
// is given back. At the deadline the error is the queue's own refusal.
func (g *Governor) abandon(id quota.Waiter, w *waiter, why error) (d quota.Decision, err error) {
	overdue := errors.Is(why, context.DeadlineExceeded)
	err = gaveUp(why)
	g.change(func(now time.Duration) {
		switch {
		case g.waiting[id] != w:
			o := <-w.done
			if o.decision.Approved {
				_, _ = g.core.Cancel(now, o.decision.Permit) // cannot fail: the permit was not handed out
			} else if overdue && !o.closed {
				d, err = o.decision, o.decision.Refusal(o.at)
			}
			return
		case overdue:
			d, _ = g.core.Expire(now, id) // it waits
			err = d.Refusal(g.at(now))
		default:
			g.core.Withdraw(now, id)
		}
		delete(g.waiting, id)
	})
	return d, err
}

// release passes the grants to their waiters, with the lock held.
func (g *Governor) release(now time.Duration, generation uint64) {
	for _, grant := range g.grants {
		w := g.waiting[grant.Waiter]
		delete(g.waiting, grant.Waiter)
		w.done <- outcome{decision: grant.Decision, at: g.at(now), generation: generation}
	}
}

func gaveUp(err error) error {
	why := reason.Canceled
	if errors.Is(err, context.DeadlineExceeded) {
		why = reason.Deadline
	}
	return &reason.Refusal{Reason: why, Scope: "quota", Err: err}
}
