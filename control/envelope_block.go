package control

import (
	"math"
	"time"

	"github.com/headway-go/headway/reason"
)

// block is the time from a throttle until a canary gets through: nothing else
// is sent, whatever the limit, so that a provider is never hammered.
type block struct {
	on       bool
	at       time.Duration // of the first throttle
	epoch    time.Duration // attempts sent until then are part of a throttle that was counted
	resume   time.Duration // when the canary goes
	canary   bool          // it is under way
	canaryAt time.Duration
	refused  int           // the first throttle and the canaries
	rung     time.Duration // the last wait: the next is longer
	foretold time.Duration // when the limits said there would be room
	hasty    bool          // the canary goes before that
	outage   bool          // it looks like one

	longest time.Duration // block that ended
	held    time.Duration // the longest that a canary was refused after a throttle
	pain    time.Duration // how much longer than foretold blocks last

	blamed    int   // the limit that explained the throttle, from 1; 0 means none
	suspended limit // what it was before
}

// throttled learns from a refusal. Of those that were under way together the
// first alone is evidence.
func (e *Envelope) throttled(now time.Duration, o Observation) {
	n, cost := e.sent.after(o.Sent)
	n, cost = n-1, cost-o.Estimate // what was sent after it
	e.takeBack(now, o)
	// What is under way may be refused too: it proves nothing.
	e.forget()
	e.disproved = true
	if e.bank != nil {
		e.bank.forget()
	}
	o.RetryAfter = min(o.RetryAfter, maxRung)
	b := &e.block
	if o.Sent <= b.epoch {
		if o.RetryAfter > 0 {
			b.resume = max(b.resume, now+o.RetryAfter)
		}
		return
	}
	smooth(&e.refusal, float64(min(now-o.Sent, slowestRefusal)), 0.2)
	b.epoch, e.acks, e.ackAt = now, 0, now
	if !b.on {
		b.at, b.refused = now, 0
	}
	b.refused++
	switch {
	case o.Class == reason.Overloaded && b.on && b.refused > 1:
		// It looks like an outage, which says nothing of limits and ends by itself.
		b.canary, b.outage = false, true
		b.rung = min(2*max(b.rung, time.Second), 30*time.Second)
		b.resume = now + max(b.rung, o.RetryAfter)
		return
	case b.hasty && b.canary:
		// The limit had said so.
		b.hasty, b.canary = false, false
		b.refused--
		e.plan(now, o)
		return
	}
	e.speed = min(e.speed*1.5, float64(e.params.Initial))
	e.blame(now, o, n, cost)
	b.canary = false
	if e.bank != nil && o.RetryAfter > 0 && o.Class == reason.Throttled {
		e.bank.told(e, now, o.RetryAfter)
	}
	e.judge(now)
	e.plan(now, o)
}

// takeBack gives back what a refused attempt was counted for.
func (e *Envelope) takeBack(now time.Duration, o Observation) {
	for u, used := range e.units {
		if used != nil {
			for i := range used.windows {
				used.windows[i].giveBack(o.Sent, unitsOf(u, o.Estimate), e.params.Phase)
			}
		}
	}
	for i := range e.limits {
		e.limits[i].gaveBack(o)
	}
	for i := range e.told {
		if t := &e.told[i]; t.slides != nil {
			t.slides.correct(now, o.Sent, -unitsOf(t.unit(), o.Estimate))
		}
	}
	if e.bank != nil {
		e.bank.pool.gaveBack()
	}
}

// blame finds the limit that explains a refusal, or opens an inquiry; in an
// inquiry it is evidence.
func (e *Envelope) blame(now time.Duration, o Observation, n, cost float64) {
	b := &e.block
	if b.canary {
		b.held = max(b.held, o.Sent-b.at)
		switch {
		case e.bank != nil:
			e.bank.refused(e, now, o, n, cost)
		case b.pain == 0 && (b.refused > 2 || e.blamedLong()):
			// What was thought to explain the throttle foretold room by now.
			if b.blamed > 0 {
				e.limits[b.blamed-1] = b.suspended
				b.blamed = 0
			}
			e.bank = newBank(e, now, o, n, cost)
		}
		return
	}
	b.blamed = 0
	// A window or a number in flight is a sharper claim than a rate.
	for _, rate := range [...]bool{false, true} {
		for i := range e.limits {
			l := &e.limits[i]
			if (l.kind == TokenBucket) != rate {
				continue
			}
			was := *l
			if l.explains(e, now, o, n, cost) {
				e.bank, b.suspended, b.blamed = nil, was, i+1
				return
			}
		}
	}
	if e.bank == nil {
		e.bank = newBank(e, now, o, n, cost)
	} else {
		e.bank.refused(e, now, o, n, cost)
	}
}

// blamedLong reports whether a window so long was blamed that its end cannot
// have been missed by little.
func (e *Envelope) blamedLong() bool {
	l := e.blamedLimit()
	return l != nil && l.fine != nil && spans[l.span] >= time.Minute
}

func (e *Envelope) blamedLimit() *limit {
	if e.block.blamed == 0 {
		return nil
	}
	return &e.limits[e.block.blamed-1]
}

// plan says when the canary goes. A told wait counts for itself. Otherwise, as
// long as one limit is to blame, it says when; in an inquiry the suspects do,
// within the rungs of a ladder: 1 s, 8 s, 64 s, then two and a half to eight
// times longer. It has to outgrow penalties that double.
func (e *Envelope) plan(now time.Duration, o Observation) {
	b := &e.block
	b.on = true
	at := now
	for i := range e.limits {
		if f := e.limits[i].free(e, now, 1); f != Never {
			at = max(at, f)
		}
	}
	for i := range e.told {
		at = max(at, e.told[i].free(now, 1))
	}
	low := max(2*time.Duration(e.refusal), time.Duration(e.speed))
	if e.bank != nil {
		low = max(low, time.Second)
	}
	switch {
	case b.pain > painful:
		low = max(low, b.pain*85/100)
	case b.held > painful && b.refused == 1:
		low = max(low, min(b.held*3/2, 5*time.Minute))
	}
	if b.refused == 1 {
		b.foretold = at
		if l := e.blamedLimit(); e.bank == nil && l != nil && l.fine != nil {
			low = max(low, spans[l.span]/100)
		}
	}
	wait := e.wait(now, at, low)
	if l := e.blamedLimit(); b.refused == 1 && e.bank == nil && l != nil && l.fine != nil &&
		b.pain <= painful && o.RetryAfter == 0 && l.hasty < 2 && l.size > 200 && wait > 5*time.Second {
		// Twice, to see whether the window is a shorter one.
		l.hasty++
		b.hasty = true
		wait = max(wait/2, low)
	}
	if o.RetryAfter > 0 {
		wait = o.RetryAfter + time.Duration(e.refusal)
	}
	b.rung = wait
	b.resume = now + wait + time.Duration(e.refusal)
}

// wait is how long until the canary, at least low on the first rung.
func (e *Envelope) wait(now, at, low time.Duration) time.Duration {
	rung, high := e.block.rung, time.Duration(math.MaxInt64)
	if e.bank == nil {
		if rung > 0 {
			low = min(3*rung, maxRung)
			high = max(low, (at-now)/4)
		}
		return min(max(at-now, low), high)
	}
	switch {
	case rung == 0:
		high = max(low, 2*time.Second, 2*e.block.longest)
	case rung < time.Minute:
		low, high = 8*rung, 8*rung
	default:
		low, high = min(5*rung/2, maxRung), min(8*rung, maxRung)
	}
	wait := low
	if f := e.bank.between(e, now, now+low, now+high); f != Never {
		wait = f - now
	} else if rung < time.Minute {
		wait = high
	}
	return min(max(wait, at-now, low), high)
}

// maxRung bounds the silence between two canaries.
const maxRung = 24 * time.Hour

// slowestRefusal bounds what is believed of the time that a refusal takes: one
// that was settled hours later does not hold back what follows.
const slowestRefusal = time.Minute

// reopen: the canary came through.
func (e *Envelope) reopen(now time.Duration, o Observation) {
	b := &e.block
	took := now - b.at
	b.on, b.canary, b.blamed = false, false, 0
	b.longest = max(b.longest, took)
	if b.refused == 1 {
		b.held = b.held * 7 / 10
	}
	if e.bank == nil {
		if !b.outage {
			b.pain = max(0, now-b.foretold-time.Second)
		}
	} else {
		if took > painful {
			// Not at the pace of before: at what went through on the whole.
			e.speed = max(e.speed, float64(b.at-e.began)/e.admitted)
			e.speed = min(max(e.speed, float64(e.params.Ceiling)), float64(e.params.Slowest))
			e.ramped, e.gentle = 1e9/e.speed, true
		}
		e.bank.turn()
		e.bank.admitted(e)
	}
	b.rung, b.refused, b.outage, b.hasty = 0, 0, false, false
	for i := range e.limits {
		e.limits[i].reopened(o.Sent - b.at)
	}
}
