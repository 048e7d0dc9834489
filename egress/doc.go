// Package egress is a proxy in front of the providers that a program calls: the
// program changes its base URL to http://here/{provider}, and its calls then wait
// their turn within the quotas, at the pace that the provider allows, instead of
// being answered with 429. Paths, bodies and streams are the provider's own.
//
// # What happens to a call
//
//	/openai/v1/chat/completions
//	  accept        the first segment names the provider; only configured ones exist
//	  authenticate  a Headway key is exchanged for the provider's
//	  parse         the body, bounded, if it is one that costs tokens
//	  estimate      what it will use, by a tokenizer and what the model used before
//	  approve       by the quota and by the connection's pacing, waiting up to MaxWait
//	                or the client's own deadline
//	  send          upstream, with the provider's key
//	  relay         the answer, with everything flushed as it comes
//	  settle        both permits, once, when the last byte is through
//
// Each of these is a file. From approve to settle is one attempt, which may be made
// again (attempt.go); how the call went is a [CallLog] (calllog.go); and a stage that
// refuses answers in the provider's words (refuse.go). What relay needs to rewrite
// addresses and to notice silence is in address.go and watch.go.
//
// A call that cannot be served in time is refused at once, with 429, Retry-After
// and the RateLimit fields, in the words that the provider's own SDK reads. What
// the provider itself answers, errors and throttles included, is passed on; those
// also slow the pacing down.
//
// # What is charged
//
// A call is charged what the provider says that it used. When the answer broke
// off before it said so, it is charged what was seen: the input as reported or
// estimated, and the output that flowed. A call that the provider refused counts
// as a call of no tokens; one that never reached the provider does not count. An
// attempt that is sent again ([Provider].Retries) is approved and charged again.
// The output of streams is charged as it flows, not at the end.
//
// # Why not httputil.ReverseProxy
//
// Permits have to be settled once, and with the right figures, however a call
// ends: by its end, the client's going away, a connection that breaks, a body
// that stalls, a shutdown. With RoundTrip and a loop of our own every ending is
// one place in this code, the upstream is bounded in time, and bytes are counted
// on the same pass that flushes them.
//
// # What does not pass
//
// Requests to a proxy (CONNECT, absolute URLs), paths with dot segments, WebSocket,
// and bodies of calls that cost tokens in another compression than gzip. Which
// header fields go upstream and which come back, the provider's description says:
// no cookie, no credential of the client, no X-Forwarded-For, and no Headway key,
// wherever the client put it. Calls that cost tokens are asked for without
// compression, so that their usage can be read; no answer is ever decompressed.
// Redirects are not followed: a Location on the upstream itself, and any other
// address that clients follow with their key, is rewritten to lead back through the
// proxy, without keys in its query; one that leads elsewhere is taken out.
// Informational responses (1xx) are not passed on.
//
// # Time
//
// A call holds its permits as long as it streams, at most [Provider].CallTimeout.
// A quota whose permits live shorter is refused, since what a longer call used
// would be forgotten; the PermitTimeout of a pacing governor should not be
// shorter either, else places in flight are given out twice.
//
// Do not use it as a general reverse proxy, nor behind http.ServeMux, which
// cleans paths that a provider wants as they are. A [Proxy] is safe for
// concurrent use. Beyond those of net/http it starts one goroutine, for ten seconds at
// most, for each key whose limits are asked for before its first call, and works in a
// testing/synctest bubble.
//
// Stability: settling.
package egress
