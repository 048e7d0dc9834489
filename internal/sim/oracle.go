package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// Oracle is a clairvoyant client: greedy, it sees the provider's state, knows changes,
// faults and strangers in advance, and has the same ceiling, latencies and bound on
// attempts in flight. It is never refused, so it meets no penalty or suspension.
//
// It sends each attempt so that it reaches the provider as soon as there is room. The
// ceiling applies to arrivals at the provider.
//
// For several clients there is one oracle with the sum of their rates, of their attempts in
// flight and, for open work, of their arrivals. The ceiling of a fleet is a single one.
//
// With pools it sends the work that can be admitted soonest, of any pool.
//
// It stays at the knee of a slow-down: it never has more arrivals in a second than the knee
// allows.
//
// Strangers go first: the oracle gets what the limits allow, less the strangers' admissions
// when nobody else is there. If the oracle has used up the limit before a stranger, the
// next room belongs to the stranger; room owed at the horizon is subtracted. This is an
// upper bound, since no client can know future strangers.
//
// Greedy is optimal for each kind of limit alone. With uneven costs it serves work in the
// order of arrival, as clients do.
type Oracle struct {
	// Admissions are the instants of its admissions, in order.
	Admissions []time.Duration
	// Pools is the number of admissions of each pool.
	Pools []int64
	// StrangersThrottled is the number of strangers that are refused without any client.
	StrangersThrottled int64
}

// NewOracle runs the clairvoyant client, with the scenario and seed of the run that it is
// compared with.
func NewOracle(s *scenario.Scenario, seed uint64) (*Oracle, error) {
	return newOracle(s, seed, bounds{})
}

func newOracle(s *scenario.Scenario, seed uint64, b bounds) (*Oracle, error) {
	p, err := newProphet(s, seed)
	if err != nil {
		return nil, err
	}
	p.bounds = b
	if err := p.play(); err != nil {
		return nil, err
	}
	p.lone.Advance(s.Horizon)
	return &Oracle{Pools: p.pooled, Admissions: p.admissions, StrangersThrottled: p.lone.Strangers().Throttled}, nil
}

func newProphet(s *scenario.Scenario, seed uint64) (*prophet, error) {
	if s == nil {
		return nil, errNoScenario
	}
	if Bulk(s) {
		return nil, fmt.Errorf("sim: scenario %s has the workload %s, which no interval paces: it is for RunBulk", s.Name, s.Workload.Kind)
	}
	lone, err := provider.New(s, seed)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	room, err := provider.New(limitsOf(s), seed)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	p := &prophet{
		s: s, lone: lone, room: room,
		spacing: s.Owner.Ceiling, places: s.Clients * s.Workload.MaxInFlight,
	}
	if !s.Fleet {
		p.spacing = max(1, p.spacing/time.Duration(s.Clients))
	}
	p.clients = newClients(s, seed, 0, s.Clients)
	p.supply, p.pooled = make([]agenda, len(poolsOf(s))), make([]int64, len(s.Provider.Pools))
	for i := range p.clients {
		p.supply[i%len(p.supply)].plan(event{at: p.clients[i].next(0), line: int32(i)})
	}
	return p, nil
}

// limitsOf returns the scenario with its limits and faults only. A knee becomes a limit on
// the arrivals in a second; the prophet handles strangers.
func limitsOf(s *scenario.Scenario) *scenario.Scenario {
	c := *s
	c.Provider.Strangers, c.Provider.Penalty, c.Provider.Suspend = nil, nil, nil
	c.Provider.Throttle = scenario.Throttle{Status: 429, RetryAfter: scenario.RetryNone, Headers: scenario.HeadersNone}
	c.Provider.Faults = slices.DeleteFunc(slices.Clone(c.Provider.Faults), func(f scenario.Fault) bool { return f.Kind == scenario.Overload })
	c.Provider.Limits = nil // those of pools are kept
	for _, l := range s.Provider.Limits {
		if l.Kind == scenario.Slowdown {
			l = scenario.Limit{Kind: scenario.SlidingWindow, Count: max(1, int(l.Knee.PerSecond())), Window: time.Second}
		}
		c.Provider.Limits = append(c.Provider.Limits, l)
	}
	return &c
}

// prophet runs the oracle.
type prophet struct {
	s          *scenario.Scenario
	lone       *provider.Model // the strangers' admissions without clients
	room       *provider.Model // the limits and their use
	spacing    time.Duration
	places     int
	clients    []client
	supply     []agenda // of each pool, the next work of each client
	pooled     []int64  // admissions of each pool
	slots      []slot   // attempts in flight
	flight     agenda   // when an attempt in each place could arrive
	owed       int      // strangers that go first
	admissions []time.Duration
	bounds     bounds
}

// slot is an attempt in flight, with the times of the next attempt in it. Attempts in
// different slots may overtake each other, like those of clients.
type slot struct {
	vacant        time.Duration // since when
	uplink, total time.Duration
}

// next is an attempt of the oracle that has no slot yet.
type next struct {
	client int
	work   work
	slot   uint32
	at     time.Duration // the earliest arrival
}

// draw takes the next work for a pool, of all clients, and the best slot for it.
func (p *prophet) draw(now time.Duration, pool int) next {
	ev, _ := p.supply[pool].next() // never empty: there is one for each client
	c := &p.clients[ev.line]
	n := next{client: int(ev.line), work: c.take(), at: now}
	p.supply[pool].plan(event{at: c.next(ev.at), line: ev.line})
	if k := len(p.admissions); k > 0 {
		n.at = max(n.at, p.admissions[k-1]+p.spacing)
	}
	if place, ok := p.flight.peek(); ok && (place.at <= n.at || len(p.slots) == p.places) {
		_, _ = p.flight.next()
		n.slot = place.ref
	} else {
		n.slot = uint32(len(p.slots))
		p.slots = append(p.slots, slot{})
		p.load(n.slot)
	}
	s := &p.slots[n.slot]
	n.at = max(n.at, later(max(s.vacant, n.work.since), s.uplink))
	return n
}

// load draws the times of the next attempt in a slot.
func (p *prophet) load(place uint32) {
	s := &p.slots[place]
	s.uplink, s.total = p.clients[int(place)%len(p.clients)].sampler.Latency()
}

func (p *prophet) play() error {
	now := time.Duration(0)
	heads := make([]next, len(p.supply))
	for pool := range heads {
		heads[pool] = p.draw(0, pool)
	}
	for turn := 0; ; turn++ {
		if err := p.bounds.stopped(turn); err != nil {
			return err
		}
		head := soonest(heads)
		n := &heads[head]
		at := max(now, n.at)
		if p.s.Workload.Kind == scenario.Backlog {
			uplink := p.slots[n.slot].uplink
			at = later(p.s.Workload.Awake(max(0, at-uplink)), min(at, uplink))
		}
		if p.owed > 0 {
			at = now
		}
		if stranger := p.lone.NextStranger(); stranger <= at && stranger < p.s.Horizon {
			now = max(now, stranger)
			p.meet(stranger)
			continue
		}
		if at >= p.s.Horizon {
			break
		}
		s := &p.slots[n.slot]
		cost, busy := n.work.cost, s.total-2*s.uplink
		if p.owed > 0 {
			cost, busy = p.s.Workload.Cost.Mean, p.s.Provider.Latency.P50
		}
		now = at
		pool := p.clients[n.client].pool
		if p.owed > 0 {
			pool = 0
		}
		if free := p.room.FreeIn(at, pool, cost, busy); free > at {
			// A change or a stranger may come before that.
			free = min(free, p.room.NextChange(), max(p.lone.NextStranger(), at))
			if p.owed > 0 || len(heads) == 1 {
				now = free
			} else {
				n.at = free
			}
			continue
		}
		v := p.room.ArriveIn(at, n.client/len(heads), pool, cost, busy)
		if p.owed > 0 {
			p.owed--
			continue
		}
		if len(p.admissions) == p.bounds.attempts() {
			return tooLarge(p.s, p.bounds)
		}
		p.admissions = append(p.admissions, at)
		if pool > 0 {
			p.pooled[pool-1]++
		}
		s.vacant = later(at-s.uplink, provider.Slowed(s.total, v.Slow))
		p.load(n.slot)
		p.flight.plan(event{at: later(s.vacant, s.uplink), ref: n.slot})
		heads[head] = p.draw(at, head)
		for i := range heads {
			heads[i].at = max(heads[i].at, at+p.spacing) // all pools share the ceiling
		}
	}
	p.admissions = p.admissions[:max(0, len(p.admissions)-p.owed)]
	return nil
}

// soonest returns the index of the head that can arrive first.
func soonest(heads []next) (first int) {
	for i := range heads {
		if heads[i].at < heads[first].at {
			first = i
		}
	}
	return first
}

// meet lets strangers arrive, up to an instant.
func (p *prophet) meet(at time.Duration) {
	before := p.lone.Strangers().Admitted
	p.lone.Advance(at)
	p.owed += int(p.lone.Strangers().Admitted - before)
}

// AfterChange is how long throttles are attributed to a change of the limits.
const AfterChange = 5 * time.Minute

// Ledger records a run and computes its [Result]. [Run] uses one; a foreign client of the
// same model can use one too. Calls must be in the order of their instants. It is not safe
// for concurrent use.
type Ledger struct {
	s    *scenario.Scenario
	law  string
	seed uint64

	attempts, throttled int64
	clients             []int64 // admissions of each client
	pools               []PoolResult
	admissions          []time.Duration // instants, in order
	waits               []time.Duration

	workSince time.Duration // since when there has been work without an admission
	longest   time.Duration

	sent       []time.Duration // the newest departure under each ceiling
	violations int64

	change      int // number of changes so far
	afterChange int64

	trace *course
}

// neverSent means no departure; any ceiling allows an attempt after it.
const neverSent = -provider.Never

// NewLedger returns the ledger for one run of a scenario.
func NewLedger(s *scenario.Scenario, law string, seed uint64) *Ledger {
	l := &Ledger{s: s, law: law, seed: seed, clients: make([]int64, s.Clients), sent: make([]time.Duration, s.Clients)}
	for i := range l.sent {
		l.sent[i] = neverSent
	}
	for _, p := range s.Provider.Pools {
		l.pools = append(l.pools, PoolResult{Name: p.Name})
	}
	return l
}

// KeepTrace adds a [Trace] to the result. Call it first.
func (l *Ledger) KeepTrace() { l.trace = newCourse(l.s) }

// Pace records the interval of attempts under a ceiling from now on.
func (l *Ledger) Pace(now time.Duration, ceiling int, interval time.Duration) {
	if l.trace != nil {
		l.trace.pace(now, ceiling, interval)
	}
}

// Sent records that an attempt left. Ceilings count from 0: one for each client, or a
// single one for a fleet.
func (l *Ledger) Sent(now time.Duration, ceiling int) {
	if now < l.sent[ceiling]+l.s.Owner.Ceiling {
		l.violations++
	}
	l.sent[ceiling] = now
}

// Pooled records that the newest attempt of [Ledger.Arrived] belongs to a pool, counted
// from 1.
func (l *Ledger) Pooled(pool int, v provider.Verdict) {
	if v.Admitted {
		l.pools[pool-1].Admitted++
	} else if v.Throttled {
		l.pools[pool-1].Throttled++
	}
}

// Arrived records the provider's response to an attempt of a client, counted from 0, for
// work that has waited since.
func (l *Ledger) Arrived(now time.Duration, client int, v provider.Verdict, since time.Duration) {
	l.attempts++
	switch {
	case v.Admitted:
		l.clients[client]++
		l.admissions = append(l.admissions, now)
		l.waits = append(l.waits, now-since)
		l.longest = max(l.longest, now-l.workSince)
		l.workSince = now
	case v.Throttled:
		l.throttled++
		if l.changed(now) {
			l.afterChange++
		}
		if l.trace != nil {
			l.trace.refuse(now)
		}
	}
}

// Idle records, at the start and right after an admission, when there will be work; it need
// not be called if there is some.
func (l *Ledger) Idle(until time.Duration) { l.workSince = until }

// changed reports whether the limits changed recently.
func (l *Ledger) changed(now time.Duration) bool {
	changes := l.s.Provider.Changes
	for l.change < len(changes) && changes[l.change].At <= now {
		l.change++
	}
	return l.change > 0 && now < changes[l.change-1].At+changes[l.change-1].Over+AfterChange
}

// Result computes the result. The model must have been advanced to the horizon.
func (l *Ledger) Result(oracle *Oracle, m *provider.Model) Result {
	admitted := int64(len(l.admissions))
	r := Result{
		Scenario: l.s.Name, Law: l.law, Seed: l.seed, HorizonS: seconds(l.s.Horizon),
		Attempts: l.attempts, Admitted: admitted, Throttled: l.throttled,
		LongestBlockS: seconds(max(l.longest, l.s.Horizon-l.workSince)),
		Suspended:     m.Suspended(), CeilingViolations: l.violations,
	}
	if w := l.s.Workload; w.Kind == scenario.Backlog && w.Rate != (scenario.Rate{}) {
		r.Notes = append(r.Notes, fmt.Sprintf("workload.rate %s is not used: a backlog always has work; for work that arrives at that rate set kind: open", w.Rate))
	}
	if admitted > 0 {
		r.ThrottledPer1000 = new(round(1000*float64(l.throttled)/float64(admitted), 3))
		slices.Sort(l.waits)
		r.WaitP50MS = new(millis(percentile(l.waits, 50)))
		r.WaitP99MS = new(millis(percentile(l.waits, 99)))
		if len(l.clients) > 1 {
			r.FairnessJain = new(round(jain(l.clients), 4))
		}
	}
	if best := len(oracle.Admissions); best > 0 {
		r.GoodputRatio = new(min(1, round(float64(admitted)/float64(best), 4)))
		if at, ok := caughtUp(l.admissions, oracle.Admissions, trailing(l.s, best), l.s.Horizon); ok {
			r.TimeTo90PctS = new(seconds(at))
		}
	}
	for i, p := range l.pools {
		if best := oracle.Pools[i]; best > 0 {
			p.GoodputRatio = new(min(1, round(float64(p.Admitted)/float64(best), 4)))
		}
		r.Pools = append(r.Pools, p)
	}
	if n := len(l.s.Provider.Changes); n > 0 {
		r.ThrottlesPerChange = new(round(float64(l.afterChange)/float64(n), 3))
	}
	if l.s.Provider.Strangers != nil {
		r.StrangersHarm = new(max(0, m.Strangers().Throttled-oracle.StrangersThrottled))
	}
	if l.trace != nil {
		r.Trace = l.trace.drawUp(l, oracle)
	}
	return r
}

// bounds may end a run before its horizon. The zero value means [MaxAttempts] alone.
type bounds struct {
	most int
	stop func() error
}

func (b bounds) attempts() int {
	if b.most > 0 {
		return min(b.most, MaxAttempts)
	}
	return MaxAttempts
}

// stopped calls Stop now and then; turn counts the calls.
func (b bounds) stopped(turn int) error {
	if b.stop == nil || turn%256 != 0 {
		return nil
	}
	return b.stop()
}
