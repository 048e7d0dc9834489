package sim

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/headway-go/headway/internal/fleet"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// FleetResult has figures of fleets whose members talk to a server.
type FleetResult struct {
	Members int `json:"members"`
	// MessagesPerS counts messages to and from the server, of all members together.
	MessagesPerS float64 `json:"messages_per_s"`
	// Overshoot is the excess over the owner's ceiling, or over a limit on attempts, in the
	// worst window, as a part of it. The window is a minute for the ceiling and for
	// buckets. Refused attempts count if they reached the provider.
	Overshoot *float64 `json:"overshoot"`
	// Alone is the result of one process with all the work.
	Alone AloneResult `json:"alone"`
}

// AloneResult has the figures of one process in place of a fleet.
type AloneResult struct {
	Admitted         int64    `json:"admitted"`
	Throttled        int64    `json:"throttled"`
	GoodputRatio     *float64 `json:"goodput_ratio"`
	ThrottledPer1000 *float64 `json:"throttled_per_1000"`
	Overshoot        *float64 `json:"overshoot"`
	TimeTo90PctS     *float64 `json:"time_to_90pct_s"`
}

// hub is a fleet's server with its links to the members: the same cores as in production.
type hub struct {
	e        *engine
	server   *fleet.Server // nil while it is away
	seed     uint64
	peers    []peer
	byNumber map[uint64]int
	wakeAt   time.Duration
	mail     []letter
	vacant   []uint32
	messages int64
}

// peer is one member's end of the link.
type peer struct {
	*governed
	config  pacing.Config
	session int // counts connections
	number  uint64
	linked  bool
	cut     bool
	held    []uint32 // letters that wait until a cut ends
	heard   time.Duration
}

// letter is a message in flight, of one session.
type letter struct {
	session  int
	hello    *pacing.Hello
	toServer pacing.ToServer
	toMember *pacing.ToMember
}

func newHub(e *engine, seed uint64) *hub {
	h := &hub{e: e, seed: seed, server: fleet.New(-fleet.Lease), byNumber: make(map[uint64]int), wakeAt: pacing.Forever}
	for i := range e.lines {
		g := e.lines[i].pacer.(*governed)
		g.Join("member "+strconv.Itoa(i), false)
		h.peers = append(h.peers, peer{governed: g, config: coreConfig(e.s, e.law, seed, i)})
		// Members start one after another, and their heartbeats are spread.
		e.agenda.plan(event{at: time.Duration(i) * time.Millisecond, kind: enter, line: int32(i)})
		e.agenda.plan(event{at: fleet.Beat * time.Duration(i) / time.Duration(len(e.lines)), kind: beat, line: int32(i)})
	}
	for i, f := range e.s.Link.Faults {
		e.agenda.plan(event{at: f.At, kind: trouble, ref: uint32(i), line: 1})
		e.agenda.plan(event{at: f.At + f.For, kind: trouble, ref: uint32(i)})
	}
	return h
}

// handle processes an event of the link or the server.
func (h *hub) handle(ev event) error {
	now, i := ev.at, int(ev.line)
	switch ev.kind {
	case enter:
		h.enter(now, i)
	case beat:
		return h.beat(now, i)
	case wake:
		if h.server == nil || now < h.wakeAt {
			return nil
		}
		h.wakeAt = pacing.Forever
		h.server.Wake(now)
		h.serve(now)
	case carry:
		return h.deliver(now, i, ev.ref)
	case trouble:
		return h.turn(now, &h.e.s.Link.Faults[ev.ref], ev.line == 1)
	case ask, arrive, settle, finish:
	}
	return nil
}

// enter connects a member that is not connected; if that fails, it tries again soon.
func (h *hub) enter(now time.Duration, i int) {
	p := &h.peers[i]
	switch {
	case p.linked:
	case h.server == nil || p.cut:
		h.e.agenda.plan(event{at: now + h.pause(i), kind: enter, line: int32(i)})
	default:
		hello := p.Hello(now, p.config)
		hello.Key = "credential"
		p.session++
		p.linked, p.heard = true, now
		h.post(now, i, letter{session: p.session, hello: &hello})
	}
}

// pause returns the time between a member's attempts to connect, less than a lease.
func (h *hub) pause(i int) time.Duration {
	return 50*time.Millisecond + time.Duration(mix(h.seed, uint64(i))%400)*time.Millisecond
}

func (h *hub) beat(now time.Duration, i int) error {
	p := &h.peers[i]
	h.e.agenda.plan(event{at: now + fleet.Beat, kind: beat, line: int32(i)})
	if !p.linked {
		return nil
	}
	if now-p.heard > fleet.Silence {
		p.Hear(now, &pacing.ToMember{Lost: pacing.Silent})
	} else {
		p.Hear(now, &pacing.ToMember{})
	}
	h.post(now, i, letter{session: p.session})
	return h.e.send(now, i)
}

// flush requests permits for attempts that wait at a member, and reports outcomes.
func (h *hub) flush(now time.Duration, i int) {
	p := &h.peers[i]
	p.Demand(now, h.waiting(now, i))
	if out, ok := p.Outbox(now); ok && p.linked {
		h.post(now, i, letter{session: p.session, toServer: out})
	}
}

// waiting returns the attempts that a member would make now, of each pool at most as many
// as a process requests permits for.
func (h *hub) waiting(now time.Duration, i int) (all []pacing.Attempt) {
	p, w := &h.peers[i], &h.e.s.Workload
	clients := h.e.lines[i].clients
	for c := range clients {
		m := &clients[c]
		if m.next(now) > now {
			continue
		}
		a := pacing.Attempt{Ready: now, Cost: m.first().estimate}
		if m.pool > 0 {
			a.Pool = p.In(now, p.pools[m.pool-1].Name)
		}
		if p.drawn && c == h.e.lines[i].turn {
			a.Ready = p.ready
		}
		n := 1
		if w.Kind == scenario.Backlog && w.Pause == 0 {
			n = min(pacing.MaxAsked, max(1, w.MaxInFlight-m.inFlight))
		}
		for range n {
			all = append(all, a)
		}
	}
	return all
}

// post sends a letter from or to a member.
func (h *hub) post(now time.Duration, i int, l letter) {
	h.messages++
	var ref uint32
	if n := len(h.vacant); n > 0 {
		ref = h.vacant[n-1]
		h.vacant = h.vacant[:n-1]
		h.mail[ref] = l
	} else {
		ref = uint32(len(h.mail))
		h.mail = append(h.mail, l)
	}
	h.e.agenda.plan(event{at: now + h.e.s.Link.Trip/2, kind: carry, line: int32(i), ref: ref})
}

// deliver delivers a letter, unless its session has ended.
func (h *hub) deliver(now time.Duration, i int, ref uint32) error {
	p := &h.peers[i]
	if p.cut {
		p.held = append(p.held, ref)
		return nil
	}
	l := h.mail[ref]
	h.mail[ref] = letter{}
	h.vacant = append(h.vacant, ref)
	switch {
	case l.session != p.session || h.server == nil:
	case l.toMember != nil:
		p.heard = now
		p.Hear(now, l.toMember)
		return h.e.send(now, i)
	case l.hello != nil:
		number, err := h.server.Enter(now, l.hello)
		if err != nil {
			return err
		}
		p.number, h.byNumber[number] = number, i
		h.serve(now)
	default:
		h.server.Take(now, p.number, &l.toServer)
		h.serve(now)
	}
	return nil
}

// serve sends the server's messages, and schedules its next wake.
func (h *hub) serve(now time.Duration) {
	for _, m := range h.server.Posts() {
		if i, ok := h.byNumber[m.Member]; ok && h.peers[i].number == m.Member {
			h.post(now, i, letter{session: h.peers[i].session, toMember: &m.Message})
		}
	}
	if next := h.server.Next(); next != pacing.Forever && (h.wakeAt <= now || next < h.wakeAt) {
		h.wakeAt = max(next, now+1)
		h.e.agenda.plan(event{at: h.wakeAt, kind: wake})
	}
}

// turn starts or ends a fault.
func (h *hub) turn(now time.Duration, f *scenario.LinkFault, begins bool) error {
	if f.Kind == scenario.Cut {
		for i := range h.peers[:f.Clients] {
			p := &h.peers[i]
			p.cut = begins
			held := p.held
			p.held = nil
			for _, ref := range held {
				if err := h.deliver(now, i, ref); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if !begins {
		h.server, h.wakeAt = fleet.New(now), pacing.Forever
		return nil
	}
	h.server = nil
	clear(h.byNumber)
	for i := range h.peers {
		p := &h.peers[i]
		p.linked, p.session = false, p.session+1
		p.Hear(now, &pacing.ToMember{Lost: pacing.Gone})
		h.e.agenda.plan(event{at: now + h.pause(i), kind: enter, line: int32(i)})
		if err := h.e.send(now, i); err != nil {
			return err
		}
	}
	return nil
}

// result computes the figures at the end of a run, with a second run of one process.
func (h *hub) result(o Options, oracle *Oracle) (*FleetResult, error) {
	e := h.e
	one := *e.s
	one.Link = nil
	ledger := NewLedger(&one, o.Law, o.Seed)
	alone, err := newEngine(&one, o.Law, o.Seed, ledger)
	if err != nil {
		return nil, err
	}
	alone.bounds = e.bounds
	if err := alone.run(); err != nil {
		return nil, err
	}
	r := ledger.Result(oracle, alone.model)
	return &FleetResult{
		Members: len(h.peers), MessagesPerS: round(float64(h.messages)/e.s.Horizon.Seconds(), 2), Overshoot: e.overshoot(),
		Alone: AloneResult{
			Admitted: r.Admitted, Throttled: r.Throttled, TimeTo90PctS: r.TimeTo90PctS, GoodputRatio: r.GoodputRatio, ThrottledPer1000: r.ThrottledPer1000, Overshoot: alone.overshoot(),
		},
	}, nil
}

// arrival is an attempt that reached the provider.
type arrival struct {
	at   time.Duration
	pool int32
}

// overWindow is the window for a bucket's overshoot.
const overWindow = time.Minute

// overshoot returns the excess over a limit in the worst of its windows. For limits that
// change, the largest size counts.
func (e *engine) overshoot() *float64 {
	scale, most := 1.0, 1.0
	for _, c := range e.s.Provider.Steps() {
		scale *= c.Scale
		most = max(most, scale)
	}
	sustained := overWindow.Seconds()/e.s.Owner.Ceiling.Seconds() + 1
	worst := float64(busiest(e.arrivals, 0, overWindow, false))/sustained - 1
	for pool, l := range e.s.Provider.EachLimit {
		var allowed float64
		window, aligned := l.Window, false
		switch l.Kind {
		case scenario.TokenBucket:
			window = overWindow
			allowed = float64(l.Burst) + l.Rate.PerSecond()*window.Seconds()
		case scenario.SlidingWindow:
			allowed = float64(l.Count)
		case scenario.FixedWindow:
			allowed, aligned = float64(l.Count), true
		case scenario.Concurrency, scenario.CostWindow, scenario.BusyTime, scenario.Slowdown:
			continue
		}
		worst = max(worst, float64(busiest(e.arrivals, pool, window, aligned))/(allowed*most)-1)
	}
	return new(math.Max(0, round(worst, 4)))
}

// busiest returns the maximum number of arrivals in any window of a length; if aligned, in
// consecutive windows, each starting with its first arrival.
func busiest(all []arrival, pool int, window time.Duration, aligned bool) (most int) {
	var in []time.Duration
	for _, a := range all {
		if pool == 0 || int(a.pool) == pool {
			in = append(in, a.at)
		}
	}
	slices.Sort(in)
	from := 0
	for i, at := range in {
		if aligned && at >= in[from]+window {
			from = i
		}
		for !aligned && in[from] <= at-window {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}
