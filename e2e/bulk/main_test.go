//go:build unix

// Package bulk_test runs "headway bulk" as it is shipped, as processes: loads
// that are killed, interrupted, refused and lied to. What the load says became of
// each row is held against what the target took, both ways.
package bulk_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/e2e/internal/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Run(m, harness.Setup{}))
}

// summary is the last line of "bulk run --json", as scripts read it.
type summary struct {
	bulk.Totals
	State  string
	Reason string
	Dir    string
	Counts struct {
		Sent      int64 `json:"batches_sent"`
		Throttled int64 `json:"batches_throttled"`
		Split     int64 `json:"batches_split"`
	}
	Identities []struct {
		Name           string
		Level, Ceiling int
		Throttles      int64
	}
}

// summaryOf reads the output of "bulk run --json": valid JSON in every line, of a
// known type, the last one and no other a summary.
func summaryOf(t *testing.T, o harness.Outcome) summary {
	t.Helper()
	var last *summary
	for text := range strings.Lines(o.Stdout) {
		var l struct {
			Type     string
			Progress *bulk.Totals
			Summary  *summary
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q is not JSON: %v", text, err)
		}
		if last != nil {
			t.Errorf("a line after the summary: %s", text)
		}
		if known := map[string]bool{"progress": l.Progress != nil, "summary": l.Summary != nil}; !known[l.Type] {
			t.Errorf("a line of type %q without it: %s", l.Type, text)
		}
		last = l.Summary
	}
	if last == nil {
		t.Fatalf("the last line is not a summary: %s", o)
	}
	if o.Stderr != "" {
		t.Errorf("with --json something stands on standard error: %s", o.Stderr)
	}
	return *last
}
