package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// shelf is a store with given gaps and a given status that records commits.
type shelf struct {
	Store
	gaps    []Gap
	status  ConnectionStatus
	known   map[string]KnownItem // by key
	pays    bool                 // what is owed changes with commits
	pages   [][]Gap              // that are served, one after the other
	asks    []ServeRequest
	commits []Commit
	times   []time.Time // of the commits
	err     error       // of each commit
	lost    error       // of each look at what is stored
	said    []Change    // by runs upon it

	end      RunEnd // of the last run
	finishes error  // what writing it gives
}

func (s *shelf) Connections(context.Context) ([]ConnectionStatus, error) {
	return []ConnectionStatus{s.status}, s.lost
}

func (s *shelf) Gaps(_ context.Context, f GapFilter) (found []Gap, _ error) {
	for _, g := range s.gaps {
		if f.Connection == "bench" && (f.Stream == "" || f.Stream == g.Stream) && (f.Status == "" || f.Status == g.Status) && g.ID > f.AfterID && len(found) < f.Limit {
			found = append(found, g)
		}
	}
	return found, s.lost
}

func (s *shelf) Load(context.Context, string) (State, error) {
	return State{Lanes: s.status.Lanes}, s.lost
}

func (s *shelf) Serve(_ context.Context, _ Lease, ask ServeRequest) (page []Gap, _ error) {
	s.asks = append(s.asks, ask)
	if len(s.pages) > 0 {
		page, s.pages = s.pages[0], s.pages[1:]
	}
	return page, s.lost
}

func (s *shelf) Known(_ context.Context, _, _ string, keys []string) (map[string]KnownItem, error) {
	found := map[string]KnownItem{}
	for _, key := range keys {
		if it, ok := s.known[key]; ok {
			found[key] = it
		}
	}
	return found, s.lost
}

func (s *shelf) Owed(_ context.Context, _, _ string, limit int) (keys []string, _ error) {
	for key, it := range s.known {
		if it.Owed {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys[:min(len(keys), limit)], s.lost
}

func (s *shelf) Finish(_ context.Context, _ Lease, end RunEnd) error {
	s.end = end
	return s.finishes
}

func (s *shelf) Commit(_ context.Context, _ Lease, c Commit) error {
	if s.err != nil {
		return s.err
	}
	s.times = append(s.times, c.At)
	c.At, c.Progress, c.Pacing, c.Events = time.Time{}, Progress{}, nil, nil
	s.commits = append(s.commits, c)
	for _, it := range c.Items {
		if s.pays && s.known[it.Key].Owed {
			s.known[it.Key] = it
		}
	}
	for _, g := range c.Opened {
		if i := slices.IndexFunc(s.gaps, func(old Gap) bool { return old.GapKey == g.GapKey }); i >= 0 {
			s.gaps[i] = g
		}
	}
	return nil
}

// lists is a connector of which only the streams are used.
type lists struct {
	connector.Connector
	streams []connector.Stream
}

func (l lists) Streams() []connector.Stream { return l.streams }

// upon returns a new run with the given store.
func upon(t *testing.T, s *shelf, streams ...connector.Stream) *execution {
	t.Helper()
	g, err := headway.New(headway.Config{Ceiling: 1, Initial: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &execution{
		o: Options{Connection: "bench", Store: s, Connector: lists{streams: streams}, OnEvent: func(e event.Event) {
			if e.Type == event.ConnectionChanged {
				s.said = append(s.said, ChangeOf(e))
			}
		}},
		governor: g, started: clock(0),
		caller: &caller{}, stored: map[string]*keySet{}, gapsOf: map[string]int{}, live: live{started: clock(0)},
	}
}

// detail returns the gap of one item.
func detail(id int64, status GapStatus, change func(*Gap)) Gap {
	g := Gap{ID: id, GapKey: GapKey{"messages", fmt.Sprint(id)}, Connection: "bench", Parent: "docs", Status: status, Reason: reason.ServerError, Attempts: 3, RetryAt: clock(time.Hour)}
	if change != nil {
		change(&g)
	}
	return g
}

func TestGapsThatNoStreamCanFetchAreSetAsideAndComeBack(t *testing.T) {
	docs := connector.Stream{Name: "docs", DetailStream: "messages"}
	lost := func(g *Gap) { g.Stream, g.LastError = "notes", "503 server_error" }
	aside := func(g *Gap) { g.Stream, g.LastError = "notes", streamGone }
	bad := func(g *Gap) { g.Stream, g.Parent, g.LastError = "papers", "papers", "page 1, record 2" }
	s := &shelf{gaps: []Gap{
		detail(1, GapPending, nil), detail(2, GapPending, lost), detail(3, GapTerminal, aside), detail(4, GapTerminal, lost),
		detail(5, GapTerminal, func(g *Gap) { g.LastError = streamGone }), detail(6, GapTerminal, nil), detail(7, GapTerminal, bad),
		detail(8, GapRecovered, lost), detail(9, GapPending, bad),
	}}
	r := upon(t, s, docs)
	if err := r.findOrphans(t.Context(), []connector.Stream{docs}); err != nil {
		t.Fatal(err)
	}
	gone := func(g *Gap) { g.Stream, g.LastError, g.Attempts = "notes", streamGone, 0 }
	back := detail(5, GapPending, func(g *Gap) { g.LastError, g.Attempts, g.RetryAt = "", 0, time.Time{} })
	want := []Commit{
		{Opened: []Gap{detail(2, GapTerminal, gone)}},
		{Opened: []Gap{detail(4, GapTerminal, gone), back}},
	}
	if diff := cmp.Diff(want, s.commits, cmpopts.IgnoreUnexported(Commit{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]Change{{Kind: GapsOrphaned, Stream: "notes", Count: 3}, {Kind: GapsOrphaned, Stream: "papers", Count: 1}}, s.said); diff != "" {
		t.Errorf("said: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"notes": 3, "papers": 1}, r.orphaned); diff != "" {
		t.Errorf("counted: -want +got:\n%s", diff)
	}
	s.err = errors.New("the disk is full")
	s.gaps[0].Stream = "notes"
	if err := r.findOrphans(t.Context(), []connector.Stream{docs}); !errors.Is(err, s.err) {
		t.Errorf("a commit that failed: %v", err)
	}
}

func TestPositionsThatAreWorthlessAreReset(t *testing.T) {
	docs := connector.Stream{Name: "docs", DetailStream: "messages"}
	of := func(stream string, kind LaneKind, walking bool, cursor string) Lane {
		return Lane{Stream: stream, Kind: kind, Walking: walking, Cursor: cursor, Pages: 4, Done: true, Since: "1", Watermark: "2", High: "3"}
	}
	lanes := []Lane{of("talks", Catchup, true, "/p2"), of("docs", Catchup, true, "/p2"), of("docs", Steady, true, "opaque"), of("docs", "third", false, "/p2")}
	backlog := func(id int64, status GapStatus, cursor string) Gap {
		return detail(id, status, func(g *Gap) { g.Backlog, g.Cursor, g.Since = true, cursor, "2024" })
	}
	stored := []Gap{
		backlog(1, GapPending, "/p1"), backlog(2, GapPending, "/p2"), backlog(3, GapPending, "opaque"),
		backlog(4, GapRecovered, "/p2"), backlog(5, GapTerminal, "https://x.test/2"), backlog(6, GapPending, ""),
		detail(8, GapPending, func(g *Gap) { g.Cursor = "/p2" }),
		detail(7, GapPending, func(g *Gap) { g.Stream, g.Backlog, g.Cursor = "notes", true, "/p2" }),
	}
	reset := func(n int, since string) Commit {
		g := stored[n]
		g.Cursor, g.Attempts, g.Since = "", 0, since
		return Commit{Opened: []Gap{g}}
	}
	start := func(l Lane) Commit { return Commit{Lane: &l} }
	for _, tt := range []struct {
		name  string
		kinds []ChangeKind
		want  []Commit
	}{
		{"nothing changed", nil, nil},
		{"only details changed", []ChangeKind{DetailChanged, DetailRenamed}, nil},
		{"the provider moved", []ChangeKind{BaseMoved, DetailChanged}, []Commit{
			start(Lane{Stream: "docs", Kind: Catchup, Walking: true, Done: true, Since: "1", Watermark: "2"}), reset(0, "2024"), reset(1, "2024"), reset(4, "2024"),
		}},
		{"another list", []ChangeKind{ListChanged, DetailChanged}, []Commit{
			start(Lane{Stream: "docs", Kind: Catchup}), start(Lane{Stream: "docs", Kind: Steady}), start(Lane{Stream: "docs", Kind: "third"}),
			reset(0, ""), reset(1, ""), reset(2, ""), reset(4, ""), reset(5, ""),
		}},
		{"both", []ChangeKind{ListChanged, BaseMoved}, []Commit{
			start(Lane{Stream: "docs", Kind: Catchup}), start(Lane{Stream: "docs", Kind: Steady}), start(Lane{Stream: "docs", Kind: "third"}),
			reset(0, ""), reset(1, ""), reset(2, ""), reset(4, ""), reset(5, ""),
		}},
	} {
		s := &shelf{gaps: slices.Clone(stored)}
		r := upon(t, s, docs)
		if err := r.restart(t.Context(), docs, lanes, tt.kinds); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, s.commits, cmpopts.IgnoreUnexported(Commit{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
		s.err = errors.New("the disk is full")
		for part, lanes := range map[string][]Lane{"lanes": lanes, "gaps": nil} {
			s.gaps = slices.Clone(stored)
			if err := r.restart(t.Context(), docs, lanes, tt.kinds); errors.Is(err, s.err) != (tt.want != nil) {
				t.Errorf("%s: a commit of %s that failed: %v", tt.name, part, err)
			}
		}
	}
	s := &shelf{gaps: slices.Clone(stored), lost: errors.New("the disk is gone")}
	if err := upon(t, s).restart(t.Context(), docs, nil, []ChangeKind{ListChanged}); !errors.Is(err, s.lost) {
		t.Errorf("gaps that cannot be read: %v", err)
	}
	if err := upon(t, s).findOrphans(t.Context(), nil); !errors.Is(err, s.lost) {
		t.Errorf("gaps that cannot be read: %v", err)
	}
	if s.commits != nil {
		t.Errorf("and yet they were committed: %+v", s.commits)
	}
	s = &shelf{gaps: slices.Clone(stored)}
	if err := upon(t, s).restart(t.Context(), connector.Stream{Name: "docs"}, nil, []ChangeKind{ListChanged}); err != nil || s.commits != nil {
		t.Errorf("a stream without details: %v, %v", err, s.commits)
	}
}

func TestAnEditedConnectionIsAdoptedOnce(t *testing.T) {
	docs := connector.Stream{Name: "docs", DetailStream: "messages", Shape: whole}
	talks := connector.Stream{Name: "talks", DetailStream: "comments", Shape: whole}
	news := connector.Stream{Name: "news", DetailStream: "texts", Shape: whole}
	plain := connector.Stream{Name: "plain", Shape: whole}
	without := shapeOf(docs)
	without.DetailStream = ""
	zoo := StreamShape{Stream: "zoo", Shape: whole}
	s := &shelf{status: ConnectionStatus{
		Name:   "bench",
		Shapes: []StreamShape{without, shapeOf(talks), shapeOf(plain), zoo},
		Items:  map[string]int64{"docs": 2, "talks": 3, "zoo": 1},
		Lanes:  []Lane{{Stream: "docs", Kind: Catchup, Done: true}, {Stream: "talks", Kind: Catchup, Done: true}},
	}}
	r := upon(t, s, docs, talks, news, plain)
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone := zoo
	gone.Gone = true
	want := []Commit{{
		Reshaped: []Reshaped{{Shape: shapeOf(docs), OweDetails: true}, {Shape: shapeOf(news)}, {Shape: gone}},
		Opened: []Gap{{
			GapKey: GapKey{Stream: "messages"}, Connection: "bench", Parent: "docs", Backlog: true,
			Reason: reason.ConnectionChanged, Status: GapPending,
		}},
	}}
	if diff := cmp.Diff(want, s.commits, cmpopts.IgnoreUnexported(Commit{}), cmpopts.IgnoreFields(Gap{}, "FirstSeen", "LastSeen")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if g := s.commits[0].Opened[0]; g.FirstSeen.IsZero() || !g.FirstSeen.Equal(g.LastSeen) {
		t.Errorf("seen %v and %v", g.FirstSeen, g.LastSeen)
	}
	changes := []Change{{Kind: DetailAdded, Stream: "docs", Count: 2}, {Kind: StreamAdded, Stream: "news"}, {Kind: StreamGone, Stream: "zoo", Count: 1}}
	if diff := cmp.Diff(changes, s.said); diff != "" {
		t.Errorf("said: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"messages": true, "comments": false, "texts": true, "": true}, r.initial); diff != "" {
		t.Errorf("collected for the first time: -want +got:\n%s", diff)
	}
	var empty []string
	for name := range r.stored {
		empty = append(empty, name)
	}
	if slices.Sort(empty); !slices.Equal(empty, []string{"news", "plain"}) {
		t.Errorf("without items: %q", empty)
	}
	// A stream that has no known items, or forgets them, owes no details.
	other := func(s connector.Stream) connector.Stream { s.Shape.List = "another"; return s }
	keyed := func(s connector.Stream) connector.Stream {
		s.Shape.Key, s.DetailStream = "another", "answers"
		return s
	}
	for _, tt := range []struct {
		name  string
		items int64
		was   StreamShape
		is    connector.Stream
		owed  int
	}{
		{"details of no items", 0, without, docs, 0},
		{"details of one item", 1, without, docs, 1},
		{"another list", 2, shapeOf(docs), other(docs), 0},
		{"another key", 2, shapeOf(docs), keyed(docs), 0},
	} {
		s := &shelf{status: ConnectionStatus{Name: "bench", Shapes: []StreamShape{tt.was}, Items: map[string]int64{"docs": tt.items}}}
		if err := upon(t, s, tt.is).adopt(t.Context()); err != nil || len(s.commits) != 1 || len(s.commits[0].Reshaped) != 1 || len(s.commits[0].Opened) != tt.owed {
			t.Errorf("%s: %v, %+v", tt.name, err, s.commits)
		}
		s.err = errors.New("the disk is full")
		if err := upon(t, s, tt.is).adopt(t.Context()); !errors.Is(err, s.err) {
			t.Errorf("%s: a commit that failed: %v", tt.name, err)
		}
	}
	// As it is there is nothing to do.
	s = &shelf{status: ConnectionStatus{Name: "bench", Shapes: []StreamShape{shapeOf(plain)}}}
	if err := upon(t, s, plain).adopt(t.Context()); err != nil || s.commits != nil {
		t.Errorf("the same again: %v, %+v", err, s.commits)
	}
}

func TestWhatIsOwedIsCountedToTheLastGap(t *testing.T) {
	for _, n := range []int{0, 1, gapPageRows - 1, gapPageRows, gapPageRows + 1, 2*gapPageRows + 1} {
		var gaps []Gap
		for i := range n {
			gaps = append(gaps, detail(int64(i+1), GapPending, func(g *Gap) { g.RetryAt = clock(time.Duration(n-i) * time.Second) }))
		}
		r := upon(t, &shelf{gaps: gaps}, connector.Stream{Name: "docs", DetailStream: "messages"})
		owed, next, due, err := r.owed(t.Context())
		if err != nil || owed["server_error"] != int64(n) || len(due) != n || next.ID != int64(n) {
			t.Errorf("%d gaps: %v, %d instants, next %d, %v", n, owed, len(due), next.ID, err)
		}
		for i := range gaps {
			gaps[i].Status = GapTerminal
		}
		r.o.Store = &shelf{gaps: gaps, status: ConnectionStatus{Name: "bench", Quarantined: int64(n) + 5}}
		for _, tt := range []struct {
			streams []string
			of      int64
		}{{nil, int64(n) + 5}, {[]string{"docs"}, int64(n)}, {[]string{"talks"}, 0}} {
			r.o.Streams = tt.streams
			of, all, err := r.quarantined(t.Context())
			if of != tt.of || all != int64(n)+5 || err != nil {
				t.Errorf("%d in quarantine, of %q: %d of %d, %v", n, tt.streams, of, all, err)
			}
		}
		r.o.Streams = nil
		if err := r.findOrphans(t.Context(), nil); err != nil || r.orphaned["messages"] != int64(n) {
			t.Errorf("%d gaps without a stream: %v, %v", n, r.orphaned, err)
		}
		for i := range gaps {
			gaps[i].Stream, gaps[i].LastSeen = "docs", clock(-1)
		}
		s := &shelf{gaps: gaps}
		r.o.Store = s
		if err := r.mended(t.Context(), "docs", clock(0)); err != nil {
			t.Fatal(err)
		}
		var keys []GapKey
		for _, g := range gaps {
			keys = append(keys, g.GapKey)
		}
		want := []Commit{{Recovered: keys}}
		if n == 0 {
			want = nil
		}
		if diff := cmp.Diff(want, s.commits, cmpopts.IgnoreUnexported(Commit{})); diff != "" {
			t.Errorf("%d bad entries mended: -want +got:\n%s", n, diff)
		}
	}
}

func TestWhichGapsCountAsOwed(t *testing.T) {
	backlog := func(items int64) func(*Gap) {
		return func(g *Gap) { g.Backlog, g.Items, g.Reason, g.RetryAt = true, items, reason.Timeout, clock(0) }
	}
	s := &shelf{gaps: []Gap{
		detail(1, GapPending, backlog(0)), detail(2, GapPending, nil), detail(3, GapTerminal, nil), detail(4, GapPending, backlog(7)),
		detail(5, GapPending, func(g *Gap) { g.Parent, g.RetryAt = "talks", clock(-time.Hour) }),
		detail(6, GapPending, func(g *Gap) { g.RetryAt = clock(0) }), // the first of two that are due at once stays
	}}
	r := upon(t, s)
	r.o.Streams = []string{"docs"}
	owed, next, due, err := r.owed(t.Context())
	if err != nil || next.ID != 4 {
		t.Errorf("next is %d, %v", next.ID, err)
	}
	if diff := cmp.Diff(map[string]int64{"server_error": 2, "timeout": 7}, owed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]time.Time{clock(time.Hour), clock(0), clock(0)}, due); diff != "" {
		t.Errorf("due: -want +got:\n%s", diff)
	}
}

func TestWhichGapsOfBadEntriesAWalkCloses(t *testing.T) {
	entry := func(id int64, status GapStatus, seen time.Duration, change func(*Gap)) Gap {
		return detail(id, status, func(g *Gap) {
			g.Stream, g.LastSeen = "docs", clock(seen)
			if change != nil {
				change(g)
			}
		})
	}
	s := &shelf{gaps: []Gap{
		entry(1, GapTerminal, -1, nil), entry(2, GapTerminal, 0, nil), entry(3, GapTerminal, 1, nil), entry(4, GapRecovered, -1, nil),
		entry(5, GapPending, -1, nil), entry(6, GapTerminal, -1, func(g *Gap) { g.Parent = "talks" }),
		entry(7, GapTerminal, -1, func(g *Gap) { g.Backlog = true }), detail(8, GapTerminal, nil),
	}}
	if err := upon(t, s).mended(t.Context(), "docs", clock(0)); err != nil {
		t.Fatal(err)
	}
	want := []Commit{{Recovered: []GapKey{{"docs", "1"}, {"docs", "5"}}}}
	if diff := cmp.Diff(want, s.commits, cmpopts.IgnoreUnexported(Commit{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
