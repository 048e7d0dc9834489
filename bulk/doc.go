// Package bulk loads rows into somebody else's API as fast as it lets itself be
// loaded, and accounts for every row.
//
// [Run] reads a [Source], groups rows into batches and sends them to a [Target]
// with a parallelism that follows what the provider recommends and what it
// refuses. Each row ends in exactly one of: acknowledged; rejected, with the
// server's error, in a file that can be corrected and loaded again; uncertain,
// when it may have been written and writing it twice would make two; or owed, in
// the journal. A load that was stopped, or killed at any instruction, goes on
// with the same folder.
//
// Packages source and target know formats and providers, and this package is the
// shell with the goroutines. [Controller] is the parallelism law alone, for
// programs that send batches of their own.
//
// It is not for collecting (package collect), and not for calls whose answers
// matter: it keeps only whether a row was taken.
//
// One goroutine owns the state of a load; sources are read by one other, and
// batches are sent by one each. Memory is bounded by the window in flight and not
// by the input. Instants are monotonic.
//
// Stability: settling.
package bulk
