// Package lockfile takes locks that end with their process: a lock on an open
// file that the system gives back when the file is closed, also by SIGKILL. It
// answers "is whoever had this still alive?", which no lease in a file can.
//
// The lock binds open files, not goroutines: two files opened by one process
// exclude each other too. It does not work across machines. Its verbs do not
// block and are safe for concurrent use.
package lockfile
