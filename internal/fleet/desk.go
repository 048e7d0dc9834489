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

// desk serves the members of one credential: it holds their pacing core, and the queue of
// the permits that they have asked for.
type desk struct {
	server *Server
	config pacing.Config
	core   *pacing.Core
	seats  map[uint64]*seat
	queue  fairqueue.Queue[*want]

	tickets map[permit]pacing.Ticket
	orphans []orphan // tickets of members that left without settling them

	ceiling time.Duration // the longest ceiling interval of all members
	granted time.Duration // when the newest permit was granted
	any     bool          // a permit was granted before
	seen    time.Duration // when the queue was last served
	due     time.Duration // when the first of the queue may go
	paid    time.Duration // when the sustained rate has caught up with all attempts
	said    time.Duration // the same instant, as last sent to members
	smooth  time.Duration // until then permits keep to the sustained rate

	known   bool          // something was learned, here or by a previous server
	dirty   bool          // states have changed since they were sent
	soon    bool          // send the states at once
	sent    time.Duration // when the states were last sent
	version uint64        // of the states
	states  map[string]control.State
	before  int // members of the previous server, by what those that joined report
	holds   []hold
	why     pacing.Decision
	spare   int // permits that each member may hold ahead
	stocks  []*stock
}

// seat is one member's membership.
type seat struct {
	desk    *desk
	number  uint64
	name    string
	label   string // for people
	ceiling time.Duration
	joined  time.Duration
	heard   time.Duration
	posted  time.Duration
	wants   map[uint64]*fairqueue.Item[*want]
	grants  []uint64
	runs    []pacing.Run
	use     use
	news    bool // send it news
	version uint64

	// The interval between attempts that it makes without the server: by the newest news,
	// and the shortest of those that it may be using.
	share, fastest time.Duration

	silent, cut bool
	missing     bool          // a member of the previous server that has not joined
	since       time.Duration // when the silence began
	ghost       time.Duration // when its next attempt without the server is counted
	parked      []*want       // what it waited for before the silence
}

type permit struct{ seat, id uint64 }

type orphan struct {
	permit permit
	until  time.Duration
}

type want struct {
	seat  *seat
	id    uint64
	pool  string
	ready time.Duration
	cost  float64
}

type hold struct {
	pool  string
	until time.Duration
	d     pacing.Decision
}

// enter adds a member.
func (d *desk) enter(now time.Duration, number uint64, h *pacing.Hello, rules *pacing.Rules) {
	for _, other := range d.seats { // its own earlier connection
		if other.name == h.Member && h.Member != "" {
			d.leave(now, other)
		}
	}
	fresh := d.core == nil || len(d.seats) == 0 && !reflect.DeepEqual(d.config, h.Config)
	if fresh {
		d.begin(now, h, rules)
	}
	d.restore(now, h.States)
	d.publish(now, h.Published)
	if h.Alone { // what it has sent recently is not known
		d.restart(now)
	}
	if h.Away > 0 {
		d.find(now)
		// What it sent without a server counts as if it was sent now.
		if d.paid = max(d.paid, now+min(h.Debt, maxWhole)); fresh || now < d.server.listens {
			d.restart(now)
		}
		if now < d.server.listens {
			d.before = max(d.before, h.Away-d.server.dead)
		}
		if h.Hold > 0 {
			d.core.Rest(now + min(h.Hold, maxWhole))
		}
	}
	own := rules.Core(0)
	m := &seat{desk: d, number: number, name: h.Member, label: h.Name, ceiling: own.Ceiling(), joined: now, heard: now, wants: make(map[uint64]*fairqueue.Item[*want])}
	d.seats[number], d.server.seats[number] = m, m
	d.changed(now)
}

// begin creates the core, from what was learned before.
func (d *desk) begin(now time.Duration, h *pacing.Hello, rules *pacing.Rules) {
	var before map[string]control.State
	if d.core != nil {
		before = d.learn()
	}
	core := rules.Core(0)
	d.core, d.config, d.tickets, d.orphans, d.known = &core, h.Config, make(map[permit]pacing.Ticket), nil, false
	if before == nil {
		before = d.server.kept
	}
	if before != nil {
		d.restore(now, before)
		d.restart(now)
	}
}

// restart keeps permits to the sustained rate for one window of the limit, since what was
// sent within it is not known.
func (d *desk) restart(now time.Duration) {
	_, whole := d.core.Burst()
	for l := range d.core.Pools {
		_, w := l.Burst()
		whole = max(whole, w)
	}
	d.smooth = max(d.smooth, max(now, d.server.listens)+min(whole, maxWhole))
}

// maxWhole bounds how long a restarted server keeps to the sustained rate, and how far
// paid may be ahead.
const maxWhole = 24 * time.Hour

// restore takes over what a member has learned, if nothing is known yet.
func (d *desk) restore(now time.Duration, states map[string]control.State) {
	if d.known || len(states) == 0 || len(d.tickets) > 0 || d.core.Known() {
		return
	}
	pools := maps.Clone(states)
	delete(pools, "")
	d.core.RestorePools(pools)
	if s, ok := states[""]; ok && d.core.Restore(s) == nil {
		d.known, d.dirty = true, true
	}
}

// publish has pools begin with limits that the provider publishes. Those that make no sense
// are left out.
func (d *desk) publish(now time.Duration, all map[string][]control.Limit) {
	for pool, limits := range all {
		_ = d.core.Assume(now, pool, limits)
	}
}

// learn returns what the core has learned, by pool.
func (d *desk) learn() map[string]control.State {
	all := d.core.LearnedPools()
	if all == nil {
		all = make(map[string]control.State)
	}
	if d.core.Known() {
		all[""] = d.core.Learned()
	}
	return all
}

// changed follows each change of membership.
func (d *desk) changed(now time.Duration) {
	d.ceiling = 0
	for _, m := range d.seats {
		d.ceiling = max(d.ceiling, m.ceiling)
		m.news = true
	}
	d.serve(now)
}

// leave removes a member. Its permits are settled after a lease.
func (d *desk) leave(now time.Duration, m *seat) {
	d.withdraw(m)
	for p := range d.tickets {
		if p.seat == m.number {
			d.orphans = append(d.orphans, orphan{p, now + Lease})
		}
	}
	slices.SortFunc(d.orphans, func(a, b orphan) int {
		return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.permit.seat, b.permit.seat), cmp.Compare(a.permit.id, b.permit.id))
	})
	delete(d.seats, m.number)
	delete(d.server.seats, m.number)
	d.changed(now)
}

// silent marks a member that no longer says anything. It may be sending without the server,
// so its share is reserved.
func (d *desk) silent(now time.Duration, m *seat) {
	if m.silent {
		return
	}
	for id, it := range m.wants {
		m.parked = append(m.parked, it.Value)
		d.queue.Remove(it)
		delete(m.wants, id)
	}
	m.silent, m.since, m.ghost = true, now, max(now, d.said)
	d.serve(now)
}

// withdraw removes a member's requests from the queue.
func (d *desk) withdraw(m *seat) {
	for id, it := range m.wants {
		d.queue.Remove(it)
		delete(m.wants, id)
	}
}

// take handles a member's message.
func (d *desk) take(now time.Duration, m *seat, in *pacing.ToServer) {
	d.restore(now, in.States)
	d.publish(now, in.Published)
	for pool, facts := range in.Advertised {
		d.core.Advertise(now, pool, facts)
		d.known, d.dirty = true, true
	}
	for _, o := range in.Costs {
		if p := (permit{m.number, o.ID}); o.Cost > 0 {
			if t, ok := d.tickets[p]; ok {
				d.tickets[p] = d.core.Recost(t, o.Cost)
			}
		}
	}
	d.served(now, m, in)
	for i := range in.Done {
		d.done(now, m, &in.Done[i])
	}
	for _, id := range in.Drops {
		if it := m.wants[id]; it != nil {
			d.queue.Remove(it)
			delete(m.wants, id)
		}
	}
	for i := range in.Wants {
		w := &in.Wants[i]
		switch {
		case w.ID == 0:
		case w.Ahead > 0:
			d.ahead(now, m, w)
		case m.wants[w.ID] == nil && len(m.wants) < maxWants:
			ready := now + min(max(0, w.In), maxWhole)
			m.wants[w.ID] = d.push(now, &want{seat: m, id: w.ID, pool: w.Pool, ready: ready, cost: w.Cost})
		}
	}
	d.serve(now)
}

// push adds a request to the queue.
func (d *desk) push(now time.Duration, w *want) *fairqueue.Item[*want] {
	r := fairqueue.Request{Flow: strconv.FormatUint(w.seat.number, 10)}
	if w.pool != "" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(w.pool))
		r.Budgets = []uint32{h.Sum32()} // two pools with the same hash only wait for each other
	}
	return d.queue.Push(now, r, w)
}

// done settles an attempt with what a member reports of it.
func (d *desk) done(now time.Duration, m *seat, o *pacing.Done) {
	p := permit{m.number, o.ID}
	before := d.core.Interval()
	t, ok := d.tickets[p]
	switch {
	case ok:
		if delete(d.tickets, p); t.Ahead() {
			t = d.core.Recount(now, t, now-o.Age)
		}
		d.core.Settle(now, t, o.Outcome)
	case o.Outcome.Class.Throttle():
		d.core.Heard(now, *o)
	}
	if o.Outcome.Class != reason.Unknown {
		d.known, d.dirty = true, true
		d.soon = d.soon || o.Outcome.Class.Throttle() || d.core.Interval() > before
	}
}

// find replaces a missing member by one that has joined late.
func (d *desk) find(now time.Duration) {
	for _, m := range d.seats {
		if m.missing {
			d.leave(now, m)
			return
		}
	}
}

// missing reserves shares for members of the previous server that did not join while this
// one listened: they may be sending without a server.
func (d *desk) missing(now time.Duration) {
	n := d.before
	d.before = 0
	for len(d.seats) < min(n, maxSeats) {
		d.server.serial++
		m := &seat{desk: d, number: d.server.serial, missing: true, cut: true, fastest: time.Duration(n) * d.interval()}
		d.seats[m.number], d.server.seats[m.number] = m, m
		d.silent(now, m)
	}
}

// wake handles whatever is due by now.
func (d *desk) wake(now time.Duration) {
	if d.before > 0 && now >= d.server.listens {
		d.missing(now)
	}
	for len(d.orphans) > 0 && d.orphans[0].until <= now {
		if t, ok := d.tickets[d.orphans[0].permit]; ok {
			delete(d.tickets, d.orphans[0].permit)
			d.core.Settle(now, t, pacing.Outcome{})
		}
		d.orphans = d.orphans[1:]
	}
	for _, m := range d.inOrder() {
		if !m.silent && now-m.heard > Lease {
			d.silent(now, m)
		}
		if m.silent && now-m.since > pacing.MaxSilence {
			if m.ghost = pacing.Forever; m.cut {
				d.leave(now, m)
				continue
			}
		}
		m.news = m.news || now-m.posted >= Beat
	}
	d.serve(now)
}

// next returns when wake is due.
func (d *desk) next() time.Duration {
	next := d.due
	if d.before > 0 {
		next = min(next, d.server.listens)
	}
	if len(d.orphans) > 0 {
		next = min(next, d.orphans[0].until)
	}
	if d.dirty {
		next = min(next, d.sent+stateGap)
	}
	for _, m := range d.seats {
		if !m.silent {
			next = min(next, m.heard+Lease+1)
		} else if m.ghost > d.seen {
			next = min(next, m.ghost) // if it is past, serve has it first in the queue
		}
		if !m.cut {
			next = min(next, m.posted+Beat)
		}
	}
	return next
}

// inOrder returns the members in the order in which they joined.
func (d *desk) inOrder() []*seat {
	all := make([]*seat, 0, len(d.seats))
	for _, number := range slices.Sorted(maps.Keys(d.seats)) {
		all = append(all, d.seats[number])
	}
	return all
}
