package collect

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

func TestADetailOfWhatIsNotListedFailsAlone(t *testing.T) {
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

func TestWhatOfAPageIsCommitted(t *testing.T) {
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
			r.o.Concurrency = 1
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
