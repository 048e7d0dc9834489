// Package scenario reads scenario files: who sends, what the provider allows,
// and what happens to both over a stretch of time. The simulator, the arena and
// the provider that is served over HTTP all run the same files.
//
// [Parse] is strict: all that is wrong is reported at once, by package configfile.
//
// Do not use it for connections: those are read by package connector/rest.
//
// Everything here is a value without locks: a [Scenario] may be read from many
// goroutines as long as none writes it. Instants in a scenario are durations
// since its start; nothing here reads a clock.
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

// Bounds of what a file may say.
const (
	// MaxSize is the largest file that is read, in bytes.
	MaxSize = 64 << 10
	// MaxHorizon is the longest scenario.
	MaxHorizon = 31 * 24 * time.Hour
	// MaxClients is the most clients.
	MaxClients = 1000
	// MaxCount is the largest count: of a limit, a burst, requests in flight.
	MaxCount = 10_000_000
	// MaxRate is the fastest rate, a second.
	MaxRate = 1e6
	// MaxLatency is the slowest latency.
	MaxLatency = time.Hour
	// MaxFill is the longest time in which a token bucket may fill.
	MaxFill = 100 * MaxHorizon
	// MaxRows is the most rows of a bulk load.
	MaxRows = 10_000_000
	// MaxPlaces is the most batches in flight of a bulk workload's user.
	MaxPlaces = 1000
	// MaxListed is the most entries in a list.
	MaxListed = 100
)

// Scenario is one file, with every default filled in.
type Scenario struct {
	// Name identifies it; lower-case letters, digits, '-', '_' and '.'.
	Name string
	// Description is free text for a person; may be empty.
	Description string
	// Horizon is how long it lasts; default 1h.
	Horizon time.Duration
	// Clients is how many independent processes share the credential; default 1.
	Clients int
	// Fleet lets the clients share what they know and hold. Without a Link they do so at no
	// cost, as one process would; with one they are members of a fleet that talk to its server.
	Fleet bool
	Link  *Link
	// Owner is what the owner of the clients set.
	Owner Owner
	// Workload is what the clients have to send.
	Workload Workload
	// Provider is who answers.
	Provider Provider
}

// Link is between the members of a fleet and its server.
type Link struct {
	// Trip is the time of a message to the server and back.
	Trip time.Duration
	// Faults are times in which messages do not come through.
	Faults []LinkFault
}

// LinkFault is trouble from At, for For.
type LinkFault struct {
	At   time.Duration
	For  time.Duration
	Kind LinkFaultKind
	// Clients is how many clients cannot reach the server, from the first on, if Kind is Cut.
	Clients int
}

// LinkFaultKind is what goes wrong.
type LinkFaultKind string

// The kinds of trouble with a fleet's server.
const (
	// Away: the server is gone, and another one begins afterwards.
	Away LinkFaultKind = "away"
	// Cut: messages of some clients wait, in both directions.
	Cut LinkFaultKind = "cut"
)

// Owner is what the owner configures: the ceiling and the initial interval.
type Owner struct {
	// Ceiling is the smallest interval between two attempts of one client; default 250ms.
	Ceiling time.Duration
	// Initial is the interval at the start; default 1s, and never below Ceiling.
	Initial time.Duration
}

// WorkloadKind says when there is something to send.
type WorkloadKind string

// The kinds of workload.
const (
	// Backlog: there is always something to send.
	Backlog WorkloadKind = "backlog"
	// Open: work arrives on its own, as a Poisson stream.
	Open WorkloadKind = "open"
	// Bulk: a number of rows is loaded in batches, side by side.
	Bulk WorkloadKind = "bulk"
)

// Workload is what each client has to send.
type Workload struct {
	// Kind defaults to Backlog.
	Kind WorkloadKind
	// Rate is how fast work arrives at each client when Kind is Open. A backlog
	// never runs out, whatever fills it: there the rate is not used, and results say so.
	Rate Rate
	// Burst is how many pieces of work arrive together when Kind is Open, at a
	// Burst-th of the rate; 0, the default, is one at a time.
	Burst int
	// Active and Pause alternate: work arrives for Active as Kind says, then none does for
	// Pause. Zero, the default of both, means no pauses.
	Active, Pause time.Duration
	// MaxInFlight bounds the attempts of one client that are under way; default 64.
	MaxInFlight int
	// Cost is what an attempt weighs on limits that count cost; in a bulk workload
	// a batch costs one for each row.
	Cost Cost
	// Rows is how many rows a bulk workload loads; zero for the others.
	Rows int
	// Users is how many identities load them, each with limits of its own;
	// default 1, zero unless Kind is Bulk. MaxInFlight bounds the batches of each.
	Users int
}

// Awake is the earliest instant, not before at, that is outside the pauses.
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

// Cost is a distribution of units a request.
type Cost struct {
	// Mean is the arithmetic mean, in units; default 1.
	Mean float64
	// Spread is the standard deviation of the natural logarithm; 0, the
	// default, makes every request cost Mean.
	Spread float64
}

// Provider is the model of an API.
type Provider struct {
	Latency Latency
	// Batch is how long batches of rows take; nil unless the workload is bulk.
	Batch *Batch
	// Hint is the parallelism that answers to batches recommend to each user; 0
	// recommends none.
	Hint int
	// Limits are of the whole account; those of Pools come on top, each for the attempts
	// of its pool.
	Limits    []Limit
	Pools     []Pool
	Throttle  Throttle
	Penalty   *Penalty
	Suspend   *Suspend
	Strangers *Strangers
	Changes   []Change
	Faults    []Fault
}

// Pool is a part of the account that has limits of its own. Each client has work for
// every pool, and says with each attempt which one it is for.
type Pool struct {
	// Name is what clients call it; letters, digits, '-', '_', '.' and '/'.
	Name string
	// Share is the part of open work that is for it, over the sum of all; default 1. A
	// backlog never runs out, of any pool.
	Share float64
	// Limits are those of the pool alone; none of them is a slow-down.
	Limits []Limit
}

// EachLimit gives all limits with the number of their pool, from 1; 0 is the account.
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

// Batch is how long the provider works on a batch of rows: Overhead and PerRow
// for each row, times a lognormal factor of median 1, and longer while it works
// on more batches than it has servers for. That is on top of the latency, which
// is the way there and back.
type Batch struct {
	Overhead, PerRow time.Duration
	// MaxRows is the most rows of a batch; default 1000.
	MaxRows int
	// Spread is the standard deviation of the factor's natural logarithm; default 0.
	Spread float64
	// Knee is how many batches of one user the provider works on side by side
	// before each takes longer: n of them take n/Knee times as long. SharedKnee is
	// the same for all users together. 0, the default, means no bound.
	Knee, SharedKnee int
}

// Latency is how long an attempt takes, from the client and back. Both
// distributions are lognormal, and constant when their two figures are equal.
type Latency struct {
	// P50 and P99 are the whole time of an admitted attempt; default 100ms
	// for both, and P99 defaults to P50.
	P50, P99 time.Duration
	// UplinkP50 and UplinkP99 are the time until an attempt reaches the
	// limiter; default P50/10, and twice UplinkP50.
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
	// SlidingWindow: Count in any stretch of Window.
	SlidingWindow Kind = "sliding_window"
	// Concurrency: Count under way at once.
	Concurrency Kind = "concurrency"
	// CostWindow: cost of Units in any stretch of Window.
	CostWindow Kind = "cost_window"
	// BusyTime: Busy of execution in any stretch of Window.
	BusyTime Kind = "busy_time"
	// Slowdown: above Knee latency grows by Factor; nothing is refused.
	Slowdown Kind = "slowdown"
)

// Align says where fixed windows begin.
type Align string

// The alignments of fixed windows.
const (
	// AlignEpoch: windows begin at whole multiples of their length since the
	// Unix epoch. The default.
	AlignEpoch Align = "epoch"
	// AlignFirst: a window begins with the first request after the one before ended.
	AlignFirst Align = "first"
)

// Limit is one limit of a provider. Fields that its kind does not have are zero.
type Limit struct {
	Kind Kind
	// Rate and Burst are a token bucket's; Burst is at least 1 and defaults to 1.
	Rate  Rate
	Burst int
	// Count is the limit of a fixed or sliding window and of concurrency, in requests.
	Count int
	// Units is the limit of a cost window, in units of cost.
	Units float64
	// Busy is the limit of busy time; it may be longer than Window, since
	// requests run side by side.
	Busy time.Duration
	// Window is the length of the window.
	Window time.Duration
	// Approximate makes a sliding window count as HAProxy's and Cloudflare's do: what
	// came in this period, and of what came in the one before the part that is still in
	// the window, as if it had come evenly.
	Approximate bool
	// Align is a fixed window's; default AlignEpoch.
	Align Align
	// Knee and Factor are a slow-down's: above Knee arrivals in the last
	// second, latency is multiplied by Factor. Knee is at least 1/s.
	Knee   Rate
	Factor float64
}

// PerSecond is the rate that the limit sustains, in requests a second; ok is
// false for kinds that do not bound requests a second by themselves.
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

// String is short and stable: "token_bucket 10/s burst 20".
func (l Limit) String() string { return describe(l) }

// RetryAfter is how a throttle says when to come back.
type RetryAfter string

// The styles of Retry-After.
const (
	// RetrySeconds: whole seconds, rounded up.
	RetrySeconds RetryAfter = "seconds"
	// RetryMillis: whole milliseconds, rounded up, in retry-after-ms.
	RetryMillis RetryAfter = "ms"
	// RetryDate: an HTTP date, rounded up to a whole second.
	RetryDate RetryAfter = "http_date"
	// RetryExact: to the nanosecond, as fractional retry-after-ms.
	RetryExact RetryAfter = "exact"
	// RetryNone: nothing is said. The default.
	RetryNone RetryAfter = "none"
)

// Dialect is whose limit headers a response carries.
type Dialect string

// The dialects.
const (
	HeadersNone      Dialect = "none" // the default
	HeadersGitHub    Dialect = "github"
	HeadersOpenAI    Dialect = "openai"
	HeadersAnthropic Dialect = "anthropic"
	HeadersIETF      Dialect = "ietf"
)

// Throttle is what a refusal looks like.
type Throttle struct {
	// Status is the HTTP status, 400 to 599; default 429.
	Status     int
	RetryAfter RetryAfter
	// RetryAfterFactor multiplies the advertised wait, for a provider that is wrong or
	// uses another unit than the field has (1000: milliseconds in Retry-After). 0, the
	// default, leaves it right.
	RetryAfterFactor float64
	// RetryAfterConstant, if not 0, is advertised whatever the wait is.
	RetryAfterConstant time.Duration
	Headers            Dialect
	// CountsRejected makes refused attempts use up the limit too.
	CountsRejected bool
}

// Penalty blocks a client after a refusal, for longer if it keeps sending.
type Penalty struct {
	// Base is the first block.
	Base time.Duration
	// Factor multiplies the block, at least 1; default 2.
	Factor float64
	// Max bounds the block; default 5m, or Base when that is longer.
	Max time.Duration
	// Forgive is the time without a refusal after a block, after which the next block
	// lasts Base again; default 2m.
	Forgive time.Duration
	// Fixed blocks keep their length: attempts during one are refused and change nothing.
	// Otherwise each such attempt starts a new, longer block.
	Fixed bool
}

// Suspend is when the account is suspended for good.
type Suspend struct {
	// Throttles within Within suspend it.
	Throttles int
	Within    time.Duration
}

// Strangers are unseen users of the same limits: a Poisson stream.
type Strangers struct {
	// Rate is their mean rate, over On and Off.
	Rate Rate
	// On and Off, both or neither, make them come and go: for times of exponential length
	// with these means. While on, they come so much faster that the mean is Rate.
	On, Off time.Duration
}

// Change multiplies every limit from an instant on. Changes add up: 0.5 and
// later 2 is the first limit again.
type Change struct {
	At time.Duration
	// Over spreads the change evenly over this time, in DriftSteps small ones of
	// equal factor; 0, the default, makes it one step.
	Over time.Duration
	// Scale is 1 for a change of the hint alone.
	Scale float64
	// Hint is what the answers recommend from then on, in a bulk workload; 0
	// leaves it as it is. Knee is the same for the batch's Knee.
	Hint, Knee int
}

// DriftSteps is the number of steps that make up a change with [Change.Over].
const DriftSteps = 32

// Steps are all changes, those with Over as their DriftSteps steps.
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

// FaultKind is what goes wrong.
type FaultKind string

// The kinds of fault.
const (
	// Outage: every attempt is answered 503.
	Outage FaultKind = "outage"
	// Slow: latency is multiplied by SlowFactor.
	Slow FaultKind = "slow"
	// Reset: connections are reset when an attempt arrives.
	Reset FaultKind = "reset"
)

// SlowFactor is the factor by which a [Slow] fault multiplies latency.
const SlowFactor = 10.0

// Fault is trouble from At, for For.
type Fault struct {
	At   time.Duration
	For  time.Duration
	Kind FaultKind
}

// Covers says whether the fault is on at an instant: from At inclusive to
// At+For exclusive.
func (f Fault) Covers(now time.Duration) bool { return now >= f.At && now-f.At < f.For }
