package learn

import (
	"math"
	"testing"
	"time"
)

func TestAWindowIsFoundIfTheSameAmountWasInUseAtEachRefusal(t *testing.T) {
	length := lengthOf(12)
	for _, tt := range []struct {
		name   string
		before []int     // attempts early in each cycle of 20 s
		early  []int     // of the hundred in the window before the refusal, in its first half
		each   []float64 // what an attempt costs
		unit   unit
		ok     bool
	}{
		{"by attempts", []int{0, 40, 10, 70, 60, 20}, []int{20, 80, 50, 35, 65, 10}, []float64{1, 1, 1, 1, 1, 1}, attempts, true},
		{"one rate explains it", []int{40, 40, 40, 40, 40, 40}, []int{20, 80, 50, 35, 65, 10}, []float64{1, 1, 1, 1, 1, 1}, attempts, false},
		{"too few blocks", []int{0, 40, 10}, []int{20, 80, 50}, []float64{1, 1, 1}, attempts, false},
	} {
		h, es, v := &history{}, episodes{}, view{mean: amounts{1, 1, 0}}
		v.h = h
		send := func(from, length time.Duration, n int, each float64) {
			for i := range n {
				h.add(from+time.Duration(i)*length/time.Duration(n), amounts{1, each, 0})
			}
		}
		ok, u, found, size := false, attempts, time.Duration(0), 0.0
		for i := range tt.before {
			at := time.Duration(20*i) * sec
			send(at, 4*sec, tt.before[i], tt.each[i])
			send(at+8*sec, length/2, tt.early[i], tt.each[i])
			send(at+8*sec+length/2, length/2, 100-tt.early[i], tt.each[i])
			b := block{began: at + 8*sec + length - ms, cost: tt.each[i]}
			b.lastRefused, b.release = b.began, b.began+sec
			v.now = b.release
			es.add(v, &b)
			u, found, size, ok = es.window(v)
		}
		if ok != tt.ok || ok && (u != tt.unit || found != length || math.Abs(size-100) > 1) {
			t.Errorf("%s: %v, %.1f of unit %d in %v", tt.name, ok, size, u, found)
		}
	}
}

func TestHowUnlikeARateBlocksAre(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cycles [][2]float64 // attempts and seconds
		newest int
		want   float64
	}{
		{"the same rate each time", [][2]float64{{20, 10}, {40, 20}, {10, 5}}, 3, 0},
		{"one attempt more or less", [][2]float64{{21, 10}, {39, 20}}, 2, 0},
		{"three more or less", [][2]float64{{23, 10}, {37, 20}}, 2, 4 / 60.},
		{"of the newest two", [][2]float64{{99, 1}, {23, 10}, {37, 20}}, 2, 4 / 60.},
		{"after many", [][2]float64{{1, 9}, {1, 9}, {1, 9}, {1, 9}, {1, 9}, {1, 9}, {23, 10}, {37, 20}}, 2, 4 / 60.},
	} {
		var es episodes
		for _, c := range tt.cycles {
			e := &es.ring[es.n%len(es.ring)]
			e.n, e.whole = c[0], c[1]
			es.n++
		}
		if got := es.unlikeRate(tt.newest); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		bounds    [][2]float32 // what a window that refused and released held
		size, off float64
	}{
		{[][2]float32{{90, 110}, {95, 105}, {99, 101}}, 100, 0},
		{[][2]float32{{108, 112}, {88, 92}, {99, 101}}, 100, (0.08 + 0.08) / 3},
		{[][2]float32{{300, 302}, {199, 201}, {99, 101}, {400, 402}}, 301, (0 + (301.-201)/301 + (301.-101)/301 + (400.-301)/301) / 4},
		{[][2]float32{{0, 0}, {0, 0}, {99, 101}}, 0, 1},
		{[][2]float32{{0, 1}, {0, 1}, {0, 1}}, 0.5, 0},
	} {
		known := make([]episode, len(tt.bounds))
		for i, b := range tt.bounds {
			known[i].least[cost][3], known[i].most[cost][3] = b[0], b[1]
		}
		if size, off := sizeOf(known, cost, 3); !(math.Abs(size-tt.size) < 1e-6 && math.Abs(off-tt.off) < 1e-6) {
			t.Errorf("%v: %v, off by %v; want %v, %v", tt.bounds, size, off, tt.size, tt.off)
		}
	}
}

// Blocks that end within a minute, after attempts at rates from 21 to 29 in ten seconds: a window
// of 100 attempts in the 13th length that is tried was full at each refusal, and no other one.
func TestWhichWindowExplainsBlocksThatNoRateDoes(t *testing.T) {
	type change = func(es *episodes, v *view)
	counts := func(newest ...float64) change { // the oldest is that of 25 if it is not named
		return func(es *episodes, _ *view) {
			for i, n := range newest {
				es.ring[(es.n-1-i)%len(es.ring)].n = n
			}
		}
	}
	full := func(u unit, i int, size float64) change {
		return func(es *episodes, _ *view) {
			for j := range es.ring {
				e := &es.ring[j]
				e.least[attempts][12], e.most[attempts][12] = float32(100+50*(j%2)), float32(100+50*(j%2))
				e.least[u][i], e.most[u][i] = float32(size), float32(size)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		blocks int
		do     []change
		unit   unit
		length int
		size   float64 // 0: none
	}{
		{"five blocks", 5, nil, attempts, 12, 100},
		{"four", 4, nil, attempts, 12, 0},
		{"six", 6, nil, attempts, 12, 100},
		{"six, one of which it does not explain", 6, []change{func(es *episodes, _ *view) { es.ring[5].least[0][12], es.ring[5].most[0][12] = 110, 110 }}, 0, 0, 0},
		{"by cost", 5, []change{full(cost, 5, 101)}, cost, 5, 101},
		{"with fewer than ten attempts of that cost", 5, []change{full(cost, 5, 100)}, 0, 0, 0},
		{"with ten attempts, which agree by chance", 5, []change{full(attempts, 12, 10)}, 0, 0, 0},
		{"with eleven", 5, []change{full(attempts, 12, 11), func(_ *episodes, v *view) { v.h = &history{} }}, attempts, 12, 11},
		{"the longest that is tried", 5, []change{full(attempts, lengths-1, 100), func(es *episodes, _ *view) { es.last = time.Hour }}, attempts, lengths - 1, 100},
		{"longer than half of the time that they took", 5, []change{func(es *episodes, _ *view) { es.last-- }}, 0, 0, 0},
		{"more had fitted into that length", 5, []change{full(attempts, 12, 96.9)}, 0, 0, 0},
		{"hardly more had", 5, []change{full(attempts, 12, 97)}, attempts, 12, 97},
		{"it explains them to a hundredth", 5, []change{func(es *episodes, _ *view) { es.ring[0].least[0][12] = 105.5 }}, attempts, 12, 100},
		{"no better than to a fiftieth", 5, []change{func(es *episodes, _ *view) { es.ring[0].least[0][12] = 106.5 }}, 0, 0, 0},
		{"a rate is off by 6 % of all", 5, []change{counts(29.75, 25, 25, 20.25)}, attempts, 12, 100},
		{"by less", 5, []change{counts(29.74, 25, 25, 20.25)}, 0, 0, 0},
		{"by 6 % of the newest four", 5, []change{counts(29, 25, 25, 21, 45)}, attempts, 12, 100},
		{"by less of those", 5, []change{counts(28.9, 25, 25, 21, 45)}, 0, 0, 0},
	} {
		es := &episodes{n: tt.blocks, last: time.Minute + 2*lengthOf(12)}
		for j := range tt.blocks {
			e := &es.ring[j]
			e.n, e.whole, e.refused = 25, 10, time.Minute+time.Duration(j)*sec
			for u := range units {
				for i := range lengths {
					e.least[u][i], e.most[u][i] = float32(100+50*(j%2)), float32(100+50*(j%2))
				}
			}
			e.least[attempts][12], e.most[attempts][12] = 100, 100
		}
		v := view{mean: amounts{1, 10, 1}, h: sentEvenly(lengthOf(12)-1, lengthOf(12)/100, 100)}
		counts(31, 25, 25, 19)(es, &v)
		for _, do := range tt.do {
			do(es, &v)
		}
		u, length, size, ok := es.window(v)
		if ok != (tt.size > 0) || ok && (u != tt.unit || length != lengthOf(tt.length) || math.Abs(size-tt.size) > 1e-3) {
			t.Errorf("%s: %v, %v of unit %d in %v; want %v of unit %d in %v", tt.name, ok, size, u, length, tt.size, tt.unit, lengthOf(tt.length))
		}
	}
	// What is noted of a block: an attempt of cost 3 each second, one refused at 60 s and one at 90 s.
	var es episodes
	v := view{h: &history{}, mean: amounts{1, 3, 0.5}}
	for i := range 200 {
		v.h.add(time.Duration(i+1)*sec, amounts{1, 3, 0.5})
	}
	es.add(v, &block{began: 60 * sec, lastRefused: 61 * sec, release: 62 * sec, cost: 4})
	if e := &es.ring[0]; es.since != 60*sec || e.n != 0 || e.whole != 0 || e.refused != 60*sec || es.n != 1 {
		t.Errorf("of the first block: %v attempts in %v s, refused at %v; %d since %v", e.n, e.whole, e.refused, es.n, es.since)
	}
	es.add(v, &block{began: 90 * sec, lastRefused: 91 * sec, release: 92 * sec, cost: 4})
	e := &es.ring[1]
	if es.since != 60*sec || e.n != 30 || e.whole != 30 || e.refused != 90*sec || es.n != 2 {
		t.Errorf("of the second block: %v attempts in %v s, refused at %v; %d since %v", e.n, e.whole, e.refused, es.n, es.since)
	}
	for i, want := range map[int]float32{0: 1, 4: 3, lengths - 1: 90} { // in 1 s, 2.07 s and 850 s
		late := float32(0)
		if i == lengths-1 {
			late = 2 // all are in use until the release
		}
		if e.least[attempts][i] != want+late || e.most[attempts][i] != want+1 || e.least[cost][i] != 3*(want+late) || e.most[cost][i] != 3*want+4 || e.most[busy][i] != want/2+0.5 {
			t.Errorf("in %v at least %v and at most %v attempts fit, %v and %v of cost; want %v", lengthOf(i), e.least[attempts][i], e.most[attempts][i], e.least[cost][i], e.most[cost][i], want)
		}
	}
}
