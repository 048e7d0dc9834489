package control

import "time"

// told is a limit that the provider's headers tell of. It only ever holds back:
// what the headers leave out is found out as if there were none.
type told struct {
	name    string
	perCost bool
	refills bool
	quota   float64
	window  time.Duration
	left    float64       // as of the attempt that was sent last of those heard of
	at      time.Duration // when that was sent; -1 before any
	spent   float64       // units sent since
	reset   time.Duration // the instant at which all is back
	rate    float64       // units a second that come back, for one that refills
	doubts  int           // how often it was found wrong

	least  float64       // the least that was seen in use, of one that refills
	whole  time.Duration // how long that took to come back
	slides *slide        // of one that was found to be a sliding window
	vague  bool          // it may be a window or a bucket: what comes back a second is not known
	grows  bool          // it was found to be a bucket
}

// trust is how often a limit may be found wrong before it is left out.
const trust = 3

// hear takes in what a response tells.
func (e *Envelope) hear(now time.Duration, o Observation) {
	n, cost := e.sent.after(o.Sent)
	n, cost = n-1, cost-o.Estimate // what was sent since
	for i := range o.Facts {
		f := &o.Facts[i]
		if f.InFlight || !(f.Remaining >= 0) {
			continue
		}
		t := e.slot(f)
		if t == nil || o.Sent < t.at {
			continue
		}
		reset := t.reset
		if f.Reset >= 0 {
			reset = now + min(f.Reset, maxRung) // a far date is asked about after a day
		}
		if t.at >= 0 && !t.refills && t.quota > 0 && f.Remaining > t.left+1 &&
			reset < t.reset+t.window/4 && now < t.reset-t.window/20 {
			t.doubts++ // more is left, though the window goes on
		}
		if f.Quota > 0 {
			t.quota = f.Quota
		}
		if f.Window > 0 {
			t.window = f.Window
		}
		t.left, t.at, t.spent, t.reset = f.Remaining, o.Sent, n, reset
		if t.perCost {
			t.spent = cost
		}
		if t.refills && t.quota > t.left && f.Reset > 0 {
			// What is left is rounded down, so that up to one less is missing.
			t.rate = max(1, t.quota-t.left-1) / f.Reset.Seconds()
			if t.window > 0 {
				t.rate = min(t.rate, t.quota/t.window.Seconds())
			}
		}
		if o.Class.Throttle() && t.left <= 0 && t.refills && f.Reset > 2*time.Second && !t.perCost && t.slides == nil &&
			(o.RetryAfter <= 0 || o.RetryAfter >= f.Reset/2) { // else some come back before
			t.refills = false // it comes back all at once, or has not yet
		}
		t.discern(e, now, f)
	}
}

// slot is where a limit is kept; nil when there are too many.
func (e *Envelope) slot(f *Fact) *told {
	for i := range e.told {
		if t := &e.told[i]; t.name == f.Name && t.perCost == f.PerCost {
			return t
		}
	}
	if len(e.told) == maxTold {
		return nil
	}
	e.told = append(e.told, told{name: f.Name, perCost: f.PerCost, refills: f.Refills, at: -1})
	return &e.told[len(e.told)-1]
}

// took counts an attempt.
func (t *told) took(now time.Duration, cost float64) {
	t.roll(now)
	units := unitsOf(t.unit(), cost)
	t.spent += units
	if t.slides != nil {
		t.slides.advance(now)
		t.slides.own.take(units)
	}
}

// unit is what it counts: 0 attempts, 1 cost.
func (t *told) unit() int {
	if t.perCost {
		return 1
	}
	return 0
}

// roll starts a new window when one has ended and nothing was heard since: one
// attempt may find out.
func (t *told) roll(now time.Duration) {
	if now >= t.reset && !t.refills && t.left-t.spent < t.quota {
		t.left, t.spent = max(1, t.left), 0
		if t.perCost {
			t.left = t.quota
		}
		t.reset = now + max(t.window, time.Second)
	}
}

// free is when the headers let the next attempt go.
func (t *told) free(now time.Duration, cost float64) time.Duration {
	if t.doubts > trust || t.at < 0 {
		return now
	}
	t.roll(now)
	units := 1.0
	if t.perCost {
		units = min(cost, max(1, t.quota))
	}
	if t.slides != nil {
		room := t.quota
		if t.perCost {
			room *= 1 - costDoubt
		}
		return t.slides.free(now, room-units)
	}
	short := units - (t.left - t.spent)
	if short <= 0 {
		return now
	}
	if t.refills && t.rate > 0 {
		// Since the response, some have come back.
		return max(now, min(t.reset, t.at+seconds(short/t.rate)))
	}
	if t.reset <= now {
		return now
	}
	return t.reset + 20*time.Millisecond
}

// interval is the sustained one, in nanoseconds; 0 when it is not known.
func (t *told) interval() float64 {
	if t.perCost || t.doubts > trust || t.quota <= 0 {
		return 0
	}
	switch {
	case t.window > 0:
		return float64(t.window) / t.quota
	case t.slides != nil:
		return float64(t.slides.window()) / t.quota
	case t.refills && t.rate > 0 && !t.vague:
		return 1e9 / t.rate
	}
	return 0
}
