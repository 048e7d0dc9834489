package fairqueue

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever happens, who enters leaves once, an item of the greatest priority goes
// first, and the items of a flow of the same priority go in order of arrival.
func TestNobodyIsLost(t *testing.T) {
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

// Flows that always want more get the same for their weight, but for a few items.
func TestSharesOfThoseWhoAlwaysWait(t *testing.T) {
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

// Nobody goes on a budget for which somebody before waits.
func TestNobodyOvertakes(t *testing.T) {
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

// Where nobody else arrives, and all cost the same, Wait says when an item goes, but
// for ties.
func TestWaitIsWhatItTakes(t *testing.T) {
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
