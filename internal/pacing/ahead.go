package pacing

import (
	"slices"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// MaxAhead is the maximum number of permits that a member holds ahead of need.
const MaxAhead = 1024

const (
	// A member holds permits ahead for this much of its recent use, and each may be used
	// for this long.
	aheadFor = 300 * time.Millisecond
	// aheadAgain is how long a member that got no permit waits before it asks again.
	aheadAgain = aheadFor / 3
	// meterGap is the length of the spans in which use is counted.
	meterGap = aheadFor / 3
	// maxServed and servedFor bound how many outcomes are batched into one message, and
	// how long they are held back for that.
	maxServed = MaxAhead / 4
	servedFor = 10 * time.Millisecond
)

// ahead holds permits of one pool, or of the account, that a member may use without a round
// trip to the server.
type ahead struct {
	runs  []run
	asked Run // requested; N is 0 if none are
	due   time.Duration
	use   meter
}

// run is a range of permits with consecutive numbers.
type run struct {
	Run
	until time.Duration
}

// meter measures how often something has happened recently.
type meter struct {
	began time.Duration
	n     float64
	rate  float64 // a second
}

func (u *meter) count(now time.Duration) {
	u.settle(now)
	u.n++
}

func (u *meter) settle(now time.Duration) {
	if took := now - u.began; took >= meterGap {
		u.began, u.rate, u.n = now, u.n/took.Seconds(), 0
	}
}

// held returns the number of permits left.
func (a *ahead) held() (n uint64) {
	for i := range a.runs {
		n += a.runs[i].N
	}
	return n
}

// idle reports that no permit is held or requested.
func (a *ahead) idle() bool { return len(a.runs) == 0 && a.asked.N == 0 }

// ready reports that a permit is held.
func (a *ahead) ready(now time.Duration) bool {
	return slices.ContainsFunc(a.runs, func(r run) bool { return now < r.until })
}

// take uses a permit and returns its number; 0 if there is none.
func (a *ahead) take(now time.Duration) (id uint64) {
	i := slices.IndexFunc(a.runs, func(r run) bool { return now < r.until })
	if i < 0 {
		return 0
	}
	r := &a.runs[i]
	id = r.ID
	if r.ID, r.N = r.ID+1, r.N-1; r.N == 0 {
		a.runs = slices.Delete(a.runs, i, i+1)
	}
	return id
}

// stock returns permits that were not used in time, and requests more if they would be used.
func (m *member) stock(c *Core, now time.Duration) {
	left := uint64(min(max(m.ahead, 0), MaxAhead))
	for _, l := range m.pools {
		left -= min(left, l.ahead.held()+l.ahead.asked.N)
	}
	m.pools = slices.DeleteFunc(m.pools, func(l *Pool) bool {
		a := &l.ahead
		a.use.settle(now)
		own := a.held() + a.asked.N
		m.refill(c, now, l, left+own)
		left = left + own - min(left+own, a.held()+a.asked.N)
		return a.idle() && a.use.n+a.use.rate == 0
	})
}

// refill is stock for one pool, which may hold up to room permits.
func (m *member) refill(c *Core, now time.Duration, l *Pool, room uint64) {
	a := &l.ahead
	a.runs = slices.DeleteFunc(a.runs, func(r run) bool { return now >= r.until && m.unused(r.Run) })
	most := min(room, uint64(a.use.rate*aheadFor.Seconds()))
	held := a.held()
	for over := held - min(held, most); over > 0 && len(a.runs) > 0; {
		r := &a.runs[len(a.runs)-1]
		n := min(over, r.N)
		over, r.N = over-n, r.N-n
		m.unused(Run{ID: r.ID + r.N, N: n})
		if r.N == 0 {
			a.runs = a.runs[:len(a.runs)-1]
		}
	}
	if most < 2 || held > most/2 || a.asked.N > 0 || now < a.due || now < c.cooldown || now < l.cooldown {
		return
	}
	a.asked = Run{ID: m.serial + 1, N: most - held}
	m.serial += a.asked.N
	m.out.Wants = append(m.out.Wants, Want{ID: a.asked.ID, Pool: l.name, Ahead: a.asked.N})
}

// unused returns permits that were granted ahead of need.
func (m *member) unused(r Run) bool {
	m.out.Unused = append(m.out.Unused, r)
	return true
}

// got adds permits that were requested ahead of need.
func (m *member) got(now, posted time.Duration, r Run) {
	i := slices.IndexFunc(m.pools, func(l *Pool) bool { return l.ahead.asked.ID == r.ID && l.ahead.asked.N > 0 })
	switch {
	case i < 0 && r.N > 0:
		m.unused(r)
	case i >= 0:
		a := &m.pools[i].ahead
		if a.asked = (Run{}); r.N > 0 {
			a.runs = append(a.runs, run{r, posted + aheadFor})
		} else {
			a.due = now + aheadAgain
		}
	}
}

// drop returns all permits that are held ahead of need.
func (m *member) drop() {
	for _, l := range m.pools {
		for _, r := range l.ahead.runs {
			m.unused(r.Run)
		}
		l.ahead.runs = nil
	}
}

// forget drops all permits held or requested ahead of need, without returning them.
func (m *member) forget() {
	for _, l := range m.pools {
		l.ahead = ahead{}
	}
	m.pools = nil
}

// plain reports whether the report of an outcome may be delayed: the provider served the
// attempt and advertised no limits.
func plain(t *Ticket, o *Outcome) bool {
	return t.ahead && o.Class == reason.OK && len(o.Facts) == 0 && o.RetryAfter == 0 &&
		!o.Steady && o.Pool == "" && (o.Cost == 0 || o.Cost == t.asked)
}

// Spare returns how many permits all members together may hold ahead, so that limits are
// exceeded by at most one in a hundred even if all are used at once. If bounded is false,
// nothing is held back and each member may hold [MaxAhead]. No permits are spare under
// limits of an hour or longer, limits that count units, and limits on attempts in flight:
// those are kept exactly.
func (c *Core) Spare() (n uint64, bounded bool) {
	n = c.spare(MaxAhead, &bounded)
	for _, l := range c.of {
		n = l.spare(n, &bounded)
	}
	return n, bounded
}

// maxAheadGap is the interval from which on the server decides on each attempt.
const maxAheadGap = 20 * time.Millisecond

// exactFrom is the window length from which on a limit is never exceeded.
const exactFrom = time.Hour

func (l *Pool) spare(n uint64, bounded *bool) uint64 {
	if l.free() {
		return n
	}
	if l.Waiting() || l.law.Interval() > maxAheadGap {
		return 0
	}
	var room [16]control.Limit
	limits := l.Limits(room[:0])
	if len(limits) == 0 && l.name == "" {
		return 0
	}
	for i := range limits {
		x := &limits[i]
		if x.Kind == control.Concurrency || x.Kind == control.Slowdown || x.PerCost || x.Window >= exactFrom {
			return 0
		}
		*bounded, n = true, min(n, uint64(max(0, x.Size)/100))
	}
	return n
}

// Ahead reports whether the attempt used a permit granted ahead of need.
func (t Ticket) Ahead() bool { return t.ahead }

// Early returns the ticket marked as using a permit granted ahead of need.
func (t Ticket) Early() Ticket {
	t.ahead = true
	return t
}

// Recount corrects when an admitted attempt was sent: at is later than it was counted,
// and at most now. If at is [Forever], the attempt was not sent, and the ticket is
// settled with nothing learned.
func (c *Core) Recount(now time.Duration, t Ticket, at time.Duration) Ticket {
	if at = min(max(at, t.sent), max(now, t.sent)); at == t.sent {
		return t
	}
	for _, l := range [...]*Pool{&c.Pool, t.pool} {
		if law, ok := lawOf(l).(recounter); ok {
			law.Recount(t.sent, at, t.cost)
		}
	}
	t.sent = at
	return t
}

// Recost corrects the estimated cost of an admitted attempt.
func (c *Core) Recost(t Ticket, cost float64) Ticket {
	if !(cost > 0) || cost == t.asked {
		return t
	}
	t.asked, cost = cost, c.expect(t.pool, cost)
	for _, l := range [...]*Pool{&c.Pool, t.pool} {
		if law, ok := lawOf(l).(recounter); ok {
			law.Recost(t.sent, cost-t.cost)
		}
	}
	t.cost = cost
	return t
}

// Unsend settles an admitted attempt that was never sent, so that it counts in no limit.
func (c *Core) Unsend(t Ticket) {
	c.inFlight--
	if t.pool != nil {
		t.pool.use.flying--
	}
	for _, l := range [...]*Pool{&c.Pool, t.pool} {
		if law, ok := lawOf(l).(recounter); ok {
			law.Recount(t.sent, control.Never, t.cost)
		}
	}
}

func lawOf(l *Pool) control.Law {
	if l == nil {
		return nil
	}
	return l.law
}

// recounter is a law that remembers when attempts were sent.
type recounter interface {
	Recount(sent, at time.Duration, cost float64)
	Recost(sent time.Duration, more float64)
}
