package collect

import (
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// boundEvent puts the shares in the words of an event; nil when nothing is known.
func boundEvent(b reason.Bounds) *event.Bound {
	if b.Total() == 0 {
		return nil
	}
	shares := map[string]float64{}
	for _, s := range b.Shares() {
		shares[s.Bound.String()] = s.Of
	}
	return &event.Bound{Shares: shares}
}

// account attributes a run's time. It is pure: the instants are durations since
// the run began, and the owner holds a lock.
//
// Each moment counts for the first of these that applies: the circuit or other
// pressure is waited out, a response is waited for, something is committed, a list
// is to be asked for again, this machine was at work. What lies between two
// admissions is kept apart until the second is made. If that had to wait for pacing
// or a cooldown, then a faster response, disk or machine would not have brought it
// forward, and the whole time between the two counts for what it waited for.
type account struct {
	spent   reason.Bounds // up to the last admission
	between reason.Bounds // since then
	last    time.Duration
	sent    bool // there was an admission

	inFlight, commits             int
	circuits, cooldowns, backoffs int // waits of the run's own
	// ahead says that the response under way is that of a page that nothing waits
	// for yet: the one before is being stored.
	ahead bool
}

// to brings the account to an instant. Time does not run backwards.
func (a *account) to(now time.Duration) {
	now = max(now, a.last)
	by := reason.BoundProcessing
	switch {
	case a.circuits > 0:
		by = reason.BoundCircuit
	case a.cooldowns > 0:
		by = reason.BoundCooldown
	case a.inFlight > 0 && !a.ahead:
		by = reason.BoundLatency
	case a.commits > 0:
		by = reason.BoundDisk
	case a.backoffs > 0:
		by = reason.BoundBackoff
	}
	a.between[by] += now - a.last
	a.last = now
}

// admitted is an attempt that goes out after a wait. Number is 1 for a request's
// first attempt.
func (a *account) admitted(now, wait time.Duration, held headway.Wait, number int) {
	a.to(now)
	a.waited(wait, held)
	a.backedOff(number)
	a.flush()
	a.sent = true
	a.inFlight++
}

// gaveUp is an attempt that waited and does not go out. One that does not know
// what for stood behind others, who do.
func (a *account) gaveUp(now, wait time.Duration, held headway.Wait, number int) {
	a.to(now)
	if held.Reason == reason.None {
		a.backedOff(number)
		return
	}
	a.waited(wait, held)
	a.backedOff(number)
	a.flush()
}

// backedOff counts the time before a retry, as far as nothing else was done in it.
func (a *account) backedOff(number int) {
	if number > 1 {
		a.between[reason.BoundBackoff] += a.between[reason.BoundProcessing]
		a.between[reason.BoundProcessing] = 0
	}
}

// waited puts a wait that ends now where it belongs.
func (a *account) waited(wait time.Duration, held headway.Wait) {
	by := held.Bound
	if a.whole(held) {
		total := a.between.Total()
		a.between = reason.Bounds{}
		a.between[by] = total
		return
	}
	// Nothing else was in flight during the wait, as far as it was idle; before
	// the wait a retry backed off.
	wait = min(wait, a.between[reason.BoundProcessing])
	a.between[reason.BoundProcessing] -= wait
	a.between[by] += wait
}

// whole reports whether a wait stands for all of the time since the last admission.
func (a *account) whole(held headway.Wait) bool {
	return held.Bound.Paces() && a.sent
}

func (a *account) flush() {
	for i, d := range a.between {
		a.spent[i] += d
	}
	a.between = reason.Bounds{}
}

// ended is an attempt that has its response, or has none.
func (a *account) ended(now time.Duration) { a.to(now); a.inFlight-- }

// committing and committed are around what makes a slice durable.
func (a *account) committing(now time.Duration) { a.to(now); a.commits++ }
func (a *account) committed(now time.Duration)  { a.to(now); a.commits-- }

// asksAhead and wantsPage are around the time in which a response is not waited for.
func (a *account) asksAhead(now time.Duration) { a.to(now); a.ahead = true }
func (a *account) wantsPage(now time.Duration) { a.to(now); a.ahead = false }

// opened and closed are around the wait for an open circuit.
func (a *account) opened(now time.Duration) { a.to(now); a.circuits++ }
func (a *account) closed(now time.Duration) { a.to(now); a.circuits-- }

// cooling and cooled are around the wait for the end of other pressure.
func (a *account) cooling(now time.Duration) { a.to(now); a.cooldowns++ }
func (a *account) cooled(now time.Duration)  { a.to(now); a.cooldowns-- }

// rests and rested are around the wait before a list is asked for again.
func (a *account) rests(now time.Duration)  { a.to(now); a.backoffs++ }
func (a *account) rested(now time.Duration) { a.to(now); a.backoffs-- }

// bounds is the account at an instant. Held is what the next attempt waits for
// by then; the zero value is for nothing.
func (a *account) bounds(now time.Duration, held headway.Wait) reason.Bounds {
	then := *a
	then.to(now)
	if held.Reason != reason.None {
		then.waited(then.between[reason.BoundProcessing], held)
	}
	then.flush()
	return then.spent
}
