package collect

import (
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// boundEvent converts the bounds to shares for an event; nil if nothing is known.
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

// account divides a run's time among what limited its speed. It is pure: instants are
// durations since the run began, and the owner holds a lock.
//
// Each moment counts for the first of these that applies: a wait for the circuit or for
// the end of other pressure, a response in flight, a commit, a backoff before a list
// request, processing. The time between two admissions is kept apart until the second
// one. If the second had to wait for pacing or a cooldown, the whole time between the
// two counts for that wait, because a faster response, disk or machine would not have
// brought the attempt forward.
type account struct {
	spent   reason.Bounds // up to the last admission
	between reason.Bounds // since then
	last    time.Duration
	sent    bool // whether there was an admission

	inFlight, commits             int
	circuits, cooldowns, backoffs int // waits under way in the run itself
	// ahead reports that the request in flight is for a page that is not needed yet,
	// since the one before is still being stored.
	ahead bool
}

// to advances the account to now. It ignores a now before the last one.
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

// admitted records an attempt that is sent after a wait. number is 1 for the first
// attempt of a request.
func (a *account) admitted(now, wait time.Duration, held headway.Wait, number int) {
	a.to(now)
	a.waited(wait, held)
	a.backedOff(number)
	a.flush()
	a.sent = true
	a.inFlight++
}

// gaveUp records an attempt that waited and is not sent. If held has no reason, the
// attempt waited behind others, for which the time is counted.
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

// backedOff counts the idle time before a retry as backoff.
func (a *account) backedOff(number int) {
	if number > 1 {
		a.between[reason.BoundBackoff] += a.between[reason.BoundProcessing]
		a.between[reason.BoundProcessing] = 0
	}
}

// waited counts a wait that ends now for what it waited for.
func (a *account) waited(wait time.Duration, held headway.Wait) {
	by := held.Bound
	if a.whole(held) {
		total := a.between.Total()
		a.between = reason.Bounds{}
		a.between[by] = total
		return
	}
	// Only the idle part of the wait counts: in the rest something else was under way.
	wait = min(wait, a.between[reason.BoundProcessing])
	a.between[reason.BoundProcessing] -= wait
	a.between[by] += wait
}

// whole reports whether a wait accounts for all of the time since the last admission.
func (a *account) whole(held headway.Wait) bool {
	return held.Bound.Paces() && a.sent
}

func (a *account) flush() {
	for i, d := range a.between {
		a.spent[i] += d
	}
	a.between = reason.Bounds{}
}

// ended records the end of an attempt, with or without a response.
func (a *account) ended(now time.Duration) { a.to(now); a.inFlight-- }

// committing and committed record the begin and end of a commit.
func (a *account) committing(now time.Duration) { a.to(now); a.commits++ }
func (a *account) committed(now time.Duration)  { a.to(now); a.commits-- }

// asksAhead and wantsPage record the begin and end of the time in which the page in
// flight is not needed yet.
func (a *account) asksAhead(now time.Duration) { a.to(now); a.ahead = true }
func (a *account) wantsPage(now time.Duration) { a.to(now); a.ahead = false }

// opened and closed record the begin and end of a wait for an open circuit.
func (a *account) opened(now time.Duration) { a.to(now); a.circuits++ }
func (a *account) closed(now time.Duration) { a.to(now); a.circuits-- }

// cooling and cooled record the begin and end of a wait for other pressure.
func (a *account) cooling(now time.Duration) { a.to(now); a.cooldowns++ }
func (a *account) cooled(now time.Duration)  { a.to(now); a.cooldowns-- }

// rests and rested record the begin and end of the backoff before a list request.
func (a *account) rests(now time.Duration)  { a.to(now); a.backoffs++ }
func (a *account) rested(now time.Duration) { a.to(now); a.backoffs-- }

// bounds returns the divided time up to now. held is what the next attempt waits for;
// its zero value means that none waits.
func (a *account) bounds(now time.Duration, held headway.Wait) reason.Bounds {
	then := *a
	then.to(now)
	if held.Reason != reason.None {
		then.waited(then.between[reason.BoundProcessing], held)
	}
	then.flush()
	return then.spent
}
