// Package breaker is a circuit breaker: it answers whether attempts to a
// provider that keeps failing should fail at once for a while.
//
//	stateDiagram-v2
//	    [*] --> closed
//	    closed --> open: failure_ratio
//	    open --> half_open: open_elapsed
//	    half_open --> closed: probe_succeeded
//	    half_open --> open: probe_failed
//
// It opens when at least Ratio of the last Window outcomes failed, once
// Minimum outcomes are known, so that a cold start cannot open it; the outcome that opens
// it is a failure. After
// OpenFor it lets a bounded number of probes through. Outcomes of attempts that
// were admitted in an earlier state are not counted in a later one.
//
// It does not know what a failure is (the caller says), does not pace and does
// not wait. A rate limit is not a failure: pacing answers that.
//
// A [Breaker] is a plain value; not safe for concurrent use: its owner holds a
// lock. All verbs take constant time and do not allocate. Instants are
// durations since an origin that the caller fixes.
//
// Stability: stable.
package breaker
