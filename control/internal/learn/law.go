// Package learn is the law "cycle". It learns what limits a provider enforces from which
// attempts were admitted and refused, and when there was room again.
//
// A cycle is the time from one release to the next: attempts are sent until one is refused,
// then only an occasional canary is sent, and the first admitted canary is the release.
// Each part of the law has a file. What a block says is decided in judge, and docs/law.md
// walks through one refusal:
//
//	history   what was sent, and how much of each unit in any stretch of time
//	rate      a pace that is known to lie between two others, and the climb before that
//	window    so many units in any stretch of one length, whatever the length
//	period    windows that begin with the clock, or are counted in periods (spans)
//	flight    so many attempts in flight at once
//	block     the silence after a refusal
//	judge     what the end of a block says, and which limits are held
//	stray     refusals for load that no pace avoids
//	longer    limits behind a shorter one that is known
//	canary    when the next canary of a block goes
//	wait      which advertised waits are right
//	penalty   blocks that last longer than any limit explains
//	usual     the lengths that windows usually have, and when they end
//	advertise limits that response headers name
//	shape     how the units of such a limit come back
//	shared    what others use of it
//	limit     what all limits can do, and which one a refusal is blamed on
//	state     what goes when: the states and their moves
//	store     what is shown, stored and restored
//	tuning    the constants
//
// The next attempt waits for the latest instant that any limit requires. A refusal is
// blamed on the limit that was fullest; if none was nearly full, the length of the
// block shows the kind of a new limit.
//
// The law is a function of the observations and the given instants. It is not safe for
// concurrent use. Instants are durations since an origin that the caller chooses.
package learn

import (
	"math"
	"time"
)

// Config has the owner's settings. Durations are positive.
type Config struct {
	// Ceiling is the shortest interval, Initial the one before any response, and Slowest
	// the longest that is reported.
	Ceiling, Initial, Slowest time.Duration
	// MaxWait bounds how much of an advertised wait is observed; 0 means a day.
	MaxWait time.Duration
	// Phase is the wall clock at instant 0, since the Unix epoch.
	Phase time.Duration
	// Windows are the lengths of the windows that the owner has configured limits for.
	// Refusals are first taken for the provider's limit of such a length.
	Windows []time.Duration
}

// Class says how an attempt ended, as far as the law is concerned.
type Class uint8

// The classes.
const (
	// Lost: there was no response.
	Lost Class = iota
	// Failed: a response without information about limits.
	Failed
	// Admitted: a success.
	Admitted
	// Refused: a limit refused it.
	Refused
	// Overloaded: refused by a limit, or by a provider in trouble.
	Overloaded
)

// Outcome is a settled attempt.
type Outcome struct {
	Sent, Now      time.Duration
	Class          Class
	RetryAfter     time.Duration // 0 if none was advertised
	Estimate, Cost float64
	Steady         bool // do not speed up
}

// Law is the state of one connection. Make one with [New].
type Law struct {
	cfg     Config
	state   state
	limited bool          // the provider refuses with 429
	misled  bool          // a doubtful limit in flight was dropped
	clock   time.Duration // the latest instant that was passed in
	began   time.Duration // when the first attempt was sent
	view                  // what limits need to know; look brings it up to date

	h           history
	out         departures
	crowd       crowd
	trip        float64 // nanoseconds, round trip of a refusal
	lately      float64 // what recent attempts cost, in multiples of the mean of all
	vary        float64 // mean deviation of what one costs
	allAdmitted float64 // attempts admitted, in all
	allRefused  int     // attempts refused, in all

	ramp    ramp
	limits  []limit
	block   block
	penalty penalty
	spans   spans
	strays  strays
	headers []advertised

	epoch       time.Duration // refusals of attempts sent until then are already counted
	freed       time.Duration // the last release of a long block; before any, the first attempt
	since       time.Duration // the same without blocks that held windows explain: a longer one may have begun then
	lastRelease time.Duration // the last release
	beyond      time.Duration // how much longer its block was than the advertised limit that refused explains
	named       waits         // how far those are right
	refuted     int           // windows that were refuted
	unlikely    int           // blocks that were taken for outages and were hardly any: over at once, or soon after the block before
	sought      time.Duration // half of the wait that found room again in a limit that others use up, less with each block that needed none
	silence     time.Duration // how long nothing was sent before the release of the last long block in which a canary was refused, or of the first one
	meanLong    time.Duration // recent length of long blocks
	weighed     int           // refusals that were weighed as evidence for a limit on attempts in flight
	longs       int           // long blocks that have ended
	brief       int           // consecutive blocks that ended at the first canary
	shown       time.Duration
}

// New returns a law that has learned nothing.
func New(cfg Config) *Law {
	if cfg.MaxWait == 0 {
		cfg.MaxWait = maxSilence
	}
	l := &Law{cfg: cfg, shown: cfg.Initial, epoch: -1}
	l.last, l.phase = -never, cfg.Phase
	l.expect(cfg.Windows...)
	l.ramp.every = float64(cfg.Initial)
	l.mean = amounts{1, 1, 0}
	l.lately = 1
	return l
}

// look returns what the limits need to know, as of now. It is true until the next call.
func (l *Law) look() *view {
	v := &l.view
	v.now, v.guard, v.h, v.punished, v.open = l.clock, time.Duration(l.trip), &l.h, l.penalty.on(), l.clock-l.lastRelease
	return v
}

// Answered reports whether any response was received.
func (l *Law) Answered() bool { return l.state != starting }

// Waiting reports whether a refusal holds all attempts until the next canary.
func (l *Law) Waiting() bool { return l.state == waiting }

// Believed returns how much of an advertised wait to observe, after the refusal was observed: all
// of it, unless it seems to have another unit or is longer than the owner allows.
func (l *Law) Believed(wait time.Duration) time.Duration {
	return min(l.named.believed(wait), l.cfg.MaxWait)
}

// Foretold reports whether a limit that was known before was nearly used up when the newest
// block began; false before the first.
func (l *Law) Foretold() bool {
	b := &l.block
	if b.blamed == nil {
		return b.explained
	}
	return !isRate(b.blamed) || b.paced // a rate explains every short block
}

// Interval returns the sustained interval.
func (l *Law) Interval() time.Duration { return l.shown }

// Hold returns when the next attempt of that cost may be sent.
func (l *Law) Hold(now time.Duration, cost float64) time.Duration {
	l.clock = max(l.clock, now)
	now = l.clock
	switch l.state {
	case starting:
		return now
	case trying:
		if at := l.passes(); at > now {
			return at
		}
	case waiting:
		return max(now, l.block.resume, l.advertised(now, cost))
	case ramping, holding:
	}
	at := max(now, l.advertised(now, cost))
	if l.state == ramping {
		at = max(at, l.last+time.Duration(l.ramp.every))
	}
	v := l.look()
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
	if l.h.cells == nil {
		l.began, l.freed, l.since = now, now, now
		if r := l.rate(); r != nil { // it was restored, perhaps long ago
			r.released = now
		}
	}
	switch {
	case l.state == waiting:
		l.transition(canary)
		l.block.canaryAt = now
	case l.state == trying && now >= l.passes():
		l.released(l.block.canaryAt)
	}
	l.out.add(now, l.flying)
	if l.state != trying {
		l.crowd.sent(l.flying)
	}
	l.flying++
	l.h.add(now, amounts{1, cost, l.mean[busy]})
	share := l.h.share(cost)
	l.lately += 0.1 * (share - l.lately)
	l.vary += 0.02 * (math.Abs(share-1) - l.vary)
	for _, x := range l.limits {
		x.sent(now, share)
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
			l.block.resume = l.clock + max(l.block.wait, firstCanary, time.Duration(surelyWithin*l.trip))
		}
		if l.state == starting && o.Class == Failed {
			l.transition(answered)
		}
	}
	l.show(o.Class == Admitted && !o.Steady)
}

func (l *Law) admit(o Outcome, isCanary bool) {
	l.allAdmitted++
	l.strays.admit()
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
	l.h.settle(o.Now, more, work-l.mean[busy])
	smooth(&l.mean[busy], work, 0.05)
	if l.state == starting {
		l.transition(answered)
	}
	switch {
	case isCanary:
		l.released(o.Sent)
	case o.Steady:
	case l.state == ramping, l.state == holding: // ramping with restored limits, too
		if l.state == ramping && l.ramp.answered(l.look(), o.Sent, float64(l.cfg.Ceiling)) {
			l.ramp.admitted = l.allAdmitted
		}
		for _, x := range l.limits {
			switch x := x.(type) {
			case *window:
				v := l.look()
				if x.refuted(v) {
					l.windowToRate(v, x)
					return
				}
				x.answered(v)
			case *flight:
				x.answered(l.look())
			}
		}
	}
}

// refuse records a refusal. Of attempts that were in flight together only the first refusal
// is evidence.
func (l *Law) refuse(o Outcome, isCanary bool) {
	l.allRefused++
	l.h.correct(o.Sent, amounts{-1, -o.Estimate, -l.mean[busy]})
	l.takeBack(o.Estimate)
	l.crowd.takeBack(l.out.others(o.Sent))
	b := &l.block
	if isCanary && b.exact && !b.doubted {
		l.named.short++
	}
	if isCanary && b.doubted {
		l.named.denied(o.Now, o.RetryAfter)
		b.refusals-- // as if it had waited from the start
	}
	var doubted, cut bool
	o.RetryAfter, doubted, cut = l.readWait(o, isCanary)
	if o.Sent <= l.epoch {
		if o.Class == Refused {
			b.resume = max(b.resume, o.Now+o.RetryAfter)
		}
		return
	}
	l.epoch = o.Now
	smooth(&l.trip, float64(min(o.Now-o.Sent, maxTrip)), 0.2)
	f := refusal{sent: o.Sent, now: o.Now, others: l.out.others(o.Sent), cost: o.Estimate, wait: o.RetryAfter, cut: cut, dear: (l.lately - 1) / max(1e-9, l.vary), limited: o.Class == Refused}
	if l.state != waiting && l.state != trying {
		if l.isStray(f) {
			return
		}
		l.blocked(f)
	} else {
		b.refusals++
		b.lastRefused = o.Sent
		b.tooShort = max(b.tooShort, b.wait>>min(max(0, b.refusals-2), 62))
		l.outlasted(o.Sent)
	}
	if isCanary || l.state != trying {
		l.transition(refused)
	}
	l.limited = l.limited || f.limited
	b.doubted = doubted
	b.outage = !b.explained && l.outage(f)
	b.hadRoom = b.hadRoom || b.refusals > 1 && !b.outage && l.plenty()
	l.plan(f)
}

// blocked begins a block.
func (l *Law) blocked(f refusal) {
	v := l.look()
	f = l.sinceRelease(f)
	l.block = block{
		began: f.sent, noticed: f.now, lastRefused: f.sent, cost: f.cost, refusals: 1, overloaded: !f.limited,
		from:    l.freed,
		count:   v.h.between(attempts, l.freed, f.sent),
		before:  float64(l.allRefused - 1),
		pace:    l.pace(v, f.sent),
		first:   l.freed == l.began,
		ramping: len(l.limits) == 0 && l.allAdmitted < l.ramp.admitted+carrier,
		blamed:  fullest(l.limits, v, f),
	}
	b, r := &l.block, l.rate()
	b.soonest = l.soonest()
	b.paced = r != nil && r.cycles > 2
	if b.explained = l.advertisedExplains(f); b.explained || l.outage(f) {
		if w, ok := b.blamed.(*window); ok && b.explained && w.raise > 1 {
			w.blame(v, f) // the test went too far, whatever limit refused
		}
		b.blamed = nil
		return
	}
	most := maxEvidence
	if r != nil && r.steep() && !l.penalty.on() && l.refuted == 0 {
		most = 0 // more are in flight because of the higher rate
	}
	l.crowd.refused(f.others, most)
	l.weighed++
	if f.wait <= 0 {
		l.named.silent++
	}
	l.blameCounted(v, f)
	if b.blamed != nil {
		b.blame(v, b.blamed, f)
	}
}

// sinceRelease returns a refusal that begins a block with what went since the last release.
func (l *Law) sinceRelease(f refusal) refusal {
	f.opened = l.block.release
	f.cycle = l.h.between(attempts, f.opened, f.sent)
	return f
}

// outage reports whether a refusal comes from a provider in trouble: the provider does not
// usually refuse this way, or it had just reported enough remaining units, or it names a limit or
// a wait otherwise, and the refusal does not depend on the amount sent; and most outages do not end at
// the first canary, nor come again soon.
func (l *Law) outage(f refusal) bool {
	if f.limited || f.wait > 0 || l.unlikely >= maxUnlikely {
		return false
	}
	if l.limited || l.block.refusals > 1 {
		return l.limited || l.block.outage
	}
	return (l.plenty() || l.unreported(f) || l.named.always()) && !l.block.ramping && l.crowd.share(f.others) > ordinary
}

// pace returns the number of attempts a second before an instant.
func (l *Law) pace(v *view, t time.Duration) float64 {
	span := max(time.Second, 8*l.shown)
	from := max(t-span, l.freed, l.began)
	lately := max(v.h.until(attempts, t)-v.h.until(attempts, from)+1, 1) / max(t-from, sameBurst).Seconds()
	from = max(l.freed, l.began, t-max(paceSpan, paceIntervals*l.shown))
	return max(lately, (v.h.until(attempts, t)-v.h.until(attempts, from))/max((t-from).Seconds(), 1))
}

// After estimates how long after the next attempt one is sent that has n before it: each
// limit allows as many at once as it has room for, and the rest at its interval. An
// advertised window becomes free at one instant, which is the next attempt's.
func (l *Law) After(n float64) time.Duration {
	v := l.look()
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

// sustained returns the longest interval of the held limits, in nanoseconds.
func (l *Law) sustained() float64 {
	v := l.look()
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
