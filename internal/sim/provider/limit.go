package provider

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// Never is an instant that is never reached.
const Never = time.Duration(math.MaxInt64)

// demand is what one attempt needs of the limits.
type demand struct {
	cost int64 // thousandths of a unit, at least 1
	busy int64 // nanoseconds of work
	held int64 // nanoseconds in flight: busy, times the slow-down
	pool int   // its pool, from 1; 0 for none
}

// limiter is the state of one limit. Instants never go backwards.
type limiter interface {
	// free returns the earliest instant >= now at which d would be admitted if nothing else
	// arrived.
	free(now time.Duration, d demand) time.Duration
	// take charges d, which was admitted at now.
	take(now time.Duration, d demand)
	// reject charges d, which was refused at now by any limit, if refusals count.
	reject(now time.Duration, d demand)
	// scale sets the limit to factor times the scenario's.
	scale(now time.Duration, factor float64)
	// quota returns the rest of the limit.
	quota(now time.Duration) Quota
	clone() limiter
}

// newLimiter returns the state of a limit that refuses. largest is the largest factor of
// later changes, at least 1. epoch is the time from the last multiple of the limit's window
// since the Unix epoch to the scenario's start.
func newLimiter(l scenario.Limit, largest float64, epoch time.Duration) limiter {
	var made limiter
	switch l.Kind {
	case scenario.TokenBucket:
		made = &bucket{rate: l.Rate, configured: l.Burst}
	case scenario.FixedWindow:
		w := &fixed{configured: l.Count, window: l.Window}
		if l.Align == scenario.AlignEpoch {
			w.aligned, w.epoch = true, epoch
		}
		made = w
	case scenario.SlidingWindow:
		if l.Approximate {
			made = &approximate{configured: int64(l.Count), window: l.Window, end: -l.Window}
			break
		}
		made = &sliding{configured: l.Count, window: l.Window, recent: history{most: scaled(l.Count, largest)}}
	case scenario.Concurrency:
		made = &concurrency{configured: l.Count}
	case scenario.CostWindow:
		made = &weighted{configured: milli(l.Units), window: l.Window, largest: largest}
	case scenario.BusyTime:
		made = &weighted{configured: int64(l.Busy), window: l.Window, busy: true, largest: largest}
	case scenario.Slowdown:
		return nil
	default:
		return nil
	}
	made.scale(0, 1)
	return made
}

// scaled returns a count times a factor, rounded, at least 1.
func scaled(n int, factor float64) int {
	return max(1, int(math.Round(float64(n)*factor)))
}

func milli(units float64) int64 { return max(1, int64(math.Round(units*1000))) }

// bucket is a token bucket in the GCRA form, exact in integers: it stores when it is full
// again. It holds burst - (full-now)/interval tokens.
type bucket struct {
	rate       scenario.Rate
	configured int

	interval time.Duration
	burst    time.Duration // in tokens
	full     time.Duration
}

func (b *bucket) free(now time.Duration, _ demand) time.Duration {
	return max(now, b.full-(b.burst-1)*b.interval)
}

func (b *bucket) take(now time.Duration, _ demand) { b.full = max(b.full, now) + b.interval }

// reject takes a token, or the rest of one, but no more: a client that pauses for one
// interval is admitted.
func (b *bucket) reject(now time.Duration, d demand) {
	b.take(now, d)
	b.full = min(b.full, now+b.burst*b.interval)
}

func (b *bucket) scale(now time.Duration, factor float64) {
	tokens := float64(b.burst)
	if b.interval > 0 {
		tokens -= float64(max(0, b.full-now)) / float64(b.interval)
	}
	first := b.interval == 0
	b.interval = max(1, time.Duration(math.Ceil(float64(b.rate.Interval())/factor)))
	b.burst = time.Duration(scaled(b.configured, factor))
	if missing := float64(b.burst) - tokens; missing > 0 && !first {
		b.full = now + time.Duration(math.Ceil(missing*float64(b.interval)))
	} else {
		b.full = min(b.full, now)
	}
}

func (b *bucket) quota(now time.Duration) Quota {
	missing := max(0, b.full-now)
	used := (missing + b.interval - 1) / b.interval
	return Quota{
		Limit: float64(b.burst), Remaining: float64(max(0, b.burst-used)),
		Window: b.burst * b.interval, Reset: now + missing,
	}
}

func (b *bucket) clone() limiter { c := *b; return &c }

// fixed is a counter that is reset at the end of a window.
type fixed struct {
	configured int
	window     time.Duration
	aligned    bool
	epoch      time.Duration

	limit int
	count int
	end   time.Duration // of the window of count
}

// roll closes a window that has ended.
func (f *fixed) roll(now time.Duration) {
	if now < f.end {
		return
	}
	f.count = 0
	if f.aligned {
		f.end = now + f.window - (now+f.epoch)%f.window
	}
}

func (f *fixed) free(now time.Duration, _ demand) time.Duration {
	f.roll(now)
	if f.count < f.limit {
		return now
	}
	return f.end
}

func (f *fixed) take(now time.Duration, _ demand) {
	f.roll(now)
	if !f.aligned && now >= f.end {
		f.end = now + f.window
	}
	f.count++
}

func (f *fixed) reject(now time.Duration, d demand) { f.take(now, d) }

func (f *fixed) scale(_ time.Duration, factor float64) { f.limit = scaled(f.configured, factor) }

func (f *fixed) quota(now time.Duration) Quota {
	f.roll(now)
	return Quota{
		Limit: float64(f.limit), Remaining: float64(max(0, f.limit-f.count)),
		Window: f.window, Reset: max(now, f.end),
	}
}

func (f *fixed) clone() limiter { c := *f; return &c }

// sliding remembers as many of the newest admissions as the limit allows: there is room
// when the oldest of them has left the window.
type sliding struct {
	configured int
	window     time.Duration

	limit  int
	recent history
}

func (s *sliding) free(now time.Duration, _ demand) time.Duration {
	at, ok := s.recent.newest(s.limit)
	if !ok {
		return now
	}
	return max(now, at+s.window)
}

func (s *sliding) take(now time.Duration, _ demand) { s.recent.add(now) }

func (s *sliding) reject(now time.Duration, _ demand) { s.recent.add(now) }

func (s *sliding) scale(_ time.Duration, factor float64) { s.limit = scaled(s.configured, factor) }

func (s *sliding) quota(now time.Duration) Quota {
	used := s.recent.since(now - s.window)
	q := Quota{Limit: float64(s.limit), Remaining: float64(max(0, s.limit-used)), Window: s.window, Reset: now}
	if at, ok := s.recent.newest(1); ok {
		q.Reset = max(now, at+s.window)
	}
	return q
}

func (s *sliding) clone() limiter { c := *s; c.recent = s.recent.clone(); return &c }

// approximate is a sliding window of two counters, for the current and the previous period.
// Attempts of the previous period are assumed to leave the window evenly. After two idle
// periods the next attempt starts a new period.
type approximate struct {
	configured int64
	window     time.Duration

	limit        int64
	count, prior int64
	end          time.Duration // of the period of count
}

// roll closes a period that has ended.
func (a *approximate) roll(now time.Duration) {
	switch {
	case now < a.end:
		return
	case now < a.end+a.window:
		a.prior, a.end = a.count, a.end+a.window
	default:
		a.prior, a.end = 0, now+a.window
	}
	a.count = 0
}

func (a *approximate) free(now time.Duration, _ demand) time.Duration {
	if now >= a.end+a.window {
		return now // no period begins before an attempt
	}
	a.roll(now)
	if a.count < a.limit {
		return max(now, a.leaves(a.end, a.prior, a.limit-a.count))
	}
	return max(a.end, a.leaves(a.end+a.window, a.count, a.limit))
}

// leaves returns when enough attempts of the previous period have left the window. The
// current period ends at end, prior is the count of the previous period, and room is how
// many of those may stay. Only whole attempts count.
func (a *approximate) leaves(end time.Duration, prior, room int64) time.Duration {
	if prior < room {
		return end - a.window
	}
	high, low := bits.Mul64(uint64(room), uint64(a.window))
	left, rest := bits.Div64(high, low, uint64(prior))
	if rest == 0 {
		left--
	}
	return end - time.Duration(left)
}

func (a *approximate) take(now time.Duration, _ demand) {
	a.roll(now)
	a.count++
}

func (a *approximate) reject(now time.Duration, d demand) { a.take(now, d) }

func (a *approximate) scale(_ time.Duration, factor float64) {
	a.limit = int64(scaled(int(a.configured), factor))
}

func (a *approximate) quota(now time.Duration) Quota {
	a.roll(now)
	left := float64(a.limit-a.count) - float64(a.prior)*float64(a.end-now)/float64(a.window)
	return Quota{Limit: float64(a.limit), Remaining: max(0, math.Floor(left)), Window: a.window, Reset: a.end}
}

func (a *approximate) clone() limiter { c := *a; return &c }

// concurrency has the ends of requests in flight, in order.
type concurrency struct {
	configured int

	limit int
	ends  []time.Duration
}

func (c *concurrency) expire(now time.Duration) {
	n := 0
	for n < len(c.ends) && c.ends[n] <= now {
		n++
	}
	if n > 0 {
		c.ends = slices.Delete(c.ends, 0, n)
	}
}

func (c *concurrency) free(now time.Duration, _ demand) time.Duration {
	c.expire(now)
	if over := len(c.ends) - c.limit; over >= 0 {
		return c.ends[over]
	}
	return now
}

func (c *concurrency) take(now time.Duration, d demand) {
	c.expire(now)
	end := now + time.Duration(d.held)
	i, _ := slices.BinarySearch(c.ends, end)
	c.ends = slices.Insert(c.ends, i, end)
}

func (*concurrency) reject(time.Duration, demand) {}

func (c *concurrency) scale(_ time.Duration, factor float64) { c.limit = scaled(c.configured, factor) }

func (c *concurrency) quota(now time.Duration) Quota {
	c.expire(now)
	q := Quota{Limit: float64(c.limit), Remaining: float64(max(0, c.limit-len(c.ends))), Reset: now}
	if len(c.ends) > 0 {
		q.Reset = c.ends[len(c.ends)-1]
	}
	return q
}

func (c *concurrency) clone() limiter {
	n := *c
	n.ends = slices.Clone(c.ends)
	return &n
}

// Advance applies changes and lets strangers arrive up to now, as every other method does.
func (m *Model) Advance(now time.Duration) { m.advance(now) }

// advance does so in the order of the instants.
func (m *Model) advance(now time.Duration) {
	if m.strangers.next > now && m.NextChange() > now {
		m.now = max(m.now, now)
		return
	}
	for {
		change := m.NextChange()
		at := min(change, m.strangers.next)
		if at > now {
			break
		}
		m.now = max(m.now, at)
		if change == at {
			m.factor *= m.changes[m.change].Scale
			m.change++
			m.rescale()
			continue
		}
		m.stranger()
		m.nextStranger()
	}
	m.now = max(m.now, now)
}

func (m *Model) rescale() {
	for i := range m.limits {
		m.limits[i].scale(m.now, m.factor)
	}
	for i := range m.knees {
		m.knees[i].scale(m.factor)
	}
}

// stranger lets one stranger arrive at m.now.
func (m *Model) stranger() {
	st := &m.strangers
	v, ok := m.faults()
	if !ok {
		st.counts.Failed++
		return
	}
	d := st.demand
	d.held = stretch(d.busy, v.Slow*m.arrived())
	if at, _ := m.worst(d); at > m.now {
		st.counts.Throttled++
		m.reject(d)
		return
	}
	st.counts.Admitted++
	m.take(d)
}

func (m *Model) nextStranger() {
	st := &m.strangers
	gap := max(1, time.Duration(exponential(&st.rng)*st.mean))
	for st.on > 0 && gap > st.until-st.next { // the rest of it falls into the next stretch
		gap -= st.until - st.next
		st.next = later(st.until, m.lasts(st.off))
		st.until = later(st.next, m.lasts(st.on))
	}
	st.next = later(st.next, gap)
}

// lasts draws how long strangers are on, or off.
func (m *Model) lasts(mean float64) time.Duration {
	return max(1, time.Duration(exponential(&m.strangers.rng)*mean))
}

// later returns a sum that saturates.
func later(at, by time.Duration) time.Duration {
	if by > Never-at {
		return Never
	}
	return at + by
}

// NextStranger returns when the next stranger arrives; [Never] if there are none.
func (m *Model) NextStranger() time.Duration { return m.strangers.next }

// NextChange returns when the limits change next; [Never] after the last change.
func (m *Model) NextChange() time.Duration {
	if m.change < len(m.changes) {
		return m.changes[m.change].At
	}
	return Never
}
