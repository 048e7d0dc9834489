package provider_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// draw makes a provider with up to three limits and with anything that may affect them.
func draw(t *rapid.T, kinds ...string) *scenario.Scenario {
	var b strings.Builder
	b.WriteString("name: drawn\nhorizon: 24h\nprovider:\n  limits:\n")
	for range rapid.IntRange(1, 3).Draw(t, "limits") {
		n := rapid.IntRange(1, 8).Draw(t, "limit")
		w := rapid.IntRange(1, 5000).Draw(t, "window_ms")
		switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
		case "token_bucket":
			fmt.Fprintf(&b, "    - {kind: token_bucket, rate: %d/min, burst: %d}\n", rapid.IntRange(10, 3000).Draw(t, "rate"), n)
		case "epoch", "first":
			fmt.Fprintf(&b, "    - {kind: fixed_window, limit: %d, window: %dms, align: %s}\n", n, w, kind)
		case "busy_time":
			fmt.Fprintf(&b, "    - {kind: busy_time, limit: %ds, window: %dms}\n", n, w)
		case "concurrency":
			fmt.Fprintf(&b, "    - {kind: concurrency, limit: %d}\n", n)
		case "slowdown":
			fmt.Fprintf(&b, "    - {kind: slowdown, knee: %d/s, factor: 3}\n", n)
		default:
			fmt.Fprintf(&b, "    - {kind: %s, limit: %d, window: %dms}\n", kind, n, w)
		}
	}
	fmt.Fprintf(&b, "  throttle: {counts_rejected: %v, retry_after: %s}\n", rapid.Bool().Draw(t, "counts"),
		rapid.SampledFrom([]string{"exact", "seconds", "ms", "http_date"}).Draw(t, "style"))
	if rapid.Bool().Draw(t, "penalty") {
		b.WriteString("  penalty: {base: 100ms, factor: 1.5, max: 1s, forgive: 2s}\n")
	}
	if rapid.Bool().Draw(t, "strangers") {
		b.WriteString("  strangers: {rate: 5/s}\n")
	}
	if rapid.Bool().Draw(t, "faults") {
		b.WriteString("  faults: [{at: 1s, for: 500ms, kind: outage}, {at: 1400ms, for: 1s, kind: reset}, {at: 3s, for: 1s, kind: slow}]\n")
	}
	s, err := scenario.Parse("drawn.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var everyKind = []string{"token_bucket", "epoch", "first", "sliding_window", "concurrency", "cost_window", "busy_time", "slowdown"}

func newModel(t *rapid.T, s *scenario.Scenario) *provider.Model {
	m, err := provider.New(s, rapid.Uint64().Draw(t, "seed"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// call is one drawn attempt.
type call struct {
	at   time.Duration
	cost float64
	busy time.Duration
}

func calls(t *rapid.T) []call {
	var at time.Duration
	list := make([]call, rapid.IntRange(1, 120).Draw(t, "calls"))
	for i := range list {
		at += time.Duration(rapid.IntRange(0, 300).Draw(t, "gap")) * ms
		list[i] = call{
			at:   at,
			cost: float64(rapid.IntRange(1, 6000).Draw(t, "cost")) / 1000,
			busy: time.Duration(rapid.IntRange(0, 4000).Draw(t, "busy")) * ms,
		}
	}
	return list
}

// TestNeverMoreThanTheLimit replays what was admitted and counts it against the limits of
// the scenario. Strangers are left out: they would only use up capacity.
func TestNeverMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t, everyKind...)
		m := newModel(t, s)
		var in []call
		for _, c := range calls(t) {
			if v := m.Arrive(c.at, 0, c.cost, c.busy); v.Admitted {
				in = append(in, call{c.at, c.cost, provider.Slowed(c.busy, v.Slow)})
			}
		}
		for _, l := range s.Provider.Limits {
			check(t, l, in)
		}
	})
}

func check(t *rapid.T, l scenario.Limit, in []call) {
	for i, first := range in {
		window, last := 0, i
		for j := i; j < len(in) && in[j].at < first.at+l.Window; j++ {
			window, last = j-i+1, j
		}
		switch l.Kind {
		case scenario.SlidingWindow:
			if window > l.Count {
				t.Fatalf("%s: %d within a window from %s", l, window, first.at)
			}
		case scenario.FixedWindow:
			if l.Align == scenario.AlignFirst {
				break
			}
			same := 0
			for _, c := range in {
				if c.at/l.Window == first.at/l.Window {
					same++
				}
			}
			if same > l.Count {
				t.Fatalf("%s: %d within the window of %s", l, same, first.at)
			}
		case scenario.TokenBucket:
			for j := i; j < len(in); j++ {
				most := l.Rate.PerSecond()*(in[j].at-first.at).Seconds() + float64(l.Burst)
				if float64(j-i+1) > most+1e-6 {
					t.Fatalf("%s: %d between %s and %s", l, j-i+1, first.at, in[j].at)
				}
			}
		case scenario.CostWindow:
			sum := 0.0
			for _, c := range in[i : last+1] {
				sum += min(c.cost, l.Units)
			}
			if sum > l.Units+1e-9 {
				t.Fatalf("%s: %g within a window from %s", l, sum, first.at)
			}
		case scenario.Concurrency:
			under := 0
			for _, c := range in[:i+1] {
				if c.at+c.busy > first.at || c == first {
					under++
				}
			}
			if under > l.Count && first.busy > 0 {
				t.Fatalf("%s: %d under way at %s", l, under, first.at)
			}
		case scenario.BusyTime, scenario.Slowdown:
		}
	}
}

// TestFirstAlignedWindows replays windows that begin with a request.
func TestFirstAlignedWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t, "first")
		s.Provider.Limits = s.Provider.Limits[:1]
		s.Provider.Penalty, s.Provider.Faults, s.Provider.Strangers = nil, nil, nil
		m := newModel(t, s)
		l := s.Provider.Limits[0]
		end, used := time.Duration(-1), 0
		for _, c := range calls(t) {
			if c.at >= end {
				end, used = c.at+l.Window, 0
			}
			want := used < l.Count
			used++
			if got := m.Arrive(c.at, 0, c.cost, c.busy).Admitted; got != want {
				t.Fatalf("%s: at %s admitted %v, want %v", l, c.at, got, want)
			}
		}
	})
}

// TestFreeAgreesWithArrive: just before the instant that Free gives the attempt
// is refused, at that instant it is admitted.
func TestFreeAgreesWithArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t, everyKind...)
		s.Provider.Strangers = nil // those to come are unknown to Free
		m := newModel(t, s)
		for _, c := range calls(t) {
			at := m.Free(c.at, c.cost, c.busy)
			if at < c.at {
				t.Fatalf("free at %s, before %s", at, c.at)
			}
			if v := m.Clone().Arrive(at, 0, c.cost, c.busy); !v.Admitted {
				t.Fatalf("refused by %q at %s, when it was to be free", v.Limit, at)
			}
			if at > c.at {
				if v := m.Clone().Arrive(at-1, 0, c.cost, c.busy); v.Admitted {
					t.Fatalf("admitted just before %s, when it was to be free", at)
				}
			}
			m.Arrive(c.at, 0, c.cost, c.busy)
		}
	})
}

// TestRetryAfterIsEnough: a client that waits as advertised, alone, is admitted.
func TestRetryAfterIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t, everyKind...)
		s.Provider.Strangers, s.Provider.Faults = nil, nil
		m := newModel(t, s)
		for _, c := range calls(t) {
			v := m.Arrive(c.at, 0, c.cost, c.busy)
			if v.Admitted {
				continue
			}
			if again := m.Clone().Arrive(c.at+v.RetryAfter, 0, c.cost, c.busy); !again.Admitted {
				t.Fatalf("refused by %q at %s after the advertised wait of %s", again.Limit, c.at, v.RetryAfter)
			}
		}
	})
}

// TestClonesAndRunsAgree: a clone goes on as the model itself does, whatever
// happens to other clones, and the same seed gives the same run.
func TestClonesAndRunsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t, everyKind...)
		seed := rapid.Uint64().Draw(t, "seed")
		run := func(cut int, list []call) []provider.Verdict {
			m, err := provider.New(s, seed)
			if err != nil {
				t.Fatal(err)
			}
			var got []provider.Verdict
			for i, c := range list {
				if i == cut {
					other := m.Clone()
					m = m.Clone()
					for range 20 {
						other.Arrive(c.at+time.Second, 0, 100, time.Hour)
					}
				}
				got = append(got, m.Arrive(c.at, 0, c.cost, c.busy))
			}
			return got
		}
		list := calls(t)
		plain := run(-1, list)
		cut := run(rapid.IntRange(0, len(list)-1).Draw(t, "cut"), list)
		if !slices.Equal(plain, cut) {
			t.Fatal("a clone went another way than the model")
		}
	})
}

func TestStrangersAreTheSameWhateverClientsDo(t *testing.T) {
	s := parse(t, `
  limits: [{kind: token_bucket, rate: 10/s, burst: 10}]
  strangers: {rate: 8/s}
  changes: [{at: 30m, scale: 0.5}]`)
	alone, err := provider.New(s, 7)
	if err != nil {
		t.Fatal(err)
	}
	beside := alone.Clone()
	for at := time.Duration(0); at <= time.Hour; at += 200 * ms {
		beside.Arrive(at, 0, 1, 0)
		if at%time.Second == 0 {
			alone.Advance(at)
			if alone.NextStranger() != beside.NextStranger() {
				t.Fatalf("at %s the strangers went apart", at)
			}
		}
	}
	a, b := alone.Strangers(), beside.Strangers()
	total := a.Admitted + a.Throttled
	if total != b.Admitted+b.Throttled {
		t.Errorf("%d strangers alone, %d beside a client", total, b.Admitted+b.Throttled)
	}
	if a.Throttled >= b.Throttled {
		t.Errorf("%d strangers refused alone, %d beside a client that takes their room", a.Throttled, b.Throttled)
	}
	if want := 8 * 3600.0; math.Abs(float64(total)-want) > 5*math.Sqrt(want) {
		t.Errorf("%d strangers in an hour, want about %g", total, want)
	}
}
