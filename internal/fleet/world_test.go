package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

const ms = time.Millisecond

// step is the default step of a world's time. A message takes one step.
const step = 5 * ms

// world simulates a fleet and a provider in virtual time.
type world struct {
	t        testing.TB
	now      time.Duration
	grain    time.Duration // step
	server   *Server       // nil while it is away
	nodes    []*node
	refuses  func(at time.Duration) (after time.Duration, refused bool)
	sent     []time.Duration // attempts of all members, in order
	refused  int
	informed bool   // the server has heard of the previous server's members
	narrow   bool   // permits ahead of need are switched off
	asked    int    // messages of members
	ahead    uint64 // permits that were granted ahead of need
}

// node is a member.
type node struct {
	world   *world
	core    *pacing.Core
	config  pacing.Config
	member  uint64
	linked  bool
	last    *Server // the server that it last joined
	dead    bool
	paused  bool          // its process is stopped
	cut     bool          // its messages wait
	find    time.Duration // when it connects again
	heard   time.Duration
	beat    time.Duration
	in      []pacing.ToMember
	out     []pacing.ToServer
	waiting int           // attempts that wait; negative means no end
	often   time.Duration // interval at which attempts are added to waiting
	due     time.Duration
	flying  []flight
	sent    []time.Duration
	turns   []string
}

type flight struct {
	ticket  pacing.Ticket
	end     time.Duration
	outcome pacing.Outcome
}

const latency = 20 * ms

func newWorld(t testing.TB) *world {
	return &world{t: t, grain: step, server: New(-Lease), refuses: func(time.Duration) (time.Duration, bool) { return 0, false }}
}

// join adds n members that always have attempts waiting.
func (w *world) join(n int, c pacing.Config) {
	c.NoBreaker, c.JitterMax = true, -1
	for range n {
		core, err := pacing.New(c)
		if err != nil {
			w.t.Fatal(err)
		}
		core.Join(fmt.Sprint("member ", len(w.nodes)), false)
		w.nodes = append(w.nodes, &node{world: w, core: core, config: c, waiting: -1, find: w.now})
	}
}

// run advances time by d.
func (w *world) run(d time.Duration) {
	for end := w.now + d; w.now < end; w.now += w.grain {
		for _, n := range w.nodes {
			n.step()
		}
		if w.server != nil && w.now >= w.server.Next() {
			w.server.Wake(w.now)
		}
		w.deliver()
	}
}

func (w *world) deliver() {
	if w.server == nil {
		return
	}
	for _, p := range w.server.Posts() {
		if w.narrow && p.Message.News != nil {
			p.Message.News.Ahead = 0
		}
		for _, r := range p.Message.Ahead {
			w.ahead += r.N
		}
		for _, n := range w.nodes {
			if n.member == p.Member && n.linked {
				n.in = append(n.in, p.Message)
			}
		}
	}
}

// kill stops the server, start starts another one.
func (w *world) kill() {
	w.server = nil
	for i, n := range w.nodes {
		n.lose(w.now + time.Duration(1+i%5)*50*ms)
	}
}

func (w *world) start() { w.server, w.informed = New(w.now), false }

// reach ends all cuts if a new server has not heard of the previous one's members, and no
// member is left that could report them. Such a server cannot know of a member that it never hears.
func (w *world) reach() {
	if w.server != nil && (w.informed || w.now > w.server.listens) {
		return
	}
	for _, n := range w.nodes {
		if n.last != nil && n.last != w.server && !n.dead && !n.cut && !n.paused {
			return
		}
	}
	for _, n := range w.nodes {
		n.cut = false
	}
}

func (n *node) lose(find time.Duration) {
	if n.linked {
		for i := range n.in { // data in a socket is read before its end
			n.hear(&n.in[i])
		}
		n.linked, n.cut, n.in, n.out, n.find = false, false, nil, nil, find
		n.hear(&pacing.ToMember{Lost: pacing.Gone})
	}
}

// die kills the process: the system closes its connection.
func (n *node) die() {
	if n.linked && n.world.server != nil {
		n.world.server.Gone(n.world.now, n.member)
	}
	n.dead, n.linked = true, false
}

func (n *node) hear(m *pacing.ToMember) {
	if _, turned := n.core.Hear(n.world.now, m); turned {
		_, there := n.core.Members()
		n.turns = append(n.turns, map[bool]string{true: "back", false: "away"}[there])
	}
}

func (n *node) step() {
	w := n.world
	if n.dead || n.paused {
		return
	}
	if !n.linked && w.server != nil && w.now >= n.find && !n.cut {
		h := n.core.Hello(w.now, n.config)
		h.Key = "credential"
		member, err := w.server.Enter(w.now, &h)
		if err != nil {
			w.t.Fatal(err)
		}
		n.member, n.linked, n.last, n.heard = member, true, w.server, w.now
		w.informed = w.informed || h.Away > 0
	}
	if n.linked && !n.cut {
		in := n.in
		n.in = nil
		for i := range in {
			n.heard = w.now
			n.hear(&in[i])
		}
		for _, m := range n.out {
			w.asked++
			w.server.Take(w.now, n.member, &m)
		}
		n.out = nil
	}
	if n.linked && w.now >= n.beat {
		n.beat = w.now + Beat
		if w.now-n.heard > Silence {
			n.hear(&pacing.ToMember{Lost: pacing.Silent})
		}
		n.out = append(n.out, pacing.ToServer{})
	}
	n.flying = slices.DeleteFunc(n.flying, func(f flight) bool {
		if f.end > w.now {
			return false
		}
		n.core.Settle(w.now, f.ticket, f.outcome)
		return true
	})
	if n.often > 0 {
		for ; n.due <= w.now; n.due += n.often {
			n.waiting++
		}
	}
	for n.waiting != 0 {
		t, d, _ := n.core.Admit(w.now, pacing.Attempt{})
		if !d.OK {
			break
		}
		n.waiting--
		n.send(t)
	}
	var waiting []pacing.Attempt
	for i := 0; i != n.waiting && i < 4; i++ {
		waiting = append(waiting, pacing.Attempt{})
	}
	n.core.Demand(w.now, waiting)
	if out, ok := n.core.Outbox(w.now); ok && n.linked {
		n.out = append(n.out, out)
	}
}

func (n *node) send(t pacing.Ticket) {
	w := n.world
	f := flight{ticket: t, end: w.now + latency, outcome: pacing.Outcome{Class: reason.OK}}
	if after, refused := w.refuses(w.now); refused {
		f.outcome = pacing.Outcome{Class: reason.Throttled, RetryAfter: after}
		w.refused++
	}
	n.sent, w.sent = append(n.sent, w.now), append(w.sent, w.now)
	n.flying = append(n.flying, f)
}

// most returns the maximum number of attempts in any window of a length.
func most(sent []time.Duration, window time.Duration) (n int) {
	from := 0
	for i, at := range sent {
		for sent[from] <= at-window {
			from++
		}
		n = max(n, i-from+1)
	}
	return n
}

// between returns the number of attempts in [from, to).
func between(sent []time.Duration, from, to time.Duration) (n int) {
	for _, at := range sent {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

// jain returns Jain's fairness index of the members' attempts in [from, to).
func (w *world) jain(from, to time.Duration) float64 {
	var sum, squares float64
	for _, n := range w.nodes {
		x := float64(between(n.sent, from, to))
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(w.nodes)) * squares)
}
