package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

func TestHigherComparesWatermarksByKind(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"", "", ""},
		{"", "x", "x"},
		{"x", "", "x"},
		{"2024-01-02T00:00:00Z", "2024-01-01T23:00:00-05:00", "2024-01-01T23:00:00-05:00"}, // later, though it sorts before
		{"2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5Z"},
		{"9", "10", "10"},
		{"1700000000", "999999999", "1700000000"},
		{"abc", "abd", "abd"},
	} {
		if got := higher(tt.a, tt.b); got != tt.want {
			t.Errorf("higher(%q, %q) = %q, want %q", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestLowerIsTheEarlierOfTwoWatermarks(t *testing.T) {
	for _, tt := range []struct {
		a, b, want string
		precedes   bool
	}{
		{"", "x", "", true},
		{"x", "", "", false},
		{"", "", "", false},
		{"9", "10", "9", true},
		{"2024-01-02T00:00:00Z", "2024-01-01T23:00:00-05:00", "2024-01-02T00:00:00Z", true},
		{"2024-01-01T00:00:00Z", "2024-01-01T00:00:00.0Z", "2024-01-01T00:00:00Z", false},
		{"abd", "abc", "abc", false},
	} {
		if got := lower(tt.a, tt.b); got != tt.want || precedes(tt.a, tt.b) != tt.precedes {
			t.Errorf("lower(%q, %q) = %q, want %q; precedes %v", tt.a, tt.b, got, tt.want, precedes(tt.a, tt.b))
		}
	}
}

func TestDescendingWatermarksContradictAscending(t *testing.T) {
	list := func(marks ...string) (items []connector.Item) {
		for _, m := range marks {
			items = append(items, connector.Item{Watermark: m})
		}
		return items
	}
	up := connector.Stream{Ascending: true}
	for _, tt := range []struct {
		s     connector.Stream
		high  string
		items []connector.Item
		wrong bool
	}{
		{up, "", list("1", "1", "2", "", "10"), false},
		{up, "", list("1", "3", "2"), true},
		{connector.Stream{}, "", list("3", "2"), false},
		{up, "5", list("4", "5", "6"), false}, // it arrived late
		{up, "5", list("3", "4"), true},
		{up, "5", list("5"), false},
		{up, "5", list("", ""), false},
	} {
		if err := contradiction(tt.s, tt.high, tt.items); (err != nil) != tt.wrong {
			t.Errorf("%+v after %q: %v", tt.items, tt.high, err)
		}
	}
}

func TestSettledTrustsNothingFromAfterTheWalkBegan(t *testing.T) {
	start := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		high  string
		start time.Time
		want  string
	}{
		{"2024-04-30T00:00:00Z", start, "2024-04-30T00:00:00Z"},
		{"2024-05-01T12:00:01Z", start, "2024-05-01T11:59:59Z"},
		{"2024-05-01T12:00:00Z", start.Add(time.Millisecond), "2024-05-01T11:59:59Z"},
		{"2024-05-01T12:00:01Z", time.Time{}, "2024-05-01T12:00:01Z"}, // the provider's time is unknown
		{"1714564801", start, "1714564799"},
		{"1714564801000", start, "1714564799000"},
		{"seq-17", start, "seq-17"},
		{"12345", start, "12345"},
		{"", start, ""},
	} {
		if got := settled(tt.high, tt.start); got != tt.want {
			t.Errorf("settled(%q, %v) = %q, want %q", tt.high, tt.start, got, tt.want)
		}
	}
}

func TestTrailFindsEveryCycleAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tail := rapid.IntRange(0, 200).Draw(t, "tail")
		cycle := rapid.IntRange(1, 200).Draw(t, "cycle")
		var trail connector.Trail
		for n := range 4*(tail+cycle) + 10 {
			at := n
			if at >= tail {
				at = tail + (n-tail)%cycle
			}
			if trail.Step(fmt.Sprintf("cursor-%d", at)) {
				if n < tail+cycle {
					t.Fatalf("found a repeat at %d, the first is at %d", n, tail+cycle)
				}
				return
			}
		}
		t.Fatalf("a cycle of %d after %d was not found", cycle, tail)
	})
}

func TestChildrenAreWrittenWhenTheyDifferFromTheLastTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var written, model map[string][]string // distinct contents by key
		c := readChildren(nil)
		for range rapid.IntRange(1, 6).Draw(t, "versions") {
			records := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) connector.Record {
				return connector.Record{
					Key:  rapid.StringN(0, 2, -1).Draw(t, "key"),
					Data: []byte(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "data")),
				}
			}), 0, 8).Draw(t, "records")
			model = map[string][]string{}
			for _, r := range records {
				if !slices.Contains(model[r.Key], string(r.Data)) {
					model[r.Key] = append(model[r.Key], string(r.Data))
				}
			}
			var wantGone []string
			for k := range written {
				if model[k] == nil {
					wantGone = append(wantGone, k)
				}
			}
			slices.Sort(wantGone)
			c = readChildren(c.encode()) // through the store
			changed, keys, gone := c.update(records)
			got := map[string][]string{}
			for _, r := range changed {
				got[r.Key] = append(got[r.Key], string(r.Data))
			}
			for k, contents := range model {
				if slices.Equal(written[k], contents) {
					contents = nil
				}
				if !slices.Equal(got[k], contents) {
					t.Fatalf("key %q: wrote %q, want %q", k, got[k], contents)
				}
			}
			if gone != int64(len(wantGone)) || !slices.Equal(keys, wantGone) || c.vague {
				t.Fatalf("%d gone, %q, want %q; vague %v", gone, keys, wantGone, c.vague)
			}
			written = model
		}
	})
	for _, b := range [][]byte{[]byte("short"), make([]byte, 16), make([]byte, 64), {3}, {childrenVersion, 1}, {childrenVersion, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}} {
		if c := readChildren(b); len(c.last) != 0 || !c.vague {
			t.Fatalf("%q was taken for digests", b)
		}
	}
	// Version 1 holds digests of the keys: it is known which records changed and how many
	// were deleted, but not which.
	old := []byte{hashedVersion}
	for _, r := range [][2]string{{"a", "1"}, {"b", "1"}, {"c", "1"}} {
		key, content := sum([]byte(r[0])), sum([]byte(r[1]))
		old = append(append(old, key[:]...), content[:]...)
	}
	c := readChildren(old)
	changed, keys, gone := c.update([]connector.Record{{Key: "a", Data: []byte("1")}, {Key: "b", Data: []byte("2")}})
	if len(changed) != 1 || changed[0].Key != "b" || keys != nil || gone != 1 {
		t.Errorf("of version 1: changed %v, gone %q (%d)", changed, keys, gone)
	}
	if c = readChildren(c.encode()); c.hashed || len(c.last) != 2 || c.last["a"] != sum([]byte("1")) {
		t.Errorf("it becomes %+v", c)
	}
	if readChildren(nil).vague || readChildren([]byte{childrenVersion}).vague {
		t.Fatal("no children are vague")
	}
}

func TestBudgetCountsEveryAttemptAndNoneTooMany(t *testing.T) {
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	b := budget{maxRequests: 2, deadline: start.Add(time.Minute)}
	if _, ok := b.spent(start); ok {
		t.Fatal("spent before anything was sent")
	}
	for i, want := range []bool{true, true, false, false} {
		if err := b.take(); (err == nil) != want {
			t.Fatalf("attempt %d: %v", i, err)
		}
	}
	if c, ok := b.spent(start); !ok || c != reason.MaxRequests || b.attempts.Load() != 2 {
		t.Fatalf("got %v %v after %d", c, ok, b.attempts.Load())
	}
	b = budget{deadline: start.Add(time.Minute)}
	if _, ok := b.spent(start.Add(time.Minute - 1)); ok {
		t.Fatal("spent before the deadline")
	}
	if c, ok := b.spent(start.Add(time.Minute)); !ok || c != reason.MaxWallClock {
		t.Fatalf("got %v %v at the deadline", c, ok)
	}
}

func TestAdvanceMovesOnlyForward(t *testing.T) {
	l := Lane{Stream: "s", Kind: Catchup}
	l.begin()
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	page := func(next string, marks ...string) connector.Page {
		p := connector.Page{Next: next, ServerTime: start}
		for i, m := range marks {
			p.Items = append(p.Items, connector.Item{Key: fmt.Sprint(i), Watermark: m})
		}
		return p
	}
	if l.advance(page("b", "2023-01-02T00:00:00Z")) || l.Cursor != "b" || l.Pages != 1 || !l.Walking || l.Done {
		t.Fatalf("%+v", l)
	}
	if !l.advance(page("b")) || l.Cursor != "b" || l.Pages != 1 {
		t.Fatalf("a page that names itself: %+v", l)
	}
	if l.advance(page("", "2025-01-02T00:00:00Z")) || l.Walking || !l.Done || l.Cursor != "" || l.Watermark != "2023-12-31T23:59:59Z" {
		t.Fatalf("the last page: %+v", l)
	}
	l.Since = l.Watermark
	l.begin()
	if l.advance(page("", "2022-01-01T00:00:00Z")) || l.Watermark != "2023-12-31T23:59:59Z" {
		t.Fatalf("the watermark went back: %+v", l)
	}
}

func TestALaneKeepsItsPositionBetweenPages(t *testing.T) {
	at := func(n int) time.Time { return clock(time.Duration(n) * time.Second) }
	mark := func(n int) string { return at(n).UTC().Format(time.RFC3339) }
	page := func(now int, next string, marks ...int) connector.Page {
		p := connector.Page{Next: next, ServerTime: at(now)}
		for _, m := range marks {
			p.Items = append(p.Items, connector.Item{Watermark: mark(m)})
		}
		return p
	}
	l := Lane{Stream: "s", Kind: Steady, Done: true, Since: mark(1), Watermark: mark(1), Cursor: "old", Pages: 7, High: mark(9), Start: at(5)}
	l.Trail.Step("old")
	l.begin()
	step := func(name string, repeats bool, p connector.Page, want Lane) {
		t.Helper()
		if got := l.advance(p); got != repeats {
			t.Errorf("%s: it repeats: %v", name, got)
		}
		want.Trail = l.Trail
		if diff := cmp.Diff(want, l); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	walking := Lane{Stream: "s", Kind: Steady, Done: true, Walking: true, Since: mark(1), Watermark: mark(1)}
	second, third := walking, walking
	second.Start, second.High, second.Pages, second.Cursor = at(100), mark(20), 1, "old"
	third.Start, third.High, third.Pages, third.Cursor = at(100), mark(30), 2, "c"
	step("the first page says when the walk began", false, page(100, "old", 20, 10), second)
	step("the second does not", false, page(200, "c", 30), third)
	again := third
	again.High = mark(40)
	step("a cursor of before leads nowhere", true, page(300, "c", 40), again)
	step("the last page", false, page(300, "", 35), Lane{Stream: "s", Kind: Steady, Done: true, Pages: 3, Watermark: mark(40)})
}

func TestACursorThatCameBeforeIsFound(t *testing.T) {
	for _, tt := range []struct {
		name  string
		nexts []string
		want  int // which of them repeats; -1 stands for no repeat
	}{
		{"none", []string{"a", "b", "c", "d"}, -1},
		{"the second time", []string{"a", "a"}, 1},
		{"right after, wherever the trail has its mark", []string{"a", "b", "c", "d", "e", "f", "f"}, 6},
		{"two in turn", []string{"a", "b", "a", "b", "a"}, 2},
	} {
		l, got := Lane{}, -1
		l.begin()
		for i, next := range tt.nexts {
			if l.advance(connector.Page{Next: next}) {
				got = i
				break
			}
		}
		if got != tt.want {
			t.Errorf("%s: found at %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestWhichAnswersSayThatACursorExpired(t *testing.T) {
	for status, want := range map[int]bool{200: false, 400: true, 401: false, 403: false, 404: true, 409: false, 410: true, 422: true, 429: false, 500: false} {
		if got := cursorRefused(fmt.Errorf("list: %w", &connector.Failure{Status: status})); got != want {
			t.Errorf("%d: %v", status, got)
		}
	}
	if cursorRefused(nil) || cursorRefused(&reason.Refusal{}) {
		t.Error("no answer said so")
	}
}

func TestAGapOwesItsItemOrThoseOfItsBacklog(t *testing.T) {
	for _, tt := range []struct {
		g    Gap
		want int64
	}{
		{Gap{}, 1}, {Gap{Items: 7}, 1}, {Gap{Backlog: true}, 0}, {Gap{Backlog: true, Items: 7}, 7},
	} {
		if got := tt.g.owes(); got != tt.want {
			t.Errorf("%+v owes %d, want %d", tt.g, got, tt.want)
		}
	}
}

func TestPressureCoolsDownLongerAndLongerAndAsksForHelp(t *testing.T) {
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	var p Cooldown
	for i, want := range []time.Duration{
		10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 80 * time.Minute, 160 * time.Minute,
		320 * time.Minute, 320 * time.Minute,
	} {
		if p = p.after(reason.RateLimited.Reason(), false, now); p.Until.Sub(now) != want || p.Cycles != i+1 {
			t.Fatalf("cycle %d: %+v, want %v", i+1, p, want)
		}
	}
	for _, why := range []reason.Reason{reason.MaxRequests.Reason(), reason.Interrupted, reason.ServerError, reason.Internal} {
		if p.after(why, true, now) != p {
			t.Errorf("%s changed the cooldown", why)
		}
	}
	for range 4 {
		p = p.after(reason.CircuitOpen.Reason(), false, now)
	}
	if p.NeedsAttention {
		t.Fatal("11 cycles are not 12")
	}
	if p = p.after(reason.CircuitOpen.Reason(), false, now); !p.NeedsAttention {
		t.Fatal("12 cycles without progress and no attention")
	}
	if q := p.after(reason.UpstreamPressure.Reason(), true, now); q.NeedsAttention || q.Cycles != 0 || q.Until.Sub(now) != 5*time.Minute {
		t.Fatalf("progress: %+v", q)
	}
	for _, why := range []reason.Reason{reason.Drained, reason.Quarantined} {
		if got := p.after(why, true, now); got != (Cooldown{}) {
			t.Errorf("%s leaves %+v", why, got)
		}
	}
	for after, want := range map[time.Duration]bool{-1: true, 0: false, 1: false} {
		if got := p.holds(p.Until.Add(after)); got != want {
			t.Errorf("%v after its end it holds: %v", after, got)
		}
	}
}

func TestEarlierKeepsTheFormat(t *testing.T) {
	for w, want := range map[string]string{
		"2024-05-01T12:00:00Z":        "2024-05-01T11:30:00Z",
		"2024-05-01T12:00:00+02:00":   "2024-05-01T09:30:00Z",
		"2024-05-01T12:00:00.123456Z": "2024-05-01T11:30:00Z",
		"2024-05-01":                  "2024-04-30",
		"2024-05-01 00:10:00":         "2024-04-30 23:40:00",
		"2024-05-01T00:10:00":         "2024-04-30T23:40:00",
		"1714564800":                  "1714563000",
		"1714564800000":               "1714563000000",
		"980000000000":                "979998200000", // milliseconds in 2001
		"seq-17":                      "", "17": "", "": "",
	} {
		if got, ok := earlier(w, 30*time.Minute); got != want || ok != (want != "") {
			t.Errorf("earlier(%q) = %q, %v; want %q", w, got, ok, want)
		}
	}
}

// place is a sink with a location.
type place struct {
	Sink
	at          Location
	mine, blank bool // it recognizes its files; they are empty
}

func (p place) Location() Location                               { return p.at }
func (p place) Recognizes(context.Context, json.RawMessage) bool { return p.mine }
func (p place) Blank(json.RawMessage) bool                       { return p.blank }

// table is a sink that takes older records at any time.
type table struct{ place }

func (table) Restore(context.Context, string, []KeptRecord) error { return nil }

func TestWhatIsReplayedFromWhere(t *testing.T) {
	files, moved, columns := Location{"jsonl", "./out"}, Location{"jsonl", "./old"}, Location{"parquet", "./out"}
	a, b, c, inState := Location{"sqlite", "a.db"}, Location{"sqlite", "b.db"}, Location{"sqlite", "c.db"}, Location{Kind: "state"}
	former := func(all ...Location) (f []FormerSink) {
		for _, l := range all {
			f = append(f, FormerSink{Location: l})
		}
		return f
	}
	replay := func(from, to Location, state ReplayState) []Replay {
		return []Replay{{From: from, To: to, State: state, Records: 3, Started: clock(0)}}
	}
	blank := place{at: files, blank: true}
	for _, tt := range []struct {
		name  string
		now   Location // of the connection
		state State
		from  *Location
		sink  Sink
		want  Location // where from
		again bool     // it goes on where it was
		held  bool     // at the position of the state
		err   string
	}{
		{name: "a sink of no place", now: a, sink: &paper{}, err: "does not report where it writes"},
		{name: "nothing collected", sink: blank, err: "nothing was collected yet"},
		{name: "from the sink before the edit", now: a, sink: blank, want: a},
		{name: "into tables", now: a, sink: table{place{at: b}}, want: a},
		{name: "from the state file", now: inState, sink: blank, want: inState},
		{name: "from one that keeps nothing", now: columns, sink: blank, err: "went to parquet in ./out"},
		{name: "the only sink there was", now: a, sink: table{place{at: a}}, err: "sqlite in a.db is the only sink"},
		{name: "into itself", now: a, from: &a, sink: table{place{at: a}}, err: "sqlite in a.db is the connection's sink already"},
		{name: "after a run into files that hold nothing", now: files, state: State{FormerSinks: former(columns, a)}, sink: blank, want: a, held: true},
		{name: "after a run into files", now: files, state: State{FormerSinks: former(a)}, sink: place{at: files}, err: "has records of this connection already"},
		{name: "after a run into tables", now: b, state: State{FormerSinks: former(a)}, sink: table{place{at: b}}, want: a, held: true},
		{name: "of two that kept records", now: b, state: State{FormerSinks: former(a, inState)}, sink: table{place{at: b}}, err: "name one with --from (sqlite in a.db; sqlite in the state file)"},
		{name: "the one that is named", now: b, state: State{FormerSinks: former(a, inState)}, from: &inState, sink: table{place{at: b}}, want: inState, held: true},
		{name: "of two that kept none", now: b, state: State{FormerSinks: former(files, columns)}, sink: table{place{at: b}}, err: "went to parquet in ./out"},
		{name: "of one that kept none", now: b, state: State{FormerSinks: former(files)}, sink: table{place{at: b}}, err: "went to jsonl in ./out"},
		{name: "files that were moved along", now: moved, from: &a, sink: place{at: files, mine: true}, err: "the sink's files were moved to jsonl in ./out"},
		{name: "files of another", now: moved, from: &a, sink: place{at: files}, want: a},
		{name: "files at their place", now: files, from: &a, sink: place{at: files, mine: true, blank: true}, want: a, held: true},
		{name: "another kind", now: a, sink: place{at: files, mine: true}, want: a},
		{name: "into a former sink", now: b, state: State{FormerSinks: former(a, files)}, sink: blank, err: "jsonl in ./out was this connection's sink before sqlite in b.db"},
		{name: "into one that was returned to", now: files, state: State{FormerSinks: former(a), Replays: []Replay{{To: files, State: ReplayRefused}}}, sink: blank, err: "jsonl in ./out was this connection's sink before sqlite in a.db"},
		{name: "unfinished", now: files, state: State{FormerSinks: former(a, b), Replays: replay(b, files, ReplayUnfinished)}, sink: place{at: files}, want: b, again: true, held: true},
		{name: "done", now: files, state: State{FormerSinks: former(a), Replays: replay(a, files, ReplayDone)}, sink: place{at: files}, want: a, again: true, held: true},
		{name: "beside an unfinished one", now: c, state: State{FormerSinks: former(a, b), Replays: replay(a, c, ReplayUnfinished)}, from: &b, sink: table{place{at: c}}, err: "a replay of sqlite in a.db into sqlite in c.db is not finished"},
		{name: "after another that is done", now: c, state: State{FormerSinks: former(a, b), Replays: replay(a, c, ReplayDone)}, from: &b, sink: table{place{at: c}}, want: b, held: true},
		{name: "beside one into another sink", now: c, state: State{FormerSinks: former(a), Replays: replay(a, b, ReplayUnfinished)}, sink: table{place{at: c}}, want: a, held: true},
	} {
		tt.state.SinkAt, tt.state.Sink = tt.now, json.RawMessage(`7`)
		r, position, err := planReplay(t.Context(), tt.state, tt.from, tt.sink)
		if tt.err != "" {
			if _, ok := errors.AsType[*ReplayError](err); !ok || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil || r.From != tt.want || (r.Records == 3) != tt.again || (position != nil) != tt.held {
			t.Errorf("%s: %+v at %s, %v", tt.name, r, position, err)
		}
	}
}

func TestAReplayOnShowNamesNoRecord(t *testing.T) {
	got := ReplaysOnShow([]Replay{{State: ReplayRefused}, {State: ReplayUnfinished, Records: 3, Stream: "docs", After: RecordID{Key: "k"}}})
	if len(got) != 1 || got[0] != (Replay{State: ReplayUnfinished, Records: 3}) {
		t.Errorf("%+v", got)
	}
}

func TestChildrenThatWereCutShortAreNotKnown(t *testing.T) {
	c := children{last: map[string]digest{"a": sum(nil), strings.Repeat("b", 40): sum(nil), strings.Repeat("c", 200): sum(nil)}}
	whole, known := c.encode(), 0
	for n := range whole {
		if got := readChildren(whole[:n]); !got.vague {
			if len(got.last) > len(c.last) || n > 1 && len(got.last) == 0 {
				t.Errorf("%d of %d bytes hold %d children", n, len(whole), len(got.last))
			}
			known++
		}
	}
	if known != 4 {
		t.Errorf("cut in %d places it was read, want those between two children", known)
	}
	if got := readChildren(append([]byte{childrenVersion}, slices.Repeat([]byte{0xff}, 40)...)); !got.vague {
		t.Errorf("a length without end: %d children", len(got.last))
	}
}
