// Package collect runs a collection: it walks a connector's streams, page by
// page, at the speed that the governor finds. No record is lost if it is interrupted.
//
// A page with the details of its items is a slice, the unit of commit: its
// records are durable in the sink before its cursor moves, and cursor, known
// items and gaps become durable together. After a crash at most the slice in flight is
// requested again. Pages that arrive faster than they can be committed one by one share
// a slice of at most 50 ms. A detail that could not be fetched is stored as a [Gap]
// with its reason.
//
// A run holds a lease on its connection; a second run fails at once with a
// [HeldError]. The provider's pressure and the owner's caps end a run as deferred,
// never as failed, and the next run continues there.
//
// Use package transport alone when the data does not have to be complete.
//
// A [Collector] does one run at a time; [Collector.Live] may be called from any
// goroutine while it runs. This package declares the [Store] and [Sink] that it needs;
// other packages implement them.
//
// Stability: settling.
package collect

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

// Collector collects one connection. Only one Run may be under way at a time.
type Collector struct {
	o   Options
	mu  sync.Mutex
	run *execution // the newest run, for Live
}

// New returns a collector with the given options. If one is invalid, the error names
// the field, its value and its bound.
func New(o Options) (*Collector, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	return &Collector{o: o}, nil
}

// Run collects until nothing is left, a cap is reached, the provider's pressure
// stops it, Stop is closed or the context ends. It returns nil if the run
// drained or was deferred, a *HeldError if another run holds the connection, and
// otherwise the error that made the run fail. The summary is valid unless the run
// never started.
func (c *Collector) Run(ctx context.Context) (Summary, error) {
	id, err := newRunID(time.Now())
	if err != nil {
		return Summary{}, err
	}
	r := &execution{o: c.o, id: id, started: time.Now(), gapsOf: map[string]int{}, unmarked: map[string]int64{}, stored: map[string]*keySet{}}
	r.live = live{started: r.started, stage: stage{Phase: PhaseStarting}, width: width{set: c.o.Concurrency}}
	if c.o.MaxWallClock > 0 {
		r.budget.deadline = r.started.Add(c.o.MaxWallClock)
	}
	r.budget.maxRequests = c.o.MaxRequests
	defer r.closeGovernors()
	if r.governor, err = r.govern(firstKey(c.o.Connector)); err != nil {
		return Summary{}, err
	}
	r.live.held = func() headway.Wait { return r.governor.Snapshot().Held }
	waiting, interrupt := context.WithCancel(ctx)
	defer interrupt()
	r.waiting = waiting
	go func() {
		select {
		case <-r.o.Stop:
			interrupt()
		case <-waiting.Done():
		}
	}()
	if r.caller, err = newCaller(r, r.governor); err != nil {
		return Summary{}, err
	}
	c.mu.Lock()
	c.run = r
	c.mu.Unlock()

	if r.lease, err = c.o.Store.Acquire(ctx, LeaseRequest{
		Connection: c.o.Connection, Run: id, Holder: c.o.Holder, Now: r.started, TTL: c.o.LeaseTTL,
	}); err != nil {
		return Summary{}, err
	}
	fault.Point(fault.LeaseAcquired)
	ctx, lost := context.WithCancelCause(ctx)
	beat, record := heartbeat(ctx, r.o.Store, r.lease, r.o.LeaseTTL, lost), r.keepRecord(ctx)
	end := r.collect(ctx)
	lost(nil)
	beat.Wait()
	record.Wait()
	return r.finish(ctx, end)
}

// newRunID returns an id that is unique and sorts by time.
func newRunID(now time.Time) (string, error) {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("collect: naming the run: %w", err)
	}
	return now.UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(b[:]), nil
}

// execution is one run of a connection.
type execution struct {
	o        Options
	id       string
	started  time.Time
	governor *headway.Governor
	others   []otherKey // the keys after the first
	belief   belief
	caller   *caller
	budget   budget
	waiting  context.Context // canceled when Stop is closed, to end all waits
	lease    Lease
	warm     bool
	cooldown Cooldown
	// suspended is why this run no longer requests details; nil while it does.
	suspended *stop
	gapsOf    map[string]int // gaps that this run opened, by stream
	saves     saves
	gathered  *batch // pages that wait to be committed together; nil if there are none
	standBack standBack
	pressed   int // details refused under pressure since the last success
	denied    int // details refused with a 401 since the last success
	// listsLeft is how many streams are walked after this one.
	listsLeft int
	// orphaned counts, by stream, the gaps that no stream of the connection can fetch.
	orphaned map[string]int64
	// at is where the sink writes; noticed is what changed in the sink since the last run.
	at      Location
	noticed []Change
	// stored holds the keys that this run commits, by stream. It has an entry only for
	// streams that had no known items when the run began.
	stored map[string]*keySet
	// bounded reports that CatchupPages stopped a catch-up, so another run continues it.
	bounded  bool
	warnings []connector.Warning
	// initial holds the detail streams that are collected in full, for the first time or
	// again. unmarked counts, by detail stream, deleted records that the sink cannot mark.
	initial  map[string]bool
	unmarked map[string]int64

	live live

	// committing is held during a commit, so that stored counters never decrease.
	// committed is when the last commit ended.
	committing sync.Mutex
	committed  time.Time

	mu      sync.Mutex
	pending []event.Event // written with the next commit
	// refusedKeys holds a warning for each key that was set aside.
	refusedKeys []connector.Warning
}

// stop is the reason that a run ends before it has drained.
type stop struct {
	why     reason.Reason
	retryAt time.Time
	err     error // the error that failed the run; nil if it is deferred
	cause   error // the failed request that deferred the run, if there was one
}

// collect does the work of the run. It returns nil when nothing is left.
func (r *execution) collect(ctx context.Context) *stop {
	r.emit(event.Event{Type: event.RunStart, Phase: string(r.o.Lane)})
	if r.o.Fresh {
		if err := r.forget(ctx); err != nil {
			return r.broken(ctx, err)
		}
	}
	state, err := r.o.Store.Load(ctx, r.o.Connection)
	if err != nil {
		return r.broken(ctx, err)
	}
	r.warmStart(state.Pacing)
	if err := r.openSink(ctx, state); err != nil {
		return r.broken(ctx, err)
	}
	fault.Point(fault.SinkOpened)
	// Commit the sink's initial position, so that after a crash everything written
	// past it can be discarded.
	position, err := r.o.Sink.Sync(ctx)
	if err == nil {
		err = r.commit(ctx, Commit{Sink: position, SinkAt: r.at, Replays: r.returned(state)})
	}
	if err == nil {
		err = r.adopt(ctx)
	}
	if err == nil {
		// Positions may have been reset.
		state, err = r.o.Store.Load(ctx, r.o.Connection)
	}
	if err == nil {
		r.askLimits(ctx)
	}
	if err != nil {
		return r.broken(ctx, err)
	}
	r.cooldown = state.Cooldown
	// First recover gaps, then walk the lists, then recover gaps that the walk left.
	held := r.recover(ctx)
	if held != nil && !held.pressed() {
		return held
	}
	var failed *stop
	chosen := r.chosen()
	for i, s := range chosen {
		r.listsLeft = len(chosen) - 1 - i
		stop := r.stream(ctx, s, state.Lanes)
		switch {
		case stop == nil:
		case !r.alone(stop):
			return cmp.Or(failed, stop)
		default:
			r.emit(event.Event{Type: event.Phase, Stream: s.Name, Phase: string(r.live.phase()), Reason: stop.why, Note: "stream_failed"})
			if failed == nil || failed.err == nil && stop.err != nil {
				failed = stop
			}
		}
	}
	// If the run has a time limit, retry what pressure refused until that limit.
	end := cmp.Or(r.suspended, held)
	if end == nil || !r.budget.deadline.IsZero() {
		end = r.recoverWhileItPays(ctx, end != nil || r.standBack.stood())
	}
	switch {
	case failed != nil || end != nil:
		return cmp.Or(failed, end)
	case r.bounded:
		return &stop{why: reason.MaxCatchup.Reason()}
	}
	return nil
}

// alone reports whether a stop concerns only one stream, so that the run continues
// with the others.
func (r *execution) alone(s *stop) bool {
	switch s.why {
	case reason.NotFound, reason.ClientError, reason.Forbidden, reason.InvalidResponse, reason.CursorRepeats,
		reason.ServerError, reason.Timeout:
		return true
	case reason.Unauthorized:
		return r.caller.accepted() // the credential works for other requests
	default:
		return false
	}
}

// pressed reports whether the provider's pressure caused the stop. Such a stop does
// not end a run that has other work.
func (s *stop) pressed() bool {
	_, ok := reason.AsPressure(s.why)
	return ok && s.err == nil
}

// forget starts the connection over: it sets the sink's data aside, then removes the
// connection's state from the store. If it is interrupted, it can be run again.
func (r *execution) forget(ctx context.Context) error {
	if sink, ok := r.o.Sink.(Asider); ok {
		var names []string
		for _, s := range r.streams() {
			names = append(names, s.Name)
		}
		if _, err := sink.SetAside(names, r.started); err != nil {
			return err
		}
	}
	fault.Point(fault.FreshAside)
	if err := r.o.Store.Forget(ctx, r.lease); err != nil {
		return err
	}
	fault.Point(fault.FreshForgotten)
	return nil
}

// streams returns all streams that the run may write to the sink.
func (r *execution) streams() []StreamInfo { return streamsOf(r.o.Connector) }

func streamsOf(c connector.Connector) []StreamInfo {
	var all []StreamInfo
	for _, s := range c.Streams() {
		all = append(all, StreamInfo{Name: s.Name, KeyField: s.Key})
		if s.DetailStream != "" {
			all = append(all, StreamInfo{Name: s.DetailStream, Parent: s.Name, KeyField: s.DetailKey})
		}
	}
	return all
}

// broken returns the stop for an internal error, a lost lease or a canceled context.
func (r *execution) broken(ctx context.Context, err error) *stop {
	switch {
	case errors.Is(err, ErrLeaseLost), errors.Is(context.Cause(ctx), ErrLeaseLost):
		return &stop{why: reason.LeaseLost, err: ErrLeaseLost}
	case ctx.Err() != nil:
		return &stop{why: reason.Interrupted}
	}
	return &stop{why: reason.Internal, err: err}
}

// halted returns why no further slice may begin, or nil if one may.
func (r *execution) halted(ctx context.Context) *stop {
	if ctx.Err() != nil {
		return r.broken(ctx, ctx.Err())
	}
	select {
	case <-r.o.Stop:
		return &stop{why: reason.Interrupted}
	default:
	}
	if c, ok := r.budget.spent(time.Now()); ok {
		return &stop{why: c.Reason()}
	}
	return nil
}

// refusedFor returns the stop for a list request that failed.
func (r *execution) refusedFor(ctx context.Context, err error) *stop {
	if ctx.Err() != nil {
		return r.broken(ctx, err)
	}
	if refusal, ok := errors.AsType[*reason.Refusal](err); ok {
		return &stop{why: refusal.Reason, retryAt: refusal.RetryAt}
	}
	f, ok := errors.AsType[*connector.Failure](err)
	if !ok {
		return &stop{why: reason.Internal, err: err}
	}
	if f.Stopped != reason.None {
		return &stop{why: f.Stopped, retryAt: f.RetryAt, cause: f}
	}
	switch f.Reason {
	case reason.Unauthorized, reason.Forbidden, reason.NotFound, reason.ClientError, reason.TLS,
		reason.WrongScheme, reason.InvalidResponse, reason.CursorRepeats:
		return &stop{why: f.Reason, err: f}
	default:
		// The provider has a temporary problem: the cursor stays, a later run continues.
		return &stop{why: f.Reason, retryAt: f.RetryAt, cause: f}
	}
}

// capped replaces a deadline by the option that set it: if MaxWallClock is set, a
// deadline is reported as max_wall_clock.
func (r *execution) capped(why reason.Reason) reason.Reason {
	if why == reason.Deadline && !r.budget.deadline.IsZero() {
		return reason.MaxWallClock.Reason()
	}
	return why
}

// heartbeat renews the lease until the context ends. If another holder has taken
// the connection, it calls lost with ErrLeaseLost. A renewal that fails for another
// reason is retried; meanwhile the fencing token protects the state.
func heartbeat(ctx context.Context, store Store, lease Lease, ttl time.Duration, lost context.CancelCauseFunc) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				err := store.Renew(ctx, lease, now, ttl)
				if errors.Is(err, ErrLeaseLost) {
					lost(ErrLeaseLost)
					return
				}
			}
		}
	})
	return &wg
}

// limitsAsker is a connector that can request the provider's limits, by pool.
type limitsAsker interface {
	AskLimits(ctx context.Context, call connector.Caller) (map[string][]control.Fact, error)
}

// askLimits requests the provider's limits before the first attempt, if the connector
// can. Errors are ignored: the limits are then read from later responses.
func (r *execution) askLimits(ctx context.Context) {
	c, ok := r.o.Connector.(limitsAsker)
	if !ok || r.o.Profile == nil {
		return
	}
	ask := func(ctx context.Context, g *headway.Governor) {
		limits, err := c.AskLimits(ctx, r.caller)
		if err != nil {
			return
		}
		for pool, l := range limits {
			g.Advertise(pool, l)
		}
	}
	if first := firstKey(r.o.Connector); first != "" {
		ask(transport.WithKey(ctx, first), r.governor)
	} else {
		ask(ctx, r.governor)
	}
	for _, k := range r.others { // each key has limits of its own
		ask(transport.WithKey(ctx, k.name), k.governor)
	}
}
