// Package egress is a proxy in front of the providers that a program calls: the
// program changes its base URL to http://here/{provider}. Its calls then wait for quota
// and pace instead of being answered with 429. Paths, bodies and streams are unchanged.
//
// # What happens to a call
//
//	/openai/v1/chat/completions
//	  accept        the first segment names the provider; only configured ones exist
//	  authenticate  a Headway key is exchanged for the provider's
//	  parse         the body, bounded in size, of a call that costs tokens
//	  estimate      the usage, by a tokenizer and earlier usage of the model
//	  approve       by the quota and by the connection's pacing, waiting up to MaxWait
//	                or the client's own deadline
//	  send          upstream, with the provider's key
//	  relay         the answer, flushed as it arrives
//	  settle        both permits, once, after the last byte
//
// Each stage is a file. The stages from approve to settle are one attempt, which may be
// retried (attempt.go). A [CallLog] records the call (calllog.go). A refusal has the form of
// the provider's own errors (refuse.go). address.go rewrites URLs in answers, and watch.go
// ends attempts that stall.
//
// A call that cannot be served in time is refused at once, with 429, Retry-After
// and the RateLimit fields, in the form that the provider's own SDK reads. Answers of the
// provider are passed on, errors and throttles included. Throttles also slow the pacing down.
//
// # What is charged
//
// A call is charged the usage that the provider reports. If the answer breaks off before
// that, the call is charged the reported or estimated input and the output that was relayed.
// A call that the provider refused counts as a call with no tokens. A call that never reached
// the provider does not count. Each retry ([Provider].Retries) is approved and charged. The
// output of a stream is charged while it is relayed.
//
// # Why not httputil.ReverseProxy
//
// Permits must be settled exactly once and with the right figures, however a call ends: by
// a complete answer, a client that goes away, a broken connection, a stalled body or a
// shutdown. With RoundTrip and our own copy loop, one place handles every ending, time
// upstream is bounded, and the loop that flushes bytes also counts them.
//
// # What does not pass
//
// Requests to a proxy (CONNECT, absolute URLs), paths with dot segments, WebSocket,
// and bodies of calls that cost tokens in a compression other than gzip. The provider's
// description lists the header fields that are passed in each direction. Cookies,
// X-Forwarded-For and Headway keys never go upstream, nor does the client's credential if
// [Provider].Key is set. Calls that cost tokens
// ask for an uncompressed answer, so that their usage can be read; no answer is decompressed
// on its way. Redirects are not followed. A Location on the upstream, or another URL that
// clients follow with their key, is rewritten to lead through the proxy, without keys in its
// query. Such a URL of another host is removed.
// Informational responses (1xx) are not passed on.
//
// # Time
//
// A call holds its permits as long as it streams, at most [Provider].CallTimeout.
// [New] refuses a quota whose permits expire earlier, since the usage of a longer call would
// be lost. The PermitTimeout of a pacing governor should not be shorter either, or more calls
// than its MaxInFlight may run.
//
// Do not use it as a general reverse proxy, nor behind http.ServeMux, which
// cleans paths. A [Proxy] is safe for concurrent use. Besides those of net/http, it starts
// one goroutine, for at most ten seconds, for each key whose limits it requests before the
// first call. It works in a testing/synctest bubble.
//
// Stability: settling.
package egress
