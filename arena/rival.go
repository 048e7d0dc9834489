package arena

import (
	_ "embed" // for go.mod
	"net/http"
	"slices"
	"strings"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// Origin is where a rival's code is from.
type Origin string

// The origins.
const (
	// OwnCode: the rival's own code, unchanged.
	OwnCode Origin = "own code"
	// Described: written here after the law's documents.
	Described Origin = "written here from documents"
	// Cheat: the rival's own code, told a number that nobody would tell it.
	Cheat Origin = "own code, a cheat"
)

// Rival is a client of another make.
type Rival struct {
	Name   string
	Origin Origin
	// Module is the path of the module that its code is in; "" for Described.
	Module string
	// Configuration is what it was given, for a person.
	Configuration string
	// New makes one for a client, or for a fleet, that sends over the wire.
	New func(s *scenario.Scenario, wire http.RoundTripper) Sender
}

//go:embed go.mod
var goMod string

// Version is the version of the rival's module that go.mod requires; a test
// binary does not carry it. "-" where there is no module, "unknown" where
// go.mod does not require it.
func (r Rival) Version() string {
	if r.Module == "" {
		return "-"
	}
	for line := range strings.Lines(goMod) {
		if words := strings.Fields(strings.TrimPrefix(line, "require ")); len(words) >= 2 && words[0] == r.Module {
			return strings.TrimPrefix(words[1], "v")
		}
	}
	return "unknown"
}

// Rivals are all of them, in the order of the tables.
func Rivals() []Rival {
	return slices.Concat(
		[]Rival{amazon(), failsafeAdaptive(), failsafeRate(), retryable()},
		[]Rival{timeRate("x-time-rate", 1), timeRate("x-time-rate-half", 0.5)},
		[]Rival{autoThrottle(), vegas(), gradient2(), adaptiveBucket()},
	)
}
