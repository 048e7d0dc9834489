// Package journal keeps, in a folder, what became of every row of a bulk load,
// so that a load that ended at any instruction goes on where it was.
//
// The folder holds the journal itself (append-only lines, each with a checksum),
// the rejected rows with their errors, the rows of which nobody knows whether
// they were written, and a lock that ends with its process. [Open] starts or
// resumes a load, [Journal.Write] makes entries durable, [Read] looks at a folder
// without the lock.
//
// Rows are settled in this order: their lines are written to the side files and
// synced, then the entry that counts them is. What a side file holds beyond what
// the journal counts is of an entry that never became durable; opening sets it
// aside. When the journal has grown to several times what it says, it is
// rewritten beside itself and renamed.
//
// A journal that ends in the middle of a line was cut off by a crash and is read
// to the last whole line. One that is damaged before its end is an error: it is
// not guessed what it said.
//
// It is not for the state of a collection (package store is). A Journal is safe
// for concurrent use. It reads no clock.
package journal
