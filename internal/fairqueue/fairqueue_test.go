package fairqueue

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func yes(*Item[string]) Verdict { return Verdict{OK: true} }

// drain takes n items out and concatenates their values.
func drain(q *Queue[string], n int) (got string) {
	for range n {
		q.Begin()
		v, ok := q.Next(yes)
		if !ok {
			return got
		}
		got += v
	}
	return got
}

func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		push []Request // the value is the flow
		take int
		want map[string]int
		then string // the exact order, if that is what counts
	}{
		"one flow is served in order of arrival": {
			push: []Request{{Flow: "1"}, {Flow: "1", Cost: 5 * Unit}, {Flow: "1", Cost: 1}}, take: 3, then: "111",
		},
		"the greater priority goes first": {
			push: []Request{{Flow: "a"}, {Flow: "b", Priority: -1}, {Flow: "c", Priority: math.MaxInt}}, take: 3, then: "cab",
		},
		"equal flows take turns": {
			push: repeat(8, Request{Flow: "a"}, Request{Flow: "b"}), take: 8, want: map[string]int{"a": 4, "b": 4},
		},
		"shares go by weight": {
			push: repeat(12, Request{Flow: "a"}, Request{Flow: "b", Weight: 3}), take: 12, want: map[string]int{"a": 3, "b": 9},
		},
		"shares are of cost": {
			push: repeat(12, Request{Flow: "a", Cost: 3 * Unit}, Request{Flow: "b"}), take: 12, want: map[string]int{"a": 3, "b": 9},
		},
		"a weight that is out of range is the nearer end": {
			push: repeat(12, Request{Flow: "a", Weight: -5}, Request{Flow: "b"}), take: 12, want: map[string]int{"a": 6, "b": 6},
		},
		"a cost that is out of range too": {
			push: repeat(20, Request{Flow: "a", Cost: math.MaxInt64}, Request{Flow: "b", Cost: maxCost}), take: 20, want: map[string]int{"a": 10, "b": 10},
		},
		"who wants little gets it all": {
			push: append(repeat(9, Request{Flow: "a"}, Request{Flow: "b"}), Request{Flow: "c"}), take: 9, want: map[string]int{"a": 4, "b": 4, "c": 1},
		},
	} {
		var q Queue[string]
		for _, r := range c.push {
			q.Push(0, r, r.Flow)
		}
		got := drain(&q, c.take)
		if c.then != "" && got != c.then {
			t.Errorf("%s: %s, want %s", name, got, c.then)
		}
		for flow, n := range c.want {
			if diff := strings.Count(got, flow) - n; diff < -1 || diff > 1 {
				t.Errorf("%s: %s, want about %d of %s", name, got, n, flow)
			}
		}
	}
}

// repeat returns n copies of each request.
func repeat(n int, rs ...Request) (all []Request) {
	for range n {
		all = append(all, rs...)
	}
	return all
}

func TestNoItemOvertakesOnABudgetThatAnotherWaitsFor(t *testing.T) {
	var q Queue[string]
	q.Push(0, Request{Flow: "a", Budgets: []uint32{1, 2}, Cost: 5 * Unit}, "large")
	q.Push(0, Request{Flow: "b", Budgets: []uint32{1, 3}}, "shared")
	q.Push(0, Request{Flow: "c", Budgets: []uint32{4}}, "apart")
	tried := ""
	v, ok := q.Next(func(w *Item[string]) Verdict {
		tried += w.Value + " "
		if w.Value == "large" {
			return Verdict{Blocked: 1} // budget 1
		}
		return Verdict{OK: true}
	})
	if !ok || v != "apart" || tried != "large apart " {
		t.Errorf("got %q after %q", v, tried)
	}
	if !q.Blocks([]uint32{1}, 0) || q.Blocks([]uint32{1}, 1) || q.Blocks([]uint32{2}, 0) {
		t.Error("only budget 1 is waited for, by priority 0")
	}
}

func TestStopIsForAll(t *testing.T) {
	var q Queue[string]
	q.Push(0, Request{Flow: "a"}, "a")
	q.Push(0, Request{Flow: "b"}, "b")
	n := 0
	if _, ok := q.Next(func(*Item[string]) Verdict { n++; return Verdict{Stop: true} }); ok || n != 1 || q.Len() != 2 {
		t.Errorf("%v, %d tried, %d wait", ok, n, q.Len())
	}
}

func TestRemove(t *testing.T) {
	var q Queue[string]
	a := q.Push(0, Request{Flow: "a"}, "a")
	q.Push(0, Request{Flow: "a"}, "b")
	c := q.Push(0, Request{Flow: "b"}, "c")
	q.Remove(a)
	q.Remove(c)
	if q.Len() != 1 || drain(&q, 2) != "b" {
		t.Error("only b is left")
	}
	defer func() {
		if recover() == nil {
			t.Error("an item leaves once")
		}
	}()
	q.Remove(a)
}

func TestAll(t *testing.T) {
	var q Queue[string]
	for _, v := range []string{"a", "b", "c"} {
		q.Push(0, Request{Flow: v}, v)
	}
	got := ""
	for w := range q.All() {
		if got += w.Value; len(got) == 2 {
			break
		}
	}
	if len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// A burst beyond a flow's share is given back, with at most every second pick, and is
// forgotten once the budgets are full.
func TestABurstIsGivenBack(t *testing.T) {
	for _, full := range []bool{false, true} {
		q := Queue[string]{Burst: 20 * Unit}
		for range 10 {
			q.Direct(0, Request{Flow: "a"})
		}
		if full {
			q.Full(0)
		}
		for range 30 {
			q.Push(0, Request{Flow: "a"}, "a")
			q.Push(0, Request{Flow: "b"}, "b")
		}
		got := drain(&q, 30)
		if a := strings.Count(got, "a"); full && a != 15 || !full && (a < 9 || a > 11) {
			t.Errorf("full %v: %s", full, got)
		}
		if strings.Contains(got, "bbbb") {
			t.Errorf("full %v: %s takes more than half for what is given back", full, got)
		}
	}
}

// A flow that comes late is compensated by its share of a burst, not for all the time it
// was idle.
func TestAnIdleFlowSavesNothingUp(t *testing.T) {
	var q Queue[string]
	for range 200 {
		q.Push(0, Request{Flow: "a"}, "a")
	}
	q.Next(func(*Item[string]) Verdict { return Verdict{} })
	drain(&q, 100)
	for range 100 {
		q.Push(0, Request{Flow: "b"}, "b")
	}
	if got := drain(&q, 20); strings.Count(got, "b") != 10 {
		t.Errorf("%s", got)
	}
}

func TestARefusedFlowKeepsItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		back time.Duration
		want string
	}{
		"back in time": {10 * time.Second, "b"},
		"back late":    {21 * time.Second, "a"},
	} {
		var q Queue[string]
		q.Direct(0, Request{Flow: "b"})
		q.Direct(0, Request{Flow: "b"})
		q.Refused(0, Request{Flow: "b"}, 10*time.Second)
		for range 40 {
			q.Push(0, Request{Flow: "a"}, "a")
		}
		drain(&q, 10)
		q.Full(0) // does nothing while an item waits
		q.Push(c.back, Request{Flow: "b"}, "b")
		if f := q.flows["b"]; (f.near < q.near) != (c.want == "b") {
			t.Errorf("%s: its tag is %d, that of the queue %d", name, f.near, q.near)
		}
	}
	var q Queue[string]
	q.Refused(time.Hour, Request{Flow: "a"}, math.MaxInt64) // no wait is too long
	if q.Full(1000 * time.Hour); q.Flows() != 1 {
		t.Error("it was to be kept")
	}
}

func TestWait(t *testing.T) {
	aSecondEach := func(cost int64) time.Duration { return time.Duration(cost/Unit) * time.Second }
	other := func(v string) int64 { // only the new item needs the budget
		if v == "" {
			return Unit
		}
		return 0
	}
	for name, c := range map[string]struct {
		waiting  []Request
		ask      Request
		load     func(string) int64
		min, max time.Duration
	}{
		"nobody waits":              {nil, Request{}, nil, time.Second, time.Second},
		"five of greater priority":  {repeat(5, Request{Flow: "a", Priority: 1}), Request{Flow: "b"}, nil, 6 * time.Second, 7 * time.Second},
		"five of lesser priority":   {repeat(5, Request{Flow: "a"}), Request{Flow: "b", Priority: 1}, nil, time.Second, time.Second},
		"another flow, by turns":    {repeat(5, Request{Flow: "a"}), Request{Flow: "b"}, nil, time.Second, 3 * time.Second},
		"its own flow":              {repeat(5, Request{Flow: "a"}), Request{Flow: "a"}, nil, 6 * time.Second, 6 * time.Second},
		"its own flow, and another": {repeat(5, Request{Flow: "a"}, Request{Flow: "b"}), Request{Flow: "a"}, nil, 10 * time.Second, 12 * time.Second},
		"they need another budget":  {repeat(5, Request{Flow: "a", Priority: 1}), Request{Flow: "b"}, other, time.Second, time.Second},
		"and those of its own flow": {repeat(5, Request{Flow: "b"}), Request{Flow: "b"}, other, time.Second, time.Second},
	} {
		var q Queue[string]
		for _, r := range c.waiting {
			q.Push(0, r, "waits")
		}
		if got := q.Wait(0, c.ask, "", c.load, aSecondEach); got < c.min || got > c.max {
			t.Errorf("%s: %v, want %v to %v", name, got, c.min, c.max)
		}
	}
}

// The lookahead terminates, however many items wait and however fast more arrive.
func TestWaitIsBounded(t *testing.T) {
	var q Queue[string]
	for range 50 {
		q.Push(0, Request{Flow: "a", Priority: 1}, "a")
		q.Refused(0, Request{Flow: "a", Priority: 1}, time.Hour)
	}
	calls := 0
	got := q.Wait(0, Request{Flow: "b"}, "", nil, func(cost int64) time.Duration { calls++; return time.Duration(cost) })
	if got != maxPicks*Unit || calls > maxPicks/4 {
		t.Errorf("%v after %d calls", int64(got), calls)
	}
}

func TestFlowsAreBounded(t *testing.T) {
	var q Queue[string]
	q.Push(0, Request{Flow: "waits"}, "w")
	for i := range 3 * maxFlows {
		r := Request{Flow: fmt.Sprint(i), Weight: i}
		if q.Direct(0, r); i%2 == 0 {
			q.Refused(0, r, time.Hour)
		}
		if q.Flows() > maxFlows+1 {
			t.Fatalf("%d flows", q.Flows())
		}
	}
	sum := int64(0)
	for _, f := range q.flows {
		sum += f.weight
	}
	if sum != q.weights || drain(&q, 1) != "w" {
		t.Errorf("the weights are %d, counted as %d", sum, q.weights)
	}
	if q.Full(3 * time.Hour); q.Flows() != 0 || q.weights != 0 {
		t.Errorf("%d flows of weight %d are left", q.Flows(), q.weights)
	}
}

func TestNothingIsAllocatedOnceWarm(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	var q Queue[int]
	for i := range 40 {
		q.Push(0, Request{Flow: names[i%4]}, i)
	}
	now := time.Duration(0)
	round := func() {
		now += time.Second
		q.Begin()
		q.Next(func(*Item[int]) Verdict { return Verdict{OK: true} })
		w := q.Push(now, Request{Flow: names[now/time.Second%4]}, 1)
		q.Wait(now, Request{Flow: "b"}, 0, nil, func(cost int64) time.Duration { return time.Duration(cost) })
		q.Refused(now, Request{Flow: "e"}, time.Second)
		q.Remove(w)
		q.Push(now, Request{Flow: names[now/time.Second%3]}, 1)
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations with some waiting", n)
	}
	var idle Queue[int]
	direct := func() {
		idle.Direct(0, Request{})
		idle.Direct(0, Request{Flow: "a"})
		idle.Full(0)
	}
	direct()
	if n := testing.AllocsPerRun(100, direct); n != 0 {
		t.Errorf("%v allocations with nobody waiting", n)
	}
}

func BenchmarkDirect(b *testing.B) {
	var q Queue[int]
	b.ReportAllocs()
	for b.Loop() {
		q.Direct(0, Request{})
	}
}

func BenchmarkPushNext(b *testing.B) {
	var q Queue[int]
	names := []string{"a", "b", "c", "d"}
	for i := range 40 {
		q.Push(0, Request{Flow: names[i%4]}, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		q.Begin()
		v, _ := q.Next(func(*Item[int]) Verdict { return Verdict{OK: true} })
		q.Push(0, Request{Flow: names[v%4]}, v)
	}
}

func BenchmarkWait(b *testing.B) {
	var q Queue[int]
	names := []string{"a", "b", "c", "d"}
	for i := range 400 {
		q.Push(0, Request{Flow: names[i%4]}, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		q.Wait(0, Request{Flow: "b"}, 0, nil, func(c int64) time.Duration { return time.Duration(c) })
	}
}

func TestAPassGoesOn(t *testing.T) {
	var q Queue[string]
	for _, v := range []string{"1", "2", "3"} {
		q.Push(0, Request{Flow: "a"}, v)
	}
	tried := ""
	try := func(w *Item[string]) Verdict { tried += w.Value; return Verdict{OK: w.Value == "2"} }
	q.Begin()
	q.Next(try)
	q.Push(0, Request{Flow: "a", Priority: 1}, "urgent") // for the next pass
	q.Next(try)
	if tried != "123" {
		t.Errorf("tried %s", tried)
	}
}

func TestUpdate(t *testing.T) {
	var q Queue[string]
	w := q.Push(0, Request{Flow: "a", Weight: 5, Priority: 3}, "a")
	q.Update(w, Request{Flow: "b", Weight: 2, Cost: 7, Budgets: []uint32{1}})
	if w.flow.name != "a" || w.flow.weight != 2 || q.weights != 2 || w.cost() != 7 || w.Priority != 3 || len(w.Budgets) != 1 {
		t.Errorf("%+v of %+v", w, w.flow)
	}
}
