// Package sqlite writes records into SQLite, one table a stream. There are no
// duplicates and no gaps, whenever the process dies.
//
// [Sink] writes into the file of a store/sqlite store, in the very transaction that
// moves the cursor. [File] writes into a file of its own, in two steps: a slice is
// durable beside the tables before its cursor is committed, and in them after.
//
// Use it to ask questions of what was collected in SQL. Use sink/jsonl to have
// each version of a record, and sink/parquet for analytics over many files.
// With [Sink] the store must be a store/sqlite one; with another the first commit
// is an error. [File] goes with any.
//
// # Tables
//
// A table has its stream's name. A name that is a table of the store's, begins
// with sqlite_ or headway_, or ends in _bak, is refused by [Sink.Open]. A list
// stream's primary key is _key; a detail stream's is (_parent, _key). A record
// that comes again replaces its row: what it no longer has becomes NULL.
//
// A row of a detail whose record the provider no longer lists stays, and its
// column _headway_deleted_at has the instant at which that was noticed; NULL is
// a record that is there. The column appears with the first such row.
//
// Each top-level field of the records has a column of its name, which appears
// with the first record that has a value for it. Columns have no type that
// could change a value (they are ANY of a STRICT table), so that a column that
// began with integers takes reals and texts as they come:
//
//	JSON                    column
//	integer of 64 bits      INTEGER
//	other number            REAL when that is exact, else its digits as TEXT
//	string                  TEXT
//	true, false             INTEGER 1, 0
//	array, object           its JSON as TEXT
//	null, or not there      NULL
//
// # Nothing is dropped
//
// The column _rest is NULL, or a JSON object with those fields of the record
// that their columns cannot give back as they were: nulls; numbers that are too
// large or too precise; values of another kind than the column's when the
// column holds booleans, arrays or objects, or when they are such values and
// the column holds others; and fields that have no column because their name
// differs from another's only in case, is one of ours or SQLite's (rowid, oid,
// _rowid_), is longer than 100 bytes, is empty or has a control character, or
// because the table has 1,000 columns of fields. A field in _rest counts over its column. Of a name
// that a record has twice, the last value counts.
//
// A record that is not an object has its JSON in the column _value.
//
// The table headway_columns says which columns hold booleans or JSON (kind
// boolean, json; all others are plain); headway_tables says which connection a
// table belongs to. So each record can be read back as it was.
//
// # Starting over
//
// [Sink.SetAside] touches nothing by itself. The first commit with records
// after it renames this connection's tables to NAME_TIME_bak, in the same
// transaction that writes the first new rows.
//
// # Limits
//
// The records of one slice wait in memory for its commit, as compact JSON, at
// most 256 MiB. A Sink or File is not safe for concurrent use; it reads no clock. A
// Sink opens no file.
//
// Stability: settling.
package sqlite
