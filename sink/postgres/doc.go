// Package postgres writes records into a PostgreSQL database (15 or newer), one table a
// stream. There are no duplicates and no gaps, whenever a process or the server dies.
//
// [Sink] writes into the database of a store/postgres store, in the very transaction that
// moves the cursor. [Database] writes into one of its own, in two steps: a slice is durable
// beside the tables before its cursor is committed, and in them after. [For] chooses.
//
// Use it to have what was collected where others query it. Use sink/sqlite to have it in a
// file, and sink/parquet for analytics over many files.
//
// # Tables
//
// A table has its stream's name. A name that begins with headway_ or pg_, ends in _bak, or
// has more than 63 bytes is refused. A list stream's primary key is _key; a detail stream's
// is (_parent, _key). A record that comes again replaces its row: what it no longer has
// becomes NULL. Columns and indexes that people add are left alone.
//
// A row of a detail whose record the provider no longer lists stays, and its column
// _headway_deleted_at has the instant at which that was noticed; NULL is a record that is
// there.
//
// Each top-level field of the records has a column of its name, which appears with the
// first record that has a value for it, and whose type is that of the values:
//
//	JSON                     type
//	true, false              boolean
//	integer of 64 bits       bigint
//	other number             numeric
//	string                   text
//	array, object            jsonb
//	null, or not there       no column yet; NULL
//
// A column widens when another kind of value comes: bigint to numeric for a number, these
// and boolean to text for a string, to jsonb for an array or object. A column of text, or of
// jsonb, takes all that comes. Where widening is refused, because a view needs the column,
// it stays, and such values are in _rest alone.
//
// # Nothing is dropped
//
// The column _rest is NULL, or the text of a JSON object with those fields of the record
// that their columns cannot give back as they were: nulls; values that are no strings in a
// column of text; strings with NUL or half a surrogate pair; negative zero; numbers with more
// than 1,000 digits; and fields that have no column because their name is one of ours or
// PostgreSQL's, is longer than 63 bytes, is empty or has a control character, or because the
// table has 200 columns of fields. A field in _rest counts over its column. Of a name that
// a record has twice, the last value counts.
//
// A record that is not an object has its JSON in the column _value, a text.
//
// The tables headway_tables and headway_columns say which connection a table belongs to,
// and which columns are fields'. headway_slices says how far each connection has come.
//
// # Starting over
//
// SetAside touches nothing by itself. The first commit with records after it renames this
// connection's tables to NAME_TIME_bak, in the same transaction that writes the first new
// rows.
//
// # Limits
//
// The records of one slice wait in memory for its commit, as compact JSON, at most 256 MiB.
// Keys of more than some 2,700 bytes do not fit into an index and are an error. To widen a
// column, the server writes its table again: one of more than some ten million rows can take
// longer than a statement may, and is then widened by hand. A sink is not safe for
// concurrent use; it reads no clock.
//
// Stability: experimental.
package postgres
