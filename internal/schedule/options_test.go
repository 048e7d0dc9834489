package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/retry"
)

func TestCircuitAndRetryBudgetReachTheRun(t *testing.T) {
	const file = `
connection: c
provider:
  base_url: https://api.example.com
  circuit: %
  retry: {base: 1s, cap: 2s, attempts: 3, budget: {start: 2, capacity: 4, per_success: 0.5}}
streams:
  - {name: a, list: {path: /a}, records: .items, key: .id}
`
	for circuit, want := range map[string]breaker.Config{
		"off": {},
		"{ratio: 0.75, window: 8, minimum: 4, open_for: 5s, probes: 2}": {Ratio: 0.75, Window: 8, Minimum: 4, OpenFor: 5 * time.Second, Probes: 2},
	} {
		c, err := rest.Parse("c.yaml", []byte(strings.Replace(file, "%", circuit, 1)), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		o := schedule.Options(c)
		if o.Pacing.NoBreaker != (circuit == "off") || o.Pacing.Breaker != want {
			t.Errorf("circuit: %s: got %+v, off %v", circuit, o.Pacing.Breaker, o.Pacing.NoBreaker)
		}
		if (o.RetryBudget != retry.Limits{Start: 2, Capacity: 4, PerSuccess: 500}) {
			t.Errorf("the run's retry budget is %+v", o.RetryBudget)
		}
		if (o.Retry != retry.Backoff{Base: time.Second, Cap: 2 * time.Second, Attempts: 3}) {
			t.Errorf("the backoff is %+v", o.Retry)
		}
	}
}
