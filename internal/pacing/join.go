package pacing

import (
	"maps"
	"slices"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// Join makes the core a member of a fleet. It sends with the server's permits and, while
// the server is away, at its share; if closed, not at all. The id must be random.
func (c *Core) Join(id string, closed bool) { c.member = &member{id: id, closed: closed} }

// JoinLater is like Join, but the core paces itself until a server accepts it.
func (c *Core) JoinLater(id string, closed bool) {
	c.member = &member{id: id, closed: closed, stand: alone}
}

// Alone reports whether the core paces itself until a server accepts it.
func (c *Core) Alone() bool {
	return c.member != nil && c.member.stand == alone && !c.member.linked
}

// Following reports whether attempts need a server's permits now.
func (c *Core) Following() bool { return c.member != nil && c.member.stand == following }

// Hello returns the first message to a server.
func (c *Core) Hello(now time.Duration, config Config) Hello {
	m := c.member
	return Hello{
		Member: m.id, Config: config, Away: m.members, States: c.States(),
		Debt: max(0, m.next-now, m.paid-now), Hold: max(0, c.cooldown-now, m.hold(now, &c.Pool).until-now),
		Alone: m.stand == alone, Published: maps.Clone(m.published),
	}
}

// States returns what was learned, in this run or an earlier one, by pool; the account is "".
func (c *Core) States() map[string]control.State {
	all := c.LearnedPools()
	if c.objected {
		if all == nil {
			all = make(map[string]control.State)
		}
		all[""] = c.Learned()
	}
	return all
}

// Away reports whether the server was lost and has not returned, or was not reached so far:
// attempts go at the member's share, or not at all.
func (c *Core) Away() bool { return c.member != nil && (c.member.away || c.member.missed) }

// New reports whether the core has no share yet: it has just joined a server, or has not
// reached one.
func (c *Core) New() bool {
	return c.member != nil && (c.member.missed || c.member.linked && c.member.fresh)
}

// Members returns the last known number of members, and whether the server is connected. It
// is 0 for a core without a fleet.
func (c *Core) Members() (n int, there bool) {
	if c.member == nil {
		return 0, false
	}
	return c.member.members, c.member.linked
}

// Rest sends nothing before an instant, because another core was asked to wait.
func (c *Core) Rest(until time.Duration) { c.rest(until, reason.UpstreamPressure) }

// publish reports to the server the published limits with which a pool starts.
func (m *member) publish(pool string, limits []control.Limit, bound int) {
	if m == nil || len(limits) == 0 {
		return
	}
	if _, known := m.published[pool]; !known && len(m.published) < bound {
		if m.published == nil {
			m.published = make(map[string][]control.Limit)
		}
		m.published[pool] = slices.Clone(limits)
		if m.linked {
			if m.out.Published == nil {
				m.out.Published = make(map[string][]control.Limit)
			}
			m.out.Published[pool] = m.published[pool]
		}
	}
}

// part reports to the server that the refusals were those of one pool.
func (m *member) part(pool string, before control.State) {
	if m == nil || !m.linked {
		return
	}
	if m.out.Parts == nil {
		m.out.Parts = make(map[string]control.State)
	}
	m.out.Parts[pool] = before
}

// advertise passes on limits that the provider reported outside of any attempt.
func (m *member) advertise(pool string, facts []control.Fact) {
	if m == nil || !m.linked || len(facts) == 0 {
		return
	}
	if m.out.Advertised == nil {
		m.out.Advertised = make(map[string][]control.Fact)
	}
	m.out.Advertised[pool] = slices.Clone(facts)
}
