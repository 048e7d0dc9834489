// Package parquet writes records as Parquet files, one folder a stream, for
// DuckDB, Spark, pandas and whatever else reads columns.
//
// Use it for analytics over what was collected. A record is appended as it was
// collected: an item that changed stands there twice, in the later row newer.
// For one row a key use sink/sqlite.
//
// A record of a detail that the provider no longer lists is followed by a tombstone:
// a row with its _key and _parent, and with the instant at which that was noticed in
// the column _headway_deleted_at, which is null in all others. The rest of such a
// row is null, but for the columns _headway_key and _headway_parent, which repeat
// its key. A row of the record after it says that it is back. Records that an earlier
// version collected, before keys were remembered, get none: the run's children_gone
// counts them.
//
//	out/messages/part-000001.parquet
//	out/messages/part-000002.parquet    the last part, which still grows
//	out/messages/.part-000002.jsonl     the spool that it is made of
//
// Read out/messages/*.parquet by name of column (union_by_name in DuckDB,
// mergeSchema in Spark): later parts may have more columns and wider types.
//
// # Parts and spools
//
// A slice is often a hundred rows, and a file each would be useless. So rows go
// to a spool, a hidden file of JSON lines, which each Sync makes durable. The
// part is made of the spool's committed rows: when the spool has grown to
// 64 MiB, after which the part never changes and the next one begins, and by
// [Sink.Close], in the place of a smaller part with the same rows and fewer. A
// part is written under another name, synced, and renamed: a reader sees the
// old or the new one, whole.
//
//	stateDiagram-v2
//	    [*] --> spooled: Write and Sync append to .part-N.jsonl
//	    spooled --> spooled: Close puts part-N.parquet there, or a larger one in its place
//	    spooled --> sealed: Write or Sync, once 64 MiB are committed; the next spool begins
//	    sealed --> [*]: the position with part N+1 is committed, the spool of N is removed
//
// # Position
//
// The committed position is, for each stream, the part that grows and how much
// of its spool counts:
//
//	{"streams":{"messages":{"part":2,"spool":1234}}}
//
// [Sink.Open] cuts the spool back, removes what was begun after it, and makes
// the last part hold exactly the rows of the spool: after Open the parts hold
// what was committed, no row more or less. Only between a Close after a failed
// commit and the next Open can a part hold rows of a slice that was not
// committed. A part or spool that is missing or shorter than committed is an
// error, and nothing is changed. A folder with parts of which the position
// knows nothing is somebody else's, and an error.
//
// # Columns
//
// _key, for details _parent, and a column for each top-level field, optional,
// whose type is that of all values so far:
//
//	JSON                    column
//	integer of 64 bits      INT64
//	other number            DOUBLE; integers become DOUBLE beside such
//	true, false             BOOLEAN
//	string                  STRING
//	array, object           its JSON, as JSON
//	several of these        STRING: the text, or the JSON of what is not a string
//
// # Nothing is dropped
//
// The column _rest is null, or a JSON object with those fields of the record
// that their columns cannot give back as they were: nulls; numbers that no
// INT64 or DOUBLE holds exactly; values that stand as text in a STRING column
// without being strings; and fields without a column, because their name is
// one of ours, is longer than 100 bytes, is empty or has a control character,
// or because there are 1,000 columns. A field in _rest counts over its column.
// Of a name that a record has twice, the last value counts. A record that is not an
// object has its JSON in the column _value.
//
// # Limits
//
// One [Sink] at a time writes to a folder: a lock on .headway.lock sees to it,
// also between processes, and ends with the process. Memory is one buffer of
// 64 KiB a stream, and while a part is made its rows in groups of about 16 MiB.
// Files are readable by their owner only. A Sink is not safe for concurrent
// use. It reads no clock.
//
// Stability: settling.
package parquet
