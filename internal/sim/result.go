package sim

import "encoding/json"

// Result is what came of a run. Its JSON has these fields in this order; what
// is unknown, or has no meaning for the scenario, is null and never 0.
type Result struct {
	// Scenario, Law and Seed are what was run.
	Scenario string `json:"scenario"`
	Law      string `json:"law"`
	Seed     uint64 `json:"seed"`
	// HorizonS is how long it lasted, in seconds.
	HorizonS float64 `json:"horizon_s"`
	// Attempts reached the provider before the horizon. They are the sum of
	// Admitted, Throttled and those that met a fault or a suspension.
	Attempts int64 `json:"attempts"`
	// Admitted were served.
	Admitted int64 `json:"admitted"`
	// Throttled were refused by a limit or by the block of a penalty. An
	// outage, a reset and a suspension are not throttles.
	Throttled int64 `json:"throttled"`
	// ThrottledPer1000 is Throttled for each 1000 admitted; null when none was
	// admitted.
	ThrottledPer1000 *float64 `json:"throttled_per_1000"`
	// GoodputRatio is Admitted as a part of what the [Oracle] is admitted, at
	// most 1; null when the oracle gets nothing.
	GoodputRatio *float64 `json:"goodput_ratio"`
	// TimeTo90PctS is the first whole second at which the clients were admitted,
	// over the trailing window, at least 90 % of what the oracle was over the
	// same window; null when that never happened. The window is 10 s, or the
	// longest window of the limits, or the time in which the oracle is admitted
	// 20 on average, whichever is longest; it begins no earlier than the run. A
	// window in which the oracle gets nothing says nothing.
	TimeTo90PctS *float64 `json:"time_to_90pct_s"`
	// LongestBlockS is the longest time in which no client was admitted though
	// one of them had work, in seconds: from the last admission, the arrival of
	// work after idling or the start, until the next admission or the horizon.
	LongestBlockS float64 `json:"longest_block_s"`
	// WaitP50MS and WaitP99MS are percentiles, by nearest rank, of how long work
	// waited until the provider admitted it, in milliseconds: from its arrival
	// (open), or from when it was next in line (backlog), over all its attempts;
	// null when nothing was admitted.
	WaitP50MS *float64 `json:"wait_p50_ms"`
	WaitP99MS *float64 `json:"wait_p99_ms"`
	// Suspended is whether the provider suspended the account: the run has failed.
	Suspended bool `json:"suspended"`
	// ThrottlesPerChange is the mean number of throttles in the 5 minutes after
	// a change of the limits (of one that takes a time: during it and in the 5
	// minutes after), or until the next change when that is sooner;
	// null without changes.
	ThrottlesPerChange *float64 `json:"throttles_per_change"`
	// StrangersHarm is how many more strangers were refused than if the clients
	// had not been there, at least 0; null without strangers.
	StrangersHarm *int64 `json:"strangers_harm"`
	// CeilingViolations counts attempts that left less than the ceiling after
	// the one before, under the same ceiling. The ledger counts them itself,
	// from the instants alone.
	CeilingViolations int64 `json:"ceiling_violations"`
	// FairnessJain is Jain's index of the clients' admissions, from 1/n to 1;
	// null for a single client and when nothing was admitted.
	FairnessJain *float64 `json:"fairness_jain"`
	// Belief is what the law of the first client, or of the fleet, holds the
	// limit to be at the end; null for a law that holds no belief.
	Belief *Belief `json:"belief"`

	// Notes say what of the scenario had no effect, in a sentence each.
	Notes []string `json:"notes,omitempty"`

	// Blocks is how many blocks of a penalty began, and BlocksPushed in how many of
	// those another attempt was refused.
	Blocks       int64 `json:"-"`
	BlocksPushed int64 `json:"-"`
	// Trace is the course of the run; nil unless it was asked for.
	Trace *Trace `json:"-"`
}

// Belief is what a law thinks that it faces.
type Belief struct {
	// Kind is the kind of limit, in the words of scenario.Kind.
	Kind string `json:"kind"`
	// Limit is its size, in attempts a window; 0 when it is not known.
	Limit float64 `json:"limit"`
	// WindowS is the length of its window in seconds; 0 for a limit without one.
	WindowS float64 `json:"window_s"`
	// Confidence is from 0 to 1.
	Confidence float64 `json:"confidence"`
}

// JSON is the result as indented JSON with a newline at its end: the same bytes
// for the same result.
func (r *Result) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}
