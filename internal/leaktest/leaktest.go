// Package leaktest fails a package whose tests leave a goroutine behind. Only tests import it.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// maxWait bounds the wait for goroutines that are about to end. On a busy machine the last
// lines of one can take seconds.
const maxWait = time.Minute

// Main runs the tests and exits. The exit code is 1 if they pass but goroutines remain that
// the options do not ignore.
func Main(m *testing.M, ignored ...goleak.Option) {
	code := m.Run()
	if err := Find(ignored...); code == 0 && err != nil {
		fmt.Fprintf(os.Stderr, "leaktest: the tests pass, but %v\n", err)
		code = 1
	}
	os.Exit(code)
}

// Find returns an error if goroutines remain that the options do not ignore.
func Find(ignored ...goleak.Option) (err error) {
	for end := time.Now().Add(maxWait); ; {
		if err = goleak.Find(ignored...); err == nil || time.Now().After(end) {
			return err
		}
	}
}
