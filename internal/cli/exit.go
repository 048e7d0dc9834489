package cli

import (
	"errors"
	"strings"
)

// The exit codes, after sysexits.h.
const (
	exitOK         = 0
	exitUsage      = 64 // bad usage or configuration
	exitIncomplete = 65 // nothing left to do, but something is quarantined
	exitRefused    = 69 // the provider refused for good
	exitInternal   = 70 // a fault on this side
	exitDeferred   = 75 // deferred and resumable
)

// exitError is an error with an exit code. A silent one has been reported.
type exitError struct {
	code   int
	err    error
	silent bool
}

func (e *exitError) Error() string {
	if e.err == nil {
		return "exit"
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error { return &exitError{code: exitUsage, err: err} }

// exitFor finds the exit code of an error. What has none is a fault of ours,
// but for cobra's own complaints about the command line.
func exitFor(err error) *exitError {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e
	}
	code := exitInternal
	if strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "invalid argument") {
		code = exitUsage
	}
	return &exitError{code: code, err: err}
}
