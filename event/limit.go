package event

import "time"

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
