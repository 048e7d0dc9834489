package collect

import (
	"math"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
)

// warmStart restores what the last run learned. What cannot be used is told and
// forgotten; it is never an error.
func (r *run) warmStart(p *Pacing) {
	if p == nil {
		return
	}
	note := "restored"
	if err := control.Fresh(p.RecordedAt, time.Now(), control.StaleAfter); err != nil {
		note = "discarded_stale_or_undated"
	} else if p.IntervalMS <= 0 || math.IsNaN(p.IntervalMS) || p.IntervalMS > float64(control.StaleAfter.Milliseconds()) {
		note = "discarded_unreadable"
	} else if err := r.governor.Restore(control.State{
		Law: p.Law, Version: p.Version, Data: p.State,
		Interval: time.Duration(p.IntervalMS * float64(time.Millisecond)),
	}); err != nil {
		note = "discarded_unreadable"
	} else {
		r.warm = true
	}
	r.emit(event.Event{Type: event.WarmStart, Note: note})
}

// learned is what the next run may start from; nil while nothing is known.
func (r *run) learned(at time.Time) *Pacing {
	if r.governor.Snapshot().Rate == nil {
		return nil
	}
	s := r.governor.Learned()
	return &Pacing{
		Version: s.Version, Law: s.Law, State: s.Data, RecordedAt: at,
		IntervalMS: float64(s.Interval) / float64(time.Millisecond),
	}
}
