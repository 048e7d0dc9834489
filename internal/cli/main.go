// Package cli is the command line of headway: one file a subcommand, the work is in
// the packages. It reads the environment and the terminal; nothing imports it but the
// main package. Not for concurrent use: one process runs it once.
package cli

import (
	"context"
	"io"
	"log"
	"os"
)

// Main runs the command line of this process and gives its exit code. The version is
// that of a released build, or empty.
func Main(released string) int {
	version = released
	// net/http prints to the standard logger what a provider sent where nothing
	// was expected. Content goes into sinks, never onto the terminal.
	log.SetOutput(io.Discard)
	return run(context.Background(), os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr})
}
