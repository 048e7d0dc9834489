// Package serve is a simulated provider in real time, over real HTTP, with
// data behind it: the upstream of quick starts and end-to-end tests. What it
// limits, and how it says so, is the same [provider.Model] that the simulator
// uses.
//
// A [Server] is an http.Handler:
//
//	GET /conversations?limit=&cursor=&updated_after=   a page, oldest change first
//	GET /conversations/{id}                            one, with its messages
//	GET /-/healthz                                     204; never limited
//	GET /-/stats                                       counts as JSON; never limited
//
// A request is checked for its bearer token first, then takes the scenario's
// uplink, meets the limits and faults, and is answered after the scenario's
// latency. Paths that do not exist are limited like any other. A client that
// goes away during the uplink never arrived; one that goes away later has used
// up the limit all the same.
//
// The data are computed from the seed and an index, never stored, so 100,000
// conversations cost no memory. A server that is started again with the same
// seed serves the same data; with more conversations, the new ones have changed
// later than all old ones; with Updated, the oldest have changed again, after
// the newest, and have one more message. So a second start shows what an
// incremental collection picks up. Cursors stay valid between such starts. (With
// more conversations and Updated at the same time, those that were updated
// before have changed once more, without another message.)
//
// Every decision is one JSON line in the log ([Entry], [ReadLog]), written
// before the answer goes out, so that a test can hold what a client says
// against what the provider saw.
//
// What has a language of its own (its keys, what a request weighs, how a refusal
// is said) is mounted as an [API], such as package llm's. With an API mounted, limits of concurrency count what is really under
// way, and are met before the others; they then neither add to penalties nor to
// suspension. An API may give each of its callers the limits alone ([Call].Scope),
// and tell of itself ([Reporter]). Do not expose it to a network that
// is not yours: it is a test double, without TLS or bounds on clients.
//
// A Server is safe for concurrent use. Time is real: its instants are the
// monotonic time since [New], windows follow the wall clock, and it goes on
// after the scenario's horizon. In a testing/synctest bubble all of it is
// virtual.
package serve
