package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

func TestHowMuchWaitsForACommit(t *testing.T) {
	items := func(n int) (all []KnownItem) {
		for i := range n {
			all = append(all, KnownItem{Key: fmt.Sprint(i)})
		}
		return all
	}
	for _, tt := range []struct {
		name  string
		cost  time.Duration
		after time.Duration // since the last commit
		items int
		bytes []int
		want  bool
	}{
		{"a commit that is due", time.Millisecond, 20 * time.Millisecond, 1, nil, false},
		{"one that is not", time.Millisecond, 20*time.Millisecond - 1, 1, nil, true},
		{"a slow one that is due", time.Hour, 50 * time.Millisecond, 1, nil, false},
		{"a slow one that is not", time.Hour, 50*time.Millisecond - 1, 1, nil, true},
		{"one that costs nothing", 0, 0, 1, nil, false},
		{"nearly too many items", time.Hour, 0, 9_999, nil, true},
		{"too many items", time.Hour, 0, 10_000, nil, false},
		{"nearly too large", time.Hour, 0, 1, []int{2 << 20, 2<<20 - 1}, true},
		{"too large", time.Hour, 0, 1, []int{2 << 20, 2 << 20}, false},
	} {
		r := &execution{saves: saves{last: clock(0), cost: tt.cost}}
		b := r.newBatch("docs")
		b.Items = items(tt.items)
		var records []Record
		for _, n := range tt.bytes {
			records = append(records, Record{Data: make([]byte, n)})
		}
		if got := b.mayWait(clock(tt.after), records); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		waiting := 0
		for _, it := range b.Items {
			if b.keys.has(it.Key) {
				waiting++
			}
		}
		if tt.want && (waiting != tt.items || b.waiting != tt.items) || !tt.want && waiting > 0 {
			t.Errorf("%s: %d keys of %d wait, of %d items", tt.name, waiting, b.waiting, tt.items)
		}
	}
	r := &execution{saves: saves{last: clock(0), cost: time.Hour}}
	b := r.newBatch("docs")
	for n, want := range []bool{true, true, true, false} { // four pages of one MiB
		b.Items = append(b.Items, KnownItem{Key: fmt.Sprint(n)})
		if got := b.mayWait(clock(0), []Record{{Data: make([]byte, 1<<20)}}); got != want {
			t.Errorf("page %d may wait: %v", n, got)
		}
	}
}

func TestTheLastOfEachItemIsCommitted(t *testing.T) {
	of := func(keys ...string) (items []KnownItem) {
		for i, k := range keys {
			items = append(items, KnownItem{Key: k[:1], Fingerprint: fmt.Sprint(k, i)})
		}
		return items
	}
	for _, tt := range []struct{ in, want []KnownItem }{
		{nil, nil},
		{of("a", "b", "c"), []KnownItem{{Key: "a", Fingerprint: "a0"}, {Key: "b", Fingerprint: "b1"}, {Key: "c", Fingerprint: "c2"}}},
		{of("b", "a", "b", "a", "c"), []KnownItem{{Key: "a", Fingerprint: "a3"}, {Key: "b", Fingerprint: "b2"}, {Key: "c", Fingerprint: "c4"}}},
		{of("a", "a", "a"), []KnownItem{{Key: "a", Fingerprint: "a2"}}},
	} {
		if got := lastOfEach(slices.Clone(tt.in)); !slices.EqualFunc(got, tt.want, func(a, b KnownItem) bool { return cmp.Equal(a, b) }) {
			t.Errorf("of %v: %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestWhatACommitDefersIsCountedByReason(t *testing.T) {
	gap := func(why reason.Reason, backlog bool) Gap { return Gap{Reason: why, Backlog: backlog} }
	for _, tt := range []struct {
		opened []Gap
		owing  int64
		want   map[reason.Reason]int64
	}{
		{nil, 7, map[reason.Reason]int64{}},
		{[]Gap{gap(reason.Timeout, false), gap(reason.Timeout, false), gap(reason.ServerError, false)}, 0, map[reason.Reason]int64{reason.Timeout: 2, reason.ServerError: 1}},
		{[]Gap{gap(reason.Timeout, false), gap(reason.Timeout, true)}, 7, map[reason.Reason]int64{reason.Timeout: 8}},
		{[]Gap{gap(reason.Timeout, true)}, 1, map[reason.Reason]int64{reason.Timeout: 1}},
		{[]Gap{gap(reason.Timeout, true)}, 0, map[reason.Reason]int64{}}, // it stands as it was
	} {
		b := &batch{Commit: Commit{Opened: tt.opened}, owing: tt.owing}
		if diff := cmp.Diff(tt.want, b.deferred()); diff != "" {
			t.Errorf("%v: -want +got:\n%s", tt.opened, diff)
		}
	}
}

func TestFromWhereAListShowsAPageAgain(t *testing.T) {
	page := func(marks ...string) (todo []task) {
		for _, m := range marks {
			todo = append(todo, task{item: connector.Item{Watermark: m}})
		}
		return todo
	}
	for _, tt := range []struct {
		name                 string
		ascending, inclusive bool
		asked                string
		todo                 []task
		want                 string
	}{
		{"a list of no order", false, true, "3", page("5", "4"), "3"},
		{"one that leaves out what it is asked for", true, false, "3", page("5", "4"), "3"},
		{"no items", true, true, "3", nil, "3"},
		{"the lowest of the page", true, true, "3", page("5", "4", "6"), "4"},
		{"the first is the lowest", true, true, "3", page("10", "11"), "10"},
		{"one item", true, true, "3", page("5"), "5"},
		{"an item that came late", true, true, "3", page("2", "4"), "3"},
		{"an item without a watermark", true, true, "3", page("5", ""), "3"},
		{"from the beginning", true, true, "", page("5", "4"), "4"},
	} {
		if got := backlogSince(connector.Stream{Ascending: tt.ascending, Inclusive: tt.inclusive}, tt.asked, tt.todo); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAnItemThatAListLeftOutIsNoticed(t *testing.T) {
	b := &batch{items: map[string]KnownItem{"same": {Fingerprint: "f"}, "changed": {Fingerprint: "g"}}}
	item := func(key, mark string) task {
		return task{item: connector.Item{Key: key, Watermark: mark, Fingerprint: "f"}}
	}
	for _, tt := range []struct {
		name string
		todo []task
		want bool
	}{
		{"none", nil, false},
		{"of that very watermark", []task{item("changed", "5"), item("same", "5")}, true},
		{"of another", []task{item("same", "6"), item("same", "4")}, false},
		{"one that changed meanwhile", []task{item("changed", "5")}, false},
	} {
		if got := b.hidden(tt.todo, "5"); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestADetailOfAnUnlistedItemFailsAlone(t *testing.T) {
	refusal, failure, other := &reason.Refusal{Reason: reason.Canceled}, &connector.Failure{Reason: reason.Timeout}, errors.New("no record")
	of := func(data string, err error) error {
		return unlisted(outcome{task: task{item: connector.Item{Key: "k", Data: []byte(data)}}, err: err})
	}
	for name, tt := range map[string]struct {
		data string
		err  error
	}{
		"an item that is listed": {"{}", other},
		"a refusal":              {"", refusal},
		"a failure":              {"", failure},
	} {
		if got := of(tt.data, tt.err); !errors.Is(got, tt.err) {
			t.Errorf("%s: %+v, want it as it was", name, got)
		}
	}
	gone := connector.Failure{Reason: reason.NotFound, Class: reason.Unknown, Method: "GET", Attempts: 1, Err: other}
	if f, ok := errors.AsType[*connector.Failure](of("", other)); !ok || *f != gone {
		t.Errorf("an error of the connector: %+v, want %+v", f, gone)
	}
}

func TestSliceCommits(t *testing.T) {
	record := func(key string) []connector.Record { return []connector.Record{{Key: key, Data: []byte(`1`)}} }
	children := children{last: map[string]digest{"m": {}}}
	page := connector.Page{
		Items: []connector.Item{
			{Key: "same", Fingerprint: "f"}, {Key: "owed", Fingerprint: "f"}, {Key: "changed", Fingerprint: "g"},
			{Key: "new", Fingerprint: "f"}, {Key: "failed", Fingerprint: "f"},
		},
		Unread: []connector.Unread{{ID: "x7", Position: 6, Problem: "two keys"}, {Position: 7, Problem: "no key"}},
	}
	known := func() map[string]KnownItem {
		return map[string]KnownItem{
			"same": {Key: "same", Fingerprint: "f"}, "owed": {Key: "owed", Fingerprint: "f", Owed: true, Children: children.encode()},
			"changed": {Key: "changed", Fingerprint: "f", Owed: true},
		}
	}
	entry := func(key, last string) Gap {
		return Gap{GapKey: GapKey{"docs", key}, Connection: "bench", Parent: "docs", Reason: reason.InvalidResponse, Status: GapTerminal, Attempts: 1, LastError: last}
	}
	unread := []Gap{entry("record x7", "page 3, record 6: two keys"), entry("page 3, record 7", "page 3, record 7: no key")}
	lane := &Lane{Stream: "docs", Kind: Catchup, Done: true, Pages: 3}
	detailed := map[string]any{
		"owed": record("m"), "changed": record("m"), "new": record("m"),
		"failed": &connector.Failure{Reason: reason.ServerError, Status: 500, Attempts: 1, Class: reason.Failed},
	}
	m := children
	m.last = map[string]digest{"m": sum([]byte(`1`))}
	for _, tt := range []struct {
		name    string
		details string
		kept    []string
		want    Commit
		counted Progress
	}{
		{
			name: "of a list that has all there is", kept: []string{"docs:/changed", "docs:/new", "docs:/failed"},
			want: Commit{
				Stream: "docs", Lane: lane, Sink: json.RawMessage(`1`), Opened: unread,
				Items: []KnownItem{{Key: "changed", Fingerprint: "g"}, {Key: "failed", Fingerprint: "f"}, {Key: "new", Fingerprint: "f"}, {Key: "owed", Fingerprint: "f", Children: children.encode()}},
			},
			counted: Progress{Pages: 1, Items: 5, Unchanged: 1, Records: 3},
		},
		{
			name: "of a list with details", details: "messages",
			kept: []string{"messages:owed/m", "docs:/changed", "messages:changed/m", "docs:/new", "messages:new/m", "docs:/failed"},
			want: Commit{
				Stream: "docs", Lane: lane, Sink: json.RawMessage(`1`),
				Items: []KnownItem{
					{Key: "changed", Fingerprint: "g", Children: m.encode()}, {Key: "failed", Fingerprint: "f"},
					{Key: "new", Fingerprint: "f", Children: m.encode()}, {Key: "owed", Fingerprint: "f", Children: m.encode()},
				},
				Opened: append([]Gap{{
					GapKey: GapKey{"messages", "failed"}, Connection: "bench", Parent: "docs", Reason: reason.ServerError, Status: GapPending, Attempts: 1, LastError: "500 server_error",
				}}, unread...),
				Recovered: []GapKey{{"messages", "owed"}, {"messages", "changed"}},
			},
			counted: Progress{Pages: 1, Items: 5, Unchanged: 1, Details: 3, Records: 6, GapsOpened: 1},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, p := &shelf{known: known()}, &paper{made: detailed}
			stream := connector.Stream{Name: "docs", DetailStream: tt.details}
			r := walker(t, s, p, stream)
			delete(r.stored, "docs")
			r.started, r.live.started, r.saves = time.Now(), time.Now(), saves{last: time.Now(), cost: time.Hour, age: time.Hour}
			r.live.width.set = 1
			if end := r.slice(t.Context(), stream, page, lane, "", false, nil); end != nil {
				t.Errorf("%s: stopped by %+v", tt.name, end)
			}
			ignore := cmpopts.IgnoreFields(Gap{}, "FirstSeen", "LastSeen", "RetryAt")
			if diff := cmp.Diff([]Commit{tt.want}, s.commits, ignore, cmpopts.IgnoreUnexported(Commit{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tt.name, diff)
			}
			if diff := cmp.Diff(tt.kept, p.kept); diff != "" {
				t.Errorf("%s: written: -want +got:\n%s", tt.name, diff)
			}
			got := r.live.counted()
			got.BoundBy = reason.Bounds{}
			if diff := cmp.Diff(tt.counted, got); diff != "" {
				t.Errorf("%s: counted: -want +got:\n%s", tt.name, diff)
			}
		})
	}
}

// slowly is a connector with slow details: one second for the first of a page, ten for others.
type slowly struct{ *paper }

func (s slowly) Detail(ctx context.Context, call connector.Caller, stream string, it connector.Item) ([]connector.Record, error) {
	if it.Key == "00" {
		time.Sleep(time.Second)
	} else {
		time.Sleep(10 * time.Second)
	}
	return s.paper.Detail(ctx, call, stream, it)
}

func TestStopsDuringDetails(t *testing.T) {
	full := errors.New("the disk is full")
	slow, tls := &connector.Failure{Reason: reason.RateLimited.Reason(), Attempts: 1}, &connector.Failure{Reason: reason.TLS}
	denied := &connector.Failure{Reason: reason.Unauthorized, Attempts: 1, Status: 401}
	empty := &connector.Failure{Reason: reason.RateLimited.Reason(), Stopped: reason.RetryBudget.Reason(), Attempts: 1}
	fetched := []connector.Record{{Key: "m", Data: []byte(`1`)}}
	times := func(n int, what any) []any { return slices.Repeat([]any{what}, n) }
	for _, tt := range []struct {
		name      string
		made      []any
		change    func(*shelf, *paper)
		asked     int
		why       reason.Reason // of the run's end
		suspended reason.Reason
		lane      bool // the page is done with
		gaps      int
		pressed   int
	}{
		{name: "nothing", made: times(9, fetched), asked: 9, lane: true},
		{name: "a certificate", made: []any{fetched, tls, fetched, fetched}, asked: 2, why: reason.TLS, lane: true, gaps: 3},
		{name: "eight refused for pressure", made: times(9, slow), asked: 8, suspended: slow.Reason, lane: true, gaps: 9},
		{name: "seven and seven more", made: slices.Concat(times(7, slow), times(1, fetched), times(7, slow)), asked: 15, lane: true, gaps: 14, pressed: 7},
		{name: "an empty retry budget under pressure", made: []any{slow, empty, fetched}, asked: 2, suspended: slow.Reason, lane: true, gaps: 3},
		{name: "two refused credentials, and two more", made: slices.Concat(times(2, denied), times(1, fetched), times(2, denied)), asked: 5, lane: true, gaps: 4},
		{name: "two refused credentials, and three more", made: slices.Concat(times(2, denied), times(1, fetched), times(4, denied)), asked: 6, why: reason.Unauthorized, lane: true, gaps: 6},
		{name: "three refused credentials", made: times(4, denied), asked: 3, why: reason.Unauthorized, lane: true, gaps: 4},
		{name: "a sink that is full", made: times(3, fetched), change: func(_ *shelf, p *paper) { p.full = full }, asked: 1, why: reason.Internal},
		{name: "a sink that is full as details fail", made: times(3, slow), change: func(_ *shelf, p *paper) { p.full = full }, asked: 1, why: reason.Internal},
		{name: "a sink that is full as the rest is left", made: []any{tls, fetched}, change: func(_ *shelf, p *paper) { p.fullAfter, p.full = 1, full }, asked: 1, why: reason.Internal},
		{name: "a store that is full", made: times(3, fetched), change: func(s *shelf, _ *paper) { s.err = full }, asked: 3, why: reason.Internal},
		{name: "a context that ended", made: []any{fetched, context.Canceled, fetched}, asked: 2, why: reason.Internal},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, p := &shelf{}, &paper{made: map[string]any{}}
			var page connector.Page
			for i, m := range tt.made {
				key := fmt.Sprintf("%02d", i)
				page.Items, p.made[key] = append(page.Items, connector.Item{Key: key, Fingerprint: "f"}), m
			}
			if tt.change != nil {
				tt.change(s, p)
			}
			stream := connector.Stream{Name: "docs", DetailStream: "messages"}
			r := walker(t, s, p, stream)
			r.started, r.live.started, r.saves = time.Now(), time.Now(), saves{last: time.Now(), cost: time.Hour, age: time.Hour}
			r.live.width.set, r.caller.waits = 1, 3
			end := r.slice(t.Context(), stream, page, &Lane{Stream: "docs", Kind: Catchup, Done: true}, "", false, nil)
			if (end == nil) != (tt.why == reason.None) || end != nil && end.why != tt.why {
				t.Errorf("%s: stopped by %+v, want %v", tt.name, end, tt.why)
			}
			suspended := reason.None
			if r.suspended != nil {
				suspended = r.suspended.why
			}
			if suspended != tt.suspended || (r.caller.waits == 0) != (suspended != reason.None) {
				t.Errorf("%s: details are put off for %v, want %v; %d waits count", tt.name, suspended, tt.suspended, r.caller.waits)
			}
			asked, gaps, lane := 0, 0, false
			for _, what := range p.log {
				if len(what) == 2 {
					asked++
				}
			}
			for _, c := range s.commits {
				gaps, lane = gaps+len(c.Opened), lane || c.Lane != nil
			}
			if asked != tt.asked || gaps != tt.gaps || lane != tt.lane || r.pressed != tt.pressed || r.live.owed != 0 {
				t.Errorf("%s: %d details asked for, %d owed as gaps, page over %v, %d refused in a row, %d to come", tt.name, asked, gaps, lane, r.pressed, r.live.owed)
			}
		})
	}
}

func TestADetailDoesNotWaitForTheNextToBeCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := &shelf{}, &paper{}
		stream := connector.Stream{Name: "docs", DetailStream: "messages"}
		r := walker(t, s, p, stream)
		r.o.Connector, r.live.width.set = slowly{p}, 1
		began := time.Now()
		r.started, r.live.started, r.saves = began, began, saves{last: began.Add(time.Second), cost: time.Hour, age: time.Hour}
		page := connector.Page{Items: []connector.Item{{Key: "00", Fingerprint: "f"}, {Key: "01", Fingerprint: "f"}}}
		if end := r.slice(t.Context(), stream, page, &Lane{Stream: "docs", Kind: Catchup, Done: true}, "", false, nil); end != nil {
			t.Fatal(end)
		}
		if len(s.commits) != 2 || s.times[0].Sub(began) > 6*time.Second || !cmp.Equal(s.commits[0].Items, []KnownItem{{Key: "00", Fingerprint: "f", Children: (children{}).encode()}}) {
			t.Errorf("the first detail was not committed while the second was on its way: %+v", s.commits)
		}
	})
}

func TestADetailThatEndsThePageWaitsForThoseUnderWay(t *testing.T) {
	full := errors.New("the disk is full")
	for _, tt := range []struct {
		name   string
		first  any
		change func(*shelf, *paper)
		early  int // commits while the second is under way
		in     int // commits in all
		wrote  int // how often the sink is written to
		why    reason.Reason
	}{
		{"a certificate", &connector.Failure{Reason: reason.TLS}, func(*shelf, *paper) {}, 1, 2, 3, reason.TLS},
		{"a sink that fails", nil, func(_ *shelf, p *paper) { p.full = full }, 0, 0, 2, reason.Internal},
		{"a store that fails", nil, func(s *shelf, _ *paper) { s.err = full }, 0, 0, 3, reason.Internal},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, p := &shelf{}, &paper{made: map[string]any{"00": tt.first}}
			stream := connector.Stream{Name: "docs", DetailStream: "messages"}
			r := walker(t, s, p, stream)
			r.o.Connector, r.live.width.set = slowly{p}, 2
			began := time.Now()
			r.started, r.live.started, r.saves = began, began, saves{last: began.Add(time.Second), cost: time.Hour, age: time.Hour}
			var page connector.Page
			for _, key := range []string{"00", "01", "02"} {
				page.Items = append(page.Items, connector.Item{Key: key, Fingerprint: "f"})
			}
			tt.change(s, p)
			end := r.slice(t.Context(), stream, page, &Lane{Stream: "docs", Kind: Catchup, Done: true}, "", false, nil)
			if end == nil || end.why != tt.why {
				t.Errorf("%s: %+v, want %v", tt.name, end, tt.why)
			}
			early, wrote := 0, 0
			for _, at := range s.times {
				if at.Sub(began) < 6*time.Second {
					early++
				}
			}
			for _, what := range p.log {
				if strings.HasPrefix(what, "write") {
					wrote++
				}
			}
			if early != tt.early || len(s.commits) != tt.in || wrote != tt.wrote {
				t.Errorf("%s: %d commits while the second was under way, %d in all, %d writes: %q", tt.name, early, len(s.commits), wrote, p.log)
			}
		})
	}
}

// marks is a sink that is a Marker and a Burier.
type marks struct {
	Sink
	remain, gone []string
}

func (m *marks) Write(context.Context, string, []Record) error { return nil }

type marker struct{ *marks }

func (m marker) Remain(_ context.Context, stream, parent string, keys []string, _ time.Time) error {
	m.remain = append([]string{stream, parent}, keys...)
	return nil
}

type burier struct{ *marks }

func (m burier) Gone(_ context.Context, stream, parent string, keys []string, _ time.Time) error {
	m.gone = append([]string{stream, parent}, keys...)
	return nil
}

func TestDeletedDetailsAreMarkedInTheSink(t *testing.T) {
	content := sum([]byte(`1`))
	now := []connector.Record{{Key: "a", Data: []byte(`1`)}}
	hash := func(key string) string { d := sum([]byte(key)); return string(d[:]) }
	for _, tt := range []struct {
		name     string
		known    children
		remain   []string // of a sink that marks
		gone     []string // of one that buries
		count    int64
		unmarked int64
	}{
		{"nothing", children{last: map[string]digest{"a": content}}, nil, nil, 0, 0},
		{"one", children{last: map[string]digest{"a": content, "b": content}}, []string{"messages", "k", "a"}, []string{"messages", "k", "b"}, 1, 0},
		{"perhaps something", children{vague: true}, []string{"messages", "k", "a"}, nil, 0, 0},
		{"nothing of what has digests of keys", children{hashed: true, last: map[string]digest{hash("a"): content}}, nil, nil, 0, 0},
		{"one of what has digests of keys", children{hashed: true, last: map[string]digest{hash("a"): content, hash("b"): content}}, []string{"messages", "k", "a"}, nil, 1, 1},
	} {
		for _, sink := range []Sink{marker{&marks{}}, burier{&marks{}}} {
			r := upon(t, &shelf{})
			r.o.Sink, r.unmarked = sink, map[string]int64{}
			b := r.newBatch("docs")
			o := &outcome{task: task{item: connector.Item{Key: "k"}, to: "messages", children: tt.known}, records: now}
			if err := b.writeChildren(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			var got, want []string
			unmarked := int64(0)
			switch sink := sink.(type) {
			case marker:
				got, want = sink.remain, tt.remain
			case burier:
				got, want, unmarked = sink.gone, tt.gone, tt.unmarked
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, to %T: -want +got:\n%s", tt.name, sink, diff)
			}
			// Marking records is a write, which the next commit has to sync.
			if b.dirty != (want != nil || b.Progress.Records > 0) || b.Progress.ChildrenGone != tt.count || r.unmarked["messages"] != unmarked {
				t.Errorf("%s, to %T: dirty %v, %d gone, %v unmarked", tt.name, sink, b.dirty, b.Progress.ChildrenGone, r.unmarked)
			}
		}
	}
}
