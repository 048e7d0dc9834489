// Package sqlite writes records into SQLite, one table for each stream. Records are
// neither lost nor duplicated if the process is killed.
//
// [Sink] writes into the file of a store/sqlite store, in the transaction that moves the
// cursor. [File] writes into its own file in two steps: a slice is staged durably before
// its cursor is committed, and applied to the tables after.
//
// Use it to query records in SQL. Use sink/jsonl to keep every version of a record, and
// sink/parquet for analytics over many files. A [Sink] works only with a store/sqlite
// store; with another the first commit fails. A [File] works with any store.
//
// # Tables
//
// A table has its stream's name. [Sink.Open] refuses a name that is a table of the
// store, begins with sqlite_ or headway_, or ends in _bak. The primary key is _key for a
// list stream and (_parent, _key) for a detail stream. A new version of a record replaces
// its row; fields that it no longer has become NULL.
//
// When the provider deletes a detail record, its row stays, and the column
// _headway_deleted_at holds the time at which the deletion was noticed. For other rows it
// is NULL. The column is added with the first such row.
//
// Each top-level field of the records has a column of its name, which is added with the
// first record that has a value for it. The columns have the type ANY in a STRICT table,
// which never changes a value, so that a column of integers also takes reals and texts:
//
//	JSON                    column
//	integer of 64 bits      INTEGER
//	other number            REAL if that is exact, otherwise its digits as TEXT
//	string                  TEXT
//	true, false             INTEGER 1, 0
//	array, object           its JSON as TEXT
//	null, or missing        NULL
//
// # Values that do not fit
//
// The column _rest is NULL, or a JSON object with the fields of the record that cannot be
// restored from their columns:
//
//   - nulls
//   - numbers that are too large or too precise
//   - booleans, arrays and objects in a column of another kind, and other values in a
//     column of booleans, arrays or objects
//   - fields without a column, because the name differs from another one only in case, is
//     reserved by this package or by SQLite (rowid, oid, _rowid_), is longer than 100
//     bytes, is empty or has a control character, or because the table has 1,000 columns
//
// A field in _rest takes precedence over its column. If a record has a name twice, the
// last value counts. A record that is not an object has its JSON in the column _value.
//
// The table headway_columns holds the kind of each column (boolean, json or plain), and
// headway_tables the connection of each table. So each record can be read back exactly.
//
// # Starting over
//
// [Sink.SetAside] changes nothing itself. The first commit with records after it renames
// this connection's tables to NAME_TIME_bak, in the transaction that writes the first new
// rows.
//
// # Limits
//
// The records of one slice are kept in memory until its commit, as compact JSON, at most
// 256 MiB. A Sink or File is not safe for concurrent use. It reads no clock. A Sink opens
// no file.
//
// Stability: settling.
package sqlite
