// Package governor runs package quota in a process: it adds the clock, the lock, the
// timer, the waiting, the log and the storage across restarts that the pure state machine
// lacks. It approves calls for many goroutines, and lets calls wait that can be served in
// time.
//
// Events due by time alone (the end of a throttle, a new day, an expired permit, a grant)
// happen on time without a call: one timer is set for the earliest of them. Nothing
// polls.
//
// With a [Store], daily use survives a restart. The store never holds less than what was
// approved: before an approval exceeds what is stored for one of its scopes, the use is
// saved plus a lease of a quarter of what this process used, at most a 64th of the daily
// cap, and nothing in the first saves. So most approvals need no write, and a killed
// process forgets no use; it loses the unused rest of its lease until the next day.
// [Governor.Close] stores the exact use. If the store fails, approvals that need it are
// refused.
//
// To pace one connection use the root package. To try limits in virtual time use package
// quota.
//
// A [Governor] is safe for concurrent use. Subscribers are called one event at a time, in
// order, and outside the lock. Time is monotonic; a change of the wall clock is noticed
// at the next call or timer, and days only go forward.
//
// Stability: stable.
package governor
