// Package scenarios holds the built-in scenarios: limits that providers document, and
// situations in which laws fail. Each states the source of its numbers.
//
// A file holds the scenarios of one kind as YAML documents, separated by "---". [Source]
// returns the text of one, [All] parses those whose requests a control law paces, and
// [Bulk] those that load rows in batches. Scenarios of users are read with scenario.Load.
//
// Everything is embedded and constant. All and Bulk return new values, so callers share
// nothing. No clock is read.
package scenarios

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/headway-go/headway/internal/sim/scenario"
)

//go:embed *.yaml
var files embed.FS

// Source returns the YAML text of the named scenario, including comments. It returns false
// for an unknown name.
func Source(name string) (string, bool) {
	text, ok := sources()[name]
	return text, ok
}

// All parses every scenario whose workload is not bulk, sorted by name.
func All() ([]*scenario.Scenario, error) { return parse(false) }

// Bulk parses every scenario whose workload is bulk, sorted by name.
func Bulk() ([]*scenario.Scenario, error) { return parse(true) }

func parse(bulk bool) ([]*scenario.Scenario, error) {
	all := make([]*scenario.Scenario, 0, len(sources()))
	for name, text := range sources() {
		s, err := scenario.Parse(name, []byte(text))
		if err != nil {
			return nil, err
		}
		if (s.Workload.Kind == scenario.Bulk) == bulk {
			all = append(all, s)
		}
	}
	// The dot sorts strangers-window before strangers, as in docs/arena.md.
	slices.SortFunc(all, func(a, b *scenario.Scenario) int { return strings.Compare(a.Name+".", b.Name+".") })
	return all, nil
}

// sources has the text of each scenario by name. It panics if an embedded file is
// malformed.
var sources = sync.OnceValue(func() map[string]string {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		panic(err)
	}
	all := make(map[string]string)
	for _, file := range names {
		src, err := files.ReadFile(file)
		if err != nil {
			panic(err)
		}
		for text := range strings.SplitSeq(string(src), "\n---\n") {
			_, rest, _ := strings.Cut(text, "\nname: ")
			name, _, _ := strings.Cut(rest, "\n")
			if _, twice := all[name]; twice || name == "" {
				panic(fmt.Sprintf("scenarios: %s: a scenario's name, %q, is missing or taken", file, name))
			}
			all[name] = text
		}
	}
	return all
})
