package fleet

import (
	"slices"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// served settles the attempts that a member made with prefetched permits, and takes back
// the permits that it did not use. Those count against no limit.
func (g *group) served(now time.Duration, m *member, in *pacing.ToServer) {
	for _, o := range in.Served {
		p := permit{m.number, o[0]}
		if t, ok := g.tickets[p]; ok {
			delete(g.tickets, p)
			t = g.core.Recount(now, t, now-time.Duration(min(o[1], uint64(maxWhole))))
			g.core.Settle(now, t, pacing.Outcome{Class: reason.OK})
			g.known, g.dirty = true, true
		}
	}
	for _, r := range in.Unused {
		for id := range min(r.N, pacing.MaxAhead) {
			p := permit{m.number, r.ID + id}
			if t, ok := g.tickets[p]; ok {
				delete(g.tickets, p)
				g.core.Unsend(t)
				g.paid -= g.interval()
			}
		}
	}
}

// prefetch is a member's request for permits ahead of need. Run has those admitted so far.
type prefetch struct {
	pacing.Run
	want  want
	asked uint64
	until time.Duration // when the member gets what was admitted so far
}

// prefetchFor is how long a prefetch waits to be complete.
const prefetchFor = 100 * time.Millisecond

// ahead queues a member's request for permits ahead of need.
func (g *group) ahead(now time.Duration, m *member, w *pacing.Want) {
	if len(g.prefetches) < maxPrefetches {
		g.prefetches = append(g.prefetches, &prefetch{
			Run: pacing.Run{ID: w.ID}, want: want{member: m, pool: w.Pool, ready: now}, asked: w.Ahead, until: now + prefetchFor,
		})
	}
}

// maxPrefetches bounds the prefetches of a group. Further ones are dropped.
const maxPrefetches = 4 * maxWants

// fill admits permits ahead of need, one for each member in turn, and grants prefetches that
// are complete or due. While requests wait in the queue it admits none, and grants what was
// admitted so far.
func (g *group) fill(now time.Duration) {
	if len(g.prefetches) == 0 {
		return
	}
	room := uint64(0)
	if g.queue.Len() == 0 {
		room = uint64(g.allowance(now))
	}
	for more := true; more; {
		more = false
		for _, s := range g.prefetches {
			if s.N >= min(s.asked, room) || g.members[s.want.member.number] != s.want.member {
				continue
			}
			t, decision := g.ask(now, &s.want)
			if !decision.OK {
				g.due = min(g.due, decision.At)
				continue
			}
			g.tickets[permit{s.want.member.number, s.ID + s.N}] = t.Early()
			g.count(now)
			s.want.member.use.count(now)
			s.N++
			more = true
		}
	}
	g.prefetches = slices.DeleteFunc(g.prefetches, func(s *prefetch) bool {
		done := s.N >= min(s.asked, room) || now >= s.until
		if done {
			s.want.member.runs = append(s.want.member.runs, s.Run)
		} else {
			g.due = min(g.due, s.until)
		}
		return done
	})
}

// allowance returns how many permits each member may hold ahead of need. All of them used at
// once exceed a limit by at most 1%, and an owner's ceiling not at all.
func (g *group) allowance(now time.Duration) int {
	if now < max(g.server.listens, g.smooth) || g.ceiling > noCeiling {
		return 0
	}
	for _, m := range g.members {
		if m.silent {
			return 0 // the attempts of a silent member are unknown
		}
	}
	n, bounded := g.core.Spare()
	if bounded {
		n /= uint64(max(1, len(g.members)))
	}
	return int(min(n, pacing.MaxAhead))
}
