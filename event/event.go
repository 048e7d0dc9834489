// Package event has what Headway reports about itself: changes of a rate, moves of a
// circuit, beginnings and ends of runs. An event is a small value with a type; [Log]
// writes events to a log/slog logger.
//
// Events carry reasons, counts, instants and rates. They never carry a
// credential, header value, body, title or record id.
//
// Stability: stable.
package event

import (
	"time"

	"github.com/headway-go/headway/reason"
)

// Type names what happened.
type Type string

// The types of event.
const (
	// CollectionRate: the interval changed for good.
	CollectionRate Type = "collection_rate"
	// Circuit: the breaker moved.
	Circuit Type = "circuit"
	// WarmStart: a stored interval was restored, or discarded and why.
	WarmStart Type = "warm_start"
	// Phase: the run went on to another phase or stream.
	Phase Type = "phase"
	// Deferral: work was put off as gaps.
	Deferral Type = "deferral"
	// ConnectionChanged: the connection was edited since its last run; Note says
	// how, Count how many items or gaps it concerns.
	ConnectionChanged Type = "connection_changed"
	// Warning: a list does not look as the connection describes it; Note says
	// how, Count how many records it shows in.
	Warning Type = "warning"
	// Fleet: the server of the fleet is away, or back; Note says which, Count how many
	// members there are as far as is known.
	Fleet Type = "fleet"
	// RunStart and RunEnd: a run began or ended.
	RunStart Type = "run_start"
	RunEnd   Type = "run_end"
)

// Event is one thing that happened. Exactly one of the pointers matching its
// Type is set, if the type has details.
type Event struct {
	Seq        int64     `json:"seq,omitempty"`
	At         time.Time `json:"at"`
	Type       Type      `json:"type"`
	Connection string    `json:"connection,omitempty"`
	Run        string    `json:"run,omitempty"`
	// Pool is the part of the connection that the event is about, where that has limits
	// of its own; empty for the whole.
	Pool string `json:"pool,omitempty"`

	// Reason is why, where there is one.
	Reason reason.Reason `json:"reason,omitempty"`

	Rate *Rate `json:"rate,omitempty"`
	// Limits are what is known, with a [CollectionRate].
	Limits  []Limit  `json:"limits,omitempty"`
	Circuit *Breaker `json:"circuit,omitempty"`

	// Stream and Phase say where in a run.
	Stream string `json:"stream,omitempty"`
	Phase  string `json:"phase,omitempty"`
	// Count is how many items the event is about.
	Count int64 `json:"count,omitempty"`
	// Bound is, at the end of a run, what kept it from being faster.
	Bound *Bound `json:"bound,omitempty"`
	// Note is a short text from a fixed set; never content.
	Note string `json:"note,omitempty"`
}

// Rate is the state of a connection's pacing.
type Rate struct {
	CurrentIntervalMS   float64 `json:"current_interval_ms"`
	EffectiveRatePerMin float64 `json:"effective_rate_per_min"`
	// CeilingIntervalMS and CeilingRatePerMin are 0 where the owner set none.
	CeilingIntervalMS float64  `json:"ceiling_interval_ms"`
	CeilingRatePerMin float64  `json:"ceiling_rate_per_min"`
	LastBackoff       *Backoff `json:"last_backoff"`
	// Belief is what the law holds the limit to be; nil when it holds no belief.
	Belief *Belief `json:"belief,omitempty"`
}

// NewRate returns the rate for an interval and its ceiling. A ceiling of 0 means no
// ceiling.
func NewRate(interval, ceiling time.Duration) *Rate {
	r := &Rate{CurrentIntervalMS: Milliseconds(interval), EffectiveRatePerMin: PerMinute(interval)}
	if ceiling > 0 {
		r.CeilingIntervalMS, r.CeilingRatePerMin = Milliseconds(ceiling), PerMinute(ceiling)
	}
	return r
}

// Milliseconds is a duration as events have it.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// PerMinute is the rate, a minute, that an interval stands for.
func PerMinute(interval time.Duration) float64 { return float64(time.Minute) / float64(interval) }

// Belief is a limit that a law has found, or that response headers advertised.
type Belief struct {
	// Kind is token_bucket, fixed_window, sliding_window, concurrency or cost_window.
	Kind string `json:"kind"`
	// Limit is in units a window, or in attempts under way.
	Limit float64 `json:"limit"`
	// WindowS is the window in seconds; 0 for a limit without one.
	WindowS float64 `json:"window_s"`
	// Confidence is from 0 to 1.
	Confidence float64 `json:"confidence"`
}

// Bound is what kept a run from being faster.
type Bound struct {
	// Shares is the part of the run's time, from 0 to 1, by what bound it:
	// "ceiling", "latency" and so on.
	Shares map[string]float64 `json:"shares"`
}

// Backoff is the last time the rate was cut.
type Backoff struct {
	Reason       reason.Reason `json:"reason"`
	AtIntervalMS float64       `json:"at_interval_ms"`
	// At is when.
	At time.Time `json:"at"`
}

// Breaker is one transition of the circuit.
type Breaker struct {
	Previous string `json:"previous_state"`
	State    string `json:"state"`
	Trigger  string `json:"trigger"`
	// ElapsedMS is the time since the run began.
	ElapsedMS int64 `json:"elapsed_ms"`
	// Requests and Retries are the run's counters at that moment.
	Requests int64 `json:"requests"`
	Retries  int64 `json:"retries"`
}

// Limit is one limit on how fast a connection, or a part of it, may go. Events,
// metrics, the daemon's API and the command line show limits as this.
type Limit struct {
	// Kind is token_bucket, fixed_window, sliding_window, concurrency or slowdown.
	Kind string `json:"kind"`
	// Size is how many units a window holds, a bucket gets back in one, or may be
	// under way at once. 0, and absent in JSON, is unknown.
	Size float64 `json:"size,omitzero"`
	// WindowS is the window in seconds; 0, and absent in JSON, where there is none, as
	// for concurrency, or it is unknown.
	WindowS float64 `json:"window_s,omitzero"`
	// Unit is what is counted: requests, tokens, input_tokens, output_tokens, or cost,
	// which is what requests take of a limit whose unit is not known more exactly.
	Unit string `json:"unit"`
	// Pool is what shares the limit: a model, or the provider's name for the limit.
	// Empty for all calls of the connection.
	Pool string `json:"pool,omitempty"`
	// Provenance says who set the limit, or who found it.
	Provenance Provenance `json:"provenance"`
	// Confidence is how sure the limit is, from 0 to 1; 1 for one that the owner set.
	Confidence float64 `json:"confidence"`
}

// Window is WindowS as a duration.
func (l Limit) Window() time.Duration { return time.Duration(l.WindowS * float64(time.Second)) }

// Provenance is where a limit is known from.
type Provenance string

// The provenances.
const (
	// Owner: it is configured.
	Owner Provenance = "owner"
	// Advertised: the provider's responses say so.
	Advertised Provenance = "advertised"
	// Learned: the control law found it.
	Learned Provenance = "learned"
)

// The units of a [Limit].
const (
	UnitRequests     = "requests"
	UnitTokens       = "tokens"
	UnitInputTokens  = "input_tokens"
	UnitOutputTokens = "output_tokens"
	UnitCost         = "cost"
)
