package quotafile

import (
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/headway-go/headway/internal/yamlnode"
)

// Section reads the configuration from one mapping of a larger YAML file, whose
// path there, such as "providers.openai.quota", is put before each field. file
// stands for the file in the problems. With problems the settings are zero.
func Section(file, path string, node ast.Node) (Settings, []*Problem) {
	r := &reader{file: yamlnode.Clip(file), places: map[string]place{}}
	s := r.settings(node, path)
	if len(r.problems) > 0 {
		return Settings{}, r.problems
	}
	return s, nil
}

// Root is the mapping, list or scalar that a YAML file of one document is about,
// for who reads a file with [Section]s in it. It is bounded as [Read] is. want
// says what the file should be, for the problem; with one, the node is nil.
func Root(file, want string, data []byte) (ast.Node, []*Problem) {
	r := &reader{file: yamlnode.Clip(file), places: map[string]place{}, want: want}
	root := r.root(data)
	return root, r.problems
}

// settings reads a mapping that stands at a path, checked, with its defaults.
func (r *reader) settings(n ast.Node, path string) (s Settings) {
	m := r.section(n, path, "")
	if m == nil {
		return s
	}
	s.LogLevel = m.level("log_level")
	m.config(&s.Quota)
	m.done()
	if len(r.problems) > 0 {
		return s // what follows would only repeat them
	}
	s.spread = map[string]bool{}
	for field := range r.places {
		if scope, ok := strings.CutSuffix(field, ".spread"); ok {
			s.spread[scope] = true
		}
	}
	s.Quota.LoadZone = time.LoadLocation
	resolved, err := s.Quota.Resolve()
	for _, f := range faults(err) {
		r.problems = append(r.problems, r.located(f))
	}
	s.Quota = resolved
	return s
}
