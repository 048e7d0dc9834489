package sim

import (
	"math"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/reason"
)

// InformedLaw is the name under which the informed client's results stand.
const InformedLaw = "informed"

// Margin is how careful an informed client is.
type Margin struct {
	// Part of every limit is left unused.
	Part float64 `json:"part"`
	// Guard, from 0 to 1, is how much of the jitter of arrivals is allowed for, and
	// how much slower it goes after a refusal where strangers are.
	Guard float64 `json:"guard"`
}

// Margins are those that the informed client is given the best of.
func Margins() []Margin {
	var all []Margin
	for _, part := range []float64{0, 0.02, 0.08, 0.25} {
		for _, guard := range []float64{0, 0.5, 1} {
			all = append(all, Margin{part, guard})
		}
	}
	return all
}

// RefusalPrice is what a refusal for each 1000 admitted is worth, in goodput ratio,
// where one margin is preferred to another: 4 % of goodput and 3 for each 1000 are
// about as much to give away.
const RefusalPrice = 0.01

// Informed plays the semi-clairvoyant client under every margin and gives the
// result of the best: what a law could have at most that had to find out nothing
// but numbers. A law that is below it has lost something that it could have had;
// what it lacks itself to the [Oracle] is inherent, or nearly.
//
// It knows which kinds of limit there are, their windows, the penalty, the
// strangers' mean rate, how many clients there are and when limits change, and the
// rest of the scenario. It does not know how large a limit is before the first
// refusal by it, and again after each change that does not drift. It starts as
// conservatively as a law and keeps the same ceiling and places. After a refusal by
// a limit that it knows it waits ever longer, until something is admitted. It knows
// of a block while it lasts, also of one that another client brought about, and sends nothing that could
// bring a suspension about.
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

// An informed client with a guard halves its pace at a refusal by a limit that
// strangers use too, down to a part that goes with the guard; each admission after it
// multiplies what it is slowed by.
const (
	slowest  = 8
	recovery = 0.94
)

// informed is one client that knows all but numbers.
type informed struct {
	s           *scenario.Scenario
	model       *provider.Model // asked for what it is said to know
	shares      []share
	guard       float64
	early, late time.Duration // from leaving to arriving

	last     time.Duration // when the newest attempt left
	sent     bool
	inFlight int
	flying   []int  // attempts under way of each pool
	holds    []hold // of the account, and of each pool

	// The climb while no limit is known.
	every   time.Duration
	answers int
	raised  time.Duration
	gap     float64 // between attempts, a moving mean

	slow     float64         // what its pace is divided by, where strangers take more than their mean
	failures int             // one after the other
	recent   []time.Duration // refusals that count towards suspension
	change   int
}

// hold is what a client holds back after refusals by the account, or in one pool.
type hold struct {
	until    time.Duration // nothing before this
	refusals int           // one after the other
	struck   time.Duration // when the newest of them was back
}

func newInformed(s *scenario.Scenario, model *provider.Model, m Margin, client int) *informed {
	b := &informed{s: s, model: model, shares: newShares(s, m, client), every: s.Owner.Initial, gap: float64(s.Owner.Initial)}
	b.holds, b.flying = make([]hold, len(s.Provider.Pools)+1), make([]int, len(s.Provider.Pools)+1)
	b.guard, b.slow = m.Guard, 1
	b.early, b.late = arrivals(s.Provider.Latency, m.Guard)
	return b
}

func (b *informed) interval() time.Duration { return b.s.Owner.Ceiling }

// knows says whether any limit is known that an attempt of the pool meets.
func (b *informed) knows(pool int) bool {
	for i := range b.shares {
		if b.shares[i].known && b.shares[i].bears(pool) {
			return true
		}
	}
	return false
}

// follow keeps up with changes: those that drift are followed, the others make
// every number unknown.
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

func (b *informed) admit(now time.Duration, pool int, cost float64) (t pacing.Ticket, at time.Duration, ok bool) {
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
			free := h.free(at+b.early, cost, inFlight)
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
			b.shares[i].take(now+b.early, now+b.late, cost)
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

// turn is how long after a block a client goes, so that clients that are apart do not
// all go at once: each a part of the interval between two of its own.
func (b *informed) turn() time.Duration {
	wait := 0.0
	for i := range b.shares {
		if h := &b.shares[i]; h.known {
			wait = max(wait, h.index/h.clients/h.rate())
		}
	}
	return time.Duration(wait * float64(time.Second))
}

// spared is when another attempt cannot bring the suspension about, even if it and
// all that are under way were refused.
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

// blocked says whether an attempt that no limit refused met a block, and not an
// outage.
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

// refused learns the numbers of the limit that refused, and otherwise waits: for the
// penalty, for the limit, and ever longer when one refusal follows another.
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
		return // sent before the refusal of another was back
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
