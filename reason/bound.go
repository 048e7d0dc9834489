package reason

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bound says what limited the speed of a collection, of a load or of a proxy's clients. A
// name means the same for all three.
type Bound uint8

// All bounds.
const (
	// BoundUnknown: nothing was measured.
	BoundUnknown Bound = iota
	// BoundCeiling: the owner's settings: the shortest interval, the most in flight, or a
	// budget of calls or tokens. The provider was not asked for more.
	BoundCeiling
	// BoundLimit: a limit of the provider, learned or advertised: on its rate, on
	// requests in flight, or on execution time.
	BoundLimit
	// BoundLearning: pacing that has not found the provider's limit yet, or a first batch
	// that shows how much may be sent at once.
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
	// BoundProcessing: this machine: reading responses, and anything else that is not
	// request, wait or commit.
	BoundProcessing
	// BoundParallelism: the level set by the law of parallelism, below both what the
	// owner allows and what the provider recommends.
	BoundParallelism
	// BoundQueue: other calls that went first.
	BoundQueue
	// BoundInput: rows that had not been read yet.
	BoundInput

	bounds
)

var boundNames = [bounds]string{
	"unknown", "ceiling", "provider_limit", "learning", "jitter", "cooldown", "circuit", "backoff", "latency", "disk", "processing",
	"parallelism", "queue", "input",
}

// String returns the bound's stable name.
func (b Bound) String() string {
	if b < bounds {
		return boundNames[b]
	}
	return fmt.Sprintf("bound(%d)", uint8(b))
}

// Bounds is the time spent by bound. The zero value means unknown.
type Bounds [bounds]time.Duration

// Total returns the sum of all times.
func (b Bounds) Total() (sum time.Duration) {
	for _, d := range b {
		sum += d
	}
	return sum
}

// Share is a bound's fraction of the time.
type Share struct {
	Bound Bound
	// Of is from 0 to 1; all shares add up to 1.
	Of float64
}

// Shares returns the bounds that took any time, largest first.
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

// MarshalJSON returns the bounds that took any time, by name:
// {"ceiling":{"ns":900,"share":0.9},"latency":{"ns":100,"share":0.1}}.
func (b Bounds) MarshalJSON() ([]byte, error) {
	all := map[string]boundJSON{}
	for _, s := range b.Shares() {
		all[s.Bound.String()] = boundJSON{NS: int64(b[s.Bound]), Share: s.Of}
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads the result of MarshalJSON. An unknown name, from a later version,
// counts as unknown.
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

// String returns the shares, largest first: "91% ceiling, 9% latency".
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

// Paces reports whether the bound's wait is measured from the previous attempt. Work done
// during such a wait costs no time, and doing it faster would gain nothing.
func (b Bound) Paces() bool {
	switch b {
	case BoundCeiling, BoundLimit, BoundLearning, BoundCooldown:
		return true
	default:
		return false
	}
}
