package sim

import (
	"math"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/reason"
)

// InformedLaw is the name of the informed client in results.
const InformedLaw = "informed"

// Margin is the caution of an informed client.
type Margin struct {
	// Part is the part of every limit that stays unused.
	Part float64 `json:"part"`
	// Guard, from 0 to 1, is the part of the arrivals' jitter that is allowed for, and how
	// much the client slows down after a refusal if there are strangers.
	Guard float64 `json:"guard"`
}

// Margins returns the margins that the informed client tries.
func Margins() []Margin {
	var all []Margin
	for _, part := range []float64{0, 0.02, 0.08, 0.25} {
		for _, guard := range []float64{0, 0.5, 1} {
			all = append(all, Margin{part, guard})
		}
	}
	return all
}

// RefusalPrice is the cost of one refusal per 1000 admitted attempts, in goodput ratio,
// when margins are compared: 4 % of goodput cost about as much as 4 refusals per 1000.
const RefusalPrice = 0.01

// Informed runs the informed client under every margin and returns the best result: what a
// law could achieve if it had only numbers to find out. A law below it has lost something
// avoidable; the difference between the informed client and the [Oracle] is inherent, or
// nearly.
//
// It knows the kinds of limits, their windows, the penalty, the strangers' mean rate, the
// number of clients, when limits change, and the rest of the scenario. It does not know the
// size of a limit before the first refusal by it, nor after a change that is not gradual.
// It starts as conservatively as a law, with the same ceiling and bound on attempts in
// flight. After a refusal by a limit that it knows, it waits longer each time until
// something is admitted. It knows of blocks while they last, even of those that another
// client caused, and sends nothing that could cause a suspension.
func (p *Player) Informed() (best Result, with Margin, err error) {
	score := math.Inf(-1)
	for _, m := range Margins() {
		r, err := p.informed(m)
		if err != nil {
			return Result{}, Margin{}, err
		}
		s := math.Inf(-1)
		if !r.Suspended && r.GoodputRatio != nil {
			s = *r.GoodputRatio - RefusalPrice*1000*float64(r.Throttled)/float64(max(1, r.Admitted))
		}
		if s > score || best.Law == "" {
			best, with, score = r, m, s
		}
	}
	return best, with, nil
}

func (p *Player) informed(m Margin) (Result, error) {
	ledger := NewLedger(p.s, InformedLaw, p.seed)
	e, err := newPaced(p.s, InformedLaw, p.seed, ledger, func(model *provider.Model, i int) (pacer, error) {
		return newInformed(p.s, model, m, i), nil
	})
	if err != nil {
		return Result{}, err
	}
	e.blind = true
	if err := e.run(); err != nil {
		return Result{}, err
	}
	r := ledger.Result(p.oracle, e.model)
	r.Blocks, r.BlocksPushed = e.model.Blocks()
	return r, nil
}

// An informed client with a guard halves its pace after a refusal by a limit that strangers
// use too, down to a part that depends on the guard. Each later admission multiplies the
// factor by which it is slowed.
const (
	slowest  = 8
	recovery = 0.94
)

// informed is a client that knows everything but numbers.
type informed struct {
	s           *scenario.Scenario
	model       *provider.Model // asked only for what the client knows
	shares      []share
	guard       float64
	early, late time.Duration // bounds on the time from leaving to arriving

	last     time.Duration // when the newest attempt left
	sent     bool
	inFlight int
	flying   []int  // attempts in flight of each pool
	holds    []hold // for the account, and for each pool

	// The climb while no limit is known.
	every   time.Duration
	answers int
	raised  time.Duration
	gap     float64 // moving average of the time between attempts

	slow     float64         // divides the pace if strangers take more than their mean
	failures int             // consecutive
	recent   []time.Duration // refusals that count towards suspension
	change   int
}

// hold delays attempts after refusals by the account, or in one pool.
type hold struct {
	until    time.Duration // no attempt before this
	refusals int           // consecutive
	struck   time.Duration // when the newest refusal arrived
}

func newInformed(s *scenario.Scenario, model *provider.Model, m Margin, client int) *informed {
	b := &informed{s: s, model: model, shares: newShares(s, m, client), every: s.Owner.Initial, gap: float64(s.Owner.Initial)}
	b.holds, b.flying = make([]hold, len(s.Provider.Pools)+1), make([]int, len(s.Provider.Pools)+1)
	b.guard, b.slow = m.Guard, 1
	b.early, b.late = arrivals(s.Provider.Latency, m.Guard)
	return b
}

func (b *informed) interval() time.Duration { return b.s.Owner.Ceiling }

// knows reports whether any limit is known that applies to an attempt of the pool.
func (b *informed) knows(pool int) bool {
	for i := range b.shares {
		if b.shares[i].known && b.shares[i].bears(pool) {
			return true
		}
	}
	return false
}

// follow applies changes: gradual ones are tracked, others make every size unknown.
func (b *informed) follow(now time.Duration) {
	changes := b.s.Provider.Changes
	if len(changes) == 0 {
		return
	}
	for b.change < len(changes) && changes[b.change].At <= now {
		if changes[b.change].Over == 0 {
			if b.knows(0) {
				b.every, b.answers, b.raised = max(b.s.Owner.Ceiling, time.Duration(b.gap)), 0, now
			}
			for i := range b.shares {
				b.shares[i].known = false
			}
		}
		b.change++
	}
	for i := range b.shares {
		b.shares[i].set(b.model.Factor())
	}
}

func (b *informed) admit(now time.Duration, pool int, w *work) (t pacing.Ticket, at time.Duration, ok bool) {
	b.follow(now)
	if b.inFlight >= b.s.Workload.MaxInFlight {
		return t, pacing.Forever, false
	}
	at = max(now, b.holds[0].until, b.holds[pool].until)
	if b.s.Provider.Penalty != nil {
		at = max(at, b.model.BlockedUntil()+b.turn())
	}
	if b.sent {
		at = max(at, b.last+b.s.Owner.Ceiling)
		if !b.knows(pool) {
			at = max(at, b.last+b.every)
		}
	}
	if at = max(at, b.spared(now)); at == pacing.Forever {
		return t, at, false
	}
	for i := range b.shares {
		if h := &b.shares[i]; h.known && h.bears(pool) {
			if b.slow > 1.05 && b.sent {
				at = max(at, b.last+time.Duration(b.slow/h.rate()*float64(time.Second)))
			}
			inFlight := b.inFlight
			if h.pool > 0 {
				inFlight = b.flying[h.pool]
			}
			free := h.free(at+b.early, w.cost, inFlight)
			if free == pacing.Forever {
				return t, free, false
			}
			at = max(at, free-b.early)
		}
	}
	if at > now {
		return t, at, false
	}
	for i := range b.shares {
		if b.shares[i].bears(pool) {
			b.shares[i].take(now+b.early, now+b.late, w.cost)
		}
	}
	if b.sent {
		b.gap += (float64(now-b.last) - b.gap) / 50
	}
	b.last, b.sent = now, true
	b.inFlight++
	b.flying[pool]++
	return t, now, true
}

// turn returns how long after a block a client sends, so that separate clients do not send
// at once: each has a different part of its interval.
func (b *informed) turn() time.Duration {
	wait := 0.0
	for i := range b.shares {
		if h := &b.shares[i]; h.known {
			wait = max(wait, h.index/h.clients/h.rate())
		}
	}
	return time.Duration(wait * float64(time.Second))
}

// spared returns when another attempt cannot cause the suspension, even if it and all
// attempts in flight were refused.
func (b *informed) spared(now time.Duration) time.Duration {
	sus := b.s.Provider.Suspend
	if sus == nil {
		return now
	}
	for len(b.recent) > 0 && b.recent[0]+sus.Within < now {
		b.recent = b.recent[1:]
	}
	if b.inFlight+len(b.recent) < (sus.Throttles-1)/b.s.Clients {
		return now
	}
	if len(b.recent) > 0 {
		return b.recent[0] + sus.Within + 1
	}
	return pacing.Forever
}

func (b *informed) settle(now time.Duration, a *attempt) {
	b.inFlight--
	b.flying[a.pool]--
	switch class := a.outcome.Class; {
	case class.Success():
		b.served(now, a)
	case a.overloaded: // no pace avoids it
	case class == reason.Lost, class == reason.Overloaded && a.limit < 0 && !b.blocked(a):
		if h := &b.holds[0]; a.sent >= h.struck {
			b.failures++
			h.struck = now
			h.until = now + min(30*time.Second, time.Second<<min(b.failures-1, 10))
		}
	case class.Throttle():
		b.refused(now, a)
	}
}

// blocked reports whether an attempt that no limit refused met a block, and not an outage.
func (b *informed) blocked(a *attempt) bool {
	return b.s.Provider.Penalty != nil && a.sent+a.uplink < b.model.BlockedUntil() && !b.outage(a.sent+a.uplink)
}

func (b *informed) outage(at time.Duration) bool {
	for _, f := range b.s.Provider.Faults {
		if f.Kind == scenario.Outage && f.Covers(at) {
			return true
		}
	}
	return false
}

func (b *informed) served(now time.Duration, a *attempt) {
	b.holds[0].refusals, b.holds[a.pool].refusals, b.failures = 0, 0, 0
	b.slow = max(1, b.slow*recovery)
	for i := range b.shares {
		h := &b.shares[i]
		if !h.bears(int(a.pool)) {
			continue
		}
		switch h.limit.Kind {
		case scenario.BusyTime:
			h.correct(now, (a.total-2*a.uplink).Seconds()-h.served)
		case scenario.Slowdown:
			h.known = h.known || a.slowed
		case scenario.TokenBucket, scenario.FixedWindow, scenario.SlidingWindow, scenario.Concurrency, scenario.CostWindow:
		}
	}
	if b.answers++; b.answers >= 4 && now-b.raised >= time.Second {
		b.every = max(b.s.Owner.Ceiling, b.every/2)
		b.answers, b.raised = 0, now
	}
}

// refused learns the size of the limit that refused, or else waits: for the penalty, for
// the limit, and longer after consecutive refusals.
func (b *informed) refused(now time.Duration, a *attempt) {
	if b.s.Provider.Suspend != nil {
		b.recent = append(b.recent, now)
	}
	if a.limit < 0 {
		return
	}
	h := &b.shares[a.limit]
	knew := h.known
	h.known = true
	h.refused(a.sent + a.uplink)
	held := &b.holds[h.pool]
	if a.sent < held.struck {
		return // sent before another refusal arrived
	}
	held.struck = now
	if knew {
		if b.s.Provider.Strangers != nil {
			b.slow = min(1+(slowest-1)*b.guard, 2*b.slow)
		}
		held.refusals++
		wait := math.Ldexp(1/h.rate(), min(held.refusals-1, 12))
		held.until = max(held.until, now+time.Duration(min(300, wait)*float64(time.Second)))
	}
}
