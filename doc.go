// Package headway goes as fast as an API you do not own lets you, never faster.
//
// A [Governor] holds the rate of one connection: a provider plus one
// credential. [Governor.Acquire] waits for leave to send one attempt and gives
// a [Permit]; [Permit.Settle] says how the attempt ended, and the next
// interval follows from that. Package transport does both for any http.Client
// in one line; use the Governor itself for whatever is not HTTP.
//
//	permit, err := g.Acquire(ctx)
//	if err != nil {
//		return err // a *headway.Refusal: why, and when to come back
//	}
//	res, err := send()
//	permit.Settle(headway.Outcome{Class: classify(res, err)})
//
// [Connections] keeps one Governor for each of many connections; nothing that
// happens to one slows another.
//
// Do not put a Governor in front of a service of your own: it knows its load, so a
// queue there is better than a guess here.
//
// A Governor is safe for concurrent use. Acquire and Settle read the clock once
// each and do not allocate when there is nothing to wait for; no user code runs
// under a lock. It starts no goroutine.
//
// Stability: stable.
package headway
