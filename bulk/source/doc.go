// Package source reads rows for a bulk load: JSON lines, CSV and Parquet, from a
// file or standard input, as they are or compressed with gzip or zstd.
//
// [Open] is the verb that most callers want. What it gives is a bulk.Source: each
// row is one JSON object, with the line that it stands in. A row that cannot be
// read is an error about that row alone and names its line; the rows after it are
// read. Rows are bounded in size ([Options].MaxRow), so memory is too, whatever
// the input holds.
//
// A file that this project wrote (rejected or uncertain rows of a load) is known
// by its first line, and its rows are taken out of their envelopes.
//
// Standard input is resumable only where it is a file (headway bulk run - <
// rows.jsonl): a pipe cannot be read again. An input is known by its length and
// the hash of its first bytes; to change it in the middle, and resume, mixes up
// rows.
//
// A source is used by one goroutine. It reads no clock. It is not for what has to
// be asked of an API: package connector is.
//
// Stability: settling.
package source
