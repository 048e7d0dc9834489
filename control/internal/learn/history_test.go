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
		if len(h.cells) > maxCells || h.grain < cellsPerAge/2 {
			t.Errorf("every %v: %d cells, %.1f to an age", tt.every, len(h.cells), h.grain)
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
	if len(h.cells) > 100+n/100+1 {
		t.Errorf("%d cells", len(h.cells))
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
		if len(h.cells) != want {
			t.Errorf("100 attempts %v apart take %d cells, want %d", every, len(h.cells), want)
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
	cells := len(h.cells)
	if h.cells[0].at != sec || h.cells[0].from != sec || h.cells[cells-exactCells].at != now-(exactCells-1)*sec || h.cells[cells-exactCells].from != h.cells[cells-exactCells].at {
		t.Errorf("the first cell ends at %v, the 64th before the newest goes from %v to %v", h.cells[0].at, h.cells[cells-exactCells].from, h.cells[cells-exactCells].at)
	}
	for i := 1; i < cells; i++ {
		if h.cells[i].from != h.cells[i-1].at+sec && h.cells[i].from != 21*sec {
			t.Errorf("cell %d goes from %v to %v, and the one before to %v", i, h.cells[i].from, h.cells[i].at, h.cells[i-1].at)
		}
		if i > cells-exactCells {
			continue
		}
		if float64(h.cells[i].at-h.cells[i-1].at)*h.grain > float64(now-h.cells[i].at) && h.cells[i].from != h.cells[i].at {
			t.Errorf("a cell from %v to %v is longer than a 12th of its age", h.cells[i].from, h.cells[i].at)
		}
		if i+1 < cells-exactCells && float64(h.cells[i+1].at-h.cells[i-1].at)*h.grain <= float64(now-h.cells[i+1].at) {
			t.Errorf("cells from %v to %v together are no longer than a 12th of their age", h.cells[i].from, h.cells[i+1].at)
		}
	}
	if used, spent := h.until(attempts, now), h.until(cost, now); used != n-1 || spent != n {
		t.Errorf("%v attempts of %v were sent, want %d of %d", used, spent, n-1, n)
	}
	h = sentEvenly(now, sec, n)
	h.grain = 1e9
	h.correct(20*sec, amounts{-1, 0, 0})
	if h.merge(now); len(h.cells) != n-1 || h.until(cost, 19*sec) != 20 || h.until(attempts, 19*sec) != 19 {
		t.Errorf("a refused attempt has a cell of %d, and %v is spent by the one before", len(h.cells), h.until(cost, 19*sec))
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
	h.correct(last, amounts{-1, -10, 0}) // it was refused
	if got := h.until(attempts, last-1); got != 2 {
		t.Errorf("after a refusal %v attempts, want 2", got)
	}
	var c crowd
	c.sent(0)
	if c.refused(1, maxEvidence); math.Abs(c.evidence-(math.Log(4)-1)) > 1e-6 {
		t.Errorf("evidence %v after one attempt", c.evidence)
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
