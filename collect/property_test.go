package collect_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/store/memory"
)

// shape is a list and its trouble, as drawn.
type shape struct {
	order     string // newest, oldest, none
	inclusive bool
	declared  bool
	pageSize  int
	backlog   int
	catchup   int64
	changes   []change
	outages   [][2]time.Duration
}

// change makes an item's version at an instant; the watermark is its second.
type change struct {
	at      time.Duration
	item    int
	version int
}

func drawShape(rt *rapid.T) shape {
	s := shape{
		order:     rapid.SampledFrom([]string{"newest", "oldest", "none"}).Draw(rt, "order"),
		inclusive: rapid.Bool().Draw(rt, "inclusive"),
		pageSize:  rapid.IntRange(1, 9).Draw(rt, "page size"),
		backlog:   rapid.IntRange(1, 12).Draw(rt, "backlog after"),
		catchup:   int64(rapid.IntRange(0, 3).Draw(rt, "catch-up pages")),
	}
	s.declared = s.order == "oldest" && s.inclusive && rapid.Bool().Draw(rt, "declared")
	n := rapid.IntRange(1, 50).Draw(rt, "items")
	for i := range n { // ties: ten seconds of the past for all of them
		s.changes = append(s.changes, change{-time.Duration(rapid.IntRange(1, 10).Draw(rt, "age")) * time.Second, i, 0})
	}
	for v := range rapid.IntRange(0, 40).Draw(rt, "late") {
		s.changes = append(s.changes, change{
			time.Duration(rapid.IntRange(0, 1_200_000).Draw(rt, "at")) * time.Millisecond, rapid.IntRange(0, n+10).Draw(rt, "item"), v + 1,
		})
	}
	slices.SortStableFunc(s.changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	for range rapid.IntRange(0, 4).Draw(rt, "outages") {
		from := time.Duration(rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 1_200_000)).Draw(rt, "from")) * time.Millisecond
		s.outages = append(s.outages, [2]time.Duration{from, from + time.Duration(rapid.IntRange(20, 600).Draw(rt, "for"))*time.Second})
	}
	return s
}

// api plays a shape from an instant on, as a connector and its transport.
type api struct {
	shape
	began time.Time
	slow  time.Duration
}

type entry struct {
	Key     string `json:"key"`
	Mark    string `json:"mark"`
	Version int    `json:"version"`
}

// now is what there is at this moment.
func (a *api) now() []entry {
	at := map[int]entry{}
	for _, c := range a.changes {
		if when := a.began.Add(c.at); !when.After(time.Now()) {
			at[c.item] = entry{fmt.Sprintf("k%02d", c.item), when.UTC().Truncate(time.Second).Format(time.RFC3339), c.version}
		}
	}
	list := make([]entry, 0, len(at))
	for _, e := range at {
		list = append(list, e)
	}
	slices.SortFunc(list, func(x, y entry) int { return strings.Compare(a.place(x), a.place(y)) })
	return list
}

// place is where an entry stands in the list; cursors are places.
func (a *api) place(e entry) string {
	switch a.order {
	case "oldest":
		return e.Mark + e.Key
	case "newest":
		t, _ := time.Parse(time.RFC3339, e.Mark)
		return fmt.Sprintf("%012d", 1<<38-t.Unix()) + e.Key
	}
	h := fnv.New64()
	_, _ = h.Write([]byte(e.Key))
	return fmt.Sprintf("%020d", h.Sum64())
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(a.slow) // virtual
	answer := func(status int, v any) (*http.Response, error) {
		body, err := json.Marshal(v)
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
	}
	key, detail := strings.CutPrefix(r.URL.Path, "/d/")
	since := time.Since(a.began)
	for _, o := range a.outages {
		if detail && o[0] <= since && since < o[1] {
			return answer(http.StatusServiceUnavailable, "down")
		}
	}
	var out []entry
	q := r.URL.Query()
	for _, e := range a.now() {
		switch {
		case detail && e.Key == key:
			return answer(http.StatusOK, e)
		case detail:
		case q.Get("since") > e.Mark, !a.inclusive && q.Get("since") == e.Mark:
		case q.Get("cursor") < a.place(e):
			out = append(out, e)
		}
	}
	if detail {
		return answer(http.StatusNotFound, "gone")
	}
	return answer(http.StatusOK, out[:min(len(out), a.pageSize+1)])
}

func (a *api) Streams() []connector.Stream {
	return []connector.Stream{{Name: "list", DetailStream: "details", Incremental: true, Ascending: a.declared, Inclusive: a.declared}}
}

func (a *api) ask(ctx context.Context, call connector.Caller, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example"+url, nil)
	if err != nil {
		return err
	}
	res, err := call.Do(ctx, req)
	if err != nil {
		return err
	}
	return json.Unmarshal(res.Body, into)
}

func (a *api) List(ctx context.Context, call connector.Caller, r connector.ListRequest) (connector.Page, error) {
	page := connector.Page{ServerTime: time.Now().Truncate(time.Second)} // as a Date header says it
	var list []entry
	if err := a.ask(ctx, call, "/list?since="+r.Since+"&cursor="+r.Cursor, &list); err != nil {
		return page, err
	}
	if len(list) > a.pageSize {
		list = list[:a.pageSize]
		page.Next = a.place(list[len(list)-1])
	}
	for _, e := range list {
		data, _ := json.Marshal(e)
		page.Items = append(page.Items, connector.Item{Key: e.Key, Data: data, Watermark: e.Mark})
	}
	return page, nil
}

func (a *api) Detail(ctx context.Context, call connector.Caller, _ string, it connector.Item) ([]connector.Record, error) {
	var e entry
	if err := a.ask(ctx, call, "/d/"+it.Key, &e); err != nil {
		return nil, err
	}
	data, err := json.Marshal(e)
	return []connector.Record{{Key: "v", Data: data}}, err
}

// latest keeps the last record of each key.
type latest map[string]string

func (latest) Open(context.Context, json.RawMessage, []collect.StreamInfo) error { return nil }
func (latest) Sync(context.Context) (json.RawMessage, error)                     { return json.RawMessage(`{}`), nil }
func (latest) Close() error                                                      { return nil }

func (m latest) Write(_ context.Context, stream string, records []collect.Record) error {
	for _, r := range records {
		m[stream+" "+r.Parent+" "+r.Key] = string(r.Data)
	}
	return nil
}

// TestNothingIsLostWhateverTheListAndItsOutages draws the order of a list,
// whether its cursor is inclusive, ties, changes while it is walked, outages,
// and bounds that make backlogs of catch-up and steady state, and compares what
// was collected with the truth once a run says that nothing is left.
func TestNothingIsLostWhateverTheListAndItsOutages(t *testing.T) {
	draws, runs, backlogs := 0, 0, int64(0)
	maxDraws := longtest.Size(25, 5000)
	rapid.Check(t, func(rt *rapid.T) {
		if draws >= maxDraws {
			return // each takes hundreds of runs
		}
		s := drawShape(rt)
		slow := time.Duration(rapid.IntRange(1, 3000).Draw(rt, "latency")) * time.Millisecond
		var lost string
		synctest.Test(t, func(t *testing.T) {
			var n int
			var owed int64
			n, owed, lost = play(t, &api{shape: s, began: time.Now(), slow: slow})
			draws, runs, backlogs = draws+1, runs+n, backlogs+owed
		})
		if lost != "" {
			rt.Fatal(lost)
		}
	})
	t.Logf("%d draws, %d runs, %d backlogs", draws, runs, backlogs)
}

// play collects until nothing is left, and says what is missing.
func play(t *testing.T, a *api) (runs int, backlogs int64, lost string) {
	store, sink := memory.New(), latest{}
	o := collect.Options{
		Connection: "c", Connector: a, Store: store, Sink: sink, Base: a,
		Pacing: headway.Config{Ceiling: time.Millisecond, Initial: time.Millisecond}, CatchupPages: a.catchup,
	}
	o.Pacing.Breaker.OpenFor = 2 * time.Second
	o.SetBacklogAfter(a.backlog)
	quiet := a.began.Add(35 * time.Minute)
	for late := false; ; {
		if runs++; runs > 300 {
			return runs, backlogs, "not drained after 300 runs"
		}
		late = time.Now().After(quiet)
		c, err := collect.New(o)
		if err != nil {
			return runs, backlogs, err.Error()
		}
		s, err := c.Run(t.Context())
		if err != nil {
			return runs, backlogs, err.Error()
		}
		gaps, err := store.Gaps(t.Context(), collect.GapFilter{Connection: "c", Backlog: true})
		if err != nil {
			return runs, backlogs, err.Error()
		}
		if late && s.State == collect.RunDrained && s.Quarantined == 0 {
			backlogs += int64(len(gaps))
			break
		}
		if wait := time.Until(s.RetryAt); wait > 0 && wait < 12*time.Hour {
			time.Sleep(wait)
		}
		time.Sleep(5 * time.Minute)
	}
	for _, e := range a.now() {
		want, _ := json.Marshal(e)
		for _, at := range []string{"details " + e.Key + " v", "list  " + e.Key} {
			if sink[at] != string(want) {
				return runs, backlogs, fmt.Sprintf("%s is %q, want %s", at, sink[at], want)
			}
		}
	}
	return runs, backlogs, ""
}
