package sqlite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/field"
)

// checkNames refuses streams whose tables would be others' or each other's.
func checkNames(streams []collect.StreamInfo, own bool) error {
	seen := map[string]string{}
	for _, s := range streams {
		if wrong := checkName(s.Name, own); wrong != "" {
			return fmt.Errorf("sqlite sink: stream %q cannot name a table: %s: rename the stream", s.Name, wrong)
		}
		lower := strings.ToLower(s.Name)
		if other, ok := seen[lower]; ok {
			return fmt.Errorf("sqlite sink: streams %q and %q would have the same table: rename one of them", other, s.Name)
		}
		seen[lower] = s.Name
	}
	return nil
}

// checkName says what keeps a stream's name from being a table's; empty is
// nothing. Own says that the store's tables are in another file.
func checkName(name string, own bool) string {
	lower := strings.ToLower(name)
	switch {
	case name == "":
		return "it is empty"
	case len(name) > field.MaxName:
		return fmt.Sprintf("it has %d bytes, more than %d", len(name), field.MaxName)
	case !field.Nameable(field.Field{Name: name, Exact: true}):
		return "it holds a control character"
	case !own && slices.Contains(reserved, lower):
		return "the store has a table of that name"
	case strings.HasPrefix(lower, "sqlite_"), strings.HasPrefix(lower, "headway_"):
		return "names that begin with sqlite_ or headway_ are reserved"
	case strings.HasSuffix(lower, "_bak"):
		return "names that end in _bak are those of tables set aside"
	}
	return ""
}

// CheckName says what keeps a stream's name from being a table's; empty is nothing.
// See [collect.Namer].
func (s *Sink) CheckName(stream string) string { return checkName(stream, s.own) }

// CheckName says what keeps a stream's name from being a table's; empty is nothing.
// See [collect.Namer].
func (s *File) CheckName(stream string) string { return checkName(stream, true) }
