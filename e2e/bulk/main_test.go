//go:build unix

// Package bulk_test runs "headway bulk" as it is shipped, as processes: loads
// that are killed, interrupted, refused and lied to. What the load says became of
// each row is held against what the target took, both ways.
package bulk_test

import (
	"os"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Run(m, harness.Setup{}))
}
