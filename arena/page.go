package arena

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// Page is docs/arena.md: the first field is shown in full, the verdict is on
// each. There must be a field, and a law in it.
type Page struct {
	Fields []*Field
	// Most is after how many refusals a rival's run was cut.
	Most int
	// Crowd is what the page leads with; nil leaves it out.
	Crowd *Crowd
}

// pictured are the scenarios that get a picture, as far as they are run.
var pictured = []string{"bucket-20", "burst-1", "fixed-600", "ban", "halved", "doubled", "strangers", "concurrency-12"}

// law is the law that the verdict is on: the best in the first field.
func (p Page) law() string { return Best(p.Fields[0]).Law }

// Verdicts is the verdict on each field, for a terminal.
func (p Page) Verdicts() string {
	var b strings.Builder
	for _, f := range p.Fields {
		v := Judge(f, p.law())
		fmt.Fprintf(&b, "law %s, %s, %d scenarios: %d of %d targets met\n%s\n", v.Law, seedsOf(f), len(f.Scenarios), v.Met(), len(v.Targets), v)
	}
	return b.String()
}

func seedsOf(f *Field) string { return "seeds " + list(f.Seeds) }

func list(seeds []uint64) string {
	var words []string
	for _, s := range seeds {
		words = append(words, strconv.FormatUint(s, 10))
	}
	return strings.Join(words, ", ")
}

// Write writes arena.md and the folder arena with the pictures into a folder.
func (p Page) Write(folder string) error {
	pictures := filepath.Join(folder, "arena")
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	f := p.Fields[0]
	var overview bytes.Buffer
	drawOverview(&overview, f)
	if err := os.WriteFile(filepath.Join(pictures, "overview.svg"), overview.Bytes(), 0o644); err != nil {
		return err
	}
	for _, s := range p.shown() {
		r, err := sim.Run(s, sim.Options{Law: p.law(), Seed: f.Seeds[0], Trace: true})
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := sim.WriteSVG(&b, r.Trace); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(pictures, s.Name+".svg"), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	page := p.markdown()
	if p.Crowd != nil {
		if err := p.Crowd.draw(pictures); err != nil {
			return err
		}
		page = Lead(page, p.Crowd.Section())
	}
	return os.WriteFile(filepath.Join(folder, "arena.md"), page, 0o644)
}

// shown are the pictured scenarios of the first field.
func (p Page) shown() []*scenario.Scenario {
	return slices.DeleteFunc(slices.Clone(p.Fields[0].Scenarios), func(s *scenario.Scenario) bool { return !slices.Contains(pictured, s.Name) })
}

func (p Page) markdown() []byte {
	var b bytes.Buffer
	f := p.Fields[0]
	fmt.Fprintf(&b, intro, len(f.Scenarios), len(f.Seeds), runtime.Version())
	p.verdicts(&b)
	p.means(&b)
	p.rivals(&b)
	p.frontiers(&b)
	p.scenarios(&b)
	return b.Bytes()
}

const intro = `# The arena

Written by ` + "`make arena`" + `; do not edit. Headway's laws and their rivals against the
same model of a provider, in virtual time: %d scenarios (` + "`internal/sim/scenarios`" + `), %d seeds,
built with %s. Rivals run their own code, unchanged, in ` + "`testing/synctest`" + `
bubbles over an in-memory ` + "`http.RoundTripper`" + `; headway's laws run in ` + "`sim.Run`" + `. Both
meet the same sampler for latency, uplink and cost, the same limits and the same
ledger. *Goodput* is what was admitted as a part of what a clairvoyant client
would have got; *throttled* is refusals for each 1000 admitted.

`

func (p Page) verdicts(b *bytes.Buffer) {
	fmt.Fprintf(b, "## Verdict\n\nThe law is `%s`, the best of headway's: %s. Figures are means over the seeds of a set. A rival that is a cheat is given a number that no law gets, and is left out.\n", p.law(), "`"+strings.Join(p.Fields[0].Laws, "`, `")+"`")
	for _, f := range p.Fields {
		v := Judge(f, p.law())
		fmt.Fprintf(b, "\n### With %s: %d of %d targets met\n\n| target | figure | |\n|---|---|---|\n", seedsOf(f), v.Met(), len(v.Targets))
		for _, t := range v.Targets {
			word := "met"
			if !t.Met {
				word = "**MISSED**"
			}
			fmt.Fprintf(b, "| %s | %s | %s |\n", t.What, t.Figure, word)
		}
		for _, t := range v.Targets {
			if len(t.Missed) > 0 {
				fmt.Fprintf(b, "\nMissed, %s: %s.\n", t.What, strings.Join(t.Missed, "; "))
			}
		}
	}
	all := p.Fields[0].Scenarios
	fmt.Fprintf(b, "\nThe frontier is the bar in %s; the bar for a ban applies to %s.\n\n", titles(all, Inherent), titles(all, Ban))
}

func (p Page) means(b *bytes.Buffer) {
	f := p.Fields[0]
	fmt.Fprintf(b, "## Means over all scenarios\n\n![Goodput against throttles of every law](arena/overview.svg)\n\n")
	fmt.Fprintf(b, "| law | goodput | throttled per 1000 | scenarios with >= %g goodput and <= %g per 1000 | suspended in | runs cut |\n|---|---|---|---|---|---|\n", barGoodput, barPer1000)
	for _, name := range f.Names() {
		g, k := f.Means(name)
		good, suspended, cut := 0, 0, 0
		for _, s := range f.Scenarios {
			st := f.Of(s, name)
			if st.Goodput >= barGoodput && st.Per1000 <= barPer1000 {
				good++
			}
			if st.Suspended > 0 {
				suspended++
			}
			cut += st.Cut
		}
		fmt.Fprintf(b, "| %s | %.4f | %s | %d | %d | %d |\n", f.label(name), g, few(k), good, suspended, cut)
	}
	fmt.Fprintf(b, "\nNothing admitted counts as one admitted, so one scenario in which a rival is shut out outweighs the rest of its throttles. Where a run was cut, after %d refusals and failures, its figures are those until then.\n\n", p.Most)
}

// label is a law's name, set off when it is headway's or a cheat.
func (f *Field) label(name string) string {
	if slices.Contains(f.Laws, name) {
		return "**headway " + name + "**"
	}
	i := slices.IndexFunc(f.Rivals, func(r Rival) bool { return r.Name == name })
	if i >= 0 && f.Rivals[i].Origin == Cheat {
		return name + " (a cheat)"
	}
	return name
}

func (p Page) rivals(b *bytes.Buffer) {
	fmt.Fprintf(b, "## The rivals\n\n| name | code | version | configuration |\n|---|---|---|---|\n")
	for _, r := range p.Fields[0].Rivals {
		code := "`" + r.Module + "`"
		if r.Module == "" {
			code = ""
		}
		fmt.Fprintf(b, "| %s | %s %s | %s | %s |\n", r.Name, r.Origin, code, r.Version(), r.Configuration)
	}
	fmt.Fprintf(b, method, list(p.Fields[0].RivalSeeds), Spin, p.Most)
}

const method = `
How they are driven:

- A worker for each place in flight takes work, hands it to the rival and waits. Work
  that the rival gives up goes back to the head of the line at once. Independent clients
  have a rival each; a fleet shares one.
- Rivals are run with seed %s, headway's laws with all; where they are compared, only
  the seeds that both were run with count.
- Nothing holds rivals to the owner's ceiling, which they have no notion of; headway and
  the oracle keep it. Where it binds, a rival may get more than the oracle, which is
  shown as 1.
- A bubble's clock stands still while anything runs, so a rival that waits for no time
  would wait for ever. AWS's adaptive mode does: the wait for a token is rounded down, to
  0 ns when the token is a rounding error away. Each of its waits is charged %v,
  by a context that takes that long to look at; so is an attempt that fails without
  being sent.
- A run ends after %d refusals and failures, so that one that hammers finishes; it is
  marked *cut*, with the earliest instant of all seeds.
- After a suspension nothing more is sent; goodput is still of the whole horizon.
- Everything that the scenario leaves to chance comes from the seed. AWS draws its
  backoff from the system's random numbers, and what several workers do in one nanosecond
  has no order, so the rivals' figures differ in their last digits from one writing of
  this page to the next. Headway's do not.

`

func (p Page) frontiers(b *bytes.Buffer) {
	f := p.Fields[0]
	fmt.Fprintf(b, "## Where the loss is inherent\n\nConstant pacing at parts of the right rate, which sees nothing and needs to learn nothing: goodput / throttled per 1000. With a burst of 1 the jitter of arrivals decides, with strangers their chance.\n\n")
	shown := slices.DeleteFunc(slices.Clone(f.Scenarios), func(s *scenario.Scenario) bool { return !Inherent(s) })
	if len(shown) == 0 {
		fmt.Fprint(b, "No such scenario was run.\n\n")
		return
	}
	fmt.Fprint(b, "| part |")
	for _, s := range shown {
		fmt.Fprintf(b, " %s |", s.Name)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(shown)))
	for i, part := range parts {
		fmt.Fprintf(b, "| %.2f |", part)
		for _, s := range shown {
			pt := f.Frontiers[s.Name][i]
			fmt.Fprintf(b, " %.3f / %s |", pt.Goodput, few(pt.Per1000))
		}
		fmt.Fprintln(b)
	}
	fmt.Fprintf(b, "| **%s** |", p.law())
	for _, s := range shown {
		st := f.Of(s, p.law())
		fmt.Fprintf(b, " **%.3f / %s**, of %.3f |", st.Goodput, few(st.Per1000), f.Frontiers[s.Name].At(st.Per1000))
	}
	fmt.Fprint(b, "\n\n")
}

func (p Page) scenarios(b *bytes.Buffer) {
	f := p.Fields[0]
	fmt.Fprintf(b, "## Scenario by scenario\n\nMeans over %s, of rivals over seed %s; the longest block is that of all seeds.\n", seedsOf(f), list(f.RivalSeeds))
	for _, s := range f.Scenarios {
		fmt.Fprintf(b, "\n### %s\n\n%s\n\n", s.Name, limitsOf(s))
		if slices.Contains(pictured, s.Name) {
			fmt.Fprintf(b, "![%s under %s](arena/%s.svg)\n\n", s.Name, p.law(), s.Name)
		}
		fmt.Fprint(b, "| law | goodput | throttled per 1000 | time to 90 % | longest block | |\n|---|---|---|---|---|---|\n")
		for _, name := range f.Names() {
			st := f.Of(s, name)
			to90 := "-"
			if st.To90 != nil {
				to90 = fmt.Sprintf("%.0f s", *st.To90)
			}
			fmt.Fprintf(b, "| %s | %.4f | %s | %s | %.1f s | %s |\n", f.label(name), st.Goodput, few(st.Per1000), to90, st.Block, remarks(st))
		}
	}
}

// limitsOf is what a scenario is, in a line.
func limitsOf(s *scenario.Scenario) string {
	words := []string{s.Horizon.String()}
	for _, l := range s.Provider.Limits {
		words = append(words, l.String())
	}
	p := s.Provider
	if s.Workload.Kind == scenario.Open {
		words = append(words, "work arrives at "+s.Workload.Rate.String())
	}
	if p.Penalty != nil {
		words = append(words, fmt.Sprintf("blocks from %v to %v", p.Penalty.Base, p.Penalty.Max))
	}
	if p.Suspend != nil {
		words = append(words, fmt.Sprintf("suspends after %d throttles in %v", p.Suspend.Throttles, p.Suspend.Within))
	}
	if p.Strangers != nil {
		words = append(words, "strangers at "+p.Strangers.Rate.String())
	}
	for _, c := range p.Changes {
		words = append(words, fmt.Sprintf("limits times %g at %v", c.Scale, c.At))
	}
	for _, f := range p.Faults {
		words = append(words, fmt.Sprintf("%s at %v for %v", f.Kind, f.At, f.For))
	}
	if s.Clients > 1 {
		kind := "independent clients"
		if s.Fleet {
			kind = "clients of a fleet"
		}
		words = append(words, fmt.Sprintf("%d %s", s.Clients, kind))
	}
	return strings.Join(words, "; ") + "."
}

func remarks(st Standing) string {
	var words []string
	if st.Suspended > 0 {
		words = append(words, fmt.Sprintf("suspended in %d of %d", st.Suspended, st.Seeds))
	}
	if st.Cut > 0 {
		words = append(words, fmt.Sprintf("cut in %d of %d, at %v", st.Cut, st.Seeds, st.CutAt.Round(time.Second)))
	}
	if st.Jain != nil {
		words = append(words, fmt.Sprintf("Jain %.3f", *st.Jain))
	}
	if st.PerChange != nil {
		words = append(words, fmt.Sprintf("%.1f throttles a change", *st.PerChange))
	}
	return strings.Join(words, ", ")
}

// few shows three digits that mean something.
func few(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 1000:
		digits := max(0, 2-int(math.Floor(math.Log10(x))))
		return strconv.FormatFloat(x, 'f', min(digits, 3), 64)
	}
	return strconv.FormatFloat(math.Round(x), 'f', 0, 64)
}

// The overview's measures, in pixels.
const (
	overviewWidth, overviewHeight = 1000, 560
	axisLeft, axisRight           = 80, 690
	legendLeft                    = 724
	axisTop, axisBottom           = 60, 490
	// fewest and most are the ends of the logarithmic axis, in throttles per 1000.
	fewest, most = 0.1, 1e6
)

func across(per1000 float64) float64 {
	x := math.Log10(min(max(per1000, fewest), most)/fewest) / math.Log10(most/fewest)
	return axisLeft + (axisRight-axisLeft)*x
}

func up(goodput float64) float64 { return axisBottom - (axisBottom-axisTop)*min(goodput, 1)/1.05 }

// drawOverview draws the means of everybody: throttles across, on a logarithmic
// axis, goodput up, and the targets for the means as lines. What has fewer
// throttles than the axis begins with is drawn at its beginning.
func drawOverview(w io.Writer, f *Field) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#24292f">`, overviewWidth, overviewHeight)
	p(`<rect width="%d" height="%d" fill="#ffffff"/>`, overviewWidth, overviewHeight)
	p(`<text x="%d" y="28" font-size="17" font-weight="bold">Means over %d scenarios</text>`, axisLeft, len(f.Scenarios))
	p(`<rect x="%d" y="%d" width="%.1f" height="%.1f" fill="#e6f4ea"/>`, axisLeft, axisTop, across(barMeanPer1000)-axisLeft, up(barMeanGoodput)-axisTop)
	for g := 0.0; g <= 1.001; g += 0.2 {
		p(`<path d="M%d %.1fH%d" stroke="#e4e7eb"/><text x="%d" y="%.1f" text-anchor="end" fill="#6e7781">%.1f</text>`, axisLeft, up(g), axisRight, axisLeft-8, up(g)+4, g)
	}
	for k := fewest; k <= most*1.01; k *= 10 {
		p(`<path d="M%.1f %dV%d" stroke="#e4e7eb"/><text x="%[1]f" y="%[4]d" text-anchor="middle" fill="#6e7781">%[5]g</text>`, across(k), axisTop, axisBottom, axisBottom+18, math.Round(k*10)/10)
	}
	p(`<path d="M%d %.1fH%d M%.1f %dV%d" stroke="#1a7f37" stroke-dasharray="5 4" fill="none"/>`, axisLeft, up(barMeanGoodput), axisRight, across(barMeanPer1000), axisTop, axisBottom)
	p(`<text x="%d" y="%.1f" text-anchor="end" fill="#1a7f37">target: goodput %g, throttled %g per 1000</text>`, axisRight, up(barMeanGoodput)-5, barMeanGoodput, barMeanPer1000)
	p(`<text x="%d" y="%d" text-anchor="middle">throttled per 1000 admitted, logarithmic; fewer is better</text>`, (axisLeft+axisRight)/2, axisBottom+42)
	p(`<text x="24" y="%d" text-anchor="middle" transform="rotate(-90 24 %[1]d)">goodput; more is better</text>`, (axisTop+axisBottom)/2)

	p(`<text x="%d" y="%d" fill="#6e7781">goodput / throttled per 1000</text>`, legendLeft, axisTop+4)
	for n, name := range f.Names() {
		goodput, per1000 := f.Means(name)
		ink, title := "#57606a", name
		i := slices.IndexFunc(f.Rivals, func(r Rival) bool { return r.Name == name })
		switch {
		case i < 0:
			ink, title = "#1a7f37", "headway "+name
		case f.Rivals[i].Origin == Cheat:
			ink, title = "#c77700", name+" (a cheat)"
		case f.Rivals[i].Origin == Described:
			ink, title = "#4f86bd", name+" (from documents)"
		}
		y := axisTop + 30 + 34*n
		for _, at := range [][2]float64{{across(per1000), up(goodput)}, {legendLeft + 9, float64(y)}} {
			p(`<circle cx="%.1f" cy="%.1f" r="9" fill="%s" fill-opacity="0.85"/><text x="%.1[1]f" y="%.1[4]f" text-anchor="middle" font-size="11" fill="#ffffff">%[5]d</text>`, at[0], at[1], ink, at[1]+4, n+1)
		}
		p(`<text x="%d" y="%d">%s</text><text x="%[1]d" y="%[4]d" fill="#6e7781">%.3[5]f / %[6]s</text>`, legendLeft+26, y-1, title, y+13, goodput, few(per1000))
	}
	p(`</svg>`)
}
