package sim_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/fit"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// drawScenario writes a scenario file and reads it. In a tame one nothing lets a client be
// admitted more often than the oracle.
func drawScenario(t *rapid.T, tame bool) *scenario.Scenario {
	var b strings.Builder
	number := func(low, high int, name string) int { return rapid.IntRange(low, high).Draw(t, name) }
	maybe := func(name string) bool { return rapid.Bool().Draw(t, name) }
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	ceiling := number(5, 500, "ceiling")
	line("name: drawn")
	line("horizon: %ds", number(30, 300, "horizon"))
	clients := number(1, 4, "clients")
	line("clients: %d", clients)
	switch number(0, 3, "fleet") {
	case 0:
	case 1:
		line("fleet: true")
	case 2:
		line("fleet: {trip: %dus}", number(1, 200_000, "trip"))
	case 3:
		line("fleet: {trip: %dms, faults: [{at: %ds, for: %ds, kind: away}, {at: 29s, for: %ds, kind: cut, clients: %d}]}",
			number(1, 100, "trip"), number(0, 9, "away at"), number(1, 20, "away for"), number(1, 90, "cut for"), number(1, clients, "cut"))
	}
	line("owner: {ceiling: %dms, initial: %dms}", ceiling, number(ceiling, 2000, "initial"))
	kind, spread := "backlog", 0
	if maybe("open") {
		kind = fmt.Sprintf("open, rate: %d/s", number(1, 20, "arrivals"))
	}
	if !tame {
		spread = number(0, 1, "spread")
	}
	line("workload: {kind: %s, max_in_flight: %d, cost: {mean: 3, spread: %d}}", kind, number(1, 64, "places"), spread)
	line("provider:")
	p50 := number(10, 1000, "p50")
	if tail := number(1, 5, "tail"); tail > 1 {
		line("  latency: {p50: %dms, p99: %dms}", p50, tail*p50)
	} else {
		line("  latency: {p50: %dms, p99: %[1]dms, uplink_p50: %[2]dms, uplink_p99: %[2]dms}", p50, p50/10)
	}
	line("  limits:")
	most := 7
	if tame {
		most = 6 // no knee, which can be passed at no cost
	}
	for range number(1, 2, "limits") {
		switch number(1, most, "kind") {
		case 1:
			line("    - {kind: token_bucket, rate: %d/s, burst: %d}", number(1, 50, "rate"), number(1, 50, "burst"))
		case 2:
			line("    - {kind: fixed_window, limit: %d, window: %ds, align: %s}", number(1, 500, "limit"), number(1, 100, "window"),
				rapid.SampledFrom([]string{"epoch", "first"}).Draw(t, "align"))
		case 3:
			line("    - {kind: sliding_window, limit: %d, window: %ds}", number(1, 500, "limit"), number(1, 100, "window"))
		case 4:
			line("    - {kind: concurrency, limit: %d}", number(1, 20, "limit"))
		case 5:
			line("    - {kind: cost_window, limit: %d, window: %ds}", number(10, 1000, "limit"), number(1, 100, "window"))
		case 6:
			line("    - {kind: busy_time, limit: %ds, window: %ds}", number(2, 100, "limit"), number(1, 100, "window"))
		case 7:
			line("    - {kind: slowdown, knee: %d/s, factor: 4}", number(1, 30, "knee"))
		}
	}
	line("  throttle: {status: %d, retry_after: %s, counts_rejected: %v}", rapid.SampledFrom([]int{429, 403, 503}).Draw(t, "status"),
		rapid.SampledFrom([]string{"seconds", "ms", "http_date", "exact", "none"}).Draw(t, "style"), maybe("counts"))
	if maybe("penalty") {
		line("  penalty: {base: %ds}", number(1, 20, "base"))
	}
	if maybe("suspend") {
		line("  suspend: {throttles: %d, within: 1m}", number(1, 50, "throttles"))
	}
	if maybe("changes") {
		line("  changes: [{at: 10s, scale: 0.5}, {at: 20s, scale: %d}]", number(1, 4, "scale"))
	}
	if maybe("outage") {
		line("  faults: [{at: 5s, for: %ds, kind: outage}, {at: 15s, for: 5s, kind: reset}]", number(1, 15, "outage"))
	}
	if !tame {
		if maybe("strangers") {
			line("  strangers: {rate: %d/s}", number(1, 20, "strangers"))
		}
	}
	s, err := scenario.Parse("drawn.yaml", []byte(b.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return s
}

// In any scenario no law breaks the ceiling, every attempt is accounted for, and the
// figures are in their ranges.
func TestEveryLawKeepsTheCeilingInEveryScenario(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t, false)
		law := rapid.SampledFrom(control.Names()).Draw(t, "law")
		r, err := sim.Run(s, sim.Options{Law: law, Seed: rapid.Uint64().Draw(t, "seed")})
		if err != nil {
			t.Fatal(err)
		}
		if r.CeilingViolations != 0 {
			t.Fatalf("%d attempts came too soon", r.CeilingViolations)
		}
		if r.Admitted+r.Throttled > r.Attempts {
			t.Fatalf("%d admitted and %d throttled of %d attempts", r.Admitted, r.Throttled, r.Attempts)
		}
		lines := s.Clients
		if s.Fleet {
			lines = 1
		}
		if most := int64(lines) * (1 + int64(s.Horizon/s.Owner.Ceiling)); r.Attempts > most {
			t.Fatalf("%d attempts, the ceiling allows %d", r.Attempts, most)
		}
		if r.LongestBlockS < 0 || r.LongestBlockS > s.Horizon.Seconds() {
			t.Fatalf("longest block of %v s in %v", r.LongestBlockS, s.Horizon)
		}
		if r.GoodputRatio != nil && (*r.GoodputRatio < 0 || *r.GoodputRatio > 1) {
			t.Fatalf("goodput ratio %v", *r.GoodputRatio)
		}
		if r.WaitP50MS != nil && (*r.WaitP50MS < 0 || *r.WaitP50MS > *r.WaitP99MS) {
			t.Fatalf("waits %v and %v", *r.WaitP50MS, *r.WaitP99MS)
		}
	})
}

// Without strangers, knees and uneven costs no client is admitted more often than the
// oracle, with two exceptions. One attempt for each client, because their ceilings begin
// together and the oracle's attempts are evenly spaced. And luck where latency is random,
// because the oracle draws its own.
func TestNoLawBeatsTheOracle(t *testing.T) {
	longtest.Draws(t, 40, 500)
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t, true)
		seed := rapid.Uint64().Draw(t, "seed")
		oracle, err := sim.NewOracle(s, seed)
		if err != nil {
			t.Fatal(err)
		}
		law := rapid.SampledFrom(control.Names()).Draw(t, "law")
		r, err := sim.Run(s, sim.Options{Law: law, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		best := int64(len(oracle.Admissions))
		slack := int64(s.Clients)
		if l := s.Provider.Latency; l.P50 < l.P99 {
			slack += int64(4 * math.Sqrt(float64(best)))
		}
		if r.Admitted > best+slack {
			t.Fatalf("the client was admitted %d, the oracle %d", r.Admitted, best)
		}
	})
}

func TestLedgerCountsWhatLeftTooSoonUnderEachCeiling(t *testing.T) {
	s := parse(t, "horizon: 1m", "clients: 2", "owner: {ceiling: 100ms, initial: 100ms}", "provider:", exact)
	l := sim.NewLedger(s, "reckless", 1)
	for _, sent := range []struct {
		at      time.Duration
		ceiling int
	}{
		{0, 0}, {1, 1}, // not the same ceiling
		{100 * time.Millisecond, 0},   // just in time
		{200*time.Millisecond - 1, 0}, // a nanosecond too soon
		{200 * time.Millisecond, 1},
		{201 * time.Millisecond, 1}, // far too soon
	} {
		l.Sent(sent.at, sent.ceiling)
	}
	oracle, err := sim.NewOracle(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := provider.New(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	if r := l.Result(oracle, m); r.CeilingViolations != 2 || r.Law != "reckless" {
		t.Errorf("%d violations under law %s, want 2 under reckless", r.CeilingViolations, r.Law)
	}
}

// A client that is not ours: one attempt every two seconds, whatever the answer.
func ExampleLedger() {
	s, err := scenario.Parse("steady.yaml", []byte(steady))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := provider.New(s, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	oracle, err := sim.NewOracle(s, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	l := sim.NewLedger(s, "every two seconds", 1)
	for now := time.Duration(0); now < s.Horizon; now += 2 * time.Second {
		l.Sent(now, 0)
		l.Arrived(now, 0, m.Arrive(now, 0, 1, 80*time.Millisecond), now)
	}
	m.Advance(s.Horizon)
	r := l.Result(oracle, m)
	fmt.Println(r.Admitted, *r.GoodputRatio, r.CeilingViolations)
	// Output:
	// 30 1 0
}

// pooled has two models of 60 and 300 a minute, and one without a limit of its own,
// under a limit of the account that all together reach.
const pooled = `name: pooled
horizon: 20m
owner: {ceiling: 20ms, initial: 200ms}
provider:
  throttle: {retry_after: seconds}
  limits: [{kind: sliding_window, limit: 900, window: 1m}]
  pools:
    - {name: small, limits: [{kind: token_bucket, rate: 60/min, burst: 5}]}
    - {name: large, share: 2, limits: [{kind: token_bucket, rate: 300/min, burst: 10}]}
    - {name: free}
`

func TestEachPoolReachesItsOwnLimit(t *testing.T) {
	s, err := scenario.Parse("pooled.yaml", []byte(pooled))
	if err != nil {
		t.Fatal(err)
	}
	var all []fit.Attempt
	r := run(t, s, sim.Options{Law: control.DefaultLaw, Seed: 1, OnAttempt: func(a fit.Attempt) { all = append(all, a) }})
	t.Logf("%s", jsonOf(t, r))
	if r.GoodputRatio == nil || *r.GoodputRatio < 0.9 || r.CeilingViolations > 0 {
		t.Errorf("goodput %v", show(r.GoodputRatio))
	}
	sum := int64(0)
	for i, p := range r.Pools {
		sum += p.Admitted
		if i < 2 && (p.GoodputRatio == nil || *p.GoodputRatio < 0.9) {
			t.Errorf("pool %s: %+v, goodput %v", p.Name, p, show(p.GoodputRatio))
		}
	}
	if sum != r.Admitted {
		t.Errorf("%d admitted in pools, %d in all", sum, r.Admitted)
	}
	if len(all) != int(r.Attempts) || !slices.ContainsFunc(all, func(a fit.Attempt) bool { return a.Pool == "small" }) {
		t.Errorf("%d attempts recorded of %d", len(all), r.Attempts)
	}
}

// An attempt's client is recorded where there are several.
func TestClientsOfATraceAreNumbered(t *testing.T) {
	for clients, want := range map[int][]int{1: {0}, 3: {1, 2, 3}} {
		s, err := scenario.Parse("c.yaml", fmt.Appendf(nil, "name: c\nhorizon: 1m\nclients: %d\nprovider:\n  limits: [{kind: token_bucket, rate: 60/min, burst: 5}]\n", clients))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[int]bool{}
		run(t, s, sim.Options{Law: control.DefaultLaw, Seed: 1, OnAttempt: func(a fit.Attempt) {
			if seen[a.Client] = true; strings.Contains(string(a.Line()), `"client":`) != (a.Client > 0) {
				t.Errorf("client %d is written as %s", a.Client, a.Line())
			}
		}})
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
			t.Errorf("%d clients: attempts of %v, want %v", clients, got, want)
		}
	}
}

func TestAPoolsRefusalsLeaveTheOthersAlone(t *testing.T) {
	alone, err := scenario.Parse("a.yaml", []byte("name: a\nowner: {ceiling: 20ms, initial: 200ms}\nprovider:\n  pools: [{name: large, limits: [{kind: token_bucket, rate: 300/min, burst: 10}]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	beside, err := scenario.Parse("b.yaml", []byte("name: b\nowner: {ceiling: 20ms, initial: 200ms}\nprovider:\n  pools: [{name: large, limits: [{kind: token_bucket, rate: 300/min, burst: 10}]}, {name: small, limits: [{kind: fixed_window, limit: 20, window: 1m}]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	// With some seeds both are refused for the first time within a tenth of a second, and with one in thirty a
	// canary of the small one makes the first block of the large one look long.
	sum, fewer, seeds := 0.0, 0, longtest.Size(5, 30)
	for seed := range uint64(seeds) {
		a := run(t, alone, sim.Options{Law: control.DefaultLaw, Seed: seed})
		b := run(t, beside, sim.Options{Law: control.DefaultLaw, Seed: seed})
		part := float64(b.Pools[0].Admitted) / float64(a.Pools[0].Admitted)
		if part < 0.97 {
			fewer++
		}
		if sum += min(1, part); part < 0.95 || fewer > 1 {
			t.Errorf("seed %d: large has %d beside small, %d alone", seed, b.Pools[0].Admitted, a.Pools[0].Admitted)
		}
	}
	if mean := sum / float64(seeds); mean < 0.99 {
		t.Errorf("beside small, large has %.4f of what it has alone, want .99", mean)
	}
}

// TestDrawnPairsOfPoolsLeaveEachOtherAlone: beside another pool each is admitted about as
// often as alone, whatever their limits are.
func TestDrawnPairsOfPoolsLeaveEachOtherAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(name string) string {
		rate, kind := 10<<r.IntN(7), "token_bucket, rate: %d/min, burst: 8"
		switch r.IntN(3) {
		case 0:
			kind = "fixed_window, limit: %d, window: 1m"
		case 1:
			kind = "sliding_window, limit: %d, window: 1m"
		}
		return fmt.Sprintf("{name: %s, limits: [{kind: "+kind+"}]}", name, rate)
	}
	sum, n := 0.0, 2*longtest.Size(12, 300)
	for i := range n / 2 {
		throttle := []string{"none", "seconds"}[i%2]
		admitted := func(pools ...string) (all []float64) {
			s, err := scenario.Parse("pair.yaml", fmt.Appendf(nil, "name: pair\nhorizon: 30m\nowner: {ceiling: 20ms, initial: 200ms}\nprovider: {throttle: {retry_after: %s}, pools: [%s]}\n", throttle, strings.Join(pools, ", ")))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range run(t, s, sim.Options{Law: control.DefaultLaw, Seed: uint64(i)}).Pools {
				all = append(all, float64(p.Admitted))
			}
			return all
		}
		a, b := draw("a"), draw("b")
		both := admitted(a, b)
		sum += min(1, both[0]/admitted(a)[0]) + min(1, both[1]/admitted(b)[0])
	}
	if t.Logf("%.3f of what each has alone", sum/float64(n)); sum < 0.98*float64(n) {
		t.Errorf("each of %d pools has %.3f of what it has alone, want 0.98", n, sum/float64(n))
	}
}

func TestTheInformedClientKnowsPools(t *testing.T) {
	s, err := scenario.Parse("pooled.yaml", []byte(pooled))
	if err != nil {
		t.Fatal(err)
	}
	p, err := sim.NewPlayer(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := p.Informed()
	if err != nil {
		t.Fatal(err)
	}
	if r.GoodputRatio == nil || *r.GoodputRatio < 0.95 || r.Throttled > 20 {
		t.Errorf("goodput %v, %d throttled, %+v", show(r.GoodputRatio), r.Throttled, r.Pools)
	}
}

// TestAnOverloadThatNoPaceAvoids: one attempt in a hundred gets a 503. The clairvoyant client avoids
// these, the informed one goes on, and the default law finds out that no pace avoids them.
func TestAnOverloadThatNoPaceAvoids(t *testing.T) {
	s, err := scenario.Parse("overload.yaml", []byte("name: overload\nhorizon: 20m\nowner: {ceiling: 50ms}\nprovider:\n"+
		"  latency: {p50: 120ms, p99: 300ms}\n  faults: [{at: 0s, for: 20m, kind: overload, share: 0.01}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	sum, n := 0.0, 12
	for seed := range uint64(n) {
		p, err := sim.NewPlayer(s, seed)
		if err != nil {
			t.Fatal(err)
		}
		informed, _, err := p.Informed()
		if err != nil || informed.GoodputRatio == nil || *informed.GoodputRatio < 0.95 || *informed.GoodputRatio > 1 {
			t.Errorf("seed %d: the informed client gets %v, %v; want .95 to 1", seed, show(informed.GoodputRatio), err)
		}
		r := run(t, s, sim.Options{Law: control.DefaultLaw, Seed: seed})
		if r.Throttled > 0 || r.Attempts == r.Admitted {
			t.Errorf("seed %d: %d throttled, %d of %d attempts admitted: an overload is no limit", seed, r.Throttled, r.Admitted, r.Attempts)
		}
		sum += *r.GoodputRatio
	}
	if t.Logf("%.3f of what a clairvoyant client is admitted", sum/float64(n)); sum < 0.6*float64(n) {
		t.Errorf("%.3f of what a clairvoyant client is admitted, want 0.6", sum/float64(n))
	}
}

// A client that estimates what its attempts cost ten times too high, a thousand times too low or with
// large errors is hardly slower than one that knows it.
func TestWrongEstimatesOfTheCostCostLittle(t *testing.T) {
	goodput := func(cost string, seed uint64) float64 {
		s, err := scenario.Parse("tokens.yaml", []byte("name: tokens\nhorizon: 30m\nowner: {ceiling: 10ms}\nworkload: {cost: {mean: 900, spread: 0.8"+cost+`}}
provider:
  latency: {p50: 800ms, p99: 4s}
  throttle: {retry_after: none}
  limits: [{kind: cost_window, limit: 90000, window: 1m}]
`))
		if err != nil {
			t.Fatal(err)
		}
		return *run(t, s, sim.Options{Law: control.DefaultLaw, Seed: seed}).GoodputRatio
	}
	for _, tt := range []struct {
		cost  string
		least float64 // of what a client that knows the costs gets
	}{{", estimate: 10", 0.97}, {", estimate: 0.001", 0.97}, {", estimate: 3, error: 0.5", 0.96}, {", error: 1", 0.93}} {
		right, wrong := 0.0, 0.0
		for seed := range uint64(8) {
			right += goodput("", seed) / 8
			wrong += goodput(tt.cost, seed) / 8
		}
		if t.Logf("%s: %.3f, and %.3f with right estimates", tt.cost[2:], wrong, right); wrong < tt.least*right {
			t.Errorf("%s: %.3f, want %v of %.3f", tt.cost[2:], wrong, tt.least, right)
		}
	}
}

// Where answers take a minute, most of what went is in flight when a limit refuses, whatever limit that is. It
// is not taken for a limit on that number for long, and one on that number is found as well.
func TestLongAnswersAreNoLimitInFlight(t *testing.T) {
	for _, tt := range []struct {
		limit string
		least float64
		most  float64 // refusals for each 1,000
	}{
		{"kind: token_bucket, rate: 60/min, burst: 10", 0.90, 6},
		{"kind: fixed_window, limit: 60, window: 1m", 0.93, 6},
		{"kind: sliding_window, limit: 60, window: 1m", 0.93, 6},
		{"kind: concurrency, limit: 8", 0.90, 12},
	} {
		sum, refusals, n := 0.0, 0.0, 0.0
		for _, start := range []string{"passive", "conservative"} {
			for _, wait := range []string{"seconds", "none"} {
				s, err := scenario.Parse("long.yaml", []byte("name: long\nhorizon: 4h\nowner: {ceiling: 10ms, start: "+start+`}
workload: {max_in_flight: 200}
provider:
  latency: {p50: 40s, p99: 5m, uplink_p50: 50ms, uplink_p99: 200ms}
  throttle: {retry_after: `+wait+`}
  limits: [{`+tt.limit+"}]\n"))
				if err != nil {
					t.Fatal(err)
				}
				for seed := range uint64(5) {
					r := run(t, s, sim.Options{Law: control.DefaultLaw, Seed: seed + 1})
					sum, refusals, n = sum+*r.GoodputRatio, refusals+*r.ThrottledPer1000, n+1
				}
			}
		}
		if t.Logf("%s: %.3f, %.1f refused", tt.limit, sum/n, refusals/n); sum < tt.least*n || refusals > tt.most*n {
			t.Errorf("%s: %.3f of what a clairvoyant client is admitted, %.1f refused for each 1,000; want %v and at most %v", tt.limit, sum/n, refusals/n, tt.least, tt.most)
		}
	}
}

// TestAConfiguredWindowEndsTheWait: with a window of 150 s, which is no usual one, and no wait in
// the refusals, a client that knows of it never waits for much longer, and one that does not waits
// for nearly two. A minute is found without that.
func TestAConfiguredWindowEndsTheWait(t *testing.T) {
	longest := func(owner, limit string, seed uint64) float64 {
		s, err := scenario.Parse("window.yaml", []byte("name: window\nhorizon: 30m\nowner: {ceiling: 10ms, start: passive"+owner+`}
workload: {kind: open, rate: 2.5/s}
provider:
  latency: {p50: 120ms, p99: 300ms}
  throttle: {retry_after: none}
  limits: [{`+limit+"}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		return run(t, s, sim.Options{Law: control.DefaultLaw, Seed: seed}).LongestBlockS
	}
	for _, kind := range []string{"kind: fixed_window, align: epoch", "kind: fixed_window, align: first", "kind: sliding_window"} {
		without, with, minute := 0.0, 0.0, 0.0
		for seed := range uint64(20) {
			odd := kind + ", limit: 150, window: 150s"
			without, with = max(without, longest("", odd, seed)), max(with, longest(", windows: [150s]", odd, seed))
			minute = max(minute, longest("", kind+", limit: 60, window: 1m", seed), longest(", windows: [1m]", kind+", limit: 60, window: 1m", seed))
		}
		if t.Logf("%s: at most %.0f s, without the window %.0f s, a minute %.0f s", kind, with, without, minute); with > 188 || without < 250 || minute > 80 {
			t.Errorf("%s: at most %.0f s, and %.0f s without the window; want 188 s and more than 250; a minute %.0f s, want 80", kind, with, without, minute)
		}
	}
}
