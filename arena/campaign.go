package arena

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/sim"
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
	// Progress is told how far it is; nil says nothing.
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
