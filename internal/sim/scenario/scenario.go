// Package scenario reads scenario files: the clients, the provider's limits, and events
// over time. The simulator, the arena and the provider that is served over HTTP use the
// same files.
//
// [Parse] is strict and reports all problems at once, by package configfile.
//
// Connections are read by package connector/rest.
//
// A [Scenario] is a value without locks; it may be read concurrently while nobody modifies
// it. Instants in a scenario are durations since its start. Nothing here reads a clock.
package scenario

import (
	"math"
	"time"
)

// Defaults of a scenario, for fields that the file leaves out.
const (
	DefaultHorizon      = time.Hour
	DefaultClients      = 1
	DefaultCeiling      = 250 * time.Millisecond
	DefaultInitial      = time.Second
	DefaultMaxInFlight  = 64
	DefaultCostMean     = 1.0
	DefaultLatency      = 100 * time.Millisecond
	DefaultStatus       = 429
	DefaultPenaltyMax   = 5 * time.Minute
	DefaultForgive      = 2 * time.Minute
	DefaultPenaltyGrows = 2.0
	DefaultUsers        = 1
	DefaultBatchRows    = 1000
)

// Bounds of values in a file.
const (
	// MaxSize is the maximum size of a file, in bytes.
	MaxSize = 64 << 10
	// MaxHorizon is the maximum length of a scenario.
	MaxHorizon = 31 * 24 * time.Hour
	// MaxClients is the maximum number of clients.
	MaxClients = 1000
	// MaxCount is the maximum count: of a limit, a burst, requests in flight.
	MaxCount = 10_000_000
	// MaxRate is the maximum rate, in requests a second.
	MaxRate = 1e6
	// MaxLatency is the maximum latency.
	MaxLatency = time.Hour
	// MaxFill is the maximum time in which a token bucket may fill.
	MaxFill = 100 * MaxHorizon
	// MaxRows is the maximum number of rows of a bulk load.
	MaxRows = 10_000_000
	// MaxPlaces is the maximum number of batches in flight of a bulk user.
	MaxPlaces = 1000
	// MaxListed is the maximum number of entries in a list.
	MaxListed = 100
)

// Scenario is a file with all defaults filled in.
type Scenario struct {
	// Name identifies it: lower-case letters, digits, '-', '_' and '.'.
	Name string
	// Description is free text; it may be empty.
	Description string
	// Horizon is its length; default 1h.
	Horizon time.Duration
	// Clients is the number of independent processes that share the credential; default 1.
	Clients int
	// Fleet means that the clients share one pace: without a Link at no cost, like one
	// process; with a Link as members of a fleet that talk to its server.
	Fleet bool
	Link  *Link
	// Owner has the settings of the clients' owner.
	Owner Owner
	// Workload describes what the clients send.
	Workload Workload
	// Provider describes the API.
	Provider Provider
}

// Link is the link between the members of a fleet and its server.
type Link struct {
	// Trip is the round-trip time of a message.
	Trip time.Duration
	// Faults are times in which messages do not arrive.
	Faults []LinkFault
}

// LinkFault is a fault that starts at At and lasts For.
type LinkFault struct {
	At   time.Duration
	For  time.Duration
	Kind LinkFaultKind
	// Clients is the number of clients that cannot reach the server, from the first on, if
	// Kind is Cut.
	Clients int
}

// LinkFaultKind is the kind of a link fault.
type LinkFaultKind string

// The kinds of link faults.
const (
	// Away: the server is gone, and a new one starts afterwards.
	Away LinkFaultKind = "away"
	// Cut: messages of some clients wait, in both directions.
	Cut LinkFaultKind = "cut"
)

// Owner has the owner's settings: the ceiling, the initial interval and the start.
type Owner struct {
	// Ceiling is the minimum interval between two attempts of one client; default 250ms.
	Ceiling time.Duration
	// Initial is the interval at the start; default 1s, and at least Ceiling.
	Initial time.Duration
	// Passive holds attempts back by the ceiling alone until the provider first refuses one
	// or advertises a limit.
	Passive bool
	// Windows are the lengths of the windows that the owner knows of, as from a budget.
	Windows []time.Duration
}

// The starts of a client.
const (
	startConservative = "conservative"
	startPassive      = "passive"
)

// WorkloadKind says when there is work.
type WorkloadKind string

// The kinds of workload.
const (
	// Backlog: there is always work.
	Backlog WorkloadKind = "backlog"
	// Open: work arrives by itself, as a Poisson stream.
	Open WorkloadKind = "open"
	// Bulk: a number of rows is loaded in concurrent batches.
	Bulk WorkloadKind = "bulk"
)

// Workload describes the work of each client.
type Workload struct {
	// Kind defaults to Backlog.
	Kind WorkloadKind
	// Rate is the rate at which work arrives at each client if Kind is Open. A backlog
	// never runs out, so it ignores the rate, and results say so.
	Rate Rate
	// Burst is the number of requests that arrive together if Kind is Open, with 1/Burst of
	// the rate; 0, the default, means one at a time.
	Burst int
	// Active and Pause alternate: work arrives during Active and not during Pause. Zero,
	// the default of both, means no pauses.
	Active, Pause time.Duration
	// MaxInFlight is the maximum number of attempts of one client in flight; default 64.
	MaxInFlight int
	// Cost is an attempt's cost on cost limits; in a bulk workload a batch costs one for
	// each row.
	Cost Cost
	// Rows is the number of rows of a bulk workload; zero for others.
	Rows int
	// Users is the number of identities that load them, each with limits of its own;
	// default 1, zero unless Kind is Bulk. MaxInFlight bounds the batches of each.
	Users int
}

// Awake returns the earliest instant, not before at, outside the pauses.
func (w *Workload) Awake(at time.Duration) time.Duration {
	if w.Pause == 0 {
		return at
	}
	cycle := w.Active + w.Pause
	if within := at % cycle; within >= w.Active && at <= MaxHorizon {
		return at + cycle - within
	}
	return at
}

// Cost is a distribution of a request's cost in units.
type Cost struct {
	// Mean is the arithmetic mean, in units; default 1.
	Mean float64
	// Spread is the standard deviation of the natural logarithm; 0, the
	// default, makes every request cost Mean.
	Spread float64
	// Estimate is how many times what it costs a client expects a request to cost before it is
	// answered; default 1. Error is the standard deviation of the natural logarithm of that
	// factor; 0, the default, makes all estimates wrong alike.
	Estimate, Error float64
}

// Provider is the model of an API.
type Provider struct {
	Latency Latency
	// Batch describes the execution of batches of rows; nil unless the workload is bulk.
	Batch *Batch
	// Hint is the parallelism that responses to batches recommend to each user; 0 means
	// none.
	Hint int
	// Limits apply to the whole account. Those of Pools apply in addition, each to the
	// attempts of its pool.
	Limits    []Limit
	Pools     []Pool
	Throttle  Throttle
	Penalty   *Penalty
	Suspend   *Suspend
	Strangers *Strangers
	Changes   []Change
	Faults    []Fault
}

// Pool is a part of the account with limits of its own. Each client has work for every
// pool, and states the pool of each attempt.
type Pool struct {
	// Name is the pool's name: letters, digits, '-', '_', '.' and '/'.
	Name string
	// Share is the weight of the pool in open work; default 1. A backlog never runs out in
	// any pool.
	Share float64
	// Limits apply to the pool alone. A slow-down is not allowed.
	Limits []Limit
}

// EachLimit yields all limits with the number of their pool, from 1; 0 is the account.
func (p *Provider) EachLimit(yield func(pool int, l Limit) bool) {
	for _, l := range p.Limits {
		if !yield(0, l) {
			return
		}
	}
	for i := range p.Pools {
		for _, l := range p.Pools[i].Limits {
			if !yield(i+1, l) {
				return
			}
		}
	}
}

// Batch describes the execution time of a batch of rows: Overhead, and PerRow for each row,
// times a lognormal factor with median 1, and longer above Knee. The network latency is
// added to it.
type Batch struct {
	Overhead, PerRow time.Duration
	// MaxRows is the maximum number of rows in a batch; default 1000.
	MaxRows int
	// Spread is the standard deviation of the factor's natural logarithm; default 0.
	Spread float64
	// Knee is the number of one user's batches that the provider executes at once without
	// slowing down: n of them take n/Knee times as long. SharedKnee is the same for all
	// users together. 0, the default, means no bound.
	Knee, SharedKnee int
}

// Latency is the round-trip time of an attempt. Both distributions are lognormal, and
// constant if their two figures are equal.
type Latency struct {
	// P50 and P99 are about the whole time of an admitted attempt. The default is 100ms,
	// and P50 for P99.
	P50, P99 time.Duration
	// UplinkP50 and UplinkP99 are about the time until an attempt reaches the limiter. The
	// defaults are P50/10 and twice UplinkP50.
	UplinkP50, UplinkP99 time.Duration
}

// Kind is the kind of a limit.
type Kind string

// The kinds of limit.
const (
	// TokenBucket: Rate with Burst.
	TokenBucket Kind = "token_bucket"
	// FixedWindow: Count in each Window, aligned by Align.
	FixedWindow Kind = "fixed_window"
	// SlidingWindow: Count in any period of length Window.
	SlidingWindow Kind = "sliding_window"
	// Concurrency: Count requests in flight.
	Concurrency Kind = "concurrency"
	// CostWindow: Units of cost in any period of length Window.
	CostWindow Kind = "cost_window"
	// BusyTime: Busy of execution time in any period of length Window.
	BusyTime Kind = "busy_time"
	// Slowdown: above Knee, latency is multiplied by Factor; nothing is refused.
	Slowdown Kind = "slowdown"
)

// Align says when fixed windows begin.
type Align string

// The alignments of fixed windows.
const (
	// AlignEpoch: at multiples of their length since the Unix epoch. The default.
	AlignEpoch Align = "epoch"
	// AlignFirst: with the first request after the previous window.
	AlignFirst Align = "first"
)

// Limit is a limit of a provider. Fields that its kind does not have are zero.
type Limit struct {
	Kind Kind
	// Rate and Burst are for token buckets. Burst is at least 1; default 1.
	Rate  Rate
	Burst int
	// Count is the limit of fixed windows, sliding windows and concurrency, in requests.
	Count int
	// Units is the limit of a cost window, in units of cost.
	Units float64
	// Busy is the limit of busy time. It may be longer than Window, since requests run
	// concurrently.
	Busy time.Duration
	// Window is the length of the window.
	Window time.Duration
	// Approximate makes a sliding window count as HAProxy's and Cloudflare's: the requests
	// of the current period, and a part of those of the previous one, as if they had been
	// spread evenly.
	Approximate bool
	// Align is for fixed windows; default AlignEpoch.
	Align Align
	// Knee and Factor are for slow-downs: above Knee arrivals in the last second, latency
	// is multiplied by Factor. Knee is at least 1/s.
	Knee   Rate
	Factor float64
}

// PerSecond returns the rate that the limit sustains, in requests a second; ok is false for
// kinds that do not bound that by themselves.
func (l Limit) PerSecond() (rate float64, ok bool) {
	switch l.Kind {
	case TokenBucket:
		return l.Rate.PerSecond(), true
	case FixedWindow, SlidingWindow:
		return float64(l.Count) / l.Window.Seconds(), true
	case Slowdown:
		return l.Knee.PerSecond(), true
	case Concurrency, CostWindow, BusyTime:
		return 0, false
	}
	return 0, false
}

// String returns a short and stable description: "token_bucket 10/s burst 20".
func (l Limit) String() string { return describe(l) }

// RetryAfter is the form in which a throttle advertises a wait.
type RetryAfter string

// The forms of Retry-After.
const (
	// RetrySeconds: whole seconds, rounded up.
	RetrySeconds RetryAfter = "seconds"
	// RetryMillis: whole milliseconds, rounded up, in retry-after-ms.
	RetryMillis RetryAfter = "ms"
	// RetryDate: an HTTP date, rounded up to a whole second.
	RetryDate RetryAfter = "http_date"
	// RetryExact: to the nanosecond, as fractional retry-after-ms.
	RetryExact RetryAfter = "exact"
	// RetryNone: no wait is advertised. The default.
	RetryNone RetryAfter = "none"
)

// Dialect is the style of limit headers in responses.
type Dialect string

// The dialects.
const (
	HeadersNone      Dialect = "none" // the default
	HeadersGitHub    Dialect = "github"
	HeadersOpenAI    Dialect = "openai"
	HeadersAnthropic Dialect = "anthropic"
	HeadersIETF      Dialect = "ietf"
)

// Throttle describes a refusal.
type Throttle struct {
	// Status is the HTTP status, 400 to 599; default 429.
	Status     int
	RetryAfter RetryAfter
	// RetryAfterFactor multiplies the advertised wait, for a provider that is wrong or uses
	// another unit (1000: milliseconds in Retry-After). 0, the default, means the right
	// wait.
	RetryAfterFactor float64
	// RetryAfterConstant, if not 0, is always advertised.
	RetryAfterConstant time.Duration
	Headers            Dialect
	// CountsRejected makes refused attempts count against the limit too.
	CountsRejected bool
}

// Penalty blocks a client after a refusal, for longer if it keeps sending.
type Penalty struct {
	// Base is the length of the first block.
	Base time.Duration
	// Factor multiplies the length, at least 1; default 2.
	Factor float64
	// Max bounds the length; default 5m, or Base if that is longer.
	Max time.Duration
	// Forgive is the time without a refusal after a block, after which the next block
	// lasts Base again; default 2m.
	Forgive time.Duration
	// Fixed blocks keep their length: attempts during one are refused and change nothing.
	// Otherwise each such attempt starts a new, longer block.
	Fixed bool
}

// Suspend describes when the account is suspended permanently.
type Suspend struct {
	// Throttles within Within cause a suspension.
	Throttles int
	Within    time.Duration
}

// Strangers are unseen users of the same limits, as a Poisson stream.
type Strangers struct {
	// Rate is their mean rate over on and off times.
	Rate Rate
	// On and Off, both or neither, are mean on and off times of exponential length. During
	// on times the rate is higher, so that the mean is Rate.
	On, Off time.Duration
}

// Change multiplies every limit from an instant on. Changes accumulate: 0.5 and later 2
// give the first limit again.
type Change struct {
	At time.Duration
	// Over spreads the change evenly over this time, in DriftSteps steps of equal factor;
	// 0, the default, means one step.
	Over time.Duration
	// Scale is 1 for a change of the hint alone.
	Scale float64
	// Hint is the recommendation from then on, in a bulk workload; 0 means no change. Knee
	// is the same for the batch's Knee.
	Hint, Knee int
}

// DriftSteps is the number of steps that make up a change with [Change.Over].
const DriftSteps = 32

// Steps returns all changes; a change with Over is returned as DriftSteps steps.
func (p *Provider) Steps() []Change {
	var steps []Change
	for _, c := range p.Changes {
		if c.Over == 0 {
			steps = append(steps, c)
			continue
		}
		for i := range DriftSteps {
			steps = append(steps, Change{
				At:    c.At + c.Over*time.Duration(i)/DriftSteps,
				Scale: math.Pow(c.Scale, 1.0/DriftSteps),
			})
		}
	}
	return steps
}

// FaultKind is the kind of a fault.
type FaultKind string

// The kinds of fault.
const (
	// Outage: every attempt gets a 503.
	Outage FaultKind = "outage"
	// Slow: latency is multiplied by SlowFactor.
	Slow FaultKind = "slow"
	// Reset: connections are reset when an attempt arrives.
	Reset FaultKind = "reset"
	// Overload: a share of the attempts gets a 503, at random, however few arrive.
	Overload FaultKind = "overload"
)

// SlowFactor is the factor by which a [Slow] fault multiplies latency.
const SlowFactor = 10.0

// Fault is a fault that starts at At and lasts For.
type Fault struct {
	At   time.Duration
	For  time.Duration
	Kind FaultKind
	// Share is the part of the attempts that an [Overload] refuses, above 0 and at most 1; 0 for
	// other kinds.
	Share float64
}

// Covers reports whether the fault is active at an instant: from At inclusive to At+For
// exclusive.
func (f Fault) Covers(now time.Duration) bool { return now >= f.At && now-f.At < f.For }
