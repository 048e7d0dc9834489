// Package fairqueue decides who goes next of those who wait for a shared limit:
// the greater priority first; then the flow that was served least for its weight;
// then who came first. A flow is what shares are given to, such as a tenant.
//
// The queue does not know what an item waits for. [Queue.Next] asks its caller, who
// tries the item against pacing and budgets. Nobody overtakes on a budget that
// somebody before them waits for.
//
// The order within a priority is start-time fair queueing (Goyal, Vin and Cheng,
// 1996). Each flow has two tags. The near tag forgets: a flow that was away has saved
// nothing up. The far tag remembers, until nobody waits and the budgets are full
// again, so that a flow that took more than its share of a burst gives it back. Picks
// go by the near and the far tag in turn, so that giving back takes no more than half.
//
// A [Queue] has no clock, lock or goroutine. Instants are durations since an origin
// that the caller chooses. It allocates nothing once it has held as many items and
// flows as it holds now, and it computes with integers only, so that the same calls
// give the same order on every machine.
package fairqueue
