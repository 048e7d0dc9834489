package sim_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// Whatever the limits and the trouble, a load ends, every row is accounted for,
// and more is never in flight than the workload and the law allow.
func TestEveryLoadEndsAndAccountsForItsRows(t *testing.T) {
	longtest.Draws(t, 50, 500)
	rapid.Check(t, func(rt *rapid.T) {
		number := func(low, high int, name string) int { return rapid.IntRange(low, high).Draw(rt, name) }
		maybe := func(name string) bool { return rapid.Bool().Draw(rt, name) }
		var b strings.Builder
		line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
		users, places := number(1, 3, "users"), number(1, 20, "places")
		line("name: drawn\nhorizon: %ds", number(10, 4000, "horizon"))
		line("workload: {kind: bulk, rows: %d, users: %d, max_in_flight: %d}", number(1, 2000, "rows"), users, places)
		line("provider:\n  latency: {p50: %dms}", number(0, 300, "latency"))
		line("  batch: {overhead: %dms, per_row: %dms, max_rows: %d, spread: 0.%d, knee: %d}",
			number(0, 1000, "overhead"), number(1, 50, "row"), number(1, 300, "most"), number(0, 9, "spread"), number(1, 9, "knee"))
		if maybe("hint") {
			line("  hint: %d", number(1, 30, "hint"))
		}
		line("  limits:\n    - {kind: concurrency, limit: %d}", number(1, 20, "concurrency"))
		line("    - {kind: busy_time, limit: %ds, window: %ds}", number(1, 100, "busy"), number(1, 100, "window"))
		line("    - {kind: sliding_window, limit: %d, window: %ds}", number(1, 50, "requests"), number(1, 20, "of"))
		line("  throttle: {retry_after: %s}", rapid.SampledFrom([]string{"none", "seconds", "exact"}).Draw(rt, "retry_after"))
		if maybe("penalty") {
			line("  penalty: {base: 1s, max: 30s}")
		}
		if maybe("suspend") {
			line("  suspend: {throttles: %d, within: 1m}", number(1, 50, "suspend"))
		}
		if maybe("strangers") {
			line("  strangers: {rate: 1/s}")
		}
		faults := maybe("faults")
		if faults {
			line("  faults: [{at: 1s, for: 3s, kind: outage}, {at: 5s, for: 1s, kind: reset}, {at: 7s, for: 5s, kind: slow}]")
		}
		s, err := scenario.Parse("drawn.yaml", []byte(b.String()))
		if err != nil {
			rt.Fatal(err)
		}
		law := rapid.SampledFrom(append(sim.BulkLaws(), fmt.Sprintf("fixed:%d", places))).Draw(rt, "law")
		r, err := sim.RunBulk(s, sim.Options{Law: law, Seed: rapid.Uint64().Draw(rt, "seed"), Trace: true})
		if err != nil {
			rt.Fatal(err)
		}
		accounted(rt, r)
		// A batch that met faults too often is put off for the next load.
		if r.Owed > 0 && r.Stopped == nil && r.ElapsedS < r.HorizonS && !faults {
			rt.Fatalf("%d rows are owed at %v s of %v s, and nothing stopped the load", r.Owed, r.ElapsedS, r.HorizonS)
		}
		if r.ParallelismMax > users*places || r.ParallelismMean > float64(r.ParallelismMax) || r.RetryAfterS > r.ElapsedS*float64(users)+0.01 {
			rt.Fatalf("%d in flight at most and %v on average, %v s of waits in %v s", r.ParallelismMax, r.ParallelismMean, r.RetryAfterS, r.ElapsedS)
		}
		if err := sim.WriteBulkSVG(&strings.Builder{}, r.Trace); err != nil {
			rt.Fatal(err)
		}
	})
}
