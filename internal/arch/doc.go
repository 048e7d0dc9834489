// Package arch answers one question: does the source tree still keep the laws
// that the architecture records in docs/adr state? It reads Go source, never
// compiles or runs it, and reports every place that breaks a law together with
// the reason for the law.
//
// The laws themselves are the tables in law.go. The checkers take a [Tree], so
// a test can hand them a small tree in memory that breaks a law on purpose.
//
// Do not use it outside tests, and do not use it for what a linter already
// checks.
//
// Concurrency: a Tree and a Law are not changed once made, so any number of
// goroutines may check them. Time: no check reads a clock.
package arch

import "fmt"

// A Finding is one place that breaks a law.
type Finding struct {
	Where string // File and line, or folder, relative to the module root.
	What  string // What stands there.
	Why   string // The reason for the law that it breaks.
}

// String gives the finding on one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %s", f.Where, f.What, f.Why)
}
