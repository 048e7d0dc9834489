package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// Load returns the state that a run starts from. See [collect.Store]. Lanes are sorted by
// stream and kind.
func (s *Store) Load(ctx context.Context, connection string) (st collect.State, err error) {
	err = s.read(ctx, func() {
		c := s.connections[connection]
		if c == nil {
			return
		}
		st = collect.State{
			Lanes: c.positions(), Pacing: copyOf(c.pacing), Cooldown: c.cooldown,
			Sink: bytes.Clone(c.sink), SinkAt: c.at, FormerSinks: c.formerSinks(),
			Replays: slices.Clone(c.replays),
		}
	})
	return st, err
}

func (c *connection) positions() []collect.Lane {
	return slices.SortedFunc(maps.Values(c.lanes), func(a, b collect.Lane) int {
		return cmp.Or(strings.Compare(a.Stream, b.Stream), cmp.Compare(a.Kind, b.Kind))
	})
}

func (c *connection) formerSinks() (list []collect.FormerSink) {
	for at, position := range c.former {
		list = append(list, collect.FormerSink{Location: at, Position: bytes.Clone(position)})
	}
	slices.SortFunc(list, func(a, b collect.FormerSink) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Path, b.Path))
	})
	return list
}

// Known returns the known items of a stream with the given keys. See [collect.Store].
func (s *Store) Known(ctx context.Context, connection, stream string, keys []string) (map[string]collect.KnownItem, error) {
	known := make(map[string]collect.KnownItem, len(keys))
	err := s.read(ctx, func() {
		c := s.connections[connection]
		if c == nil || c.streams[stream] == nil {
			return
		}
		for _, key := range keys {
			if it, ok := c.streams[stream].items[key]; ok {
				it.Children = bytes.Clone(it.Children)
				known[key] = it
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return known, nil
}

// Owed returns the keys of items whose detail a backlog owes, sorted. See [collect.Store].
func (s *Store) Owed(ctx context.Context, connection, stream string, limit int) (keys []string, err error) {
	err = s.read(ctx, func() {
		c := s.connections[connection]
		if c == nil || c.streams[stream] == nil {
			return
		}
		keys = slices.Sorted(maps.Keys(c.streams[stream].owed))
	})
	if limit > 0 {
		keys = keys[:min(len(keys), limit)]
	}
	return keys, err
}

// Connections lists every connection, by name. See [collect.Reader].
func (s *Store) Connections(ctx context.Context) (list []collect.ConnectionStatus, err error) {
	now := time.Now()
	err = s.read(ctx, func() {
		for _, name := range slices.Sorted(maps.Keys(s.connections)) {
			list = append(list, s.describe(s.connections[name], now))
		}
	})
	return list, err
}

func (s *Store) describe(c *connection, now time.Time) collect.ConnectionStatus {
	d := collect.ConnectionStatus{
		Name: c.name, Lanes: c.positions(), SinkKind: c.at.Kind, SinkPath: c.at.Path, Pacing: copyOf(c.pacing), Cooldown: c.cooldown,
		Replays: collect.ReplaysOnShow(c.replays),
		Shapes:  slices.SortedFunc(maps.Values(c.shapes), func(a, b collect.StreamShape) int { return strings.Compare(a.Stream, b.Stream) }),
		Items:   map[string]int64{}, Owed: map[string]int64{},
	}
	for _, s := range c.formerSinks() {
		d.FormerSinks = append(d.FormerSinks, s.Location)
	}
	if c.held != nil && now.Before(c.expires) {
		d.Holder = c.held.Holder
	}
	for name, of := range c.streams {
		d.Items[name] = int64(len(of.items))
	}
	for _, g := range c.order {
		switch n := c.items(g); g.Status {
		case collect.GapPending, collect.GapLeased:
			if n > 0 {
				d.Owed[g.Reason.String()] += n
			}
		case collect.GapTerminal:
			d.Quarantined += n
		case collect.GapRecovered:
		}
	}
	for _, u := range slices.Backward(s.runs) {
		if u.of == c && u.Kind == collect.RunCollects {
			last := u.show(now)
			d.LastRun = &last
			break
		}
	}
	return d
}

// Runs lists the newest runs first. See [collect.Reader]. A running run without a live
// lease is shown as abandoned, and as ended when its lease expired.
func (s *Store) Runs(ctx context.Context, connection string, limit int) (list []collect.Run, err error) {
	now := time.Now()
	err = s.read(ctx, func() {
		for _, u := range slices.Backward(s.runs) {
			if limit > 0 && len(list) >= limit {
				return
			}
			if connection == "" || connection == u.of.name {
				list = append(list, u.show(now))
			}
		}
	})
	return list, err
}

// show returns a copy of a run. A run that lost its lease was marked by the run that took
// over, so only the current holder's lease can have expired.
func (u *run) show(now time.Time) collect.Run {
	shown := u.Run
	if u.State == collect.RunRunning && !now.Before(u.of.expires) {
		shown.State, shown.Reason, shown.Ended = collect.RunAbandoned, reason.LeaseLost, u.of.expires
	}
	return shown
}

// Events lists the events of a run, numbered from 1. See [collect.Reader].
func (s *Store) Events(ctx context.Context, run string) (list []event.Event, err error) {
	err = s.read(ctx, func() {
		u := s.byID[run]
		if u == nil {
			return
		}
		for _, b := range u.events {
			var e event.Event
			if json.Unmarshal(b, &e) == nil {
				list = append(list, e)
			}
		}
	})
	return list, err
}
