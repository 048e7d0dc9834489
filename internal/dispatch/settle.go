package dispatch

import (
	"container/heap"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/reason"
)

// Settlement is the result of settling a batch.
type Settlement struct {
	Batch Batch
	// Fates are those of the batch's rows, in the batch's order.
	Fates []Fate
	// Moved is the transition of the identity's breaker.
	Moved breaker.Transition
	// Grew and Shrank report a change of the identity's level.
	Grew, Shrank bool
}

// Settle records the outcome of a batch in flight and gives each of its rows a fate. ok is
// false if no such batch is in flight, for instance because it was already settled; then
// nothing changes.
func (c *Core) Settle(now time.Duration, id int64, o Outcome) (s Settlement, ok bool) {
	f := c.flying[id]
	if f == nil {
		return Settlement{}, false
	}
	delete(c.flying, id)
	s.Batch = f.batch
	if o.Rows != nil && len(o.Rows) != len(f.batch.Rows) {
		// A response with another number of results cannot be matched with the rows.
		o.Rows, o.Class, o.Reason, o.Doubt = nil, reason.Failed, reason.InvalidResponse, true
	}
	c.observe(now, f, &o, &s)
	s.Fates = make([]Fate, len(f.batch.Rows))
	var left []Row
	for i, r := range f.batch.Rows {
		s.Fates[i] = c.fate(f, o, i)
		if s.Fates[i] == Again {
			left = append(left, r)
		}
	}
	if len(left) > 0 && !c.sendAgain(now, f, o, left) {
		for i := range s.Fates {
			if s.Fates[i] == Again {
				s.Fates[i] = Owed
			}
		}
	}
	c.count(now, f, s.Fates)
	if now-c.lastSettled > c.params.StallTimeout {
		c.Halt(Stop{Reason: o.Reason})
	}
	return s, true
}

// observe records the outcome of a batch: for the law of the identity that sent it,
// and for the sizer.
func (c *Core) observe(now time.Duration, f *flight, o *Outcome, s *Settlement) {
	l := &c.lanes[f.batch.Identity]
	l.inFlight--
	l.heard = true
	l.law.Recommend(o.Parallelism)
	if c.params.Law.BusyBudget == 0 { // the owner knows the number of servers
		l.law.Budget(o.Budget, o.Window)
		l.spent.learn(now, o.Budget, o.Window)
	}
	l.spent.flying -= f.expected
	if o.Class == reason.OK || o.Doubt { // the server worked on it, or may have
		busy := o.Busy
		if busy <= 0 {
			busy = max(now-f.sent, 0)
		}
		first := l.spent.perRow == 0
		l.spent.add(now, busy, len(f.batch.Rows))
		if first {
			c.expect(f.batch.Identity)
		}
	}
	result := breaker.Success
	switch {
	case o.Reason == reason.Unauthorized:
		result = breaker.Neutral
		l.stopped = reason.Unauthorized
	case o.Class.Throttle():
		c.counts.Throttled++
		result = breaker.Neutral
		if s.Shrank = l.law.Throttle(f.sent, now, o.RetryAfter); s.Shrank {
			// Further throttles of this epoch have no effect: those batches were already in
			// flight.
			result = breaker.Failure
			l.streak++
		}
		if s.Shrank && o.Budget > 0 { // refused for execution time
			l.spent.refused(now, f.expected)
		}
		c.closeGate(now, l, o, s.Shrank)
	case o.Class == reason.OK:
		l.streak = 0
		c.sizer.Observe(len(f.batch.Rows), now-f.sent)
		if f.full {
			s.Grew = l.law.Success(f.sent, now, o.Busy)
		}
	case o.Class == reason.Failed || o.Class == reason.Lost:
		c.counts.Failed++
		result = breaker.Failure
		if o.Reason == reason.Timeout {
			c.sizer.TooSlow(len(f.batch.Rows))
		}
	case o.Class == reason.Unknown:
		result = breaker.Neutral
	default: // refused for its content: the provider works
	}
	if o.TooLarge {
		c.sizer.TooLarge(len(f.batch.Rows))
	}
	if o.Fatal {
		c.Halt(Stop{Reason: o.Reason})
	}
	s.Moved = l.breaker.Settle(&c.params.Breaker, now, f.ticket, result)
}

// expect sets the expected execution time of batches in flight, which was not known when
// they were sent.
func (c *Core) expect(identity int) {
	l := &c.lanes[identity]
	for _, f := range c.flying {
		if f.batch.Identity == identity {
			l.spent.flying -= f.expected
			f.expected = l.spent.expect(len(f.batch.Rows))
			l.spent.flying += f.expected
		}
	}
}

// closeGate delays an identity after a throttle: by the advertised wait, or by a backoff.
func (c *Core) closeGate(now time.Duration, l *lane, o *Outcome, fresh bool) {
	switch {
	case o.HasRetryAfter:
		l.gate = max(l.gate, now+max(o.RetryAfter, 0))
	case o.Exhausted:
		l.stopped = reason.QuotaExhausted
	case fresh:
		l.gate = max(l.gate, now+c.params.Backoff.Wait(l.streak-1, c.random.Uint64()))
	}
}

// fate returns the fate of row i by the outcome alone. Whether the row may be sent again is
// decided later.
func (c *Core) fate(f *flight, o Outcome, i int) Fate {
	if o.Rows != nil {
		switch o.Rows[i] {
		case Done:
			return Acknowledged
		case Refused:
			return Rejected
		case Later:
			return Again
		case Unknown:
		}
		if c.params.Resend == ResendAny {
			return Again
		}
		return Uncertain // alone it would be another batch with another key
	}
	switch {
	case o.Class == reason.OK:
		return Acknowledged
	case o.Doubt && c.params.Resend == ResendNothing:
		return Uncertain
	case o.Doubt:
		return Again
	case o.Class != reason.Rejected, o.Fatal, o.Reason == reason.Unauthorized:
		return Again
	case (o.TooLarge || o.Divisible) && len(f.batch.Rows) > 1:
		return Again // in halves
	default:
		return Rejected
	}
}

// sendAgain queues rows of a batch again, unless they must not be sent again in this run.
func (c *Core) sendAgain(now time.Duration, f *flight, o Outcome, rows []Row) bool {
	a := again{rows: rows, attempt: f.batch.Attempt, from: now}
	switch {
	case c.stopped:
		return false
	case o.Class.Throttle(), o.Reason == reason.Unauthorized, o.Class == reason.Unknown && !o.Doubt:
		// The server did not process the batch. It waits for the gate or another identity,
		// and does not count as a retry.
	case o.Class == reason.Rejected && len(rows) > 1:
		c.counts.Split++
		half := len(rows) / 2
		heap.Push(&c.again, again{rows: rows[:half:half], attempt: a.attempt, from: now})
		a.rows = rows[half:]
	default:
		if a.attempt >= c.params.Backoff.Attempts || !c.budget.Take() {
			if c.counts.PutOff++; c.counts.PutOff > maxPutOff {
				c.Halt(Stop{Reason: reason.RetryBudget.Reason()})
			}
			return false
		}
		c.counts.Retried++
		a.from = now + max(c.params.Backoff.Wait(a.attempt-1, c.random.Uint64()), o.RetryAfter)
		a.attempt++
	}
	heap.Push(&c.again, a)
	return true
}

// count updates the totals.
func (c *Core) count(now time.Duration, f *flight, fates []Fate) {
	acknowledged := c.counts.Acknowledged
	for i, fate := range fates {
		switch fate {
		case Again:
			continue
		case Acknowledged:
			c.counts.Acknowledged++
		case Rejected:
			c.counts.Rejected++
		case Uncertain:
			c.counts.Uncertain++
		case Owed:
		}
		if fate != Owed {
			c.lastSettled = now
		}
		c.held--
		c.heldBytes -= f.batch.Rows[i].Bytes
	}
	if c.counts.Acknowledged > acknowledged {
		c.budget.Success()
	}
	c.checkRejects()
}
