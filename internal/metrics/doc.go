// Package metrics shows a daemon's state to Prometheus: calls through the
// proxy, quotas, the pacing of connections, and collections. It only reads; what
// nobody knows yet has no sample rather than a zero.
//
// Labels are bounded: models and tenants come from outside, so that only the
// first [MaxModels] and [MaxTenants] of a provider get series of their own, and
// the rest is counted under [Others]. No credential, address or content is ever
// a label.
//
// Calls are counted as they end ([Metrics.Call], which takes no lock across user
// code); everything else is read when Prometheus asks. Safe for concurrent use.
// Time is real. For single calls in order, take the events or traces instead.
package metrics
