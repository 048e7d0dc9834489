package sim

import (
	"fmt"
	"time"

	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/reason"
)

// identity is one user of a bulk workload, with a provider of its own and its results.
type identity struct {
	model     *provider.Model
	sampler   *provider.Sampler
	executing int // batches that the provider works on

	share    BulkUser
	inFlight int
	area     float64 // the integral of inFlight, in batch seconds
	since    time.Duration
	gate     time.Duration // the end of the requested waits
	waited   time.Duration
}

// trip is a batch in flight.
type trip struct {
	batch         dispatch.Batch
	sent          time.Duration
	uplink, total time.Duration // without the provider's work
	work          time.Duration // if no other batch is being executed
	verdict       provider.Verdict
}

// bulkEngine loads the rows of one scenario with the production dispatcher, against a model
// of the provider for each identity.
type bulkEngine struct {
	s      *scenario.Scenario
	core   *dispatch.Core
	sees   bool // whether the law uses the server's recommendation
	users  []identity
	agenda agenda
	course bulkCourse

	offered   int
	asked     uint32 // the generation of the pending question; older ones are void
	executing int
	hint      int
	knee      int
	change    int // the next change that may affect the hint or the knee

	trips    []trip
	vacant   []uint32
	served   int64 // batches
	rows     int64 // rows in them
	most     int64 // maximum number of batches
	finished bool
	end      time.Duration
}

func newBulkEngine(s *scenario.Scenario, seed uint64, p *dispatch.Params, sees bool) (*bulkEngine, error) {
	e := &bulkEngine{
		s: s, core: dispatch.New(p, s.Workload.Users, 0), sees: sees, hint: s.Provider.Hint, knee: s.Provider.Batch.Knee,
		users: make([]identity, s.Workload.Users), most: MaxBatches,
	}
	for i := range e.users {
		model, err := provider.NewAt(s, mix(seed, uint64(i)+1), start(s))
		if err != nil {
			return nil, fmt.Errorf("sim: %w", err)
		}
		e.users[i].model, e.users[i].sampler = model, provider.NewSampler(s, seed, i)
	}
	return e, nil
}

// run processes events until the load ends or the horizon is reached.
func (e *bulkEngine) run() error {
	if err := e.step(0); err != nil {
		return err
	}
	for !e.finished {
		ev, ok := e.agenda.next()
		if !ok {
			return fmt.Errorf("at %v nothing is to come and the load is not over", e.end)
		}
		if ev.at >= e.s.Horizon {
			e.pass(e.s.Horizon)
			return nil
		}
		switch ev.kind {
		case ask:
			if ev.ref != e.asked {
				continue // the dispatcher was asked after an earlier event
			}
		case arrive:
			e.arrive(ev.at, ev.ref)
			continue
		case finish:
			e.users[ev.line].executing--
			e.executing--
			continue
		case settle:
			e.settle(ev.at, ev.ref)
		case carry, enter, beat, wake, trouble: // of fleets
		}
		if err := e.step(ev.at); err != nil {
			return err
		}
	}
	return nil
}

// pass updates the integrals over time.
func (e *bulkEngine) pass(now time.Duration) {
	e.end = now
	for i := range e.users {
		e.users[i].pass(now)
	}
}

func (u *identity) pass(now time.Duration) {
	u.area += float64(u.inFlight) * (now - u.since).Seconds()
	u.since = now
}

// step offers rows while there is room, sends all batches that may be sent, and plans the
// next question.
func (e *bulkEngine) step(now time.Duration) error {
	for {
		for ; e.offered < e.s.Workload.Rows && !e.core.Full(); e.offered++ {
			e.core.Offer(now, dispatch.Row{Number: int64(e.offered), Bytes: 1})
		}
		if e.offered == e.s.Workload.Rows {
			e.core.End()
		}
		d := e.core.Next(now)
		switch d.Action {
		case dispatch.Send:
			if e.core.Counts().Sent > e.most {
				return fmt.Errorf("the load takes more than %d batches: lower workload.rows of %d, or the limits' pressure on it", MaxBatches, e.s.Workload.Rows)
			}
			e.depart(now, d.Batch)
			continue
		case dispatch.Finish:
			e.finished = true
			e.pass(now)
		case dispatch.Wait:
			e.asked++
			if d.At <= now {
				return fmt.Errorf("at %v the load was to wait until %v, which must be later", now, d.At)
			}
			if d.At != dispatch.Never {
				e.agenda.plan(event{at: d.At, kind: ask, ref: e.asked})
			}
		}
		e.course.look(now, e.core, e.hint*len(e.users))
		return nil
	}
}

// depart sends a batch.
func (e *bulkEngine) depart(now time.Duration, b dispatch.Batch) {
	u := &e.users[b.Identity]
	u.pass(now)
	u.inFlight++
	u.share.Batches++
	u.share.ParallelismMax = max(u.share.ParallelismMax, u.inFlight)
	t := trip{batch: b, sent: now, work: u.sampler.Execution(len(b.Rows))}
	t.uplink, t.total = u.sampler.Latency()
	e.course.fly(now, 1)

	var place uint32
	if n := len(e.vacant); n > 0 {
		place = e.vacant[n-1]
		e.vacant = e.vacant[:n-1]
		e.trips[place] = t
	} else {
		place = uint32(len(e.trips))
		e.trips = append(e.trips, t)
	}
	e.agenda.plan(event{at: later(now, t.uplink), kind: arrive, ref: place})
}

// arrive handles a batch at the provider. Its execution time is decided now, by the batches
// in execution: a later batch does not slow an earlier one.
func (e *bulkEngine) arrive(now time.Duration, place uint32) {
	t := &e.trips[place]
	u := &e.users[t.batch.Identity]
	e.advance(now)
	busy := provider.Slowed(t.work, e.crowding(u))
	t.verdict = u.model.Arrive(now, 0, float64(len(t.batch.Rows)), busy)
	took := 2 * t.uplink
	if t.verdict.Admitted {
		busy = provider.Slowed(busy, t.verdict.Slow)
		took = later(t.total, busy)
		u.executing++
		e.executing++
		e.agenda.plan(event{at: later(now, busy), kind: finish, line: int32(t.batch.Identity)})
	}
	e.agenda.plan(event{at: later(t.sent, took), kind: settle, ref: place})
}

// advance updates the hint and the knee. The models apply changes of limits.
func (e *bulkEngine) advance(now time.Duration) {
	for ; e.change < len(e.s.Provider.Changes) && e.s.Provider.Changes[e.change].At <= now; e.change++ {
		c := e.s.Provider.Changes[e.change]
		if c.Hint > 0 {
			e.hint = c.Hint
		}
		if c.Knee > 0 {
			e.knee = c.Knee
		}
	}
}

// crowding returns the factor by which one more batch takes longer because of other batches
// in execution, of its user or of all.
func (e *bulkEngine) crowding(u *identity) float64 {
	slow := 1.0
	if e.knee > 0 {
		slow = max(slow, float64(u.executing+1)/float64(e.knee))
	}
	if shared := e.s.Provider.Batch.SharedKnee; shared > 0 {
		slow = max(slow, float64(e.executing+1)/float64(shared))
	}
	return slow
}

// settle handles a response at the client.
func (e *bulkEngine) settle(now time.Duration, place uint32) {
	t := &e.trips[place]
	u := &e.users[t.batch.Identity]
	u.pass(now)
	u.inFlight--
	e.course.fly(now, -1)
	e.advance(now)
	v := t.verdict
	o := bulkOutcome(v)
	if e.sees && !v.Reset {
		o.Parallelism = e.hint
	}
	switch {
	case v.Admitted:
		rows := int64(len(t.batch.Rows))
		e.served, e.rows, u.share.Rows = e.served+1, e.rows+rows, u.share.Rows+rows
		e.course.load(now, len(t.batch.Rows))
	case v.Throttled:
		u.share.Throttled++
		u.obey(now, v)
		e.course.refuse(now)
		if i := v.Index; e.sees && i >= 0 && e.s.Provider.Limits[i].Kind == scenario.BusyTime {
			// The refusal reports its limit, like Dataverse's codes.
			o.Budget, o.Window = e.s.Provider.Limits[i].Busy, e.s.Provider.Limits[i].Window
		}
	}
	e.core.Settle(now, t.batch.ID, o)
	e.vacant = append(e.vacant, place)
}

// obey counts the wait that a throttle requests. Overlapping waits count once.
func (u *identity) obey(now time.Duration, v provider.Verdict) {
	if !v.HasRetryAfter {
		return
	}
	u.share.LongestRetryAfterS = max(u.share.LongestRetryAfterS, seconds(v.RetryAfter))
	if until := later(now, v.RetryAfter); until > u.gate {
		u.waited += until - max(u.gate, now)
		u.gate = until
	}
}

// bulkOutcome converts a response to an outcome.
func bulkOutcome(v provider.Verdict) dispatch.Outcome {
	o := dispatch.Outcome{RetryAfter: v.RetryAfter, HasRetryAfter: v.HasRetryAfter}
	switch {
	case v.Admitted:
		o.Class = reason.OK
	case v.Reset:
		o.Class, o.Reason, o.Doubt = reason.Lost, reason.Unreachable, true
	case v.Suspended:
		o.Class, o.Reason, o.Fatal = reason.Rejected, reason.Forbidden, true
	case v.Throttled && v.Status != 503 && v.Status != 529:
		o.Class, o.Reason = reason.Throttled, reason.RateLimited.Reason()
	default: // an outage, or a throttle that looks like one
		o.Class, o.Reason = reason.Overloaded, reason.UpstreamPressure.Reason()
		o.Doubt = !v.HasRetryAfter
	}
	return o
}

// BulkTrace is the course of a bulk load.
type BulkTrace struct {
	// Scenario is the scenario; its changes and faults are drawn too.
	Scenario *scenario.Scenario
	Law      string
	Seed     uint64
	// End is when the load ended.
	End   time.Duration
	Steps []BulkStep
	// Hints are the recommendations to all users together.
	Hints []BulkHintChange
}

// BulkHintChange is a recommendation and its start.
type BulkHintChange struct {
	At          time.Duration
	Parallelism int
}

// bulkCourse collects a trace: levels that hold until the next one, and events.
type bulkCourse struct {
	flights, levels []levelAt
	loaded          []levelAt
	refused         []time.Duration
	hints           []BulkHintChange
	looked          time.Duration
}

type levelAt struct {
	at    time.Duration
	level int
}

// fly counts a batch that departs (1) or returns (-1).
func (c *bulkCourse) fly(now time.Duration, by int) {
	level := by
	if n := len(c.flights); n > 0 {
		level += c.flights[n-1].level
	}
	c.flights = append(c.flights, levelAt{now, level})
}

func (c *bulkCourse) load(now time.Duration, rows int) {
	c.loaded = append(c.loaded, levelAt{now, rows})
}

func (c *bulkCourse) refuse(now time.Duration) { c.refused = append(c.refused, now) }

// look records the laws' levels, at most ten times a second, and the recommendations.
func (c *bulkCourse) look(now time.Duration, core *dispatch.Core, hint int) {
	if len(c.hints) == 0 && hint > 0 || len(c.hints) > 0 && c.hints[len(c.hints)-1].Parallelism != hint {
		c.hints = append(c.hints, BulkHintChange{now, hint})
	}
	if len(c.levels) > 0 && now-c.looked < 100*time.Millisecond {
		return
	}
	c.looked = now
	level := 0
	for _, i := range core.Identities(now) {
		level += i.Law.Current
	}
	if n := len(c.levels); n == 0 || c.levels[n-1].level != level {
		c.levels = append(c.levels, levelAt{now, level})
	}
}

// most returns the maximum number of batches in flight.
func (c *bulkCourse) most() (most int) {
	for _, f := range c.flights {
		most = max(most, f.level)
	}
	return most
}

// steps divides the course into n steps of equal length.
func (c *bulkCourse) steps(end time.Duration, n int) []BulkStep {
	if end <= 0 {
		return []BulkStep{}
	}
	n = int(min(time.Duration(n), end))
	steps := make([]BulkStep, n)
	border := func(i int) time.Duration { return end / time.Duration(n) * time.Duration(i) }
	place := func(at time.Duration) int { return min(int(at/max(1, end/time.Duration(n))), n-1) }
	last := func(i int) time.Duration {
		if i == n-1 {
			return end
		}
		return border(i + 1)
	}
	spread := func(levels []levelAt, add func(*BulkStep, float64)) {
		for k, l := range levels {
			to := end
			if k+1 < len(levels) {
				to = levels[k+1].at
			}
			for at := l.at; at < to; {
				i := place(at)
				stop := min(to, last(i))
				add(&steps[i], float64(l.level)*(stop-at).Seconds()/(last(i)-border(i)).Seconds())
				at = stop
			}
		}
	}
	spread(c.levels, func(s *BulkStep, x float64) { s.Level += x })
	spread(c.flights, func(s *BulkStep, x float64) { s.InFlight += x })
	for _, l := range c.loaded {
		steps[place(l.at)].RowsPerS += float64(l.level)
	}
	for _, at := range c.refused {
		steps[place(at)].Throttled++
	}
	for i := range steps {
		s := &steps[i]
		s.ToS = seconds(last(i))
		s.Level, s.InFlight = round(s.Level, 2), round(s.InFlight, 2)
		s.RowsPerS = round(s.RowsPerS/(last(i)-border(i)).Seconds(), 2)
	}
	return steps
}
