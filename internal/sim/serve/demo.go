package serve

import (
	_ "embed"

	"github.com/headway-go/headway/internal/sim/scenario"
)

//go:embed demo.yaml
var demo []byte

// Demo is the built-in scenario: 40 requests a second with a burst of 40,
// Retry-After in seconds, a few milliseconds of latency.
func Demo() *scenario.Scenario {
	s, err := scenario.Parse("demo.yaml", demo)
	if err != nil {
		panic("serve: the embedded scenario is broken: " + err.Error())
	}
	return s
}

// Load is the scenario of a file, or [Demo] when the name is "demo" or empty.
// Errors in a file's content are a *configfile.Error.
func Load(file string) (*scenario.Scenario, error) {
	if file == "" || file == "demo" {
		return Demo(), nil
	}
	return scenario.Load(file)
}
