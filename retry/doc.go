// Package retry answers whether a failed attempt may be tried again and how
// long to wait first: full-jitter exponential backoff, and a retry budget for a
// whole run, so that a provider in trouble is not sent a multiple of its load.
//
// It does not decide which failures are worth a retry (reason.Class.Retryable
// does) and does not wait. Randomness is passed in. A [Budget] is a plain value,
// not safe for concurrent use: its owner holds a lock. All verbs take constant
// time and do not allocate.
//
// Sources: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog,
// 2015; the retry token bucket of the AWS SDKs' standard mode.
//
// Stability: stable.
package retry
