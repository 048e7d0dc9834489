package pacing

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

func TestWhatAnAttemptIsExpectedToCost(t *testing.T) {
	type pair struct{ estimate, cost float64 }
	even := func(pairs ...pair) (all []pair) {
		for range 50 {
			all = append(all, pairs...)
		}
		return all
	}
	for _, tt := range []struct {
		name     string
		answers  []pair
		estimate float64
		want     float64
	}{
		{"nothing is known", nil, 7, 7},
		{"estimates are right", even(pair{1, 1}, pair{50, 50}, pair{7000, 7000}), 300, 300},
		{"one answer", []pair{{100, 20}}, 100, 20},
		{"five times too high, all alike", even(pair{100, 20}), 100, 20},
		{"five times too high", even(pair{100, 20}, pair{1000, 200}), 500, 99.4},
		{"a thousand times too low", even(pair{1, 1000}, pair{2, 2000}), 3, 2875},
		{"a fixed part is left out", even(pair{100, 150}, pair{200, 250}), 300, 350},
		{"right on the average, too low for cheap ones and too high for dear ones", []pair{{100, 120}, {200, 180}}, 300, 245},
		{"estimates say nothing", even(pair{10, 50}, pair{100, 50}, pair{10, 70}, pair{100, 70}), 300, 63.6},
		{"nearly all alike: the error is the mean one", even(pair{100, 10}, pair{101, 90}), 110, 61.4},
		{"an estimate far below all others", even(pair{100, 20}, pair{1000, 920}), 1, 4.7},
	} {
		var c costs
		for _, p := range tt.answers {
			c.learn(p.estimate, p.cost)
		}
		if got := c.expect(tt.estimate); math.Abs(got/tt.want-1) > 0.01 {
			t.Errorf("%s: %v is expected to cost %v, want %v", tt.name, tt.estimate, got, tt.want)
		}
	}
}

// What was true more than a hundred answers ago is soon forgotten.
func TestExpectedCostsFollowAChange(t *testing.T) {
	var c costs
	for range 1000 {
		c.learn(100, 100)
	}
	for range 300 {
		c.learn(100, 20)
	}
	if got := c.expect(100); math.Abs(got-20) > 5 {
		t.Errorf("300 answers after the change 100 is expected to cost %v, want 20", got)
	}
}

func TestExpectedCostsAreAboveZeroAndGrowWithTheEstimate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c costs
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		factor, spread := math.Exp(rapid.Float64Range(-9, 9).Draw(t, "factor")), rapid.Float64Range(0, 2).Draw(t, "spread")
		for range rapid.IntRange(1, 300).Draw(t, "answers") {
			cost := math.Exp(3 * rng.NormFloat64())
			c.learn(cost*factor*math.Exp(spread*rng.NormFloat64()), cost)
		}
		last := 0.0
		for e := 1e-6; e < 1e9; e *= 3 {
			got := c.expect(e)
			if !(got > 0) || math.IsInf(got, 0) || got < last*(1-1e-9) {
				t.Fatalf("%v is expected to cost %v, and less %v", e, got, last)
			}
			last = got
		}
	})
}

// Attempts are estimated at 100 and cost 20. A pool that has no answers yet takes the account's.
func TestEstimatesCountWhereAProviderReservesThem(t *testing.T) {
	core, err := New(Config{Law: "cycle", Ceiling: time.Millisecond, Initial: time.Millisecond, JitterMax: -1, NoBreaker: true})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Duration(0)
	answered := func(pool string, facts ...control.Fact) {
		now += time.Second
		a := Attempt{Cost: 100}
		if pool != "" {
			a.Pool = core.In(now, pool)
		}
		ticket, d, _ := core.Admit(now, a)
		if !d.OK {
			t.Fatalf("at %v: %+v", now, d)
		}
		core.Settle(now, ticket, Outcome{Class: reason.OK, Cost: 20, Facts: facts})
	}
	expected := func(when string, pool string, want float64) {
		t.Helper()
		var l *Pool
		if pool != "" {
			l = core.In(now, pool)
		}
		if got := core.expect(l, 100); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: 100 in pool %q is expected to cost %v, want %v", when, pool, got, want)
		}
	}
	expected("at first", "", 100)
	answered("small")
	expected("after an answer", "", 20)
	expected("after an answer", "small", 20)
	expected("after an answer", "new", 20)
	now += time.Second
	ticket, d, _ := core.Admit(now, Attempt{Cost: 100})
	if ticket = core.Recost(ticket, 200); !d.OK || math.Abs(ticket.cost-120) > 1e-9 || ticket.asked != 200 {
		t.Errorf("estimated at 200 later, which costs 80 less as the others did: counted as %v of %v, want 120 of 200", ticket.cost, ticket.asked)
	}
	core.Unsend(ticket)
	answered("small", control.Fact{Name: "requests", Quota: 100, Remaining: 99})
	expected("a limit of attempts is advertised", "small", 20)
	answered("small", control.Fact{Name: "tokens", PerCost: true, Quota: 100000, Remaining: 99000})
	expected("one of tokens is", "", 100)
	expected("one of tokens is", "small", 100)
}
