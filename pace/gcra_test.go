package pace_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/pace"
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

func TestSteppingBackAdmitsNoMoreThanStandingStill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t)
		var back, still pace.GCRA
		now := time.Duration(0)
		for range rapid.IntRange(0, 20).Draw(t, "before") {
			now += time.Duration(rapid.Int64Range(0, int64(2*p.Interval)).Draw(t, "step"))
			back.Admit(now, p)
			still.Admit(now, p)
		}
		back.Admit(now, p)
		still.Admit(now, p)
		nBack, nStill := 0, 0
		for range rapid.IntRange(1, 20).Draw(t, "after") {
			// The clock steps back and may come forward again, but not past now.
			stepped := now - time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "back"))
			if _, ok := back.Admit(stepped, p); ok {
				nBack++
			}
			if _, ok := still.Admit(now, p); ok {
				nStill++
			}
		}
		if nBack > nStill {
			t.Fatalf("stepping back admitted %d, standing still %d", nBack, nStill)
		}
	})
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
