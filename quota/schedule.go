package quota

import (
	"math"
	"time"
)

// reschedule moves a node to its position in the heap. After a charge the time stored
// there may be earlier than necessary, never later.
func (g *Governor) reschedule(n *node, at time.Duration) {
	due := n.look(at)
	if due == math.MaxInt64 {
		g.unschedule(n)
		return
	}
	n.due = max(due, at+1)
	if n.heap < 0 {
		n.heap = len(g.schedule)
		g.schedule = append(g.schedule, n)
	}
	g.up(n.heap)
	g.down(n.heap)
	g.due = min(g.due, n.due)
}

func (g *Governor) unschedule(n *node) {
	if n.heap < 0 {
		return
	}
	at, last := n.heap, len(g.schedule)-1
	g.swap(at, last)
	g.schedule[last] = nil
	g.schedule = g.schedule[:last]
	n.heap = -1
	if at < last {
		g.up(at)
		g.down(at)
	}
}

// before orders the heap; ties are broken by order of creation, so that runs are
// repeatable.
func (g *Governor) before(i, j int) bool {
	a, b := g.schedule[i], g.schedule[j]
	if a.due != b.due {
		return a.due < b.due
	}
	return a.id < b.id
}

func (g *Governor) swap(i, j int) {
	s := g.schedule
	s[i], s[j] = s[j], s[i]
	s[i].heap, s[j].heap = i, j
}

func (g *Governor) up(i int) {
	for i > 0 && g.before(i, (i-1)/2) {
		g.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (g *Governor) down(i int) {
	for {
		least := i
		for _, below := range [...]int{2*i + 1, 2*i + 2} {
			if below < len(g.schedule) && g.before(below, least) {
				least = below
			}
		}
		if least == i {
			return
		}
		g.swap(i, least)
		i = least
	}
}
