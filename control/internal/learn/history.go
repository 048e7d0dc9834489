package learn

import (
	"math"
	"sort"
	"time"
)

// unit is what a limit counts.
type unit uint8

// The units.
const (
	attempts unit = iota
	cost
	busy // seconds of the provider's work
	units
)

// amounts has an amount for each unit.
type amounts [units]float64

// history records what was sent. It returns how much of a unit was sent in any period, and
// when the newest given amount began. Old cells are merged, so a time is known to about
// 1/cellsPerAge of its age.
type history struct {
	cells []cell // ascending
	total amounts
	more  float64 // how much more than estimated all of them cost
	grain float64 // cells per age at the last merge
}

// cell is the attempts that were sent between two instants, both included.
type cell struct {
	from, at time.Duration
	sum      amounts // total sent until at
}

// add counts what is sent at now.
func (h *history) add(now time.Duration, a amounts) {
	for u := range a {
		h.total[u] += a[u]
	}
	if n := len(h.cells); n > 0 && now-h.cells[n-1].from < minCell {
		c := &h.cells[n-1]
		c.at, c.sum = max(c.at, now), h.total
		return
	}
	switch len(h.cells) {
	case 0:
		h.grain = cellsPerAge
	case maxCells:
		h.grain = min(cellsPerAge, 1.1*h.grain)
		for h.merge(now); len(h.cells) > maxCells*7/8; h.merge(now) {
			h.grain *= 0.8
		}
	}
	h.cells = append(h.cells, cell{now, now, h.total})
}

// merge joins neighbours that are short for their age. The first cell is kept, because the
// history begins there, and so are the newest ones, so that windows with few attempts are
// exact.
func (h *history) merge(now time.Duration) {
	cells, keep := h.cells, 1
	for i := 2; i < len(cells); i++ {
		next, last := &cells[i], &cells[keep]
		switch {
		case next.sum[attempts]-last.sum[attempts] < 0.5: // it was refused
			last.sum = next.sum
		case i < len(cells)-exactCells && float64(next.at-cells[keep-1].at)*h.grain <= float64(now-next.at):
			last.at, last.sum = next.at, next.sum
		default:
			if keep++; keep != i {
				cells[keep] = *next
			}
		}
	}
	h.cells = cells[:keep+1]
}

// correct changes the amount sent at an instant.
func (h *history) correct(sent time.Duration, a amounts) {
	for u := range a {
		h.total[u] += a[u]
	}
	for i := len(h.cells) - 1; i >= 0 && h.cells[i].at >= sent; i-- {
		for u := range a {
			h.cells[i].sum[u] += a[u]
		}
	}
}

// settle corrects what an attempt cost that was answered at an instant, and how long it took.
func (h *history) settle(now time.Duration, more, work float64) {
	h.more += more
	h.correct(now, amounts{0, more, work})
}

// share returns what an attempt is estimated to cost, in multiples of the mean estimate of all, at most
// dearest. What they did cost does not matter: estimates that are always too high would slow all down.
func (h *history) share(estimate float64) float64 {
	all := h.total[cost] - h.more
	if h.total[attempts] < 1 || all <= 0 {
		return 1
	}
	return min(estimate*h.total[attempts]/all, dearest)
}

// until returns the total sent up to and including t.
func (h *history) until(u unit, t time.Duration) float64 {
	n := len(h.cells)
	if n > 0 && h.cells[n-1].at <= t { // most often
		return h.cells[n-1].sum[u]
	}
	i := sort.Search(n, func(i int) bool { return h.cells[i].at > t })
	if i == 0 {
		return 0
	}
	before, c := &h.cells[i-1], &h.cells[i]
	if t < c.from {
		return before.sum[u]
	}
	sent := max(1, c.sum[attempts]-before.sum[attempts])
	part := (1 + max(0, sent-2)*float64(t-c.from)/float64(c.at-c.from)) / sent
	return before.sum[u] + part*(c.sum[u]-before.sum[u])
}

// between returns the amount sent from one instant to another, both included.
func (h *history) between(u unit, from, to time.Duration) float64 {
	return h.until(u, to) - h.until(u, from-1)
}

// used returns the amount sent in the given length of time up to and including t.
func (h *history) used(u unit, t, length time.Duration) float64 {
	return max(0, h.until(u, t)-h.until(u, t-length))
}

// newest returns when the newest given amount of a unit, up to t, began.
func (h *history) newest(u unit, t time.Duration, amount float64) time.Duration {
	return h.reached(u, h.until(u, t)-amount)
}

// mean returns the mean rate of the newest attempts up to t, of so many or of all, in attempts a second; over a
// second at least.
func (h *history) mean(t time.Duration, n float64) float64 {
	n = min(n, h.until(attempts, t))
	return n / max(1, (t-h.newest(attempts, t, n)).Seconds())
}

// sentBy returns the instant by which at least that sum had been sent, or never. Within a
// cell the instant is approximate; with sure, it is not too early.
func (h *history) sentBy(u unit, sum float64, sure bool) time.Duration {
	sum -= 1e-6 * math.Abs(sum) // rounding
	i := sort.Search(len(h.cells), func(i int) bool { return h.cells[i].sum[u] >= sum })
	if i == len(h.cells) {
		return never
	}
	c := &h.cells[i]
	if i == 0 || sure {
		return c.at
	}
	before := &h.cells[i-1]
	n := c.sum[attempts] - before.sum[attempts]
	if n < 1.5 {
		return c.at
	}
	nth := n * (sum - before.sum[u]) / (c.sum[u] - before.sum[u])
	return c.from + time.Duration(min(1, max(0, (nth-1)/(n-1)))*float64(c.at-c.from))
}

// reached returns the instant at which more than the sum had been sent, or the start of the
// history if that was forgotten; never if not so much was sent.
func (h *history) reached(u unit, sum float64) time.Duration {
	const round = 1e-6
	i := sort.Search(len(h.cells), func(i int) bool { return h.cells[i].sum[u] > sum+round })
	if i >= len(h.cells) {
		return never
	}
	c := &h.cells[i]
	if i == 0 {
		return c.from
	}
	before := &h.cells[i-1]
	n := c.sum[attempts] - before.sum[attempts]
	if n < 1.5 {
		return c.at
	}
	part := n / (n - 1) * (sum - before.sum[u]) / (c.sum[u] - before.sum[u])
	return c.from + time.Duration(min(1, max(0, part))*float64(c.at-c.from))
}

// takeBack tells the limits that an attempt of that cost does not count.
func (l *Law) takeBack(c float64) {
	share := l.h.share(c)
	for _, x := range l.limits {
		x.takeBack(share)
	}
}

// Recount corrects when a counted attempt was sent; never means that it was not sent.
func (l *Law) Recount(sent, at time.Duration, c float64) {
	l.h.correct(sent, amounts{-1, -c, -l.mean[busy]})
	if at != never {
		l.h.correct(at, amounts{1, c, l.mean[busy]})
		return
	}
	l.flying = max(0, l.flying-1)
	l.takeBack(c)
	for i := range l.headers {
		l.headers[i].takeBack(sent, c)
	}
}

// Recost corrects the cost with which an attempt was counted.
func (l *Law) Recost(sent time.Duration, more float64) {
	l.h.correct(sent, amounts{0, more, 0})
	for i := range l.headers {
		if t := &l.headers[i]; t.perCost && sent >= t.at {
			t.spent += more * t.share
		}
	}
}
