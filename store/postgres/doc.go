// Package postgres keeps the state of connections in a PostgreSQL database (15 or
// newer): a [collect.Store] for several machines, or where a database is at hand.
//
// Use store/sqlite on one machine: it needs nothing to install and no network. What
// both do is the same, and package storetest is its contract.
//
// # The database
//
// [Open] takes a URL, postgres://user@host:5432/database, or "key=value" words, with
// everything that libpq and pgx understand: PGHOST, PGPASSWORD, PGSERVICE and the other
// variables, a password file, sslmode. The parameter search_path names the schema,
// which Open creates when it does not exist; without it the user's own comes
// first, as PostgreSQL has it. All tables are named headway_something, so one schema
// takes a store and tables of others. Several stores take a schema each.
//
// A [Store] has at most 8 sessions, or as many as the parameter pool_max_conns says, of
// which one holds leases. Sessions have a statement_timeout and an
// idle_in_transaction_session_timeout of a minute unless the URL says otherwise, and
// a connect_timeout of 10 s. A proxy that shares sessions between transactions does
// not work: leases are locks of a session.
//
// # Durability
//
// A method that returned nil is committed, with whatever the server's own
// synchronous_commit and replication promise. A method that returned an error has
// changed nothing. Where the connection breaks while the server confirms a commit,
// the store asks the server afterwards what became of that very transaction, and never
// repeats it blindly; only a server that stays away for more than a minute leaves that
// open, and then the error says so.
//
// A server that restarts is waited for up to a minute, with whatever the call was
// doing begun again. Open itself does not wait.
//
// # Leases
//
// A connection's lease is a row with a token. [Store.Acquire] raises the token in the
// transaction that takes the connection, and each write checks in its own transaction,
// with that row locked, that its token is still the current one:
//
//	stateDiagram-v2
//	    [*] --> free
//	    free --> held: Acquire (token + 1)
//	    held --> held: Renew, Commit, Forget
//	    held --> expired: time passes
//	    expired --> held: Renew, late
//	    expired --> held: Acquire by another (token + 1, the old run is abandoned)
//	    held --> dead: the holder's session ends
//	    dead --> held: Acquire by another, at once
//	    held --> free: Finish
//	    expired --> free: Finish, late
//
// A lease expires by the server's clock. Instants that callers give are brought to it:
// each Acquire and Renew compares the two clocks, as far as the time for an answer
// allows, so that machines whose clocks differ agree when a lease ends.
//
// The holder's session also has an advisory lock. The server gives it back when the
// process dies, or its machine's network says so, and then the lease is taken over
// without waiting. A server that was restarted since has forgotten all locks, and the
// lease is waited for.
//
// # Concurrency and time
//
// All methods are safe for concurrent use, also by several processes. Writes of one
// connection take turns; those of different connections, and reads, wait for nobody.
// A read sees one snapshot.
//
// Stability: experimental.
package postgres
