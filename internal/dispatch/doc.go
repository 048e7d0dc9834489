// Package dispatch decides what a bulk load does next: which rows go into a
// batch, which identity sends it and when, and what becomes of each row once the
// batch has come back.
//
// [Core] is a state machine that is stepped with instants. Rows are offered to
// it, [Core.Next] says what to do now (send this batch, or wait, or done), and
// [Core.Settle] takes the outcome of a batch and gives every row of it exactly
// one [Fate]. A finished batch frees its place at once; there are no rounds.
//
//	rows ──Offer──▶ fresh ──Next: send──▶ in flight ──Settle──▶ acknowledged
//	                           ▲                        ├─────▶ rejected
//	                           └──── again ◀────────────┤
//	                                                    ├─────▶ uncertain
//	                                                    └─────▶ owed
//
// Each identity (a credential) has a parallelism law, a breaker and a
// Retry-After gate of its own; work goes to the one with the most free places.
// Where the server budgets execution time, an identity also adds up what it
// spent in the window, and holds a batch back that would not fit: the level
// alone makes the mean fit, not the sum.
// Batches grow or shrink towards a target time ([Sizer]). What waits is bounded:
// [Core.Full] says when to stop reading.
//
// The core does no I/O and holds no row's content: it knows a row's number and
// size. So package bulk runs it over files and HTTP, and the simulator in virtual
// time. Do not use it for requests that do not carry rows: the facade's governor
// paces those.
//
// A core is not safe for concurrent use; one goroutine owns it. Instants are
// durations since an origin that the caller fixes. Its random numbers come from
// a seed, so that a seed repeats a run.
package dispatch
