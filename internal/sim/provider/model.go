// Package provider is a model of an API that limits its callers: given an
// attempt and its instant, is it admitted, and what does the answer say? The
// simulator asks it in virtual time, the served provider in real time, the
// arena through an in-memory transport; all get the same answers.
//
// # Time
//
// Instants are durations since the scenario's start and only go forward: an
// instant before the last one counts as the last one. Windows that are aligned
// to the epoch, HTTP dates and absolute reset headers need a wall clock at the
// start: [New] takes the Unix epoch itself, so that aligned windows begin with
// the scenario, and [NewAt] takes any other. Nothing here reads a clock.
//
// A window of length W is half open: what happened at t counts until just
// before t+W.
//
// # Order of decisions
//
// An attempt meets, in this order: suspension (403 for ever), an outage (503)
// or reset fault, neither of which touches a limit; then the block of a
// penalty; then all limits, each of which must admit. A refused attempt uses
// up nothing, unless the scenario counts rejected attempts: then every token
// bucket and window is charged for it, as far as there is something to take.
// Concurrency and busy time are never charged for a refusal, since no work was
// done.
//
// # Penalty
//
// The first refusal by a limit starts a block of the base length. An attempt
// during the block is refused, multiplies the block's length by the factor up
// to the maximum, and starts it again from that instant. A refusal by a limit
// after a block multiplies likewise, unless the time to forgive has passed
// since the block's end: then the length is the base again. During a block that is
// fixed attempts are refused and change nothing.
//
// # Suspension
//
// Every throttle counts, by a limit or by a block. The one that makes the
// number within the time is still answered as a throttle; everything after it
// is 403.
//
// # Charges
//
// A request costs one on buckets and counting windows, its cost on cost
// windows and its busy time on busy-time windows, both booked when it is
// admitted. A request larger than a whole cost or busy-time limit is charged
// the whole limit: it is admitted when the window is empty. A request is under
// way, for concurrency, from its admission until its busy time has passed; the
// model frees the slot itself. Slowness is waiting and not work: it lengthens
// how long a slot is held, and is not charged as busy time.
//
// # Changes
//
// A change multiplies every limit from its instant on, whether or not anybody
// calls: sizes and bursts are rounded to the nearest whole and are at least 1,
// intervals are rounded up to a nanosecond, knees are at least one a second.
// What has been used stays used; a bucket keeps its tokens, up to its new burst. A
// change that takes a time comes in steps.
//
// # Strangers
//
// Strangers are a Poisson stream drawn from the seed alone, so that it is the
// same whatever other clients do, with stretches and gaps of random length where the
// scenario has them come and go. Each costs the mean cost and is busy for the median
// latency. They share limits and faults, but not blocks and suspension, which
// fall on the credential.
//
// # Concurrency
//
// A [Model] and a [Sampler] are each for one goroutine at a time; callers that
// share one hold a mutex. Do not use this package to govern real traffic: it
// answers for the provider, not for the client.
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

// Blocked is the [Verdict.Limit] of an attempt that a penalty's block refused.
const Blocked = "penalty"

// Verdict is the answer to one attempt. Exactly one of Admitted, Throttled,
// Reset and Suspended holds, or none of them: then it met an outage.
type Verdict struct {
	// Admitted: it counts as a success. Its answer comes after the whole
	// latency, times Slow.
	Admitted bool
	// Throttled: refused by a limit or by a penalty's block.
	Throttled bool
	// Reset: the connection is cut without an answer.
	Reset bool
	// Suspended: the account is suspended, now and for ever.
	Suspended bool
	// Status is the HTTP status; 0 for a reset.
	Status int
	// RetryAfter is the wait that the answer advertises, rounded as the
	// scenario's style has it; meaningful only with HasRetryAfter.
	RetryAfter    time.Duration
	HasRetryAfter bool
	// Slow multiplies the latency of an admitted attempt; at least 1.
	Slow float64
	// Limit names what throttled: the limit of several that frees last, as
	// [scenario.Limit.String] has it, or [Blocked]. Index is its place in
	// [scenario.Provider.EachLimit], -1 for none.
	Limit string
	Index int
}

// Counts is what became of a group of attempts.
type Counts struct {
	Admitted  int64 `json:"admitted"`
	Throttled int64 `json:"throttled"`
	// Failed met an outage, a reset or suspension.
	Failed int64 `json:"failed"`
}

// Model is a provider's whole state. Make one with [New]; see the package's
// documentation for what it answers.
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

		started, pushed int64 // how many there were, and how many were met by a call
		met             bool  // the present one was
	}
	throttles history // for suspension
	suspended bool

	changes []scenario.Change // those that drift in steps
	factor  float64           // product of the changes so far
	change  int               // the next one

	strangers struct {
		rng    rand.PCG
		next   time.Duration
		mean   float64 // nanoseconds between two, while they are on
		on     float64 // mean nanoseconds of being on and off; 0 for always on
		off    float64
		until  time.Duration // when this stretch of being on ends
		demand demand
		counts Counts
	}
	counts  Counts
	clients []Counts
}

// limit is one that can refuse.
type limit struct {
	limiter
	name  string
	index int
	kind  scenario.Kind
	pool  int // whose it is, from 1; 0 is the account's
}

// knee is a slow-down: the newest arrivals, as many as it takes to be above it.
type knee struct {
	rate   float64
	limit  int
	factor float64
	recent history
}

// New makes a provider whose scenario starts at the Unix epoch, so that
// aligned windows begin with it. The scenario must come from
// [scenario.Parse]; the seed decides the strangers.
func New(s *scenario.Scenario, seed uint64) (*Model, error) {
	return NewAt(s, seed, time.Unix(0, 0))
}

// NewAt is [New] with the wall time of the scenario's start, at or after the
// Unix epoch: aligned windows, HTTP dates and absolute resets follow it.
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

// Free is the earliest instant at or after now at which an attempt of that
// cost and busy time would be admitted if it came alone: no stranger before it
// and no change of the limits. It waits for limits, blocks, outages and
// resets, and is [Never] for a suspended account. It changes nothing that a
// caller could see, apart from advancing the model to now.
func (m *Model) Free(now time.Duration, cost float64, busy time.Duration) time.Duration {
	return m.FreeIn(now, 0, cost, busy)
}

// FreeIn is [Model.Free] for an attempt of a pool, from 1; 0 is of none.
func (m *Model) FreeIn(now time.Duration, pool int, cost float64, busy time.Duration) time.Duration {
	m.advance(now)
	if m.suspended {
		return Never
	}
	at, _ := m.worst(demand{cost: milli(cost), busy: int64(max(0, busy)), pool: pool})
	at = max(at, m.block.until)
	// Faults may touch or overlap each other: go on until none moves it.
	for moved := true; moved; {
		moved = false
		for _, f := range m.cfg.Provider.Faults {
			if f.Kind != scenario.Slow && f.Covers(at) {
				at, moved = f.At+f.For, true
			}
		}
	}
	return at
}

// Factor is the product of the changes so far: what limits are multiplied by.
func (m *Model) Factor() float64 { return m.factor }

// Suspended says whether the account is suspended.
func (m *Model) Suspended() bool { return m.suspended }

// BlockedUntil is the end of the last block of the penalty; zero before the first.
func (m *Model) BlockedUntil() time.Duration { return m.block.until }

// Blocks is how many blocks of the penalty a limit's refusal has started, and in
// how many of those at least one more attempt was refused.
func (m *Model) Blocks() (started, pushed int64) { return m.block.started, m.block.pushed }

// Counts is what became of all attempts of the credential.
func (m *Model) Counts() Counts { return m.counts }

// Client is what became of the attempts of one client; zero for one that the
// scenario does not have.
func (m *Model) Client(i int) Counts {
	if i < 0 || i >= len(m.clients) {
		return Counts{}
	}
	return m.clients[i]
}

// Strangers is what became of the strangers so far.
func (m *Model) Strangers() Counts { return m.strangers.counts }

// Clone is a deep copy: what happens to one does not happen to the other. It
// costs as much as the limits remember.
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
