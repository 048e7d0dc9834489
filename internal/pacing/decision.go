package pacing

import (
	"math"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// Forever is the instant of an event that depends on an outcome.
const Forever = time.Duration(math.MaxInt64)

// Decision is the answer to a request to send.
type Decision struct {
	// OK says that the attempt may be sent now.
	OK bool
	// At is the earliest instant at which asking again can succeed, as far as known now;
	// [Forever] if that depends on an outcome.
	At time.Duration
	// Reason is what holds the attempt up; none if OK.
	Reason reason.Reason
	// Bound is what the wait is due to; unknown if OK.
	Bound reason.Bound
	// Pool is the attempt's pool if only that holds it up, so that attempts of other
	// pools may go.
	Pool *Pool
}

// Ticket is an admitted attempt. It must be settled exactly once.
type Ticket struct {
	sent    time.Duration
	cost    float64 // as counted by the laws
	asked   float64 // as the caller estimated it
	circuit breaker.Ticket
	pool    *Pool // nil for the account only
	place   place
	permit  uint64 // number of the permit from the fleet's server; 0 without one
	ahead   bool   // the permit was granted ahead of need
}

// Sent returns the instant of admission.
func (t Ticket) Sent() time.Duration { return t.sent }

// Effects says what a call changed, besides its result.
type Effects struct {
	// Circuit is the transition of the breaker, if any, and CircuitPool the pool it
	// belongs to.
	Circuit     breaker.Transition
	CircuitPool *Pool
	// Rate says that a change of the rate should be reported (changes are coalesced).
	// Pool is the pool or the account whose rate it is.
	Rate bool
	Pool *Pool
	// Change is what the law did.
	Change control.Change
}

// Backoff is the last reduction of the rate; the zero value if there was none.
type Backoff struct {
	// Reason is the pressure that caused it; none if there was none.
	Reason reason.Reason
	// Interval is the interval at which the provider pushed back.
	Interval time.Duration
	// At is when.
	At time.Duration
}

// Outcome is how an attempt ended. The root package's Outcome has the same fields and
// documents them.
type Outcome struct {
	Class      reason.Class
	RetryAfter time.Duration
	Cost       float64
	Facts      []control.Fact
	Steady     bool
	Account    bool
	Pool       string
}

// OutcomeOf returns the outcome that a response reports. Its facts are appended to the
// slice to, which may be nil.
func OutcomeOf(to []control.Fact, s *signal.Signal) Outcome {
	return Outcome{Class: s.Class, RetryAfter: s.RetryAfter, Facts: facts(to, s)}
}

// facts appends the limits in a signal, in the form that the laws take. Limits in seconds
// of execution time are left out, because nothing can estimate what an attempt will take
// of them.
func facts(to []control.Fact, s *signal.Signal) []control.Fact {
	for i := range s.Limits {
		l := &s.Limits[i]
		f := control.Fact{
			Name: l.Name, Refills: l.Refills, Precise: l.Precise, Took: float64(l.Took),
			Quota: float64(l.Quota), Remaining: float64(l.Remaining),
			Window: l.Window, Reset: l.Reset,
		}
		switch l.Unit {
		case signal.UnitExecution:
			continue
		case signal.UnitConcurrent:
			f.InFlight = true
		case signal.UnitTokens, signal.UnitInputTokens, signal.UnitOutputTokens, signal.UnitPoints:
			f.PerCost = true
		}
		to = append(to, f)
	}
	return to
}

// reportGap is the shortest time between two reports of the rate.
const reportGap = time.Second

// rateReport decides which changes of the interval are worth an event: a turn between
// speeding up and backing off, a rate that doubled, or the ceiling reached. There is at
// most one event per [reportGap], with the most recent state.
type rateReport struct {
	at       time.Duration
	interval time.Duration
	change   control.Change
	reported bool
	owed     bool
}

// due counts a change and reports whether an event is due.
func (r *rateReport) due(now time.Duration, change control.Change, interval, ceiling time.Duration) bool {
	if change != control.Held {
		r.owed = r.owed || !r.reported || change != r.change ||
			change == control.BackOff ||
			interval <= r.interval/2 ||
			interval == ceiling && r.interval != ceiling
		r.change = change
	}
	if !r.owed || r.reported && now-r.at < reportGap {
		return false
	}
	*r = rateReport{at: now, interval: interval, change: r.change, reported: true}
	return true
}
