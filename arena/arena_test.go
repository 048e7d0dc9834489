package arena

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/ratelimiter"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/scenarios"
)

var write = flag.String("arena.write", "", "run the whole arena and write arena.md and its pictures into this folder")

// rivalSeeds trades time for exactness: a seed of all rivals takes some minutes.
var rivalSeeds = flag.Int("arena.rivals", 1, "with how many of each three seeds rivals are run")

// What a population is drawn with. Rivals take half a minute a member.
var (
	crowdSeed    = flag.Uint64("arena.seed", 2027, "with which seed the population is drawn")
	crowdSize    = flag.Int("arena.population", 500, "on how many members the law is judged")
	crowdMembers = flag.Int("arena.members", 32, "on how many of them rivals are run")
)

// crowd runs the population: in full when the page is written.
func crowd(t *testing.T, full bool) *Crowd {
	t.Helper()
	d := Drawing{Law: control.DefaultLaw, Seed: *crowdSeed, N: *crowdSize, Rivals: Rivals(), Most: 20_000, Progress: os.Stderr}
	first := *crowdMembers
	if !full {
		d.N, d.Most, d.Progress, first = 1, 100, nil, 2
	}
	var err error
	if d.Members, err = FirstMembers(d.Seed, first); err != nil {
		t.Fatal(err)
	}
	if !full {
		for _, m := range d.Members {
			m.Scenario.Horizon = 20 * time.Second
		}
	}
	return d.Run(t)
}

// TestArenaPopulation writes what the page leads with into the page that is there.
func TestArenaPopulation(t *testing.T) {
	folder := *write
	if folder == "" {
		folder = t.TempDir()
		if err := os.WriteFile(folder+"/arena.md", []byte("# The arena\n\nIt is.\n\n## Verdict\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := crowd(t, *write != "")
	if t.Failed() {
		t.FailNow()
	}
	for range 2 { // the second time in the place of the first
		if err := c.WriteLead(folder); err != nil {
			t.Fatal(err)
		}
	}
	if *write != "" {
		return
	}
	got, err := os.ReadFile(folder + "/arena.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(got)
	if !strings.HasPrefix(page, "# The arena\n\nIt is.\n\n<!-- population -->\n## Providers") || !strings.HasSuffix(page, "<!-- end of population -->\n\n## Verdict\n") ||
		strings.Count(page, "## Providers") != 1 || strings.Contains(page, "%!") {
		t.Errorf("the section is in the wrong place:\n%s", page)
	}
	for _, name := range append(c.Names, "| informed (the bound) |") {
		if !strings.Contains(page, name) {
			t.Errorf("the page lacks %s", name)
		}
	}
	if picture, err := os.ReadFile(folder + "/arena/population.svg"); err != nil || !strings.HasPrefix(string(picture), "<svg") {
		t.Errorf("the picture: %v", err)
	}
}

// rehearsal is what the arena plays when it is only tested: every path of the
// page, in little virtual time.
const rehearsal = `
name: rehearsal-%s
horizon: 90s
clients: %d
owner: {ceiling: 20ms, initial: 1s}
workload: {max_in_flight: 4}
provider:
  latency: {p50: 60ms, p99: 200ms}
  limits: [{kind: token_bucket, rate: 5/s, burst: %d}]
%s`

func rehearsals(t *testing.T) []*scenario.Scenario {
	t.Helper()
	var all []*scenario.Scenario
	for _, c := range []struct {
		name           string
		clients, burst int
		more           string
	}{
		{"bucket", 1, 10, "  changes: [{at: 40s, scale: 0.5}]\n"},
		{"burst-1", 1, 1, "  throttle: {retry_after: seconds}\n"},
		{"ban", 1, 10, "  penalty: {base: 2s}\n  suspend: {throttles: 50, within: 1m}\n"},
		{"clients", 3, 5, "  strangers: {rate: 1/s}\n"},
	} {
		s, err := scenario.Parse(c.name, fmt.Appendf(nil, rehearsal, c.name, c.clients, c.burst, c.more))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// TestArena writes the page: in full under "make arena", otherwise of a few
// short scenarios into a temporary folder.
func TestArena(t *testing.T) {
	c := Campaign{Rivals: Rivals(), Most: Most, RivalSeeds: *rivalSeeds}
	folder, sets := *write, [][]uint64{{1, 2, 3}, {4, 5, 6}}
	if folder == "" {
		folder, sets = t.TempDir(), [][]uint64{{1}, {4}}
		c.Most = 500
		c.Scenarios = rehearsals(t)
	} else {
		c.Progress = os.Stderr
		var err error
		if c.Scenarios, err = scenarios.All(); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	var fields []*Field
	for _, seeds := range sets {
		c.Seeds = seeds
		fields = append(fields, c.Run(t, "seeds-"+strings.Trim(strings.ReplaceAll(fmt.Sprint(seeds), " ", "-"), "[]")))
	}
	if t.Failed() {
		t.FailNow()
	}
	page := Page{Fields: fields, Most: c.Most}
	if *write != "" {
		page.Crowd = crowd(t, true)
	}
	if err := page.Write(folder); err != nil {
		t.Fatal(err)
	}
	if *write != "" {
		fmt.Print(page.Verdicts())
		fmt.Fprintf(os.Stderr, "arena: wrote %s/arena.md in %v\n", folder, time.Since(began).Round(time.Second))
		return
	}
	got, err := os.ReadFile(folder + "/arena.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"## Verdict", "seeds 4", "MISSED", "### rehearsal-ban", "suspended", "cut"}
	for _, r := range c.Rivals {
		want = append(want, "| "+r.Name+" |")
	}
	for _, text := range want {
		if !strings.Contains(string(got), text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	picture, err := os.ReadFile(folder + "/arena/overview.svg")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(picture), "%!") || strings.Contains(string(got), "%!") {
		t.Error("the page or its picture has a wrong format")
	}
}

// BenchmarkDecision is what it costs to be let through and to say how it ended,
// where nothing has to wait. BenchmarkAcquireSettle of the module above has the same
// of headway and x/time/rate.
func BenchmarkDecision(b *testing.B) {
	ctx := context.Background()
	b.Run("failsafe-limiter-breaker-adaptive", func(b *testing.B) {
		executor := failsafe.With(
			ratelimiter.NewBursty[any](1<<40, 1<<40),
			circuitbreaker.NewWithDefaults[any](),
			adaptivelimiter.NewWithDefaults[any](),
		)
		nothing := func() error { return nil }
		b.ReportAllocs()
		for b.Loop() {
			if err := executor.Run(nothing); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("aws-adaptive-token", func(b *testing.B) {
		mode := retry.NewAdaptiveMode()
		b.ReportAllocs()
		for b.Loop() {
			release, err := mode.GetAttemptToken(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := release(nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
