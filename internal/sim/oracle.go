package sim

import (
	"fmt"
	"time"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// Oracle is what a clairvoyant client is admitted: greedy, it sees the
// provider's state, knows changes, faults and strangers in advance, and has the
// same ceiling, latencies and bound in flight. It is never refused, so neither
// penalty nor suspension touches it.
//
// It sends each attempt so that it reaches the provider the instant that there
// is room. The ceiling is kept between arrivals at the provider.
//
// Several clients are one oracle with the sum of their rates, of their places
// in flight and, for open work, of their arrivals. A fleet's ceiling is one.
//
// It stays at the knee of a slow-down: it never has more arrivals in a second
// than the knee allows.
//
// Strangers go first: the oracle has what the limits can bear, less what the
// strangers are admitted when nobody else is there. A stranger that finds the
// limit used up by the oracle is owed the next room that there is; what is still
// owed at the horizon is taken off. It is a bound from above: no client can
// know a stranger that is yet to come.
//
// Greedy is the most that can be had from each kind of limit alone. With
// uneven costs it serves them in the order in which they come, as clients do.
type Oracle struct {
	// Admissions are the instants at which it is admitted, in order.
	Admissions []time.Duration
	// StrangersThrottled is how many strangers are refused without any client.
	StrangersThrottled int64
}

// NewOracle plays the clairvoyant client. The scenario and the seed are those of
// the run that it is compared with.
func NewOracle(s *scenario.Scenario, seed uint64) (*Oracle, error) {
	p, err := newProphet(s, seed)
	if err != nil {
		return nil, err
	}
	if err := p.play(); err != nil {
		return nil, err
	}
	p.lone.Advance(s.Horizon)
	return &Oracle{Admissions: p.admissions, StrangersThrottled: p.lone.Strangers().Throttled}, nil
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
		s: s, lone: lone, room: room, most: MaxAttempts,
		spacing: s.Owner.Ceiling, places: s.Clients * s.Workload.MaxInFlight,
	}
	if !s.Fleet {
		p.spacing = max(1, p.spacing/time.Duration(s.Clients))
	}
	for i := range s.Clients {
		p.clients = append(p.clients, newClient(s, seed, i))
		p.supply.plan(event{at: p.clients[i].next(0), line: int32(i)})
	}
	return p, nil
}

// limitsOf is the scenario with its limits and faults alone. A knee becomes a
// limit on the arrivals in a second, strangers are played by the prophet.
func limitsOf(s *scenario.Scenario) *scenario.Scenario {
	c := *s
	c.Provider.Strangers, c.Provider.Penalty, c.Provider.Suspend = nil, nil, nil
	c.Provider.Throttle = scenario.Throttle{Status: 429, RetryAfter: scenario.RetryNone, Headers: scenario.HeadersNone}
	c.Provider.Limits = nil
	for _, l := range s.Provider.Limits {
		if l.Kind == scenario.Slowdown {
			l = scenario.Limit{Kind: scenario.SlidingWindow, Count: max(1, int(l.Knee.PerSecond())), Window: time.Second}
		}
		c.Provider.Limits = append(c.Provider.Limits, l)
	}
	return &c
}

// prophet plays the oracle.
type prophet struct {
	s          *scenario.Scenario
	lone       *provider.Model // what strangers get without clients
	room       *provider.Model // the limits, and who has used them
	spacing    time.Duration
	places     int
	clients    []client
	supply     agenda // the next work of each client
	slots      []slot // places in flight that were ever needed
	flight     agenda // when an attempt in each place could arrive
	owed       int    // strangers that are to be let in first
	admissions []time.Duration
	most       int // admissions before it is an error
}

// slot is a place in flight, with the times of the next attempt in it. Attempts
// in different places may pass each other on the way, as those of clients do.
type slot struct {
	vacant        time.Duration // since when
	uplink, total time.Duration
}

// next is an attempt of the oracle's that is to be placed.
type next struct {
	client int
	work   work
	slot   uint32
	at     time.Duration // it cannot arrive before
}

// draw takes the next work of all clients, and the best place for it.
func (p *prophet) draw(now time.Duration) next {
	ev, _ := p.supply.next() // there is always one for each client
	c := &p.clients[ev.line]
	n := next{client: int(ev.line), work: c.take(), at: now}
	p.supply.plan(event{at: c.next(ev.at), line: ev.line})
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

// load draws the times of the next attempt in a place.
func (p *prophet) load(place uint32) {
	s := &p.slots[place]
	s.uplink, s.total = p.clients[int(place)%len(p.clients)].sampler.Latency()
}

func (p *prophet) play() error {
	now := time.Duration(0)
	n := p.draw(0)
	for {
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
		if free := p.room.Free(at, cost, busy); free > at {
			// Until then a change or a stranger may come between.
			now = min(free, p.room.NextChange(), max(p.lone.NextStranger(), at))
			continue
		}
		v := p.room.Arrive(at, n.client, cost, busy)
		if p.owed > 0 {
			p.owed--
			continue
		}
		if len(p.admissions) == p.most {
			return tooLarge(p.s)
		}
		p.admissions = append(p.admissions, at)
		s.vacant = later(at-s.uplink, provider.Slowed(s.total, v.Slow))
		p.load(n.slot)
		p.flight.plan(event{at: later(s.vacant, s.uplink), ref: n.slot})
		n = p.draw(at)
	}
	p.admissions = p.admissions[:max(0, len(p.admissions)-p.owed)]
	return nil
}

// meet lets strangers come, up to an instant.
func (p *prophet) meet(at time.Duration) {
	before := p.lone.Strangers().Admitted
	p.lone.Advance(at)
	p.owed += int(p.lone.Strangers().Admitted - before)
}
