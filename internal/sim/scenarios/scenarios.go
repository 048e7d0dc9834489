// Package scenarios holds the scenario files that come with the simulator: the
// limits that providers document, and kinds of trouble that laws fail at. Each
// file says where its numbers are from.
//
// [All] parses those whose requests a control law paces, [Bulk] those that load
// rows in batches, which other laws move; [FS] has the bytes of both. A file of your own is read with
// scenario.Load; it need not be here.
//
// Everything is embedded and constant. Each call makes new values, so
// that callers on several goroutines share nothing. No clock is read.
package scenarios

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// FS holds the files, each named after its scenario, in its root.
//
//go:embed *.yaml
var FS embed.FS

// All parses every file whose workload is not bulk, in the order of their names.
func All() ([]*scenario.Scenario, error) { return parse(false) }

// Bulk parses every file whose workload is bulk, in the order of their names.
func Bulk() ([]*scenario.Scenario, error) { return parse(true) }

func parse(bulk bool) ([]*scenario.Scenario, error) {
	names, err := fs.Glob(FS, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("scenarios: %w", err)
	}
	all := make([]*scenario.Scenario, 0, len(names))
	for _, name := range names {
		src, err := FS.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("scenarios: %w", err)
		}
		s, err := scenario.Parse(name, src)
		if err != nil {
			return nil, err
		}
		if (s.Workload.Kind == scenario.Bulk) == bulk {
			all = append(all, s)
		}
	}
	return all, nil
}
