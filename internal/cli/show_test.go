package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/store/sqlite"
)

func TestLimitsAreShownWithTheirProvenance(t *testing.T) {
	var b strings.Builder
	writeLimits(&b, "  ", []event.Limit{
		{Kind: "token_bucket", Size: 240, WindowS: 60, Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1},
		{Kind: "fixed_window", Size: 40_000, WindowS: 86_400, Unit: event.UnitInputTokens, Pool: "m", Provenance: event.Owner, Confidence: 1},
		{Kind: "fixed_window", Unit: event.UnitCost, Pool: "tokens", Provenance: event.Advertised, Confidence: 0.5},
		{Kind: "concurrency", Size: 4, Unit: event.UnitRequests, Provenance: event.Learned, Confidence: 0.9},
	})
	want := `  owner       token_bucket  240 requests in 1m0s
  owner       fixed_window  40,000 input tokens in 24h0m (m)
  advertised  fixed_window  unknown cost in an unknown time (tokens)  confidence 0.50
  learned     concurrency   4 requests under way                      confidence 0.90
`
	if got := b.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, all := range [][]event.Limit{nil, {{Kind: "concurrency", Size: 2, Unit: event.UnitRequests, Provenance: event.Owner}}} {
		b.Reset()
		if writeLimits(&b, "  ", all); !strings.HasSuffix(b.String(), "  provider's limits unknown\n") {
			t.Errorf("of %v is said %q", all, b.String())
		}
	}
}

func TestRateIsAnAliasOfLimits(t *testing.T) {
	path := owing(t)
	for _, flags := range [][]string{nil, {"--json"}} {
		var texts []string
		for _, command := range []string{"limits", "rate"} {
			code, out, errs := headway(t, append([]string{command, "--state", path}, flags...)...)
			if code != 0 {
				t.Fatalf("%s: exit %d, %s", command, code, errs)
			}
			texts = append(texts, out)
		}
		if texts[0] != texts[1] || !strings.Contains(texts[0], "limits") {
			t.Errorf("limits says %q, rate %q", texts[0], texts[1])
		}
	}
}

// A state in which nothing is collected is said to be so, beside the list.
func TestStatusOfNothingSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := headway(t, "status", "--state", path); code != 0 || out != "" || !strings.Contains(errOut, "nothing is collected in "+path) {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := headway(t, "status", "--json", "--state", path); code != 0 || out != "[]\n" || errOut != "" {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}
