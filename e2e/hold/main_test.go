//go:build unix

// Package hold_test checks that collections hold: it runs the headway binary
// against full, read-only and damaged disks, against providers that lie, fall
// silent or fail for a while, and with secrets planted everywhere. Each test ends
// with a healthy run, and what was collected by then is what the provider has.
package hold_test

import (
	"os"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
)

// maxWait bounds everything that is waited for.
const maxWait = 3 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(bounded) != "" {
		becomeBounded()
	}
	os.Exit(harness.Run(m, harness.Setup{MaxWait: maxWait, Parallel: 12}))
}
