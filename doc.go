// Package headway goes as fast as an API you do not own lets you, never faster.
//
// A [Governor] paces one connection: a provider plus one credential. [Governor.Acquire]
// waits until one attempt may be sent and returns a [Permit]; [Permit.Settle] reports how
// the attempt ended, which determines the next interval. Package transport does both for
// any http.Client in one line; use the Governor itself for anything that is not HTTP.
//
//	permit, err := g.Acquire(ctx)
//	if err != nil {
//		return err // a *headway.Refusal: why, and when to come back
//	}
//	res, err := send()
//	permit.Settle(headway.Outcome{Class: classify(res, err)})
//
// [Connections] keeps one Governor for each of many connections; what happens to one
// never slows another.
//
// Do not put a Governor in front of a service of your own: the service knows its load, so
// a queue there works better than a guess here.
//
// A Governor is safe for concurrent use. Acquire and Settle read the clock once each and
// do not allocate when there is nothing to wait for. No user code but the methods of a
// [Budget] runs under its lock. It starts no goroutine.
//
// Stability: stable.
package headway
