package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// Commit applies one slice atomically. See [collect.Store]. Recovered gaps are closed
// before Opened ones are written, so a gap in both is owed.
func (s *Store) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	if err := c.Check("store"); err != nil {
		return err
	}
	if c.Within != nil {
		return errors.New("store: commit: a store in memory has no database to share with a sink: use store/sqlite")
	}
	return s.write(ctx, l, func(to *connection) error {
		if err := to.held.trace(c.Events); err != nil { // everything else cannot fail
			return err
		}
		for _, r := range c.Reshaped {
			to.reshape(r)
		}
		if c.Lane != nil {
			lane := *c.Lane
			lane.Start = plain(lane.Start)
			to.lanes[laneKey{lane.Stream, lane.Kind}] = lane
		}
		to.know(c.Stream, c.Items)
		for _, key := range c.Recovered {
			to.recovered(key, c.At)
		}
		for _, key := range c.Returned {
			if g := to.gaps[key]; g != nil && g.Status == collect.GapLeased {
				g.Status = collect.GapPending
			}
		}
		for _, g := range c.Opened {
			s.open(to, g, c.At)
		}
		to.locate(c)
		to.held.Progress = c.Progress
		to.pace(c.Pacing)
		return nil
	})
}

// locate sets the sink's position. If the sink has changed, the former sink's position is
// kept separately.
func (c *connection) locate(by collect.Commit) {
	if at := by.SinkAt; at.Kind != "" {
		if c.at != at && c.at.Kind != "" && c.sink != nil {
			c.former[c.at] = c.sink
		}
		delete(c.former, at)
		c.at = at
	}
	if by.Replays != nil {
		c.replays = append([]collect.Replay(nil), by.Replays...)
	}
	if by.Sink != nil {
		c.sink = bytes.Clone(by.Sink)
	}
}

// know stores items.
func (c *connection) know(name string, items []collect.KnownItem) {
	if len(items) == 0 {
		return
	}
	of := c.streams[name]
	if of == nil {
		of = &stream{items: map[string]collect.KnownItem{}, owed: map[string]struct{}{}}
		c.streams[name] = of
	}
	for _, it := range items {
		it.Children = bytes.Clone(it.Children)
		of.put(it)
	}
}

// reshape stores a stream's shape and applies the change to its known items.
func (c *connection) reshape(r collect.Reshaped) {
	name := r.Shape.Stream
	c.shapes[name] = r.Shape
	if r.ForgetItems {
		delete(c.streams, name)
		c.remove(func(g *gap) bool { return g.Parent == name })
	}
	of := c.streams[name]
	if of == nil || !r.ForgetFingerprints && !r.ForgetChildren && !r.OweDetails {
		return
	}
	for _, it := range of.items {
		if r.ForgetFingerprints {
			it.Fingerprint = ""
		}
		if r.ForgetChildren {
			it.Children = nil
		}
		it.Owed = it.Owed || r.OweDetails
		of.put(it)
	}
}

// recovered closes a gap. Its locator, which is content, is removed, because it is no
// longer needed.
func (c *connection) recovered(key collect.GapKey, at time.Time) {
	g := c.gaps[key]
	if g == nil {
		return
	}
	g.Status, g.Locator, g.RetryAt, g.LastSeen, g.Cursor = collect.GapRecovered, nil, time.Time{}, plain(at), ""
}

// open stores a gap that is owed. An existing gap gets the new reason, error, times and
// status; its attempts are added, and the sum is at least 0. A recovered gap starts again.
func (s *Store) open(c *connection, g collect.Gap, at time.Time) {
	g, _, _ = g.Opening(at)
	g.Connection, g.Locator, g.Items = c.name, bytes.Clone(g.Locator), 0
	g.FirstSeen, g.LastSeen, g.RetryAt = plain(g.FirstSeen), plain(g.LastSeen), plain(g.RetryAt)
	isAttempt := g.Attempts > 0
	into := c.gaps[g.GapKey]
	if into == nil {
		s.gapID++
		g.ID = s.gapID
		into = &gap{rank: g.FirstSeen}
		c.gaps[g.GapKey], c.order = into, append(c.order, into)
	} else {
		old := into.Gap
		g.ID = old.ID
		if g.Parent == "" {
			g.Parent = old.Parent
		}
		if g.Locator == nil {
			g.Locator = old.Locator
		}
		if old.Status == collect.GapRecovered {
			into.rank = g.FirstSeen
		} else {
			g.Attempts, g.FirstSeen = g.Attempts+old.Attempts, old.FirstSeen
		}
	}
	g.Attempts = max(0, g.Attempts)
	if isAttempt {
		into.tried, into.rank = g.LastSeen, g.LastSeen
	}
	into.Gap = g
}

// pace replaces the rate, unless it is nil.
func (c *connection) pace(p *collect.Pacing) {
	if p == nil {
		return
	}
	was := c.pacing
	c.pacing = copyOf(p)
	if !json.Valid(c.pacing.State) {
		c.pacing.State = nil
	}
	if was != nil && p.Pools == nil && p.Keys == nil {
		c.pacing.Pools, c.pacing.Keys = was.Pools, was.Keys
	}
}

func copyOf(p *collect.Pacing) *collect.Pacing {
	if p == nil {
		return nil
	}
	q := *p
	q.RecordedAt, q.State = plain(p.RecordedAt), bytes.Clone(p.State)
	q.SetParts(p.Parts())
	return &q
}

// trace appends events and numbers them; if one fails, none is appended.
func (u *run) trace(events []event.Event) error {
	list, err := collect.EncodeEvents(int64(len(u.events)), events)
	if err != nil {
		return fmt.Errorf("store: commit: %w", err)
	}
	u.events = append(u.events, list...)
	return nil
}

// Serve leases the next gaps in fair order. See [collect.Store]. Gaps are ordered by their
// last attempt or, before one, by FirstSeen: a gap that was tried goes to the end, and
// later gaps do not overtake it.
func (s *Store) Serve(ctx context.Context, l collect.Lease, ask collect.ServeRequest) (page []collect.Gap, err error) {
	if err := ask.Check("store"); err != nil {
		return nil, err
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

// show returns a copy of a gap.
func (c *connection) show(g *gap) collect.Gap {
	shown := g.Gap
	shown.Locator = bytes.Clone(g.Locator)
	if g.Backlog {
		shown.Items = c.items(g)
	}
	return shown
}

// items returns the number of items that a gap stands for; a backlog stands for all owed
// items of its stream.
func (c *connection) items(g *gap) int64 {
	if !g.Backlog {
		return 1
	}
	if of := c.streams[g.Parent]; of != nil {
		return int64(len(of.owed))
	}
	return 0
}

// remove deletes gaps.
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
			// A retry by an operator does not wait for the cooldown.
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

// unmark clears the owed mark of the items that a backlog stands for.
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

// selects reports whether a filter selects a gap, apart from its ID and Status.
func selects(f collect.GapFilter, g *gap) bool {
	return (f.Connection == "" || f.Connection == g.Connection) && (f.Stream == "" || f.Stream == g.Stream) &&
		(f.Reason == reason.None || f.Reason == g.Reason) && (!f.Backlog || g.Backlog)
}

// Gaps lists gaps by id, in the order in which they were first seen. See [collect.Reader].
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
