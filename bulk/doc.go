// Package bulk loads rows into an API as fast as the provider allows, and records the
// outcome of every row.
//
// [Run] reads a [Source], groups rows into batches and sends them to a [Target], with a
// parallelism that follows the provider's recommendations and refusals. Each row ends as
// one of: acknowledged; rejected, with the server's error, in a file that can be corrected
// and loaded again; uncertain, if it may have been written and must not be sent twice; or
// owed, in the journal. A load that was stopped or killed can be resumed with the same
// folder.
//
// Package source reads formats, and package target sends to providers. [Controller] is the
// parallelism law alone, for programs that send batches themselves.
//
// To collect data from an API use package collect. Bulk is not for requests whose
// responses matter: it records only whether a row was accepted.
//
// One goroutine owns the state of a load, another reads the source, and each batch is sent
// by its own goroutine. Memory depends on the rows in flight, not on the size of the
// input. Times are monotonic.
//
// Stability: settling.
package bulk
