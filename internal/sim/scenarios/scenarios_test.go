package scenarios_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/scenarios"
)

func TestEachScenarioSaysItsSource(t *testing.T) {
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	loads, err := scenarios.Bulk()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 || len(loads) == 0 {
		t.Fatalf("%d and %d scenarios, want some of each", len(all), len(loads))
	}
	for _, s := range all {
		if s.Workload.Kind == scenario.Bulk {
			t.Errorf("%s is bulk and among the others", s.Name)
		}
	}
	for _, s := range loads {
		if s.Workload.Kind != scenario.Bulk {
			t.Errorf("%s is not bulk", s.Name)
		}
	}
	for _, s := range append(all, loads...) {
		src, ok := scenarios.Source(s.Name)
		if !ok || !strings.HasPrefix(src, "# Source: ") {
			t.Errorf("%s does not begin with its source", s.Name)
		}
	}
}

func ExampleAll() {
	all, err := scenarios.All()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range all {
		if s.Name == "github-primary" {
			fmt.Println(s.Horizon, s.Provider.Limits)
		}
	}
	// Output:
	// 1h0m0s [token_bucket 10/s burst 20 fixed_window 5000/1h sliding_window 6000/5m]
}
