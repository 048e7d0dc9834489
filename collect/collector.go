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

// Collector collects one connection.
type Collector struct {
	o   Options
	mu  sync.Mutex
	run *execution // the run under way, for Live
}

// New checks the options; the error names the field, its value and its bound.
func New(o Options) (*Collector, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	return &Collector{o: o}, nil
}

// Run collects until nothing is left, a cap is spent, the provider's pressure
// stops it, Stop is closed or the context ends. The error is nil for a run that
// drained or was deferred; a *HeldError when another run has the connection;
// otherwise what made it fail. Except for a *HeldError the summary holds either way.
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
	defer r.leave()
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

// newRunID is unique and sorts by time.
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
	others   []otherKey // after the first
	belief   belief
	caller   *caller
	budget   budget
	waiting  context.Context // ends when Stop is closed: nothing waits any longer
	lease    Lease
	warm     bool
	cooldown Cooldown
	// suspended says why details are no longer asked for in this run; nil while
	// they are.
	suspended *stop
	gapsOf    map[string]int // gaps that this run opened, by stream
	saves     saves
	gathered  *batch // of pages that wait for their commit; nil means none
	standBack standBack
	pressed   int // details that pressure refused since the last that was fetched
	denied    int // details refused with a 401 since the last that was fetched
	// listsLeft is how many streams are walked after this one.
	listsLeft int
	// orphaned counts gaps, by stream, that no stream of the connection can fetch.
	orphaned map[string]int64
	// at is where the sink writes, noticed what differs in it since the last run.
	at      Location
	noticed []Change
	// stored holds the keys of the items that this run commits, by stream, of streams
	// that had none before.
	stored map[string]*keySet
	// bounded says that a catch-up has pages left for another run.
	bounded  bool
	warnings []connector.Warning
	// initial are the streams of details that are collected for the first time, or as
	// for the first time; unmarked counts records of them that are gone and that
	// the sink cannot mark.
	initial  map[string]bool
	unmarked map[string]int64

	live live

	// committing is held while something is committed: counters only grow.
	// Committed is when that was last done.
	committing sync.Mutex
	committed  time.Time

	mu      sync.Mutex
	pending []event.Event // to go into the next commit
	// refusedKeys are the keys that were set aside.
	refusedKeys []connector.Warning
}

// stop is why a run ends before it is drained.
type stop struct {
	why     reason.Reason
	retryAt time.Time
	err     error // what made it fail; nil when it is deferred
	cause   error // what deferred it, where that was a request
}

// collect does the work of the run; nil means that nothing is left.
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
	// From here on the store knows where the sink begins: what a crash leaves
	// behind it is ours to discard.
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
	// What is owed comes first, then what is new, then what the walk left owed.
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
	// What pressure kept from being fetched is tried again for as long as the run
	// has a time to fill.
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

// alone reports whether a stop concerns only the stream that met it, so that
// the others are collected all the same.
func (r *execution) alone(s *stop) bool {
	switch s.why {
	case reason.NotFound, reason.ClientError, reason.Forbidden, reason.InvalidResponse, reason.CursorRepeats,
		reason.ServerError, reason.Timeout:
		return true
	case reason.Unauthorized:
		return r.caller.accepted() // the credential is good for something
	default:
		return false
	}
}

// pressed reports whether the provider's pressure made the stop: that does not
// end a run while there is other work.
func (s *stop) pressed() bool {
	_, ok := reason.AsPressure(s.why)
	return ok && s.err == nil
}

// forget starts the connection over: what the sink has is set aside, what the
// store knows is removed. Cut short between the two it can be done again.
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

// streams is all that will be written to the sink.
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

// broken is the end of a run that met an internal error, or was canceled.
func (r *execution) broken(ctx context.Context, err error) *stop {
	switch {
	case errors.Is(err, ErrLeaseLost), errors.Is(context.Cause(ctx), ErrLeaseLost):
		return &stop{why: reason.LeaseLost, err: ErrLeaseLost}
	case ctx.Err() != nil:
		return &stop{why: reason.Interrupted}
	}
	return &stop{why: reason.Internal, err: err}
}

// halted says why no further slice may be begun; nil when one may.
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

// refusedFor is the end of a run whose list could not be read.
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
		// The provider is in trouble or away: the cursor stands, a later run goes on.
		return &stop{why: f.Reason, retryAt: f.RetryAt, cause: f}
	}
}

// capped says in the owner's words what ended a wait: a deadline that the run
// itself set is its wall clock.
func (r *execution) capped(why reason.Reason) reason.Reason {
	if why == reason.Deadline && !r.budget.deadline.IsZero() {
		return reason.MaxWallClock.Reason()
	}
	return why
}

// heartbeat renews the lease until the context ends. Once another holder has
// the connection the run is canceled with that as its cause. A renewal that
// fails for another reason is tried again: the fencing token protects the
// state meanwhile, not the clock.
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

// limitsAsker is a connector that can ask the provider for its limits, by pool.
type limitsAsker interface {
	AskLimits(ctx context.Context, call connector.Caller) (map[string][]control.Fact, error)
}

// askLimits begins with what the provider says is left, where that can be asked for.
// Without an answer its limits are known from the responses to come.
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
