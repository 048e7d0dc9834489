package population

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-go/headway/internal/sim"
)

// Report is the result of a law on a population. Its JSON has these fields in this order;
// null means unknown, or meaningless for a family.
type Report struct {
	Seed uint64 `json:"seed"`
	N    int    `json:"n"`
	// Family is the family if only one was drawn; "" means all.
	Family Family `json:"family,omitempty"`
	Law    string `json:"law"`
	// Passive is absent where clients are paced from the start.
	Passive bool `json:"passive,omitempty"`
	// Families are the groups by family, in the order of [Families]. Families without a
	// member are left out.
	Families []Group `json:"families"`
	All      Group   `json:"all"`
	// Targets is null without the informed client, or for a single family.
	Targets []Target `json:"targets"`
	// Members are sorted by number.
	Members []Outcome `json:"members"`
}

// Group has the figures of one family, or of all members.
type Group struct {
	Family  Family  `json:"family,omitempty"`
	Members int     `json:"members"`
	Law     Summary `json:"law"`
	// Bound has the informed client's figures; null if it was not run.
	Bound *Summary `json:"bound"`
	// Alone has the figures of one process in place of each fleet, and Overshoot their mean
	// overshoot; absent without fleets.
	Alone     *Summary   `json:"alone,omitempty"`
	Overshoot *Overshoot `json:"overshoot,omitempty"`
}

// Summary summarises one client's figures over members.
type Summary struct {
	// Goodput is the mean goodput.
	Goodput float64 `json:"goodput"`
	// Per1000 is the mean over members, Per1000Median the median, and Per1000Pooled all
	// refusals per 1000 of all admitted attempts.
	Per1000       float64 `json:"throttled_per_1000"`
	Per1000Median float64 `json:"throttled_per_1000_median"`
	Per1000Pooled float64 `json:"throttled_per_1000_pooled"`
	// Quiet is the share of members with few refusals: at most 3 per 1000, or at most 8 in
	// all.
	Quiet float64 `json:"quiet"`
	// WorstTwentieth is the mean goodput of the twentieth of members with the least,
	// rounded up to whole members. Worst is the least goodput.
	WorstTwentieth float64 `json:"worst_twentieth"`
	Worst          float64 `json:"worst"`
	WorstMember    int     `json:"worst_member"`
	// Jain is the mean over members with several clients.
	Jain *float64 `json:"fairness_jain"`
	// To90S is the median in seconds, where never counts as longest; null if that is the
	// median. Never is the number of members that never reached it.
	To90S *float64 `json:"time_to_90pct_s"`
	Never int      `json:"never_at_90pct"`
	// Suspended is the number of members that ended suspended.
	Suspended  int   `json:"suspended"`
	Violations int64 `json:"ceiling_violations"`
	// Unpushed is the share of a penalty's blocks without another refusal.
	Unpushed *float64 `json:"blocks_not_pushed"`
}

// The bounds for few refusals.
const (
	quietPer1000 = 3
	quietInAll   = 8
)

// Sum returns the report for outcomes of [Run], or of another client.
func Sum(o Options, outcomes []Outcome) *Report {
	r := &Report{Seed: o.Seed, N: o.N, Family: o.Family, Law: o.Law, Passive: o.Passive, Members: outcomes, All: group("", outcomes)}
	for _, f := range Families() {
		var of []Outcome
		for i := range outcomes {
			if outcomes[i].Family == f {
				of = append(of, outcomes[i])
			}
		}
		if len(of) > 0 {
			r.Families = append(r.Families, group(f, of))
		}
	}
	r.Targets = r.targets()
	return r
}

func group(f Family, of []Outcome) Group {
	var law, bound, alone []numbered
	var over Overshoot
	counted := 0.0
	for i := range of {
		law = append(law, numbered{of[i].Number, &of[i].Figures})
		if b := of[i].Bound; b != nil {
			bound = append(bound, numbered{of[i].Number, b})
		}
		if a := of[i].Alone; a != nil {
			alone = append(alone, numbered{of[i].Number, a})
		}
		if v := of[i].Overshoot; v != nil {
			over.Fleet, over.Alone, counted = over.Fleet+v.Fleet, over.Alone+v.Alone, counted+1
		}
	}
	g := Group{Family: f, Members: len(of), Law: sum(law)}
	if len(bound) > 0 {
		g.Bound = new(sum(bound))
	}
	if len(alone) > 0 {
		g.Alone = new(sum(alone))
	}
	if counted > 0 {
		g.Overshoot = &Overshoot{Fleet: math.Round(1e4*over.Fleet/counted) / 1e4, Alone: math.Round(1e4*over.Alone/counted) / 1e4}
	}
	return g
}

type numbered struct {
	number int
	*Figures
}

func sum(of []numbered) Summary {
	n := float64(len(of))
	var s Summary
	var admitted, throttled, blocks, pushed int64
	var per1000, to90, jain []float64
	for _, f := range of {
		s.Goodput += f.Goodput / n
		s.Per1000 += f.Per1000 / n
		per1000 = append(per1000, f.Per1000)
		admitted, throttled = admitted+f.Admitted, throttled+f.Throttled
		if f.Per1000 <= quietPer1000 || f.Throttled <= quietInAll {
			s.Quiet += 1 / n
		}
		if f.Jain != nil {
			jain = append(jain, *f.Jain)
		}
		if f.To90S != nil {
			to90 = append(to90, *f.To90S)
		} else {
			to90 = append(to90, math.Inf(1))
			s.Never++
		}
		if f.Suspended {
			s.Suspended++
		}
		s.Violations += f.Violations
		blocks, pushed = blocks+f.Blocks, pushed+f.BlocksPushed
	}
	s.Per1000Median = median(per1000)
	s.Per1000Pooled = 1000 * float64(throttled) / float64(max(1, admitted))
	if m := median(to90); !math.IsInf(m, 1) {
		s.To90S = &m
	}
	if len(jain) > 0 {
		s.Jain = new(0.0)
		for _, j := range jain {
			*s.Jain += j / float64(len(jain))
		}
	}
	if blocks > 0 {
		s.Unpushed = new(1 - float64(pushed)/float64(blocks))
	}
	s.worst(of)
	s.round()
	return s
}

func (s *Summary) worst(of []numbered) {
	slices.SortFunc(of, func(a, b numbered) int {
		return cmp.Or(cmp.Compare(a.Goodput, b.Goodput), cmp.Compare(a.number, b.number))
	})
	tail := of[:(len(of)+19)/20]
	for _, f := range tail {
		s.WorstTwentieth += f.Goodput / float64(len(tail))
	}
	s.Worst, s.WorstMember = of[0].Goodput, of[0].number
}

// round rounds the figures for readability.
func (s *Summary) round() {
	for _, x := range []*float64{
		&s.Goodput, &s.Per1000, &s.Per1000Median, &s.Per1000Pooled, &s.Quiet, &s.WorstTwentieth, s.Jain, s.To90S, s.Unpushed,
	} {
		if x != nil {
			*x = math.Round(*x*1e4) / 1e4
		}
	}
}

// median returns the median, which may be infinite.
func median(of []float64) float64 {
	slices.Sort(of)
	n := len(of)
	if n%2 == 1 || of[n/2-1] == of[n/2] {
		return of[n/2]
	}
	return (of[n/2-1] + of[n/2]) / 2
}

// JSON returns the report as indented JSON with a final newline. The same report gives the
// same bytes.
func (r *Report) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// unknown is the text for a figure without a value: never 0.
const unknown = "-"

func decimals(x float64, n int) string { return strconv.FormatFloat(x, 'f', n, 64) }

func known(x *float64, n int, unit string) string {
	if x == nil {
		return unknown
	}
	return decimals(*x, n) + unit
}

// column is a column of the table. Those named bound have the informed client's figure for
// the column before. Those named alone are about one process in place of a fleet: goodput,
// refusals per 1000 and overshoot.
type column struct {
	name string
	cell func(*Group) string
}

// bound formats a figure of the informed client.
func (g *Group) bound(show func(*Summary) string) string {
	if g.Bound == nil {
		return unknown
	}
	return show(g.Bound)
}

// alone formats a figure of one process in place of fleets, and overshoot one of the
// overshoot.
func (g *Group) alone(show func(*Summary) string) string {
	if g.Alone == nil {
		return unknown
	}
	return show(g.Alone)
}

func (g *Group) overshoot(of func(*Overshoot) float64) string {
	if g.Overshoot == nil {
		return unknown
	}
	return decimals(100*of(g.Overshoot), 2) + " %"
}

// columns are the columns of the table; "per 1000" means refusals per 1000 admitted.
var columns = []column{
	{"family", func(g *Group) string {
		if g.Family == "" {
			return "all"
		}
		return string(g.Family)
	}},
	{"members", func(g *Group) string { return strconv.Itoa(g.Members) }},
	{"goodput", func(g *Group) string { return decimals(g.Law.Goodput, 3) }},
	{"bound", func(g *Group) string { return g.bound(func(s *Summary) string { return decimals(s.Goodput, 3) }) }},
	{"per 1000", func(g *Group) string { return decimals(g.Law.Per1000, 2) }},
	{"bound", func(g *Group) string { return g.bound(func(s *Summary) string { return decimals(s.Per1000, 2) }) }},
	{"median", func(g *Group) string { return decimals(g.Law.Per1000Median, 2) }},
	{"pooled", func(g *Group) string { return decimals(g.Law.Per1000Pooled, 2) }},
	{"few", func(g *Group) string { return decimals(100*g.Law.Quiet, 0) + " %" }},
	{"worst 5 %", func(g *Group) string { return decimals(g.Law.WorstTwentieth, 3) }},
	{"bound", func(g *Group) string {
		return g.bound(func(s *Summary) string { return decimals(s.WorstTwentieth, 3) })
	}},
	{"worst", func(g *Group) string { return decimals(g.Law.Worst, 3) + " #" + strconv.Itoa(g.Law.WorstMember) }},
	{"alone", func(g *Group) string { return g.alone(func(s *Summary) string { return decimals(s.Goodput, 3) }) }},
	{"alone", func(g *Group) string { return g.alone(func(s *Summary) string { return decimals(s.Per1000, 2) }) }},
	{"overshoot", func(g *Group) string { return g.overshoot(func(o *Overshoot) float64 { return o.Fleet }) }},
	{"alone", func(g *Group) string { return g.overshoot(func(o *Overshoot) float64 { return o.Alone }) }},
	{"jain", func(g *Group) string { return known(g.Law.Jain, 3, "") }},
	{"to 90 %", func(g *Group) string { return known(g.Law.To90S, 0, " s") }},
	{"never", func(g *Group) string { return strconv.Itoa(g.Law.Never) }},
	{"suspended", func(g *Group) string { return strconv.Itoa(g.Law.Suspended) }},
	{"over ceiling", func(g *Group) string { return strconv.FormatInt(g.Law.Violations, 10) }},
}

// WriteText writes the report for people: a line for each family, one for all, and the
// targets.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	start := ""
	if r.Passive {
		start = ", passive start"
	}
	fmt.Fprintf(&b, "law %s, seed %d, %d members%s\n\n", r.Law, r.Seed, r.N, start)
	groups := r.Families
	if len(groups) != 1 {
		groups = append(slices.Clip(groups), r.All)
	}
	rows := make([][]string, len(groups)+1)
	columns := slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return c.name == "bound" && r.All.Bound == nil || (c.name == "alone" || c.name == "overshoot") && r.All.Alone == nil
	})
	for _, c := range columns {
		rows[0] = append(rows[0], c.name)
		for g := range groups {
			rows[g+1] = append(rows[g+1], c.cell(&groups[g]))
		}
	}
	if err := sim.Tabulate(&b, rows, func(i int) bool { return i == 0 }); err != nil {
		return err
	}
	if len(r.Targets) > 0 {
		b.WriteByte('\n')
	}
	for _, t := range r.Targets {
		met := "MISSED"
		if t.Met {
			met = "met"
		}
		fmt.Fprintf(&b, "%-6s  %s: %s\n", met, t.Target, t.Figure)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// The picture's measures, in pixels.
const (
	width, height = 1000, 560
	left, right   = 80, 960
	top, bottom   = 80, 490
	// fewest and most are the ends of the logarithmic axis, in refusals per 1000.
	fewest, most = 0.03, 3000
)

const (
	inkText  = "#24292f"
	inkFaint = "#6e7781"
	inkGrid  = "#e4e7eb"
	inkLaw   = "#1a7f37"
	inkBound = "#4f86bd"
)

func across(per1000 float64) float64 {
	return left + (right-left)*math.Log10(min(max(per1000, fewest), most)/fewest)/math.Log10(most/fewest)
}

func up(goodput float64) float64 { return bottom - (bottom-top)*goodput/1.02 }

// WriteSVG draws the population, 1000 by 560 pixels: goodput on the vertical axis, refusals
// per 1000 admitted on the horizontal, logarithmic one. Each member is a dot, and the mean
// a large dot, for the law and the informed client if it was run. Values below the axis are
// drawn at its start. The same report gives the same bytes.
func (r *Report) WriteSVG(w io.Writer) error {
	b := bufio.NewWriter(w)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(b, format+"\n", args...) } // Flush returns the error
	p(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="%s">`, width, height, inkText)
	p(`<rect width="%d" height="%d" fill="#ffffff"/>`, width, height)
	what := "providers"
	if r.Family != "" {
		what += " of the family " + string(r.Family)
	}
	p(`<text x="%d" y="28" font-size="17" font-weight="bold">%s on %d %s drawn with seed %d</text>`, left, r.Law, r.N, what, r.Seed)
	for g := 0.0; g <= 1.001; g += 0.2 {
		p(`<path d="M%d %.1fH%d" stroke="%s"/><text x="%d" y="%.1f" text-anchor="end" fill="%s">%.1f</text>`, left, up(g), right, inkGrid, left-8, up(g)+4, inkFaint, g)
	}
	for _, k := range []float64{0.1, 1, 10, 100, 1000} {
		p(`<path d="M%.1f %dV%d" stroke="%s"/><text x="%[1]f" y="%[5]d" text-anchor="middle" fill="%[6]s">%[7]g</text>`, across(k), top, bottom, inkGrid, bottom+18, inkFaint, k)
	}
	p(`<text x="%d" y="%d" text-anchor="middle">refusals per 1000 admitted, logarithmic; fewer is better</text>`, (left+right)/2, bottom+42)
	p(`<text x="24" y="%d" text-anchor="middle" transform="rotate(-90 24 %[1]d)">goodput; more is better</text>`, (top+bottom)/2)
	for i := range r.Members {
		if m := r.Members[i].Bound; m != nil {
			p(`<circle cx="%.1f" cy="%.1f" r="2" fill="%s" fill-opacity="0.35"/>`, across(m.Per1000), up(m.Goodput), inkBound)
		}
	}
	for i := range r.Members {
		m := &r.Members[i]
		p(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s" fill-opacity="0.45"><title>%s, member %d: %.3f / %.2f</title></circle>`, across(m.Per1000), up(m.Goodput), inkLaw, m.Family, m.Number, m.Goodput, m.Per1000)
	}
	mean(p, left, r.Law, inkLaw, &r.All.Law)
	if r.All.Bound != nil {
		mean(p, left+300, "informed client", inkBound, r.All.Bound)
	}
	p(`</svg>`)
	return b.Flush()
}

// mean draws the large dot of a client, with a label.
func mean(p func(string, ...any), x int, name, ink string, s *Summary) {
	p(`<circle cx="%.1f" cy="%.1f" r="9" fill="%s" stroke="#ffffff" stroke-width="2"/>`, across(s.Per1000), up(s.Goodput), ink)
	p(`<circle cx="%d" cy="52" r="6" fill="%s"/><text x="%d" y="56">%s: mean %.3f / %.2f</text>`, x+6, ink, x+18, name, s.Goodput, s.Per1000)
}
