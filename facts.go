package headway

import (
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/signal"
)

// Facts appends what a signal tells of limits, in the words of the laws, for an
// [Outcome]. Seconds of execution time are left out: what an attempt will take
// of them is known by nobody before.
func Facts(to []control.Fact, s *signal.Signal) []control.Fact {
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
