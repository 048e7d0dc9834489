// Package provider models an API that limits its callers: it decides whether an attempt at
// an instant is admitted, and what the response says. The simulator uses it in virtual
// time, the served provider in real time, and the arena through an in-memory transport; all
// get the same responses.
//
// # Time
//
// Instants are durations since the scenario's start and only go forward: an earlier instant
// counts as the last one. Windows aligned to the epoch, HTTP dates and absolute reset
// headers need a wall clock at the start: [New] uses the Unix epoch, so that aligned
// windows begin with the scenario, and [NewAt] any other time. Nothing here reads a clock.
//
// A window of length W is half open: an event at t counts until just before t+W.
//
// # Order of decisions
//
// An attempt is checked in this order: suspension (403 forever); an outage, an overload (503)
// or reset fault, which do not touch limits; the block of a penalty; and all limits, each of which
// must admit. A refused attempt uses nothing, unless the scenario counts rejected attempts:
// then every token bucket and window is charged as far as possible. Concurrency and busy
// time are never charged for a refusal, since no work was done.
//
// # Penalty
//
// The first refusal by a limit starts a block of the base length. An attempt during the
// block is refused, multiplies the block's length by the factor up to the maximum, and
// restarts it from that instant. A refusal by a limit after a block multiplies the length
// too, unless the forgive time has passed since the block's end; then it is the base again.
// During a fixed block attempts are refused and change nothing.
//
// # Suspension
//
// Every throttle counts, by a limit or by a block. The one that reaches the number within
// the time is still a throttle; everything after it is 403.
//
// # Charges
//
// A request costs one on buckets and counting windows, its cost on cost windows, and its
// busy time on busy-time windows. All are charged on admission. A request larger than a
// whole cost or busy-time limit is charged the whole limit: it is admitted when the window
// is empty. For concurrency, a request is in flight from its admission until its busy time
// has passed; the model frees the slot itself. Slowness is waiting, not work: it lengthens
// the time of a slot, and is not charged as busy time.
//
// # Changes
//
// A change multiplies every limit from its instant on, whether or not anybody calls: sizes
// and bursts are rounded to whole numbers of at least 1, intervals are rounded up to a
// nanosecond, and knees are at least one a second. Earlier use still counts; a bucket keeps
// its tokens, up to its new burst. A gradual change consists of steps.
//
// # Strangers
//
// Strangers are a Poisson stream drawn from the seed alone, so that it does not depend on
// clients, with random on and off times if the scenario has them. Each stranger costs the
// mean cost and is busy for the median latency. Strangers share limits and faults, but not
// blocks and suspension, which concern the credential.
//
// # Concurrency
//
// A [Model] and a [Sampler] are not safe for concurrent use. Do not use this package to
// pace real traffic: it models the provider, not the client.
package provider

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// Blocked is the [Verdict.Limit] of an attempt that was refused by a penalty's block.
const Blocked = "penalty"

// Verdict is the response to one attempt. Exactly one of Admitted, Throttled, Reset, Suspended
// and Overloaded is true, or none for an outage.
type Verdict struct {
	// Admitted: it succeeds. Its response comes after the whole latency, times Slow.
	Admitted bool
	// Throttled: refused by a limit or by a penalty's block.
	Throttled bool
	// Reset: the connection is reset without a response.
	Reset bool
	// Suspended: the account is suspended forever.
	Suspended bool
	// Overloaded: refused by an overload.
	Overloaded bool
	// Status is the HTTP status; 0 for a reset.
	Status int
	// RetryAfter is the advertised wait, rounded in the scenario's style, if HasRetryAfter
	// is true.
	RetryAfter    time.Duration
	HasRetryAfter bool
	// Slow multiplies the latency of an admitted attempt; at least 1.
	Slow float64
	// Limit names what throttled: of several limits the one that frees last, in the form of
	// [scenario.Limit.String], or [Blocked]. Index is its position in
	// [scenario.Provider.EachLimit], -1 for none.
	Limit string
	Index int
}

// Counts has the results of a group of attempts.
type Counts struct {
	Admitted  int64 `json:"admitted"`
	Throttled int64 `json:"throttled"`
	// Failed counts those that met an outage, an overload, a reset or suspension.
	Failed int64 `json:"failed"`
}

// Model is the state of a provider. Make one with [New]; the package documentation
// describes its decisions.
type Model struct {
	cfg   *scenario.Scenario
	start time.Time
	now   time.Duration

	limits []limit
	knees  []knee
	style  *dialect

	block struct {
		until  time.Duration
		length time.Duration // 0 before the first

		started, pushed int64 // how many there were, and in how many a call was refused
		met             bool  // a call was refused in the current one
	}
	throttles history // for suspension
	suspended bool

	overload rand.PCG

	changes []scenario.Change // with gradual changes as steps
	factor  float64           // product of the changes so far
	change  int               // the next one

	strangers struct {
		rng    rand.PCG
		next   time.Duration
		mean   float64 // nanoseconds between two, while they are on
		on     float64 // mean nanoseconds on and off; 0 if always on
		off    float64
		until  time.Duration // when the current on time ends
		demand demand
		counts Counts
	}
	counts  Counts
	clients []Counts
}

// limit is a limit that can refuse.
type limit struct {
	limiter
	name  string
	index int
	kind  scenario.Kind
	pool  int // its pool, from 1; 0 is the account
}

// knee is a slow-down: as many of the newest arrivals as needed to exceed it.
type knee struct {
	rate   float64
	limit  int
	factor float64
	recent history
}

// New returns a provider whose scenario starts at the Unix epoch, so that aligned windows
// begin with it. The scenario must come from [scenario.Parse]; the seed determines the
// strangers.
func New(s *scenario.Scenario, seed uint64) (*Model, error) {
	return NewAt(s, seed, time.Unix(0, 0))
}

// NewAt is like [New] with another wall clock at the scenario's start, at or after the Unix
// epoch. Aligned windows, HTTP dates and absolute resets use it.
func NewAt(s *scenario.Scenario, seed uint64, start time.Time) (*Model, error) {
	if s == nil {
		return nil, errors.New("provider: no scenario")
	}
	if start.Unix() < 0 {
		return nil, fmt.Errorf("provider: start %s is before the Unix epoch", start.UTC().Format(time.RFC3339))
	}
	m := &Model{cfg: s, start: start.UTC(), factor: 1, clients: make([]Counts, max(1, s.Clients))}
	m.changes = s.Provider.Steps()
	largest := 1.0
	for factor, i := 1.0, 0; i < len(m.changes); i++ {
		factor *= m.changes[i].Scale
		largest = max(largest, factor)
	}
	i := -1
	for pool, l := range s.Provider.EachLimit {
		i++
		if l.Kind == scenario.Slowdown {
			k := knee{rate: l.Knee.PerSecond(), factor: l.Factor}
			k.recent.most = int(math.Ceil(k.rate * largest))
			k.scale(1)
			m.knees = append(m.knees, k)
			continue
		}
		var epoch time.Duration
		if l.Window > 0 {
			epoch = time.Duration(start.UnixNano() % int64(l.Window))
		}
		made := newLimiter(l, largest, epoch)
		if made == nil {
			return nil, fmt.Errorf("provider: limits[%d]: unknown kind %q", i, l.Kind)
		}
		m.limits = append(m.limits, limit{limiter: made, name: l.String(), index: i, kind: l.Kind, pool: pool})
	}
	if sus := s.Provider.Suspend; sus != nil {
		m.throttles.most = sus.Throttles
	}
	m.style = newDialect(s, m.limits)
	m.overload = *rand.NewPCG(seed, streamOverload)
	m.strangers.next = Never
	if st := s.Provider.Strangers; st != nil {
		m.strangers.rng = *rand.NewPCG(seed, streamStrangers)
		m.strangers.mean = float64(time.Second) / st.Rate.PerSecond()
		m.strangers.demand = demand{cost: milli(s.Workload.Cost.Mean), busy: int64(s.Provider.Latency.P50)}
		m.strangers.next = 0
		if st.On > 0 {
			m.strangers.on, m.strangers.off = float64(st.On), float64(st.Off)
			m.strangers.mean *= m.strangers.on / (m.strangers.on + m.strangers.off)
			m.strangers.until = m.lasts(m.strangers.on)
		}
		m.nextStranger()
	}
	m.advance(0)
	return m, nil
}

// Free returns the earliest instant at or after now at which an attempt of that cost and
// busy time would be admitted if no stranger and no change of the limits came before. It
// accounts for limits, blocks, outages and resets, not for an overload, and is [Never] for a suspended account.
// It has no visible effect apart from advancing the model to now.
func (m *Model) Free(now time.Duration, cost float64, busy time.Duration) time.Duration {
	return m.FreeIn(now, 0, cost, busy)
}

// FreeIn is like [Model.Free] for an attempt of a pool, counted from 1; 0 means no pool.
func (m *Model) FreeIn(now time.Duration, pool int, cost float64, busy time.Duration) time.Duration {
	m.advance(now)
	if m.suspended {
		return Never
	}
	at, _ := m.worst(demand{cost: milli(cost), busy: int64(max(0, busy)), pool: pool})
	at = max(at, m.block.until)
	// Faults may touch or overlap: repeat until none delays it.
	for moved := true; moved; {
		moved = false
		for _, f := range m.cfg.Provider.Faults {
			if (f.Kind == scenario.Outage || f.Kind == scenario.Reset) && f.Covers(at) {
				at, moved = f.At+f.For, true
			}
		}
	}
	return at
}

// Factor returns the product of the changes so far, by which limits are multiplied.
func (m *Model) Factor() float64 { return m.factor }

// Suspended reports whether the account is suspended.
func (m *Model) Suspended() bool { return m.suspended }

// BlockedUntil returns the end of the last block of the penalty; zero before the first.
func (m *Model) BlockedUntil() time.Duration { return m.block.until }

// Blocks returns how many blocks of the penalty were started, and in how many of those
// another attempt was refused.
func (m *Model) Blocks() (started, pushed int64) { return m.block.started, m.block.pushed }

// Counts returns the results of all attempts of the credential.
func (m *Model) Counts() Counts { return m.counts }

// Client returns the results of one client's attempts; zero for an unknown client.
func (m *Model) Client(i int) Counts {
	if i < 0 || i >= len(m.clients) {
		return Counts{}
	}
	return m.clients[i]
}

// Strangers returns the results of the strangers so far.
func (m *Model) Strangers() Counts { return m.strangers.counts }

// Clone returns a deep copy. It takes time in proportion to what the limits remember.
func (m *Model) Clone() *Model {
	c := *m
	c.limits = slices.Clone(m.limits)
	for i := range c.limits {
		c.limits[i].limiter = m.limits[i].clone()
	}
	c.knees = slices.Clone(m.knees)
	for i := range c.knees {
		c.knees[i].recent = m.knees[i].recent.clone()
	}
	c.throttles = m.throttles.clone()
	c.clients = slices.Clone(m.clients)
	return &c
}
