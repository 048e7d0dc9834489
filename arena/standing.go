package arena

import (
	"slices"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// Standing is how one law or rival fared in one scenario, over its seeds: means,
// unless something else is said.
type Standing struct {
	Scenario *scenario.Scenario
	Name     string
	Seeds    int
	Goodput  float64
	// Per1000 is throttles for each 1000 admitted; where nothing was admitted,
	// as if one had been.
	Per1000   float64
	Throttled float64
	// To90 is nil when a seed never got there.
	To90 *float64
	// Block is the longest of all seeds, in seconds.
	Block float64
	// Suspended is in how many seeds the account was.
	Suspended int
	// PerChange is nil for a scenario without changes, Jain for one without
	// independent clients.
	PerChange, Jain *float64
	// Violations of the ceiling, in all seeds.
	Violations int64
	// Cut is in how many seeds the run was cut, and CutAt the earliest.
	Cut   int
	CutAt time.Duration
}

// Stand sums up the runs of one law or rival in one scenario.
func Stand(s *scenario.Scenario, name string, runs []Entry) Standing {
	st := Standing{Scenario: s, Name: name, Seeds: len(runs)}
	n := float64(len(runs))
	add := func(sum **float64, x *float64) {
		if x != nil {
			if *sum == nil {
				*sum = new(0.0)
			}
			**sum += *x / n
		}
	}
	known := true
	for _, e := range runs {
		if e.GoodputRatio != nil {
			st.Goodput += *e.GoodputRatio / n
		}
		st.Per1000 += 1000 * float64(e.Throttled) / float64(max(1, e.Admitted)) / n
		st.Throttled += float64(e.Throttled) / n
		st.Block = max(st.Block, e.LongestBlockS)
		st.Violations += e.CeilingViolations
		if e.Suspended {
			st.Suspended++
		}
		if e.Cut > 0 {
			if st.Cut++; st.CutAt == 0 || e.Cut < st.CutAt {
				st.CutAt = e.Cut
			}
		}
		known = known && e.TimeTo90PctS != nil
		add(&st.To90, e.TimeTo90PctS)
		add(&st.PerChange, e.ThrottlesPerChange)
		if !s.Fleet {
			add(&st.Jain, e.FairnessJain)
		}
	}
	if !known {
		st.To90 = nil
	}
	return st
}

// Field is the standing of everybody in every scenario.
type Field struct {
	Seeds []uint64
	// RivalSeeds are the first of Seeds: those that rivals were run with.
	RivalSeeds []uint64
	Scenarios  []*scenario.Scenario
	Laws       []string // headway's
	Rivals     []Rival
	// Frontiers are those of the scenarios that have one, by name.
	Frontiers map[string]Frontier
	standings map[place]Standing
}

// place is a law or a rival in a scenario.
type place struct {
	scenario, name string
	paired         bool // over the rivals' seeds alone
}

// Put adds the runs of a law or a rival in a scenario, in the order of the seeds.
func (f *Field) Put(s *scenario.Scenario, name string, runs []Entry) {
	if f.standings == nil {
		f.standings = make(map[place]Standing)
	}
	f.standings[place{s.Name, name, false}] = Stand(s, name, runs)
	f.standings[place{s.Name, name, true}] = Stand(s, name, runs[:min(len(runs), len(f.RivalSeeds))])
}

// Of is the standing of a law or a rival in a scenario.
func (f *Field) Of(s *scenario.Scenario, name string) Standing {
	return f.standings[place{s.Name, name, false}]
}

// Paired is Of over the seeds that rivals were run with, so that like is compared
// with like.
func (f *Field) Paired(s *scenario.Scenario, name string) Standing {
	return f.standings[place{s.Name, name, true}]
}

// Names are headway's laws and then the rivals.
func (f *Field) Names() []string {
	names := slices.Clone(f.Laws)
	for _, r := range f.Rivals {
		names = append(names, r.Name)
	}
	return names
}

// Means are the mean goodput and the mean of throttles per 1000 over all
// scenarios.
func (f *Field) Means(name string) (goodput, per1000 float64) { return f.means(name, f.Of) }

func (f *Field) means(name string, of func(*scenario.Scenario, string) Standing) (goodput, per1000 float64) {
	n := float64(len(f.Scenarios))
	for _, s := range f.Scenarios {
		st := of(s, name)
		goodput += st.Goodput / n
		per1000 += st.Per1000 / n
	}
	return goodput, per1000
}
