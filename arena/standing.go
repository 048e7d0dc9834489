package arena

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// Standing is the result of one law or rival in one scenario, over its seeds: means,
// unless something else is said.
type Standing struct {
	Scenario *scenario.Scenario
	Name     string
	Seeds    int
	Goodput  float64
	// Per1000 is throttles for each 1000 admitted. If nothing was admitted, it counts as
	// if one request had been.
	Per1000   float64
	Throttled float64
	// To90 is nil when a seed never got there.
	To90 *float64
	// Block is the longest of all seeds, in seconds.
	Block float64
	// Suspended is the number of seeds in which the account was suspended.
	Suspended int
	// PerChange is nil for a scenario without changes, Jain for one without
	// independent clients.
	PerChange, Jain *float64
	// Violations of the ceiling, in all seeds.
	Violations int64
	// Cut is the number of seeds in which the run was cut short, CutAt the earliest
	// instant of that.
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

// Field is the standing of every law and rival in every scenario.
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

// Paired is like Of, over only those seeds that rivals were run with too.
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

// Target is one thing that a law has to reach.
type Target struct {
	What   string
	Figure string // what it reached
	Met    bool
	// Missed are the scenarios or rivals where it failed, with their figures.
	Missed []string
}

// Verdict is a law held against every target.
type Verdict struct {
	Law     string
	Targets []Target
}

// Met counts the targets that were met.
func (v Verdict) Met() int {
	n := 0
	for _, t := range v.Targets {
		if t.Met {
			n++
		}
	}
	return n
}

// The bars.
const (
	barMeanGoodput = 0.96
	barMeanPer1000 = 1.0
	barGoodput     = 0.90
	barPer1000     = 3.0
	barFew         = 8.0 // throttles in all, where so few are admitted that 3 per 1000 is less
	barFrontier    = 0.98
	barBan         = 0.85
	barPerChange   = 5.0
	barJain        = 0.95
	barAhead       = 10.0
)

// Judge holds a law against the targets. Figures are means over the seeds; next to
// a rival, over those that rivals were run with.
func Judge(f *Field, law string) Verdict {
	goodput, per1000 := f.Means(law)
	j := judge{f: f, law: law}
	targets := []Target{
		{What: fmt.Sprintf("mean goodput >= %g", barMeanGoodput), Figure: fmt.Sprintf("%.4f", goodput), Met: goodput >= barMeanGoodput},
		{What: fmt.Sprintf("mean throttled per 1000 <= %g", barMeanPer1000), Figure: fmt.Sprintf("%.3f", per1000), Met: per1000 <= barMeanPer1000},
		j.each(fmt.Sprintf("goodput >= %g in each scenario without an inherent bound or a ban", barGoodput), "lowest", math.Inf(1), math.Min,
			func(st Standing) (float64, bool, bool) {
				return st.Goodput, st.Goodput >= barGoodput, !Inherent(st.Scenario) && !Ban(st.Scenario)
			}),
		j.each(fmt.Sprintf("throttled per 1000 <= %g, or <= %g throttles in all, in each scenario", barPer1000, barFew), "most per 1000", 0, math.Max,
			func(st Standing) (float64, bool, bool) {
				return st.Per1000, st.Per1000 <= barPer1000 || st.Throttled <= barFew, true
			}),
		j.each(fmt.Sprintf("burst 1 and strangers: goodput >= %g of constant pacing's at the same throttles", barFrontier), "lowest part", math.Inf(1), math.Min,
			func(st Standing) (float64, bool, bool) {
				part := st.Goodput / f.Frontiers[st.Scenario.Name].bar(st.Per1000)
				return part, part >= barFrontier, Inherent(st.Scenario)
			}),
		j.each(fmt.Sprintf("under a ban: goodput >= %g", barBan), "lowest", math.Inf(1), math.Min,
			func(st Standing) (float64, bool, bool) { return st.Goodput, st.Goodput >= barBan, Ban(st.Scenario) }),
		j.each("never suspended", "suspended runs", 0, sum,
			func(st Standing) (float64, bool, bool) { return float64(st.Suspended), st.Suspended == 0, true }),
		j.each(fmt.Sprintf("throttles for each change of the limit <= %g", barPerChange), "most", 0, math.Max,
			func(st Standing) (float64, bool, bool) {
				return optional(st.PerChange, func(x float64) bool { return x <= barPerChange })
			}),
		j.each(fmt.Sprintf("independent clients: Jain's index >= %g", barJain), "lowest", math.Inf(1), math.Min,
			func(st Standing) (float64, bool, bool) {
				return optional(st.Jain, func(x float64) bool { return x >= barJain })
			}),
		j.each("no violation of the ceiling", "violations", 0, sum,
			func(st Standing) (float64, bool, bool) { return float64(st.Violations), st.Violations == 0, true }),
		j.unbeaten(),
		j.ahead(),
	}
	return Verdict{Law: law, Targets: targets}
}

func sum(a, b float64) float64 { return a + b }

func optional(x *float64, ok func(float64) bool) (figure float64, met, counts bool) {
	if x == nil {
		return 0, true, false
	}
	return *x, ok(*x), true
}

// bar is At, but never 0, since figures are divided by it.
func (f Frontier) bar(per1000 float64) float64 {
	if len(f) == 0 {
		return 1
	}
	return max(f.At(per1000), 1e-9)
}

// judge is a law before its targets.
type judge struct {
	f   *Field
	law string
}

// each is a target that every scenario that counts must reach. If there is no such
// scenario, the target is missed, since nothing shows that it was reached.
func (j judge) each(what, label string, figure float64, fold func(a, b float64) float64,
	look func(Standing) (figure float64, met, counts bool),
) Target {
	t := Target{What: what}
	n := 0
	for _, s := range j.f.Scenarios {
		x, met, counts := look(j.f.Of(s, j.law))
		if !counts {
			continue
		}
		n++
		figure = fold(figure, x)
		if !met {
			t.Missed = append(t.Missed, fmt.Sprintf("%s %.4g", s.Name, x))
		}
	}
	t.Met = n > 0 && len(t.Missed) == 0
	t.Figure = fmt.Sprintf("%s %.4g, %d of %d scenarios", label, figure, n-len(t.Missed), n)
	if n == 0 {
		t.Figure = "no such scenario was run"
	}
	return t
}

// fair are the rivals, without the cheats.
func (j judge) fair() []Rival {
	return slices.DeleteFunc(slices.Clone(j.f.Rivals), func(r Rival) bool { return r.Origin == Cheat })
}

// unbeaten: no rival is ahead on both figures in any scenario.
func (j judge) unbeaten() Target {
	t := Target{What: "no rival has more goodput and fewer throttles per 1000 in any scenario"}
	for _, s := range j.f.Scenarios {
		own := j.f.Paired(s, j.law)
		for _, r := range j.fair() {
			if st := j.f.Paired(s, r.Name); st.Goodput > own.Goodput && st.Per1000 < own.Per1000 {
				t.Missed = append(t.Missed, fmt.Sprintf("%s in %s (%.4f / %.3g against %.4f / %.3g)", r.Name, s.Name, st.Goodput, st.Per1000, own.Goodput, own.Per1000))
			}
		}
	}
	t.Met = len(t.Missed) == 0 && len(j.fair()) > 0
	t.Figure = fmt.Sprintf("%d times, of %d", len(t.Missed), len(j.fair())*len(j.f.Scenarios))
	return t
}

// ahead: in the mean, a tenth of each rival's throttles and more goodput.
func (j judge) ahead() Target {
	goodput, per1000 := j.f.means(j.law, j.f.Paired)
	t := Target{What: fmt.Sprintf("in the means, throttles at least %g times fewer than each rival's, with goodput above", barAhead)}
	least := math.Inf(1)
	for _, r := range j.fair() {
		g, p := j.f.means(r.Name, j.f.Paired)
		times := math.Inf(1)
		if per1000 > 0 {
			times = p / per1000
		}
		least = min(least, times)
		if times < barAhead || goodput <= g {
			t.Missed = append(t.Missed, fmt.Sprintf("%s (%.4f / %.4g)", r.Name, g, p))
		}
	}
	t.Met = len(t.Missed) == 0 && len(j.fair()) > 0
	t.Figure = fmt.Sprintf("at least %.3g times fewer, ahead of %d of %d", least, len(j.fair())-len(t.Missed), len(j.fair()))
	return t
}

// Best is the verdict on the law that meets the most targets. Between equals, fewer
// throttles in the mean win. There must be at least one law.
func Best(f *Field) Verdict {
	var best Verdict
	for _, law := range f.Laws {
		v := Judge(f, law)
		_, p := f.Means(law)
		_, least := f.Means(best.Law)
		if best.Law == "" || v.Met() > best.Met() || v.Met() == best.Met() && p < least {
			best = v
		}
	}
	return best
}

// String has a line for each target.
func (v Verdict) String() string {
	var b strings.Builder
	for _, t := range v.Targets {
		word := "met   "
		if !t.Met {
			word = "MISSED"
		}
		fmt.Fprintf(&b, "%s  %s: %s\n", word, t.What, t.Figure)
		for _, m := range t.Missed {
			fmt.Fprintf(&b, "          %s\n", m)
		}
	}
	return b.String()
}

// titles names scenarios for a person.
func titles(all []*scenario.Scenario, which func(*scenario.Scenario) bool) string {
	var names []string
	for _, s := range all {
		if which(s) {
			names = append(names, "`"+s.Name+"`")
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
