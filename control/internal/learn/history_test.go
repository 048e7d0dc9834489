package learn

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestHistoryKnowsWhatWasSentInAnyStretch(t *testing.T) {
	for _, tt := range []struct {
		every  time.Duration
		n      int
		length time.Duration
		want   float64
		near   float64 // part of the amount
	}{
		{sec, 100, 10 * sec, 10, 0},
		{sec, 100, 200 * sec, 100, 0},
		{100 * ms, 5000, 10 * sec, 100, 0.03},
		{100 * ms, 5000, 400 * sec, 4000, 0.03},
		{10 * ms, 300_000, 600 * sec, 60_000, 0.03},
		{10 * ms, 300_000, sec, 100, 0.03},
		{10 * ms, 300_000, 3000 * sec, 300_000, 0.001},
		{time.Microsecond, 300_000, sec, 300_000, 0},
		{time.Microsecond, 300_000, 10 * ms, 10_000, 0.03},
		{60 * time.Microsecond, 300_000, sec, 1_000_000.0 / 60, 0.03},
	} {
		var h history
		now := time.Duration(0)
		for range tt.n {
			now += tt.every
			h.add(now, amounts{1, 2, 0.5})
		}
		for u, per := range (amounts{1, 2, 0.5}) {
			if got := h.used(unit(u), now, tt.length); math.Abs(got/per-tt.want) > tt.near*tt.want+1e-9 {
				t.Errorf("every %v: %v of unit %d in %v, want %v", tt.every, got, u, tt.length, tt.want*per)
			}
		}
		from := h.newest(attempts, now, tt.want)
		if want := now - time.Duration(tt.want-1)*tt.every; math.Abs(float64(from-want)) > tt.near*float64(tt.length)+1 {
			t.Errorf("every %v: the newest %v began at %v, want %v", tt.every, tt.want, from, want)
		}
		if len(h.at) > maxCells || h.grain < cellsPerAge/2 {
			t.Errorf("every %v: %d cells, %.1f to an age", tt.every, len(h.at), h.grain)
		}
	}
}

// Attempts that are hardly apart share a cell: the history of a burst stays exact to minCell,
// and what was sent before the burst is known as if that were one attempt.
func TestABurstTakesFewCells(t *testing.T) {
	var h history
	for i := range 100 {
		h.add(time.Duration(i)*sec, amounts{1, 1, 0})
	}
	const n = 1000
	at := 100 * sec
	for i := range n {
		h.add(at+time.Duration(i)*time.Microsecond, amounts{1, 2, 0})
	}
	if len(h.at) > 100+n/100+1 {
		t.Errorf("%d cells", len(h.at))
	}
	for i := range n {
		sent := at + time.Duration(i)*time.Microsecond
		if got := h.until(cost, sent) - 100; math.Abs(got-2*float64(i+1)) > 2 {
			t.Errorf("%v of the burst were sent up to its attempt %d, want %d", got, i+1, 2*(i+1))
		}
		if got := h.sentBy(cost, 100+2*float64(i+1), false); max(got-sent, sent-got) > minCell {
			t.Errorf("attempt %d was sent by %v, want %v", i+1, got, sent)
		}
	}
	h.correct(at+n/2*time.Microsecond, amounts{-1, -2, 0}) // it was refused
	if got, want := h.used(cost, at+n*time.Microsecond, sec), 2.0*(n-1)+1; got != want-1 && got != want {
		t.Errorf("%v in a second, want %v", got, want)
	}
}

func TestAttemptsShareACellWithinATenthOfAMillisecond(t *testing.T) {
	for every, want := range map[time.Duration]int{minCell: 100, minCell - 1: 50, minCell / 10: 10} {
		var h history
		for i := range 100 {
			h.add(time.Duration(i)*every, amounts{1, 1, 1})
		}
		if len(h.at) != want {
			t.Errorf("100 attempts %v apart take %d cells, want %d", every, len(h.at), want)
		}
	}
}

// The cells of older attempts are as long as 1/grain of their age, neither longer nor shorter.
func TestCellsAreMergedByTheirAge(t *testing.T) {
	const n, now = 200, 200 * sec
	h := sentEvenly(now, sec, n)
	h.grain = 12
	h.correct(20*sec, amounts{-1, 0, 0}) // it was refused, and cost something
	h.merge(now)
	cells := len(h.at)
	if h.at[0] != sec || h.from[0] != sec || h.at[cells-exactCells] != now-(exactCells-1)*sec || h.from[cells-exactCells] != h.at[cells-exactCells] {
		t.Errorf("the first cell ends at %v, the 64th before the newest goes from %v to %v", h.at[0], h.from[cells-exactCells], h.at[cells-exactCells])
	}
	for i := 1; i < cells; i++ {
		if h.from[i] != h.at[i-1]+sec && h.from[i] != 21*sec {
			t.Errorf("cell %d goes from %v to %v, and the one before to %v", i, h.from[i], h.at[i], h.at[i-1])
		}
		if i > cells-exactCells {
			continue
		}
		if float64(h.at[i]-h.at[i-1])*h.grain > float64(now-h.at[i]) && h.from[i] != h.at[i] {
			t.Errorf("a cell from %v to %v is longer than a 12th of its age", h.from[i], h.at[i])
		}
		if i+1 < cells-exactCells && float64(h.at[i+1]-h.at[i-1])*h.grain <= float64(now-h.at[i+1]) {
			t.Errorf("cells from %v to %v together are no longer than a 12th of their age", h.from[i], h.at[i+1])
		}
	}
	if used, spent := h.until(attempts, now), h.until(cost, now); used != n-1 || spent != n {
		t.Errorf("%v attempts of %v were sent, want %d of %d", used, spent, n-1, n)
	}
	h = sentEvenly(now, sec, n)
	h.grain = 1e9
	h.correct(20*sec, amounts{-1, 0, 0})
	if h.merge(now); len(h.at) != n-1 || h.until(cost, 19*sec) != 20 || h.until(attempts, 19*sec) != 19 {
		t.Errorf("a refused attempt has a cell of %d, and %v is spent by the one before", len(h.at), h.until(cost, 19*sec))
	}
}

// However long the history is, the times of the newest few attempts are exact.
func TestTheNewestAreKnownExactly(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	var h history
	var at []time.Duration
	var sums []float64
	now, sum := time.Duration(0), 0.0
	for range 3000 {
		now += time.Duration(1+random.IntN(2000)) * ms
		tokens := float64(1 + random.IntN(500))
		h.add(now, amounts{1, tokens, 0})
		sum += tokens
		at, sums = append(at, now), append(sums, sum)
		if back := len(at) - exactCells - 1; back >= 0 {
			if got := h.sentBy(cost, sums[back], false); got != at[back] {
				t.Fatalf("after %d: the 64th before the newest was sent at %v, want %v", len(at), got, at[back])
			}
		}
	}
}

// record is a history that forgets nothing.
type record struct {
	at   []time.Duration
	each []amounts
}

func (r *record) until(u unit, t time.Duration) (sum float64) {
	for i, at := range r.at {
		if at <= t {
			sum += r.each[i][u]
		}
	}
	return sum
}

// first returns when the first attempt was sent by which the sum was reached, or exceeded.
func (r *record) first(u unit, sum float64, exceeded bool) time.Duration {
	n := 0.0
	for i, at := range r.at {
		if n += r.each[i][u]; n > sum+1e-6 || !exceeded && n >= sum*(1-1e-6) {
			return at
		}
	}
	return never
}

// With fewer attempts than cells, and with any number that were sent evenly, everything is
// known to an attempt.
func TestAHistoryIsExactWhileItIsShortOrEven(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	for _, tt := range []struct {
		n    int
		even bool
	}{{1, false}, {2, false}, {100, false}, {maxCells, false}, {maxCells + 1, true}, {5000, true}} {
		var h history
		var r record
		now := time.Duration(0)
		for i := range tt.n {
			gap, each := sec, amounts{1, 3, 0.25}
			if !tt.even {
				gap = minCell + time.Duration(random.Int64N(int64(20*sec)))
				each = amounts{1, float64(random.IntN(50)), random.Float64()}
			}
			now += gap
			h.add(now, each)
			r.at, r.each = append(r.at, now), append(r.each, each)
			if sent := r.at[max(0, i-3)]; !tt.even && i%7 == 3 { // the third before is refused
				refused := r.each[i-3]
				h.correct(sent, amounts{-refused[0], -refused[1], -refused[2]})
				r.each[i-3] = amounts{}
			}
		}
		off := func(got, want time.Duration) time.Duration {
			if got == never || want == never {
				return (got/2 - want/2).Abs()
			}
			return max(0, (got-want).Abs()-map[bool]time.Duration{true: 10 * ms}[tt.even])
		}
		if got := h.sentBy(attempts, r.until(attempts, now), true); got != now {
			t.Errorf("%d attempts: all were sent by %v, want %v", tt.n, got, now)
		}
		for range 300 {
			at, length := r.at[random.IntN(tt.n)]-time.Duration(random.IntN(2)), time.Duration(1+random.Int64N(int64(now)))
			if random.IntN(2) == 0 {
				at = time.Duration(random.Int64N(int64(now + 10*sec)))
			}
			for u := range units {
				one := map[bool]float64{true: 3}[tt.even]
				all := r.until(u, at)
				if got := h.until(u, at); math.Abs(got-all) > one+1e-6 {
					t.Fatalf("%d attempts: until %v %v of unit %d, want %v", tt.n, at, got, u, all)
				}
				want := all - r.until(u, at-length)
				if got := h.used(u, at, length); math.Abs(got-want) > 2*one+1e-6 {
					t.Fatalf("%d attempts: %v of unit %d in %v until %v, want %v", tt.n, got, u, length, at, want)
				}
				part := all * random.Float64()
				if tt.even { // whole attempts
					part = r.each[0][u] * math.Floor(part/r.each[0][u])
				}
				if got, want := h.reached(u, all-part), r.first(u, all-part, true); off(got, want) > 0 {
					t.Fatalf("%d attempts: more than %v of unit %d from %v on, want %v", tt.n, all-part, u, got, want)
				}
				if got, want := h.newest(u, at, part), r.first(u, all-part, true); !tt.even && got != want {
					t.Fatalf("%d attempts: the newest %v of unit %d until %v began at %v, want %v", tt.n, part, u, at, got, want)
				}
				sum := r.until(u, now) * 1.1 * random.Float64()
				if tt.even {
					sum = r.each[0][u] * math.Ceil(sum/r.each[0][u])
				}
				want2 := r.first(u, sum, false)
				if got := h.sentBy(u, sum, false); off(got, want2) > 0 {
					t.Fatalf("%d attempts: %v of unit %d sent by %v, want %v", tt.n, sum, u, got, want2)
				}
				if got := h.sentBy(u, sum, true); got < want2-sec/1000 || !tt.even && got != want2 {
					t.Fatalf("%d attempts: %v of unit %d surely sent by %v, want %v", tt.n, sum, u, got, want2)
				}
			}
		}
		most, since := 0.0, r.at[tt.n/3]
		for _, at := range r.at[tt.n/3+1:] {
			most = max(most, r.until(cost, at)-r.until(cost, at-now/7))
		}
		if got := h.peak(cost, now/7, since); math.Abs(got-most) > map[bool]float64{true: 6}[tt.even]+1e-6 {
			t.Errorf("%d attempts: a peak of %v in %v since %v, want %v", tt.n, got, now/7, since, most)
		}
	}
}

// One attempt at a second, and two at two seconds that are 90 µs apart.
func TestWhatIsKnownWithinACell(t *testing.T) {
	const first, last = 2 * sec, 2*sec + 90*time.Microsecond
	var h history
	for _, at := range []time.Duration{sec, first, last} {
		h.add(at, amounts{1, 10, 0})
	}
	for at, want := range map[time.Duration]float64{sec - 1: 0, sec: 1, first - 1: 1, first: 2, last - 1: 2, last: 3} {
		if got := h.until(attempts, at); got != want {
			t.Errorf("until %v %v attempts, want %v", at, got, want)
		}
	}
	for sum, want := range map[float64]time.Duration{0: sec, 9.9: sec, 10: first, 19.9: first + 89*time.Microsecond, 20: last, 29: last, 30 - 1.5e-6: last, 30: never} {
		if got := h.reached(cost, sum); (got - want).Abs() > time.Microsecond {
			t.Errorf("more than %v was sent at %v, want %v", sum, got, want)
		}
	}
	for sum, want := range map[float64]time.Duration{10: sec, 10.1: first, 20: first, 30: last, 30 * (1 + 5e-7): last, 30.1: never} {
		if got := h.sentBy(cost, sum, false); (got - want).Abs() > time.Microsecond {
			t.Errorf("%v was sent by %v, want %v", sum, got, want)
		}
	}
	if got := h.peak(cost, sec/2, -1); got != 20 {
		t.Errorf("a peak of %v, want 20", got)
	}
	h.correct(last, amounts{-1, -10, 0}) // it was refused
	if got := h.until(attempts, last-1); got != 2 {
		t.Errorf("after a refusal %v attempts, want 2", got)
	}
	h = history{}
	h.add(sec, amounts{1, 30, 0})
	h.add(2*sec, amounts{1, 10, 0})
	if got := h.peak(cost, sec/2, -1); got != 30 {
		t.Errorf("a peak of %v at the beginning, want 30", got)
	}
	var c crowd
	c.sent(0)
	if c.refused(1, maxEvidence); math.Abs(c.evidence-(math.Log(4)-1)) > 1e-6 {
		t.Errorf("evidence %v after one attempt", c.evidence)
	}
}

func TestARareNumberInFlightIsEvidenceForALimitOnIt(t *testing.T) {
	for _, tt := range []struct {
		name     string
		refusals []float64
		want     float64
	}{
		{"always at the most that ever were", []float64{9, 9, 9}, 3 * maxEvidence},
		{"at the most that are usual", []float64{7}, math.Log(201/25.5) - 1},
		{"with one other, as seven of eight attempts have", []float64{1}, math.Log(201/175.5) - 1},
		{"at any number", []float64{2, 5, 4, 7, 3}, math.Log(201/150.5*201/75.5*201/100.5*201/25.5*201/125.5) - 5},
		{"at a usual number each time: never worse than this", []float64{1, 1, 1, 1, 1, 1, 1, 1}, -2},
		{"alone", []float64{0, 0, 0}, 0},
	} {
		var c crowd
		c.refused(9, maxEvidence)
		if c.evidence != 0 {
			t.Errorf("evidence %v before anything was sent", c.evidence)
		}
		for i := range 200 {
			c.sent(i % 8)
		}
		for _, others := range tt.refusals {
			c.refused(others, maxEvidence)
		}
		if math.Abs(c.evidence-tt.want) > 1e-4 {
			t.Errorf("%s: evidence %.4f, want %.4f", tt.name, c.evidence, tt.want)
		}
	}
}

func TestAttemptsWithAsManyInFlightAreNearlyAlwaysRefused(t *testing.T) {
	for _, tt := range []struct {
		name     string
		refusals []float64
		admitted [][]int // after each refusal, with so many others
		want     bool
	}{
		{"with four each time", []float64{4, 4}, [][]int{{3, 2, 1}}, true},
		{"once", []float64{4}, [][]int{{3, 2}}, false},
		{"differently many", []float64{4, 4, 3}, nil, false},
		{"a tenth more or fewer is the same", []float64{40, 37}, [][]int{{36, 30}}, true},
		{"more than that is not", []float64{40, 35}, nil, false},
		{"few were admitted between", []float64{4, 4}, [][]int{{4, 3, 5}}, true},
		{"many were", []float64{4, 4}, [][]int{{4, 5, 4}}, false},
		{"before the last two", []float64{4, 4, 4}, [][]int{{4, 5, 4}}, true},
	} {
		var c crowd
		for i, others := range tt.refusals {
			c.sent(int(others))
			c.takeBack(others)
			c.refused(others, maxEvidence)
			if i < len(tt.admitted) {
				for _, n := range tt.admitted[i] {
					c.sent(n)
				}
			}
		}
		if got := c.certain(); got != tt.want {
			t.Errorf("%s: %v, want %v; %d refused, %d admitted between", tt.name, got, tt.want, c.times, c.between)
		}
	}
}

func TestALimitInFlightThatWasLoweredIsHeldWithItsNewSize(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	l.hold(&flight{size: 3, testAfter: maxTest})
	l.hold(newRate(0, 3, 4))
	l.out.add(100*sec, 2)
	l.crowd.last, l.crowd.times, l.weighed = 2, 2, 2
	l.block = block{blamed: 1, began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 101 * sec, refusals: 1, pace: 4}
	l.ended(l.view())
	if x := l.flight(); len(l.limits) != 1 || x == nil || x.size != 2 || x.testAfter != firstTest {
		t.Errorf("holds %+v", l.limits)
	}
}

func TestAShareOfAttemptsInFlight(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sent   [][2]int // so many, with that many others
		others float64
		want   float64 // of all attempts and one more, with half an attempt added
	}{
		{"more than ever", [][2]int{{99, 3}}, 4, 0.5 / 100},
		{"as many as all", [][2]int{{99, 3}}, 3, 99.5 / 100},
		{"at least none", [][2]int{{99, 3}}, 0, 99.5 / 100},
		{"two of nine", [][2]int{{7, 3}, {2, 5}}, 4, 2.5 / 10},
		{"what is forgotten counts as none", [][2]int{{99, 0}}, -1, 99.5 / 100},
		{"very many count as 63", [][2]int{{9, 63}, {10, 1000}, {80, 62}}, 2000, 19.5 / 100},
		{"what was before the newest 400 counts half", [][2]int{{400, 1}, {1, 9}}, 9, 1 / 201.5},
		{"not before", [][2]int{{399, 1}, {1, 9}}, 9, 1.5 / 401},
		{"and a quarter", [][2]int{{400, 1}, {200, 9}, {1, 5}}, 1, (400/4. + 200/2. - 1/4. + 1/2. + 0.5) / (400/4. + 200/2. - 1/4. + 1/2. + 1)},
	} {
		var c crowd
		for _, s := range tt.sent {
			for range s[0] {
				c.sent(s[1])
			}
		}
		if got := c.share(tt.others); math.Abs(got-tt.want) > 0.001 {
			t.Errorf("%s: %.5f, want %.5f", tt.name, got, tt.want)
		}
	}
}

func TestHowManyWereInFlightIsKnownOfTheNewest48(t *testing.T) {
	var d departures
	if got := d.others(sec); got != -1 {
		t.Errorf("of no attempt %v are known", got)
	}
	for i := range 100 {
		d.add(time.Duration(i)*sec, i)
		for back, want := range map[int]float64{0: float64(i), 1: float64(i - 1), 47: float64(i - 47), 48: -1} {
			if i < 48 && back > i {
				want = -1
			}
			if got := d.others(time.Duration(i-back) * sec); got != max(-1, want) {
				t.Errorf("%d attempts before the newest of %d %v others were in flight, want %v", back, i+1, got, want)
			}
		}
	}
}

func TestALimitOnAttemptsInFlight(t *testing.T) {
	for _, tt := range []struct {
		x            flight
		flying       int
		free         bool
		room         float64
		full         float64       // if the last of them is refused
		untilLatency time.Duration // between attempts that take a second each
	}{
		{flight{size: 1}, 0, true, 1, 0, sec},
		{flight{size: 1}, 1, false, 0, 0.5, sec},
		{flight{size: 4}, 3, true, 1, 0.625, sec / 4},
		{flight{size: 4}, 4, false, 0, 0.875, sec / 4},
		{flight{size: 4, climb: 1}, 4, true, 1, 1, sec / 4}, // a test of five
		{flight{size: 4, climb: 1}, 5, false, 0, 1.25, sec / 4},
		{flight{size: 0.5}, 0, true, 0.5, 0, sec}, // one always goes
	} {
		v := view{now: sec, flying: tt.flying, latency: 1e9, open: time.Hour}
		if got := tt.x.free(v, 1); got != sec && got != never || (got == sec) != tt.free {
			t.Errorf("%+v, %d in flight: the next goes at %v", tt.x, tt.flying, got)
		}
		room, full, every := tt.x.room(v), tt.x.fullness(v, refusal{others: float64(tt.flying - 1)}), time.Duration(tt.x.interval(v))
		if room != tt.room || full != tt.full || every != tt.untilLatency {
			t.Errorf("%+v, %d in flight: room %v, full %v, one each %v; want %v, %v, %v", tt.x, tt.flying, room, full, every, tt.room, tt.full, tt.untilLatency)
		}
	}
}

func TestAfterABlockNoAnswersAreOnTheirWayBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		x      flight
		trip   time.Duration // of a second that an attempt takes
		open   time.Duration
		flying int
		free   bool
	}{
		{"a fifth of ten is on its way: eight go at first", flight{size: 10}, 200 * ms, 0, 7, true},
		{"and no more", flight{size: 10}, 200 * ms, 0, 8, false},
		{"until two answers' time has passed", flight{size: 10}, 200 * ms, 2*sec - 1, 8, false},
		{"all of them then", flight{size: 10}, 200 * ms, 2 * sec, 9, true},
		{"less than one is on its way", flight{size: 4}, 200 * ms, 0, 3, true},
		{"one always goes", flight{size: 1}, 2 * sec, 0, 0, true},
	} {
		v := view{now: 9 * sec, flying: tt.flying, latency: 1e9, guard: tt.trip, open: tt.open}
		if got := tt.x.free(v, 1); (got == v.now) != tt.free {
			t.Errorf("%s: with %d in flight the next goes at %v", tt.name, tt.flying, got)
		}
	}
}

func TestATestedNumberInFlightIsConfirmed(t *testing.T) {
	x := &flight{size: 12, testAfter: 10}
	v := view{flying: 12, lastBlock: 1, open: seconds(testAfterBlocks)}
	for range 20 {
		if x.answered(v); x.climb > 0 {
			t.Fatal("it is tested soon after a block")
		}
	}
	x.untested, v.open = 0, seconds(testAfterBlocks+0.1)
	for i, want := range []float64{10: 12, 11: 12, 16: 12, 17: 13} {
		if want > 0 && x.size != want {
			t.Errorf("after %d answers the size is %v, want %v", i, x.size, want)
		}
		if x.answered(v); (x.climb == 1) != (i >= 10) {
			t.Errorf("after %d answers %v more are tested", i+1, x.climb)
		}
	}
	x.blame(v, refusal{others: 13})
	if x.size != 13 || x.climb != 0 || x.testAfter != 20 {
		t.Errorf("%v and %v on top after a failed test, the next after %v; want 13, 0 and 20", x.size, x.climb, x.testAfter)
	}
	x = &flight{size: 60, testAfter: 10, untested: 10}
	if x.answered(v); x.climb != 3 {
		t.Errorf("%v more than 60 are tested, want 3", x.climb)
	}
}

func TestARefusalByALimitOnAttemptsInFlight(t *testing.T) {
	for _, tt := range []struct {
		name   string
		x      flight
		others float64
		want   flight
	}{
		{"long after the last one: as many as there were", flight{size: 10, untested: 50, soonInRow: 2}, 7, flight{size: 7}},
		{"it holds no more than it did", flight{size: 10, untested: 50}, 12, flight{size: 10}},
		{"soon after the last one: a tenth less", flight{size: 20, untested: 99, soonInRow: 1}, 19, flight{size: 17, soonInRow: 2}},
		{"soon, with fewer in flight", flight{size: 20, untested: 99}, 15, flight{size: 13, soonInRow: 1}},
		{"one always goes", flight{size: 1, untested: 50}, 0, flight{size: 1}},
		{"in a test: the next one comes later", flight{size: 10, climb: 1, testAfter: 500, untested: 300, soonInRow: 1}, 10, flight{size: 10, testAfter: 1000, soonInRow: 1}},
		{"up to a bound", flight{size: 10, climb: 1, testAfter: 3000}, 10, flight{size: 10, testAfter: maxTest}},
	} {
		got := tt.x
		if got.blame(view{}, refusal{others: tt.others}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestRefusalsWithEverFewerInFlightContradictALimitOnThem(t *testing.T) {
	for _, tt := range []struct {
		size, to float64
		wrong    bool
	}{
		{20, 13, false},
		{20, 12, true},
		{3, 2, false},
		{2, 1, false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.out.add(0, int(tt.size))
		l.holdFlight(&block{}, 0)
		x := l.flight()
		for x.size > tt.to {
			x.untested = 1000
			x.blame(l.view(), refusal{others: x.size - 1})
		}
		if x.wrong() != tt.wrong {
			t.Errorf("refused from %v down to %v in flight: wrong is %v, want %v", tt.size, tt.to, x.wrong(), tt.wrong)
		}
		x.climb, x.untested, x.over = 1, x.testAfter+1, 1
		x.answered(view{open: time.Hour})
		if x.wrong() {
			t.Errorf("%v in flight: wrong although a test confirmed %v", tt.size, x.size)
		}
	}
}

func TestALimitInFlightThatIsRefusedTooOftenIsDropped(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	was := newRate(0, 20, 25)
	x := &flight{size: 43, testAfter: firstTest, was: was}
	l.hold(x)
	v := l.view()
	for i := range maxSoon {
		if x.soonInRow >= maxSoon {
			t.Fatalf("given up after %d refusals", i)
		}
		x.untested = 46
		x.blame(v, refusal{others: x.size - 1})
	}
	l.block = block{refusals: 1}
	l.crowd.evidence, was.count, was.since, l.clock = 5, 7, 9, 50*sec
	l.ended(l.view())
	if l.flight() != nil || l.rate() != was || l.crowd.wrong != 1 || l.crowd.evidence != 0 {
		t.Errorf("holds %v after %d refusals soon after each other, want the rate of before; evidence %v, %v wrong", l.Binding(), maxSoon, l.crowd.evidence, l.crowd.wrong)
	}
	if was.released != 50*sec || was.count != 0 || was.since != 0 || was.due != 50*sec+sec/20 {
		t.Errorf("the rate of before goes on with %+v", was)
	}
	l = New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	l.out.add(0, 9)
	l.crowd.evidence = 5
	l.hold(was)
	l.holdFlight(&block{}, 0)
	if x, ok := l.limits[0].(*flight); !ok || x.size != 9 || x.testAfter != firstTest || x.was != was || l.crowd.evidence != 0 {
		t.Errorf("with nine others in flight it holds %+v, evidence %v", l.limits[0], l.crowd.evidence)
	}
}

func TestWhatWasCountedIsCorrected(t *testing.T) {
	for _, tt := range []struct {
		name    string
		do      func(*Law)
		used    amounts // in all, of three attempts of 5 at 1, 2 and 3 seconds
		late    amounts // of that after 2 seconds
		flying  int
		spent   float64 // of an advertised limit on cost since its newest report, at 2 seconds, with a share of half
		calls   float64 // of one on attempts
		carried float64 // by a rate that is held
	}{
		{"nothing", func(*Law) {}, amounts{3, 15, 3}, amounts{1, 5, 1}, 3, 5, 2, 3},
		{"one was sent later", func(l *Law) { l.Recount(2*sec, 3*sec, 5) }, amounts{3, 15, 3}, amounts{2, 10, 2}, 3, 5, 2, 3},
		{"one was not sent", func(l *Law) { l.Recount(2*sec, never, 5) }, amounts{2, 10, 2}, amounts{1, 5, 1}, 2, 2.5, 1, 2},
		{"one that was reported was not sent", func(l *Law) { l.Recount(sec, never, 5) }, amounts{2, 10, 2}, amounts{1, 5, 1}, 2, 5, 2, 2},
		{"none was sent", func(l *Law) {
			for range 4 {
				l.Recount(3*sec, never, 50)
			}
		}, amounts{-1, -185, -1}, amounts{-3, -195, -3}, 0, 0, 0, 0},
		{"one costs more", func(l *Law) { l.Recost(2*sec, 4) }, amounts{3, 19, 3}, amounts{1, 5, 1}, 3, 7, 2, 3},
		{"one that was reported costs more", func(l *Law) { l.Recost(sec, 4) }, amounts{3, 19, 3}, amounts{1, 5, 1}, 3, 5, 2, 3},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		r := newRate(0, 1, 1)
		l.mean, l.limits = amounts{1, 1, 1}, []limit{r}
		l.headers = []advertised{{perCost: true, share: 0.5, at: 2 * sec}, {share: 1, at: 2 * sec}}
		for i := range 3 {
			l.Sent(time.Duration(i+1)*sec, 5)
		}
		for i := range l.headers {
			l.headers[i].spent = []float64{5, 2}[i]
		}
		tt.do(l)
		if got := l.h.total; got != tt.used || l.h.until(cost, 3*sec) != tt.used[cost] {
			t.Errorf("%s: %v were sent, want %v", tt.name, got, tt.used)
		}
		for u := range units {
			if got := l.h.total[u] - l.h.until(u, 2*sec); got != tt.late[u] {
				t.Errorf("%s: %v of unit %d since 2s, want %v", tt.name, got, u, tt.late[u])
			}
		}
		if l.flying != tt.flying || l.headers[0].spent != tt.spent || l.headers[1].spent != tt.calls || r.count != tt.carried {
			t.Errorf("%s: %d in flight, %v and %v spent, %v carried; want %d, %v and %v, %v", tt.name, l.flying, l.headers[0].spent, l.headers[1].spent, r.count, tt.flying, tt.spent, tt.calls, tt.carried)
		}
	}
}

func TestWhatIsKnownOfAnAdvertisedLimit(t *testing.T) {
	now := 100 * sec
	v := view{now: now, h: sentEvenly(now, sec, 101), mean: amounts{1, 4, 0}, latency: 1e9, guard: 80 * ms, jitter: float64(50 * ms)}
	minute := advertised{shaper: newShaper(sliding), quota: 100, window: time.Minute, longest: time.Minute, share: 1, at: now, left: 30, spent: 10}
	with := func(do func(*advertised)) advertised { a := minute; do(&a); return a }
	for _, tt := range []struct {
		name       string
		a          advertised
		room       float64 // attempts of cost 4
		every      float64 // attempts may go every so many seconds
		late, next time.Duration
	}{
		{"a sliding minute, of which we used 60 and others 20", with(func(a *advertised) { a.others = 20 }), 20, 0.6, 60 * ms, 0},
		{"a fixed one has what is left", with(func(a *advertised) { a.shape = fixed }), 20, 0.6, 60 * ms, 0},
		{"on cost", with(func(a *advertised) { a.perCost, a.shape = true, fixed }), 5, 0, 60 * ms, 0},
		{"no shape predicts it", with(func(a *advertised) { a.wrong = maxWrong }), math.Inf(1), 0, 60 * ms, 0},
		{"it is reported no more", with(func(a *advertised) { a.gone = true }), math.Inf(1), 0, 60 * ms, 0},
		{"no response yet", with(func(a *advertised) { a.at = -1 }), math.Inf(1), 0.6, 60 * ms, 0},
		{"a first one at the very beginning", with(func(a *advertised) { a.at = 0 }), 40, 0.6, 60 * ms, 0},
		{"a bucket, of which no rate is known", with(func(a *advertised) { a.shape = bucket }), 20, 0, 0, 0},
		{"a bucket", with(func(a *advertised) { a.shape, a.slow = bucket, 4 }), 20, 0.25, 0, 0},
		{"a bucket after an early attempt", with(func(a *advertised) { a.shape, a.slack = bucket, 7*ms }), 20, 0, 7 * ms, 0},
		{"a size that nobody says", with(func(a *advertised) { a.shape, a.quota = fixed, 0 }), 20, 0, 60 * ms, 0},
		{"a short window: part of a round trip", with(func(a *advertised) { a.window, a.longest = sec, sec }), 99, 0.01, 10 * ms, 0},
		{"two seconds: a hundredth", with(func(a *advertised) { a.window, a.longest = 2*sec, 2*sec }), 98, 0.02, 20 * ms, 0},
		{"no reset was reported: by what is left", with(func(a *advertised) { a.longest = 0 }), 20, 0.6, 60 * ms, 0},
		{"after an early attempt", with(func(a *advertised) { a.slack = 90 * ms }), 40, 0.6, 90 * ms, 0},
		{"a long one: a thousandth", with(func(a *advertised) { a.window = 100 * sec }), 0, 1, 100 * ms, 1100 * ms},
		{"ten seconds: as much as answers differ", with(func(a *advertised) { a.window = 10 * sec }), 90, 0.1, 50 * ms, 0},
		// Of what 60 s hold 100 may be used: others, their growth and a margin take room.
		{"full, with others", with(func(a *advertised) { a.others = 40.4 }), -0.4, 0.6, 60 * ms, sec + 60*ms},
		{"others who grow", with(func(a *advertised) { a.others, a.surge = 38, 2 }), 2, 0.6, 60 * ms, 3*sec + 60*ms},
		{"who grow a lot: a part of it", with(func(a *advertised) { a.others, a.surge = 38, 50 }), 2, 0.6, 60 * ms, 7*sec + 60*ms},
		{"a margin of what others leave", with(func(a *advertised) { a.others, a.margin = 38, 0.05 }), 2, 0.6, 60 * ms, 2*sec + 60*ms},
	} {
		if got := tt.a.room(v); got != tt.room && math.Abs(got-tt.room) > 1e-9 {
			t.Errorf("%s: room for %v, want %v", tt.name, got, tt.room)
		}
		if got := tt.a.interval() / 1e9; math.Abs(got-tt.every) > 1e-9 {
			t.Errorf("%s: one each %v s, want %v", tt.name, got, tt.every)
		}
		if got := tt.a.late(v); got != tt.late {
			t.Errorf("%s: %v for the way, want %v", tt.name, got, tt.late)
		}
		if tt.a.shape == sliding {
			if got := max(0, tt.a.slide(v, 1)-now); got != tt.next {
				t.Errorf("%s: the next one in %v, want %v", tt.name, got, tt.next)
			}
		}
	}
	free := with(func(a *advertised) { a.shape, a.perCost = fixed, true })
	if got := free.room(view{h: v.h}); got != 20e9 {
		t.Errorf("room for %v attempts that cost nothing", got)
	}
	v.guard, v.jitter = 0, 0
	if got := minute.late(v); got != 60*ms {
		t.Errorf("%v for the way of a minute's limit, want 60ms", got)
	}
	if v.latency = 2e9; minute.late(v) != 100*ms {
		t.Errorf("before any refusal %v for the way, want a twentieth of a response's time", minute.late(v))
	}
}

func TestTheLengthsThatAreUsual(t *testing.T) {
	for _, tt := range []struct{ longest, want time.Duration }{
		{58800 * ms, time.Minute}, {58799 * ms, 58799 * ms}, {62200 * ms, time.Minute}, {62201 * ms, 62201 * ms},
		{9800 * ms, 10 * sec}, {9799 * ms, 9799 * ms}, {11200 * ms, 10 * sec}, {11201 * ms, 11201 * ms},
		{15100 * ms, 15 * sec}, {30200 * ms, 30 * sec}, {121 * sec, 2 * time.Minute}, {303 * sec, 5 * time.Minute}, {606 * sec, 10 * time.Minute}, {903 * sec, 15 * time.Minute}, {1810 * sec, 30 * time.Minute},
		{3600 * sec, time.Hour}, {3*time.Hour + time.Minute, 3 * time.Hour}, {6*time.Hour + time.Minute, 6 * time.Hour}, {12*time.Hour + time.Minute, 12 * time.Hour}, {24*time.Hour - time.Minute, 24 * time.Hour},
	} {
		if got := (&advertised{longest: tt.longest}).length(); got != tt.want {
			t.Errorf("a reset of %v: %v long, want %v", tt.longest, got, tt.want)
		}
		if got := (&advertised{longest: tt.longest, window: sec}).length(); got != sec {
			t.Errorf("a reset of %v of a second: %v long", tt.longest, got)
		}
	}
	for _, tt := range []struct{ longest, least, want time.Duration }{
		{20 * sec, 18 * sec, 18 * sec}, {20 * sec, 18*sec - 1, 20 * sec}, {20 * sec, 1, 20 * sec}, {sec, 1, 1}, {sec, 0, sec},
	} {
		a := advertised{shaper: newShaper(sliding), longest: tt.longest, least: tt.least}
		if got := a.length(); got != tt.want {
			t.Errorf("resets from %v to %v: %v long, want %v", tt.least, tt.longest, got, tt.want)
		}
	}
}

func TestTheShareOfACostThatCounts(t *testing.T) {
	a := advertised{perCost: true, at: -1, share: 1}
	for i, tt := range []struct{ share, want float64 }{{0, 1}, {0.2, 0.2}, {0.4, 0.22}, {0, 0.22}, {-1, 0.22}, {0.22, 0.22}} {
		if a.shares(tt.share); math.Abs(a.share-tt.want) > 1e-9 {
			t.Errorf("after report %d %v of a cost counts, want %v", i, a.share, tt.want)
		}
		if tt.share > 0 {
			a.at = 0
		}
	}
	a.perCost = false
	if a.shares(0.9); math.Abs(a.share-0.22) > 1e-9 {
		t.Errorf("%v of an attempt counts", a.share)
	}
	for _, tt := range []struct {
		a    advertised
		want float64 // of a cost of 8
	}{
		{advertised{quota: 5}, 1}, {advertised{perCost: true, share: 0.5, quota: 5}, 4}, {advertised{perCost: true, share: 0.5, quota: 3}, 3},
		{advertised{perCost: true, share: 0.5}, 1}, {advertised{perCost: true, share: 0.01, quota: 3}, 0.08},
	} {
		if got := tt.a.need(8); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%+v: an attempt needs %v, want %v", tt.a, got, tt.want)
		}
	}
}

func TestAWindowThatEndsBeforeAResponseShowsIt(t *testing.T) {
	known := advertised{shaper: newShaper(fixed), quota: 9, window: 10 * sec, share: 1, at: 5 * sec, left: 3, spent: 2, whole: 20 * sec, rolls: 1}
	for _, tt := range []struct {
		name        string
		do          func(*advertised)
		now         time.Duration
		rolled      bool
		left, spent float64 // after an attempt of cost 4
		whole       time.Duration
		gone        bool // once that attempt is answered without a report
	}{
		{"it goes on", func(*advertised) {}, 20*sec - 1, false, 3, 3, 20 * sec, false},
		{"it is over", func(*advertised) {}, 20 * sec, true, 9, 1, 30 * sec, true},
		{"it is over for long", func(*advertised) {}, 99 * sec, true, 9, 1, 109 * sec, true},
		{"for the first time: one attempt finds out", func(a *advertised) { a.rolls = 0 }, 20 * sec, true, 1, 1, 30 * sec, true},
		{"costs do not", func(a *advertised) { a.rolls, a.perCost, a.share = 0, true, 0.5 }, 20 * sec, true, 9, 2, 30 * sec, true},
		{"nothing was sent in it", func(a *advertised) { a.spent = 0 }, 15 * sec, false, 3, 1, 20 * sec, false},
		{"no other shape ends", func(a *advertised) { a.shape = sliding }, 20 * sec, false, 3, 3, 20 * sec, false},
		{"nothing was reported", func(a *advertised) { a.at = -1 }, 20 * sec, false, 3, 3, 20 * sec, false},
		{"the first report came at once", func(a *advertised) { a.at = 0 }, 20 * sec, true, 9, 1, 30 * sec, true},
		{"no end was reported", func(a *advertised) { a.whole = 5 * sec }, 20 * sec, false, 3, 3, 5 * sec, false},
		{"no size", func(a *advertised) { a.quota = 0 }, 20 * sec, false, 3, 3, 20 * sec, false},
		{"of one", func(a *advertised) { a.quota = 1 }, 20 * sec, true, 1, 1, 30 * sec, true},
		{"a second is the shortest", func(a *advertised) { a.window = ms }, 20 * sec, true, 9, 1, 21 * sec, true},
	} {
		a := known
		tt.do(&a)
		a.sent(tt.now, 4)
		if a.rolled != tt.rolled || a.left != tt.left || a.spent != tt.spent || a.whole != tt.whole {
			t.Errorf("%s: new window %v, %v left, %v spent, until %v; want %v, %v, %v, %v", tt.name, a.rolled, a.left, a.spent, a.whole, tt.rolled, tt.left, tt.spent, tt.whole)
		}
		if a.answered(a.at - 1); a.gone {
			t.Errorf("%s: an answer from the window before says that the limit is gone", tt.name)
		}
		b := a
		if a.answered(a.at); a.gone != tt.gone {
			t.Errorf("%s: gone %v, want %v", tt.name, a.gone, tt.gone)
		}
		if b.rolled {
			spent := b.spent
			b.sent(tt.now+ms, 4)
			if b.spent != 2*spent || b.whole != tt.whole || b.rolls != a.rolls {
				t.Errorf("%s: after another attempt %v spent, until %v", tt.name, b.spent, b.whole)
			}
			b.takeBack(b.at, 4)
			if b.takeBack(b.at-1, 4); b.spent != spent {
				t.Errorf("%s: without it %v spent, want %v", tt.name, b.spent, spent)
			}
			b.takeBack(b.at, 400)
			if b.takeBack(b.at, 400); b.spent != 0 {
				t.Errorf("%s: %v spent of nothing", tt.name, b.spent)
			}
		}
	}
	for window, want := range map[time.Duration]time.Duration{10 * sec: 10 * sec, ms: sec} {
		a := known
		a.window = window
		if a.roll(20 * sec); a.whole != 20*sec+want {
			t.Errorf("a window of %v that begins at 20s ends at %v", window, a.whole)
		}
		if a.sent(25*sec, 1); a.whole != 25*sec+want {
			t.Errorf("a window of %v that begins with an attempt at 25s ends at %v", window, a.whole)
		}
		a.gone = true
		if a.answered(0); !a.gone {
			t.Error("an older answer brings a limit back")
		}
	}
}

// An attempt used one unit and was reported to be free after ten seconds. The next report
// comes four seconds later, unless a row says otherwise; both are exact to 100 ms.
func TestWhatTwoResetsSayAboutAShape(t *testing.T) {
	for _, tt := range []struct {
		name   string
		shape  shape
		prior  report
		next   report
		want   shape
		errors [shapes]float64 // of sliding, fixed and bucket
		wrong  float64
		sure   bool
		taken  bool // it is what the next one is compared with
	}{
		{"the same end", fixed, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 6 * sec}, fixed, [3]float64{1.5, 0, 1.5}, 0, true, true},
		{"the same length", sliding, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 10 * sec}, sliding, [3]float64{0, 1.5, 1.5}, 0, true, true},
		{"which turns a fixed one", fixed, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 10 * sec}, sliding, [3]float64{0, 0.5, 1}, 0, false, true},
		{"twice as long for two", bucket, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 10, reset: 20 * sec}, bucket, [3]float64{1.5, 1.5, 0}, 0, true, true},
		{"half a unit of an error", sliding, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 10200 * ms}, sliding, [3]float64{0, 1, 1}, 0.5, true, true},
		{"three tolerances of a difference are enough", sliding, report{used: 5, reset: 10 * sec}, report{sent: 300 * ms, used: 9, reset: 10 * sec}, sliding, [3]float64{0, 1.5, 1.5}, 0, true, true},
		{"less are not", sliding, report{used: 5, reset: 10 * sec}, report{sent: 299 * ms, used: 9, reset: 10 * sec}, sliding, [3]float64{0, 0.5, 0.5}, 0, false, false},
		{"between two shapes", fixed, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 8 * sec}, fixed, [3]float64{0.5, 0, 0.5}, 0, false, false},
		{"the same end, from the response", fixed, report{used: 5, reset: 9 * sec, took: sec}, report{sent: 4 * sec, used: 9, reset: 5900 * ms, took: 100 * ms}, fixed, [3]float64{1.5, 0, 1.5}, 0, true, true},
		{"after one that was free at once", fixed, report{used: 5, took: 5 * sec}, report{sent: 4 * sec, used: 9, reset: sec}, fixed, [3]float64{0.5, 0, 0.5}, 0, false, true},
		{"no shape", fixed, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 2 * sec}, fixed, [3]float64{0.5, 0, 0.5}, 1, false, true},
		{"after the end it is another window", fixed, report{used: 5, reset: 10 * sec}, report{sent: 9900 * ms, used: 9, reset: sec}, fixed, [3]float64{0.5, 0, 0.5}, 0, false, true},
		{"just before it", fixed, report{used: 5, reset: 10 * sec}, report{sent: 9899 * ms, used: 9, reset: 101 * ms}, fixed, [3]float64{1.5, 0, 1.5}, 0, true, true},
		{"the first one", fixed, report{}, report{sent: 4 * sec, used: 9, reset: 6 * sec}, fixed, [3]float64{0.5, 0, 0.5}, 0, false, true},
	} {
		r := newShaper(tt.shape)
		r.prior = tt.prior
		r.learn(tt.next, func(x report) time.Duration { return x.reset + x.took }, 100*ms)
		off := 0.0
		for s := range r.errors {
			off = max(off, math.Abs(r.errors[s]-tt.errors[s]))
		}
		if off > 0.01 || r.shape != tt.want || math.Abs(r.wrong-tt.wrong) > 0.01 || r.sure() != tt.sure || (r.prior == tt.next) != tt.taken {
			t.Errorf("%s: %+v, sure %v; want %+v", tt.name, r, r.sure(), tt)
		}
	}
	r := newShaper(fixed)
	for i := range 9 { // however often
		r.prior = report{used: 5, reset: 10 * sec}
		if r.learn(report{sent: 4 * sec, used: 9, reset: 6 * sec}, func(x report) time.Duration { return x.reset }, 100*ms); r.errors[sliding] != min(maxShapeError, 1.5+float64(i)) {
			t.Errorf("after %d reports the error is %v", i+1, r.errors[sliding])
		}
	}
	if r.wrong = maxWrong; r.trusted() {
		t.Error("what no shape predicts is trusted")
	}
	// By how much two resets of a bucket disagree, if they are exact to a second: a unit takes 10 s
	// to 11 s by the first, of two units.
	for _, tt := range []struct {
		next report
		want time.Duration
	}{
		{report{used: 10, reset: 200 * sec}, 17600 * ms}, {report{used: 1, reset: 50 * sec}, 37 * sec}, {report{used: 10, reset: 100 * sec}, 0}, {report{used: 10, reset: 20 * sec}, 2 * (4*sec - 21*sec/9)},
	} {
		for _, x := range [][2]report{{{used: 2, reset: 10 * sec}, tt.next}, {tt.next, {used: 2, reset: 10 * sec}}} {
			if got := apart(x[0], x[1], sec); (got - tt.want).Abs() > time.Microsecond {
				t.Errorf("%+v and %+v disagree by %v, want %v", x[0], x[1], got, tt.want)
			}
		}
	}
}

func TestWhereAResetIsCountedFrom(t *testing.T) {
	for _, tt := range []struct {
		name           string
		shape          shape
		next           report
		sent, answered time.Duration // variation
	}{
		{"a fixed end, from the response", fixed, report{sent: 4 * sec, took: 300 * ms, reset: 5800 * ms}, 200 * ms, 0},
		{"a fixed end, from sending", fixed, report{sent: 4 * sec, took: 300 * ms, reset: 6 * sec}, 0, 200 * ms},
		{"a fixed length, from the response", sliding, report{sent: 4 * sec, took: 300 * ms, reset: 9800 * ms}, 200 * ms, 0},
		{"another window", sliding, report{sent: 4 * sec, took: 100 * ms, reset: 25 * sec}, 0, 0},
		{"not quite", sliding, report{sent: 4 * sec, took: 100 * ms, reset: 25*sec - 1}, 15*sec - 1, 15*sec - 1},
	} {
		a := advertised{shaper: newShaper(tt.shape), window: time.Minute, last: report{sent: 3 * sec, took: 100 * ms, reset: 10 * sec}}
		tt.next.sent += 3 * sec
		a.compare(tt.next)
		if time.Duration(a.sentAt) != tt.sent || time.Duration(a.answeredAt) != tt.answered || a.last != tt.next {
			t.Errorf("%s: %v from sending, %v from the response; want %v, %v", tt.name, time.Duration(a.sentAt), time.Duration(a.answeredAt), tt.sent, tt.answered)
		}
		want := tt.next.reset
		if tt.answered < tt.sent {
			want += tt.next.took
		}
		if got := a.fromSending(tt.next); got != want {
			t.Errorf("%s: %v from sending on, want %v", tt.name, got, want)
		}
		if a.precise = true; a.fromSending(tt.next) != tt.next.reset {
			t.Errorf("%s: a duration counts from the response", tt.name)
		}
	}
	a := advertised{shaper: newShaper(sliding), window: time.Minute, last: report{reset: 10 * sec}, sentAt: 1e9, answeredAt: 1e9}
	if a.compare(report{sent: sec, took: sec, reset: 12 * sec}); a.sentAt != 1.1e9 || a.answeredAt != 1.2e9 {
		t.Errorf("the variations are %v and %v, want a tenth of the newest ones", a.sentAt, a.answeredAt)
	}
}

func TestHowFastABucketRefills(t *testing.T) {
	for _, tt := range []struct {
		name         string
		a            advertised
		used         float64
		reset        time.Duration // rounded up to a second
		slow, fast   float64
		aboutABucket float64 // evidence against one
	}{
		{"ten in 5 s, one of which is hardly used", advertised{quota: 60, grain: 1}, 10, 5 * sec, 9 / 5., 10 / 4., 0},
		{"of one", advertised{quota: 1, grain: 1}, 1, 5 * sec, 1 / 5., 1 / 4., 0},
		{"in less than a second", advertised{quota: 60, grain: 1}, 10, sec, 9, math.Inf(1), 0},
		{"at once", advertised{quota: 60, grain: 1}, 10, 0, 9000, math.Inf(1), 0},
		{"rounded to thousands", advertised{quota: 6000, grain: 1000}, 500, 5 * sec, 0, 125, 0},
		{"narrower bounds stay", advertised{quota: 60, grain: 1, slow: 1.9, fast: 2.1}, 10, 5 * sec, 1.9, 2.1, 0},
		{"bounds that meet stay", advertised{quota: 60, grain: 1, slow: 2.5, fast: 9}, 10, 5 * sec, 2.5, 2.5, 0},
		{"wider ones do not", advertised{quota: 60, grain: 1, slow: 1, fast: 3}, 10, 5 * sec, 9 / 5., 10 / 4., 0},
		{"another rate", advertised{quota: 60, grain: 1, slow: 2.6, fast: 2.7}, 10, 5 * sec, 9 / 5., 10 / 4., 0},
		{"by far", advertised{quota: 60, grain: 1, slow: 3.1, fast: 3.2}, 10, 5 * sec, 9 / 5., 10 / 4., 1},
		{"of two units, the rounding explains it", advertised{quota: 2, grain: 1, slow: 3.1, fast: 3.2}, 2, 5 * sec, 1 / 5., 2 / 4., 0},
	} {
		a := tt.a
		a.shaper = newShaper(bucket)
		a.refill(tt.used, tt.reset, sec)
		if tt.a.fast == 0 {
			a = tt.a
			a.shaper, a.fast = newShaper(bucket), math.Inf(1)
			a.refill(tt.used, tt.reset, sec)
		}
		if math.Abs(a.slow-tt.slow) > 1e-9 || a.fast != tt.fast && math.Abs(a.fast-tt.fast) > 1e-9 || a.errors[bucket] != tt.aboutABucket {
			t.Errorf("%s: from %v to %v a second, %v against a bucket; want %v to %v, %v", tt.name, a.slow, a.fast, a.errors[bucket], tt.slow, tt.fast, tt.aboutABucket)
		}
	}
}

func TestResetsOfAWindowSayNothingAboutABucket(t *testing.T) {
	a := advertised{shaper: newShaper(fixed), quota: 60, grain: 1, slow: 3.1, fast: 3.2}
	if a.refill(10, 5*sec, sec); a.errors[bucket] != 0.5 || a.slow != 9/5. || a.fast != 10/4. {
		t.Errorf("%+v", a)
	}
}

// Sixty units, of which forty are left; those of a bucket return at two a second, and others
// take half of that.
func TestHowFarApartSharedUnitsAreUsed(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*advertised, *view)
		cost float64
		want time.Duration
	}{
		{"a window: over the rest of it", func(*advertised, *view) {}, 1, 20 * sec * 10 / 400 * 10 / 125 * 10},
		{"of which much was spent since", func(a *advertised, _ *view) { a.spent = 20 }, 1, 20 * sec * 10 / 200 * 10 / 125 * 10},
		{"of which less is left than one needs", func(a *advertised, _ *view) { a.spent = 39.5 }, 1, 16 * sec},
		{"it is over", func(_ *advertised, v *view) { v.now = 130 * sec }, 1, 0},
		{"others use it no more", func(a *advertised, _ *view) { a.shared = false }, 1, 0},
		{"the refusal is long ago", func(a *advertised, _ *view) { a.margin = grazed/2 - 1e-6 }, 1, 0},
		{"not that long", func(a *advertised, _ *view) { a.margin = grazed / 2 }, 1, 400 * ms},
		{"a sliding window: over a twelfth of it", func(a *advertised, _ *view) { a.shape, a.longest, a.others, a.margin = sliding, time.Minute, 4, 0 }, 1, 125 * ms},
		{"of which less is left than one needs", func(a *advertised, _ *view) { a.shape, a.longest, a.others, a.spent = sliding, time.Minute, 4, 39.5 }, 1, 5 * sec},
		{"of costs", func(a *advertised, _ *view) { a.shape, a.longest, a.others, a.perCost = sliding, time.Minute, 4, true }, 4, 500 * ms},
		{"others use hardly any of it", func(a *advertised, _ *view) { a.shape, a.longest, a.others = sliding, time.Minute, 3 }, 1, 0},
		{"of one", func(a *advertised, _ *view) { a.quota = 1 }, 1, 0},
		{"of two", func(a *advertised, _ *view) { a.quota = 2 }, 1, 400 * ms},
		{"of costs", func(a *advertised, _ *view) { a.perCost = true }, 4, 1600 * ms},
		{"a bucket: over the time that it takes to refill", func(a *advertised, _ *view) { a.shape = bucket }, 1, 600 * ms},
		{"of which little is left: twice what others leave of it", func(a *advertised, _ *view) { a.shape, a.left = bucket, 1 }, 1, 2 * sec},
		{"which they took at once", func(a *advertised, _ *view) { a.shape, a.left, a.taken, a.during = bucket, 1, 0.001, 0 }, 1, 2 * sec},
		{"they leave a twentieth at least", func(a *advertised, _ *view) { a.shape, a.left, a.taken = bucket, 1, 100 }, 1, 20 * sec},
		{"a larger one of which they leave as much", func(a *advertised, _ *view) { a.shape, a.left, a.taken, a.quota = bucket, 1, 100, 120 }, 1, 20 * sec},
		{"what they gave back does not count", func(a *advertised, _ *view) { a.shape, a.left, a.taken = bucket, 1, -100 }, 1, sec},
		{"a bucket of costs is spread evenly", func(a *advertised, _ *view) { a.shape, a.perCost, a.left = bucket, true, 4 }, 4, 24 * sec},
		{"a bucket that they use, without a refusal", func(a *advertised, _ *view) { a.shape, a.shared = bucket, false }, 1, 600 * ms},
		{"if it is surely one", func(a *advertised, _ *view) { a.shape, a.shared, a.errors = bucket, false, [shapes]float64{} }, 1, 0},
		{"and they use a twentieth of it", func(a *advertised, _ *view) { a.shape, a.shared, a.taken = bucket, false, 1 }, 1, 0},
		{"more than that", func(a *advertised, _ *view) { a.shape, a.shared, a.taken = bucket, false, 1.01 }, 1, 600 * ms},
		{"under a penalty from half of it on", func(a *advertised, v *view) {
			a.shape, a.taken, a.shared, a.spent, v.punished = bucket, 0, false, 10.1, true
		}, 1, 24 * sec * 10 / 299},
		{"not before", func(a *advertised, v *view) {
			a.shape, a.taken, a.shared, a.spent, v.punished = bucket, 0, false, 10, true
		}, 1, 0},
		{"of eight", func(a *advertised, v *view) {
			a.shape, a.taken, a.shared, a.quota, a.left, v.punished = bucket, 0, false, 8, 3.9, true
		}, 1, 820 * ms},
		{"of fewer nothing is saved", func(a *advertised, v *view) {
			a.shape, a.taken, a.shared, a.quota, a.left, v.punished = bucket, 0, false, 7.9, 3.9, true
		}, 1, 0},
		{"of a bucket of which no rate is known, the end is", func(a *advertised, _ *view) { a.shape, a.slow = bucket, 0 }, 1, 400 * ms},
	} {
		a := advertised{shaper: shaper{errors: [shapes]float64{2, 2, 2}}, quota: 60, left: 40, whole: 120 * sec, slow: 2, taken: 10, during: 10, shared: true, margin: grazed, share: 1}
		a.shape = fixed
		v := view{now: 100 * sec}
		tt.do(&a, &v)
		if got := a.apart(v, tt.cost); (got-tt.want).Abs() > 5*ms || tt.want == 0 && got != 0 {
			t.Errorf("%s: %v apart, want %v", tt.name, got, tt.want)
		}
	}
}
