//go:build unix

package provider_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/sim/serve"
)

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
