package harness

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headway-go/headway/collect"
)

// Line is one line of collect --json.
type Line struct {
	// Type says which of the others is there.
	Type     string
	Event    json.RawMessage
	Progress json.RawMessage
	Held     *struct{ Connection, Holder, Run string }
	Summary  *collect.Summary
}

// Lines reads the output of collect --json: valid JSON in every line, of a known
// type, the last one and no other a summary.
func Lines(t *testing.T, o Outcome) []Line {
	t.Helper()
	if o.Stdout == "" || !strings.HasSuffix(o.Stdout, "\n") {
		t.Fatalf("the output is empty or its last line unfinished: %s", o)
	}
	var all []Line
	for text := range strings.Lines(o.Stdout) {
		var l Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q is not JSON: %v", text, err)
		}
		held := map[string]bool{
			"event": l.Event != nil, "progress": l.Progress != nil, "held": l.Held != nil, "summary": l.Summary != nil,
		}
		if !held[l.Type] {
			t.Errorf("a line of type %q without it: %s", l.Type, text)
		}
		if len(all) > 0 && all[len(all)-1].Summary != nil {
			t.Errorf("a line after the summary: %s", text)
		}
		all = append(all, l)
	}
	return all
}

// Summary is the last line of collect --json.
func Summary(t *testing.T, o Outcome) collect.Summary {
	t.Helper()
	all := Lines(t, o)
	last := all[len(all)-1].Summary
	if last == nil {
		t.Fatalf("the last line is not a summary: %s", o)
	}
	return *last
}
