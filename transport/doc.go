// Package transport governs any http.Client: it paces every attempt, honours
// Retry-After once, retries what is worth it within a budget and with full
// jitter, and fails at once while the circuit is open. Everything else passes
// through unchanged, refusals of the provider included.
//
//	client, err := transport.Client(transport.Config{Name: "acme", Ceiling: 100 * time.Millisecond})
//
// From the caller inward an attempt passes: retry, circuit breaker, rate
// limiter, timeout, and then the base transport. Each attempt of a retried
// request is paced and counted by itself.
//
// A request whose attempts were refused or failed gives the provider's last
// response, if there was one; otherwise an error: a *[Refusal] when
// nothing was sent, the base transport's when nothing came back.
//
// Do not put it below a client that retries by itself with its own waits: the
// two would multiply. A Transport is safe for concurrent use.
//
// Stability: stable.
package transport
