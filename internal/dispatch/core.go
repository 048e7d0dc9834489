// Package dispatch decides what a bulk load does next: which rows form a batch, which
// identity sends it and when, and what becomes of each row after the response.
//
// [Core] is a state machine whose caller passes the time. [Core.Offer] adds rows,
// [Core.Next] returns what to do now (send a batch, wait or finish), and [Core.Settle]
// records the outcome of a batch and gives each of its rows exactly one [Fate]. A finished
// batch frees its slot at once; there are no rounds.
//
//	rows ──Offer──▶ fresh ──Next: send──▶ in flight ──Settle──▶ acknowledged
//	                           ▲                        ├─────▶ rejected
//	                           └──── again ◀────────────┤
//	                                                    ├─────▶ uncertain
//	                                                    └─────▶ owed
//
// Each identity (a credential) has a parallelism law, a breaker and a Retry-After gate of
// its own. A batch goes to the identity with the most free slots. If the server limits
// execution time, an identity also sums up its execution time in the window and delays a
// batch that would exceed the limit, since the level bounds only the mean. Batches grow or
// shrink towards a target time ([Sizer]). The number of waiting rows is bounded:
// [Core.Full] reports when to stop reading.
//
// The core does no I/O and holds no content, only the number and size of each row. Package
// bulk runs it on files and HTTP, and the simulator in virtual time. For requests that do
// not carry rows use the facade's governor.
//
// A core is not safe for concurrent use. Times are durations since an origin that the
// caller chooses. Random numbers come from a seed, so a run can be repeated.
package dispatch

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/internal/ledger"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
)

// maxPutOff is the maximum number of batches that are given up before the load stops. Each
// leaves a gap in the settled rows, and continuing does not help a provider that fails so
// often.
const maxPutOff = 10_000

// Core is the state of one load. Make one with [New].
type Core struct {
	params *Params
	random *rand.PCG
	budget retry.Budget
	sizer  Sizer
	lanes  []lane
	tried  []bool // scratch of choose

	fresh  fifo
	again  waiting
	flying map[int64]*flight
	lastID int64

	held, heldBytes int
	freshSince      time.Duration // when the oldest waiting row arrived, or the last batch left
	lastSettled     time.Duration // when a row was last settled, or work arrived at an empty core
	ended, stopped  bool
	stop            Stop
	counts          Counts
}

// Counts are the totals of a load.
type Counts struct {
	// Offered counts all offered rows. The embedded counts say what became of them.
	Offered int64 `json:"-"`
	ledger.Counts
	// Sent counts batches sent. Throttled counts those refused for rate or load, Failed
	// those that failed otherwise.
	Sent      int64 `json:"batches_sent"`
	Throttled int64 `json:"batches_throttled"`
	Failed    int64 `json:"batches_failed"`
	// Retried counts batches sent again after a failure, Split batches sent again in
	// halves, and PutOff batches given up.
	Retried int64 `json:"batches_retried"`
	Split   int64 `json:"batches_split"`
	PutOff  int64 `json:"batches_put_off"`
}

type flight struct {
	batch  Batch
	sent   time.Duration
	ticket breaker.Ticket
	// full reports that the identity had no free slot after this batch was sent. Only then
	// does a success show that the server can bear the level.
	full bool
	// expected is the expected execution time.
	expected time.Duration
}

// New starts a load with at least one identity. The parameters must have been resolved, and
// must not change afterwards.
func New(p *Params, identities int, now time.Duration) *Core {
	c := &Core{
		params: p, random: rand.NewPCG(p.Seed, 0x6865616477617921), budget: retry.NewBudget(p.Budget),
		sizer: NewSizer(p.FirstRows, p.BatchRows, p.TargetTime), flying: map[int64]*flight{},
		lanes: make([]lane, max(identities, 1)), tried: make([]bool, max(identities, 1)),
		freshSince: now, lastSettled: now,
	}
	for i := range c.lanes {
		c.lanes[i] = newLane(p, now)
	}
	return c
}

// Full reports whether no more rows should be offered for now.
func (c *Core) Full() bool {
	return c.stopped || c.held >= c.params.WindowRows || c.heldBytes >= c.params.WindowBytes
}

// Offer adds the next row of the input.
func (c *Core) Offer(now time.Duration, r Row) {
	c.hold(now, r)
	if c.fresh.len() == 0 {
		c.freshSince = now
	}
	c.fresh.push(r)
}

// Resume adds rows that an earlier run sent in one batch. They are sent in one batch again,
// because the server knows them by the batch's idempotency key.
func (c *Core) Resume(now time.Duration, rows []Row) {
	for _, r := range rows {
		c.hold(now, r)
	}
	heap.Push(&c.again, again{rows: rows, attempt: 1, from: now})
}

func (c *Core) hold(now time.Duration, r Row) {
	if c.held == 0 {
		c.lastSettled = now // nothing was owed before: waiting for input is not a stall
	}
	c.held++
	c.heldBytes += r.Bytes
	c.counts.Offered++
}

// End reports that no more rows will be offered.
func (c *Core) End() { c.ended = true }

// Reject counts rows that were rejected before they were offered.
func (c *Core) Reject(rows int64) {
	c.counts.Rejected += rows
	c.checkRejects()
}

// Halt stops the load: nothing more is sent, and rows that are not settled stay owed. Of
// several calls the first counts.
func (c *Core) Halt(s Stop) {
	if !c.stopped {
		c.stopped, c.stop = true, s
	}
}

// Stopped returns why the load stopped before its end; ok is false if it did not.
func (c *Core) Stopped() (s Stop, ok bool) { return c.stop, c.stopped }

// Counts returns the totals so far.
func (c *Core) Counts() Counts { return c.counts }

// Held returns the number of rows without a fate, and their bytes.
func (c *Core) Held() (rows, bytes int) { return c.held, c.heldBytes }

// InFlight returns the number of batches in flight.
func (c *Core) InFlight() int { return len(c.flying) }

// BatchRows returns the number of rows that the next batch should have.
func (c *Core) BatchRows() int { return c.sizer.Size() }

// Next returns what to do now. After Send, the batch is in flight and must be settled.
func (c *Core) Next(now time.Duration) Decision {
	if c.stopped {
		if len(c.flying) == 0 {
			return Decision{Action: Finish, Reason: c.stop.Reason}
		}
		return Decision{Action: Wait, At: Never, Reason: c.stop.Reason}
	}
	ready, at := c.ready(now)
	if !ready {
		if c.ended && c.held == 0 {
			return Decision{Action: Finish, Reason: reason.Drained}
		}
		return Decision{Action: Wait, At: at}
	}
	i, ticket, at, why := c.choose(now)
	if i < 0 {
		return c.wait(now, at, why)
	}
	l := &c.lanes[i]
	f := &flight{batch: c.take(now), sent: now, ticket: ticket}
	c.lastID++
	f.batch.ID, f.batch.Identity = c.lastID, i
	c.flying[c.lastID] = f
	c.counts.Sent++
	l.inFlight++
	f.expected = l.spent.expect(len(f.batch.Rows))
	l.spent.flying += f.expected
	f.full = l.inFlight >= l.law.Level(now, l.inFlight)
	return Decision{Action: Send, Batch: f.batch}
}

// Delayed reports that a batch waited until now for a slot shared with other loads. Its
// duration is counted from now.
func (c *Core) Delayed(now time.Duration, id int64) {
	if f := c.flying[id]; f != nil {
		f.sent = now
	}
}

// ready reports whether there is a batch to send; if not, at is when there will be one if
// nothing else happens.
func (c *Core) ready(now time.Duration) (ok bool, at time.Duration) {
	at = Never
	if len(c.again) > 0 {
		if c.again[0].from <= now {
			return true, 0
		}
		at = c.again[0].from
	}
	n := c.fresh.len()
	switch {
	case n == 0:
		return false, at
	case c.ended || n >= c.sizer.Size() || c.fresh.bytes >= c.params.BatchBytes || c.Full():
		return true, 0
	case now-c.freshSince >= c.params.Linger:
		return true, 0
	}
	return false, min(at, c.freshSince+c.params.Linger)
}

// wait returns the decision when there is work and no identity can send it.
func (c *Core) wait(now, at time.Duration, why reason.Reason) Decision {
	if len(c.flying) > 0 {
		return Decision{Action: Wait, At: at, Reason: why}
	}
	if stalled := c.lastSettled + c.params.StallTimeout; at > stalled {
		s := Stop{Reason: why}
		if at != Never {
			s.RetryAt = at
		}
		c.Halt(s)
		return c.Next(now)
	}
	return Decision{Action: Wait, At: at, Reason: why}
}

// take forms the batch that ready has found.
func (c *Core) take(now time.Duration) Batch {
	if len(c.again) > 0 && c.again[0].from <= now {
		a := heap.Pop(&c.again).(again)
		return Batch{Rows: a.rows, Attempt: a.attempt}
	}
	c.freshSince = now
	return Batch{Rows: c.fresh.take(c.sizer.Size(), c.params.BatchBytes), Attempt: 1}
}

// nextRows returns the number of rows in the batch that take would form now.
func (c *Core) nextRows(now time.Duration) int {
	if len(c.again) > 0 && c.again[0].from <= now {
		return len(c.again[0].rows)
	}
	return min(c.fresh.len(), c.sizer.Size())
}

// choose returns the first identity with the most free slots, and a ticket of its breaker.
// If there is none, at is when there may be one and why is the reason.
func (c *Core) choose(now time.Duration) (i int, t breaker.Ticket, at time.Duration, why reason.Reason) {
	clear(c.tried)
	rows := c.nextRows(now)
	for {
		best, free := -1, 0
		at, why = Never, reason.None
		for i := range c.lanes {
			if c.tried[i] {
				continue
			}
			n, from, r := c.lanes[i].free(now, c.params, rows)
			if n > free {
				best, free = i, n
			}
			// Of several reasons, report the one that ends first.
			if n <= 0 && (why == reason.None || from < at || at == Never && c.lanes[i].stopped == reason.None) {
				at, why = from, r
			}
		}
		if best < 0 {
			if why == reason.None {
				why = reason.Concurrency // all slots are for probes
			}
			return -1, t, at, why
		}
		if t, ok, _ := c.lanes[best].breaker.Admit(&c.params.Breaker, now); ok {
			return best, t, 0, reason.None
		}
		c.tried[best] = true
	}
}

func (c *Core) checkRejects() {
	if c.params.MaxRejects > 0 && c.counts.Rejected > c.params.MaxRejects {
		c.Halt(Stop{Reason: reason.ClientError})
	}
}

// fifo holds rows that were offered and not sent.
type fifo struct {
	rows  []Row
	head  int
	bytes int
}

func (f *fifo) len() int { return len(f.rows) - f.head }

func (f *fifo) push(r Row) {
	if f.head > 0 && len(f.rows) == cap(f.rows) && f.head >= len(f.rows)/2 {
		f.rows = f.rows[:copy(f.rows, f.rows[f.head:])]
		f.head = 0
	}
	f.rows = append(f.rows, r)
	f.bytes += r.Bytes
}

// take removes up to n rows with up to limit bytes, but at least one row.
func (f *fifo) take(n, limit int) []Row {
	n, bytes := min(n, f.len()), 0
	for i, r := range f.rows[f.head : f.head+n] {
		if i > 0 && bytes+r.Bytes > limit {
			n = i
			break
		}
		bytes += r.Bytes
	}
	taken := append(make([]Row, 0, n), f.rows[f.head:f.head+n]...)
	f.head += n
	f.bytes -= bytes
	return taken
}

// again is a batch to send again, not before an instant.
type again struct {
	rows    []Row
	attempt int
	from    time.Duration
}

// waiting is a heap. The first batch is the one with the earliest instant; among equals,
// the one with the lowest row.
type waiting []again

func (w waiting) Len() int { return len(w) }
func (w waiting) Less(i, j int) bool {
	if w[i].from != w[j].from {
		return w[i].from < w[j].from
	}
	return w[i].rows[0].Number < w[j].rows[0].Number
}
func (w waiting) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *waiting) Push(x any)   { *w = append(*w, x.(again)) }
func (w *waiting) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last] = again{}
	*w = (*w)[:last]
	return x
}
