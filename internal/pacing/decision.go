package pacing

import (
	"math"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// Forever is an instant that only an outcome can bring nearer.
const Forever = time.Duration(math.MaxInt64)

// Decision is the answer to a request to send.
type Decision struct {
	// OK says that the attempt may be sent now.
	OK bool
	// At is the earliest instant at which asking again can succeed, as far as is
	// known now; [Forever] when that takes an outcome first.
	At time.Duration
	// Reason is what stands in the way; none when OK.
	Reason reason.Reason
	// Bound is what the wait stands for; unknown when OK.
	Bound reason.Bound
	// Pool is the attempt's pool where only that stands in the way: attempts of other
	// pools may go.
	Pool *Pool
}

// Ticket is an admitted attempt, to be settled exactly once.
type Ticket struct {
	sent    time.Duration
	cost    float64
	circuit breaker.Ticket
	pool    *Pool // nil for the account alone
	place   place
	permit  uint64 // of the fleet's server; 0 without one
	ahead   bool   // it was got ahead of need
}

// Sent is the instant of admission.
func (t Ticket) Sent() time.Duration { return t.sent }

// Effects is what a call changed, beyond its answer.
type Effects struct {
	// Circuit is the move of the breaker, if any, and CircuitPool whose that is.
	Circuit     breaker.Transition
	CircuitPool *Pool
	// Rate says that the change of the rate is worth telling (coalesced), and Pool whose
	// rate that is: a pool's or the account's.
	Rate bool
	Pool *Pool
	// Change is what the law did.
	Change control.Change
}

// Backoff is the last time that the rate was cut; the zero value is never.
type Backoff struct {
	// Reason is the pressure that cut it; none when it never was.
	Reason reason.Reason
	// Interval is the interval at which the provider pushed back.
	Interval time.Duration
	// At is when.
	At time.Duration
}

// Outcome is how an attempt ended. The root package has one of the same fields, with
// the same meaning.
type Outcome struct {
	Class      reason.Class
	RetryAfter time.Duration
	Cost       float64
	Facts      []control.Fact
	Steady     bool
	Account    bool
	Pool       string
}

// OutcomeOf is what a response says. Its facts are appended to a slice, which may be
// nil.
func OutcomeOf(to []control.Fact, s *signal.Signal) Outcome {
	return Outcome{Class: s.Class, RetryAfter: s.RetryAfter, Facts: facts(to, s)}
}

// facts appends what a signal says of limits, in the words of the laws. Seconds of
// execution time are left out: what an attempt will take of them is known by nobody
// before.
func facts(to []control.Fact, s *signal.Signal) []control.Fact {
	for i := range s.Limits {
		l := &s.Limits[i]
		f := control.Fact{
			Name: l.Name, Refills: l.Refills, Took: float64(l.Took),
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

// reportGap is the shortest time between two reports of a connection's rate.
const reportGap = time.Second

// rateReport coalesces changes of the interval into what is worth an event: a turn
// from speeding up to backing off or back, a rate that doubled, the ceiling
// reached; at most one in each [reportGap], the newest state standing for those
// between.
type rateReport struct {
	at       time.Duration
	interval time.Duration
	change   control.Change
	reported bool
	owed     bool
}

// due counts a change, and reports whether an event is due.
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
