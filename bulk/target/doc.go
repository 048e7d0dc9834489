// Package target knows where a bulk load goes: a target file (YAML) describes a
// JSON API over HTTP, or a table of Dataverse, the credentials that write to it,
// and how fast it may be loaded.
//
// [Load] reads a file and reports everything that is wrong with it, with lines;
// [Config.Target] makes the bulk.Target that it describes, and [Config].Params
// the numbers of the load. Each batch is one request: what is tried again, when,
// and by whom, package bulk decides.
//
// What a response means for the rate (429, Retry-After, x-ms-dop-hint, error
// codes) is read by package signal; what it means for each row, here. An answer
// that cannot be read leaves the batch in doubt.
//
// A credential is a reference, to an environment variable or a file, and stands
// in no error, log or journal. Redirects are not followed: they would carry the
// credential elsewhere. Bodies are bounded. A target is safe for concurrent use.
// It is not for reading: package connector is.
//
// Stability: settling.
package target
