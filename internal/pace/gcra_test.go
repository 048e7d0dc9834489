package pace_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/pace"
)

const ms = time.Millisecond

func TestAdmitFollowsTheSchedule(t *testing.T) {
	type call struct {
		at   time.Duration
		ok   bool
		next time.Duration
	}
	steady := pace.Params{Interval: 100 * ms, Ceiling: 10 * ms}
	credit := pace.Params{Interval: 100 * ms, Tolerance: 200 * ms, Ceiling: 20 * ms}
	tests := []struct {
		name  string
		p     pace.Params
		calls []call
	}{
		{"no tolerance", steady, []call{
			{0, true, 0},
			{50 * ms, false, 100 * ms},
			{100*ms - 1, false, 100 * ms},
			{100 * ms, true, 100 * ms},
			{350 * ms, true, 350 * ms},
			{449 * ms, false, 450 * ms},
			{450 * ms, true, 450 * ms},
		}},
		{"idle time builds no more than the tolerance", credit, []call{
			{0, true, 0},
			{time.Hour, true, time.Hour},
			{time.Hour, false, time.Hour + 20*ms}, // the ceiling, not the credit
			{time.Hour + 20*ms, true, time.Hour + 20*ms},
			{time.Hour + 40*ms, true, time.Hour + 40*ms}, // the last of the credit
			{time.Hour + 60*ms, false, time.Hour + 100*ms},
			{time.Hour + 100*ms, true, time.Hour + 100*ms},
		}},
		{"a clock that steps back", steady, []call{
			{time.Second, true, time.Second},
			{0, false, 1100 * ms},
			{-time.Hour, false, 1100 * ms},
			{1100 * ms, true, 1100 * ms},
		}},
		{"an interval below the ceiling is the ceiling", pace.Params{Interval: ms, Ceiling: 50 * ms}, []call{
			{0, true, 0},
			{49 * ms, false, 50 * ms},
			{50 * ms, true, 50 * ms},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var g pace.GCRA
			for i, c := range tt.calls {
				next, ok := g.Admit(c.at, tt.p)
				if ok != c.ok || next != c.next {
					t.Fatalf("call %d at %v: got (%v, %v), want (%v, %v)", i, c.at, next, ok, c.next, c.ok)
				}
			}
		})
	}
}

func drawParams(t *rapid.T) pace.Params {
	ceiling := rapid.Int64Range(1, int64(time.Second)).Draw(t, "ceiling")
	return pace.Params{
		Ceiling:   time.Duration(ceiling),
		Interval:  time.Duration(rapid.Int64Range(ceiling, ceiling+int64(time.Minute)).Draw(t, "interval")),
		Tolerance: time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "tolerance")),
	}
}

func TestNeverCloserThanTheCeilingWhateverMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g pace.GCRA
		ceiling := time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "ceiling"))
		now, seen, last, sent := time.Duration(0), time.Duration(-1<<62), time.Duration(0), false
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			p := drawParams(t)
			p.Ceiling = ceiling
			// The clock may jump either way.
			now += time.Duration(rapid.Int64Range(-int64(time.Minute), int64(2*time.Minute)).Draw(t, "step"))
			seen = max(seen, now) // an instant in the past stands for the latest one
			if _, ok := g.Admit(now, p); ok {
				if sent && seen-last < ceiling {
					t.Fatalf("two attempts %v apart under a ceiling of %v", seen-last, ceiling)
				}
				last, sent = seen, true
			}
		}
	})
}

func TestNeverOverRateAndCredit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g pace.GCRA
		p := drawParams(t)
		var admitted []time.Duration
		now := time.Duration(0)
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			now += time.Duration(rapid.Int64Range(0, int64(p.Interval)).Draw(t, "step"))
			if _, ok := g.Admit(now, p); ok {
				admitted = append(admitted, now)
			}
		}
		// In any span of length d there are at most 1 + (d + L) / I attempts.
		for i := range admitted {
			for j := i; j < len(admitted); j++ {
				span := admitted[j] - admitted[i]
				if most := 1 + int64((span+p.Tolerance)/p.Interval); int64(j-i+1) > most {
					t.Fatalf("%d attempts in %v, most is %d under %+v", j-i+1, span, most, p)
				}
			}
		}
	})
}

func TestSteppingBackIsStandingStill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var back, still pace.GCRA
		now := time.Duration(0)
		first := drawParams(t)
		back.Admit(now, first)
		still.Admit(now, first)
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			// While parameters stay, a caller that steps back comes before the next attempt
			// anyway. What was refused at an instant may conform before it under others.
			p := drawParams(t)
			at := now
			if step := rapid.Int64Range(-int64(2*p.Interval), int64(2*p.Interval)).Draw(t, "step"); step < 0 {
				at += time.Duration(step)
			} else {
				now += time.Duration(step)
				at = now
			}
			gotNext, got := back.Admit(at, p)
			wantNext, want := still.Admit(now, p)
			if got != want || gotNext != wantNext {
				t.Fatalf("at %v after %v, under %+v: %v, %v; standing still %v, %v", at, now, p, gotNext, got, wantNext, want)
			}
		}
	})
}

// A law that shortens the interval lets an attempt go whose instant was refused.
func TestSteppingBackUnderAnotherInterval(t *testing.T) {
	var g pace.GCRA
	g.Admit(0, pace.Params{Interval: 100 * ms})
	if next, ok := g.Admit(90*ms, pace.Params{Interval: 100 * ms}); ok || next != 100*ms {
		t.Fatalf("before its instant: %v, %v", next, ok)
	}
	p := pace.Params{Interval: 100 * ms, Tolerance: 80 * ms, Ceiling: 10 * ms}
	if at, ok := g.Admit(30*ms, p); !ok || at != 90*ms {
		t.Errorf("after a step back: %v, %v; want 90ms, the latest instant seen", at, ok)
	}
	if next, ok := g.Admit(95*ms, pace.Params{Interval: 100 * ms, Tolerance: time.Hour, Ceiling: 10 * ms}); ok || next != 100*ms {
		t.Errorf("the attempt after it: %v, %v; want the ceiling after 90ms", next, ok)
	}
}

func TestNextWithoutAnAttempt(t *testing.T) {
	var g pace.GCRA
	p := pace.Params{Interval: time.Second, Ceiling: ms}
	if got := g.Next(p); got != math.MinInt64 {
		t.Errorf("before the first attempt: %v, want the smallest instant", got)
	}
	// The next attempt's instant is 0 here, which also stands for no attempt.
	g.Admit(-time.Second, p)
	if got := g.Next(p); got != 1 {
		t.Errorf("after an attempt one interval before 0: %v, want 1ns", got)
	}
}

func ExampleGCRA_Admit() {
	var g pace.GCRA
	p := pace.Params{Interval: 100 * time.Millisecond, Ceiling: 50 * time.Millisecond}
	for _, now := range []time.Duration{0, 40 * time.Millisecond, 100 * time.Millisecond} {
		next, ok := g.Admit(now, p)
		fmt.Println(now, ok, next)
	}
	// Output:
	// 0s true 0s
	// 40ms false 100ms
	// 100ms true 100ms
}

func ExampleGCRA_Next() {
	var g pace.GCRA
	p := pace.Params{Interval: time.Second, Tolerance: 2 * time.Second, Ceiling: 250 * time.Millisecond}
	g.Admit(0, p)
	fmt.Println(g.Next(p))
	// Output:
	// 250ms
}

// bare is the floor to compare with: the textbook algorithm, nothing else.
type bare struct{ tat, interval, tolerance time.Duration }

func (b *bare) admit(now time.Duration) bool {
	if now < b.tat-b.tolerance {
		return false
	}
	b.tat = max(b.tat, now) + b.interval
	return true
}

var sink bool

func BenchmarkAdmit(b *testing.B) {
	b.Run("pace", func(b *testing.B) {
		b.ReportAllocs()
		var g pace.GCRA
		p := pace.Params{Interval: 2, Tolerance: 1000, Ceiling: 1}
		now := time.Duration(0)
		for b.Loop() {
			now += 2 // every attempt conforms
			_, sink = g.Admit(now, p)
		}
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		g := bare{interval: 2, tolerance: 1000}
		now := time.Duration(0)
		for b.Loop() {
			now += 2
			sink = g.admit(now)
		}
	})
	b.Run("x-time-rate", func(b *testing.B) {
		b.ReportAllocs()
		l := rate.NewLimiter(5e8, 1000)
		now := time.Now()
		for b.Loop() {
			now = now.Add(2)
			sink = l.AllowN(now, 1)
		}
	})
}
