// Package sqlite keeps the state of connections in one SQLite file: the
// default [collect.Store], with nothing to install or to run beside it.
//
// Use it for one machine. Several processes may open the same file at once,
// but the file must be on a local disk: SQLite's write-ahead log does not work
// over network file systems. It is state, not a destination for records.
//
// # Durability
//
// The journal is a write-ahead log with synchronous=FULL. A method that
// returned nil is on disk: it survives SIGKILL and power loss. A method that
// returned an error has changed nothing, with one exception that no store can
// avoid: when the disk fails while it confirms the commit, the change is
// there whole or not at all, and [Store.Load] tells which.
//
// # Leases
//
// A connection's lease is a row with a token. [Store.Acquire] raises the token
// in the transaction that takes the connection, and each write checks in its
// own transaction that its token is still the current one:
//
//	stateDiagram-v2
//	    [*] --> free
//	    free --> held: Acquire (token + 1)
//	    held --> held: Renew, Commit, Forget
//	    held --> expired: time passes
//	    expired --> held: Renew, late
//	    expired --> held: Acquire by another (token + 1, the old run is abandoned)
//	    held --> free: Finish
//	    expired --> free: Finish, late
//
// Expiry alone takes nothing away: a holder whose renewal was late, for a
// pause of the machine, may go on as long as nobody has taken the connection
// over. The token decides, never the clock, so two holders can never both
// commit.
//
// A holder whose process died on this machine need not be waited for: each
// lease has a lock file beside the store, which the system unlocks with the
// process, and a lease whose lock is free is taken over at once. Where there
// are no such locks the lease is waited for until it expires.
//
// # Concurrency and time
//
// All methods are safe for concurrent use, also by several processes. Writes
// of one [Store] take turns; reads use connections of their own and wait for
// nobody. A write waits up to 10 s for another process's write, less when its
// context ends. Once a write has begun its transaction it runs to its end,
// whatever happens to its context.
//
// Instants come from the caller, except that the read side asks the clock
// whether a lease is alive.
//
// Stability: settling.
package sqlite
