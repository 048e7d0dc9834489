package pacing

import (
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// Outcome is how an attempt ended. The root package has one of the same fields, with
// the same meaning.
type Outcome struct {
	Class      reason.Class
	RetryAfter time.Duration
	Cost       float64
	Facts      []control.Fact
	Steady     bool
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
			Name: l.Name, Refills: l.Refills,
			Quota: float64(l.Quota), Remaining: float64(l.Remaining),
			Window: l.Window, Reset: l.Reset,
		}
		switch l.Unit {
		case signal.UnitExecution:
			continue
		case signal.UnitConcurrent:
			f.InFlight = true
		case signal.UnitTokens, signal.UnitInputTokens, signal.UnitOutputTokens:
			f.PerCost = true
		}
		to = append(to, f)
	}
	return to
}
