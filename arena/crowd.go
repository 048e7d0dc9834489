package arena

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/population"
)

// Drawing is a population that a law is judged on, and rivals beside it.
type Drawing struct {
	// Law is judged on N members drawn with Seed, beside the informed client.
	Law  string
	Seed uint64
	N    int
	// Members are the first of them, which rivals are run on too, and headway's
	// other laws.
	Members []population.Member
	Rivals  []Rival
	// Most is how many refusals a rival may have in one member.
	Most int
	// Progress gets how far it is; nil says nothing.
	Progress io.Writer
}

// FirstMembers are the first of a population.
func FirstMembers(seed uint64, n int) ([]population.Member, error) {
	members := make([]population.Member, n)
	for i := range members {
		var err error
		if members[i], err = population.Draw(seed, i, ""); err != nil {
			return nil, err
		}
	}
	return members, nil
}

// Crowd is the result of a law on a population, and how everybody did on its first
// members.
type Crowd struct {
	Drawing
	// Report is the law's, on all of it.
	Report *population.Report
	// Names are headway's laws, the informed client and the rivals, in the order of
	// the tables; First is the result of each on the first members.
	Names []string
	First map[string]*population.Report
	// Cut is in how many members a rival's run was cut.
	Cut map[string]int
}

// Run runs the law, then everybody on the first members.
func (d Drawing) Run(t *testing.T) *Crowd {
	t.Helper()
	report, err := population.Run(population.Options{Seed: d.Seed, N: d.N, Law: d.Law, Bound: true})
	if err != nil {
		t.Fatal(err)
	}
	c := &Crowd{Drawing: d, Report: report, First: make(map[string]*population.Report), Cut: make(map[string]int)}
	c.Names = append(slices.Clone(control.Names()), sim.InformedLaw)
	for _, r := range d.Rivals {
		c.Names = append(c.Names, r.Name)
	}
	outcomes := make(map[string][]population.Outcome)
	for _, name := range c.Names {
		outcomes[name] = make([]population.Outcome, len(d.Members))
	}
	began, done := time.Now(), 0
	var mu sync.Mutex
	t.Run("population", func(t *testing.T) { // ends when all of its parallel tests have
		for i, m := range d.Members {
			t.Run(m.Scenario.Name, func(t *testing.T) {
				t.Parallel()
				entries := d.member(t, m)
				mu.Lock()
				defer mu.Unlock()
				for name, e := range entries {
					outcomes[name][i] = population.Outcome{Number: m.Number, Family: m.Family, Seed: m.Seed, Figures: population.FiguresOf(&e.Result)}
					if e.Cut > 0 {
						c.Cut[name]++
					}
				}
				if done++; d.Progress != nil {
					fmt.Fprintf(d.Progress, "arena: population: %d of %d members, %v\n", done, len(d.Members), time.Since(began).Round(time.Second))
				}
			})
		}
	})
	for name, of := range outcomes {
		c.First[name] = population.Sum(population.Options{Seed: d.Seed, N: len(of), Law: name}, of)
	}
	return c
}

// member runs everybody on one member.
func (d Drawing) member(t *testing.T, m population.Member) map[string]Entry {
	entries := make(map[string]Entry)
	player, err := sim.NewPlayer(m.Scenario, m.Seed)
	if err != nil {
		t.Fatal(err)
	}
	for _, law := range control.Names() {
		r, err := player.Run(law)
		if err != nil {
			t.Fatal(err)
		}
		entries[law] = Entry{Result: r}
	}
	r, _, err := player.Informed()
	if err != nil {
		t.Fatal(err)
	}
	entries[sim.InformedLaw] = Entry{Result: r}
	for _, rival := range d.Rivals {
		entries[rival.Name] = Play(t, m.Scenario, m.Seed, rival, player.Oracle(), d.Most)
	}
	return entries
}

// Ahead are the rivals that have more goodput and fewer refusals than the law in a
// family, without the cheats, as "rival in family".
func (c *Crowd) Ahead() []string {
	var ahead []string
	law := c.First[c.Law]
	for _, r := range c.Rivals {
		for i, g := range c.First[r.Name].Families {
			l := law.Families[i].Law
			if r.Origin != Cheat && g.Law.Goodput > l.Goodput && g.Law.Per1000 < l.Per1000 {
				ahead = append(ahead, fmt.Sprintf("%s in %s (%.3f / %s against %.3f / %s)", r.Name, g.Family, g.Law.Goodput, few(g.Law.Per1000), l.Goodput, few(l.Per1000)))
			}
		}
	}
	return ahead
}

// The section of the page about the population stands between these.
const (
	crowdBegins = "<!-- population -->\n"
	crowdEnds   = "<!-- end of population -->\n"
)

// Section is what the page leads with.
func (c *Crowd) Section() []byte {
	var b bytes.Buffer
	b.WriteString(crowdBegins)
	fmt.Fprintf(&b, `## Providers drawn at random

No law was tuned on these providers: %d members drawn with seed %d by
`+"`headway sim population --n %[1]d --seed %[2]d`"+`, which prints this table again. *Bound* is the
figure before it of an informed client, which knows all of a provider but the sizes
of its limits, and has the best of twelve margins in hindsight.

![Goodput against refusals of every member](arena/population.svg)

`, c.N, c.Seed)
	b.WriteString("```\n")
	_ = c.Report.WriteText(&b) // a buffer takes everything
	b.WriteString("```\n\n")
	fmt.Fprintf(&b, "### Everybody on the first %d members\n\nHeadway's laws and the informed client in `sim.Run`, rivals in bubbles.\n\n", len(c.Members))
	fmt.Fprintf(&b, "| law | goodput | refused per 1000 | median | members with few | worst twentieth | suspended | runs cut |\n|---|---|---|---|---|---|---|---|\n")
	for _, name := range c.Names {
		s := c.First[name].All.Law
		fmt.Fprintf(&b, "| %s | %.3f | %s | %s | %.0f %% | %.3f | %d | %d |\n", c.label(name), s.Goodput, few(s.Per1000), few(s.Per1000Median), 100*s.Quiet, s.WorstTwentieth, s.Suspended, c.Cut[name])
	}
	fmt.Fprintf(&b, "\nFew are at most 3 for each 1000, or 8 in all. A run was cut after %d refusals and failures.\n\n", c.Most)
	fmt.Fprintf(&b, "Goodput / refused per 1000 by family:\n\n| family |")
	for _, name := range c.Names {
		fmt.Fprintf(&b, " %s |", c.label(name))
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(c.Names)))
	for i, g := range c.First[c.Law].Families {
		fmt.Fprintf(&b, "| %s |", g.Family)
		for _, name := range c.Names {
			s := c.First[name].Families[i].Law
			fmt.Fprintf(&b, " %.3f / %s |", s.Goodput, few(s.Per1000))
		}
		b.WriteByte('\n')
	}
	if ahead := c.Ahead(); len(ahead) > 0 {
		fmt.Fprintf(&b, "\nAhead of `%s` on both figures in a family: %s.\n", c.Law, strings.Join(ahead, "; "))
	} else {
		fmt.Fprintf(&b, "\nNo rival is ahead of `%s` on both figures in any family.\n", c.Law)
	}
	b.WriteByte('\n')
	b.WriteString(crowdEnds)
	b.WriteByte('\n')
	return b.Bytes()
}

// WriteLead puts the section into arena.md in a folder, and its picture beside.
func (c *Crowd) WriteLead(folder string) error {
	path, pictures := filepath.Join(folder, "arena.md"), filepath.Join(folder, "arena")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	if err := c.draw(pictures); err != nil {
		return err
	}
	return os.WriteFile(path, Lead(page, c.Section()), 0o644)
}

// draw writes the picture into a folder.
func (c *Crowd) draw(folder string) error {
	var b bytes.Buffer
	if err := c.Report.WriteSVG(&b); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "population.svg"), b.Bytes(), 0o644)
}

// label is a name as the tables show it.
func (c *Crowd) label(name string) string {
	if name == sim.InformedLaw {
		return "informed (the bound)"
	}
	return (&Field{Laws: control.Names(), Rivals: c.Rivals}).label(name)
}

// Lead puts a section about a population into a page, in the place of the one that is
// there, or before the first heading of the second level.
func Lead(page, section []byte) []byte {
	if begin := bytes.Index(page, []byte(crowdBegins)); begin >= 0 {
		if end := bytes.Index(page[begin:], []byte(crowdEnds)); end >= 0 {
			rest := bytes.TrimLeft(page[begin+end+len(crowdEnds):], "\n")
			return slices.Concat(page[:begin], section, rest)
		}
	}
	if at := bytes.Index(page, []byte("\n## ")); at >= 0 {
		return slices.Concat(page[:at+1], section, page[at+1:])
	}
	return slices.Concat(page, section)
}
