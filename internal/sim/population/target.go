package population

import "fmt"

// Target is one that a law is held against.
type Target struct {
	Target string `json:"target"`
	// Figure is what was measured, for a person.
	Figure string `json:"figure"`
	Met    bool   `json:"met"`
}

// The targets, where the informed client was played and all families were drawn.
const (
	barGoodput       = 0.96 // of the informed client's, in the mean
	barFamilyGoodput = 0.90 // in each family
	barWorst         = 0.85 // of the worst twentieth
	barPer1000       = 3    // mean
	barMedian        = 1
	barPooled        = 1
	barQuiet         = 0.95
	barJain          = 0.95
	barUnpushed      = 0.9
)

// percent is a share in percent.
func percent(x *float64) string {
	if x == nil {
		return unknown
	}
	return decimals(100**x, 1) + " %"
}

// targets are nil where they cannot be judged.
func (r *Report) targets() []Target {
	if r.All.Bound == nil || r.Family != "" {
		return nil
	}
	law, bound := &r.All.Law, r.All.Bound
	var ts []Target
	add := func(met bool, target, figure string, args ...any) {
		ts = append(ts, Target{target, fmt.Sprintf(figure, args...), met})
	}
	against := func(bar float64, what string, got, of float64) {
		add(got >= bar*of, fmt.Sprintf("%s >= %.2f of the bound's", what, bar), "%.3f of %.3f, %.3f", got, of, got/of)
	}
	against(barGoodput, "mean goodput", law.Goodput, bound.Goodput)
	var lowest *Group
	for i := range r.Families {
		g := &r.Families[i]
		if lowest == nil || g.Law.Goodput*lowest.Bound.Goodput < lowest.Law.Goodput*g.Bound.Goodput {
			lowest = g
		}
	}
	against(barFamilyGoodput, "mean goodput of each family", lowest.Law.Goodput, lowest.Bound.Goodput)
	ts[len(ts)-1].Figure += " in " + string(lowest.Family)
	against(barWorst, "worst twentieth's goodput", law.WorstTwentieth, bound.WorstTwentieth)
	add(law.Per1000 <= barPer1000, fmt.Sprintf("mean refusals per 1000 <= %d", barPer1000), "%.2f, the bound's %.2f", law.Per1000, bound.Per1000)
	add(law.Per1000Median <= barMedian, fmt.Sprintf("median refusals per 1000 <= %d", barMedian), "%.2f, the bound's %.2f", law.Per1000Median, bound.Per1000Median)
	add(law.Per1000Pooled <= barPooled, fmt.Sprintf("pooled refusals per 1000 <= %d", barPooled), "%.2f, the bound's %.2f", law.Per1000Pooled, bound.Per1000Pooled)
	add(law.Quiet >= barQuiet, fmt.Sprintf("members with at most %d per 1000 or %d refusals >= %.0f %%", quietPer1000, quietInAll, 100*barQuiet),
		"%.1f %%, the bound's %.1f %%", 100*law.Quiet, 100*bound.Quiet)
	add(law.Suspended == 0, "no suspension", "%d", law.Suspended)
	add(law.Violations == 0, "no violation of the ceiling", "%d", law.Violations)
	for i := range r.Families {
		switch g := &r.Families[i]; {
		case g.Family == ClientsApart && g.Law.Jain != nil:
			add(*g.Law.Jain >= barJain, fmt.Sprintf("clients apart: Jain >= %.2f", barJain), "%.3f, the bound's %s", *g.Law.Jain, known(g.Bound.Jain, 3, ""))
		case g.Family == Ban && g.Law.Unpushed != nil:
			add(*g.Law.Unpushed >= barUnpushed, fmt.Sprintf("bans without a second refusal before their end >= %.0f %%", 100*barUnpushed),
				"%.1f %%, the bound's %s", 100**g.Law.Unpushed, percent(g.Bound.Unpushed))
		}
	}
	return ts
}
