package control

import (
	"time"

	"github.com/headway-go/headway/reason"
)

// Envelope learns what kind of limit it faces and holds just under it. The name
// is the arrival envelope of network calculus: every limiter bounds how much may
// arrive in each length of time, and the law finds out where the bound lies.
//
// It is in one of four states:
//
//	ramp     nothing was refused yet: the rate doubles every few answers
//	block    something was: one canary goes, at an instant that the suspects name
//	inquiry  a bank of suspects is weighed by what happens (see bank)
//	hold     the limits that were found are kept, and put to the test now and then
//
// Limits that response headers tell of hold back from the first response on.
// docs/law.md explains it with pictures.
//
// Sources: J.-Y. Le Boudec, P. Thiran, "Network Calculus", 2001 (arrival
// curves); the bank is Bayesian model selection with a floor under each
// likelihood.
type Envelope struct {
	params *Params
	clock  time.Duration // the latest instant

	flying    int // attempts under way
	last      time.Duration
	began     time.Duration
	started   bool    // anything was sent
	answered  bool    // any response came back
	admitted  float64 // ever
	refusal   float64 // nanoseconds until a refusal is back, smoothed
	latency   float64 // the same of an admission
	meanCost  float64
	interval  time.Duration // as shown
	speed     float64       // nanoseconds between attempts at least: the ramp
	acks      int
	ackAt     time.Duration
	gentle    bool    // a long block has been: the ramp is slow
	ramped    float64 // what went through a second before it
	sent      flights
	answer    time.Duration // of Hold, for the cost that was asked; 0 means none
	asked     float64
	units     [2]*usage // attempts, and cost once there is any
	flight    peak      // attempts under way
	mark      time.Duration
	before    int  // attempts that were under way at the mark
	disproved bool // something was refused since

	block  block
	bank   *bank // an inquiry, when there is one
	limits []limit
	told   []told

	patience float64 // attempts between two tests of what is held
	untested float64 // attempts since the last
}

// The constants of the law. They are the same for all providers; what differs
// is learned.
const (
	// A bound on what is remembered at once.
	maxLimits, maxTold = 4, 4
	// The ramp: the rate doubles after four answers and a second; after a long
	// block it grows by a twentieth.
	rampAnswers, rampStep, rampGentle = 4, 2, 1.05
	rampPause                         = time.Second
	// What is held is tested after a thousand attempts, then more rarely.
	firstPatience, patienceGrowth, maxPatience = 1000, 1.5, 4000
	// A block that lasts longer than its limit explains is a penalty; one shorter
	// than this is not worth fearing.
	painful = 4 * time.Second
)

// usage is what was used of one unit, and the most that was ever admitted.
type usage struct {
	due     time.Duration // before this instant time changes nothing
	windows [len(spans)]window
	peaks   [len(spans)][shapes]peak
}

// peak is the most that was in use at an attempt: proven admitted, and since
// the mark and the one before, which is not known yet.
type peak struct{ proven, past, now float32 }

func newEnvelope(p *Params) Law {
	e := &Envelope{params: p, speed: float64(p.Initial), interval: p.Initial, patience: firstPatience}
	e.block.epoch = -1
	e.units[0] = newUsage()
	return e
}

func newUsage() *usage {
	u := new(usage)
	for i := range u.windows {
		u.windows[i].span, u.windows[i].slid = spans[i], newRing(cells)
	}
	return u
}

// Name is "envelope".
func (*Envelope) Name() string { return "envelope" }

// Interval is the sustained interval under the limits that are held, or that of
// the ramp.
func (e *Envelope) Interval() time.Duration { return e.interval }

// Spacing is the initial interval until a response has come back, then the
// ceiling's: Hold times the attempts.
func (e *Envelope) Spacing() time.Duration {
	if !e.answered {
		return e.params.Initial
	}
	return e.params.Ceiling
}

// advance brings everything that time changes up to now.
func (e *Envelope) advance(now time.Duration) time.Duration {
	e.clock = max(now, e.clock)
	for _, u := range e.units {
		if u != nil && e.clock >= u.due {
			u.advance(e.clock, e.params.Phase)
		}
	}
	return e.clock
}

// Hold is the latest of what ramp, limits, headers and inquiry allow; in a block
// the canary's instant, and Never while it is under way.
func (e *Envelope) Hold(now time.Duration, cost float64) time.Duration {
	switch {
	case !e.answered:
		return now
	case e.block.canary:
		return Never
	case e.block.on:
		return max(now, e.block.resume)
	}
	if now < e.answer && cost == e.asked {
		return e.answer // nothing has happened since
	}
	now = e.advance(now)
	at := max(now, e.last+time.Duration(e.speed))
	for i := range e.limits {
		at = max(at, e.limits[i].free(e, now, cost))
	}
	for i := range e.told {
		at = max(at, e.told[i].free(now, cost))
	}
	if e.bank != nil && at != Never {
		// However long a suspect would wait, no longer than twice the longest
		// block that has been seen to end, or a day.
		trust := min(max(2*time.Second, 2*e.block.longest, 8*e.interval), maxRung)
		if e.admitted < 4 {
			trust = 2 * time.Second // a told wait is not an interval, and little was seen
		}
		at = max(at, min(e.bank.free(e, now, cost), e.last+trust))
	}
	e.answer, e.asked = at, cost
	return at
}

// Sent counts an attempt everywhere.
func (e *Envelope) Sent(now time.Duration, cost float64) {
	now = e.advance(now)
	e.answer = 0
	if cost != 1 && e.units[1] == nil {
		e.units[1] = newUsage()
		e.advance(now)
	}
	if e.block.on {
		e.block.canary, e.block.canaryAt = true, now
		if e.bank != nil {
			e.bank.forget()
			if e.flying == 0 && e.block.refused == 1 && e.bank.began >= e.block.at {
				e.bank.certain(e, now)
			}
		}
	}
	if e.bank != nil {
		e.bank.sent(e, now, cost)
	}
	for i := range e.limits {
		e.limits[i].sent(now, cost)
	}
	for i := range e.told {
		e.told[i].took(now, cost)
	}
	e.sent.add(flight{at: now, cost: cost, others: e.flying})
	e.flying++
	e.flight.now = max(e.flight.now, float32(e.flying))
	for u, used := range e.units {
		if used != nil {
			used.take(now, unitsOf(u, cost))
		}
	}
	if !e.started {
		e.began, e.started = now, true
	}
	e.last = now
}

// unitsOf is what an attempt takes: itself, or its cost.
func unitsOf(unit int, cost float64) float64 {
	if unit == 1 {
		return cost
	}
	return 1
}

func (u *usage) advance(now, phase time.Duration) {
	u.due = Never
	for i := range u.windows {
		u.windows[i].advance(now, phase)
		u.due = min(u.due, u.windows[i].due)
	}
}

func (u *usage) take(now time.Duration, units float64) {
	for i := range u.windows {
		w := &u.windows[i]
		w.take(now, units)
		p := &u.peaks[i]
		p[sliding].now = max(p[sliding].now, float32(w.slid.sum))
		p[first].now = max(p[first].now, float32(w.firstUsed))
		p[aligned].now = max(p[aligned].now, float32(w.alignedUsed))
	}
}

// Observe learns from an outcome. Only a success shortens the interval.
func (e *Envelope) Observe(o Observation) Change {
	now := e.advance(o.Now)
	e.answer = 0
	e.flying = max(0, e.flying-1)
	if o.Class != reason.Unknown && o.Class != reason.Lost {
		e.answered = true
	}
	if !(o.Estimate > 0) {
		o.Estimate = 1
	}
	if len(o.Facts) > 0 {
		e.hear(now, o)
	}
	was := e.interval
	switch {
	case o.Class.Throttle():
		e.throttled(now, o)
	case o.Class.Success():
		e.succeeded(now, o)
	case e.block.canary && o.Sent >= e.block.canaryAt:
		// It says nothing: another one goes.
		e.block.canary = false
		e.block.resume = now + max(e.block.rung, time.Second)
	}
	if o.Sent <= e.mark {
		e.before--
	}
	// An error ends no turn: what a turn proves may let the next attempt go sooner.
	if e.before <= 0 && (o.Class.Success() || o.Class.Throttle()) {
		e.turn(now)
	}
	e.interval = e.sustained(o.Class.Success() && !o.Steady)
	switch {
	case e.interval < was:
		return SpeedUp
	case e.interval > was:
		return BackOff
	}
	return Held
}

func (e *Envelope) succeeded(now time.Duration, o Observation) {
	e.admitted++
	e.untested++
	smooth(&e.latency, float64(now-o.Sent), 0.1)
	if o.Cost > 0 {
		smooth(&e.meanCost, o.Cost, 0.05)
		e.settleCost(now, o)
	}
	for i := range e.limits {
		e.limits[i].answered(e, now, o)
	}
	if e.block.canary && o.Sent >= e.block.canaryAt {
		e.reopen(now, o)
	}
	if !o.Steady {
		e.ramp(now, o)
	}
}

// settleCost corrects what was counted by what the attempt really took.
func (e *Envelope) settleCost(now time.Duration, o Observation) {
	more := o.Cost - o.Estimate
	if more == 0 || e.units[1] == nil {
		return
	}
	e.units[1].due = 0
	for i := range e.units[1].windows {
		if w := &e.units[1].windows[i]; more > 0 {
			w.take(now, more)
		} else {
			w.giveBack(o.Sent, -more, e.params.Phase)
		}
	}
	for i := range e.limits {
		e.limits[i].settleCost(now, o.Sent, more)
	}
	for i := range e.told {
		if t := &e.told[i]; t.slides != nil && t.perCost {
			t.slides.correct(now, o.Sent, more)
		}
	}
}

// ramp makes attempts denser while nothing is refused and they are what limits
// the rate.
func (e *Envelope) ramp(now time.Duration, o Observation) {
	e.acks++
	pause := max(rampPause, 2*time.Duration(e.latency))
	if e.block.on || e.acks < rampAnswers || now-e.ackAt < pause || o.Sent <= e.ackAt {
		return
	}
	if now-e.last < 2*time.Duration(e.speed)+2*time.Duration(e.latency) {
		step := float64(rampStep)
		if e.gentle {
			step = rampGentle
		}
		e.speed = max(e.speed/step, float64(e.params.Ceiling))
	}
	e.acks, e.ackAt = 0, now
}

// turn ends a generation: all that was sent before the mark is settled, and
// unless something was refused it was admitted as a whole.
func (e *Envelope) turn(now time.Duration) {
	for _, u := range e.units {
		if u != nil {
			for i := range u.peaks {
				for s := range u.peaks[i] {
					u.peaks[i][s].turn(e.disproved)
				}
			}
		}
	}
	e.flight.turn(e.disproved)
	if !e.disproved && e.bank != nil {
		e.bank.admitted(e)
	}
	e.disproved = false
	if e.bank != nil {
		e.bank.turn()
	}
	e.mark, e.before = now, e.flying
}

// turn takes what was in use before the mark for proven, unless some of it was
// refused.
func (p *peak) turn(disproved bool) {
	if !disproved && p.past > p.proven {
		p.proven = p.past
	}
	p.past, p.now = p.now, 0
}

// forget drops what is not settled.
func (e *Envelope) forget() {
	for _, u := range e.units {
		if u != nil {
			for i := range u.peaks {
				for s := range u.peaks[i] {
					u.peaks[i][s].past, u.peaks[i][s].now = 0, 0
				}
			}
		}
	}
	e.flight.past, e.flight.now = 0, 0
}

// sustained is the interval that is shown.
func (e *Envelope) sustained(mayShorten bool) time.Duration {
	ns := e.speed
	for i := range e.limits {
		ns = max(ns, e.limits[i].interval(e))
	}
	for i := range e.told {
		ns = max(ns, e.told[i].interval())
	}
	d := time.Duration(min(max(ns, float64(e.params.Ceiling)), float64(e.params.Slowest)))
	if !mayShorten {
		d = max(d, e.interval)
	}
	return d
}

// smooth is an exponentially weighted mean; 0 means none yet.
func smooth(mean *float64, x, gain float64) {
	if *mean == 0 {
		*mean = x
	} else {
		*mean += gain * (x - *mean)
	}
}
