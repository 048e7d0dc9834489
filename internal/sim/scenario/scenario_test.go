package scenario_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// full says everything that a scenario can say.
const full = `name: github-primary
description: |
  Everything at once.
horizon: 1h
clients: 3                     # comments are fine
fleet: true
owner: {ceiling: 10ms, initial: 1s}
workload:
  kind: open
  rate: 20/s
  max_in_flight: 32
  cost: {mean: 1.5, spread: 0.25}
provider:
  latency: {p50: 120ms, p99: 600ms, uplink_p50: 10ms, uplink_p99: 30ms}
  limits:
    - {kind: token_bucket, rate: 10/s, burst: 20}
    - {kind: fixed_window, limit: 5000, window: 1h, align: first}
    - {kind: sliding_window, limit: 6000, window: 5m}
    - {kind: concurrency, limit: 52}
    - {kind: cost_window, limit: 200000, window: 1m}
    - {kind: busy_time, limit: 1200s, window: 5m}
    - {kind: slowdown, knee: 15/s, factor: 4}
  throttle:
    status: 403
    retry_after: seconds
    headers: github
    counts_rejected: true
  penalty: {base: 5s, factor: 2, max: 5m, forgive: 2m}
  suspend: {throttles: 200, within: 10m}
  strangers: {rate: 37/min}
  changes: [{at: 30m, scale: 0.5}, {at: 45m, scale: 2}]
  faults:
    - {at: 10m, for: 30s, kind: outage}
    - {at: 20m, for: 1s, kind: slow}
    - {at: 0s, for: 1s, kind: reset}
`

// plain ignores how a rate was written.
var plain = cmpopts.IgnoreUnexported(scenario.Rate{})

func rate(count float64, per time.Duration) scenario.Rate {
	return scenario.Rate{Count: count, Per: per}
}

func TestParseReadsEverything(t *testing.T) {
	got, err := scenario.Parse("full.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := &scenario.Scenario{
		Name: "github-primary", Description: "Everything at once.\n",
		Horizon: time.Hour, Clients: 3, Fleet: true,
		Owner: scenario.Owner{Ceiling: 10 * time.Millisecond, Initial: time.Second},
		Workload: scenario.Workload{
			Kind: scenario.Open, Rate: rate(20, time.Second), MaxInFlight: 32,
			Cost: scenario.Cost{Mean: 1.5, Spread: 0.25},
		},
		Provider: scenario.Provider{
			Latency: scenario.Latency{
				P50: 120 * time.Millisecond, P99: 600 * time.Millisecond,
				UplinkP50: 10 * time.Millisecond, UplinkP99: 30 * time.Millisecond,
			},
			Limits: []scenario.Limit{
				{Kind: scenario.TokenBucket, Rate: rate(10, time.Second), Burst: 20},
				{Kind: scenario.FixedWindow, Count: 5000, Window: time.Hour, Align: scenario.AlignFirst},
				{Kind: scenario.SlidingWindow, Count: 6000, Window: 5 * time.Minute},
				{Kind: scenario.Concurrency, Count: 52},
				{Kind: scenario.CostWindow, Units: 200_000, Window: time.Minute},
				{Kind: scenario.BusyTime, Busy: 20 * time.Minute, Window: 5 * time.Minute},
				{Kind: scenario.Slowdown, Knee: rate(15, time.Second), Factor: 4},
			},
			Throttle: scenario.Throttle{
				Status: 403, RetryAfter: scenario.RetrySeconds, Headers: scenario.HeadersGitHub, CountsRejected: true,
			},
			Penalty:   &scenario.Penalty{Base: 5 * time.Second, Factor: 2, Max: 5 * time.Minute, Forgive: 2 * time.Minute},
			Suspend:   &scenario.Suspend{Throttles: 200, Within: 10 * time.Minute},
			Strangers: &scenario.Strangers{Rate: rate(37, time.Minute)},
			Changes:   []scenario.Change{{At: 30 * time.Minute, Scale: 0.5}, {At: 45 * time.Minute, Scale: 2}},
			Faults: []scenario.Fault{
				{At: 10 * time.Minute, For: 30 * time.Second, Kind: scenario.Outage},
				{At: 20 * time.Minute, For: time.Second, Kind: scenario.Slow},
				{At: 0, For: time.Second, Kind: scenario.Reset},
			},
		},
	}
	if diff := cmp.Diff(want, got, plain); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestParseReadsABulkWorkload(t *testing.T) {
	got, err := scenario.Parse("bulk.yaml", []byte(`name: bulk
workload: {kind: bulk, rows: 72493, users: 2, max_in_flight: 32}
provider:
  batch: {overhead: 200ms, per_row: 22ms, max_rows: 500, spread: 0.05, knee: 4, shared_knee: 9}
  hint: 4
  changes: [{at: 1m, hint: 2, knee: 3}, {at: 2m, scale: 0.5}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if want := (scenario.Workload{Kind: scenario.Bulk, Rows: 72493, Users: 2, MaxInFlight: 32, Cost: scenario.Cost{Mean: 1}}); got.Workload != want {
		t.Errorf("workload %+v, want %+v", got.Workload, want)
	}
	if want := (scenario.Batch{Overhead: 200 * time.Millisecond, PerRow: 22 * time.Millisecond, MaxRows: 500, Spread: 0.05, Knee: 4, SharedKnee: 9}); *got.Provider.Batch != want || got.Provider.Hint != 4 {
		t.Errorf("batch %+v and hint %d, want %+v and 4", *got.Provider.Batch, got.Provider.Hint, want)
	}
	want := []scenario.Change{{At: time.Minute, Scale: 1, Hint: 2, Knee: 3}, {At: 2 * time.Minute, Scale: 0.5}}
	if diff := cmp.Diff(want, got.Provider.Changes); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	least, err := scenario.Parse("least.yaml", []byte("name: least\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (scenario.Batch{PerRow: time.Millisecond, MaxRows: 1000}); *least.Provider.Batch != want || least.Workload.Users != 1 || least.Workload.MaxInFlight != 64 || least.Provider.Hint != 0 {
		t.Errorf("%+v, %+v", least.Workload, least.Provider.Batch)
	}
}

func TestParseFillsInDefaults(t *testing.T) {
	got, err := scenario.Parse("least.yaml", []byte("name: least\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &scenario.Scenario{
		Name: "least", Horizon: time.Hour, Clients: 1,
		Owner:    scenario.Owner{Ceiling: 250 * time.Millisecond, Initial: time.Second},
		Workload: scenario.Workload{Kind: scenario.Backlog, MaxInFlight: 64, Cost: scenario.Cost{Mean: 1}},
		Provider: scenario.Provider{
			Latency: scenario.Latency{
				P50: 100 * time.Millisecond, P99: 100 * time.Millisecond,
				UplinkP50: 10 * time.Millisecond, UplinkP99: 20 * time.Millisecond,
			},
			Throttle: scenario.Throttle{Status: 429, RetryAfter: scenario.RetryNone, Headers: scenario.HeadersNone},
		},
	}
	if diff := cmp.Diff(want, got, plain); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDefaultsThatFollowOtherFields(t *testing.T) {
	s, err := scenario.Parse("follow.yaml", []byte(`
name: follow
owner: {ceiling: 5s}
provider:
  latency: {p50: 40ms}
  limits:
    - {kind: token_bucket, rate: 1/s}
    - {kind: fixed_window, limit: 1, window: 1d}
  penalty: {base: 10m}
`))
	if err != nil {
		t.Fatal(err)
	}
	p := s.Provider
	if s.Owner.Initial != 5*time.Second {
		t.Errorf("initial %s, want the ceiling, 5s", s.Owner.Initial)
	}
	if want := (scenario.Latency{P50: 40e6, P99: 40e6, UplinkP50: 4e6, UplinkP99: 8e6}); p.Latency != want {
		t.Errorf("latency %+v, want %+v", p.Latency, want)
	}
	if p.Limits[0].Burst != 1 || p.Limits[1].Align != scenario.AlignEpoch {
		t.Errorf("limits %+v, want burst 1 and align epoch", p.Limits)
	}
	if want := (scenario.Penalty{Base: 10 * time.Minute, Factor: 2, Max: 10 * time.Minute, Forgive: 2 * time.Minute}); *p.Penalty != want {
		t.Errorf("penalty %+v, want %+v", *p.Penalty, want)
	}
}

func TestEachProblemIsNamedWhereItIs(t *testing.T) {
	provider := func(line string) string { return "name: x\nprovider:\n  " + line + "\n" }
	limit := func(fields string) string { return provider("limits: [{" + fields + "}]") }
	tests := []struct{ src, want string }{
		{"", "1:1: is empty"},
		{"nonsense", `1:1: must be a mapping, got "nonsense"`},
		{"name: [", "1:7: is not YAML: "},
		{"name: x\n---\nname: y", "3:5: a second document"},
		{strings.Repeat("[", 50), "1:21: brackets may nest 20 deep"},
		{"# " + strings.Repeat("x", 1000), "1:1001: brackets may nest 20 deep and lines may be 1000 bytes long"},
		{strings.Repeat("#\n", 40_000), "1:1: the file is larger than 65536 bytes"},
		{"horizon: 1h", "1:1: name: is required"},
		{"name: ''", "1:7: name: must not be empty"},
		{"name: 5", `1:7: name: must be text, got "5"`},
		{"name: A b", `1:7: name: "A b" must be of lower-case letters`},
		{"name: " + strings.Repeat("a", 65), "1:7: name: is longer than 64 characters"},
		{"name: x\nnmae: y", "2:1: nmae: unknown field, want one of name, description,"},
		{"name: x\nclients: 1\nclients: 2", "3:1: clients: given twice"},
		{"name: x\n5: y", `2:1: keys must be plain field names, got "5"`},
		{"name: &a x", "1:7: name: must be text, got an anchor, alias,"},
		{"name: x\n<<: {clients: 2}", "2:1: keys must be plain field names, got an anchor, alias, merge key"},
		{"name: x\nhorizon: 0s", "2:10: horizon: 0s must be from 1s to 31d"},
		{"name: x\nhorizon: 32d", "2:10: horizon: 32d must be from 1s to 31d"},
		{"name: x\nhorizon: soon", `2:10: horizon: "soon": a duration is a number and a unit`},
		{"name: x\nhorizon: 60", `2:10: horizon: "60": a duration is a number and a unit`},
		{"name: x\nhorizon: [1h]", "2:10: horizon: must be a duration such as 250ms, 15m or 1d, got a list"},
		{"name: x\nhorizon:", "2:10: horizon: must be a duration such as 250ms, 15m or 1d, got nothing"},
		{"name: x\nclients: 0", "2:10: clients: 0 must be a whole number from 1 to 1000"},
		{"name: x\nclients: 1.5", `2:10: clients: must be a whole number, got "1.5"`},
		{"name: x\nclients: \"2\"", `2:10: clients: must be a whole number, got "2"`},
		{"name: x\nclients: 99999999999999999999", `clients: `},
		{"name: x\nfleet: 1", `2:8: fleet: must be true or false, got "1"`},
		{"name: x\nowner: 1s", `2:8: owner: must be a mapping, got "1s"`},
		{"name: x\nowner: {ceiling: 0s}", "2:18: owner.ceiling: 0s must be from 1µs to 1d"},
		{"name: x\nowner: {ceiling: -1s}", "2:18: owner.ceiling: -1s must be from 1µs to 1d"},
		{"name: x\nworkload: {kind: closed}", `2:18: workload.kind: "closed" must be one of backlog, open, bulk`},
		{"name: x\nworkload: {kind: [open]}", "2:18: workload.kind: must be one of backlog, open, bulk, got a list"},
		{"name: x\nworkload: {kind: open}", "2:12: workload.rate: is required"},
		{"name: x\nworkload: {max_in_flight: 0}", "2:27: workload.max_in_flight: 0 must be a whole number from 1 to"},
		{"name: x\nworkload: {cost: {mean: 0}}", "2:25: workload.cost.mean: 0 must be above 0"},
		{"name: x\nworkload: {cost: {mean: .nan}}", "2:25: workload.cost.mean: must be a number"},
		{"name: x\nworkload: {rows: 5}", "2:18: workload.rows: belongs to workload kind bulk, not to backlog"},
		{"name: x\nworkload: {kind: open, rate: 1/s, users: 2}", "2:42: workload.users: belongs to workload kind bulk, not to open"},
		{"name: x\nworkload: {kind: bulk}\nprovider: {batch: {per_row: 1ms}}", "2:12: workload.rows: is required"},
		{"name: x\nworkload: {kind: bulk, rows: 0}\nprovider: {batch: {per_row: 1ms}}", "2:30: workload.rows: 0 must be a whole number from 1 to 10000000"},
		{"name: x\nworkload: {kind: bulk, rows: 1, users: 0}\nprovider: {batch: {per_row: 1ms}}", "2:40: workload.users: 0 must be a whole number from 1 to 1000"},
		{"name: x\nworkload: {kind: bulk, rows: 1, max_in_flight: 1001}\nprovider: {batch: {per_row: 1ms}}", "2:48: workload.max_in_flight: 1001 must be a whole number from 1 to 1000"},
		{"name: x\nworkload: {kind: bulk, rows: 1, cost: {mean: 2}}\nprovider: {batch: {per_row: 1ms}}", "2:39: workload.cost: does not belong to workload kind bulk"},
		{"name: x\nworkload: {kind: bulk, rows: 1, rate: 1/s}\nprovider: {batch: {per_row: 1ms}}", "2:39: workload.rate: belongs to workload kind open, not to bulk"},
		{"name: x\nworkload: {kind: bulk, rows: 1}", "provider: is required for workload kind bulk"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {hint: 4}", "3:12: provider.batch: is required"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {overhead: 1s}}", "3:20: provider.batch.per_row: is required"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 0s}}", "3:29: provider.batch.per_row: 0s must be from 1µs to 1m"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms, max_rows: 0}}", "3:44: provider.batch.max_rows: 0 must be"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms, spread: -1}}", "3:42: provider.batch.spread: -1 must be at least 0"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms, knee: 0}}", "3:40: provider.batch.knee: 0 must be"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms, rows: 1}}", "3:34: provider.batch.rows: unknown field, want one of overhead, per_row, max_rows, spread, knee, shared_knee"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms}, hint: 0}", "3:41: provider.hint: 0 must be"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms}, changes: [{at: 1m}]}", "provider.changes[0].scale: at least one of scale, hint and knee is required"},
		{"name: x\nclients: 2\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms}}", "2:10: clients: does not belong to workload kind bulk"},
		{"name: x\nowner: {ceiling: 1s}\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms}}", "owner: does not belong to workload kind bulk"},
		{"name: x\nprovider: {batch: {per_row: 1ms}}", "2:19: provider.batch: belongs to workload kind bulk, not to backlog"},
		{"name: x\nprovider: {hint: 4}", "2:18: provider.hint: belongs to workload kind bulk, not to backlog"},
		{"name: x\nprovider: {changes: [{at: 1m, scale: 2, hint: 4}]}", "provider.changes[0].hint: belongs to workload kind bulk, not to backlog"},
		{"name: x\nworkload: {cost: {spread: -1}}", "2:27: workload.cost.spread: -1 must be at least 0"},
		{provider("latency: {p99: 1s}"), "3:13: provider.latency.p50: is required"},
		{provider("latency: {p50: 2s, p99: 1s}"), "3:27: provider.latency.p99: 1s must be at least p50, which is 2s"},
		{provider("latency: {p50: 0s, p99: 1s}"), "3:27: provider.latency.p99: 1s is impossible for a lognormal latency whose p50 is 0s"},
		{provider("latency: {p50: 1s, uplink_p50: 2s}"), "3:34: provider.latency.uplink_p50: 2s must be at most p50, which is 1s"},
		{provider("latency: {p50: 1s, uplink_p99: 1ms}"), "3:34: provider.latency.uplink_p99: 1ms must be at least uplink_p50, which is 100ms"},
		{provider("limits: {kind: concurrency}"), "3:11: provider.limits: must be a list, got a mapping"},
		{provider("limits: [concurrency]"), `3:12: provider.limits[0]: must be a mapping, got "concurrency"`},
		{provider("limits: [" + strings.Repeat("{}, ", 101) + "]"), "provider.limits: has 101 entries, at most 100 are allowed"},
		{limit("limit: 5"), "3:13: provider.limits[0].kind: is required"},
		{limit("kind: leaky_bucket"), `3:19: provider.limits[0].kind: "leaky_bucket" must be one of token_bucket, fixed_window,`},
		{limit("kind: token_bucket"), "3:13: provider.limits[0].rate: is required"},
		{limit("kind: token_bucket, rate: 0/s"), `3:39: provider.limits[0].rate: "0/s": a rate must be above 0`},
		{limit("kind: token_bucket, rate: -1/s"), `provider.limits[0].rate: "-1/s": a rate must be above 0`},
		{limit("kind: token_bucket, rate: 10"), `provider.limits[0].rate: "10": a rate is a number and a unit, such as 10/s`},
		{limit("kind: token_bucket, rate: 10/week"), `provider.limits[0].rate: "10/week": unknown unit "week" of a rate`},
		{limit("kind: token_bucket, rate: 1/s, burst: 0"), "provider.limits[0].burst: 0 must be a whole number from 1 to"},
		{limit("kind: token_bucket, rate: 1/day, burst: 9999"), "provider.limits[0].burst: 9999 at 1/day would take more than 3100d to fill"},
		{limit("kind: token_bucket, rate: 1/s, limit: 5"), "provider.limits[0].limit: does not belong to limit kind token_bucket"},
		{limit("kind: fixed_window, limit: 5"), "provider.limits[0].window: is required"},
		{limit("kind: fixed_window, limit: 5, window: 1m, align: last"), `provider.limits[0].align: "last" must be one of epoch, first`},
		{limit("kind: sliding_window, limit: 0, window: 1m"), "provider.limits[0].limit: 0 must be a whole number from 1 to"},
		{limit("kind: sliding_window, limit: 1, window: 1m, align: first"), "provider.limits[0].align: does not belong to limit kind sliding_window"},
		{limit("kind: concurrency, limit: 1, window: 1m"), "provider.limits[0].window: does not belong to limit kind concurrency"},
		{limit("kind: cost_window, limit: 0, window: 1m"), "provider.limits[0].limit: 0 must be above 0"},
		{limit("kind: busy_time, limit: 20, window: 1m"), `provider.limits[0].limit: "20": a duration is a number and a unit`},
		{limit("kind: slowdown, knee: 30/min, factor: 2"), "provider.limits[0].knee: 30/min must be at least 1/s"},
		{limit("kind: slowdown, knee: 3/s, factor: 0.5"), "provider.limits[0].factor: 0.5 must be at least 1"},
		{provider("throttle: {status: 200}"), "3:22: provider.throttle.status: 200 must be a whole number from 400 to 599"},
		{provider("throttle: {retry_after: minutes}"), `provider.throttle.retry_after: "minutes" must be one of seconds, ms, http_date, exact, none`},
		{provider("throttle: {headers: slack}"), `provider.throttle.headers: "slack" must be one of none, github, openai, anthropic, ietf`},
		{provider("throttle: {counts_rejected: maybe}"), `provider.throttle.counts_rejected: must be true or false, got "maybe"`},
		{provider("penalty: {factor: 2}"), "3:13: provider.penalty.base: is required"},
		{provider("penalty: {base: 5s, factor: 0.9}"), "provider.penalty.factor: 0.9 must be at least 1"},
		{provider("penalty: {base: 5s, max: 1s}"), "provider.penalty.max: 1s must be at least base, which is 5s"},
		{provider("suspend: {throttles: 5}"), "provider.suspend.within: is required"},
		{provider("suspend: {throttles: 0, within: 1m}"), "provider.suspend.throttles: 0 must be a whole number from 1 to"},
		{provider("strangers: {rate: 1/s, on: 1m}"), "provider.strangers.on: and off go together"},
		{provider("throttle: {retry_after_factor: 1000}"), "provider.throttle.retry_after_factor: needs a retry_after other than none"},
		{provider("throttle: {retry_after: ms, retry_after_factor: 0}"), "provider.throttle.retry_after_factor: 0 must be at least 1e-06"},
		{provider("penalty: {base: 5s, fixed: 1}"), `provider.penalty.fixed: must be true or false, got "1"`},
		{provider("changes: [{at: 1m, over: 10m, scale: 2}, {at: 10m, scale: 1}]"), "provider.changes[1].at: 10m must be later than the change before it, at 11m"},
		{"name: x\nworkload: {burst: 5}", "2:19: workload.burst: belongs to workload kind open, not to backlog"},
		{"name: x\nworkload: {pause: 1h}", "workload.active: and pause go together"},
		{"name: x\nworkload: {kind: bulk, rows: 1, active: 1h}\nprovider: {batch: {per_row: 1ms}}", "2:41: workload.active: does not belong to workload kind bulk"},
		{provider("strangers: {}"), "provider.strangers.rate: is required"},
		{provider("changes: [{at: 2h, scale: 1}]"), "provider.changes[0].at: 2h must be from 0s to 1h"},
		{provider("changes: [{at: 1m, scale: 0}]"), "provider.changes[0].scale: 0 must be above 0"},
		{provider("changes: [{at: 2m, scale: 1}, {at: 2m, scale: 1}]"), "provider.changes[1].at: 2m must be later than the change before it, at 2m"},
		{provider("changes: [{at: 1m, scale: 900}, {at: 2m, scale: 900}]"), "provider.changes[1].scale: the changes so far multiply to 810000"},
		{provider("changes: [{scale: 1}]"), "provider.changes[0].at: is required"},
		{provider("faults: [{at: 1m, kind: outage}]"), "provider.faults[0].for: is required"},
		{provider("faults: [{at: 61m, for: 1s, kind: outage}]"), "provider.faults[0].at: 61m must be from 0s to 1h"},
		{provider("faults: [{at: 1m, for: 0s, kind: outage}]"), "provider.faults[0].for: 0s must be from 1ms to 31d"},
		{provider("faults: [{at: 1m, for: 1s, kind: fire}]"), `provider.faults[0].kind: "fire" must be one of outage, slow, reset`},
	}
	for _, tt := range tests {
		s, err := scenario.Parse("f.yaml", []byte(tt.src))
		problems, ok := errors.AsType[scenario.Problems](err)
		if !ok || s != nil {
			t.Errorf("%q: %v, %v, want problems", head(tt.src), s, err)
			continue
		}
		if len(problems) != 1 {
			t.Errorf("%q: %d problems, want 1:\n%v", head(tt.src), len(problems), err)
		}
		if !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "f.yaml:") {
			t.Errorf("%q:\ngot  %v\nwant %s", head(tt.src), err, tt.want)
		}
	}
}

func head(s string) string { return s[:min(len(s), 80)] }

func TestAllProblemsAtOnceInOrder(t *testing.T) {
	_, err := scenario.Parse("f.yaml", []byte(`clients: 0
provider:
  limits:
    - {kind: token_bucket, rate: 0/s}
    - {kind: fixed_window, window: 1m, burst: 2}
  faults: [{at: 9h, for: 1s, kind: outage}]
speed: high
`))
	want := `f.yaml:1:1: name: is required
f.yaml:1:10: clients: 0 must be a whole number from 1 to 1000
f.yaml:4:34: provider.limits[0].rate: "0/s": a rate must be above 0
f.yaml:5:8: provider.limits[1].limit: is required
f.yaml:5:47: provider.limits[1].burst: does not belong to limit kind fixed_window
f.yaml:6:17: provider.faults[0].at: 9h must be from 0s to 1h
f.yaml:7:1: speed: unknown field, want one of name, description, horizon, clients, fleet, owner, workload, provider`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if p, ok := errors.AsType[scenario.Problem](err); !ok || p.Field != "name" {
		t.Errorf("the first problem is %+v, want that of name", p)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	_, err := scenario.Parse("f.yaml", []byte("name: x\n"+strings.Repeat("a: 1\n", 10_000)))
	if problems, ok := errors.AsType[scenario.Problems](err); !ok || len(problems) != 100 {
		t.Errorf("%d problems, want 100", len(problems))
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full.yaml")
	if err := os.WriteFile(path, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := scenario.Load(path); err != nil || s.Name != "github-primary" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := scenario.Load(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that the file does not exist", err)
	}
}

func TestLimitsDescribeThemselves(t *testing.T) {
	s, err := scenario.Parse("full.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		text string
		rate float64
		ok   bool
	}{
		{"token_bucket 10/s burst 20", 10, true},
		{"fixed_window 5000/1h", 5000.0 / 3600, true},
		{"sliding_window 6000/5m", 20, true},
		{"concurrency 52", 0, false},
		{"cost_window 200000/1m", 0, false},
		{"busy_time 20m/5m", 0, false},
		{"slowdown 15/s x4", 15, true},
	}
	for i, l := range s.Provider.Limits {
		if rate, ok := l.PerSecond(); l.String() != want[i].text || rate != want[i].rate || ok != want[i].ok {
			t.Errorf("%q sustains %g (%v), want %+v", l, rate, ok, want[i])
		}
	}
}

func TestFaultCoversItsTime(t *testing.T) {
	f := scenario.Fault{At: 10, For: 5}
	for at, want := range map[time.Duration]bool{9: false, 10: true, 14: true, 15: false} {
		if f.Covers(at) != want {
			t.Errorf("covers %d: %v, want %v", at, !want, want)
		}
	}
}

func ExampleParse() {
	s, err := scenario.Parse("notion.yaml", []byte(`
name: notion
provider:
  limits: [{kind: token_bucket, rate: 3/s, burst: 10}]
  throttle: {retry_after: seconds}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Name, s.Horizon, s.Provider.Limits[0])

	_, err = scenario.Parse("notion.yaml", []byte(`
name: notion
provider:
  limits: [{kind: token_bucket, rate: 3/fortnight}]
  thottle: {retry_after: seconds}
`))
	fmt.Println(err)
	// Output:
	// notion 1h0m0s token_bucket 3/s burst 10
	// notion.yaml:4:39: provider.limits[0].rate: "3/fortnight": unknown unit "fortnight" of a rate, want s, m, min, h, d or day
	// notion.yaml:5:3: provider.thottle: unknown field, want one of latency, batch, hint, limits, throttle, penalty, suspend, strangers, changes, faults
}

func FuzzParse(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(full))
	f.Add([]byte("name: x\nprovider: {limits: [{kind: slowdown, knee: 1/s, factor: 2}]}"))
	f.Add([]byte(unusual))
	f.Add([]byte("? a\n: *b\n<<: [&b {}]"))
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := scenario.Parse("f.yaml", src)
		switch {
		case err == nil:
			if s.Name == "" || s.Horizon <= 0 || s.Clients < 1 || s.Owner.Initial < s.Owner.Ceiling || s.Workload.MaxInFlight < 1 {
				t.Errorf("impossible scenario %+v", s)
			}
			again, err := scenario.Parse("again.yaml", scenario.Format(s))
			if err != nil {
				t.Fatalf("%v\n%s", err, scenario.Format(s))
			}
			again.Description = s.Description
			if diff := cmp.Diff(s, again, plain); diff != "" {
				t.Errorf("-read +read back\n%s", diff)
			}
		case s != nil:
			t.Error("a scenario beside an error")
		default:
			problems, ok := errors.AsType[scenario.Problems](err)
			if !ok || len(problems) == 0 {
				t.Errorf("%v is not a list of problems", err)
			}
			for _, p := range problems {
				if p.Line < 1 || p.Column < 1 || p.Message == "" {
					t.Errorf("problem without a place: %+v", p)
				}
			}
		}
	})
}
