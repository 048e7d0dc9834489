package sim_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/scenarios"
)

func run(t testing.TB, s *scenario.Scenario, o sim.Options) sim.Result {
	t.Helper()
	if o.Law == "" {
		o.Law = "aimd" // its arithmetic is known
	}
	r, err := sim.Run(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func jsonOf(t testing.TB, r sim.Result) []byte {
	t.Helper()
	b, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// is checks a figure that may be unknown.
func is(t *testing.T, name string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-9 {
		t.Errorf("%s is %v, want %v", name, show(got), want)
	}
}

func isUnknown(t *testing.T, name string, got *float64) {
	t.Helper()
	if got != nil {
		t.Errorf("%s is %v, want null", name, *got)
	}
}

func show(x *float64) any {
	if x == nil {
		return "null"
	}
	return *x
}

func TestClientThatOnlyTheCeilingBinds(t *testing.T) {
	r := run(t, parse(t, "horizon: 1m", "owner: {ceiling: 100ms, initial: 100ms}", "provider:", exact), sim.Options{Seed: 1})
	// The first leaves within its jitter of at most the ceiling, each next one
	// a ceiling later; each takes 10 ms to the provider.
	if r.Attempts < 599 || r.Attempts > 600 || r.Admitted != r.Attempts || r.Throttled != 0 {
		t.Errorf("attempts %d, admitted %d, throttled %d, want all of 599 or 600", r.Attempts, r.Admitted, r.Throttled)
	}
	is(t, "goodput_ratio", r.GoodputRatio, round4(float64(r.Admitted)/600))
	is(t, "throttled_per_1000", r.ThrottledPer1000, 0)
	is(t, "wait_p50_ms", r.WaitP50MS, 110)
	is(t, "wait_p99_ms", r.WaitP99MS, 110)
	is(t, "time_to_90pct_s", r.TimeTo90PctS, 1)
	if r.LongestBlockS < 0.1 || r.LongestBlockS > 0.11 {
		t.Errorf("longest block is %v s, want 0.1 to 0.11", r.LongestBlockS)
	}
	isUnknown(t, "throttles_per_change", r.ThrottlesPerChange)
	isUnknown(t, "fairness_jain", r.FairnessJain)
	if r.StrangersHarm != nil || r.Belief != nil || r.Suspended || r.CeilingViolations != 0 || r.Trace != nil {
		t.Errorf("got %+v", r)
	}
}

// With a passive start only the ceiling holds the client back, until it is refused.
func TestAPassiveStartSendsAtTheCeilingUntilTheFirstRefusal(t *testing.T) {
	at := func(start, horizon, limits string) sim.Result {
		return run(t, parse(t, "horizon: "+horizon, "owner: {ceiling: 100ms, initial: 2s, start: "+start+"}", "provider:", exact, limits), sim.Options{Seed: 1})
	}
	slow, fast := at("conservative", "10s", ""), at("passive", "10s", "")
	if fast.Admitted < 99 || slow.Admitted > 60 {
		t.Errorf("%d admitted after a passive start, want all of 100; %d after a conservative one", fast.Admitted, slow.Admitted)
	}
	// The ceiling alone would be refused nine times in ten.
	if r := at("passive", "5m", "  limits: [{kind: token_bucket, rate: 1/s, burst: 5}]"); r.Throttled == 0 || r.Throttled > 8 {
		t.Errorf("%d refused, %d admitted", r.Throttled, r.Admitted)
	}
}

func round4(x float64) float64 { return math.Round(x*1e4) / 1e4 }

func TestOneAMinuteIsRefusedOnceAMinute(t *testing.T) {
	// Each minute: one is admitted, the next is refused and learns exactly when to
	// come back, which is in the next minute.
	r := run(t, parse(t, "horizon: 3m", "owner: {ceiling: 1s, initial: 1s}", "provider:", exact,
		"  limits: [{kind: fixed_window, limit: 1, window: 1m}]", "  throttle: {retry_after: exact}"), sim.Options{Seed: 1})
	if r.Attempts != 6 || r.Admitted != 3 || r.Throttled != 3 {
		t.Errorf("attempts %d, admitted %d, throttled %d, want 6, 3, 3", r.Attempts, r.Admitted, r.Throttled)
	}
	is(t, "goodput_ratio", r.GoodputRatio, 1)
	is(t, "throttled_per_1000", r.ThrottledPer1000, 1000)
	// The block lasts from the admission in the first second until 20 ms after the second
	// minute begins: the refusal and the next attempt take 10 ms each.
	if r.LongestBlockS < 59 || r.LongestBlockS > 60.02 {
		t.Errorf("longest block is %v s", r.LongestBlockS)
	}
}

func TestNothingAdmittedIsUnknownAndNotZero(t *testing.T) {
	r := run(t, parse(t, "horizon: 1m", "clients: 2", "provider:", exact,
		"  faults: [{at: 0s, for: 1m, kind: outage}]"), sim.Options{})
	if r.Attempts == 0 || r.Admitted != 0 || r.Throttled != 0 {
		t.Errorf("attempts %d, admitted %d, throttled %d: an outage is not a throttle", r.Attempts, r.Admitted, r.Throttled)
	}
	isUnknown(t, "throttled_per_1000", r.ThrottledPer1000)
	isUnknown(t, "goodput_ratio", r.GoodputRatio)
	isUnknown(t, "time_to_90pct_s", r.TimeTo90PctS)
	isUnknown(t, "wait_p50_ms", r.WaitP50MS)
	isUnknown(t, "wait_p99_ms", r.WaitP99MS)
	isUnknown(t, "fairness_jain", r.FairnessJain)
	if r.LongestBlockS != 60 {
		t.Errorf("longest block is %v s, want the whole minute", r.LongestBlockS)
	}
}

func TestOpenWorkWaitsInItsQueue(t *testing.T) {
	// 2/s arrive and 1/s may be sent: after ten minutes about half is waiting,
	// and the last that was served had waited about five.
	r := run(t, parse(t, "horizon: 10m", "owner: {ceiling: 1s, initial: 1s}", "workload: {kind: open, rate: 2/s}", "provider:", exact),
		sim.Options{Seed: 7})
	if r.Admitted < 598 || r.Admitted > 600 {
		t.Errorf("admitted %d, want 598 to 600", r.Admitted)
	}
	if *r.WaitP99MS < 270e3 || *r.WaitP99MS > 330e3 || *r.WaitP50MS < 130e3 || *r.WaitP50MS > 170e3 {
		t.Errorf("waits are %v and %v ms, want about 150 s and 300 s", *r.WaitP50MS, *r.WaitP99MS)
	}
	// With room to spare nobody waits for long, and idling is not a block.
	r = run(t, parse(t, "horizon: 1h", "owner: {ceiling: 100ms, initial: 100ms}", "workload: {kind: open, rate: 6/min}", "provider:", exact),
		sim.Options{Seed: 7})
	is(t, "goodput_ratio", r.GoodputRatio, 1)
	if *r.WaitP99MS > 210 || r.LongestBlockS > 0.5 {
		t.Errorf("wait is %v ms, block %v s, though nothing is in the way", *r.WaitP99MS, r.LongestBlockS)
	}
}

func TestSuspensionEndsTheRunForGood(t *testing.T) {
	r := run(t, parse(t, "horizon: 10m", "owner: {ceiling: 10ms, initial: 100ms}", "provider:", exact,
		"  limits: [{kind: token_bucket, rate: 1/s}]", "  suspend: {throttles: 5, within: 1m}"), sim.Options{Seed: 1})
	if !r.Suspended || r.Throttled != 5 {
		t.Errorf("suspended %v after %d throttles, want true after 5", r.Suspended, r.Throttled)
	}
	if met := r.Attempts - r.Admitted - r.Throttled; met <= 0 {
		t.Errorf("%d attempts met the suspension, want some", met)
	}
}

func TestThrottlesAreCountedFromAChangeForFiveMinutes(t *testing.T) {
	lines := []string{"horizon: 30m", "owner: {ceiling: 10m, initial: 10m}", "provider:", exact,
		"  limits: [{kind: fixed_window, limit: 1, window: 30m}]"}
	// Attempts arrive 10 min apart and more: the first is admitted, the next refused.
	quiet := run(t, parse(t, append(lines, "  changes: [{at: 25m, scale: 0.5}]")...), sim.Options{Seed: 1})
	if quiet.Throttled == 0 {
		t.Fatal("no throttles")
	}
	is(t, "throttles_per_change of a change without throttles after it", quiet.ThrottlesPerChange, 0)
	near := run(t, parse(t, append(lines, "  changes: [{at: 9m, scale: 0.5}, {at: 25m, scale: 1}]")...), sim.Options{Seed: 1})
	is(t, "throttles_per_change of one throttle after one of two changes", near.ThrottlesPerChange, 0.5)
}

func TestStrangersAreHarmedByPushing(t *testing.T) {
	lines := []string{"horizon: 10m", "owner: {ceiling: %, initial: 1s}", "provider:", exact,
		"  limits: [{kind: token_bucket, rate: 10/s, burst: 5}]", "  strangers: {rate: 3/s}"}
	with := func(ceiling string) sim.Result {
		own := slices.Clone(lines)
		own[1] = strings.ReplaceAll(own[1], "%", ceiling)
		return run(t, parse(t, own...), sim.Options{Seed: 2})
	}
	pushy, polite := with("10ms"), with("1s")
	if pushy.StrangersHarm == nil || polite.StrangersHarm == nil || *pushy.StrangersHarm < 100 || *polite.StrangersHarm > 20 {
		t.Errorf("harm is %v and %v, want many and few", *pushy.StrangersHarm, *polite.StrangersHarm)
	}
	is(t, "goodput_ratio, which is capped", pushy.GoodputRatio, 1)
}

func TestFleetHoldsOneCeilingAndSharesFairly(t *testing.T) {
	lines := []string{"horizon: 1m", "clients: 4", "owner: {ceiling: 100ms, initial: 100ms}", "provider:", exact}
	alone := run(t, parse(t, lines...), sim.Options{Seed: 1})
	fleet := run(t, parse(t, append(lines, "fleet: true")...), sim.Options{Seed: 1})
	if alone.Admitted < 4*599 || fleet.Admitted < 599 || fleet.Admitted > 600 {
		t.Errorf("admitted %d alone and %d as a fleet, want 4 ceilings and 1", alone.Admitted, fleet.Admitted)
	}
	if *fleet.FairnessJain < 0.999 || *alone.FairnessJain < 0.999 || *fleet.GoodputRatio < 0.998 {
		t.Errorf("got %+v and %+v", alone, fleet)
	}
}

// Although its messages take time, a fleet is hardly slower than one process. It is refused
// no more often, is fair, and exceeds limits by no more than one process does, whatever
// happens to its server.
func TestFleetBesideOneProcess(t *testing.T) {
	const seeds = 3 // how often one run is refused, and what members learn without a server, depends on chance
	for _, clients := range []int{2, 4, 16} {
		// After a server has started without state there are a few more refusals.
		for faults, more := range map[string]float64{"": 0.5, ", faults: [{at: 3m, for: 40s, kind: away}, {at: 6m, for: 40s, kind: cut, clients: 1}]": 1} {
			refused, alone, goodput := 0.0, 0.0, 0.0
			for seed := range uint64(seeds) {
				r := run(t, parse(t, "horizon: 10m", fmt.Sprintf("clients: %d", clients), "fleet: {trip: 2ms"+faults+"}",
					"owner: {ceiling: 5ms, initial: 1s}", "workload: {max_in_flight: 16}", "provider:", "  latency: {p50: 50ms, p99: 200ms}",
					"  limits: [{kind: token_bucket, rate: 20/s, burst: 20}]", "  throttle: {retry_after: seconds}"), sim.Options{Law: control.DefaultLaw, Seed: seed + 1})
				f := r.Fleet
				if f == nil || f.Members != clients || f.MessagesPerS <= 0 {
					t.Fatalf("%d members%s: %+v", clients, faults, f)
				}
				refused, alone = refused+*r.ThrottledPer1000/seeds, alone+*f.Alone.ThrottledPer1000/seeds
				goodput += *r.GoodputRatio / *f.Alone.GoodputRatio / seeds
				if *r.FairnessJain < 0.98 || r.CeilingViolations > 0 || *f.Overshoot > *f.Alone.Overshoot+0.01 {
					t.Errorf("%d members%s, seed %d: Jain %v, %d over the ceiling, overshoot %v", clients, faults, seed+1, *r.FairnessJain, r.CeilingViolations, *f.Overshoot)
				}
			}
			if goodput < 0.95 {
				t.Errorf("%d members%s: %.3f of the goodput of one process, want 0.95", clients, faults, goodput)
			}
			if refused > alone+more {
				t.Errorf("%d members%s: %.2f refused per 1000, of one process %.2f", clients, faults, refused, alone)
			}
		}
	}
}

// What a fleet has learned outlives its server: a limit slower than the initial rate is known
// exactly afterwards, and nothing is sent while a block lasts that was known before.
func TestFleetKeepsWhatItKnowsWithoutAServer(t *testing.T) {
	for seed := range uint64(2) {
		with := func(lines ...string) *sim.Result {
			return new(run(t, parse(t, lines...), sim.Options{Law: control.DefaultLaw, Seed: seed}))
		}
		slow := with("horizon: 75m", "clients: 8", "fleet: {trip: 20ms, faults: [{at: 50m, for: 30s, kind: away}]}", "owner: {ceiling: 150ms, initial: 1s}",
			"workload: {kind: backlog, max_in_flight: 16}", "provider:", "  latency: {p50: 10ms, p99: 25ms}", "  limits: [{kind: token_bucket, rate: 40/min, burst: 200}]",
			"  throttle: {retry_after: seconds}", "  penalty: {base: 3s, factor: 2.6, max: 2m, forgive: 5m}")
		if *slow.GoodputRatio < 0.95**slow.Fleet.Alone.GoodputRatio {
			t.Errorf("seed %d, a slow limit: goodput %v, of one process %v", seed, *slow.GoodputRatio, *slow.Fleet.Alone.GoodputRatio)
		}
		blocked := with("horizon: 40m", "clients: 4", "fleet: {trip: 2ms, faults: [{at: 7m, for: 20s, kind: away}]}", "owner: {ceiling: 50ms, initial: 1s}",
			"workload: {kind: backlog, max_in_flight: 4}", "provider:", "  latency: {p50: 100ms, p99: 300ms}", "  limits: [{kind: fixed_window, limit: 1200, window: 10m}]")
		if blocked.Throttled > blocked.Fleet.Alone.Throttled+10 {
			t.Errorf("seed %d, a block: %d refused, of one process %d", seed, blocked.Throttled, blocked.Fleet.Alone.Throttled)
		}
	}
}

// The owner's ceiling holds for the sum of a fleet's members, while the server is away too.
func TestFleetHoldsItsCeilingWithoutAServer(t *testing.T) {
	r := run(t, parse(t, "horizon: 5m", "clients: 4", "fleet: {trip: 2ms, faults: [{at: 1m, for: 1m, kind: away}, {at: 3m, for: 1m, kind: cut, clients: 2}]}",
		"owner: {ceiling: 100ms, initial: 100ms}", "provider:", exact), sim.Options{Seed: 1})
	// Two attempts too many are possible: each time the server is lost after it has granted
	// a permit and before its message arrives.
	if *r.Fleet.Overshoot > 2.0/601 || *r.GoodputRatio < 0.9 || *r.FairnessJain < 0.98 {
		t.Errorf("overshoot %v, goodput %v, Jain %v", *r.Fleet.Overshoot, *r.GoodputRatio, *r.FairnessJain)
	}
}

func TestFleetKeepsEachMembersPlaces(t *testing.T) {
	// 3 members with one place each, 100 ms an answer: 30/s and not more.
	r := run(t, parse(t, "horizon: 1m", "clients: 3", "fleet: true", "owner: {ceiling: 1ms, initial: 1ms}",
		"workload: {max_in_flight: 1}", "provider:", exact), sim.Options{Seed: 1})
	if r.Admitted < 1700 || r.Admitted > 1800 {
		t.Errorf("admitted %d, want just under 1800", r.Admitted)
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, whole := range all {
		s := new(*whole)
		s.Horizon = min(s.Horizon, time.Duration(longtest.Size(1, 10))*time.Minute) // the golden files are of the whole
		one := jsonOf(t, run(t, s, sim.Options{Seed: 11}))
		if two := jsonOf(t, run(t, s, sim.Options{Seed: 11, Trace: true})); !bytes.Equal(one, two) {
			t.Errorf("%s: the same seed gave\n%s\nand\n%s", s.Name, one, two)
		}
		other := run(t, s, sim.Options{Seed: 12})
		other.Seed = 11
		if bytes.Equal(one, jsonOf(t, other)) {
			t.Errorf("%s: another seed gave the same figures", s.Name)
		}
	}
}

func TestResultHasItsFieldsInOrder(t *testing.T) {
	want := []string{"scenario", "law", "seed", "horizon_s", "attempts", "admitted", "throttled", "throttled_per_1000",
		"goodput_ratio", "time_to_90pct_s", "longest_block_s", "wait_p50_ms", "wait_p99_ms", "suspended",
		"throttles_per_change", "strangers_harm", "ceiling_violations", "fairness_jain", "belief"}
	d := json.NewDecoder(bytes.NewReader(jsonOf(t, sim.Result{})))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, key.(string))
		var value any
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestUnknownLawAndNoScenarioAreErrors(t *testing.T) {
	s := parse(t, "horizon: 1m")
	if _, err := sim.Run(s, sim.Options{Law: "fastest"}); err == nil || !strings.Contains(err.Error(), `law is "fastest", must be one of `+strings.Join(control.Names(), ", ")) {
		t.Errorf("got %v", err)
	}
	if _, err := sim.Run(nil, sim.Options{}); err == nil {
		t.Error("a run of nothing")
	}
	if _, err := sim.Compare([]*scenario.Scenario{s}, []string{"aimd", "fastest"}, 1); err == nil {
		t.Error("compared an unknown law")
	}
}

func TestNoWorkArrivesInAPause(t *testing.T) {
	for _, kind := range []string{"kind: backlog", "kind: open, rate: 5/s, burst: 7"} {
		s := parse(t, "horizon: 6h", "workload: {"+kind+", active: 1h, pause: 2h}", "provider:", "  limits: [{kind: token_bucket, rate: 1/s, burst: 10}]")
		oracle, err := sim.NewOracle(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		// Work that arrived before a pause may be sent in it. Of a backlog that is one
		// attempt.
		late := 0
		for _, at := range oracle.Admissions {
			if at%(3*time.Hour) > time.Hour+time.Second {
				late++
			}
		}
		r := run(t, s, sim.Options{Seed: 1})
		if kind == "kind: backlog" && (late > 0 || r.Admitted < 6900 || r.Admitted > 7260 || *r.GoodputRatio < 0.95) {
			t.Errorf("%s: %d of the oracle's %d admissions are in a pause; %+v", kind, late, len(oracle.Admissions), r)
		}
		if r.LongestBlockS > 60 {
			t.Errorf("%s: the longest block is %g s: a pause counts", kind, r.LongestBlockS)
		}
	}
}

func draw(t testing.TB, s *scenario.Scenario) (svg []byte, r sim.Result) {
	t.Helper()
	r = run(t, s, sim.Options{Seed: 1, Trace: true})
	var b bytes.Buffer
	if err := sim.WriteSVG(&b, r.Trace); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), r
}

// texts parses the picture as XML and returns the texts in it.
func texts(t testing.TB, svg []byte) (all []string) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("the picture is not XML: %v", err)
		}
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			all = append(all, string(text))
		}
	}
}

func TestPictureOfEveryScenario(t *testing.T) {
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, whole := range all {
		s := new(*whole)
		// A picture is as wide for a day as for ten minutes.
		s.Horizon = min(s.Horizon, time.Duration(longtest.Size(2, 24*60))*time.Minute)
		one, r := draw(t, s)
		var two bytes.Buffer
		if err := sim.WriteSVG(&two, r.Trace); err != nil || !bytes.Equal(one, two.Bytes()) {
			t.Errorf("%s: the same trace gave two pictures (%v)", s.Name, err)
		}
		written := strings.Join(texts(t, one), "\n")
		for _, want := range []string{s.Name + " under aimd", "seed 1", "admitted", "limit: what", "pace: what", "attempts a"} {
			if !strings.Contains(written, want) {
				t.Errorf("%s: the picture does not say %q", s.Name, want)
			}
		}
		for _, bad := range []string{"NaN", "Inf"} {
			if bytes.Contains(one, []byte(bad)) {
				t.Errorf("%s: the picture has a %s", s.Name, bad)
			}
		}
		var sum sim.Step
		for _, step := range r.Trace.Steps {
			sum.Admitted += step.Admitted
			sum.Throttled += step.Throttled
		}
		if sum.Admitted != r.Admitted || sum.Throttled != r.Throttled {
			t.Errorf("%s: the steps hold %d and %d, the run %d and %d", s.Name, sum.Admitted, sum.Throttled, r.Admitted, r.Throttled)
		}
	}
}

func TestPictureNamesChangesFaultsAndUnits(t *testing.T) {
	svg, _ := draw(t, parse(t, "horizon: 24h", "owner: {ceiling: 1h, initial: 1h}", "provider:", exact,
		"  throttle: {status: 403}", "  changes: [{at: 6h, scale: 0.5}]",
		"  faults: [{at: 1h, for: 1h, kind: outage}, {at: 2h, for: 1h, kind: slow}]"))
	written := texts(t, svg)
	for _, want := range []string{"limits x 0.5", "outage", "slow", "hours", "attempts an hour", "403", "no throttles"} {
		if !strings.Contains("\n"+strings.Join(written, "\n")+"\n", "\n"+want+"\n") {
			t.Errorf("the picture does not say %q in %q", want, written)
		}
	}
}

func TestPictureOfARunInWhichNothingHappens(t *testing.T) {
	svg, _ := draw(t, parse(t, "horizon: 1s", "workload: {kind: open, rate: 1/day}", "provider:", exact))
	texts(t, svg)
	if bytes.Contains(svg, []byte("NaN")) {
		t.Error("the picture has a NaN")
	}
}

func TestTracePaceIsTheIntervalAsARate(t *testing.T) {
	r := run(t, parse(t, "horizon: 1m", "clients: 2", "owner: {ceiling: 200ms, initial: 200ms}", "provider:", exact),
		sim.Options{Seed: 1, Trace: true})
	for i, s := range r.Trace.Steps {
		if math.Abs(s.Pace-10) > 1e-9 {
			t.Fatalf("step %d: pace is %v/s, want two clients' 5/s", i, s.Pace)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWritersTellOfErrors(t *testing.T) {
	r := run(t, parse(t, "horizon: 1m"), sim.Options{Trace: true})
	if err := sim.WriteSVG(broken{}, r.Trace); err == nil {
		t.Error("WriteSVG hid the error")
	}
	if err := sim.WriteTable(broken{}, []sim.Result{r}); err == nil {
		t.Error("WriteTable hid the error")
	}
}
