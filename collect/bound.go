package collect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// Bound is what kept a run from being faster.
type Bound uint8

// The closed set of bounds.
const (
	// BoundUnknown: nothing that was measured.
	BoundUnknown Bound = iota
	// BoundCeiling: the owner's ceiling. The provider was not asked for more.
	BoundCeiling
	// BoundLimit: a limit of the provider, learned or advertised.
	BoundLimit
	// BoundLearning: pacing that had not found the provider's limit yet.
	BoundLearning
	// BoundJitter: noise under a wait.
	BoundJitter
	// BoundCooldown: the provider said how long to wait (Retry-After).
	BoundCooldown
	// BoundCircuit: the circuit was open.
	BoundCircuit
	// BoundBackoff: the wait before a retry.
	BoundBackoff
	// BoundLatency: waiting for responses, at this concurrency.
	BoundLatency
	// BoundDisk: committing to the sink and the store.
	BoundDisk
	// BoundProcessing: this machine had the word: reading responses, and whatever
	// else is neither request, wait nor commit.
	BoundProcessing

	bounds
)

var boundNames = [bounds]string{
	"unknown", "ceiling", "provider_limit", "learning", "jitter", "cooldown", "circuit", "backoff", "latency", "disk", "processing",
}

// String is the bound's stable name.
func (b Bound) String() string {
	if b < bounds {
		return boundNames[b]
	}
	return fmt.Sprintf("bound(%d)", uint8(b))
}

// Bounds is the time of a run by what bound it. The zero value is unknown.
type Bounds [bounds]time.Duration

// Total is the time that is accounted for.
func (b Bounds) Total() (sum time.Duration) {
	for _, d := range b {
		sum += d
	}
	return sum
}

// Share is a bound's part of the time.
type Share struct {
	Bound Bound
	// Of is from 0 to 1; the shares of a run add up to 1.
	Of float64
}

// Shares gives the bounds that took any time, the largest first.
func (b Bounds) Shares() []Share {
	var all []Share
	total := b.Total()
	for i, d := range b {
		if d > 0 {
			all = append(all, Share{Bound: Bound(i), Of: float64(d) / float64(total)})
		}
	}
	slices.SortStableFunc(all, func(a, b Share) int {
		switch {
		case a.Of > b.Of:
			return -1
		case a.Of < b.Of:
			return 1
		}
		return 0
	})
	return all
}

// event puts the shares in the words of an event; nil when nothing is known.
func (b Bounds) event() *event.Bound {
	if b.Total() == 0 {
		return nil
	}
	shares := map[string]float64{}
	for _, s := range b.Shares() {
		shares[s.Bound.String()] = s.Of
	}
	return &event.Bound{Shares: shares}
}

// boundJSON is one bound as it is stored and shown.
type boundJSON struct {
	NS    int64   `json:"ns"`
	Share float64 `json:"share"`
}

// MarshalJSON gives the bounds that took any time by name:
// {"ceiling":{"ns":900,"share":0.9},"latency":{"ns":100,"share":0.1}}.
func (b Bounds) MarshalJSON() ([]byte, error) {
	all := map[string]boundJSON{}
	for _, s := range b.Shares() {
		all[s.Bound.String()] = boundJSON{NS: int64(b[s.Bound]), Share: s.Of}
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads what MarshalJSON wrote. A name of a later version counts
// as unknown.
func (b *Bounds) UnmarshalJSON(data []byte) error {
	var all map[string]boundJSON
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*b = Bounds{}
	for name, v := range all {
		b[max(slices.Index(boundNames[:], name), 0)] += time.Duration(max(v.NS, 0))
	}
	return nil
}

// String lists the shares, the largest first: "91% ceiling, 9% latency".
func (b Bounds) String() string {
	var parts []string
	for _, s := range b.Shares() {
		if percent := 100 * s.Of; percent >= 0.5 {
			parts = append(parts, fmt.Sprintf("%.0f%% %s", percent, strings.ReplaceAll(s.Bound.String(), "_", " ")))
		}
	}
	if parts == nil {
		return "unknown"
	}
	return strings.Join(parts, ", ")
}

// account attributes a run's time. It is pure: the instants are durations since
// the run began, and the owner holds a lock.
//
// Each moment counts for the first of these that applies: the circuit is waited
// out, a response is waited for, something is committed, this machine had the
// word. What lies between two admissions is kept apart until the second is made.
// If that had to wait for pacing or a cooldown, then a faster response, disk or
// machine would not have brought it forward, and the whole time between the two
// counts for what it waited for.
type account struct {
	spent   Bounds // up to the last admission
	between Bounds // since then
	last    time.Duration
	sent    bool // there was an admission

	inFlight, commits, circuits int
}

// to brings the account to an instant. Time does not run backwards.
func (a *account) to(now time.Duration) {
	if now <= a.last {
		return
	}
	by := BoundProcessing
	switch {
	case a.circuits > 0:
		by = BoundCircuit
	case a.inFlight > 0:
		by = BoundLatency
	case a.commits > 0:
		by = BoundDisk
	}
	a.between[by] += now - a.last
	a.last = now
}

// admitted is an attempt that goes out after a wait. Number is 1 for a request's
// first attempt.
func (a *account) admitted(now, wait time.Duration, held headway.Wait, number int) {
	a.to(now)
	a.waited(wait, held)
	if whole := a.whole(held); !whole && number > 1 {
		a.between[BoundBackoff] += a.between[BoundProcessing]
		a.between[BoundProcessing] = 0
	}
	a.flush()
	a.sent = true
	a.inFlight++
}

// gaveUp is an attempt that waited and does not go out.
func (a *account) gaveUp(now, wait time.Duration, held headway.Wait) {
	a.to(now)
	a.waited(wait, held)
	a.flush()
}

// waited puts a wait that ends now where it belongs.
func (a *account) waited(wait time.Duration, held headway.Wait) {
	by, _ := waitedFor(held)
	if a.whole(held) {
		total := a.between.Total()
		a.between = Bounds{}
		a.between[by] = total
		return
	}
	// Nothing else was in flight during the wait, as far as it was idle; before
	// the wait a retry backed off.
	wait = min(wait, a.between[BoundProcessing])
	a.between[BoundProcessing] -= wait
	a.between[by] += wait
}

// whole reports whether a wait stands for all of the time since the last admission.
func (a *account) whole(held headway.Wait) bool {
	_, whole := waitedFor(held)
	return whole && a.sent
}

// waitedFor is the bound that a wait for a permit stands for. Whole says that it
// runs from the admission before, whatever was done meanwhile.
func waitedFor(w headway.Wait) (by Bound, whole bool) {
	switch w.Reason {
	case reason.Pacing, reason.ConservativeStart:
		switch w.Pace {
		case headway.PaceCeiling:
			return BoundCeiling, true
		case headway.PaceLimit:
			return BoundLimit, true
		case headway.PaceLearning:
			return BoundLearning, true
		case headway.PaceUnknown:
		}
	case reason.Cooldown:
		return BoundCooldown, true
	case reason.Jitter:
		return BoundJitter, false
	case reason.Concurrency:
		return BoundLatency, false
	}
	return BoundUnknown, false
}

func (a *account) flush() {
	for i, d := range a.between {
		a.spent[i] += d
	}
	a.between = Bounds{}
}

// ended is an attempt that has its response, or has none.
func (a *account) ended(now time.Duration) { a.to(now); a.inFlight-- }

// committing and committed are around what makes a slice durable.
func (a *account) committing(now time.Duration) { a.to(now); a.commits++ }
func (a *account) committed(now time.Duration)  { a.to(now); a.commits-- }

// opened and closed are around the wait for an open circuit.
func (a *account) opened(now time.Duration) { a.to(now); a.circuits++ }
func (a *account) closed(now time.Duration) { a.to(now); a.circuits-- }

// bounds is the account at an instant. Held is what the next attempt waits for
// by then; the zero value is for nothing.
func (a *account) bounds(now time.Duration, held headway.Wait) Bounds {
	then := *a
	then.to(now)
	if held.Reason != reason.None {
		then.waited(then.between[BoundProcessing], held)
	}
	then.flush()
	return then.spent
}
