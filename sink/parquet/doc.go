// Package parquet writes records as Parquet files, one folder for each stream, for
// DuckDB, Spark, pandas and other tools that read columns.
//
// Use it for analytics. Records are appended: an item that changed has several rows, and
// the last one is the newest. For one row per key use sink/sqlite.
//
// When the provider deletes a detail record, a tombstone is appended: a row with the
// _key and _parent of the record, and with the time at which the deletion was noticed in
// the column _headway_deleted_at, which is null in other rows. The columns _headway_key
// and _headway_parent repeat the key; all others are null. If the record comes back, a
// row after the tombstone holds it. Records collected by an earlier version that did not
// store keys get no tombstone; the run's children_gone counts them.
//
//	out/messages/part-000001.parquet
//	out/messages/part-000002.parquet    the last part, which still grows
//	out/messages/.part-000002.jsonl     its spool
//
// Read out/messages/*.parquet by column name (union_by_name in DuckDB, mergeSchema in
// Spark): later parts may have more columns and wider types.
//
// # Parts and spools
//
// A slice often has only a hundred rows, too few for a file. So rows are appended to a
// spool, a hidden file of JSON lines, which each Sync makes durable. A part is made from
// the committed rows of the spool. When the spool has reached 64 MiB, the part is final
// and the next one begins. Before that, [Sink.Close] replaces the last part by one with
// all rows of the spool. A part is written under a temporary name, synced, and renamed,
// so that a reader sees either the old or the new one.
//
//	stateDiagram-v2
//	    [*] --> spooled: Write and Sync append to .part-N.jsonl
//	    spooled --> spooled: Close writes part-N.parquet, or replaces it by a larger one
//	    spooled --> sealed: Write or Sync, once 64 MiB are committed; the next spool begins
//	    sealed --> [*]: the position with part N+1 is committed, the spool of N is removed
//
// # Position
//
// The committed position holds, for each stream, the number of the last part and the
// committed length of its spool:
//
//	{"streams":{"messages":{"part":2,"spool":1234}}}
//
// [Sink.Open] truncates the spool, removes later parts and spools, and rebuilds the last
// part if it does not match the spool. After Open the parts hold exactly the committed
// rows. A part can hold uncommitted rows only between a Close after a failed commit and
// the next Open. A part or spool that is missing or shorter than committed is an error,
// and nothing is changed. So is a folder with parts that are not in the position, since
// it belongs to another program.
//
// # Columns
//
// The columns are _key, _parent for details, and an optional column for each top-level
// field, with a type that fits all values so far:
//
//	JSON                    column
//	integer of 64 bits      INT64
//	other number            DOUBLE, for integers in the same column too
//	true, false             BOOLEAN
//	string                  STRING
//	array, object           its JSON, as JSON
//	several of these        STRING: the text, or the JSON of a value that is not a string
//
// # Values that do not fit
//
// The column _rest is null, or a JSON object with the fields of the record that cannot be
// restored from their columns:
//
//   - nulls
//   - numbers that no INT64 or DOUBLE holds exactly
//   - values in a STRING column that are not strings
//   - fields without a column, because the name is reserved by this package, is longer
//     than 100 bytes, is empty or has a control character, or because there are 1,000
//     columns
//
// A field in _rest takes precedence over its column. If a record has a name twice, the
// last value counts. A record that is not an object has its JSON in the column _value.
//
// # Limits
//
// A lock on .headway.lock ensures that only one [Sink], in any process, writes to a
// folder; it ends with the process. A sink needs 64 KiB of memory for each stream, and
// about 16 MiB while it writes a part. Files are readable by their owner only. A Sink is
// not safe for concurrent use. It reads no clock.
//
// Stability: settling.
package parquet
