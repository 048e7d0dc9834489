// Package postgres stores the state of connections in a PostgreSQL database (15 or
// newer): a [collect.Store] for several machines, or where a database is already run.
//
// On one machine use store/sqlite, which needs no installation and no network. Both
// behave the same; package storetest is the contract.
//
// # The database
//
// [Open] takes a URL, postgres://user@host:5432/database, or "key=value" words, with
// everything that libpq and pgx understand: PGHOST, PGPASSWORD, PGSERVICE and the other
// variables, a password file, sslmode. The parameter search_path names the schema,
// which Open creates when it does not exist; without it the user's default applies.
// The names of all tables begin with headway_, so a store can share a schema with other
// tables. Each store needs a schema of its own.
//
// A [Store] opens at most 8 sessions, or pool_max_conns of the URL; one of them holds
// the locks of leases. Sessions have a statement_timeout and an
// idle_in_transaction_session_timeout of a minute unless the URL says otherwise, and
// a connect_timeout of 10 s. A proxy that shares sessions between transactions does
// not work, because leases use locks of a session.
//
// # Durability
//
// When a method returns nil its changes are committed, with the guarantees of the
// server's synchronous_commit and replication. When it returns an error it has changed
// nothing. If the connection breaks while the server confirms a commit, the store asks
// the server afterwards whether that transaction was committed, and repeats it only if
// it was not. If the server stays away for more than a minute the outcome is unknown,
// and the error says so.
//
// Calls wait up to a minute for a server that restarts, and then start again. Open does
// not wait.
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
// A lease expires by the server's clock. Each Acquire and Renew compares the caller's
// clock with it, as exactly as the round trip allows, and converts the caller's instants.
// So machines whose clocks differ agree when a lease ends.
//
// The holder's session also has an advisory lock. The server releases it when the
// process dies or its connection is lost, and then another process can take the lease
// over at once. A server that was restarted since has lost all locks; then the lease
// must expire first.
//
// # Concurrency and time
//
// All methods are safe for concurrent use, also by several processes. Writes of one
// connection run one after the other. Writes of different connections do not wait for
// each other, and reads do not wait for writes. A read sees one snapshot.
//
// Stability: experimental.
package postgres
