package quota

import (
	"math"
	"time"
)

// parts is the number of parts of a rolling window. A charge leaves when its part has
// left the window entirely: never early, at most one part late.
const parts = 60

// window is a rolling sum of tokens.
type window struct {
	width time.Duration // width of one part
	turn  time.Duration // when the newest part ends
	head  int64         // number of the newest part, counted from the origin
	sum   int64
	part  [parts + 1]int64

	foreseen int64 // the newest part when heading was last computed, plus one
	heading  bool
}

func newWindow(span, now time.Duration) *window {
	w := &window{width: (span + parts - 1) / parts}
	w.head = int64(now / w.width)
	w.turn = w.starts(w.head + 1)
	return w
}

// starts returns when a part starts.
func (w *window) starts(part int64) time.Duration { return time.Duration(part) * w.width }

func (w *window) advance(now time.Duration) {
	if now < w.turn {
		return
	}
	head := int64(now / w.width)
	if head-w.head > parts {
		w.part, w.sum = [parts + 1]int64{}, 0
	} else {
		for i := w.head + 1; i <= head; i++ {
			p := &w.part[i%(parts+1)]
			w.sum -= *p
			*p = 0
		}
	}
	w.head, w.turn = head, w.starts(head+1)
}

func (w *window) add(n int64) {
	w.part[w.head%(parts+1)] += n
	w.sum += n
}

// giveBack removes n from the part in which it was charged, if that part still counts.
func (w *window) giveBack(n int64, charged time.Duration) {
	at := int64(charged / w.width)
	if at < w.head-parts {
		return
	}
	p := &w.part[at%(parts+1)]
	n = min(n, *p)
	*p -= n
	w.sum -= n
}

// falls returns the earliest instant at which the sum is at most limit.
func (w *window) falls(limit int64, now time.Duration) time.Duration {
	sum := w.sum
	for at := w.head - parts; sum > limit; at++ {
		if at > w.head {
			return math.MaxInt64
		}
		if at >= 0 {
			sum -= w.part[at%(parts+1)]
		}
		if sum <= limit {
			return max(now, w.starts(at+parts+1))
		}
	}
	return now
}

// widened carries the sum over to a window of a different span. Each part counts as
// charged at its end, so that nothing is lost.
func (w *window) widened(span, now time.Duration) *window {
	to := newWindow(span, now)
	for at := max(0, w.head-parts); at <= w.head; at++ {
		n := w.part[at%(parts+1)]
		charged := int64(min(now, w.starts(at+1)-1) / to.width)
		if n != 0 && charged >= to.head-parts {
			to.part[charged%(parts+1)] += n
			to.sum += n
		}
	}
	return to
}

// lately is how many parts the rate of a window is computed from, and steady how many of
// them must have been used, so that a single burst is not mistaken for a rate.
const (
	lately = 10
	steady = 5
)

// heads reports whether the sum would exceed the budget before enough has left the
// window, if use continues at the recent rate. It is computed at most once per part.
func (w *window) heads(budget int64) bool {
	if w.foreseen == w.head+1 {
		return w.heading
	}
	w.foreseen, w.heading = w.head+1, false
	var recent int64
	used := 0
	for at := w.head; at > max(-1, w.head-lately); at-- {
		if n := w.part[at%(parts+1)]; n > 0 {
			recent += n
			used++
		}
	}
	if used < steady {
		return false
	}
	sum := w.sum
	for i := range int64(parts) {
		if at := w.head - parts + i; at >= 0 {
			sum -= w.part[at%(parts+1)]
		}
		if sum+recent*(i+1)/lately > budget {
			w.heading = true
			break
		}
	}
	return w.heading
}

// calendar tracks the days of one time zone: which day it is, and when it ends. Days only
// go forward: a clock that is set back does not repeat a day.
type calendar struct {
	name  string
	zone  *time.Location
	day   int64 // days since 1970-01-01, as the zone counts
	start time.Duration
	end   time.Duration
}

// anchor recomputes the current day. origin is the wall-clock time of instant 0.
func (c *calendar) anchor(origin time.Time, now time.Duration) {
	day := civilDay(origin.Add(now), c.zone)
	if day > c.day {
		c.day = day
	}
	c.start = turnOf(c.day, c.zone).Sub(origin)
	c.end = turnOf(c.day+1, c.zone).Sub(origin)
	for c.end <= now { // a zone may skip a day
		c.day++
		c.end = turnOf(c.day+1, c.zone).Sub(origin)
	}
}

// civilDay returns the calendar day in a zone.
func civilDay(at time.Time, zone *time.Location) int64 {
	y, m, d := at.In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400
}

// turnOf returns the first second of a day in a zone. Midnight may not exist or occur
// twice there, so it is searched for instead of computed.
func turnOf(day int64, zone *time.Location) time.Time {
	const reach = 27 * 3600 // zones lie within 14 hours of UTC; one skipped a whole day
	before, from := day*86400-reach, day*86400+reach
	for from-before > 1 {
		middle := before + (from-before)/2
		if civilDay(time.Unix(middle, 0), zone) >= day {
			from = middle
		} else {
			before = middle
		}
	}
	return time.Unix(from, 0)
}

// dayName returns a day as 2006-01-02.
func dayName(day int64) string { return time.Unix(day*86400, 0).UTC().Format(time.DateOnly) }

// dayNumber parses the result of dayName.
func dayNumber(name string) (int64, error) {
	t, err := time.Parse(time.DateOnly, name)
	if err != nil {
		return 0, err
	}
	return t.Unix() / 86400, nil
}

// reschedule moves a node to its position in the heap. After a charge the time stored
// there may be earlier than necessary, never later.
func (g *Governor) reschedule(n *node, at time.Duration) {
	due := n.look(at)
	if due == math.MaxInt64 {
		g.unschedule(n)
		return
	}
	n.due = max(due, at+1)
	if n.heap < 0 {
		n.heap = len(g.schedule)
		g.schedule = append(g.schedule, n)
	}
	g.up(n.heap)
	g.down(n.heap)
	g.due = min(g.due, n.due)
}

func (g *Governor) unschedule(n *node) {
	if n.heap < 0 {
		return
	}
	at, last := n.heap, len(g.schedule)-1
	g.swap(at, last)
	g.schedule[last] = nil
	g.schedule = g.schedule[:last]
	n.heap = -1
	if at < last {
		g.up(at)
		g.down(at)
	}
}

// before orders the heap; ties are broken by order of creation, so that runs are
// repeatable.
func (g *Governor) before(i, j int) bool {
	a, b := g.schedule[i], g.schedule[j]
	if a.due != b.due {
		return a.due < b.due
	}
	return a.id < b.id
}

func (g *Governor) swap(i, j int) {
	s := g.schedule
	s[i], s[j] = s[j], s[i]
	s[i].heap, s[j].heap = i, j
}

func (g *Governor) up(i int) {
	for i > 0 && g.before(i, (i-1)/2) {
		g.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (g *Governor) down(i int) {
	for {
		least := i
		for _, below := range [...]int{2*i + 1, 2*i + 2} {
			if below < len(g.schedule) && g.before(below, least) {
				least = below
			}
		}
		if least == i {
			return
		}
		g.swap(i, least)
		i = least
	}
}
