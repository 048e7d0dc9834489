package fairqueue

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// world is forty workers in virtual time who call again and again what a token bucket
// limits. One that would wait longer than is allowed is refused and comes back when it
// was asked to.
type world struct {
	q        Queue[int]
	rate     float64 // tokens a second
	capacity float64
	level    float64
	filled   time.Duration
	now      time.Duration
	next     []time.Duration // when each worker calls; never while it waits
	light    int             // how many of them are of the light flow, the rest of the heavy
	maxWait  time.Duration
	served   [2]int // of the light and of the heavy
	freed    int    // this worker waits without bound
	done     time.Duration
}

const never = time.Duration(math.MaxInt64)

// clone copies the world as it is, so that one can see what would have happened.
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

// call lets a worker ask; it says how long it would wait, and whether that is refused.
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

// step lets happen what is next. onRefused gets the world as it was before the refusal.
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

// TestShares: of a limit that is scarce each flow gets its share within three minutes,
// whatever the burst, the number of callers and the longest wait that is allowed; and
// who is refused is told about as long as it would have waited.
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
			var estimates []float64 // of the wait that it would have been
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
