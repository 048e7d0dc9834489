package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// Serve leases the next gaps in fair order. See [collect.Store]. The order is
// that of the last attempt, or of being seen first: a gap that was tried goes to
// the back, and none that waits is overtaken by later ones.
func (s *Store) Serve(ctx context.Context, l collect.Lease, ask collect.ServeRequest) (page []collect.Gap, err error) {
	if ask.MaxBytes <= 0 || ask.MaxRows <= 0 {
		return nil, fmt.Errorf("store: serve: at most %d bytes and %d rows were asked for, both must be above 0", ask.MaxBytes, ask.MaxRows)
	}
	err = s.write(ctx, l, func(c *connection) error {
		var due []*gap
		for _, g := range c.order {
			_, pressed := reason.AsPressure(g.Reason)
			if g.Status == collect.GapPending && !g.RetryAt.After(ask.Now) && g.tried.Before(ask.Before) && (!ask.NoPressure || !pressed) &&
				(ask.Streams == nil || slices.Contains(ask.Streams, g.Stream)) {
				due = append(due, g)
			}
		}
		slices.SortFunc(due, func(a, b *gap) int { return cmp.Or(a.rank.Compare(b.rank), cmp.Compare(a.ID, b.ID)) })
		size := int64(0)
		for _, g := range due[:min(len(due), ask.MaxRows)] {
			if size += int64(len(g.Locator)); len(page) > 0 && size > ask.MaxBytes {
				break
			}
			page = append(page, c.show(g))
			g.Status = collect.GapLeased
		}
		return nil
	})
	return page, err
}

// show is a gap as it is given out.
func (c *connection) show(g *gap) collect.Gap {
	shown := g.Gap
	shown.Locator = bytes.Clone(g.Locator)
	if g.Backlog {
		shown.Items = c.items(g)
	}
	return shown
}

// items is how many items a gap stands for: a backlog for all that are owed.
func (c *connection) items(g *gap) int64 {
	if !g.Backlog {
		return 1
	}
	if of := c.streams[g.Parent]; of != nil {
		return int64(len(of.owed))
	}
	return 0
}

// remove takes gaps out of the record.
func (c *connection) remove(which func(*gap) bool) {
	c.order = slices.DeleteFunc(c.order, func(g *gap) bool {
		if which(g) {
			delete(c.gaps, g.GapKey)
			return true
		}
		return false
	})
}

// Act applies an operator's action. See [collect.Store].
func (s *Store) Act(ctx context.Context, a collect.GapAction, f collect.GapFilter, ids []int64) (int64, error) {
	from := []collect.GapStatus{collect.GapPending, collect.GapLeased}
	switch a {
	case collect.GapRetry, collect.GapQuarantine:
	case collect.GapRelease:
		from = []collect.GapStatus{collect.GapTerminal}
	case collect.GapDrop:
		from = append(from, collect.GapTerminal)
	default:
		return 0, fmt.Errorf("store: gaps: there is no action %q", a)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(0)
	for _, c := range s.connections {
		if a == collect.GapRetry && (f.Connection == "" || f.Connection == c.name) {
			// Who asks for a retry now does not mean after the cooldown.
			c.cooldown = collect.Cooldown{}
		}
		chosen := map[*gap]bool{}
		for _, g := range c.order {
			if slices.Contains(from, g.Status) && (slices.Contains(ids, g.ID) || len(ids) == 0 && selects(f, g)) {
				chosen[g] = true
			}
		}
		n += int64(len(chosen))
		c.act(a, chosen)
	}
	return n, nil
}

func (c *connection) act(a collect.GapAction, chosen map[*gap]bool) {
	for g := range chosen {
		switch a {
		case collect.GapRetry:
			g.Status, g.RetryAt, g.tried, g.rank = collect.GapPending, time.Time{}, time.Time{}, time.Time{}
		case collect.GapQuarantine:
			g.Status = collect.GapTerminal
		case collect.GapRelease:
			g.Status, g.Attempts, g.RetryAt, g.tried, g.rank = collect.GapPending, 0, time.Time{}, time.Time{}, time.Time{}
		case collect.GapDrop:
			c.unmark(g)
		}
	}
	if a == collect.GapDrop && len(chosen) > 0 {
		c.remove(func(g *gap) bool { return chosen[g] })
	}
}

// unmark takes the items that a backlog stands for out of what is owed.
func (c *connection) unmark(g *gap) {
	of := c.streams[g.Parent]
	if !g.Backlog || of == nil {
		return
	}
	for key := range of.owed {
		it := of.items[key]
		it.Owed = false
		of.put(it)
	}
}

// selects reports whether a filter takes a gap, by all but its id and status.
func selects(f collect.GapFilter, g *gap) bool {
	return (f.Connection == "" || f.Connection == g.Connection) && (f.Stream == "" || f.Stream == g.Stream) &&
		(f.Reason == reason.None || f.Reason == g.Reason) && (!f.Backlog || g.Backlog)
}

// Gaps lists owed work by id, which is the order in which it was first seen.
// See [collect.Reader].
func (s *Store) Gaps(ctx context.Context, f collect.GapFilter) (list []collect.Gap, err error) {
	byID := func(g *gap, id int64) int { return cmp.Compare(g.ID, id) }
	err = s.read(ctx, func() {
		for name, c := range s.connections {
			if f.Connection != "" && f.Connection != name {
				continue
			}
			from, _ := slices.BinarySearchFunc(c.order, f.AfterID+1, byID)
			n := 0
			for _, g := range c.order[from:] {
				if f.Limit > 0 && n >= f.Limit {
					break
				}
				if selects(f, g) && (f.Status == "" || f.Status == g.Status) {
					list, n = append(list, c.show(g)), n+1
				}
			}
		}
	})
	slices.SortFunc(list, func(a, b collect.Gap) int { return cmp.Compare(a.ID, b.ID) })
	if f.Limit > 0 {
		list = list[:min(len(list), f.Limit)]
	}
	return list, err
}
