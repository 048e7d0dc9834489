// Package arena answers how rivals fare against the providers that the
// simulator models: their own code, unchanged, in testing/synctest bubbles, so
// that an hour takes a second or so and their own timers run on virtual time.
//
// [Play] runs one [Rival] through one scenario; [Rivals] lists them with the
// configuration that each is given. The figures are drawn up by sim.Ledger
// against the same oracle as those of headway's laws, so both are the same
// thing counted in the same way. [Judge] holds a law against the targets.
//
// # How a rival sends
//
// Each client of a scenario has as many workers as it may have attempts in
// flight. A worker takes the next piece of work, hands it to the rival and waits
// until the rival gives up or brings the answer; work that was not admitted goes
// back to the head of the line. Clients have a rival each; the clients of a fleet
// share one, with what it learns.
//
// The wire between them is an http.RoundTripper in memory. It sleeps for the
// uplink, asks the model, sleeps for the rest and answers with the status,
// Retry-After and limit headers that the provider sends. Latencies, costs and
// arrivals are drawn by the simulator's own sampler.
//
// Nothing holds a rival to the owner's ceiling, which it does not know: the
// oracle and headway keep it, so a rival may do better where the ceiling binds.
//
// # Time and chance
//
// Time stands still while anything in a bubble can run. A rival that waits for
// no time, or fails without sending, would stand still for ever: [Spin] is
// charged for it. What the model and the sampler leave to chance comes from the
// seed; a rival's own jitter, where it has any, and the order of what its workers
// do in one instant come from the process, so its figures differ a little from run
// to run.
//
// Do not use it to measure speed: virtual time says nothing of CPU. The
// benchmarks of this module do that, in real time.
//
// A run is for one goroutine that is not in a bubble; runs may go side by side.
package arena

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// Campaign runs every scenario with every law of headway's and every rival.
type Campaign struct {
	Scenarios []*scenario.Scenario
	Rivals    []Rival
	Seeds     []uint64
	// RivalSeeds is with how many of the seeds rivals are run: bubbles take much
	// longer than sim.Run.
	RivalSeeds int
	// Most is how many refusals a rival's run may have.
	Most int
	// Progress, if set, is called with how far it is.
	Progress io.Writer
}

// Run is the campaign, as many scenarios side by side as -parallel has it. Laws
// are those that are registered.
func (c Campaign) Run(t *testing.T, name string) *Field {
	t.Helper()
	f := &Field{Seeds: c.Seeds, RivalSeeds: c.Seeds[:min(c.RivalSeeds, len(c.Seeds))], Scenarios: c.Scenarios, Laws: control.Names(), Rivals: c.Rivals, Frontiers: make(map[string]Frontier)}
	began := time.Now()
	var mu sync.Mutex
	done := 0
	report := func(n int) {
		done += n
		if all := len(c.Scenarios) * (len(c.Seeds)*len(f.Laws) + len(f.RivalSeeds)*len(c.Rivals)); c.Progress != nil && (done/100 > (done-n)/100 || done == all) {
			fmt.Fprintf(c.Progress, "arena: %s: %d of %d runs, %v\n", name, done, all, time.Since(began).Round(time.Second))
		}
	}
	t.Run(name, func(t *testing.T) { // ends when all of its parallel tests have
		for _, s := range c.Scenarios {
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				runs := make(map[string][]Entry)
				for i, seed := range c.Seeds {
					c.seed(t, s, seed, i < c.RivalSeeds, runs, func(n int) {
						mu.Lock()
						defer mu.Unlock()
						report(n)
					})
				}
				var frontier Frontier
				if Inherent(s) {
					var err error
					if frontier, err = Draw(s, c.Seeds); err != nil {
						t.Fatal(err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for who, entries := range runs {
					f.Put(s, who, entries)
				}
				if frontier != nil {
					f.Frontiers[s.Name] = frontier
				}
			})
		}
	})
	return f
}

// seed runs the laws in one scenario with one seed, and the rivals.
func (c Campaign) seed(t *testing.T, s *scenario.Scenario, seed uint64, rivals bool, runs map[string][]Entry, report func(int)) {
	results, err := sim.Compare([]*scenario.Scenario{s}, control.Names(), seed)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		runs[r.Law] = append(runs[r.Law], Entry{Result: r})
	}
	report(len(results))
	if !rivals {
		return
	}
	oracle, err := sim.NewOracle(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Rivals {
		runs[r.Name] = append(runs[r.Name], Play(t, s, seed, r, oracle, c.Most))
		report(1)
	}
}

// Point is what constant pacing gets at a part of the right rate.
type Point struct{ Part, Goodput, Per1000 float64 }

// Frontier is what constant pacing gets at several rates: where arrivals or
// strangers are a matter of chance, no client can have both all of the goodput
// and no throttles.
type Frontier []Point

// parts of the right rate at which the frontier is drawn.
var parts = []float64{
	0.4, 0.5, 0.6, 0.65, 0.7, 0.74, 0.78, 0.82, 0.85, 0.88, 0.9, 0.92, 0.94,
	0.95, 0.96, 0.97, 0.98, 0.99, 1, 1.01, 1.02, 1.04, 1.07, 1.1, 1.2, 1.4,
}

// Inherent reports whether a loss is inherent in a scenario, so that the frontier
// is the bar: its bucket has a burst of 1, or strangers use its limits.
func Inherent(s *scenario.Scenario) bool {
	return s.Provider.Strangers != nil || slices.ContainsFunc(s.Provider.Limits, func(l scenario.Limit) bool {
		return l.Kind == scenario.TokenBucket && l.Burst <= 1
	})
}

// Ban reports whether a provider lengthens its blocks and suspends accounts.
func Ban(s *scenario.Scenario) bool {
	return s.Provider.Penalty != nil && s.Provider.Suspend != nil
}

// Draw plays constant pacing at several rates, each with each seed.
func Draw(s *scenario.Scenario, seeds []uint64) (Frontier, error) {
	f := make(Frontier, len(parts))
	for _, seed := range seeds {
		oracle, err := sim.NewOracle(s, seed)
		if err != nil {
			return nil, err
		}
		for i, part := range parts {
			c, err := constant(s, seed, part*RightRate(s))
			if err != nil {
				return nil, err
			}
			n := float64(len(seeds))
			f[i].Part = part
			f[i].Goodput += min(1, float64(c.Admitted)/float64(max(1, len(oracle.Admissions)))) / n
			f[i].Per1000 += 1000 * float64(c.Throttled) / float64(max(1, c.Admitted)) / n
		}
	}
	return f, nil
}

// constant sends at a constant rate, of which only changes of the limits make
// another one, and never looks at an answer.
func constant(s *scenario.Scenario, seed uint64, rate float64) (provider.Counts, error) {
	model, err := provider.New(s, seed)
	if err != nil {
		return provider.Counts{}, err
	}
	type attempt struct{ at, busy time.Duration }
	var sent []attempt
	sampler := provider.NewSampler(s, seed, 0)
	changes := s.Provider.Steps()
	change, factor := 0, 1.0
	for at := time.Duration(0); at < s.Horizon; at += time.Duration(float64(time.Second) / (rate * factor)) {
		for ; change < len(changes) && changes[change].At <= at; change++ {
			factor *= changes[change].Scale
		}
		uplink, total := sampler.Latency()
		sent = append(sent, attempt{at + uplink, total - 2*uplink})
	}
	slices.SortFunc(sent, func(a, b attempt) int { return cmp.Compare(a.at, b.at) })
	for _, a := range sent {
		if a.at < s.Horizon {
			model.Arrive(a.at, 0, sampler.Cost(), a.busy)
		}
	}
	return model.Counts(), nil
}

// At is the goodput of the frontier at a level of throttles: the most that any
// pacing with no more throttles gets, and between two points a straight line.
// Below its lowest point it is that point's.
func (f Frontier) At(per1000 float64) float64 {
	sorted := slices.SortedFunc(slices.Values(f), func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Per1000, b.Per1000), cmp.Compare(a.Goodput, b.Goodput))
	})
	best, level := sorted[0].Goodput, sorted[0].Per1000
	for _, p := range sorted {
		if p.Per1000 > per1000 {
			if p.Goodput > best && p.Per1000 > level {
				best += (p.Goodput - best) * (per1000 - level) / (p.Per1000 - level)
			}
			return best
		}
		if p.Goodput >= best {
			best, level = p.Goodput, p.Per1000
		}
	}
	return best
}
