// Package dispatch decides what a bulk load does next: which rows go into a
// batch, which identity sends it and when, and what becomes of each row once the
// batch has come back.
//
// [Core] is a state machine that is stepped with instants. Rows are offered to
// it, [Core.Next] says what to do now (send this batch, or wait, or done), and
// [Core.Settle] takes the outcome of a batch and gives every row of it exactly
// one [Fate]. A finished batch frees its place at once; there are no rounds.
//
//	rows ──Offer──▶ fresh ──Next: send──▶ in flight ──Settle──▶ acknowledged
//	                           ▲                        ├─────▶ rejected
//	                           └──── again ◀────────────┤
//	                                                    ├─────▶ uncertain
//	                                                    └─────▶ owed
//
// Each identity (a credential) has a parallelism law, a breaker and a
// Retry-After gate of its own; work goes to the one with the most free places.
// Where the server budgets execution time, an identity also adds up what it
// spent in the window, and holds a batch back that would not fit: the level
// alone makes the mean fit, not the sum.
// Batches grow or shrink towards a target time ([Sizer]). What waits is bounded:
// [Core.Full] says when to stop reading.
//
// The core does no I/O and holds no row's content: it knows a row's number and
// size. So package bulk runs it over files and HTTP, and the simulator in virtual
// time. Do not use it for requests that do not carry rows: the facade's governor
// paces those.
//
// A core is not safe for concurrent use; one goroutine owns it. Instants are
// durations since an origin that the caller fixes. Its random numbers come from
// a seed, so that a seed repeats a run.
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

// maxPutOff is after how many batches that were given up the load stops: each
// leaves a hole in what is settled, and a provider that fails so often is not
// helped by being asked on.
const maxPutOff = 10_000

// Core is the state of one load. It is made by [New].
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
	freshSince      time.Duration // when the oldest of the rows that wait came, or the last batch left
	lastSettled     time.Duration // when a row last was settled, or work came to an empty core
	ended, stopped  bool
	stop            Stop
	counts          Counts
}

// Counts are the totals of a load.
type Counts struct {
	// Offered counts the rows that were offered; what became of them is embedded.
	Offered int64 `json:"-"`
	ledger.Counts
	// Sent counts batches sent, however they ended; Throttled, Failed those that
	// were refused for rate or load and those that failed otherwise.
	Sent      int64 `json:"batches_sent"`
	Throttled int64 `json:"batches_throttled"`
	Failed    int64 `json:"batches_failed"`
	// Retried counts batches sent again after a failure, Split those sent again in
	// halves, PutOff those given up.
	Retried int64 `json:"batches_retried"`
	Split   int64 `json:"batches_split"`
	PutOff  int64 `json:"batches_put_off"`
}

type flight struct {
	batch  Batch
	sent   time.Duration
	ticket breaker.Ticket
	// full says that the identity had no free place after this was sent: only
	// then does a success say that the level can be borne.
	full bool
	// expected is the execution time that it was thought to take.
	expected time.Duration
}

// New starts a load with a number of identities, at least one. The parameters
// must have been resolved and are not changed meanwhile.
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

// Resume adds rows that a run before had sent together, to be sent together
// again: with an idempotency key the server knows them as one batch.
func (c *Core) Resume(now time.Duration, rows []Row) {
	for _, r := range rows {
		c.hold(now, r)
	}
	heap.Push(&c.again, again{rows: rows, attempt: 1, from: now})
}

func (c *Core) hold(now time.Duration, r Row) {
	if c.held == 0 {
		c.lastSettled = now // nothing was owed until now: waiting for input is no failure
	}
	c.held++
	c.heldBytes += r.Bytes
	c.counts.Offered++
}

// End says that no row will be offered any more.
func (c *Core) End() { c.ended = true }

// Reject counts rows that were rejected before they could be offered.
func (c *Core) Reject(rows int64) {
	c.counts.Rejected += rows
	c.checkRejects()
}

// Halt stops the load: nothing more is sent, and whatever is not settled stays
// owed. The first reason counts.
func (c *Core) Halt(s Stop) {
	if !c.stopped {
		c.stopped, c.stop = true, s
	}
}

// Stopped says whether and why the load has stopped before its end.
func (c *Core) Stopped() (s Stop, ok bool) { return c.stop, c.stopped }

// Counts are the totals so far.
func (c *Core) Counts() Counts { return c.counts }

// Held is how many rows, and bytes of them, the core knows that have no fate.
func (c *Core) Held() (rows, bytes int) { return c.held, c.heldBytes }

// InFlight is how many batches are under way.
func (c *Core) InFlight() int { return len(c.flying) }

// BatchRows is how many rows the next batch should have.
func (c *Core) BatchRows() int { return c.sizer.Size() }

// Next decides what to do now. After Send the batch is in flight, and must be
// settled.
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

// Delayed says that a batch goes now, and waited until now for a place among others' batches:
// how long it takes is counted from here.
func (c *Core) Delayed(now time.Duration, id int64) {
	if f := c.flying[id]; f != nil {
		f.sent = now
	}
}

// ready reports whether there is a batch to send, and if not, when there will be
// one if nothing happens.
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

// wait is what to do when there is work and nobody to send it.
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

// take forms the batch that ready found.
func (c *Core) take(now time.Duration) Batch {
	if len(c.again) > 0 && c.again[0].from <= now {
		a := heap.Pop(&c.again).(again)
		return Batch{Rows: a.rows, Attempt: a.attempt}
	}
	c.freshSince = now
	return Batch{Rows: c.fresh.take(c.sizer.Size(), c.params.BatchBytes), Attempt: 1}
}

// nextRows is how many rows the batch would have that take forms now.
func (c *Core) nextRows(now time.Duration) int {
	if len(c.again) > 0 && c.again[0].from <= now {
		return len(c.again[0].rows)
	}
	return min(c.fresh.len(), c.sizer.Size())
}

// choose admits an attempt to the identity with the most free places; the first
// of several. Without one it says when there may be one, and why not now.
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
			// Of several reasons the one that ends first counts.
			if n <= 0 && (why == reason.None || from < at || at == Never && c.lanes[i].stopped == reason.None) {
				at, why = from, r
			}
		}
		if best < 0 {
			if why == reason.None {
				why = reason.Concurrency // every place is that of a probe
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

// fifo is the rows that were offered and not sent.
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

// take takes up to n rows of up to that many bytes, one at least.
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

// again is a batch to be sent once more, from an instant on.
type again struct {
	rows    []Row
	attempt int
	from    time.Duration
}

// waiting is a heap: the first is the one that may be sent first, and of those
// the one with the first row.
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
