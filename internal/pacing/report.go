package pacing

import (
	"time"

	"github.com/headway-go/headway/control"
)

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
