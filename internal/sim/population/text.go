package population

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unknown stands for what has no value: never 0.
const unknown = "-"

func decimals(x float64, n int) string { return strconv.FormatFloat(x, 'f', n, 64) }

func known(x *float64, n int, unit string) string {
	if x == nil {
		return unknown
	}
	return decimals(*x, n) + unit
}

// column is one of the table. Those named bound are the informed client's figure
// for the one before.
type column struct {
	name string
	cell func(*Group) string
}

// bound shows a figure of the informed client's.
func (g *Group) bound(show func(*Summary) string) string {
	if g.Bound == nil {
		return unknown
	}
	return show(g.Bound)
}

// columns of the table; "per 1000" are refusals for each 1000 admitted.
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
	{"jain", func(g *Group) string { return known(g.Law.Jain, 3, "") }},
	{"to 90 %", func(g *Group) string { return known(g.Law.To90S, 0, " s") }},
	{"never", func(g *Group) string { return strconv.Itoa(g.Law.Never) }},
	{"suspended", func(g *Group) string { return strconv.Itoa(g.Law.Suspended) }},
	{"over ceiling", func(g *Group) string { return strconv.FormatInt(g.Law.Violations, 10) }},
}

// WriteText writes the report for a person: a line a family, one for all, and the
// targets.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "law %s, seed %d, %d members\n\n", r.Law, r.Seed, r.N)
	groups := r.Families
	if len(groups) != 1 {
		groups = append(groups[:len(groups):len(groups)], r.All)
	}
	rows := make([][]string, len(groups)+1)
	columns := slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return c.name == "bound" && r.All.Bound == nil })
	widths := make([]int, len(columns))
	for i, c := range columns {
		rows[0] = append(rows[0], c.name)
		for g := range groups {
			rows[g+1] = append(rows[g+1], c.cell(&groups[g]))
		}
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		b.WriteByte('\n')
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
