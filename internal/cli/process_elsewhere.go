//go:build !unix

package cli

import (
	"os"
	"syscall"
)

// reloading is the word for a reload that begins.
func reloading() string { return "RELOADING=1" }

// passedOn are the signals that go on to the command of "headway run".
var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM}

// fromTerminal reports whether the command got a signal as well. A console sends Ctrl-C to
// every process in it, and nothing else sends one.
func fromTerminal(s os.Signal) bool { return s == os.Interrupt }

// endInterrupted does nothing: an exit code says enough.
func endInterrupted() {}
