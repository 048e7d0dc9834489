// Package scenarios holds the scenarios that come with the simulator: the limits that
// providers document, and kinds of trouble that laws fail at. Each says where its
// numbers are from.
//
// A file holds the scenarios of one kind as YAML documents, with a line "---" between
// them. [Source] is the text of one; [All] parses those whose requests a control law
// paces, [Bulk] those that load rows in batches. A file of your own holds one scenario
// and is read with scenario.Load; it need not be here.
//
// Everything is embedded and constant. Each call of All and Bulk makes new values, so
// that callers on several goroutines share nothing. No clock is read.
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

// Source returns the YAML text of the named scenario, comments included. It is false
// for a name that no scenario has.
func Source(name string) (string, bool) {
	text, ok := sources()[name]
	return text, ok
}

// All parses every scenario whose workload is not bulk, in the order of their names.
func All() ([]*scenario.Scenario, error) { return parse(false) }

// Bulk parses every scenario whose workload is bulk, in the order of their names.
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
	// The dot puts strangers-window before strangers, as files with an extension would
	// stand: docs/arena.md has this order.
	slices.SortFunc(all, func(a, b *scenario.Scenario) int { return strings.Compare(a.Name+".", b.Name+".") })
	return all, nil
}

// sources has the text of each scenario by its name. An embedded file that cannot be
// split so is a mistake in this package: it panics.
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
