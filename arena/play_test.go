package arena

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
)

func parse(t *testing.T, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func oracleOf(t *testing.T, s *scenario.Scenario) *sim.Oracle {
	t.Helper()
	o, err := sim.NewOracle(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// counted is a rival whose attempts and answers are counted on its own side of
// the wire.
type counted struct {
	sent, ok, throttled, other, lost atomic.Int64
}

func (c *counted) watch(r Rival) Rival {
	inner := r.New
	r.New = func(s *scenario.Scenario, wire http.RoundTripper) Sender {
		return inner(s, watcher{c, wire})
	}
	return r
}

type watcher struct {
	*counted
	wire http.RoundTripper
}

func (w watcher) RoundTrip(req *http.Request) (*http.Response, error) {
	w.sent.Add(1)
	resp, err := w.wire.RoundTrip(req)
	switch {
	case err != nil:
		w.lost.Add(1) // on the way when the run ended
	case resp.StatusCode == http.StatusOK:
		w.ok.Add(1)
	case resp.StatusCode == http.StatusTooManyRequests:
		w.throttled.Add(1)
	default:
		w.other.Add(1)
	}
	return resp, err
}

const tiny = `
name: tiny
horizon: 1m
owner: {ceiling: 10ms, initial: 1s}
workload: {max_in_flight: 16}
provider:
  latency: {p50: 50ms, p99: 150ms}
  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]
`

func TestBothSidesCountTheSame(t *testing.T) {
	s := parse(t, tiny)
	oracle := oracleOf(t, s)
	for _, r := range Rivals() {
		t.Run(r.Name, func(t *testing.T) {
			var own counted
			began := time.Now()
			e := Play(t, s, 1, own.watch(r), oracle, 10*Most)
			if real := time.Since(began); real > s.Horizon/2 {
				t.Errorf("a minute took %v: the run is not in virtual time", real)
			}
			if got := own.ok.Load(); got != e.Admitted || e.Counts.Admitted != e.Admitted {
				t.Errorf("the rival has %d admitted, the model %d, the ledger %d", got, e.Counts.Admitted, e.Admitted)
			}
			if got := own.throttled.Load(); got != e.Throttled || e.Counts.Throttled != e.Throttled {
				t.Errorf("the rival has %d throttled, the model %d, the ledger %d", got, e.Counts.Throttled, e.Throttled)
			}
			if got := own.ok.Load() + own.throttled.Load() + own.other.Load(); got != e.Attempts {
				t.Errorf("the rival has had %d answers, the model gave %d", got, e.Attempts)
			}
			if late := own.sent.Load() - e.Attempts; late != own.lost.Load() || late > 2*16 {
				t.Errorf("%d attempts did not arrive, %d are known to the rival, at most %d can have been on the way", late, own.lost.Load(), 2*16)
			}
			if e.Admitted == 0 || e.Cut != 0 || e.Spins != 0 {
				t.Errorf("admitted %d, cut at %v, spins %d", e.Admitted, e.Cut, e.Spins)
			}
		})
	}
}

const refuses = `
name: refuses
horizon: 40s
owner: {ceiling: 10ms, initial: 1s}
workload: {max_in_flight: 16}
provider:
  latency: {p50: 50ms, p99: 150ms}
  limits: [{kind: fixed_window, limit: %d, window: 1h}]
`

// TestRivalsSlowDownAsTheyAreKnownTo compares how often rivals send to a provider
// that refuses nothing and to one that soon refuses everything. A law that judges
// by latency alone takes a refusal for a fast answer and sends more.
func TestRivalsSlowDownAsTheyAreKnownTo(t *testing.T) {
	free, full := parse(t, fmt.Sprintf(refuses, 1_000_000)), parse(t, fmt.Sprintf(refuses, 50))
	slower := map[string]bool{
		"aws-adaptive": true, "failsafe-adaptive": true, "failsafe-rate": true, "retryablehttp": true,
		"scrapy-autothrottle": true, "atb": true,
		// Even with one in flight it sends as fast as refusals come back.
		"vegas": false, "gradient2": false,
	}
	for _, r := range Rivals() {
		if r.Origin == Cheat {
			continue // TestACheatHoldsItsNumber
		}
		t.Run(r.Name, func(t *testing.T) {
			want, known := slower[r.Name]
			a := Play(t, free, 1, r, oracleOf(t, free), Most)
			b := Play(t, full, 1, r, oracleOf(t, full), Most)
			if got := 10*b.Attempts < 7*a.Attempts; !known || got != want {
				t.Errorf("%d attempts when nothing is refused, %d when everything is: slower %v", a.Attempts, b.Attempts, got)
			}
		})
	}
}

func TestACheatHoldsItsNumber(t *testing.T) {
	s := parse(t, tiny)
	for name, want := range map[string]float64{"x-time-rate": 300, "x-time-rate-half": 150} {
		for _, r := range Rivals() {
			if r.Name != name {
				continue
			}
			if e := Play(t, s, 1, r, oracleOf(t, s), Most); math.Abs(float64(e.Attempts)-want) > 2 || e.Throttled > 0 {
				t.Errorf("%s made %d attempts and had %d throttled in a minute, want %g and none", name, e.Attempts, e.Throttled, want)
			}
		}
	}
}

func TestARunThatHammersIsCut(t *testing.T) {
	s := parse(t, fmt.Sprintf(refuses, 50))
	for _, r := range Rivals() {
		if r.Name != "gradient2" {
			continue
		}
		e := Play(t, s, 1, r, oracleOf(t, s), 1000)
		if e.Throttled != 1000 || e.Cut <= 0 || e.Cut >= s.Horizon || e.HorizonS != math.Round(1000*e.Cut.Seconds())/1000 {
			t.Errorf("%d throttled, cut at %v, horizon %g s; want 1000 and figures up to the cut", e.Throttled, e.Cut, e.HorizonS)
		}
		if e.GoodputRatio == nil || *e.GoodputRatio < 0.99 {
			t.Errorf("goodput %v: the oracle should be cut at the same instant", e.GoodputRatio)
		}
	}
}

// failing gives up at once, without sending.
type failing struct{}

func (failing) Send(*http.Request) (*http.Response, error) { return nil, errors.New("no") }

func TestAnAttemptThatTakesNoTimeIsCharged(t *testing.T) {
	s := parse(t, tiny)
	r := Rival{Name: "failing", New: func(*scenario.Scenario, http.RoundTripper) Sender { return failing{} }}
	e := Play(t, s, 1, r, oracleOf(t, s), 1000)
	if e.Spins != 1000 || e.Attempts != 0 || e.Cut < 1000/16*Spin || e.Cut > 1000*Spin {
		t.Errorf("%d spins, %d attempts, cut at %v", e.Spins, e.Attempts, e.Cut)
	}
}

func TestOpenWorkAndFleets(t *testing.T) {
	const text = `
name: open
horizon: 5m
clients: 2
fleet: %v
owner: {ceiling: 10ms, initial: 1s}
workload: {kind: open, rate: 2/s, max_in_flight: 4}
provider:
  latency: {p50: 50ms, p99: 150ms}
  limits: [{kind: token_bucket, rate: 10/s, burst: 10}]
`
	made := 0
	r := timeRate("plain", 1)
	inner := r.New
	r.New = func(s *scenario.Scenario, wire http.RoundTripper) Sender {
		made++
		return inner(s, wire)
	}
	for fleet, want := range map[bool]int{false: 2, true: 1} {
		s := parse(t, fmt.Sprintf(text, fleet))
		made = 0
		e := Play(t, s, 1, r, oracleOf(t, s), Most)
		if made != want {
			t.Errorf("fleet %v: %d rivals were made for two clients, want %d", fleet, made, want)
		}
		if e.GoodputRatio == nil || *e.GoodputRatio < 0.99 || e.Admitted < 1000 || e.Admitted > 1400 {
			t.Errorf("fleet %v: admitted %d, goodput %v of about 1200 arrivals", fleet, e.Admitted, e.GoodputRatio)
		}
		if e.LongestBlockS > 10 {
			t.Errorf("fleet %v: a block of %g s: idling was taken for one", fleet, e.LongestBlockS)
		}
	}
}

func TestASuspensionEndsTheRun(t *testing.T) {
	s := parse(t, tiny+"  suspend: {throttles: 20, within: 1m}\n")
	for _, r := range Rivals() {
		if r.Name != "gradient2" {
			continue
		}
		e := Play(t, s, 1, r, oracleOf(t, s), Most)
		if !e.Suspended || e.Cut != 0 || e.HorizonS != 60 || e.Throttled != 20 {
			t.Errorf("suspended %v, cut at %v, horizon %g s, %d throttled", e.Suspended, e.Cut, e.HorizonS, e.Throttled)
		}
	}
}

// TestTheSameSeedIsNearlyTheSameRun: what is left is a rival's own jitter, and the
// order of what happens in one nanosecond.
func TestTheSameSeedIsNearlyTheSameRun(t *testing.T) {
	s := parse(t, tiny)
	for _, r := range Rivals() {
		a, b := Play(t, s, 1, r, oracleOf(t, s), 1000), Play(t, s, 1, r, oracleOf(t, s), 1000)
		if math.Abs(*a.GoodputRatio-*b.GoodputRatio) > 0.05 || math.Abs(float64(a.Throttled-b.Throttled)) > 10+0.2*float64(a.Throttled) {
			t.Errorf("%s: goodput %g and %d throttled, then %g and %d", r.Name, *a.GoodputRatio, a.Throttled, *b.GoodputRatio, b.Throttled)
		}
	}
}

// won is a field in which law "ours" meets every target, over the rehearsals.
func won(t *testing.T) *Field {
	t.Helper()
	f := &Field{
		Seeds: []uint64{1}, RivalSeeds: []uint64{1}, Laws: []string{"ours"},
		Rivals:    []Rival{{Name: "theirs", Origin: OwnCode}, {Name: "given", Origin: Cheat}},
		Scenarios: rehearsals(t), Frontiers: make(map[string]Frontier),
	}
	for _, s := range f.Scenarios {
		f.Put(s, "ours", []Entry{entry(s, 0.98, 1)})
		f.Put(s, "theirs", []Entry{entry(s, 0.95, 20)})
		f.Put(s, "given", []Entry{entry(s, 1, 0)})
		if Inherent(s) {
			f.Frontiers[s.Name] = Frontier{{Goodput: 0.9, Per1000: 0.1}, {Goodput: 0.99, Per1000: 5}}
		}
	}
	return f
}

// entry is a run with 1000 admitted for each throttle per 1000.
func entry(s *scenario.Scenario, goodput, per1000 float64) Entry {
	e := Entry{Result: sim.Result{GoodputRatio: new(goodput), Admitted: 10_000, Throttled: int64(10 * per1000)}}
	if len(s.Provider.Changes) > 0 {
		e.ThrottlesPerChange = new(3.0)
	}
	if s.Clients > 1 {
		e.FairnessJain = new(0.99)
	}
	return e
}

func TestAVerdictCanBeWon(t *testing.T) {
	v := Judge(won(t), "ours")
	if v.Met() != len(v.Targets) {
		t.Errorf("%d of %d targets met:\n%s", v.Met(), len(v.Targets), v)
	}
}

func TestEveryTargetCanBeMissed(t *testing.T) {
	const bucket, ban, clients = 0, 2, 3
	change := func(i int, who string, change func(*Entry)) func(*Field) {
		return func(f *Field) {
			s := f.Scenarios[i]
			e := entry(s, 0.98, 1)
			if who == "theirs" {
				e = entry(s, 0.95, 20)
			}
			change(&e)
			f.Put(s, who, []Entry{e})
		}
	}
	for what, spoil := range map[string]func(*Field){
		"mean goodput":          change(bucket, "ours", func(e *Entry) { e.GoodputRatio = new(0.8) }),
		"mean throttled":        change(bucket, "ours", func(e *Entry) { e.Throttled = 20 }),
		"goodput >= 0.9 ":       change(bucket, "ours", func(e *Entry) { e.GoodputRatio = new(0.89) }),
		"throttled per 1000":    change(bucket, "ours", func(e *Entry) { e.Throttled = 31 }),
		"burst 1 and strangers": change(clients, "ours", func(e *Entry) { e.GoodputRatio = new(0.88) }),
		"under a ban":           change(ban, "ours", func(e *Entry) { e.GoodputRatio = new(0.84) }),
		"never suspended":       change(ban, "ours", func(e *Entry) { e.Suspended = true }),
		"each change":           change(bucket, "ours", func(e *Entry) { e.ThrottlesPerChange = new(5.5) }),
		"Jain":                  change(clients, "ours", func(e *Entry) { e.FairnessJain = new(0.9) }),
		"ceiling":               change(bucket, "ours", func(e *Entry) { e.CeilingViolations = 1 }),
		"no rival has":          change(bucket, "theirs", func(e *Entry) { e.GoodputRatio, e.Throttled = new(0.99), 9 }),
		"in the means, throttles": func(f *Field) {
			for _, s := range f.Scenarios {
				f.Put(s, "theirs", []Entry{entry(s, 0.95, 9)})
			}
		},
	} {
		f := won(t)
		spoil(f)
		missed := false
		for _, target := range Judge(f, "ours").Targets {
			if strings.Contains(target.What, what) && !target.Met {
				missed = true
			}
		}
		if !missed {
			t.Errorf("target %q was met all the same:\n%s", what, Judge(f, "ours"))
		}
	}
}

func TestFewThrottlesAreEnoughWhereFewAreAdmitted(t *testing.T) {
	f := won(t)
	e := entry(f.Scenarios[0], 0.98, 0)
	e.Admitted, e.Throttled = 100, 8
	f.Put(f.Scenarios[0], "ours", []Entry{e})
	for _, target := range Judge(f, "ours").Targets {
		if strings.HasPrefix(target.What, "throttled per 1000") && !target.Met {
			t.Errorf("8 throttles of 100 admitted: %s", target.Figure)
		}
	}
}

func TestATargetThatNothingWasHeldAgainstIsMissed(t *testing.T) {
	f := won(t)
	f.Scenarios = f.Scenarios[:1] // no ban, no strangers
	missed := 0
	for _, target := range Judge(f, "ours").Targets {
		if strings.Contains(target.Figure, "no such scenario") && !target.Met {
			missed++
		}
	}
	if missed != 3 {
		t.Errorf("%d targets without a scenario were missed, want frontier, ban and fairness", missed)
	}
}

func TestTheBestLawMeetsMostTargets(t *testing.T) {
	f := won(t)
	f.Laws = []string{"worse", "ours"}
	for _, s := range f.Scenarios {
		f.Put(s, "worse", []Entry{entry(s, 0.5, 1)})
	}
	if v := Best(f); v.Law != "ours" {
		t.Errorf("the best law is %q", v.Law)
	}
}

func TestFrontierIsTheMostAtALevelOfThrottles(t *testing.T) {
	f := Frontier{
		{Goodput: 0.5, Per1000: 0}, {Goodput: 0.8, Per1000: 0}, {Goodput: 0.9, Per1000: 2},
		{Goodput: 0.85, Per1000: 3}, {Goodput: 1, Per1000: 6},
	}
	for level, want := range map[float64]float64{0: 0.8, 1: 0.85, 2: 0.9, 4: 0.95, 6: 1, 100: 1} {
		if got := f.At(level); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %g per 1000 it is %g, want %g", level, got, want)
		}
	}
}

func TestConstantPacingDrawsTheFrontier(t *testing.T) {
	s := parse(t, strings.Replace(tiny, "burst: 5", "burst: 1", 1))
	f, err := Draw(s, []uint64{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if slow := f[0]; slow.Goodput < 0.35 || slow.Goodput > 0.45 || slow.Per1000 != 0 {
		t.Errorf("at %g of the right rate: %+v", slow.Part, slow)
	}
	if fast := f[len(f)-1]; fast.Per1000 < 100 {
		t.Errorf("at %g of the right rate only %g per 1000 are throttled", fast.Part, fast.Per1000)
	}
}

func TestRightRate(t *testing.T) {
	for name, c := range map[string]struct {
		provider string
		want     float64
	}{
		"the tightest limit":         {"  limits: [{kind: token_bucket, rate: 9/s}, {kind: fixed_window, limit: 120, window: 1m}]", 2},
		"less the strangers":         {"  limits: [{kind: token_bucket, rate: 9/s}]\n  strangers: {rate: 4/s}", 5},
		"no faster than the ceiling": {"  limits: [{kind: token_bucket, rate: 900/s}]", 100},
		"cost":                       {"  limits: [{kind: cost_window, limit: 60, window: 1m}]", 1},
		"concurrency":                {"  latency: {p50: 100ms, uplink_p50: 10ms, uplink_p99: 10ms}\n  limits: [{kind: concurrency, limit: 4}]", 50},
		"busy time":                  {"  latency: {p50: 100ms, uplink_p50: 10ms, uplink_p99: 10ms}\n  limits: [{kind: busy_time, limit: 8s, window: 10s}]", 10},
	} {
		s := parse(t, "name: x\nowner: {ceiling: 10ms}\nprovider:\n"+c.provider+"\n")
		if got := RightRate(s); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %g a second, want %g", name, got, c.want)
		}
	}
	if s := parse(t, tiny); busyTime(s.Provider.Latency) < float64(30*time.Millisecond) {
		t.Error("a request keeps the provider busy for less than it can")
	}
}

func TestVersionsAreThoseOfGoMod(t *testing.T) {
	for _, r := range Rivals() {
		if v := r.Version(); r.Origin == Described && v != "-" || r.Origin != Described && !strings.ContainsAny(v, ".") {
			t.Errorf("%s is of version %q", r.Name, v)
		}
	}
	if v := (Rival{Module: "example.com/none"}).Version(); v != "unknown" {
		t.Errorf("a module that is not required has version %q", v)
	}
}
