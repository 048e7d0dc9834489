//go:build unix

package provider_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim/serve"
)

// fastProvider admits a few hundred requests a second and refuses some.
const fastProvider = `provider:
  latency: {p50: 2ms, p99: 6ms}
  limits: [{kind: token_bucket, rate: 300/s, burst: 30}]
  throttle: {status: 429, retry_after: exact, headers: none}
`

// A collection may be over before its process has died often enough. Then the
// next one begins, in a folder of its own, until as many have died.
func TestKilledAtTwentyRandomInstants(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	// A page of details is more than the sink's buffer, so that some processes
	// die with half a slice on disk.
	const page = 40
	data := serve.Options{Seed: 7, Conversations: 500, Messages: 12}
	want := harness.TruthOf(t, data, page)
	u := provide(t, fastProvider, data)

	kills := longtest.Size(5, 100)
	survived, collections, torn := 0, 0, 0
	for survived < kills {
		collections++
		l := life{upstream: u, want: want, began: len(u.admissions(t)),
			Workplace: newWorkplace(t, u.url, connection{ceiling: "1ms", initial: "2ms", step: "1ms", concurrency: 4, page: page})}
		for survived < kills {
			after := 30*time.Millisecond + time.Duration(chance.Int64N(int64(370*time.Millisecond)))
			if !l.killed(t, after) {
				break // it had drained before
			}
			survived++
			if l.committed(t) {
				torn++
			}
			if t.Failed() {
				t.Fatalf("after kill %d, which came %v after the start", survived, after)
			}
		}
		l.drained(t)
	}
	t.Logf("%d kills survived in %d collections of %d conversations; %d left lines behind that were not committed; the provider refused %d of %d attempts",
		survived, collections, data.Conversations, torn, servedIn(u.admissions(t)).refused, len(u.admissions(t)))
}

// life is one collection, over all its processes.
type life struct {
	*upstream
	harness.Workplace
	want  harness.Truth
	began int // where it begins in the provider's log
	pages int64
}

// killed starts a process and kills it some time later; false when the
// collection was complete before.
func (l *life) killed(t *testing.T, after time.Duration) bool {
	t.Helper()
	p := l.Start(t)
	timer := time.AfterFunc(after, func() { p.Signal(t, os.Kill) })
	defer timer.Stop()
	switch o := p.Wait(t); {
	case o.Killed:
		return true
	case o.Code == harness.ExitDrained:
		return false
	case strings.Contains(o.Stdout, "is being collected by"):
		t.Fatalf("the dead process still holds the connection: %s", o)
	default:
		t.Fatalf("it ended by itself: %s", o)
	}
	return false
}

// committed checks what a killed process leaves: whatever stands before the
// stored cursor was served, and is on disk. It reports whether there is more on
// disk than that.
func (l *life) committed(t *testing.T) (more bool) {
	t.Helper()
	lane, owed := collect.Lane{}, map[string]collect.Gap{}
	if s := l.Status(t); s != nil {
		for _, each := range s.Lanes {
			if each.Kind == collect.Catchup {
				lane = each
			}
		}
		for _, g := range l.Gaps(t) {
			owed[g.Key] = g
		}
		// The page under way is committed in part.
		pages := func(n int64) int64 { return int64(min(int(n)*l.want.Size, len(l.want.Order))) }
		if n := s.Items["conversations"]; n < pages(lane.Pages) || n > pages(lane.Pages+1) {
			t.Errorf("the store knows %d conversations, %d pages have %d", n, lane.Pages, pages(lane.Pages))
		}
	}
	if lane.Pages < l.pages {
		t.Errorf("%d pages were committed before, now %d", l.pages, lane.Pages)
	}
	l.pages = lane.Pages
	switch pages := int(lane.Pages); {
	case lane.Done && pages != len(l.want.Cursors):
		t.Errorf("the walk is said to be done after %d pages of %d", pages, len(l.want.Cursors))
	case !lane.Done && pages >= len(l.want.Cursors):
		t.Errorf("%d pages are committed, there are %d, and the walk is not done", pages, len(l.want.Cursors))
	case !lane.Done && lane.Cursor != l.want.Cursors[pages]:
		t.Errorf("after %d pages the stored cursor is %q, want %q", pages, lane.Cursor, l.want.Cursors[pages])
	}

	got := servedIn(l.admissions(t)[l.began:])
	for p, cursor := range l.want.Cursors[:lane.Pages] {
		if !delivered(got.pages[cursor]) {
			t.Errorf("page %d is committed and was not served: %v", p, got.pages[cursor])
		}
	}
	_, conversations := l.WholeRecords(t, "conversations")
	_, messages := l.WholeRecords(t, "messages")
	durable := 0
	for _, id := range l.want.Order[:min(int(lane.Pages)*l.want.Size, len(l.want.Order))] {
		if conversations[id] != l.want.Conversations[id] {
			t.Errorf("%s is committed and is not there on disk", id)
		}
		if _, gap := owed[id]; gap {
			continue
		}
		if !delivered(got.details[id]) {
			t.Errorf("%s is committed and was not served: %v", id, got.details[id])
		}
		for _, message := range l.want.Of[id] {
			durable++
			if messages[message] != l.want.Messages[message] {
				t.Errorf("%s of a committed page is not on disk", message)
			}
		}
	}
	return len(messages) > durable
}

// drained runs the collection to its end, and checks all of it.
func (l *life) drained(t *testing.T) {
	t.Helper()
	for again := 0; ; again++ {
		o := l.Collect(t)
		if o.Code == harness.ExitDrained {
			break
		}
		if o.Code != harness.ExitDeferred || again == reruns {
			t.Fatalf("after %d re-runs: %s", again, o)
		}
	}
	l.Complete(t, l.want)
	got := servedIn(l.admissions(t)[l.began:])
	for _, id := range l.want.Order {
		if !delivered(got.details[id]) {
			t.Errorf("%s is collected and was never served: %v", id, got.details[id])
		}
	}
}

func TestStatusKnowsTheDead(t *testing.T) {
	u := provide(t, noLimit, serve.Options{Seed: 2, Conversations: 40, Messages: 4})
	w := newWorkplace(t, u.url, connection{ceiling: "20ms", initial: "20ms"})
	p := w.Start(t)
	harness.Eventually(t, "a slice is under way", func() bool { return len(servedIn(u.admissions(t)).details) >= 2 })
	p.Signal(t, os.Kill)
	p.Wait(t)
	s := w.Status(t)
	if s == nil || s.LastRun == nil {
		t.Fatalf("want the killed run on record: %+v", s)
	}
	if s.Holder != "" {
		t.Errorf("status says that the dead %q is collecting now", s.Holder)
	}
	if s.LastRun.State != collect.RunAbandoned {
		t.Errorf("status says that the killed run is %q, want %q", s.LastRun.State, collect.RunAbandoned)
	}
}

// reruns is how often a run that ended with "run me again" is run again.
const reruns = 3

// abreast is how many cases run at once.
const abreast = 4

// limits are the kinds of limit, and over them the ways to refuse.
var limits = []struct {
	name     string
	provider string
	quiet    bool // nothing is refused
	connection
	conversations int
}{
	{
		name: "token_bucket, 429, seconds, github",
		provider: `provider:
  latency: {p50: 5ms, p99: 15ms}
  limits: [{kind: token_bucket, rate: 30/s, burst: 8}]
  throttle: {status: 429, retry_after: seconds, headers: github}
`,
		connection: connection{ceiling: "15ms", initial: "60ms", step: "2ms"}, conversations: 100,
	},
	{
		name: "fixed_window, 429, ms, openai",
		provider: `provider:
  latency: {p50: 5ms, p99: 15ms}
  limits: [{kind: fixed_window, limit: 30, window: 1s, align: first}]
  throttle: {status: 429, retry_after: ms, headers: openai}
`,
		connection: connection{ceiling: "15ms", initial: "60ms", step: "2ms"}, conversations: 120,
	},
	{
		name: "sliding_window, 503, exact, anthropic",
		provider: `provider:
  latency: {p50: 5ms, p99: 15ms}
  limits: [{kind: sliding_window, limit: 30, window: 1s}]
  throttle: {status: 503, retry_after: exact, headers: anthropic}
`,
		connection: connection{ceiling: "15ms", initial: "60ms", step: "2ms"}, conversations: 100,
	},
	{
		name: "concurrency, 429, none, ietf",
		provider: `provider:
  latency: {p50: 60ms, p99: 120ms}
  limits: [{kind: concurrency, limit: 4}]
  throttle: {status: 429, retry_after: none, headers: ietf}
`,
		connection: connection{ceiling: "10ms", initial: "50ms", step: "8ms", concurrency: 8}, conversations: 120,
	},
	{
		name: "cost_window, 429, http_date, none",
		provider: `provider:
  latency: {p50: 5ms, p99: 15ms}
  limits: [{kind: cost_window, limit: 55, window: 1s}]
  throttle: {status: 429, retry_after: http_date, headers: none}
workload: {kind: backlog, cost: {mean: 2, spread: 0.5}}
`,
		connection: connection{ceiling: "15ms", initial: "60ms", step: "2ms"}, conversations: 100,
	},
	{
		name: "busy_time, 503, seconds, ietf",
		provider: `provider:
  latency: {p50: 20ms, p99: 60ms}
  limits: [{kind: busy_time, limit: 500ms, window: 1s}]
  throttle: {status: 503, retry_after: seconds, headers: ietf}
`,
		connection: connection{ceiling: "15ms", initial: "60ms", step: "2ms", concurrency: 2}, conversations: 80,
	},
	{
		name: "slowdown",
		provider: `provider:
  latency: {p50: 10ms, p99: 30ms}
  limits: [{kind: slowdown, knee: 20/s, factor: 4}]
`,
		quiet:      true,
		connection: connection{ceiling: "15ms", initial: "60ms", step: "2ms"}, conversations: 100,
	},
	{
		name: "token_bucket and fixed_window, refusals count, 429, none, github",
		provider: `provider:
  latency: {p50: 5ms, p99: 15ms}
  limits:
    - {kind: token_bucket, rate: 40/s, burst: 5}
    - {kind: fixed_window, limit: 60, window: 2s, align: epoch}
  throttle: {status: 429, retry_after: none, headers: github, counts_rejected: true}
`,
		connection: connection{ceiling: "15ms", initial: "60ms", step: "2ms"}, conversations: 80,
	},
}

// fare is how a case went.
type fare struct {
	attempts, refused int64
	seconds           float64
	again             int
}

func TestEachLimitKind(t *testing.T) {
	fares := make([]fare, len(limits))
	turn := make(chan struct{}, abreast)
	var all sync.WaitGroup
	for i, c := range limits {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			t.Run(c.name, func(t *testing.T) {
				data := serve.Options{Seed: uint64(i + 1), Conversations: c.conversations, Messages: 5}
				fares[i] = collectWhole(t, provide(t, c.provider, data), data, c.connection)
				switch f := fares[i]; {
				case c.quiet && f.refused > 0:
					t.Errorf("%d attempts were refused, though nothing here refuses", f.refused)
				case !c.quiet && f.refused == 0: // how fast the machine is decides whether the limit is met
					t.Logf("nothing was refused: the machine sent %.0f attempts/s", float64(f.attempts)/f.seconds)
				}
			})
		})
	}
	all.Wait()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "KIND\tATTEMPTS\tREFUSED\tSECONDS\tRUN AGAIN")
	for i, f := range fares {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%d\n", limits[i].name, f.attempts, f.refused, f.seconds, f.again)
	}
	_ = w.Flush()
	t.Log("\n" + table.String())
}

// collectWhole collects all that a provider has, in as many runs as it is
// allowed, and holds what was collected against what there is and was served.
func collectWhole(t *testing.T, u *upstream, data serve.Options, c connection) fare {
	t.Helper()
	want := harness.TruthOf(t, data, pageSize)
	w := newWorkplace(t, u.url, c)
	var f fare
	began := time.Now()
	for {
		o := w.Collect(t, "--json")
		s := harness.Summary(t, o)
		f.attempts, f.refused = f.attempts+s.Attempts, f.refused+s.Throttled
		if o.Code == harness.ExitDrained {
			if s.State != collect.RunDrained || len(s.Owed) > 0 {
				t.Errorf("exit code 0, but the run is %s and owes %v", s.State, s.Owed)
			}
			break
		}
		if o.Code != harness.ExitDeferred || f.again == reruns {
			t.Fatalf("after %d re-runs: %s", f.again, o)
		}
		t.Logf("to be run again: %s, owed %v, retry at %v", s.Reason, s.Owed, s.RetryAt)
		f.again++
	}
	f.seconds = time.Since(began).Seconds()
	w.Complete(t, want)
	agree(t, u.admissions(t), want, f)
	return f
}

// agree holds the provider's log against what the client says and has.
func agree(t *testing.T, log []serve.Entry, want harness.Truth, f fare) {
	t.Helper()
	got := servedIn(log)
	if int64(len(log)) != f.attempts || int64(got.refused) != f.refused {
		t.Errorf("the provider saw %d attempts and refused %d; the client says %d and %d", len(log), got.refused, f.attempts, f.refused)
	}
	for _, cursor := range want.Cursors {
		if !delivered(got.pages[cursor]) {
			t.Errorf("the page under cursor %q was never served: %v", cursor, got.pages[cursor])
		}
	}
	for _, id := range want.Order {
		statuses := got.details[id]
		if !delivered(statuses) {
			t.Errorf("%s is collected and was never served: %v", id, statuses)
			continue
		}
		for _, status := range statuses[:len(statuses)-1] {
			if !lost(status) {
				t.Errorf("%s was admitted again after it had been answered: %v", id, statuses)
			}
		}
	}
	for id := range got.details {
		if _, ok := want.Conversations[id]; !ok {
			t.Errorf("%s was asked for, and the provider never listed it", id)
		}
	}
}
