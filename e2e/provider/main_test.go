//go:build unix

// Package provider_test runs the headway binary as it is shipped, as processes:
// a provider that limits, and collections of it that are throttled, killed,
// interrupted and lied to. What was collected is held against what the provider
// has, and what the client says against what the provider saw.
package provider_test

import (
	"os"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Run(m, harness.Setup{}))
}
