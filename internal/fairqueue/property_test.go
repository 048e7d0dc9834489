package fairqueue

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every item that enters leaves once, an item of the greatest priority goes first, and
// the items of a flow with the same priority go in order of arrival.
func TestNoItemIsLost(t *testing.T) {
	type entry struct {
		item *Item[int]
		r    Request
	}
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		waiting := map[int]entry{}
		now := time.Duration(0)
		for n := range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "later"))
			r := Request{
				Flow:     fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "flow")),
				Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
				Weight:   rapid.IntRange(0, 5).Draw(t, "weight"),
				Cost:     rapid.Int64Range(0, 1<<51).Draw(t, "cost"),
			}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				waiting[n] = entry{q.Push(now, r, n), r}
			case 2:
				q.Begin()
				v, ok := q.Next(func(*Item[int]) Verdict { return Verdict{OK: true} })
				if ok != (len(waiting) > 0) {
					t.Fatalf("%v while %d wait", ok, len(waiting))
				}
				went := waiting[v]
				delete(waiting, v)
				for other, e := range waiting {
					if e.r.Priority > went.r.Priority || e.r.Priority == went.r.Priority && e.r.Flow == went.r.Flow && other < v {
						t.Fatalf("%d went before %d", v, other)
					}
				}
			case 3:
				for i := range n {
					if e, ok := waiting[i]; ok {
						q.Remove(e.item)
						delete(waiting, i)
						break
					}
				}
			case 4:
				q.Direct(now, r)
				q.Full(now)
			case 5:
				q.Refused(now, r, time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "wait")))
			}
			seen := 0
			for w := range q.All() {
				if waiting[w.Value].item != w {
					t.Fatalf("%d does not wait", w.Value)
				}
				seen++
			}
			if seen != len(waiting) || q.Len() != len(waiting) {
				t.Fatalf("%d and %d wait, want %d", seen, q.Len(), len(waiting))
			}
		}
	})
}

// Flows that always have items waiting are served by weight, give or take a few items.
func TestSharesOfBusyFlows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		n := rapid.IntRange(2, 5).Draw(t, "flows")
		most := rapid.SampledFrom([]int64{1000, Unit, maxCost}).Draw(t, "most")
		weights, served := make([]int, n), make([]float64, n)
		push := func(i int) {
			q.Push(0, Request{Flow: fmt.Sprint(i), Weight: weights[i], Cost: rapid.Int64Range(most/4, most).Draw(t, "cost")}, i)
		}
		for i := range n {
			weights[i] = rapid.IntRange(1, 5).Draw(t, "weight")
			push(i)
		}
		for range rapid.IntRange(1, 100).Draw(t, "picks") {
			q.Begin()
			i, ok := q.Next(func(w *Item[int]) Verdict {
				served[w.Value] += float64(w.cost()) / float64(weights[w.Value])
				return Verdict{OK: true}
			})
			if !ok {
				t.Fatal("nobody went")
			}
			push(i)
			for j := range n {
				if diff := served[i] - served[j]; diff > 3*float64(most) {
					t.Fatalf("%v served for their weights %v, in items of at most %d", served, weights, most)
				}
			}
		}
	})
}

// No item takes a budget that an earlier item waits for.
func TestNoItemOvertakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		n := rapid.IntRange(1, 20).Draw(t, "items")
		budgets := make([][]uint32, n)
		for i := range n {
			first := uint32(rapid.IntRange(0, 3).Draw(t, "budget"))
			budgets[i] = []uint32{first, first + 1 + uint32(rapid.IntRange(0, 2).Draw(t, "another"))}
			q.Push(0, Request{Flow: fmt.Sprint(i % 3), Priority: rapid.IntRange(0, 1).Draw(t, "priority"), Budgets: budgets[i]}, i)
		}
		lacking := map[uint32]bool{}
		q.Begin()
		q.Next(func(w *Item[int]) Verdict {
			for _, b := range w.Budgets {
				if lacking[b] {
					t.Fatalf("%d is tried though somebody waits for %d", w.Value, b)
				}
			}
			v := Verdict{Blocked: uint32(rapid.IntRange(0, 3).Draw(t, "blocked"))}
			for i, b := range w.Budgets {
				if v.Blocked&(1<<i) != 0 {
					lacking[b] = true
				}
			}
			return v
		})
		for b := range uint32(7) {
			if q.Blocks([]uint32{b}, 0) != lacking[b] {
				t.Fatalf("budget %d: %v", b, lacking[b])
			}
		}
		if q.Len() != n {
			t.Fatalf("%d of %d wait", q.Len(), n)
		}
	})
}

// If nothing else arrives and all items cost the same, Wait is exact except for ties.
func TestWaitIsExactWithoutArrivals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		draw := func() Request {
			flow := rapid.IntRange(0, 3).Draw(t, "flow")
			return Request{Flow: fmt.Sprint(flow), Weight: flow + 1, Priority: rapid.IntRange(0, 1).Draw(t, "priority")}
		}
		for range rapid.IntRange(0, 60).Draw(t, "waiting") {
			q.Push(0, draw(), 0)
		}
		later, r := 3*horizon, draw()
		wait := q.Wait(later, r, 1, nil, func(cost int64) time.Duration { return time.Duration(cost / Unit) })
		q.Push(later, r, 1)
		picks := time.Duration(0)
		for {
			q.Begin()
			v, _ := q.Next(func(*Item[int]) Verdict { return Verdict{OK: true} })
			if picks++; v == 1 {
				break
			}
		}
		if diff := wait - picks; max(diff, -diff) > 4+picks/4 {
			t.Fatalf("%d picks, foreseen %d", picks, wait)
		}
	})
}

// Of flows with one tag the item that came first is picked first. Wait foresees that: which of
// the two tags an item goes by decides how many of another flow go before the next.
func TestWaitFollowsTheOrderOfTies(t *testing.T) {
	var q Queue[int]
	push := func(flow, priority, v int) Request {
		r := Request{Flow: fmt.Sprint(flow), Weight: flow + 1, Priority: priority}
		q.Push(0, r, v)
		return r
	}
	for _, it := range [][2]int{{2, 1}, {0, 1}, {3, 1}, {1, 1}, {2, 1}, {2, 1}, {2, 1}, {3, 1}, {3, 1}, {3, 1}, {0, 0}} {
		push(it[0], it[1], 0)
	}
	wait := q.Wait(3*horizon, Request{Flow: "0", Weight: 1, Priority: 1}, 1, nil, func(cost int64) time.Duration { return time.Duration(cost / Unit) })
	push(0, 1, 1)
	for picks := time.Duration(1); ; picks++ {
		q.Begin()
		if v, _ := q.Next(func(*Item[int]) Verdict { return Verdict{OK: true} }); v == 1 {
			if wait != picks {
				t.Errorf("%d picks, foreseen %d", picks, wait)
			}
			return
		}
	}
}

func TestScale(t *testing.T) {
	for _, c := range [][4]int64{{10, 3, 4, 7}, {1 << 62, 4, 8, 1 << 61}, {1 << 62, 4, 1, 1<<63 - 1}, {1 << 62, 2, 1, 1<<63 - 1}, {0, 5, 1, 0}} {
		if got := scale(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%d x %d / %d is %d, want %d", c[0], c[1], c[2], got, c[3])
		}
	}
}

func TestArrivalsAreForgotten(t *testing.T) {
	var m meter
	for i := range 60 {
		m.add(time.Duration(i)*time.Second, 1)
	}
	for at, want := range map[time.Duration]int64{59 * time.Second: 31, 60 * time.Second: 30, 75 * time.Second: 15, 90 * time.Second: 0, time.Hour: 0} {
		if got := m.sum(at); got != want {
			t.Errorf("at %v %d, want %d", at, got, want)
		}
	}
	m.add(time.Hour, 5)
	if got := m.sum(time.Hour); got != 5 {
		t.Errorf("%d after an hour, want 5", got)
	}
}

// world is forty workers in virtual time that repeatedly make calls limited by a token
// bucket. A worker that would wait too long is refused and comes back when it was asked
// to.
type world struct {
	q        Queue[int]
	rate     float64 // tokens a second
	capacity float64
	level    float64
	filled   time.Duration
	now      time.Duration
	next     []time.Duration // when each worker calls; never while it waits
	light    int             // how many of them belong to the light flow; the rest belong to the heavy one
	maxWait  time.Duration
	served   [2]int // by the light and the heavy flow
	freed    int    // this worker waits without bound
	done     time.Duration
}

const never = time.Duration(math.MaxInt64)

// clone copies the world, to find out what would have happened without a refusal.
func (w *world) clone() *world {
	c := *w
	c.next = slices.Clone(w.next)
	c.q = w.q
	c.q.blocked, c.q.sketch, c.q.items, c.q.spare = nil, nil, nil, nil
	c.q.flows, c.q.active = map[string]*flow[int]{}, nil
	copied := map[*flow[int]]*flow[int]{}
	for name, f := range w.q.flows {
		g := *f
		g.waiting = nil
		for _, it := range f.waiting {
			n := *it
			n.flow = &g
			g.waiting = append(g.waiting, &n)
		}
		c.q.flows[name], copied[f] = &g, &g
	}
	for _, f := range w.q.active {
		c.q.active = append(c.q.active, copied[f])
	}
	return &c
}

func (w *world) fill() {
	w.level = min(w.capacity, w.level+w.rate*(w.now-w.filled).Seconds())
	w.filled = w.now
	if w.level >= w.capacity {
		w.q.Full(w.now)
	}
}

func (w *world) request(i int) Request {
	if i < w.light {
		return Request{Flow: "light", Weight: 1}
	}
	return Request{Flow: "heavy", Weight: 3}
}

func (w *world) serves(cost int64) time.Duration {
	return time.Duration(max(float64(cost)/Unit-w.level, 0) / w.rate * 1e9)
}

func (w *world) grant(i int) {
	flow := 0
	if i >= w.light {
		flow = 1
	}
	w.served[flow]++
	w.level--
	w.next[i] = w.now + 300*time.Millisecond
	if i == w.freed {
		w.done = w.now
	}
}

// call makes a worker ask. It returns the estimated wait and whether the worker was
// refused.
func (w *world) call(i int) (wait time.Duration, refused bool) {
	r := w.request(i)
	w.fill()
	if w.q.Len() == 0 && w.level >= 1-1e-9 {
		w.q.Direct(w.now, r)
		w.grant(i)
		return 0, false
	}
	wait = w.q.Wait(w.now, r, i, nil, w.serves)
	if wait > w.maxWait && i != w.freed {
		w.q.Refused(w.now, r, wait)
		w.next[i] = w.now + wait
		return wait, true
	}
	w.q.Push(w.now, r, i)
	w.next[i] = never
	return wait, false
}

// step runs the next event. onRefused gets the world from before the refusal.
func (w *world) step(onRefused func(i int, wait time.Duration, before *world)) {
	at, who := never, -1
	for i, t := range w.next {
		if t < at {
			at, who = t, i
		}
	}
	if w.q.Len() > 0 {
		w.fill()
		if t := w.now + time.Duration(max(1-w.level, 0)/w.rate*1e9) + 1; t <= at {
			w.now = t
			w.fill()
			for w.level >= 1-1e-9 {
				w.q.Begin()
				i, ok := w.q.Next(func(*Item[int]) Verdict { return Verdict{OK: true} })
				if !ok {
					return
				}
				w.grant(i)
			}
			w.q.Begin()
			w.q.Next(func(*Item[int]) Verdict { return Verdict{Stop: true} })
			return
		}
	}
	w.now = at
	var before *world
	if onRefused != nil {
		before = w.clone()
	}
	if wait, refused := w.call(who); refused && onRefused != nil {
		onRefused(who, wait, before)
	}
}

// Each flow gets its share of a scarce limit within three minutes, whatever the burst,
// the number of callers and the longest allowed wait; and a refusal estimates about how
// long the wait would have been.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		name           string
		rate, capacity float64
		light          int
		min, max       float64 // of heavy to light
	}{
		{"a call a second", 1, 1, 20, 2.7, 3.3},
		{"60 a minute at once", 1, 60, 20, 2.7, 3.3},
		{"a burst of ten", 1, 10, 20, 2.7, 3.3},
		{"300 a minute", 5, 1, 20, 2.7, 3.3},
		{"20 a minute", 1. / 3, 1, 20, 2.5, 3.5},
		{"20 a minute at once", 1. / 3, 20, 20, 2.7, 3.3},
		{"few light ones", 1, 1, 10, 2.7, 3.3},
		{"many light ones", 1, 1, 30, 2.7, 3.3},
		{"many light ones, who come first to a burst", 1, 60, 30, 2.3, 3.3},
	} {
		for _, maxWait := range []time.Duration{15 * time.Second, 10 * time.Minute} {
			w := &world{rate: c.rate, capacity: c.capacity, level: c.capacity, light: c.light, maxWait: maxWait, freed: -1}
			w.q.Burst = int64(c.capacity * Unit)
			for i := range 40 {
				w.next = append(w.next, time.Duration(i*17%40)*time.Millisecond)
			}
			var estimates []float64 // estimated wait divided by the actual one
			n := 0
			for w.now < 3*time.Minute {
				w.step(func(i int, wait time.Duration, before *world) {
					if n++; w.now < time.Second || n%3 != 0 {
						return
					}
					before.freed = i
					began := before.now
					for before.done == 0 && before.now < began+20*time.Minute {
						before.step(nil)
					}
					estimates = append(estimates, float64(wait)/float64(before.done-began))
				})
			}
			name := fmt.Sprintf("%s, at most %v", c.name, maxWait)
			ratio := float64(w.served[1]) / float64(w.served[0])
			if ratio < c.min || ratio > c.max {
				t.Errorf("%s: served %v, %.2f to 1, want %.1f to %.1f", name, w.served, ratio, c.min, c.max)
			}
			if len(estimates) == 0 {
				t.Logf("%s: served %v, %.2f to 1", name, w.served, ratio)
				continue
			}
			slices.Sort(estimates)
			within := 0
			for _, e := range estimates {
				if e > 0.8 && e < 1.2 {
					within++
				}
			}
			median := estimates[len(estimates)/2]
			if median < 0.9 || median > 1.1 {
				t.Errorf("%s: estimates are %.2f of the wait", name, median)
			}
			t.Logf("%s: served %v, %.2f to 1; estimates %.2f of the wait, %d of %d within a fifth", name, w.served, ratio, median, within, len(estimates))
		}
	}
}
