package egress

import (
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/reason"
)

// noWait is what asking takes where nobody has to wait.
const noWait = time.Millisecond

// lap measures one wait after another.
type lap struct{ last time.Time }

func (l *lap) next() time.Duration {
	now := time.Now()
	d := now.Sub(l.last)
	l.last = now
	return d
}

// waited counts a wait of the call for what it stands for.
func (x *exchange) waited(by reason.Bound, d time.Duration) {
	if d >= noWait {
		x.told.BoundBy[by] += d
	}
}

// inQueue is what the wait behind other calls stands for: what those had to wait
// for, as far as the call met it too once it was its turn.
func inQueue(held headway.Wait) reason.Bound {
	if by := held.Bound(); by != reason.BoundUnknown && by != reason.BoundJitter {
		return by
	}
	return reason.BoundQueue
}

// account completes what bound the call once it has ended: what was not a wait and
// not the provider's time is this machine's, or the client's.
func (x *exchange) account() {
	b := &x.told.BoundBy
	b[reason.BoundProcessing] += max(x.told.Whole-b.Total(), 0)
	if x.up != nil {
		x.up.counters.bound(b)
	}
}
