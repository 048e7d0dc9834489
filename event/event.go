// Package event defines the events that Headway reports: rate changes, circuit
// transitions, starts and ends of runs. An event is a small value with a type; [Log]
// writes events to a log/slog logger.
//
// Events carry reasons, counts, instants and rates. They never carry a credential, header
// value, body, title or record id.
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
	// CollectionRate: the sustained interval changed.
	CollectionRate Type = "collection_rate"
	// Circuit: the breaker changed its state.
	Circuit Type = "circuit"
	// WarmStart: a stored interval was restored, or discarded; Note says why.
	WarmStart Type = "warm_start"
	// Phase: the run entered another phase or stream.
	Phase Type = "phase"
	// Deferral: work was deferred as gaps.
	Deferral Type = "deferral"
	// ConnectionChanged: the connection was edited since its last run; Note says how,
	// Count how many items or gaps are affected.
	ConnectionChanged Type = "connection_changed"
	// Warning: a list does not match the connection's description; Note says how, Count
	// how many records are affected.
	Warning Type = "warning"
	// Fleet: the connection to the fleet's server was lost or restored; Note says which,
	// Count is the last known number of members.
	Fleet Type = "fleet"
	// RunStart: a run began.
	RunStart Type = "run_start"
	// RunEnd: a run ended; Reason says why, Bound what limited its speed.
	RunEnd Type = "run_end"
)

// Event is one thing that happened. If the type has details, exactly one of the pointers
// is set, the one that matches Type.
type Event struct {
	Seq        int64     `json:"seq,omitempty"`
	At         time.Time `json:"at"`
	Type       Type      `json:"type"`
	Connection string    `json:"connection,omitempty"`
	Run        string    `json:"run,omitempty"`
	// Pool is the pool that the event concerns; empty for the whole connection.
	Pool string `json:"pool,omitempty"`

	// Reason is the reason, if there is one.
	Reason reason.Reason `json:"reason,omitempty"`

	Rate *Rate `json:"rate,omitempty"`
	// Limits are the known limits, with a [CollectionRate].
	Limits  []Limit  `json:"limits,omitempty"`
	Circuit *Breaker `json:"circuit,omitempty"`

	// Stream and Phase say where in a run it happened.
	Stream string `json:"stream,omitempty"`
	Phase  string `json:"phase,omitempty"`
	// Count is the number of items that the event concerns.
	Count int64 `json:"count,omitempty"`
	// Bound says what limited the speed of a run, at its end.
	Bound *Bound `json:"bound,omitempty"`
	// Note is a short text from a fixed set, never content.
	Note string `json:"note,omitempty"`
}

// Rate is the state of a connection's pacing.
type Rate struct {
	CurrentIntervalMS   float64 `json:"current_interval_ms"`
	EffectiveRatePerMin float64 `json:"effective_rate_per_min"`
	// CeilingIntervalMS and CeilingRatePerMin are 0 if the owner set no ceiling.
	CeilingIntervalMS float64  `json:"ceiling_interval_ms"`
	CeilingRatePerMin float64  `json:"ceiling_rate_per_min"`
	LastBackoff       *Backoff `json:"last_backoff"`
	// Belief is the law's estimate of the limit; nil if it has none.
	Belief *Belief `json:"belief,omitempty"`
	// RefusedForLoad is the part of attempts, from 0 to 1, that is refused for load whatever the
	// pace, so that the law does not slow down for it; 0 while no such refusals are known.
	RefusedForLoad float64 `json:"refused_for_load,omitempty"`
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

// Milliseconds returns a duration in the unit that events use.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// PerMinute returns the rate per minute for an interval.
func PerMinute(interval time.Duration) float64 { return float64(time.Minute) / float64(interval) }

// Belief is a limit that a law has learned, or that response headers advertised.
type Belief struct {
	// Kind is token_bucket, fixed_window, sliding_window, concurrency or cost_window.
	Kind string `json:"kind"`
	// Limit is in units per window, or in attempts in flight.
	Limit float64 `json:"limit"`
	// WindowS is the window in seconds; 0 for a limit without one.
	WindowS float64 `json:"window_s"`
	// Confidence is from 0 to 1.
	Confidence float64 `json:"confidence"`
}

// Bound says what limited the speed of a run.
type Bound struct {
	// Shares is the fraction of the run's time, from 0 to 1, by what limited it:
	// "ceiling", "latency" and so on.
	Shares map[string]float64 `json:"shares"`
}

// Backoff is the last reduction of the rate.
type Backoff struct {
	Reason       reason.Reason `json:"reason"`
	AtIntervalMS float64       `json:"at_interval_ms"`
	// At is when it happened.
	At time.Time `json:"at"`
}

// Breaker is one transition of the circuit.
type Breaker struct {
	Previous string `json:"previous_state"`
	State    string `json:"state"`
	Trigger  string `json:"trigger"`
	// ElapsedMS is the time since the run began.
	ElapsedMS int64 `json:"elapsed_ms"`
	// Requests and Retries are the run's counters at that time.
	Requests int64 `json:"requests"`
	Retries  int64 `json:"retries"`
}

// Limit is one limit on how fast a connection, or a pool of it, may go. Events, metrics,
// the daemon's API and the command line all show limits in this form.
type Limit struct {
	// Kind is token_bucket, fixed_window, sliding_window, concurrency or slowdown.
	Kind string `json:"kind"`
	// Size is how many units a window allows, a bucket regains per window, or may be in
	// flight at once. 0, and absent in JSON, if unknown.
	Size float64 `json:"size,omitzero"`
	// WindowS is the window in seconds; 0, and absent in JSON, if unknown or if there is
	// none, as for concurrency.
	WindowS float64 `json:"window_s,omitzero"`
	// Unit is what is counted: requests, tokens, input_tokens, output_tokens, or cost,
	// which is what requests take of a limit whose unit is not known.
	Unit string `json:"unit"`
	// Pool is what shares the limit: a model, or the provider's name for the limit. Empty
	// for all calls of the connection.
	Pool string `json:"pool,omitempty"`
	// Provenance says who set the limit, or how it was found.
	Provenance Provenance `json:"provenance"`
	// Confidence is from 0 to 1; 1 for a limit that the owner set.
	Confidence float64 `json:"confidence"`
	// Used is how many units are in use, of what this process knows: of a bucket, those
	// that it has not regained yet. nil, and absent in JSON, if that is unknown.
	Used *float64 `json:"used,omitempty"`
	// RoomAt is when there is room for one more attempt; zero, and absent in JSON, if there
	// is room now or if that is unknown.
	RoomAt time.Time `json:"room_at,omitzero"`
}

// Window returns WindowS as a duration.
func (l Limit) Window() time.Duration { return time.Duration(l.WindowS * float64(time.Second)) }

// Provenance says where a limit is known from.
type Provenance string

// The provenances.
const (
	// Owner: the limit is configured.
	Owner Provenance = "owner"
	// Advertised: the provider's responses state it.
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
