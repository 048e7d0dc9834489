// Package api is the daemon's own HTTP interface: quotas to ask for and to
// settle, the rates, runs, gaps and events to look at, health and metrics. The
// command line, the console and programs in any language use this one. It
// answers with the same JSON as "headway ... --json", and with problem+json (RFC
// 9457) when something is wrong; its OpenAPI document is served by itself and
// checked against it.
//
//	POST  /v1/quota/approve      ask for a call; wait_ms to wait for it
//	POST  /v1/quota/usage        settle it with what it used, or cancel it
//	GET   /v1/quota/snapshot     what is left
//	GET   /v1/quota/forecast     when it runs out
//	GET   /v1/quota/statistics   totals (admin)
//	GET   /v1/quota/config       limits (admin)
//	PATCH /v1/quota/config       change them (admin)
//	GET   /v1/events             what happens, as server-sent events
//	GET   /v1/rate, /v1/connections, /v1/schedule, /v1/runs[/{id}], /v1/gaps[/{id}]  (admin)
//	GET   /v1, /v1/openapi.json, /healthz, /readyz, /metrics (admin)
//
// It holds no limits, no keys and no store itself: [Options] hands it all three.
// It is not the proxy (package egress): no provider is called from here.
//
// An [API] is safe for concurrent use. Requests are bounded in size and time, a
// stream of events in what it may hold and how slow it may be read. It makes no
// goroutine of its own; closing the hub of events ends the streams.
package api
