package reason

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bound is what kept the calls of a collection, of a load or of a proxy's clients from
// being faster. A name means the same for all three.
type Bound uint8

// The closed set of bounds.
const (
	// BoundUnknown: nothing that was measured.
	BoundUnknown Bound = iota
	// BoundCeiling: what the owner set, be it the shortest interval, the most at
	// once, or a budget of calls or tokens. The provider was not asked for more.
	BoundCeiling
	// BoundLimit: a limit of the provider, learned or advertised: of its rate, of
	// what it serves at once, or of execution time.
	BoundLimit
	// BoundLearning: pacing that had not found the provider's limit yet, or a first
	// batch that has to show how much may be sent at once.
	BoundLearning
	// BoundJitter: the random part of a wait.
	BoundJitter
	// BoundCooldown: the provider said how long to wait (Retry-After).
	BoundCooldown
	// BoundCircuit: the circuit was open.
	BoundCircuit
	// BoundBackoff: the wait before a retry.
	BoundBackoff
	// BoundLatency: waiting for responses, with nothing more to send at once.
	BoundLatency
	// BoundDisk: committing to the sink, the store or the journal.
	BoundDisk
	// BoundProcessing: this machine: reading responses, and whatever else is neither
	// request, wait nor commit.
	BoundProcessing
	// BoundParallelism: the level that the law of parallelism held, below both what
	// the owner allows and what the provider asks for.
	BoundParallelism
	// BoundQueue: other calls, which went first.
	BoundQueue
	// BoundInput: rows that had not been read yet.
	BoundInput

	bounds
)

var boundNames = [bounds]string{
	"unknown", "ceiling", "provider_limit", "learning", "jitter", "cooldown", "circuit", "backoff", "latency", "disk", "processing",
	"parallelism", "queue", "input",
}

// String is the bound's stable name.
func (b Bound) String() string {
	if b < bounds {
		return boundNames[b]
	}
	return fmt.Sprintf("bound(%d)", uint8(b))
}

// Bounds is time by what bound it. The zero value is unknown.
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
	// Of is from 0 to 1; all shares add up to 1.
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

// Paces reports whether the bound's wait counts from the previous attempt: work that is
// done during the wait costs nothing, and doing it faster would gain nothing.
func (b Bound) Paces() bool {
	switch b {
	case BoundCeiling, BoundLimit, BoundLearning, BoundCooldown:
		return true
	default:
		return false
	}
}
