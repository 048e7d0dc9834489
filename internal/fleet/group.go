package fleet

import (
	"cmp"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/fairqueue"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// group is the members of one credential, with their pacing core and the queue of their
// requests for permits.
type group struct {
	server  *Server
	config  pacing.Config
	core    *pacing.Core
	members map[uint64]*member
	queue   fairqueue.Queue[*want]

	tickets map[permit]pacing.Ticket
	orphans []orphan // tickets of members that left without settling them

	ceiling   time.Duration // the longest ceiling interval of all members
	granted   time.Duration // when the newest permit was granted
	any       bool          // a permit was granted before
	seen      time.Duration // when the queue was last served
	due       time.Duration // when the first of the queue may go
	paid      time.Duration // when the sustained rate has caught up with all attempts
	announced time.Duration // paid plus a margin, as last sent to members
	smooth    time.Duration // until then permits keep to the sustained rate

	known      bool          // something was learned, here or by a previous server
	recalled   bool          // what is known was stored, and a member may know it better
	dirty      bool          // states have changed since they were sent
	soon       bool          // send the states at once
	sent       time.Duration // when the states were last sent
	version    uint64        // of the states
	states     map[string]control.State
	before     int             // members of the previous server, by what those that joined report
	returned   int             // of them, those that joined
	met        map[string]bool // ids of all members that joined while some may be missing
	holds      []hold
	why        pacing.Decision
	spare      int // permits that each member may hold ahead
	prefetches []*prefetch
}

// member is one process's membership.
type member struct {
	group    *group
	number   uint64
	name     string
	label    string // for display
	ceiling  time.Duration
	joined   time.Duration
	received time.Duration
	posted   time.Duration
	wants    map[uint64]*fairqueue.Item[*want]
	grants   []uint64
	runs     []pacing.Run
	use      use
	parts    []string // pools that got the account's cooldown since the last news
	news     bool     // news is due
	version  uint64

	// The interval of its attempts without the server: by the newest news, and the shortest
	// that it may be using.
	share, fastest time.Duration

	silent, cut bool
	missing     bool          // a member of the previous server that has not joined
	since       time.Duration // when the silence began
	assumed     time.Duration // when its next attempt without the server is assumed
	parked      []*want       // its requests before the silence
}

type permit struct{ member, id uint64 }

type orphan struct {
	permit permit
	until  time.Duration
}

type want struct {
	member *member
	id     uint64
	pool   string
	ready  time.Duration
	cost   float64
}

type hold struct {
	pool     string
	until    time.Duration
	decision pacing.Decision
}

// enter adds a member.
func (g *group) enter(now time.Duration, number uint64, h *pacing.Hello, rules *pacing.Rules) {
	for _, other := range g.members { // its own earlier connection
		if other.name == h.Member && h.Member != "" {
			g.leave(now, other)
		}
	}
	fresh := g.core == nil || len(g.members) == 0 && !reflect.DeepEqual(g.config, h.Config)
	if fresh {
		g.begin(now, h, rules)
	}
	g.restore(h.States, h.Away > 0 || h.Alone)
	g.publish(now, h.Published)
	if h.Alone { // its recent attempts are unknown
		g.restart(now)
	}
	if h.Away > 0 {
		g.find(now)
		// Its attempts without a server count as made now.
		if g.paid = max(g.paid, now+min(h.Debt, maxWhole)); fresh || now < g.server.listens {
			g.restart(now)
		}
		if !g.met[h.Member] && now < g.server.settled() {
			g.returned++
			g.before = max(g.before, h.Away-g.server.dead)
		}
		if h.Hold > 0 {
			g.core.Rest(now + min(h.Hold, maxWhole))
		}
	}
	own := rules.Core(0)
	m := &member{group: g, number: number, name: h.Member, label: h.Name, ceiling: own.Ceiling(), joined: now, received: now, wants: make(map[uint64]*fairqueue.Item[*want])}
	g.members[number], g.server.members[number] = m, m
	if now >= g.server.settled() {
		g.met = nil
	} else if h.Member != "" {
		g.met[h.Member] = true
	}
	g.changed(now)
}

// begin creates the core and restores what was learned before.
func (g *group) begin(now time.Duration, h *pacing.Hello, rules *pacing.Rules) {
	var before map[string]control.State
	if g.core != nil {
		before = g.learn()
	}
	core := rules.Core(0)
	g.core, g.config, g.tickets, g.orphans, g.known = &core, h.Config, make(map[permit]pacing.Ticket), nil, false
	if before == nil {
		before = g.server.saved
	}
	if before != nil {
		g.restore(before, false)
		g.recalled = true
		g.restart(now)
	}
}

// restart limits permits to the sustained rate for one window of the limit, since the
// attempts within it are unknown.
func (g *group) restart(now time.Duration) {
	_, whole := g.core.Burst()
	for l := range g.core.Pools {
		_, w := l.Burst()
		whole = max(whole, w)
	}
	g.smooth = max(g.smooth, max(now, g.server.listens)+min(whole, maxWhole))
}

// maxWhole bounds how long a restarted server grants at the sustained rate only, and how far
// paid may be in the future.
const maxWhole = 24 * time.Hour

// restore starts from a member's states if nothing was learned yet; exactly if they are live, in use
// until now.
func (g *group) restore(states map[string]control.State, live bool) {
	if g.known && (!live || !g.recalled) || len(states) == 0 || len(g.tickets) > 0 || g.core.Known() {
		return
	}
	account, pools := g.core.Restore, g.core.RestorePools
	if live {
		account, pools = g.core.Resume, g.core.ResumePools
	}
	others := maps.Clone(states)
	delete(others, "")
	pools(others)
	if s, ok := states[""]; ok && account(s) == nil {
		g.known, g.dirty, g.recalled = true, true, false
	}
}

// publish starts pools with limits that the provider publishes. It ignores invalid ones.
func (g *group) publish(now time.Duration, all map[string][]control.Limit) {
	for pool, limits := range all {
		_ = g.core.Assume(now, pool, limits)
	}
}

// learn returns what the core has learned, by pool.
func (g *group) learn() map[string]control.State {
	all := g.core.LearnedPools()
	if all == nil {
		all = make(map[string]control.State)
	}
	if g.core.Known() {
		all[""] = g.core.Learned()
	}
	return all
}

// changed updates the group after a member has joined or left.
func (g *group) changed(now time.Duration) {
	g.ceiling = 0
	for _, m := range g.members {
		g.ceiling = max(g.ceiling, m.ceiling)
		m.news = true
	}
	g.serve(now)
}

// leave removes a member. Its permits are settled after a lease.
func (g *group) leave(now time.Duration, m *member) {
	g.withdraw(m)
	for p := range g.tickets {
		if p.member == m.number {
			g.orphans = append(g.orphans, orphan{p, now + Lease})
		}
	}
	slices.SortFunc(g.orphans, func(a, b orphan) int {
		return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.permit.member, b.permit.member), cmp.Compare(a.permit.id, b.permit.id))
	})
	delete(g.members, m.number)
	delete(g.server.members, m.number)
	g.changed(now)
}

// silent marks a member that sends no messages any more. It may be making attempts without
// the server, so its share is reserved.
func (g *group) silent(now time.Duration, m *member) {
	if m.silent {
		return
	}
	for id, it := range m.wants {
		m.parked = append(m.parked, it.Value)
		g.queue.Remove(it)
		delete(m.wants, id)
	}
	m.silent, m.since, m.assumed = true, now, max(now, g.announced)
	g.serve(now)
}

// withdraw removes a member's requests from the queue.
func (g *group) withdraw(m *member) {
	for id, it := range m.wants {
		g.queue.Remove(it)
		delete(m.wants, id)
	}
}

// take handles a member's message.
func (g *group) take(now time.Duration, m *member, in *pacing.ToServer) {
	g.restore(in.States, false)
	g.publish(now, in.Published)
	for pool, facts := range in.Advertised {
		g.core.Advertise(now, pool, facts)
		g.known, g.dirty = true, true
	}
	for _, o := range in.Costs {
		if p := (permit{m.number, o.ID}); o.Cost > 0 {
			if t, ok := g.tickets[p]; ok {
				g.tickets[p] = g.core.Recost(t, o.Cost)
			}
		}
	}
	g.served(now, m, in)
	for i := range in.Done {
		g.done(now, m, &in.Done[i])
	}
	for _, pool := range slices.Sorted(maps.Keys(in.Parts)) {
		g.core.Part(now, pool, in.Parts[pool])
		g.dirty, g.soon = true, true
		for _, other := range g.members {
			if !slices.Contains(other.parts, pool) && len(other.parts) < maxParts {
				other.parts = append(other.parts, pool)
			}
		}
	}
	for _, id := range in.Drops {
		if it := m.wants[id]; it != nil {
			g.queue.Remove(it)
			delete(m.wants, id)
		}
	}
	for i := range in.Wants {
		w := &in.Wants[i]
		switch {
		case w.ID == 0:
		case w.Ahead > 0:
			g.ahead(now, m, w)
		case m.wants[w.ID] == nil && len(m.wants) < maxWants:
			ready := now + min(max(0, w.In), maxWhole)
			m.wants[w.ID] = g.push(now, &want{member: m, id: w.ID, pool: w.Pool, ready: ready, cost: w.Cost})
		}
	}
	g.serve(now)
}

// maxParts bounds the pools that a member has not heard of yet, as one that is silent.
const maxParts = 64

// push adds a request to the queue.
func (g *group) push(now time.Duration, w *want) *fairqueue.Item[*want] {
	r := fairqueue.Request{Flow: strconv.FormatUint(w.member.number, 10)}
	if w.pool != "" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(w.pool))
		r.Budgets = []uint32{h.Sum32()} // two pools with the same hash only wait for each other
	}
	return g.queue.Push(now, r, w)
}

// done settles an attempt with the outcome that a member reports.
func (g *group) done(now time.Duration, m *member, o *pacing.Done) {
	p := permit{m.number, o.ID}
	before := g.core.Interval()
	t, ok := g.tickets[p]
	switch {
	case ok:
		if delete(g.tickets, p); t.Ahead() {
			t = g.core.Recount(now, t, now-o.Age)
		}
		g.core.Settle(now, t, o.Outcome)
	case o.Outcome.Class.Throttle():
		g.core.Heard(now, *o)
	}
	if o.Outcome.Class != reason.Unknown {
		g.known, g.dirty = true, true
		g.soon = g.soon || o.Outcome.Class.Throttle() || g.core.Interval() > before
	}
}

// find removes one missing member, in exchange for a member that has joined late.
func (g *group) find(now time.Duration) {
	for _, m := range g.members {
		if m.missing {
			g.leave(now, m)
			return
		}
	}
}

// missing reserves shares for members of the previous server that did not join while this
// server listened: they may be making attempts without a server.
func (g *group) missing(now time.Duration) {
	n, known := g.before, g.returned
	g.before = 0
	for _, m := range g.members {
		if m.missing {
			known++
		}
	}
	for ; known < n && len(g.members) < maxMembers; known++ {
		g.server.serial++
		m := &member{group: g, number: g.server.serial, missing: true, cut: true, fastest: time.Duration(n) * g.interval()}
		g.members[m.number], g.server.members[m.number] = m, m
		g.silent(now, m)
	}
}

// wake handles whatever is due by now.
func (g *group) wake(now time.Duration) {
	if g.before > 0 && now >= g.server.listens {
		g.missing(now)
	}
	for len(g.orphans) > 0 && g.orphans[0].until <= now {
		if t, ok := g.tickets[g.orphans[0].permit]; ok {
			delete(g.tickets, g.orphans[0].permit)
			g.core.Settle(now, t, pacing.Outcome{})
		}
		g.orphans = g.orphans[1:]
	}
	for _, m := range g.inOrder() {
		if !m.silent && now-m.received > Lease {
			g.silent(now, m)
		}
		if m.silent && now-m.since > pacing.MaxSilence {
			if m.assumed = pacing.Forever; m.cut {
				g.leave(now, m)
				continue
			}
		}
		m.news = m.news || now-m.posted >= Beat
	}
	g.serve(now)
}

// next returns when wake is due.
func (g *group) next() time.Duration {
	next := g.due
	if g.before > 0 {
		next = min(next, g.server.listens)
	}
	if len(g.orphans) > 0 {
		next = min(next, g.orphans[0].until)
	}
	if g.dirty {
		next = min(next, g.sent+stateGap)
	}
	for _, m := range g.members {
		if !m.silent {
			next = min(next, m.received+Lease+1)
		} else if m.assumed > g.seen {
			next = min(next, m.assumed) // if it is past, serve handles it before the queue
		}
		if !m.cut {
			next = min(next, m.posted+Beat)
		}
	}
	return next
}

// inOrder returns the members in the order in which they joined.
func (g *group) inOrder() []*member {
	all := make([]*member, 0, len(g.members))
	for _, number := range slices.Sorted(maps.Keys(g.members)) {
		all = append(all, g.members[number])
	}
	return all
}
