// Package sqlite is the default [collect.Store]: it keeps the state of connections in one
// SQLite file and needs no server.
//
// Use it for one machine. Several processes may open the same file at once,
// but the file must be on a local disk: SQLite's write-ahead log does not work
// over network file systems. It is state, not a destination for records.
//
// # Durability
//
// The store uses a write-ahead log with synchronous=FULL. When a method returns nil, its
// change survives SIGKILL and power loss. When it returns an error it has changed nothing,
// with one exception that no store can avoid: if the disk fails while it confirms a
// commit, the change is there in full or not at all, and [Store.Load] shows which.
//
// # Leases
//
// A connection's lease is a row with a token. [Store.Acquire] increments the token in the
// transaction that takes the connection, and each write checks in its own transaction that
// its token is the current one:
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
// An expired lease is not lost by itself: a holder whose renewal was late, for example
// since the machine was suspended, may continue if no other holder has taken the
// connection. The token decides, not the clock, so two holders can never both commit.
//
// The lease of a process that died on this machine is taken over at once: each lease has
// a lock file beside the store, and the system releases its lock with the process. On a
// file system without such locks, the next holder waits until the lease expires.
//
// # Concurrency and time
//
// All methods are safe for concurrent use, also by several processes. The writes of one
// [Store] run one after another. Reads have their own connections and do not wait. A write
// waits up to 10 s for another process's write, or until its context ends. Once its
// transaction has begun, a write is not canceled.
//
// Times come from the caller, except that the read side uses the clock to find out whether
// a lease has expired.
//
// Stability: settling.
package sqlite
