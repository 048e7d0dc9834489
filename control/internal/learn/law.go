// Package learn is the law "cycle": it finds out what limits a provider enforces
// from what was admitted, what was refused, and when there was room again.
//
// A cycle is the time from one release to the next: attempts go, one is refused,
// nothing goes but a canary now and then, and the first canary that is admitted is
// the release. Each part of the law looks at whole cycles and is a file of its own:
//
//	history   what was sent, and how much of each unit in any stretch of time
//	rate      a pace that is known to lie between two others, and the climb before that
//	window    so many units in any stretch of one length, whatever the length
//	fit       windows of any length and unit in which as much was in use at each refusal
//	period    windows that begin anew at fixed instants, at which alone blocks end
//	flight    so many attempts under way at once
//	block     the silence after a refusal, its canaries, and penalties: blocks that
//	          last longer than any limit explains
//	advertise limits that response headers name, and shape: how their units come back
//
// [Law] puts them together: it asks every limit when the next attempt may go and
// takes the latest instant; it puts a refusal down to the limit that was fullest,
// and when none was nearly full, the block's length tells what kind the new one is.
//
// All of it is a function of what was observed and of the instant passed in. It is
// not safe for concurrent use. Instants are durations since an origin that the
// caller fixes.
package learn

import (
	"math"
	"time"
)

// Config is what the owner sets. Durations are positive.
type Config struct {
	// Ceiling is the shortest interval, Initial the one before any answer, Slowest
	// the longest that is shown.
	Ceiling, Initial, Slowest time.Duration
	// Phase is the wall clock at instant 0, since the Unix epoch.
	Phase time.Duration
}

// Class is how an attempt ended, as far as the law is concerned.
type Class uint8

// The classes.
const (
	// Lost: there was no response.
	Lost Class = iota
	// Failed: a response that says nothing of limits.
	Failed
	// Admitted: a success.
	Admitted
	// Refused: a limit refused it.
	Refused
	// Overloaded: refused by a limit, or by a provider in trouble.
	Overloaded
)

// Outcome is one settled attempt.
type Outcome struct {
	Sent, Now      time.Duration
	Class          Class
	RetryAfter     time.Duration // 0 when none was advertised
	Estimate, Cost float64
	Steady         bool // no speeding up
}

// Law is the state of one connection. Make one with [New].
type Law struct {
	cfg    Config
	state  state
	clock  time.Duration
	last   time.Duration
	began  time.Duration
	flying int

	h       history
	out     departures
	crowd   crowd
	latency float64 // nanoseconds, of what was admitted
	jitter  float64 // nanoseconds, by which that differs from one attempt to the next
	trip    float64 // nanoseconds, of a refusal
	mean    amounts
	carried float64 // admitted ever

	ramp    ramp
	limits  []limit
	block   block
	penalty penalty
	past    *episodes // nil before any
	blocks  spans
	headers []advertised

	epoch     time.Duration // attempts sent until then belong to a refusal that was counted
	freed     time.Duration // the last release of a long block
	quietFrom time.Duration // the last release, and how long its block was
	quietFor  time.Duration
	limited   bool          // 429 is how this provider refuses
	waits     bool          // its refusals carry a wait
	named     waits         // what those are worth
	misses    int           // windows that were refuted
	blips     int           // outages that were over at the first canary
	silence   time.Duration // without a canary that ended the last long block that canaries may have lengthened
	dear      time.Duration // how long long blocks are, lately
	crowds    int           // refusals that were weighed for a limit on attempts under way
	brief     int           // blocks in a row that were over at the first canary
	shown     time.Duration
}

// New makes a law that knows nothing.
func New(cfg Config) *Law {
	l := &Law{cfg: cfg, shown: cfg.Initial, epoch: -1, last: -never}
	l.ramp.every = float64(cfg.Initial)
	l.mean = amounts{1, 1, 0}
	return l
}

// view is what the limits see.
func (l *Law) view() view {
	return view{
		now: l.clock, last: l.last, guard: time.Duration(l.trip), latency: l.latency, jitter: l.jitter, flying: l.flying,
		phase: l.cfg.Phase, mean: l.mean, h: &l.h, dear: l.quietFor.Seconds(), punished: l.penalty.on(), calm: float64(l.clock-l.quietFrom) / float64(l.quietFor+1),
	}
}

// Answered reports whether any response has come back.
func (l *Law) Answered() bool { return l.state != starting }

// Waiting reports whether nothing goes since a refusal, until the next canary.
func (l *Law) Waiting() bool { return l.state == waiting }

// Believed is how much of a wait that a refusal named is waited for, after the refusal was
// observed: all of it, unless it seems to be of another unit.
func (l *Law) Believed(wait time.Duration) time.Duration { return l.named.believed(wait) }

// Foretold reports whether a limit that was known before was nearly used up when the
// newest block began.
func (l *Law) Foretold() bool {
	b := &l.block
	if b.explained || b.blamed < 0 {
		return b.explained
	}
	return !isRate(l.limits[b.blamed]) || b.paced // a rate explains every short block
}

// Interval is the sustained interval.
func (l *Law) Interval() time.Duration { return l.shown }

// Hold is when the next attempt of that cost may go.
func (l *Law) Hold(now time.Duration, cost float64) time.Duration {
	l.clock = max(l.clock, now)
	now = l.clock
	switch l.state {
	case starting:
		return now
	case trying:
		return never
	case waiting:
		return max(now, l.block.resume, l.advertised(now, cost))
	case ramping, holding:
	}
	at := max(now, l.advertised(now, cost))
	if l.state == ramping {
		at = max(at, l.last+time.Duration(l.ramp.every))
	}
	v := l.view()
	for _, x := range l.limits {
		at = max(at, x.free(v, cost))
	}
	if at != never {
		at = max(now, min(at, l.last+maxSilence))
	}
	return at
}

// Sent counts an attempt.
func (l *Law) Sent(now time.Duration, cost float64) {
	l.clock = max(l.clock, now)
	now = l.clock
	if l.h.at == nil {
		l.began, l.freed = now, now
	}
	if l.state == waiting {
		l.transition(canary)
		l.block.canaryAt = now
	}
	l.out.add(now, l.flying)
	if l.state != trying {
		l.crowd.sent(l.flying)
	}
	l.flying++
	l.h.add(now, amounts{1, cost, l.mean[busy]})
	for _, x := range l.limits {
		x.sent(now)
	}
	for i := range l.headers {
		l.headers[i].sent(now, cost)
	}
	l.last = now
}

// Observe learns from an outcome.
func (l *Law) Observe(o Outcome) {
	l.clock = max(l.clock, o.Now)
	o.Now = l.clock
	l.flying = max(0, l.flying-1)
	if !(o.Estimate > 0) {
		o.Estimate = 1
	}
	isCanary := l.state == trying && o.Sent >= l.block.canaryAt
	switch o.Class {
	case Refused, Overloaded:
		l.refuse(o, isCanary)
	case Admitted:
		l.admit(o, isCanary)
	default:
		if isCanary {
			l.transition(nothing)
			l.block.resume = l.clock + max(l.block.wait, firstCanary)
		}
		if l.state == starting && o.Class == Failed {
			l.transition(answered)
		}
	}
	l.show(o.Class == Admitted && !o.Steady)
}

func (l *Law) admit(o Outcome, isCanary bool) {
	l.carried++
	for i := range l.headers {
		l.headers[i].answered(o.Sent)
	}
	took := float64(o.Now - o.Sent)
	if l.latency > 0 {
		l.jitter += 0.1 * (math.Abs(took-l.latency) - l.jitter)
	}
	smooth(&l.latency, took, 0.1)
	work := max(0.001, (took-l.trip)/1e9)
	more := 0.0
	if o.Cost > 0 {
		more = o.Cost - o.Estimate
		smooth(&l.mean[cost], o.Cost, 0.05)
	}
	l.h.correct(o.Now, amounts{0, more, work - l.mean[busy]})
	smooth(&l.mean[busy], work, 0.05)
	if l.state == starting {
		l.transition(answered)
	}
	switch {
	case isCanary:
		l.block.release = o.Sent
		if l.block.doubted {
			l.named.unit = otherUnit
		}
		l.transition(admitted)
		l.ended(l.view())
	case o.Steady:
	case l.state == ramping, l.state == holding: // ramping with limits that were restored, too
		if l.state == ramping && l.ramp.answered(l.view(), o.Sent, float64(l.cfg.Ceiling)) {
			l.ramp.carried = l.carried
		}
		for i, x := range l.limits {
			switch x := x.(type) {
			case *window:
				v := l.view()
				if x.refuted(v) {
					l.outgrown(v, i, x)
					return
				}
				x.answered(v)
			case *flight:
				x.answered(l.view())
			}
		}
	}
}

// refuse takes a refusal in. Of those that were under way together the first alone
// is evidence.
func (l *Law) refuse(o Outcome, isCanary bool) {
	l.h.correct(o.Sent, amounts{-1, -o.Estimate, -l.mean[busy]})
	for _, x := range l.limits {
		x.takeBack()
	}
	b := &l.block
	if isCanary && b.doubted {
		l.named.unit = 1
		b.refusals-- // as if it had waited from the start
	}
	if o.Sent > l.epoch && !isCanary {
		l.named.heard(o.RetryAfter)
	}
	doubted := l.named.doubts(o.RetryAfter)
	o.RetryAfter = min(l.named.believed(o.RetryAfter), maxSilence)
	if o.Sent <= l.epoch {
		if o.RetryAfter > 0 && o.Class == Refused {
			b.resume = max(b.resume, o.Now+o.RetryAfter)
		}
		return
	}
	l.epoch = o.Now
	smooth(&l.trip, float64(min(o.Now-o.Sent, maxTrip)), 0.2)
	f := refusal{sent: o.Sent, now: o.Now, others: l.out.others(o.Sent), cost: o.Estimate, wait: o.RetryAfter, limited: o.Class == Refused}
	if !isCanary && l.state != waiting && l.state != trying {
		l.blocked(f)
	} else {
		b.refusals++
		b.lastRefused = o.Sent
	}
	if l.state == starting || l.state == ramping || l.state == holding || isCanary || l.state == waiting {
		l.transition(refused)
	}
	if f.limited {
		l.limited = true
		l.waits = l.waits || f.wait > 0
	}
	b.doubted = doubted
	b.outage = !b.explained && l.outage(f)
	b.punished = b.punished || b.refusals > 1 && !b.outage && l.plenty()
	l.plan(f)
}

// blocked begins a block.
func (l *Law) blocked(f refusal) {
	v := l.view()
	l.block = block{began: f.sent, noticed: f.now, lastRefused: f.sent, cost: f.cost, blamed: fullest(l.limits, v, f), refusals: 1, ramping: len(l.limits) == 0 && l.carried < l.ramp.carried+carrier}
	l.block.pace = l.pace(v, f.sent)
	l.block.soonest = l.soonest()
	if r := l.rate(); r != nil {
		l.block.paced = r.cycles > 2
	}
	l.block.carried = v.h.until(attempts, f.sent) - v.h.until(attempts, l.freed-1)
	if l.block.explained = l.explained(f); l.block.explained || l.outage(f) {
		if i := l.block.blamed; i >= 0 && l.block.explained {
			if w, ok := l.limits[i].(*window); ok && w.climb > 1 {
				w.blame(v, f) // the test went too far, whoever says so
			}
		}
		l.block.blamed = -1
		return
	}
	most := maxEvidence
	if l.block.ramping {
		most = maxEvidence / 2 // everything grew at once
	}
	if r := l.rate(); r != nil && r.steep() && !l.penalty.on() && l.misses == 0 {
		most = 0 // more are under way because it goes faster
	}
	l.crowd.refused(f.others, most)
	l.crowds++
	if i := l.block.blamed; i >= 0 {
		l.limits[i].blame(v, f)
	}
}

// soonest is how long the first canary of a block waits at least: less and less where
// blocks of what is blamed were over at the first one.
func (l *Law) soonest() time.Duration {
	i := l.block.blamed
	if i < 0 || isWindow(l.limits[i]) {
		return firstCanary
	}
	if r, ok := l.limits[i].(*rate); ok && !r.alike() {
		return firstCanary // units of a burst come back meanwhile
	}
	return max(firstCanary>>min(l.brief, maxBrief), seconds(2/l.block.pace))
}

// outage says that a refusal is a provider's in trouble: it is not how this one
// refuses, or it had just named enough that is left and the refusal has nothing to do
// with how much is sent; and outages are not mostly over at the first canary.
func (l *Law) outage(f refusal) bool {
	if f.limited || f.wait > 0 || l.blips >= maxBlips {
		return false
	}
	if l.limited || l.waits || l.block.refusals > 1 {
		return l.limited || l.waits || l.block.outage
	}
	return l.plenty() && !l.block.ramping && l.crowd.share(f.others) > ordinary
}

// pace is how many attempts a second went before an instant.
func (l *Law) pace(v view, t time.Duration) float64 {
	span := max(time.Second, 8*l.shown)
	from := max(t-span, l.freed, l.began)
	lately := max(v.h.until(attempts, t)-v.h.until(attempts, from)+1, 1) / max((t-from).Seconds(), 0.05)
	from = max(l.freed, l.began)
	return max(lately, (v.h.until(attempts, t)-v.h.until(attempts, from))/max((t-from).Seconds(), 1))
}

// plan sets the instant of the next canary.
func (l *Law) plan(f refusal) {
	b := &l.block
	v := l.view()
	foretold := l.clock
	if b.blamed >= 0 && !b.outage {
		if at := l.limits[b.blamed].free(v, 1); at != never {
			foretold = max(foretold, at)
		}
		if w, ok := l.limits[b.blamed].(*window); ok && w.lone && b.refusals == 1 {
			// Half of the wait, to see whether the window is a shorter one.
			at := v.h.newest(w.unit, f.sent, w.size[w.unit]) + w.low
			foretold = max(foretold, l.clock+(at-l.clock)/2)
		} else if ok && w.clock == 0 && !w.lone && !w.settled() {
			low, high := w.between(v, b)
			foretold = b.within(l.clock, low, high, time.Duration(l.trip), l.freed, l.cfg.Phase)
		}
	}
	trip := time.Duration(l.trip)
	if b.refusals == 1 && l.flying > 1 {
		trip = max(trip, time.Duration(l.latency)) // most of what is under way is back then
	}
	if b.explained && b.refusals == 1 {
		b.expected = l.advertised(l.clock, 1) - l.clock
	}
	b.exact = b.newly(f.wait)
	if f.wait > 0 {
		b.lastWait = f.wait
	}
	if b.exact {
		b.wait = f.wait + trip
	} else {
		b.wait = b.next(l.clock, trip, foretold, l.freed, l.cfg.Phase, l.penaltyWait())
	}
	if !f.limited && f.wait == 0 {
		b.wait = min(b.wait, max(maxUnsure, (l.clock-b.noticed)/2)) // it may be an outage
	}
	if b.explained && b.refusals > 1 { // there is less than was thought: refusals may count
		b.wait = max(b.wait, l.allBack()-l.clock)
	}
	if b.explained && b.refusals > 1 && !b.punished { // others were there first
		b.wait = min(b.wait, max(contended, 2*(l.advertised(l.clock, 1)-l.clock)))
	}
	if b.wait = max(b.wait, f.wait+trip); b.refusals > 1 && !b.outage {
		b.wait += b.apart(l.clock)
	}
	b.wait = max(min(b.wait, maxSilence), f.wait+trip)
	if b.refusals == 1 {
		b.first, b.least = b.wait, trip*12/10
	}
	b.resume = l.clock + b.wait
}

// After is about how long after the next attempt the one goes that has n before it: each
// limit lets go at once what there is room for, and the rest at its interval. Of a window
// that is advertised all comes back at one instant, and that is the next attempt's.
func (l *Law) After(n float64) time.Duration {
	v := l.view()
	ns := 0.0
	if l.state == ramping || l.state == starting || len(l.limits) == 0 {
		ns = n * l.ramp.every
	}
	for _, x := range l.limits {
		ns = max(ns, max(0, n-max(0, x.room(v)))*x.interval(v))
	}
	for i := range l.headers {
		if t := &l.headers[i]; t.shape != fixed {
			ns = max(ns, max(0, n-max(0, t.room(v)))*t.interval())
		}
	}
	return time.Duration(min(max(ns, n*float64(l.cfg.Ceiling)), n*float64(l.cfg.Slowest), float64(never/2)))
}

// show brings the shown interval up to date; only a success shortens it.
func (l *Law) show(mayShorten bool) {
	d := time.Duration(min(max(l.sustained(), float64(l.cfg.Ceiling)), float64(l.cfg.Slowest)))
	if !mayShorten {
		d = max(d, l.shown)
	}
	l.shown = d
}

// sustained is the longest interval of what is held, in nanoseconds.
func (l *Law) sustained() float64 {
	if len(l.limits)+len(l.headers) == 0 {
		return l.ramp.every
	}
	v := l.view()
	ns := 0.0
	if l.state == ramping || l.state == starting || len(l.limits) == 0 {
		ns = l.ramp.every
	}
	for _, x := range l.limits {
		ns = max(ns, x.interval(v))
	}
	for i := range l.headers {
		ns = max(ns, l.headers[i].interval())
	}
	return ns
}

// smooth is an exponentially weighted mean; 0 means none yet.
func smooth(mean *float64, x, gain float64) {
	if *mean == 0 {
		*mean = x
	} else {
		*mean += gain * (x - *mean)
	}
}
