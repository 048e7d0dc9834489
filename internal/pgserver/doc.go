// Package pgserver starts a PostgreSQL server for a test: a real one, from Debian's
// package, which is installed when it is missing and the test runs as root. It
// answers "what does this code do with a real database, and when that goes away?".
//
// It is only for tests, on Linux. A server has a folder and a port of its own, so that
// nothing is shared with a service of the machine, and runs as the user postgres where
// the test runs as root. It ends with the test's process.
package pgserver
