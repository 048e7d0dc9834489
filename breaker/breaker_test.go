package breaker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/breaker"
)

const sec = time.Second

func resolved(t testing.TB, c breaker.Config) *breaker.Config {
	t.Helper()
	c, err := c.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

// attempt admits and settles at one instant.
func attempt(b *breaker.Breaker, c *breaker.Config, at time.Duration, r breaker.Result) (ok bool, moves []string) {
	t, ok, m := b.Admit(c, at)
	moves = note(moves, m)
	if ok {
		moves = note(moves, b.Settle(c, at, t, r))
	}
	return ok, moves
}

func note(moves []string, m breaker.Transition) []string {
	if m.Moved() {
		moves = append(moves, fmt.Sprintf("%v>%v:%v", m.From, m.To, m.Trigger))
	}
	return moves
}

func TestMoves(t *testing.T) {
	type call struct {
		at    time.Duration
		r     breaker.Result
		ok    bool
		moves string
	}
	const s, f, n = breaker.Success, breaker.Failure, breaker.Neutral
	tests := []struct {
		name  string
		calls []call
	}{
		{"a cold start cannot open it", []call{
			{0, f, true, ""}, {0, f, true, ""}, {0, f, true, ""}, {0, f, true, ""},
		}},
		{"five failures open it for 60 s, a good probe closes it", []call{
			{0, f, true, ""}, {0, f, true, ""}, {0, f, true, ""}, {0, f, true, ""},
			{10 * sec, f, true, "closed>open:failure_ratio"},
			{10 * sec, s, false, ""},
			{70*sec - 1, s, false, ""},
			{70 * sec, s, true, "open>half_open:open_elapsed half_open>closed:probe_succeeded"},
			{70 * sec, f, true, ""},
		}},
		{"a bad probe opens it for another 60 s", []call{
			{0, f, true, ""}, {0, f, true, ""}, {0, f, true, ""}, {0, f, true, ""},
			{0, f, true, "closed>open:failure_ratio"},
			{61 * sec, f, true, "open>half_open:open_elapsed half_open>open:probe_failed"},
			{120 * sec, s, false, ""},
			{121 * sec, s, true, "open>half_open:open_elapsed half_open>closed:probe_succeeded"},
		}},
		{"under half of ten does not open it, half does", []call{
			{0, s, true, ""}, {0, f, true, ""}, {0, s, true, ""}, {0, f, true, ""}, {0, s, true, ""},
			{0, f, true, "closed>open:failure_ratio"},
		}},
		{"old outcomes leave the window", []call{
			{0, f, true, ""}, {0, s, true, ""}, {0, s, true, ""}, {0, s, true, ""}, {0, s, true, ""},
			{0, s, true, ""}, {0, s, true, ""}, {0, s, true, ""}, {0, s, true, ""}, {0, s, true, ""},
			{0, s, true, ""}, {0, f, true, ""}, {0, f, true, ""}, {0, f, true, ""}, {0, f, true, ""}, // 4 of 10
			{0, f, true, "closed>open:failure_ratio"},
		}},
		{"a success never opens it", []call{
			{0, f, true, ""}, {0, f, true, ""}, {0, f, true, ""}, {0, f, true, ""},
			{0, s, true, ""}, // 4 of 5 failed
			{0, f, true, "closed>open:failure_ratio"},
		}},
		{"neutral outcomes count for nothing", []call{
			{0, n, true, ""}, {0, n, true, ""}, {0, n, true, ""}, {0, n, true, ""}, {0, n, true, ""},
			{0, f, true, ""}, {0, n, true, ""}, {0, f, true, ""},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b breaker.Breaker
			c := resolved(t, breaker.Config{})
			for i, call := range tt.calls {
				ok, moves := attempt(&b, c, call.at, call.r)
				if got := strings.Join(moves, " "); ok != call.ok || got != call.moves {
					t.Fatalf("call %d: got (%v, %q), want (%v, %q)", i, ok, got, call.ok, call.moves)
				}
			}
		})
	}
}

func TestConfigBounds(t *testing.T) {
	whole := breaker.Config{Ratio: 0.5, Window: 10, Minimum: 5, OpenFor: time.Minute, Probes: 1}
	for _, tt := range []struct{ in, want breaker.Config }{
		{breaker.Config{}, whole},
		{breaker.Config{Window: 3}, breaker.Config{Ratio: 0.5, Window: 3, Minimum: 3, OpenFor: time.Minute, Probes: 1}},
		{breaker.Config{Ratio: 1, Window: 1, Minimum: 1, OpenFor: 1, Probes: 1}, breaker.Config{Ratio: 1, Window: 1, Minimum: 1, OpenFor: 1, Probes: 1}},
		{breaker.Config{Ratio: 1e-9, Window: 64, Minimum: 64, OpenFor: 1, Probes: 255}, breaker.Config{Ratio: 1e-9, Window: 64, Minimum: 64, OpenFor: 1, Probes: 255}},
	} {
		if got, err := tt.in.Resolve(); err != nil || got != tt.want {
			t.Errorf("%+v: %+v, %v; want %+v", tt.in, got, err, tt.want)
		}
	}
	for name, change := range map[string]func(*breaker.Config){
		"ratio below":   func(c *breaker.Config) { c.Ratio = -0.1 },
		"ratio above":   func(c *breaker.Config) { c.Ratio = 1.1 },
		"window below":  func(c *breaker.Config) { c.Window, c.Minimum = -1, -1 },
		"window above":  func(c *breaker.Config) { c.Window = 65 },
		"minimum below": func(c *breaker.Config) { c.Minimum = -1 },
		"minimum above": func(c *breaker.Config) { c.Minimum = 11 },
		"open below":    func(c *breaker.Config) { c.OpenFor = -1 },
		"probes below":  func(c *breaker.Config) { c.Probes = -1 },
		"probes above":  func(c *breaker.Config) { c.Probes = 256 },
	} {
		c := whole
		change(&c)
		field, _, _ := strings.Cut(name, " ")
		if got, err := c.Resolve(); err == nil || !strings.HasPrefix(err.Error(), "breaker: "+field) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestReadyOnlyAfterOpening(t *testing.T) {
	var b breaker.Breaker
	c := resolved(t, breaker.Config{Minimum: 1})
	if got := b.ReadyAt(c); got != 0 {
		t.Errorf("closed: ready at %v, want 0", got)
	}
	attempt(&b, c, sec, breaker.Failure)
	if got := b.ReadyAt(c); got != 61*sec {
		t.Errorf("open: ready at %v, want 61s", got)
	}
}

// A neutral outcome in the closed state is not an outcome: the share stays as it was.
func TestNeutralLeavesTheWindow(t *testing.T) {
	var b breaker.Breaker
	c := resolved(t, breaker.Config{Window: 4, Minimum: 4})
	for _, r := range []breaker.Result{breaker.Failure, breaker.Success, breaker.Neutral, breaker.Neutral, breaker.Success} {
		attempt(&b, c, 0, r)
	}
	if _, moves := attempt(&b, c, 0, breaker.Failure); len(moves) != 1 {
		t.Errorf("two failures of four did not open it: %v", b.State())
	}
}

func TestHalfOpenBoundsProbes(t *testing.T) {
	var b breaker.Breaker
	c := resolved(t, breaker.Config{Minimum: 1, Probes: 2})
	attempt(&b, c, 0, breaker.Failure)
	first, ok1, _ := b.Admit(c, time.Minute)
	second, ok2, _ := b.Admit(c, time.Minute)
	_, ok3, _ := b.Admit(c, time.Minute)
	if !ok1 || !ok2 || ok3 {
		t.Fatalf("probes admitted: %v %v %v, want two", ok1, ok2, ok3)
	}
	// A probe that says nothing gives its place back.
	b.Settle(c, time.Minute, first, breaker.Neutral)
	if _, ok, _ := b.Admit(c, time.Minute); !ok {
		t.Fatal("a neutral probe kept its place")
	}
	if m := b.Settle(c, time.Minute, second, breaker.Success); m.To != breaker.Closed {
		t.Fatalf("got %+v, want closed", m)
	}
}

func TestOutcomesOfAnEarlierStateAreNotCounted(t *testing.T) {
	var b breaker.Breaker
	c := resolved(t, breaker.Config{Minimum: 1})
	late, _, _ := b.Admit(c, 0)
	attempt(&b, c, 0, breaker.Failure) // opens
	if m := b.Settle(c, sec, late, breaker.Success); m.Moved() || b.State() != breaker.Open {
		t.Fatalf("a late success moved it: %+v, %v", m, b.State())
	}
	probe, ok, _ := b.Admit(c, time.Minute)
	if m := b.Settle(c, time.Minute, late, breaker.Failure); m.Moved() {
		t.Fatalf("a late failure moved it: %+v", m)
	}
	if m := b.Settle(c, time.Minute, probe, breaker.Success); !ok || m.To != breaker.Closed {
		t.Fatalf("the probe did not close it: %+v", m)
	}
}

// Against a plain model: the window as a slice.
func TestAgreesWithAPlainModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(1, 64).Draw(t, "window")
		cfg, err := breaker.Config{
			Window:  window,
			Minimum: rapid.IntRange(1, window).Draw(t, "minimum"),
			Ratio:   rapid.Float64Range(0.01, 1).Draw(t, "ratio"),
		}.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		var b breaker.Breaker
		var seen []bool
		for range rapid.IntRange(1, 200).Draw(t, "outcomes") {
			fail := rapid.Bool().Draw(t, "fail")
			r := breaker.Success
			if fail {
				r = breaker.Failure
			}
			attempt(&b, &cfg, 0, r)
			if seen = append(seen, fail); len(seen) > window {
				seen = seen[1:]
			}
			failed := 0
			for _, f := range seen {
				if f {
					failed++
				}
			}
			open := fail && len(seen) >= cfg.Minimum && float64(failed) >= cfg.Ratio*float64(len(seen))
			if open != (b.State() == breaker.Open) {
				t.Fatalf("after %v: open %v, model %v", seen, b.State(), open)
			}
			if open {
				return
			}
		}
	})
}

func TestConfigNamesFieldValueAndBound(t *testing.T) {
	for _, tt := range []struct {
		c    breaker.Config
		want string
	}{
		{breaker.Config{Ratio: 2}, "ratio is 2"},
		{breaker.Config{Window: 65}, "window is 65, must be from 1 to 64"},
		{breaker.Config{Window: 3, Minimum: 4}, "minimum is 4, must be from 1 to the window of 3"},
		{breaker.Config{OpenFor: -1}, "open for is -1ns"},
		{breaker.Config{Probes: -1}, "probes is -1"},
	} {
		if _, err := tt.c.Resolve(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.c, err, tt.want)
		}
	}
}

func ExampleBreaker() {
	c, _ := breaker.Config{Minimum: 1, OpenFor: time.Second}.Resolve()
	var b breaker.Breaker
	t, _, _ := b.Admit(&c, 0)
	fmt.Println(b.Settle(&c, 0, t, breaker.Failure).To)
	_, ok, _ := b.Admit(&c, 999*time.Millisecond)
	fmt.Println(ok, b.ReadyAt(&c))
	t, ok, _ = b.Admit(&c, time.Second)
	fmt.Println(ok, b.State())
	fmt.Println(b.Settle(&c, time.Second, t, breaker.Success).To)
	// Output:
	// open
	// false 1s
	// true half_open
	// closed
}

func BenchmarkAdmitSettle(b *testing.B) {
	c := resolved(b, breaker.Config{})
	var br breaker.Breaker
	b.ReportAllocs()
	for b.Loop() {
		t, _, _ := br.Admit(c, 0)
		br.Settle(c, 0, t, breaker.Success)
	}
}

func TestTheWidestWindowHoldsTheNewestOutcome(t *testing.T) {
	var b breaker.Breaker
	c := resolved(t, breaker.Config{Window: 64, Minimum: 1})
	if _, moves := attempt(&b, c, 0, breaker.Failure); len(moves) != 1 {
		t.Errorf("one failure of one did not open it: %v", b.State())
	}
}
