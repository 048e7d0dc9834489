// Package names makes the names in a folder durable: after a file was made or
// renamed, its content can be on disk and its name not. It is for who writes
// files of state with its own hands; a database does this itself. Safe for
// concurrent use.
package names
