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
	"github.com/headway-go/headway/internal/memory"
)

// shape is a drawn list with its outages.
type shape struct {
	order     string // newest, oldest, none
	inclusive bool
	declared  bool
	lookback  time.Duration
	pageSize  int
	backlog   int
	catchup   int64
	attempts  int
	wallClock time.Duration
	changes   []change
	outages   []outageOf
}

// change makes an item's version at an instant; the watermark is its second. The
// list shows it some time later, at most the lookback.
type change struct {
	at, late time.Duration
	item     int
	version  int
}

// outageOf is an interval in which lists, details or both answer with a status.
type outageOf struct {
	from, to       time.Duration
	lists, details bool
	status         int
}

// span is how long a list changes, and how late its last outage begins.
const span = 20 * time.Minute

func drawShape(rt *rapid.T) shape {
	s := shape{
		order:     rapid.SampledFrom([]string{"newest", "oldest", "none"}).Draw(rt, "order"),
		inclusive: rapid.Bool().Draw(rt, "inclusive"),
		lookback:  rapid.SampledFrom([]time.Duration{0, 0, 10 * time.Second, 2 * time.Minute}).Draw(rt, "lookback"),
		pageSize:  rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, 12)).Draw(rt, "page size"),
		backlog:   rapid.SampledFrom([]int{1, 1, 2, 3, 8}).Draw(rt, "backlog after"),
		catchup:   rapid.SampledFrom([]int64{0, 0, 2, 3, 4}).Draw(rt, "catch-up pages"),
		attempts:  rapid.SampledFrom([]int{1, 1, 1, 1, 1, 4}).Draw(rt, "attempts"),
		wallClock: rapid.SampledFrom([]time.Duration{0, 0, 0, 3 * time.Minute}).Draw(rt, "wall clock"),
	}
	s.declared = s.order == "oldest" && s.inclusive && rapid.Bool().Draw(rt, "declared")
	for range rapid.SampledFrom([]int{2, 1, 2, 3, 0}).Draw(rt, "outages") {
		from := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, int(span.Seconds()))).Draw(rt, "from")
		where := rapid.SampledFrom([]string{"details", "details", "details", "details", "lists", "both"}).Draw(rt, "where")
		s.outages = append(s.outages, outageOf{
			time.Duration(from) * time.Second, time.Duration(from+rapid.OneOf(rapid.IntRange(20, 300), rapid.IntRange(330, 900), rapid.IntRange(330, 900)).Draw(rt, "for")) * time.Second,
			where != "details", where != "lists",
			rapid.SampledFrom([]int{http.StatusServiceUnavailable, http.StatusTooManyRequests}).Draw(rt, "status"),
		})
	}
	if rapid.Bool().Draw(rt, "stormy") { // down from the start, which few other draws are
		s.pageSize, s.backlog, s.attempts = s.pageSize+4, 1, 1
		s.outages = append(s.outages, outageOf{
			to: time.Duration(rapid.IntRange(330, 900).Draw(rt, "stormy for")) * time.Second, details: true, status: http.StatusServiceUnavailable,
		})
	}
	n := rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(20, 40), rapid.IntRange(20, 40)).Draw(rt, "items")
	for i := range n { // ties: ten seconds of the past for all of them
		s.changes = append(s.changes, change{at: -time.Duration(rapid.IntRange(1, 10).Draw(rt, "age")) * time.Second, item: i})
	}
	for v := range rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(20, 50), rapid.IntRange(30, 50)).Draw(rt, "changes") {
		// Drawn numbers are often small. The changes are spread over the items and over
		// the minutes before and after an outage begins, so that the outage affects some.
		c := change{item: (7*v + rapid.IntRange(0, n+10).Draw(rt, "item")) % (n + 10), version: v + 1}
		if near := rapid.IntRange(0, len(s.outages)).Draw(rt, "near outage"); near < len(s.outages) {
			c.at = s.outages[near].from + time.Duration((7_919*v+rapid.IntRange(0, 120_000).Draw(rt, "from it"))%120_000-60_000)*time.Millisecond
		} else {
			c.at = time.Duration(rapid.IntRange(0, int(span.Milliseconds())).Draw(rt, "at")) * time.Millisecond
		}
		if s.lookback > 0 {
			c.late = time.Duration(rapid.IntRange(0, int(s.lookback.Milliseconds())).Draw(rt, "late")) * time.Millisecond
		}
		s.changes = append(s.changes, c)
	}
	slices.SortStableFunc(s.changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	return s
}

// api is a connector and its transport that serve a shape from a given instant on.
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

// now returns the current entries.
func (a *api) now() []entry { return a.then(time.Now()) }

// then returns the entries at an instant.
func (a *api) then(now time.Time) []entry {
	at := map[int]entry{}
	for _, c := range a.changes {
		if when := a.began.Add(c.at); !when.Add(c.late).After(now) {
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

// place returns the sort key of an entry in the list. Cursors are such keys.
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
		if down := detail && o.details || !detail && o.lists; down && o.from <= since && since < o.to {
			return answer(o.status, "down")
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
	return []connector.Stream{{
		Name: "list", DetailStream: "details", Incremental: true,
		Ascending: a.declared, Inclusive: a.declared, Lookback: a.lookback,
	}}
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

// ledger is a store that records which lanes left backlogs.
type ledger struct {
	collect.Store
	backlogs map[collect.LaneKind]bool
}

func (l *ledger) Commit(ctx context.Context, lease collect.Lease, c collect.Commit) error {
	if c.Lane != nil && slices.ContainsFunc(c.Opened, func(g collect.Gap) bool { return g.Backlog }) {
		l.backlogs[c.Lane.Kind] = true
	}
	return l.Store.Commit(ctx, lease, c)
}

// TestNothingIsLostWhateverTheListAndItsOutages draws the order of a list, whether its
// cursor is inclusive, ties, changes during a walk, changes that appear late, outages of
// lists and details, and limits that produce backlogs in both lanes. Whenever a run
// drains, the sink is compared with the provider.
func TestNothingIsLostWhateverTheListAndItsOutages(t *testing.T) {
	draws := longtest.Draws(t, 150, 5000)
	drawn, runs, steady, catchup, both := 0, 0, 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		a := &api{shape: drawShape(rt), slow: time.Duration(rapid.IntRange(1, 3000).Draw(rt, "latency")) * time.Millisecond}
		l := &ledger{Store: memory.New(), backlogs: map[collect.LaneKind]bool{}}
		var lost string
		synctest.Test(t, func(t *testing.T) {
			a.began = time.Now()
			var n int
			n, lost = a.play(t, l)
			runs += n
		})
		if lost != "" {
			rt.Fatal(lost)
		}
		drawn++
		s, c := l.backlogs[collect.Steady], l.backlogs[collect.Catchup]
		steady, catchup, both = steady+count(s), catchup+count(c), both+count(s && c)
	})
	t.Logf("%d draws, %d runs; a steady backlog in %d, a catch-up backlog in %d, both in %d", drawn, runs, steady, catchup, both)
	if part := float64(draws); drawn >= draws && (float64(steady) < minSteady*part || float64(catchup) < minCatchup*part || float64(both) < minBoth*part) {
		t.Errorf("backlogs are too rare for the property to say anything of them")
	}
}

// The minimum shares of the draws that must leave a backlog in one lane, and in both.
const minSteady, minCatchup, minBoth = 0.12, 0.1, 0.07

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// play collects until nothing is left, and returns what is missing.
func (a *api) play(t *testing.T, store collect.Store) (runs int, lost string) {
	sink := latest{}
	o := collect.Options{
		Connection: "c", Connector: a, Store: store, Sink: sink, Base: a,
		Pacing: headway.Config{Ceiling: time.Millisecond, Initial: time.Millisecond}, CatchupPages: a.catchup, MaxWallClock: a.wallClock,
	}
	o.Retry.Attempts, o.Pacing.Breaker.OpenFor = a.attempts, 2*time.Second
	o.SetBacklogAfter(a.backlog)
	quiet := a.began.Add(span + 16*time.Minute)
	for {
		if runs++; runs > 300 {
			return runs, "not drained after 300 runs"
		}
		if runs > 100 {
			// A run ends with a walk over the whole list, which may take longer than its limit at the rate
			// left by the outages. The limit is then raised, as an owner would.
			o.MaxWallClock = 0
		}
		began := time.Now()
		c, err := collect.New(o)
		if err != nil {
			return runs, err.Error()
		}
		s, err := c.Run(t.Context())
		if err != nil {
			return runs, err.Error()
		}
		if s.State == collect.RunDrained {
			if lost := a.missing(sink, began); lost != "" {
				return runs, fmt.Sprintf("after %v: %s", time.Since(a.began), lost)
			}
			if began.After(quiet) {
				return runs, ""
			}
		}
		if wait := time.Until(s.RetryAt); wait > 0 && wait < 12*time.Hour {
			time.Sleep(wait)
		}
		time.Sleep(5 * time.Minute)
	}
}

// missing returns the entries that existed at an instant, have not changed since, and are
// not in the sink. A walk may miss changes that are made during it.
func (a *api) missing(sink latest, at time.Time) string {
	now := a.now()
	for _, e := range a.then(at) {
		if !slices.Contains(now, e) {
			continue
		}
		want, _ := json.Marshal(e)
		for _, where := range []string{"details " + e.Key + " v", "list  " + e.Key} {
			if sink[where] != string(want) {
				return fmt.Sprintf("%s is %q, want %s", where, sink[where], want)
			}
		}
	}
	return ""
}
