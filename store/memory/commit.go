package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
)

// Commit takes one slice in, whole or not at all. See [collect.Store]. Recovered
// gaps are closed before Opened ones are written, so a gap in both is owed.
func (s *Store) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	switch {
	case len(c.Items) > 0 && c.Stream == "":
		return fmt.Errorf("store: commit: %d items without a stream: name it", len(c.Items))
	case c.Within != nil:
		return errors.New("store: commit: a store in memory has no database to share with a sink: use store/sqlite")
	}
	for i := range c.Opened {
		switch g := &c.Opened[i]; g.Status {
		case "", collect.GapPending, collect.GapLeased, collect.GapRecovered, collect.GapTerminal:
		default:
			return fmt.Errorf("store: commit: a gap of stream %q has the unknown status %q", g.Stream, g.Status)
		}
	}
	return s.write(ctx, l, func(to *connection) error {
		if err := to.held.trace(c.Events); err != nil { // all else cannot fail
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

// locate writes the sink's position. When the sink is another one than before, the
// position that the former had is kept beside it.
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

// know writes each item.
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

// reshape keeps how a stream is read from now on, and applies what that makes of
// its known items.
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

// recovered closes a gap. The locator goes: nothing is asked for any more, and
// it is content.
func (c *connection) recovered(key collect.GapKey, at time.Time) {
	g := c.gaps[key]
	if g == nil {
		return
	}
	g.Status, g.Locator, g.RetryAt, g.LastSeen, g.Cursor = collect.GapRecovered, nil, time.Time{}, plain(at), ""
}

// open writes a gap that is owed. One that exists takes the new reason, error,
// instants and status; its attempts are added to, never below 0. One that was
// recovered is a new debt.
func (s *Store) open(c *connection, g collect.Gap, at time.Time) {
	if g.Status == "" {
		g.Status = collect.GapPending
	}
	if g.FirstSeen.IsZero() {
		g.FirstSeen = at
	}
	if g.LastSeen.IsZero() {
		g.LastSeen = at
	}
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
	c.pacing = copyOf(p)
	if !json.Valid(c.pacing.State) {
		c.pacing.State = nil
	}
}

func copyOf(p *collect.Pacing) *collect.Pacing {
	if p == nil {
		return nil
	}
	q := *p
	q.RecordedAt, q.State = plain(p.RecordedAt), bytes.Clone(p.State)
	return &q
}

// trace appends events, numbering from where the run stands: all or none.
func (u *run) trace(events []event.Event) error {
	list := make([][]byte, len(events))
	for i, e := range events {
		e.Seq, e.At = int64(len(u.events)+i+1), e.At.UTC()
		b, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("store: event %s cannot be kept: %w", e.Type, err)
		}
		list[i] = b
	}
	u.events = append(u.events, list...)
	return nil
}
