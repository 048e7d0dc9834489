package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
)

func zeroState(t *testing.T, s collect.Store) {
	same(t, "state", collect.State{}, must(s.Load(t.Context(), "never"))(t))
	known, err := s.Known(t.Context(), "never", "x", []string{"k"})
	if err != nil || len(known) != 0 {
		t.Errorf("Known: %v, %v; want nothing", known, err)
	}
	l := acquire(t, s, "c", "r1", now())
	same(t, "state of a connection without a commit", collect.State{}, must(s.Load(t.Context(), "c"))(t))
	commit(t, s, l, collect.Commit{})
	same(t, "state after an empty commit", collect.State{}, must(s.Load(t.Context(), "c"))(t))
}

// laneFields fills every field, also those that are added later, so that a
// store cannot overlook one.
func laneFields(t *testing.T, s collect.Store) {
	var lane collect.Lane
	fill(t, reflect.ValueOf(&lane).Elem(), 1)
	lane.Trail.Anchor = math.MaxUint64 // hashes use all bits
	l := acquire(t, s, "c", "r1", now())
	commit(t, s, l, collect.Commit{Lane: &lane})
	same(t, "lanes", []collect.Lane{lane}, must(s.Load(t.Context(), "c"))(t).Lanes)

	fill(t, reflect.ValueOf(&lane).Elem(), 2)
	lane.Stream, lane.Kind = "value 1 of Stream", "value 1 of Kind"
	commit(t, s, l, collect.Commit{Lane: &lane})
	same(t, "lanes replaced", []collect.Lane{lane}, must(s.Load(t.Context(), "c"))(t).Lanes)

	cleared := collect.Lane{Stream: lane.Stream, Kind: lane.Kind}
	commit(t, s, l, collect.Commit{Lane: &cleared})
	same(t, "lanes cleared", []collect.Lane{cleared}, must(s.Load(t.Context(), "c"))(t).Lanes)
}

// fill sets each field of a struct to something that is not zero.
func fill(t *testing.T, v reflect.Value, n int) {
	t.Helper()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case f.Type() == reflect.TypeFor[time.Time]():
			f.Set(reflect.ValueOf(time.Date(2020+n, 2, 3, 4, 5, 6, 7e6, time.UTC)))
		case f.Kind() == reflect.String:
			f.SetString(fmt.Sprintf("value %d of %s", n, name))
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.CanInt():
			f.SetInt(int64(100*n + i))
		case f.CanUint():
			f.SetUint(uint64(100*n + i))
		case f.Kind() == reflect.Struct:
			fill(t, f, n)
		default:
			t.Fatalf("field %s is of a kind that this test cannot fill: %s", name, f.Kind())
		}
	}
}

func lanesAreApart(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	want := []collect.Lane{
		{Stream: "a", Kind: collect.Catchup, Cursor: "1"},
		{Stream: "a", Kind: collect.Steady, Cursor: "2"},
		{Stream: "b", Kind: collect.Catchup, Cursor: "3"},
	}
	for i := range want {
		commit(t, s, l, collect.Commit{Lane: &want[i]})
	}
	want[0].Cursor, want[0].Done = "9", true
	commit(t, s, l, collect.Commit{Lane: &want[0]})
	same(t, "lanes", want, must(s.Load(t.Context(), "c"))(t).Lanes)
}

func keptUntilReplaced(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	p := &collect.Pacing{Version: 2, Law: "aimd", IntervalMS: 333.25, RecordedAt: now(), State: json.RawMessage(`{"a": [1]}`)}
	commit(t, s, l, collect.Commit{Sink: position(1), Pacing: p})
	commit(t, s, l, collect.Commit{})
	want := collect.State{Sink: position(1), Pacing: p}
	same(t, "state", want, must(s.Load(t.Context(), "c"))(t))
	want.Sink, want.Pacing = position(2), &collect.Pacing{Version: 3, Law: "other"}
	commit(t, s, l, collect.Commit{Sink: want.Sink, Pacing: want.Pacing})
	same(t, "state replaced", want, must(s.Load(t.Context(), "c"))(t))
}

func unreadable(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	garbage := json.RawMessage("{\"cut\": \x00\xff")
	p := &collect.Pacing{Version: 1, Law: "aimd", IntervalMS: 500, RecordedAt: now(), State: garbage}
	commit(t, s, l, collect.Commit{Sink: garbage, Pacing: p})
	got := must(s.Load(t.Context(), "c"))(t)
	same(t, "position, for the sink to judge", garbage, got.Sink)
	if got.Pacing == nil || got.Pacing.IntervalMS != 500 || (got.Pacing.State != nil && string(got.Pacing.State) != string(garbage)) {
		t.Errorf("pacing %+v, want the interval, and the state as it is or nil", got.Pacing)
	}
	all := must(s.Connections(t.Context()))(t)
	if len(all) != 1 {
		t.Errorf("%d connections, want 1", len(all))
	}
}

func knownItems(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	commit(t, s, l, collect.Commit{Stream: "x", Items: []collect.KnownItem{
		{Key: "a", Fingerprint: "1", Children: []byte{0, 1, 0xff}}, {Key: "b", Fingerprint: "2"}, {Key: "c"},
	}})
	commit(t, s, l, collect.Commit{Stream: "y", Items: []collect.KnownItem{{Key: "a", Fingerprint: "other"}}})
	same(t, "known of x", map[string]collect.KnownItem{
		"a": {Key: "a", Fingerprint: "1", Children: []byte{0, 1, 0xff}}, "c": {Key: "c"},
	}, must(s.Known(t.Context(), "c", "x", []string{"a", "c", "missing", "a"}))(t))
	same(t, "known of y", map[string]collect.KnownItem{"a": {Key: "a", Fingerprint: "other"}},
		must(s.Known(t.Context(), "c", "y", []string{"a", "b"}))(t))
	same(t, "known of no keys", map[string]collect.KnownItem{}, must(s.Known(t.Context(), "c", "x", nil))(t))
	got := must(s.Known(t.Context(), "c", "x", []string{"b"}))(t)
	if got["b"].Children != nil {
		t.Errorf("children that were never given: got %v, want nil", got["b"].Children)
	}
	if err := s.Commit(t.Context(), l, collect.Commit{At: now(), Items: items(0, 1)}); err == nil {
		t.Error("items without a stream were accepted")
	}
}

func itemsReplaced(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	write := func(list ...collect.KnownItem) { commit(t, s, l, collect.Commit{Stream: "x", Items: list}) }
	write(collect.KnownItem{Key: "a", Fingerprint: "1", Children: []byte("one")}, collect.KnownItem{Key: "b", Fingerprint: "1"})
	write(collect.KnownItem{Key: "a", Fingerprint: "2"})
	write(collect.KnownItem{Key: "b", Fingerprint: "1", Children: []byte("late")}, collect.KnownItem{Key: "b", Fingerprint: "3"})
	same(t, "known", map[string]collect.KnownItem{"a": {Key: "a", Fingerprint: "2"}, "b": {Key: "b", Fingerprint: "3"}},
		must(s.Known(t.Context(), "c", "x", []string{"a", "b"}))(t))
	same(t, "items counted", map[string]int64{"x": 2}, must(s.Connections(t.Context()))(t)[0].Items)
}

func knownBatches(t *testing.T, s collect.Store) {
	const n = 2501
	l := acquire(t, s, "c", "r1", now())
	list := items(0, n)
	commit(t, s, l, collect.Commit{Stream: "x", Items: list})
	keys := make([]string, 0, 2*n)
	for _, it := range list {
		keys = append(keys, it.Key, "not "+it.Key)
	}
	got := must(s.Known(t.Context(), "c", "x", keys))(t)
	if len(got) != n {
		t.Fatalf("%d known, want %d", len(got), n)
	}
	for _, it := range list {
		if got[it.Key].Fingerprint != it.Fingerprint {
			t.Fatalf("item %s has fingerprint %q, want %q", it.Key, got[it.Key].Fingerprint, it.Fingerprint)
		}
	}
}

// oddText uses what providers do send: a cursor is opaque, not UTF-8.
func oddText(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c'--", "r1", now())
	odd := []string{"a\x00b", "\xff\xfe", "'; DROP TABLE items; --", "日本", "\U0001F600", " lead", "trail ", "%", "1", "01", "1.0", "A", "a", ""}
	for _, text := range odd {
		commit(t, s, l, collect.Commit{
			Lane: &collect.Lane{Stream: text, Kind: collect.Steady, Cursor: text, Watermark: text}, Stream: "x" + text,
			Items: []collect.KnownItem{{Key: text, Fingerprint: text}}, Opened: []collect.Gap{gap(text, text)},
		})
	}
	lanes := must(s.Load(t.Context(), "c'--"))(t).Lanes
	if len(lanes) != len(odd) {
		t.Errorf("%d lanes, want %d", len(lanes), len(odd))
	}
	for _, lane := range lanes {
		if lane.Cursor != lane.Stream || lane.Watermark != lane.Stream {
			t.Errorf("lane %q has cursor %q and watermark %q", lane.Stream, lane.Cursor, lane.Watermark)
		}
	}
	for _, text := range odd {
		if got := must(s.Known(t.Context(), "c'--", "x"+text, odd))(t); len(got) != 1 || got[text].Fingerprint != text {
			t.Errorf("stream x%q knows %v, want its one item", text, got)
		}
	}
	if got := must(s.Gaps(t.Context(), collect.GapFilter{Connection: "c'--"}))(t); len(got) != len(odd) {
		t.Errorf("%d gaps, want %d", len(got), len(odd))
	}
}

// commitIsAtomic makes a commit fail at its last gap, after all else was written.
func commitIsAtomic(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	first := collect.Commit{
		Lane: &collect.Lane{Stream: "x", Kind: collect.Steady, Cursor: "1"}, Stream: "x", Items: items(0, 2),
		Opened: []collect.Gap{gap("d", "1"), gap("d", "2")}, Sink: position(1), Progress: collect.Progress{Pages: 1},
		Events: []event.Event{{Type: event.Phase}}, Pacing: &collect.Pacing{Version: 1, IntervalMS: 100},
	}
	commit(t, s, l, first)
	before := everything(t, s)
	bad := gap("d", "3")
	bad.Status = "sideways"
	err := s.Commit(t.Context(), l, collect.Commit{
		At: now(), Lane: &collect.Lane{Stream: "x", Kind: collect.Steady, Cursor: "2"}, Stream: "x",
		Items:     []collect.KnownItem{{Key: "k000000", Fingerprint: "changed"}, {Key: "new"}},
		Recovered: []collect.GapKey{{Stream: "d", Key: "1"}}, Opened: []collect.Gap{gap("d", "2"), bad},
		Sink: position(2), Progress: collect.Progress{Pages: 2}, Events: []event.Event{{Type: event.Phase}},
		Pacing: &collect.Pacing{Version: 1, IntervalMS: 200},
	})
	if err == nil {
		t.Fatal("a gap with an unknown status was accepted")
	}
	if errors.Is(err, collect.ErrLeaseLost) {
		t.Errorf("the lease was not lost, but the error says so: %v", err)
	}
	same(t, "store after a commit that failed", before, everything(t, s))
	commit(t, s, l, first) // the holder may go on
}

func canceledCommit(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	before := everything(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Commit(ctx, l, collect.Commit{At: now(), Sink: position(1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	same(t, "store after a canceled commit", before, everything(t, s))
}

func concurrentCommits(t *testing.T, s collect.Store) {
	const writers, each = 4, 25
	l := acquire(t, s, "c", "r1", now())
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				err := s.Commit(t.Context(), l, collect.Commit{
					At: now(), Stream: "x", Items: items(1000*w+i, 1), Events: []event.Event{{At: now(), Type: event.Phase}},
				})
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(must(s.Events(t.Context(), "r1"))(t)); n != writers*each {
		t.Errorf("%d events, want %d", n, writers*each)
	}
	same(t, "items", map[string]int64{"x": writers * each}, must(s.Connections(t.Context()))(t)[0].Items)
}

// snapshot is all that a store shows.
type snapshot struct {
	State       collect.State
	Known       map[string]collect.KnownItem
	Gaps        []collect.Gap
	Runs        []collect.Run
	Events      []event.Event
	Connections []collect.ConnectionStatus
}

func everything(t *testing.T, s collect.Store) snapshot {
	t.Helper()
	return snapshot{
		State:       must(s.Load(t.Context(), "c"))(t),
		Known:       must(s.Known(t.Context(), "c", "x", []string{"k000000", "k000001", "new"}))(t),
		Gaps:        must(s.Gaps(t.Context(), collect.GapFilter{}))(t),
		Runs:        must(s.Runs(t.Context(), "", 0))(t),
		Events:      must(s.Events(t.Context(), "r1"))(t),
		Connections: must(s.Connections(t.Context()))(t),
	}
}
