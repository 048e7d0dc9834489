// Package governor runs package quota in a process: it adds the clock, the lock,
// the timer, the waiting, the log and the memory across restarts that the pure
// machine does without. It answers "may this call be made now?" for many
// goroutines, and lets those wait who can be served in time.
//
// What happens by itself (an episode of throttle that ends, a day that turns, a
// permit that expires, a waiter whose turn it is) happens on time with nobody
// asking: one timer is set for the earliest of all scopes. Nothing polls.
//
// Daily use survives a restart when there is a [Store]. The store never holds
// less than what was handed out: before an approval leaves that goes beyond
// what is stored for one of its scopes, the store gets the use and a lease on
// top: a quarter of what this process used, at most a 64th of the daily cap, and
// nothing in the first saves. So most approvals cost no write, and a process that
// is killed forgets nothing; it loses the unused rest of its lease until the day
// turns. [Governor.Close] stores the exact
// use. When the store fails, what needs it is refused.
//
// Do not use it to pace one connection; that is the root package. To try limits
// in virtual time, use package quota itself.
//
// A [Governor] is safe for concurrent use. Subscribers are called one event at a
// time, in order, and outside the lock. Time is monotonic; that the wall clock
// was set is noticed at the next call or timer, and days only go forward.
//
// Stability: stable.
package governor
