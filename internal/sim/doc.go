// Package sim answers how a control law would fare against a provider, without
// a provider: it runs the production state machine, [pacing.Core], against
// the model in package sim/provider, in virtual time, and compares what it got
// with what a clairvoyant client would have had ([NewOracle]).
//
// [Run] is one scenario under one law, [Compare] many under several,
// [WriteTable] and [WriteSVG] show them. A [Ledger] draws up the same figures
// for clients of any other make, as long as they talk to the same model.
//
// # One run
//
// Each client has a Core of its own, seeded from the run's seed and its place,
// with the scenario's ceiling, initial interval and bound in flight, and with
// the defaults for the rest: the circuit breaker is in place, as in production.
// With `fleet` there is one Core for all of them: it paces the sum, its bound in
// flight is the sum of theirs, and they take turns. A client asks when it has
// something to send, again at the instant that a refusal named, and again after
// every outcome, since that may have changed the answer; it has one question
// pending at most. Work that was refused or met a fault goes back to the head of
// the line; work that was rejected (a suspended account) is dropped, as in
// production.
//
// An attempt reaches the provider after its uplink time. A refusal is back
// after twice that, an admission after its whole latency. Only what reaches the
// provider before the horizon counts, for the client and the oracle alike.
//
// # Bulk loads
//
// [RunBulk], [CompareBulk], [WriteBulkTable] and [WriteBulkSVG] do the same for
// scenarios whose workload is bulk: a number of rows is loaded in batches by
// bulk/dispatch, the core that a real load runs. Each user has a model of the
// provider of its own, since the limits are a user's. What is compared there is
// how many batches are in flight, so the laws are others, "fixed:N" among them,
// and the yardstick is the best of those instead of an oracle.
//
// How long a batch takes is decided when it reaches the provider, from its rows
// and from what is worked on already. Its execution time is charged then.
//
// # Time and chance
//
// Instants are durations since the scenario's start. Nothing here reads a
// clock, sleeps or starts a goroutine. Everything random comes from the seed,
// events of one instant happen in the order in which they were planned, and no
// map is walked: the same scenario, law and seed give the same bytes.
//
// Do not use it to predict a provider whose limits you do not know: it answers
// for the model only. A run is for one goroutine; runs may go side by side.
package sim
