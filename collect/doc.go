// Package collect runs a collection: it walks a connector's streams, page by
// page, at the speed that the governor finds, and loses nothing on the way.
//
// A page with the details of its items is a slice, the unit of commit: its
// records are durable in the sink before its cursor moves, and cursor, known
// items and gaps become durable together. Kill the process at any instruction:
// at most the slice in flight is asked for again. Pages that come faster than they
// can be committed one by one share a slice, of at most 50 ms. What could not be
// fetched is a durable [Gap] with its reason.
//
// A run has a lease on its connection; a second one yields at once
// ([HeldError]). Pressure of the provider and caps of the owner end a run as
// deferred and resumable, never as failed.
//
// Use package transport alone when the data does not have to be complete.
//
// A [Collector] is for one run at a time; [Collector.Live] may be called from
// any goroutine while it runs. The [Store] and [Sink] are the consumer's side
// of the durable state and declared here.
//
// Stability: settling.
package collect
