// Package collect runs a collection: it walks a connector's streams, page by
// page, at the speed that the governor finds. No record is lost if it is interrupted.
//
// A page with the details of its items is a slice, the unit of commit: its
// records are durable in the sink before its cursor moves, and cursor, known
// items and gaps become durable together. After a crash at most the slice in flight is
// requested again. Pages that arrive faster than they can be committed one by one share
// a slice of at most 50 ms. A detail that could not be fetched is stored as a [Gap]
// with its reason.
//
// A run holds a lease on its connection; a second run fails at once with a
// [HeldError]. The provider's pressure and the owner's caps end a run as deferred,
// never as failed, and the next run continues there.
//
// Use package transport alone when the data does not have to be complete.
//
// A [Collector] does one run at a time; [Collector.Live] may be called from any
// goroutine while it runs. This package declares the [Store] and [Sink] that it needs;
// other packages implement them.
//
// Stability: settling.
package collect
