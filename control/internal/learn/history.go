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
	from  []time.Duration // the earliest instant of each cell
	at    []time.Duration // the latest one, ascending
	sum   []amounts       // total sent until then
	total amounts
	grain float64 // cells per age at the last merge
}

// add counts what is sent at now.
func (h *history) add(now time.Duration, a amounts) {
	if n := len(h.at); n > 0 && now-h.from[n-1] < minCell {
		h.at[n-1] = max(h.at[n-1], now)
		sum := &h.sum[n-1]
		for u := range a {
			h.total[u] += a[u]
			sum[u] = h.total[u]
		}
		return
	}
	for u := range a {
		h.total[u] += a[u]
	}
	if len(h.at) == maxCells {
		h.grain = min(cellsPerAge, 1.1*h.grain)
		for h.merge(now); len(h.at) > maxCells*7/8; h.merge(now) {
			h.grain *= 0.8
		}
	}
	if h.at == nil {
		h.from, h.at, h.sum = make([]time.Duration, 0, maxCells), make([]time.Duration, 0, maxCells), make([]amounts, 0, maxCells)
		h.grain = cellsPerAge
	}
	h.from, h.at, h.sum = append(h.from, now), append(h.at, now), append(h.sum, h.total)
}

// merge joins neighbours that are short for their age. The first cell is kept, because the
// history begins there, and so are the newest ones, so that windows with few attempts are
// exact.
func (h *history) merge(now time.Duration) {
	at, sum := h.at, h.sum[:len(h.at)]
	keep := 1
	for i := 2; i < len(at); i++ {
		if sum[i][attempts]-sum[keep][attempts] < 0.5 {
			sum[keep] = sum[i] // it was refused
			continue
		}
		if i >= len(at)-exactCells || float64(at[i]-at[keep-1])*h.grain > float64(now-at[i]) {
			keep++
			h.from[keep] = h.from[i]
		}
		if keep != i {
			at[keep], sum[keep] = at[i], sum[i]
		}
	}
	h.from, h.at, h.sum = h.from[:keep+1], at[:keep+1], sum[:keep+1]
}

// correct changes the amount sent at an instant.
func (h *history) correct(sent time.Duration, a amounts) {
	for u := range a {
		h.total[u] += a[u]
	}
	for i := len(h.at) - 1; i >= 0 && h.at[i] >= sent; i-- {
		for u := range a {
			h.sum[i][u] += a[u]
		}
	}
}

// until returns the total sent up to and including t.
func (h *history) until(u unit, t time.Duration) float64 {
	i := sort.Search(len(h.at), func(i int) bool { return h.at[i] > t })
	if i == 0 {
		return 0
	}
	low := h.sum[i-1][u]
	if i == len(h.at) || t < h.from[i] {
		return low
	}
	n := max(1, h.sum[i][attempts]-h.sum[i-1][attempts])
	part := (1 + max(0, n-2)*float64(t-h.from[i])/float64(h.at[i]-h.from[i])) / n
	return low + part*(h.sum[i][u]-low)
}

// used returns the amount sent in the given length of time up to and including t.
func (h *history) used(u unit, t, length time.Duration) float64 {
	return max(0, h.until(u, t)-h.until(u, t-length))
}

// peak returns the largest amount sent in any such length of time since an instant.
func (h *history) peak(u unit, length, since time.Duration) float64 {
	most := 0.0
	for i := len(h.at) - 1; i >= 0 && h.at[i] > since; i-- {
		most = max(most, h.sum[i][u]-h.until(u, h.at[i]-length))
	}
	return most
}

// newest returns when the newest given amount of a unit, up to t, began.
func (h *history) newest(u unit, t time.Duration, amount float64) time.Duration {
	return h.reached(u, h.until(u, t)-amount)
}

// sentBy returns the instant by which at least that sum had been sent, or never. Within a
// cell the instant is approximate; with sure, it is not too early.
func (h *history) sentBy(u unit, sum float64, sure bool) time.Duration {
	sum -= 1e-6 * math.Abs(sum) // rounding
	i := sort.Search(len(h.at), func(i int) bool { return h.sum[i][u] >= sum })
	if i == len(h.at) {
		return never
	}
	if i == 0 || sure {
		return h.at[i]
	}
	n := h.sum[i][attempts] - h.sum[i-1][attempts]
	if n < 1.5 {
		return h.at[i]
	}
	nth := n * (sum - h.sum[i-1][u]) / (h.sum[i][u] - h.sum[i-1][u])
	return h.from[i] + time.Duration(min(1, max(0, (nth-1)/(n-1)))*float64(h.at[i]-h.from[i]))
}

// reached returns the instant at which more than the sum had been sent, or the start of the
// history if that was forgotten.
func (h *history) reached(u unit, sum float64) time.Duration {
	const round = 1e-6
	i := sort.Search(len(h.at), func(i int) bool { return h.sum[i][u] > sum+round })
	if i >= len(h.at) {
		return math.MaxInt64
	}
	if i == 0 {
		return h.from[i]
	}
	n := h.sum[i][attempts] - h.sum[i-1][attempts]
	if n < 1.5 {
		return h.at[i]
	}
	part := n / (n - 1) * (sum - h.sum[i-1][u]) / (h.sum[i][u] - h.sum[i-1][u])
	return h.from[i] + time.Duration(min(1, max(0, part))*float64(h.at[i]-h.from[i]))
}

// Recount corrects when a counted attempt was sent; never means that it was not sent.
func (l *Law) Recount(sent, at time.Duration, c float64) {
	l.h.correct(sent, amounts{-1, -c, -l.mean[busy]})
	if at != never {
		l.h.correct(at, amounts{1, c, l.mean[busy]})
		return
	}
	l.flying = max(0, l.flying-1)
	for _, x := range l.limits {
		x.takeBack()
	}
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
