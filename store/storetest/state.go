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
	"github.com/headway-go/headway/connector"
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
	l, at := acquire(t, s, "c", "r1", now()), now()
	p := &collect.Pacing{Version: 2, Law: "aimd", IntervalMS: 333.25, RecordedAt: now(), State: json.RawMessage(`{"a": [1]}`)}
	commit(t, s, l, collect.Commit{Sink: position(1), Pacing: p})
	commit(t, s, l, collect.Commit{})
	want := collect.State{Sink: position(1), Pacing: p}
	same(t, "state", want, must(s.Load(t.Context(), "c"))(t))
	want.Sink, want.Pacing = position(2), &collect.Pacing{Version: 3, Law: "other"}
	commit(t, s, l, collect.Commit{Sink: want.Sink, Pacing: want.Pacing})
	same(t, "state replaced", want, must(s.Load(t.Context(), "c"))(t))
	part := func(n float64) map[string]collect.Pacing {
		return map[string]collect.Pacing{"/search": {Version: 2, Law: "aimd", IntervalMS: n, RecordedAt: at, State: json.RawMessage(`{"a":[1]}`)}}
	}
	p = &collect.Pacing{Version: 3, Law: "aimd", RecordedAt: now(), Pools: part(1)}
	p.Keys = map[string]collect.Pacing{"second": {Version: 3, Law: "aimd", IntervalMS: 2, RecordedAt: now(), Pools: part(3)}}
	commit(t, s, l, collect.Commit{Pacing: p})
	want.Pacing = p
	same(t, "state with pools and keys", want, must(s.Load(t.Context(), "c"))(t))
	same(t, "pacing on show", p, must(s.Connections(t.Context()))(t)[0].Pacing)
	commit(t, s, l, collect.Commit{Pacing: &collect.Pacing{Version: 4, Law: "aimd"}})
	want.Pacing = &collect.Pacing{Version: 4, Law: "aimd", Pools: p.Pools, Keys: p.Keys}
	same(t, "state after a commit without them", want, must(s.Load(t.Context(), "c"))(t))
	garbage := part(5)
	garbage["cut"] = collect.Pacing{Version: 1, Law: "aimd", State: json.RawMessage("{\"cut\": \x00\xff")}
	commit(t, s, l, collect.Commit{Pacing: &collect.Pacing{Version: 4, Law: "aimd", Pools: garbage}})
	want.Pacing = &collect.Pacing{Version: 4, Law: "aimd", Pools: part(5)}
	same(t, "pools, of which one is unreadable", want, must(s.Load(t.Context(), "c"))(t))
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

func sinksReplaced(t *testing.T, s collect.Store) {
	l, other := acquire(t, s, "c", "r1", now()), acquire(t, s, "e", "r2", now())
	at := func(l collect.Lease, kind, path, position string) {
		t.Helper()
		c := collect.Commit{SinkAt: collect.Location{Kind: kind, Path: path}}
		if position != "" {
			c.Sink = json.RawMessage(position)
		}
		commit(t, s, l, c)
	}
	shows := func(kind, path, position string, former ...collect.FormerSink) {
		t.Helper()
		state := must(s.Load(t.Context(), "c"))(t)
		want := collect.Location{Kind: kind, Path: path}
		if state.SinkAt != want || string(state.Sink) != position {
			t.Errorf("the sink is %+v with %s, want %+v with %s", state.SinkAt, state.Sink, want, position)
		}
		same(t, "former sinks", former, state.FormerSinks)
		status := must(s.Connections(t.Context()))(t)[0]
		var locations []collect.Location
		for _, f := range former {
			locations = append(locations, f.Location)
		}
		same(t, "former sinks on show", locations, status.FormerSinks)
		if status.SinkAt() != want {
			t.Errorf("on show is %+v, want %+v", status.SinkAt(), want)
		}
	}
	former := func(kind, path, position string) collect.FormerSink {
		return collect.FormerSink{Location: collect.Location{Kind: kind, Path: path}, Position: json.RawMessage(position)}
	}
	at(other, "jsonl", "z", `"z"`)
	commit(t, s, l, collect.Commit{Sink: json.RawMessage(`"0"`)})
	shows("", "", `"0"`)
	at(l, "jsonl", "a", `"1"`) // what is unknown is not kept aside
	shows("jsonl", "a", `"1"`)
	at(l, "jsonl", "a", `"2"`)
	commit(t, s, l, collect.Commit{Sink: json.RawMessage(`"3"`)})
	shows("jsonl", "a", `"3"`)
	at(l, "sqlite", "a", `"4"`)
	at(l, "jsonl", "b", `"5"`)
	shows("jsonl", "b", `"5"`, former("jsonl", "a", `"3"`), former("sqlite", "a", `"4"`))
	at(l, "jsonl", "a", `"6"`)
	shows("jsonl", "a", `"6"`, former("jsonl", "b", `"5"`), former("sqlite", "a", `"4"`))
	if err := s.Forget(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	shows("", "", "")
	if state := must(s.Load(t.Context(), "e"))(t); state.SinkAt.Path != "z" || string(state.Sink) != `"z"` {
		t.Errorf("the other connection has %+v", state)
	}
}

func replaysKept(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	one := collect.Replay{
		From: collect.Location{Kind: "sqlite", Path: "a"}, To: collect.Location{Kind: "jsonl", Path: "b"}, State: collect.ReplayUnfinished,
		Records: 3, Deleted: 1, Started: now().UTC().Round(0), Stream: "docs", After: collect.RecordID{Parent: "p", Key: "k"},
	}
	shown := one
	shown.Stream, shown.After = "", collect.RecordID{}
	refused := collect.Replay{To: collect.Location{Kind: "sqlite", Path: "c"}, State: collect.ReplayRefused}
	shows := func(stored, onShow []collect.Replay) {
		t.Helper()
		same(t, "replays", stored, must(s.Load(t.Context(), "c"))(t).Replays)
		same(t, "replays on show", onShow, must(s.Connections(t.Context()))(t)[0].Replays)
	}
	shows(nil, nil)
	commit(t, s, l, collect.Commit{Replays: []collect.Replay{one, refused}})
	shows([]collect.Replay{one, refused}, []collect.Replay{shown})
	commit(t, s, l, collect.Commit{})
	shows([]collect.Replay{one, refused}, []collect.Replay{shown})
	commit(t, s, l, collect.Commit{Replays: []collect.Replay{}})
	shows(nil, nil)
	commit(t, s, l, collect.Commit{Replays: []collect.Replay{one}})
	if err := s.Forget(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	shows(nil, nil)

	// A replay has the lease and a record, and is not the connection's last run.
	if err := s.Finish(t.Context(), l, collect.RunEnd{At: now(), State: collect.RunDrained}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), collect.LeaseRequest{Connection: "c", Run: "r2", Kind: collect.RunReplays, Holder: "h", Now: now(), TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	runs := must(s.Runs(t.Context(), "c", 1))(t)
	if len(runs) != 1 || runs[0].ID != "r2" || runs[0].Kind != collect.RunReplays {
		t.Errorf("the newest run is %+v", runs)
	}
	status := must(s.Connections(t.Context()))(t)[0]
	if status.LastRun == nil || status.LastRun.ID != "r1" || status.Holder == "" {
		t.Errorf("the status has the last run %+v and the holder %q", status.LastRun, status.Holder)
	}
}

// shaped is how a stream is read.
func shaped(stream, version string) collect.StreamShape {
	return collect.StreamShape{Stream: stream, DetailStream: "d", Shape: connector.Shape{
		Base: version, List: version, Records: version, Key: version, Fingerprint: version, Incremental: version, Detail: version,
	}}
}

func shapesAreKept(t *testing.T, s collect.Store) {
	l, other := acquire(t, s, "c", "r1", now()), acquire(t, s, "e", "r2", now())
	commit(t, s, other, collect.Commit{Reshaped: []collect.Reshaped{{Shape: shaped("x", "other")}}})
	commit(t, s, l, collect.Commit{SinkAt: collect.Location{Kind: "jsonl"}, Reshaped: []collect.Reshaped{{Shape: shaped("y", "1")}, {Shape: shaped("x", "1")}}})
	gone := shaped("y", "2")
	gone.Gone = true
	commit(t, s, l, collect.Commit{Reshaped: []collect.Reshaped{{Shape: gone}}})
	status := must(s.Connections(t.Context()))(t)[0]
	same(t, "shapes", []collect.StreamShape{shaped("x", "1"), gone}, status.Shapes)
	if state := must(s.Load(t.Context(), "c"))(t); state.SinkAt.Kind != "jsonl" || status.SinkKind != "jsonl" {
		t.Errorf("sink kind %q and %q, want jsonl, which no commit replaced", state.SinkAt.Kind, status.SinkKind)
	}
	if err := s.Forget(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	status = must(s.Connections(t.Context()))(t)[0]
	if len(status.Shapes) != 0 || status.SinkKind != "" {
		t.Errorf("after forget: shapes %v, sink kind %q", status.Shapes, status.SinkKind)
	}
	same(t, "shapes of the other connection", []collect.StreamShape{shaped("x", "other")}, must(s.Connections(t.Context()))(t)[1].Shapes)
}

func reshapedItems(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	item := collect.KnownItem{Key: "k", Fingerprint: "f", Children: []byte("children")}
	own, foreign := gap("d", "k"), gap("other", "k")
	own.Parent, foreign.Parent = "x", "y"
	reset := func() {
		for _, stream := range []string{"x", "y"} {
			commit(t, s, l, collect.Commit{Stream: stream, Items: []collect.KnownItem{item}})
		}
		commit(t, s, l, collect.Commit{Opened: []collect.Gap{own, foreign}})
	}
	for _, c := range []struct {
		name string
		r    collect.Reshaped
		want map[string]collect.KnownItem
		gaps int
	}{
		{"nothing", collect.Reshaped{}, map[string]collect.KnownItem{"k": item}, 2},
		{"fingerprints", collect.Reshaped{ForgetFingerprints: true}, map[string]collect.KnownItem{"k": {Key: "k", Children: item.Children}}, 2},
		{"children", collect.Reshaped{ForgetChildren: true}, map[string]collect.KnownItem{"k": {Key: "k", Fingerprint: "f"}}, 2},
		{"owed", collect.Reshaped{OweDetails: true}, map[string]collect.KnownItem{"k": {Key: "k", Fingerprint: "f", Children: item.Children, Owed: true}}, 2},
		{"items", collect.Reshaped{ForgetItems: true}, map[string]collect.KnownItem{}, 1},
	} {
		reset()
		c.r.Shape = shaped("x", c.name)
		commit(t, s, l, collect.Commit{Reshaped: []collect.Reshaped{c.r}})
		same(t, c.name+": items", c.want, must(s.Known(t.Context(), "c", "x", []string{"k"}))(t))
		same(t, c.name+": items of another stream", map[string]collect.KnownItem{"k": item}, must(s.Known(t.Context(), "c", "y", []string{"k"}))(t))
		if n := len(must(s.Gaps(t.Context(), collect.GapFilter{}))(t)); n != c.gaps {
			t.Errorf("%s: %d gaps, want %d", c.name, n, c.gaps)
		}
		same(t, c.name+": items counted", map[string]int64{"x": int64(len(c.want)), "y": 1}, plus(must(s.Connections(t.Context()))(t)[0].Items, "x"))
	}
	// Items written in the very commit count as of after it.
	commit(t, s, l, collect.Commit{
		Reshaped: []collect.Reshaped{{Shape: shaped("x", "last"), ForgetItems: true}}, Stream: "x", Items: []collect.KnownItem{{Key: "new"}},
	})
	same(t, "items of the commit", map[string]collect.KnownItem{"new": {Key: "new"}}, must(s.Known(t.Context(), "c", "x", []string{"k", "new"}))(t))
}

// plus counts a stream that is not there as 0.
func plus(items map[string]int64, stream string) map[string]int64 {
	if _, ok := items[stream]; !ok {
		items[stream] = 0
	}
	return items
}

func gapsDropped(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	backlog := collect.Gap{GapKey: collect.GapKey{Stream: "d"}, Parent: "x", Backlog: true}
	pending, terminal, recovered, other := gap("d", "p"), gap("d", "t"), gap("d", "r"), gap("e", "p")
	terminal.Status = collect.GapTerminal
	owed := collect.KnownItem{Key: "k", Fingerprint: "f", Owed: true}
	commit(t, s, l, collect.Commit{Stream: "x", Items: []collect.KnownItem{owed}, Opened: []collect.Gap{pending, terminal, recovered, other, backlog}})
	commit(t, s, l, collect.Commit{Stream: "y", Items: []collect.KnownItem{owed}, Recovered: []collect.GapKey{recovered.GapKey}})
	byID := must(s.Gaps(t.Context(), collect.GapFilter{Stream: "e"}))(t)[0].ID
	if n := must(s.Act(t.Context(), collect.GapDrop, collect.GapFilter{}, []int64{byID, 12345}))(t); n != 1 {
		t.Errorf("by id: %d dropped, want 1", n)
	}
	if !must(s.Known(t.Context(), "c", "x", []string{"k"}))(t)["k"].Owed {
		t.Error("an item is owed no more, though its backlog gap was not dropped")
	}
	if n := must(s.Act(t.Context(), collect.GapDrop, collect.GapFilter{Connection: "c", Stream: "d"}, nil))(t); n != 3 {
		t.Errorf("by stream: %d dropped, want 3", n)
	}
	left := must(s.Gaps(t.Context(), collect.GapFilter{}))(t)
	if len(left) != 1 || left[0].Status != collect.GapRecovered {
		t.Errorf("left are %+v, want the recovered one", left)
	}
	if must(s.Known(t.Context(), "c", "x", []string{"k"}))(t)["k"].Owed || !must(s.Known(t.Context(), "c", "y", []string{"k"}))(t)["k"].Owed {
		t.Error("want the backlog's items owed no more, and those of another stream left alone")
	}
}
