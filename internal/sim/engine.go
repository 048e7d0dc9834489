package sim

import (
	"fmt"
	"net/http"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/internal/sim/fit"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// MaxAttempts is the maximum number of attempts of a run, and of its oracle. A scenario
// that needs more is an error.
const MaxAttempts = 20_000_000

// line is one pacer and its clients: one client, or a fleet.
type line struct {
	pacer   pacer
	clients []client
	first   int  // the number of its first client
	turn    int  // the client whose turn it is
	several bool // more than one client

	asking  bool // a question is pending
	askAt   time.Duration
	current uint32 // the generation of the pending question; older ones are void
}

// attempt is an attempt in flight.
type attempt struct {
	ticket        pacing.Ticket
	work          work
	sent          time.Duration
	uplink, total time.Duration
	line, client  int32
	pool          int32 // from 1; 0 without pools
	limit         int32 // the limit that refused it, by its position; -1 for a block or none
	slowed        bool
	overloaded    bool
	outcome       pacing.Outcome
}

// pacer decides when a line's attempts may leave.
type pacer interface {
	// admit sends an attempt for some work in a pool, counted from 1, if that is allowed now.
	// Otherwise at is when asking again may succeed, pacing.Forever if that depends on an
	// outcome.
	admit(now time.Duration, pool int, w *work) (t pacing.Ticket, at time.Duration, ok bool)
	// settle reports the outcome of an attempt.
	settle(now time.Duration, a *attempt)
	// interval returns the interval between attempts, if there is one.
	interval() time.Duration
}

// governed uses a Core as a pacer.
type governed struct {
	*pacing.Core
	ready time.Duration // the next attempt's time after jitter
	drawn bool          // ready is set
	pools []scenario.Pool
}

func (g *governed) admit(now time.Duration, pool int, w *work) (pacing.Ticket, time.Duration, bool) {
	if !g.drawn {
		g.ready, g.drawn = g.Arrive(now), true
	}
	a := pacing.Attempt{Ready: g.ready, Cost: w.estimate}
	if pool > 0 {
		a.Pool = g.In(now, g.pools[pool-1].Name)
	}
	ticket, d, _ := g.Admit(now, a)
	if d.OK {
		g.drawn = false
	}
	return ticket, d.At, d.OK
}

func (g *governed) settle(now time.Duration, a *attempt) { g.Settle(now, a.ticket, a.outcome) }

func (g *governed) interval() time.Duration { return g.Interval() }

// engine runs one scenario.
type engine struct {
	s      *scenario.Scenario
	law    string
	model  *provider.Model
	ledger *Ledger
	agenda agenda
	lines  []line
	hub    *hub // nil unless the clients are members of a fleet

	blind  bool // header fields are ignored
	fields []provider.Field
	header http.Header

	attempts []attempt
	vacant   []uint32
	arrivals []arrival // only for a fleet
	sent     int
	bounds   bounds

	onAttempt func(fit.Attempt) // may be nil
}

// newEngine returns a run under a law.
func newEngine(s *scenario.Scenario, law string, seed uint64, ledger *Ledger) (*engine, error) {
	e, err := newPaced(s, law, seed, ledger, func(_ *provider.Model, i int) (pacer, error) {
		core, err := pacing.New(coreConfig(s, law, seed, i))
		return &governed{Core: core, pools: s.Provider.Pools}, err
	})
	if err == nil && s.Link != nil {
		e.hub = newHub(e, seed)
	}
	return e, err
}

// newPaced returns a run with a pacer from made for each line, counted from 0.
func newPaced(s *scenario.Scenario, law string, seed uint64, ledger *Ledger, made func(m *provider.Model, i int) (pacer, error)) (*engine, error) {
	model, err := provider.NewAt(s, seed, start(s))
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	e := &engine{s: s, law: law, model: model, ledger: ledger, header: make(http.Header)}
	size, lines := 1, s.Clients
	if s.Fleet && s.Link == nil {
		size, lines = s.Clients, 1
	}
	for i := range lines {
		p, err := made(model, i)
		if err != nil {
			return nil, fmt.Errorf("sim: scenario %s: %w", s.Name, err)
		}
		l := line{pacer: p, first: i * size, several: size > 1}
		l.clients = newClients(s, seed, l.first, size)
		e.lines = append(e.lines, l)
		e.ledger.Pace(0, i, p.interval())
		e.question(i, 0)
	}
	e.ledger.Idle(e.idleUntil(0, &e.lines[0].clients[0]))
	return e, nil
}

// coreConfig returns the configuration of a line's Core. Each has its own seed.
func coreConfig(s *scenario.Scenario, law string, seed uint64, i int) pacing.Config {
	places := s.Workload.MaxInFlight
	if s.Fleet && s.Link == nil {
		places *= s.Clients
	}
	return pacing.Config{
		Law: law, Ceiling: s.Owner.Ceiling, Initial: s.Owner.Initial, Passive: s.Owner.Passive, Windows: s.Owner.Windows,
		MaxInFlight: places, Seed: mix(seed, uint64(i)), Phase: time.Duration(start(s).UnixNano()),
	}
}

// start returns the wall clock at the start of a run: a recent day, so that header fields
// look realistic, on which the longest window aligned to the epoch begins.
func start(s *scenario.Scenario) time.Time {
	today := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	longest := time.Nanosecond
	for _, l := range s.Provider.EachLimit {
		if l.Align == scenario.AlignEpoch {
			longest = max(longest, l.Window)
		}
	}
	return today.Add(-time.Duration(today.UnixNano()) % longest)
}

// mix returns one of many seeds (the finalizer of SplitMix64).
func mix(seed, i uint64) uint64 {
	z := seed + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// run processes events until the horizon.
func (e *engine) run() error {
	for turn := 0; ; turn++ {
		if err := e.bounds.stopped(turn); err != nil {
			return err
		}
		ev, ok := e.agenda.next()
		if !ok || ev.at >= e.s.Horizon {
			e.model.Advance(e.s.Horizon)
			return nil
		}
		switch ev.kind {
		case ask:
			if l := &e.lines[ev.line]; !l.asking || ev.ref != l.current {
				continue // an earlier outcome has answered it
			}
			e.lines[ev.line].asking = false
			if err := e.send(ev.at, int(ev.line)); err != nil {
				return err
			}
		case arrive:
			e.arrive(ev.at, ev.ref)
		case settle:
			i := e.settle(ev.at, ev.ref)
			if err := e.send(ev.at, i); err != nil {
				return err
			}
		case carry, enter, beat, wake, trouble:
			if err := e.hub.handle(ev); err != nil {
				return err
			}
		case finish: // only in bulk workloads
		}
	}
}

// question schedules the line's question, instead of the pending one.
func (e *engine) question(i int, at time.Duration) {
	l := &e.lines[i]
	if l.asking && l.askAt == at {
		return
	}
	l.current++
	l.asking, l.askAt = at != pacing.Forever, at
	if l.asking {
		e.agenda.plan(event{at: at, kind: ask, line: int32(i), ref: l.current})
	}
}

// send sends all attempts that a line may send now, and schedules the next question.
func (e *engine) send(now time.Duration, i int) error {
	if err := e.sendAll(now, i); err != nil {
		return err
	}
	if e.hub != nil {
		e.hub.flush(now, i)
	}
	return nil
}

func (e *engine) sendAll(now time.Duration, i int) error {
	l := &e.lines[i]
	for {
		c, at := l.pick(now, e.s.Workload.MaxInFlight)
		if c < 0 {
			e.question(i, at)
			return nil
		}
		ticket, at, ok := l.pacer.admit(now, l.clients[c].pool, l.clients[c].first())
		if !ok && len(e.s.Provider.Pools) > 1 {
			c, ticket, at, ok = e.pass(now, l, c, at)
		}
		if !ok {
			if at <= now {
				return fmt.Errorf("sim: scenario %s, law %s: at %v the client was to wait until %v, which must be later", e.s.Name, e.law, now, at)
			}
			e.question(i, at)
			return nil
		}
		l.turn = (c + 1) % len(l.clients)
		if e.sent++; e.sent > e.bounds.attempts() {
			return tooLarge(e.s, e.bounds)
		}
		e.depart(now, i, c, ticket)
	}
}

// pass lets work for other pools go before work that client c may not send yet. If none may
// go, at is when any may.
func (e *engine) pass(now time.Duration, l *line, c int, at time.Duration) (int, pacing.Ticket, time.Duration, bool) {
	asked := map[int]bool{l.clients[c].pool: true}
	for n := 1; n < len(l.clients); n++ {
		o := (c + n) % len(l.clients)
		m := &l.clients[o]
		if asked[m.pool] || l.several && m.inFlight >= e.s.Workload.MaxInFlight {
			continue
		}
		next := m.next(now)
		if next > now {
			at = min(at, next)
			continue
		}
		asked[m.pool] = true
		ticket, again, ok := l.pacer.admit(now, m.pool, m.first())
		if ok {
			return o, ticket, now, true
		}
		at = min(at, again)
	}
	return c, pacing.Ticket{}, at, false
}

func tooLarge(s *scenario.Scenario, b bounds) error {
	return fmt.Errorf("sim: scenario %s takes more than %d attempts: shorten its horizon of %v, raise its ceiling of %v or lower its max_in_flight of %d",
		s.Name, b.attempts(), s.Horizon, s.Owner.Ceiling, s.Workload.MaxInFlight)
}

// depart sends an attempt.
func (e *engine) depart(now time.Duration, i, c int, ticket pacing.Ticket) {
	l := &e.lines[i]
	m := &l.clients[c]
	m.inFlight++
	a := attempt{ticket: ticket, work: m.take(), sent: now, line: int32(i), client: int32(c), pool: int32(m.pool)}
	a.uplink, a.total = m.latency(&a.work)
	e.ledger.Sent(now, i)

	var place uint32
	if n := len(e.vacant); n > 0 {
		place = e.vacant[n-1]
		e.vacant = e.vacant[:n-1]
		a.outcome.Facts = e.attempts[place].outcome.Facts
		e.attempts[place] = a
	} else {
		place = uint32(len(e.attempts))
		e.attempts = append(e.attempts, a)
	}
	e.agenda.plan(event{at: later(now, a.uplink), kind: arrive, ref: place})
}

// arrive handles an attempt at the provider.
func (e *engine) arrive(now time.Duration, place uint32) {
	a := &e.attempts[place]
	l := &e.lines[a.line]
	m := &l.clients[a.client]
	number := l.first + int(a.client)/max(1, len(e.s.Provider.Pools))
	v := e.model.ArriveIn(now, number, m.pool, a.work.cost, a.total-2*a.uplink)
	a.limit, a.slowed, a.overloaded = int32(v.Index), v.Slow > 1, v.Overloaded
	a.outcome = e.outcome(v, a.outcome.Facts[:0])
	a.outcome.Cost = a.work.cost
	took := 2 * a.uplink
	if v.Admitted {
		m.pending--
		took = provider.Slowed(a.total, v.Slow)
	}
	e.ledger.Arrived(now, number, v, a.work.since)
	if m.pool > 0 {
		e.ledger.Pooled(m.pool, v)
	}
	if v.Admitted {
		e.ledger.Idle(e.idleUntil(now, m))
	}
	if e.s.Fleet {
		e.arrivals = append(e.arrivals, arrival{now, int32(m.pool)})
	}
	if e.onAttempt != nil {
		e.onAttempt(e.recorded(a, v, later(a.sent, took)))
	}
	e.agenda.plan(event{at: later(a.sent, took), kind: settle, ref: place})
}

// idleUntil returns when any client has work that was not admitted. It checks m first,
// which most likely has some.
func (e *engine) idleUntil(now time.Duration, m *client) time.Duration {
	at := m.idleUntil(now)
	for i := range e.lines {
		for c := range e.lines[i].clients {
			if at <= now {
				return now
			}
			at = min(at, e.lines[i].clients[c].idleUntil(now))
		}
	}
	return at
}

// settle handles a response at the client, and returns the line.
func (e *engine) settle(now time.Duration, place uint32) (i int) {
	a := &e.attempts[place]
	i = int(a.line)
	l := &e.lines[i]
	m := &l.clients[a.client]
	m.inFlight--
	if class := a.outcome.Class; class.Retryable() {
		m.giveBack(a.work)
	} else if !class.Success() {
		m.pending-- // rejected: dropped
	}
	l.pacer.settle(now, a)
	e.ledger.Pace(now, i, l.pacer.interval())
	e.vacant = append(e.vacant, place)
	return i
}

// outcome converts a response to an outcome. Its facts are appended to a slice.
func (e *engine) outcome(v provider.Verdict, to []control.Fact) pacing.Outcome {
	status := signal.Classify(v.Status)
	s := signal.Signal{Class: status}
	if !e.blind && e.s.Provider.Throttle.Headers != scenario.HeadersNone {
		e.fields = e.model.Fields(v, e.fields[:0])
		clear(e.header)
		for _, f := range e.fields {
			e.header[f.Name] = append(e.header[f.Name], f.Value)
		}
		s = signal.Read(e.model.Wall(), v.Status, e.header, nil)
	}
	o := pacing.OutcomeOf(to, &s)
	o.RetryAfter = v.RetryAfter // exact even if the field is rounded or absent
	switch {
	case v.Admitted:
		o.Class = reason.OK
	case v.Reset:
		o.Class = reason.Lost
	case v.Suspended:
		o.Class = reason.Rejected
	case v.Throttled && status != reason.Overloaded:
		// Whatever the status: a description of the provider would define it.
		o.Class = reason.Throttled
	default: // an outage, or a throttle that looks like one
		o.Class = reason.Overloaded
	}
	return o
}

// kind is the kind of an event.
type kind uint8

const (
	ask     kind = iota // a line may have something to send
	arrive              // an attempt reaches the provider
	settle              // a response arrives
	finish              // the provider has finished a batch
	carry               // a message of a fleet arrives
	enter               // a member connects to the server
	beat                // a member's heartbeat is due
	wake                // the server has something to do
	trouble             // a fault of the link begins or ends
)

// event happens at an instant.
type event struct {
	at   time.Duration
	seq  uint64 // the order of planning, for events at the same instant
	kind kind
	line int32  // ask: the line; finish: the user
	ref  uint32 // ask: the generation; otherwise the attempt's place
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// agenda holds future events in a binary heap of plain values, so that planning allocates
// only while the heap grows.
type agenda struct {
	heap []event
	seq  uint64
}

func (a *agenda) plan(e event) {
	a.seq++
	e.seq = a.seq
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&a.heap[up]) {
			break
		}
		a.heap[i] = a.heap[up]
		i = up
	}
	a.heap[i] = e
}

// peek returns the earliest event.
func (a *agenda) peek() (first event, ok bool) {
	if len(a.heap) == 0 {
		return event{}, false
	}
	return a.heap[0], true
}

// next removes the earliest event; ok is false if there is none.
func (a *agenda) next() (first event, ok bool) {
	if len(a.heap) == 0 {
		return event{}, false
	}
	first = a.heap[0]
	last := a.heap[len(a.heap)-1]
	a.heap = a.heap[:len(a.heap)-1]
	if n := len(a.heap); n > 0 {
		i := 0
		for {
			down := 2*i + 1
			if down >= n {
				break
			}
			if down+1 < n && a.heap[down+1].before(&a.heap[down]) {
				down++
			}
			if !a.heap[down].before(&last) {
				break
			}
			a.heap[i] = a.heap[down]
			i = down
		}
		a.heap[i] = last
	}
	return first, true
}
