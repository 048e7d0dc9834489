// Package scenarios holds the scenario files that come with the simulator: the
// limits that providers document, and kinds of trouble that laws fail at. Each
// file says where its numbers are from.
//
// [All] parses them; [FS] has the bytes. A file of your own is read with
// scenario.Load; it need not be here.
//
// Everything is embedded and constant. Each call of All makes new values, so
// that callers on several goroutines share nothing. No clock is read.
package scenarios

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/headway-go/headway/sim/scenario"
)

// FS holds the files, each named after its scenario, in its root.
//
//go:embed *.yaml
var FS embed.FS

// All parses every file, in the order of their names.
func All() ([]*scenario.Scenario, error) {
	names, err := fs.Glob(FS, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("scenarios: %w", err)
	}
	all := make([]*scenario.Scenario, len(names))
	for i, name := range names {
		src, err := FS.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("scenarios: %w", err)
		}
		if all[i], err = scenario.Parse(name, src); err != nil {
			return nil, err
		}
	}
	return all, nil
}
