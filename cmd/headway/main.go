// Command headway collects from APIs that it does not own as fast as they let
// it, never faster, and loses nothing on the way. It is a thin shell: one file a
// subcommand, the work is in the packages.
package main

import (
	"context"
	"io"
	"log"
	"os"
)

func main() {
	// net/http prints to the standard logger what a provider sent where nothing
	// was expected. Content goes into sinks, never onto the terminal.
	log.SetOutput(io.Discard)
	os.Exit(run(context.Background(), os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
