package arena

import (
	"errors"
	"fmt"
	"math"
	"net/http"
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
