package scenario_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway/internal/configfile"
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
owner: {ceiling: 10ms, initial: 1s, start: passive, windows: [1m, 90s]}
workload:
  kind: open
  rate: 20/s
  max_in_flight: 32
  cost: {mean: 1.5, spread: 0.25, estimate: 3, error: 0.5}
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
    - {at: 5m, for: 2m, kind: overload, share: 0.01}
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
		Owner: scenario.Owner{Ceiling: 10 * time.Millisecond, Initial: time.Second, Passive: true, Windows: []time.Duration{time.Minute, 90 * time.Second}},
		Workload: scenario.Workload{
			Kind: scenario.Open, Rate: rate(20, time.Second), MaxInFlight: 32,
			Cost: scenario.Cost{Mean: 1.5, Spread: 0.25, Estimate: 3, Error: 0.5},
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
				{At: 5 * time.Minute, For: 2 * time.Minute, Kind: scenario.Overload, Share: 0.01},
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
	if want := (scenario.Workload{Kind: scenario.Bulk, Rows: 72493, Users: 2, MaxInFlight: 32, Cost: scenario.Cost{Mean: 1, Estimate: 1}}); got.Workload != want {
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
		Workload: scenario.Workload{Kind: scenario.Backlog, MaxInFlight: 64, Cost: scenario.Cost{Mean: 1, Estimate: 1}},
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
		{"", "is empty: it needs a name and perhaps workload and provider"},
		{"nonsense", `1:1: is a text; want a mapping`},
		{"name: [", "1:7: is not valid YAML here: sequence end token ']' not found"},
		{"name: x\n---\nname: y", "3:1: holds a second document: write each scenario into a file of its own"},
		{strings.Repeat("[", 50), "1:33: is nested more than 32 levels deep: a scenario needs fewer than ten"},
		{"# " + strings.Repeat("x", 1000), "is empty: it needs a name and perhaps workload and provider"},
		{strings.Repeat("#\n", 40_000), "has more than 65536 bytes"},
		{"horizon: 1h", "1:1: name: is missing; want "},
		{"name: ''", "1:7: name: is empty; want a text"},
		{"name: 5", "1:7: name: is 5; want a text"},
		{"name: A b", `1:7: name: is "A b"; want lower-case letters, digits, '-', '_' and '.'`},
		{"name: " + strings.Repeat("a", 65), "1:7: name: is longer than 64 characters"},
		{"name: x\nnmae: y", "2:1: nmae: is not a field here: did you mean name?"},
		{"name: x\nclients: 1\nclients: 2", "3:1: clients: is set twice, first at line 2: remove one"},
		{"name: x\n5: y", "2:1: 5: is not a field here: want one of name, description, horizon, clients, fleet, owner, workload, provider"},
		{"name: &a x", "1:7: name: is an anchor or alias, which scenario files do not have: write the value out"},
		{"name: x\n<<: {clients: 2}", "2:1: <<: merges another mapping, which scenario files do not have: write the values out"},
		{"name: x\nhorizon: 0s", `2:10: horizon: is "0s"; want from 1s to 31d`},
		{"name: x\nhorizon: 32d", `2:10: horizon: is "32d"; want from 1s to 31d`},
		{"name: x\nhorizon: soon", `2:10: horizon: is "soon"; want a duration with a unit`},
		{"name: x\nhorizon: 60", "2:10: horizon: is 60; want a duration with a unit, such as 250ms, 15m, 1h30m or 1d"},
		{"name: x\nhorizon: [1h]", "2:10: horizon: is a list; want a duration with a unit, such as 250ms, 15m, 1h30m or 1d"},
		{"name: x\nhorizon:", "2:10: horizon: has no value; want a duration with a unit, such as 250ms, 15m, 1h30m or 1d"},
		{"name: x\nclients: 0", "2:10: clients: is 0; want a whole number from 1 to 1000"},
		{"name: x\nclients: 1.5", "2:10: clients: is 1.5; want a whole number from 1 to 1000"},
		{"name: x\nclients: \"2\"", `2:10: clients: is "2"; want a whole number`},
		{"name: x\nclients: 99999999999999999999", `clients: `},
		{"name: x\nfleet: 1", "2:8: fleet: is 1; want true or false"},
		{"name: x\nfleet: {faults: []}", "2:8: fleet.trip: is missing; want "},
		{"name: x\nfleet: {trip: 2s}", `2:15: fleet.trip: is "2s"; want from 1µs to 1s`},
		{"name: x\nfleet: {trip: 1ms, faults: [{at: 1m, for: 1m, kind: lost}]}", `fleet.faults[0].kind: is "lost"; want one of away, cut`},
		{"name: x\nfleet: {trip: 1ms, faults: [{at: 1m, for: 1m, kind: cut}]}", "fleet.faults[0].clients: is missing; want "},
		{"name: x\nfleet: {trip: 1ms, faults: [{at: 1m, for: 1m, kind: cut, clients: 2}]}", "fleet.faults[0].clients: is 2; want "},
		{"name: x\nfleet: {trip: 1ms, faults: [{at: 1m, for: 1m, kind: away, clients: 1}]}", "fleet.faults[0].clients: belongs to kind cut, not to away"},
		{"name: x\nfleet: {trip: 1ms, faults: [{at: 1m, for: 1m, kind: away}, {at: 90s, for: 1s, kind: away}]}", "fleet.faults[1].at: is before the end of the fault before; want faults one after the other"},
		{"name: x\nowner: 1s", `2:8: owner: is a text; want a mapping`},
		{"name: x\nowner: {ceiling: 0s}", `2:18: owner.ceiling: is "0s"; want from 1µs to 1d`},
		{"name: x\nowner: {windows: [1m, 0s]}", `2:23: owner.windows[1]: is "0s"; want from 1s to 1d`},
		{"name: x\nowner: {start: fast}", `2:16: owner.start: is "fast"; want one of conservative, passive`},
		{"name: x\nowner: {ceiling: -1s}", `2:18: owner.ceiling: is "-1s"; want from 1µs to 1d`},
		{"name: x\nworkload: {kind: closed}", `2:18: workload.kind: is "closed"; want one of backlog, open, bulk`},
		{"name: x\nworkload: {kind: [open]}", "2:18: workload.kind: is a list; want one of backlog, open, bulk"},
		{"name: x\nworkload: {kind: open}", "2:11: workload.rate: is missing; want a rate such as 10/s or 600/min"},
		{"name: x\nworkload: {max_in_flight: 0}", "2:27: workload.max_in_flight: is 0; want a whole number from 1 to"},
		{"name: x\nworkload: {cost: {mean: 0}}", "2:25: workload.cost.mean: is 0; want a number above 0 and at most 1e+09"},
		{"name: x\nworkload: {cost: {mean: .nan}}", "2:25: workload.cost.mean: is a YAML value that no field takes: want a text, number, true, false, list or mappi"},
		{"name: x\nworkload: {rows: 5}", "2:18: workload.rows: belongs to workload kind bulk, not to backlog"},
		{"name: x\nworkload: {kind: open, rate: 1/s, users: 2}", "2:42: workload.users: belongs to workload kind bulk, not to open"},
		{"name: x\nworkload: {kind: bulk}\nprovider: {batch: {per_row: 1ms}}", "2:11: workload.rows: is missing; want a whole number"},
		{"name: x\nworkload: {kind: bulk, rows: 0}\nprovider: {batch: {per_row: 1ms}}", "2:30: workload.rows: is 0; want a whole number from 1 to 10000000"},
		{"name: x\nworkload: {kind: bulk, rows: 1, users: 0}\nprovider: {batch: {per_row: 1ms}}", "2:40: workload.users: is 0; want a whole number from 1 to 1000"},
		{"name: x\nworkload: {kind: bulk, rows: 1, max_in_flight: 1001}\nprovider: {batch: {per_row: 1ms}}", "2:48: workload.max_in_flight: is 1001; want a whole number from 1 to 1000"},
		{"name: x\nworkload: {kind: bulk, rows: 1, cost: {mean: 2}}\nprovider: {batch: {per_row: 1ms}}", "2:39: workload.cost: does not belong to workload kind bulk"},
		{"name: x\nworkload: {kind: bulk, rows: 1, rate: 1/s}\nprovider: {batch: {per_row: 1ms}}", "2:39: workload.rate: belongs to workload kind open, not to bulk"},
		{"name: x\nworkload: {kind: bulk, rows: 1}", "1:1: provider: is missing; want a mapping with a batch for workload kind bulk"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {hint: 4}", "3:11: provider.batch: is missing; want a mapping with per_row"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {overhead: 1s}}", "3:19: provider.batch.per_row: is missing; want a duration with a unit, such as 250ms, 15m, 1h30m or 1d"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 0s}}", `3:29: provider.batch.per_row: is "0s"; want from 1µs to 1m`},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms, max_rows: 0}}", "3:44: provider.batch.max_rows: is 0; want"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms, spread: -1}}", "3:42: provider.batch.spread: is -1; want a number at least 0 and at most 3"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms, knee: 0}}", "3:40: provider.batch.knee: is 0; want"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms, rows: 1}}", "3:34: provider.batch.rows: is not a field here: want one of overhead, per_row, max_rows, spread, knee, shared_knee"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms}, hint: 0}", "3:41: provider.hint: is 0; want"},
		{"name: x\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms}, changes: [{at: 1m}]}", "provider.changes[0].scale: is missing; want at least one of scale, hint and knee"},
		{"name: x\nclients: 2\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms}}", "2:10: clients: does not belong to workload kind bulk"},
		{"name: x\nowner: {ceiling: 1s}\nworkload: {kind: bulk, rows: 1}\nprovider: {batch: {per_row: 1ms}}", "owner: does not belong to workload kind bulk"},
		{"name: x\nprovider: {batch: {per_row: 1ms}}", "2:19: provider.batch: belongs to workload kind bulk, not to backlog"},
		{"name: x\nprovider: {hint: 4}", "2:18: provider.hint: belongs to workload kind bulk, not to backlog"},
		{"name: x\nprovider: {changes: [{at: 1m, scale: 2, hint: 4}]}", "provider.changes[0].hint: belongs to workload kind bulk, not to backlog"},
		{"name: x\nworkload: {cost: {estimate: 0}}", "2:29: workload.cost.estimate: is 0; want a number above 0 and at most 1e+06"},
		{"name: x\nworkload: {cost: {error: 4}}", "2:26: workload.cost.error: is 4; want a number at least 0 and at most 3"},
		{"name: x\nworkload: {cost: {spread: -1}}", "2:27: workload.cost.spread: is -1; want a number at least 0 and at most 3"},
		{provider("latency: {p99: 1s}"), "3:12: provider.latency.p50: is missing; want a duration with a unit, such as 250ms, 15m, 1h30m or 1d"},
		{provider("latency: {p50: 2s, p99: 1s}"), "3:27: provider.latency.p99: is 1s; want at least p50, which is 2s"},
		{provider("latency: {p50: 0s, p99: 1s}"), "3:27: provider.latency.p99: is 1s, which is impossible for a lognormal latency whose p50 is 0s"},
		{provider("latency: {p50: 1s, uplink_p50: 2s}"), "3:34: provider.latency.uplink_p50: is 2s; want at most p50, which is 1s"},
		{provider("latency: {p50: 1s, uplink_p99: 1ms}"), "3:34: provider.latency.uplink_p99: is 1ms; want at least uplink_p50, which is 100ms"},
		{provider("limits: {kind: concurrency}"), "3:11: provider.limits: is a mapping; want a list"},
		{provider("limits: [concurrency]"), `3:12: provider.limits[0]: is a text; want a mapping`},
		{provider("limits: [" + strings.Repeat("{}, ", 101) + "]"), "provider.limits: has 101 entries; want at most 100"},
		{limit("limit: 5"), "3:12: provider.limits[0].kind: is missing; want the kind"},
		{limit("kind: leaky_bucket"), `3:19: provider.limits[0].kind: is "leaky_bucket"; want one of token_bucket, fixed_window,`},
		{limit("kind: token_bucket"), "3:12: provider.limits[0].rate: is missing; want a rate such as 10/s or 600/min"},
		{limit("kind: token_bucket, rate: 0/s"), `3:39: provider.limits[0].rate: is "0/s": a rate must be above 0`},
		{limit("kind: token_bucket, rate: -1/s"), `provider.limits[0].rate: is "-1/s": a rate must be above 0`},
		{limit("kind: token_bucket, rate: 10"), "3:39: provider.limits[0].rate: is 10: a rate is a number and a unit, such as 10/s, 600/min, 5000/h or 1500/day"},
		{limit("kind: token_bucket, rate: 10/week"), `provider.limits[0].rate: is "10/week": unknown unit "week" of a rate`},
		{limit("kind: token_bucket, rate: 1/s, burst: 0"), "provider.limits[0].burst: is 0; want a whole number from 1 to"},
		{limit("kind: token_bucket, rate: 1/day, burst: 9999"), "provider.limits[0].burst: is 9999, which at 1/day would take more than 3100d to fill"},
		{limit("kind: token_bucket, rate: 1/s, limit: 5"), "provider.limits[0].limit: does not belong to limit kind token_bucket"},
		{limit("kind: fixed_window, limit: 5"), "provider.limits[0].window: is missing; want "},
		{limit("kind: fixed_window, limit: 5, window: 1m, align: last"), `provider.limits[0].align: is "last"; want one of epoch, first`},
		{limit("kind: sliding_window, limit: 0, window: 1m"), "provider.limits[0].limit: is 0; want a whole number from 1 to"},
		{limit("kind: sliding_window, limit: 1, window: 1m, align: first"), "provider.limits[0].align: does not belong to limit kind sliding_window"},
		{limit("kind: concurrency, limit: 1, window: 1m"), "provider.limits[0].window: does not belong to limit kind concurrency"},
		{limit("kind: cost_window, limit: 0, window: 1m"), "3:39: provider.limits[0].limit: is 0; want a number above 0 and at most 1e+12"},
		{limit("kind: busy_time, limit: 20, window: 1m"), "3:37: provider.limits[0].limit: is 20; want a duration with a unit, such as 250ms, 15m, 1h30m or 1d"},
		{limit("kind: slowdown, knee: 30/min, factor: 2"), "provider.limits[0].knee: is 30/min; want at least 1/s"},
		{limit("kind: slowdown, knee: 3/s, factor: 0.5"), "3:48: provider.limits[0].factor: is 0.5; want a number at least 1 and at most 1000"},
		{provider("throttle: {status: 200}"), "3:22: provider.throttle.status: is 200; want a whole number from 400 to 599"},
		{provider("throttle: {retry_after: minutes}"), `provider.throttle.retry_after: is "minutes"; want one of seconds, ms, http_date, exact, none`},
		{provider("throttle: {headers: slack}"), `provider.throttle.headers: is "slack"; want one of none, github, openai, anthropic, ietf`},
		{provider("throttle: {counts_rejected: maybe}"), `provider.throttle.counts_rejected: is "maybe"; want true or false`},
		{provider("penalty: {factor: 2}"), "3:12: provider.penalty.base: is missing; want a duration with a unit, such as 250ms, 15m, 1h30m or 1d"},
		{provider("penalty: {base: 5s, factor: 0.9}"), "3:31: provider.penalty.factor: is 0.9; want a number at least 1 and at most 1000"},
		{provider("penalty: {base: 5s, max: 1s}"), "provider.penalty.max: is 1s; want at least base, which is 5s"},
		{provider("suspend: {throttles: 5}"), "provider.suspend.within: is missing; want "},
		{provider("suspend: {throttles: 0, within: 1m}"), "provider.suspend.throttles: is 0; want a whole number from 1 to"},
		{provider("strangers: {rate: 1/s, on: 1m}"), "provider.strangers.on: and off go together"},
		{provider("throttle: {retry_after_factor: 1000}"), "provider.throttle.retry_after_factor: needs a retry_after other than none"},
		{provider("throttle: {retry_after: ms, retry_after_factor: 0}"), "provider.throttle.retry_after_factor: is 0; want a number at least 1e-06"},
		{provider("penalty: {base: 5s, fixed: 1}"), "provider.penalty.fixed: is 1; want true or false"},
		{provider("changes: [{at: 1m, over: 10m, scale: 2}, {at: 10m, scale: 1}]"), "provider.changes[1].at: is 10m; want later than the change before it, at 11m"},
		{"name: x\nworkload: {burst: 5}", "2:19: workload.burst: belongs to workload kind open, not to backlog"},
		{"name: x\nworkload: {pause: 1h}", "workload.active: and pause go together"},
		{"name: x\nworkload: {kind: bulk, rows: 1, active: 1h}\nprovider: {batch: {per_row: 1ms}}", "2:41: workload.active: does not belong to workload kind bulk"},
		{provider("strangers: {}"), "provider.strangers.rate: is missing; want "},
		{provider("changes: [{at: 2h, scale: 1}]"), `3:18: provider.changes[0].at: is "2h"; want from 0s to 1h`},
		{provider("changes: [{at: 1m, scale: 0}]"), "3:29: provider.changes[0].scale: is 0; want a number above 0 and at most 1000"},
		{provider("changes: [{at: 2m, scale: 1}, {at: 2m, scale: 1}]"), "provider.changes[1].at: is 2m; want later than the change before it, at 2m"},
		{provider("changes: [{at: 1m, scale: 900}, {at: 2m, scale: 900}]"), "provider.changes[1].scale: makes the changes so far multiply to 810000"},
		{provider("changes: [{scale: 1}]"), "provider.changes[0].at: is missing; want "},
		{provider("faults: [{at: 1m, kind: outage}]"), "provider.faults[0].for: is missing; want "},
		{provider("faults: [{at: 61m, for: 1s, kind: outage}]"), `3:17: provider.faults[0].at: is "61m"; want from 0s to 1h`},
		{provider("faults: [{at: 1m, for: 0s, kind: outage}]"), `3:26: provider.faults[0].for: is "0s"; want from 1ms to 31d`},
		{provider("faults: [{at: 1m, for: 1s, kind: fire}]"), `provider.faults[0].kind: is "fire"; want one of outage, slow, reset, overload`},
		{provider("faults: [{at: 1m, for: 1s, kind: overload}]"), "provider.faults[0].share: is missing; want "},
		{provider("faults: [{at: 1m, for: 1s, kind: overload, share: 1.5}]"), "provider.faults[0].share: is 1.5; want a number above 0 and at most 1"},
		{provider("faults: [{at: 1m, for: 1s, kind: overload, share: 0}]"), "provider.faults[0].share: is 0; want a number above 0 and at most 1"},
		{provider("faults: [{at: 1m, for: 1s, kind: slow, share: 0.5}]"), "provider.faults[0].share: belongs to kind overload"},
	}
	for _, tt := range tests {
		s, err := scenario.Parse("f.yaml", []byte(tt.src))
		problems, ok := errors.AsType[*configfile.Error](err)
		if !ok || s != nil {
			t.Errorf("%q: %v, %v, want problems", head(tt.src), s, err)
			continue
		}
		if len(problems.Problems) != 1 {
			t.Errorf("%q: %d problems, want 1:\n%v", head(tt.src), len(problems.Problems), err)
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
	want := `f.yaml:1:1: name: is missing; want a text
f.yaml:1:10: clients: is 0; want a whole number from 1 to 1000
f.yaml:4:34: provider.limits[0].rate: is "0/s": a rate must be above 0
f.yaml:5:7: provider.limits[1].limit: is missing; want a number, or a duration for busy_time
f.yaml:5:47: provider.limits[1].burst: does not belong to limit kind fixed_window
f.yaml:6:17: provider.faults[0].at: is "9h"; want from 0s to 1h
f.yaml:7:1: speed: is not a field here: want one of name, description, horizon, clients, fleet, owner, workload, provider`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if p, ok := errors.AsType[configfile.Problem](err); !ok || p.Field != "name" {
		t.Errorf("the first problem is %+v, want that of name", p)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	var src strings.Builder
	src.WriteString("name: x\n")
	for i := range 1000 {
		fmt.Fprintf(&src, "a%d: 1\n", i)
	}
	_, err := scenario.Parse("f.yaml", []byte(src.String()))
	if problems, ok := errors.AsType[*configfile.Error](err); !ok || len(problems.Problems) != 51 {
		t.Errorf("%v, want 50 problems and how many more there are", err)
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
	// notion.yaml:4:39: provider.limits[0].rate: is "3/fortnight": unknown unit "fortnight" of a rate, want s, m, min, h, d or day
	// notion.yaml:5:3: provider.thottle: is not a field here: did you mean throttle?
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
			problems, ok := errors.AsType[*configfile.Error](err)
			if !ok || len(problems.Problems) == 0 {
				t.Errorf("%v is not a list of problems", err)
			}
			for _, p := range problems.Problems {
				if (p.Line < 1 || p.Column < 1) && p.Field != "" || p.Message == "" {
					t.Errorf("problem without a place: %+v", p)
				}
			}
		}
	})
}

// unusual says what full does not.
const unusual = `name: "7"
horizon: 12h
workload: {kind: open, rate: 2/s, burst: 40, active: 2h, pause: 90m}
provider:
  throttle: {status: 503, retry_after: ms, retry_after_factor: 0.001, retry_after_constant: 30s}
  penalty: {base: 30s, factor: 1, max: 30s, forgive: 0s, fixed: true}
  strangers: {rate: 3/s, on: 20s, off: 3m}
  changes: [{at: 1h, over: 4h, scale: 0.25}, {at: 6h, scale: 4}]
`

func TestAFormattedScenarioIsReadBackTheSame(t *testing.T) {
	bulk := "name: bulk\nworkload: {kind: bulk, rows: 72493, users: 2}\nprovider:\n  batch: {per_row: 22ms, knee: 4}\n  hint: 4\n  changes: [{at: 1m, hint: 2}]\n"
	const pools = "name: pools\nprovider:\n  limits: [{kind: token_bucket, rate: 5/s}]\n  pools:\n    - {name: core/1, share: 2.5, limits: [{kind: concurrency, limit: 3}, {kind: fixed_window, limit: 9, window: 1m}]}\n    - {name: search}\n"
	for _, src := range []string{full, unusual, bulk, pools, "name: least\n"} {
		s, err := scenario.Parse("f.yaml", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		written := scenario.Format(s)
		again, err := scenario.Parse("again.yaml", written)
		if err != nil {
			t.Fatalf("%v\n%s", err, written)
		}
		if diff := cmp.Diff(s, again, plain); diff != "" {
			t.Errorf("-read +read back\n%s\n%s", diff, written)
		}
	}
}

func TestADescriptionTooLongForALineIsLeftOut(t *testing.T) {
	s, err := scenario.Parse("f.yaml", []byte("name: x\ndescription: |\n"+strings.Repeat("  word word word\n", 200)))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := scenario.Parse("again.yaml", scenario.Format(s)); err != nil || again.Description != "" {
		t.Errorf("%v, %v", again, err)
	}
}

func TestPausesComeInTurns(t *testing.T) {
	w := scenario.Workload{Active: 2 * time.Hour, Pause: time.Hour}
	for at, want := range map[time.Duration]time.Duration{
		0: 0, 2*time.Hour - 1: 2*time.Hour - 1, 2 * time.Hour: 3 * time.Hour, 170 * time.Minute: 3 * time.Hour,
		4 * time.Hour: 4 * time.Hour, 5 * time.Hour: 6 * time.Hour, math.MaxInt64: math.MaxInt64,
	} {
		if got := w.Awake(at); got != want {
			t.Errorf("awake at %s, want %s", got, want)
		}
	}
	if got := new(scenario.Workload).Awake(time.Hour); got != time.Hour {
		t.Errorf("without pauses awake at %s", got)
	}
}

func TestADriftComesInSteps(t *testing.T) {
	p := scenario.Provider{Changes: []scenario.Change{{At: time.Hour, Over: 32 * time.Minute, Scale: 0.5}, {At: 2 * time.Hour, Scale: 4}}}
	steps, product := p.Steps(), 1.0
	if n := len(steps); n != scenario.DriftSteps+1 {
		t.Fatalf("%d steps", n)
	}
	for i, c := range steps[:scenario.DriftSteps] {
		product *= c.Scale
		if want := time.Hour + time.Duration(i)*time.Minute; c.At != want || c.Scale != steps[0].Scale {
			t.Errorf("step %d: %+v, want at %s", i, c, want)
		}
	}
	if math.Abs(product-0.5) > 1e-12 || steps[scenario.DriftSteps] != p.Changes[1] {
		t.Errorf("the drift multiplies to %g, and then %+v", product, steps[scenario.DriftSteps])
	}
}

func TestParseRate(t *testing.T) {
	tests := []struct {
		text      string
		perSecond float64
		interval  time.Duration
	}{
		{"10/s", 10, 100 * time.Millisecond},
		{"600/min", 10, 100 * time.Millisecond},
		{"600/m", 10, 100 * time.Millisecond},
		{"37/min", 37.0 / 60, 1621621622},
		{"3600/h", 1, time.Second},
		{"1500/day", 1500.0 / 86400, 57600 * time.Millisecond},
		{"1500/d", 1500.0 / 86400, 57600 * time.Millisecond},
		{"0.5/s", 0.5, 2 * time.Second},
		{"1000000/s", 1e6, time.Microsecond},
	}
	for _, tt := range tests {
		r, err := scenario.ParseRate(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if r.PerSecond() != tt.perSecond || r.Interval() != tt.interval || r.String() != tt.text {
			t.Errorf("%s is %g/s, interval %s, written %s; want %g, %s", tt.text, r.PerSecond(), r.Interval(), r, tt.perSecond, tt.interval)
		}
	}
	for _, text := range []string{
		"", "10", "/s", "10/", "10/S", "0/s", "-3/s", "1e3/s", "inf/s", "NaN/s", "0x10/s", "1_0/s", "1..2/s", "1000001/s", "0.01/day", "10/s ", "10 /s", "1-1/s",
	} {
		if r, err := scenario.ParseRate(text); err == nil {
			t.Errorf("%q was read as %v", text, r)
		}
	}
}

func TestZeroRateIsNoRate(t *testing.T) {
	var r scenario.Rate
	if r.PerSecond() != 0 || r.Interval() != 0 || r.String() != "0/s" {
		t.Errorf("the zero rate is %v, %g/s, interval %s", r, r.PerSecond(), r.Interval())
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1h": time.Hour, "15m": 15 * time.Minute, "1200s": 20 * time.Minute, "1h30m": 90 * time.Minute,
		"250ms": 250 * time.Millisecond, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "0": 0, "-5s": -5 * time.Second,
	} {
		if got, err := scenario.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s is %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "1w", "d", "-1d", "1.5d", "1d-5s", "1d1d", "99999d", "1h 5m", "soon"} {
		if got, err := scenario.ParseDuration(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
}
