package headway

import (
	"time"

	"github.com/headway-go/headway/control"
)

// newsGap is the least time between two tellings of a connection's rate.
const newsGap = time.Second

// news coalesces changes of the interval into what is worth telling: a turn
// from speeding up to backing off or back, a rate that doubled, the ceiling
// reached; at most one a [newsGap], the newest state standing for those between.
type news struct {
	at       time.Duration
	interval time.Duration
	change   control.Change
	told     bool
	owed     bool
}

func (n *news) worth(now time.Duration, change control.Change, interval, ceiling time.Duration) bool {
	if change != control.Held {
		n.owed = n.owed || !n.told || change != n.change ||
			change == control.BackOff ||
			interval <= n.interval/2 ||
			interval == ceiling && n.interval != ceiling
		n.change = change
	}
	if !n.owed || n.told && now-n.at < newsGap {
		return false
	}
	*n = news{at: now, interval: interval, change: n.change, told: true}
	return true
}
