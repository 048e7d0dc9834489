package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/story"
)

// bulkLawNames are the laws of bulk workloads, for a person.
var bulkLawNames = strings.Join(sim.BulkLaws(), ", ") + ", fixed:N"

// allLaws are those of every workload, for completion.
func allLaws() []string {
	all := control.Names()
	for _, law := range sim.BulkLaws() {
		if !slices.Contains(all, law) {
			all = append(all, law)
		}
	}
	return append(all, "fixed:4")
}

// knownLaws says whether all laws exist and fit the scenario's workload, and
// names those that do.
func knownLaws(flag string, s *scenario.Scenario, laws ...string) error {
	known, other := strings.Join(control.Names(), ", "), "is a law of bulk workloads"
	fits := func(law string) bool { return slices.Contains(control.Names(), law) }
	exists := func(law string) bool { return sim.BulkLaw(law) == nil }
	if sim.Bulk(s) {
		fits, exists = exists, fits
		known, other = bulkLawNames, "paces requests"
	}
	if len(laws) == 0 {
		return usage(fmt.Errorf("%s is empty, must name at least one of %s", flag, known))
	}
	for i, law := range laws {
		switch {
		case slices.Contains(laws[:i], law):
			return usage(fmt.Errorf("%s: law %q is named twice", flag, law))
		case fits(law):
		case exists(law):
			return usage(fmt.Errorf("%s: law %q %s and does not fit %s, whose workload is %s: must be one of %s",
				flag, law, other, s.Name, s.Workload.Kind, known))
		case sim.Bulk(s) && strings.HasPrefix(law, "fixed:"):
			return usage(fmt.Errorf("%s: %w", flag, sim.BulkLaw(law)))
		default:
			if !sim.Bulk(s) {
				known = control.Choices(law)
			}
			return usage(fmt.Errorf("%s: unknown law %q, must be one of %s", flag, law, known))
		}
	}
	return nil
}

// sameKind says whether scenarios can stand in one table.
func sameKind(all []*scenario.Scenario) error {
	for _, s := range all {
		if sim.Bulk(s) != sim.Bulk(all[0]) {
			return usage(fmt.Errorf("%s has the workload %s and %s has %s: compare bulk workloads apart from the others, since other laws move them",
				all[0].Name, all[0].Workload.Kind, s.Name, s.Workload.Kind))
		}
	}
	return nil
}

// runBulk is "sim run" of a bulk workload.
func runBulk(cmd *cobra.Command, s *scenario.Scenario, o sim.Options, plot string) error {
	if err := knownLaws("--law", s, o.Law); err != nil {
		return err
	}
	r, err := sim.RunBulk(s, o)
	if err != nil {
		return usage(err) // the law is known: it is the scenario that cannot be played
	}
	return show(cmd, plot, report{
		svg:  func(w io.Writer) error { return sim.WriteBulkSVG(w, r.Trace) },
		json: r.JSON,
		text: func(w io.Writer) error { _, err := io.WriteString(w, bulkText(&r)); return err },
	})
}

// compareBulk is "sim compare" of bulk workloads.
func compareBulk(cmd *cobra.Command, all []*scenario.Scenario, laws []string, seed uint64) error {
	results, err := sim.CompareBulk(all, laws, seed)
	if err != nil {
		return usage(err)
	}
	if asJSON(cmd) {
		return writeJSON(cmd, results)
	}
	return sim.WriteBulkTable(cmd.OutOrStdout(), results)
}

// bulkText is a bulk load's result for a person: every figure, each with what it
// says. The course is in the JSON and the plot.
func bulkText(r *sim.BulkResult) string {
	ended := r.Ended()
	says := map[string]string{
		"whole": "every row is settled", "put off": "with rows that failed too often", "horizon": "came before the end",
	}[ended]
	if r.Stopped != nil {
		says = "is why it gave up"
	}
	rows := [][3]string{
		{"scenario", r.Scenario, ""},
		{"law", r.Law, ""},
		{"seed", strconv.FormatUint(r.Seed, 10), ""},
		{"horizon", figure.Duration(time.Duration(r.HorizonS * float64(time.Second))), "in virtual time"},
		{"rows", figure.Count(r.Rows), ""},
		{"acknowledged", figure.Count(r.Acknowledged), ""},
		{"rejected", figure.Count(r.Rejected), ""},
		{"owed", figure.Count(r.Owed), "neither, when the load ended"},
		{"ended", ended, says},
		{"elapsed", decimal(&r.ElapsedS, 1, " s"), ""},
		{"rows a second", decimal(&r.RowsPerS, 1, ""), "acknowledged"},
		{"batches", figure.Count(r.Batches), ""},
		{"rows a batch", decimal(r.BatchRowsMean, 1, ""), "of those served, on average"},
		{"throttled", figure.Count(r.Throttled), "refused by a limit"},
		{"throttled per 1000", decimal(r.ThrottledPer1000, 2, ""), "batches served"},
		{"parallelism mean", decimal(&r.ParallelismMean, 2, ""), "batches in flight"},
		{"parallelism max", strconv.Itoa(r.ParallelismMax), ""},
		{"retry-after", decimal(&r.RetryAfterS, 0, " s"), "waited for Retry-After, over all users"},
		{"longest retry-after", decimal(&r.LongestRetryAfterS, 0, " s"), ""},
	}
	for i, u := range r.Users {
		if len(r.Users) == 1 || i == maxUsers {
			break
		}
		rows = append(rows, [3]string{fmt.Sprintf("user %d", i+1), figure.Count(u.Rows) + " rows", fmt.Sprintf(
			"%s batches, %s throttled, parallelism %.2f mean and %d max, %.0f s of retry-after",
			figure.Count(u.Batches), figure.Count(u.Throttled), u.ParallelismMean, u.ParallelismMax, u.RetryAfterS)})
	}
	return aligned(rows)
}

// maxUsers is how many users the text shows; the JSON has all.
const maxUsers = 20

func newSimList() *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use:   "list",
		Short: "List the scenarios that come with headway",
		Long: `Lists the scenarios that come with headway: limits that providers document, and
kinds of trouble that laws fail at. Their names go where a file goes, in "sim
run", "sim compare" and "provider serve".`,
		Example: `  headway sim list
  headway sim list --json | jq -r '.[].name'`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := allEmbedded()
			if err != nil {
				return err
			}
			return present(cmd, all, listText(all))
		},
	})
}

// listText is two lines a scenario: what it is called and limits, and what it
// stands for.
func listText(all []embedded) string {
	wide := 0
	for _, e := range all {
		wide = max(wide, len(e.Name))
	}
	var b strings.Builder
	for _, e := range all {
		limits := cmp.Or(strings.Join(e.Limits, "; "), "no limits")
		about := figure.Duration(time.Duration(e.HorizonS * float64(time.Second)))
		if e.Rows > 0 {
			about += fmt.Sprintf(", bulk: %s rows", figure.Count(e.Rows))
		}
		if e.Clients > 1 {
			about += fmt.Sprintf(", %d %s", e.Clients, map[bool]string{false: "clients", true: "users"}[e.Rows > 0])
		}
		fmt.Fprintf(&b, "%-*s  %s (%s)\n", wide, e.Name, limits, about)
		fmt.Fprintf(&b, "%-*s  %s\n", wide, "", e.Description)
	}
	return b.String()
}

// unknownText stands for what has no value: never 0.
const unknownText = "unknown"

// decimal is a number with its unit, or unknown.
func decimal(x *float64, decimals int, unit string) string {
	if x == nil {
		return unknownText
	}
	return strconv.FormatFloat(*x, 'f', decimals, 64) + unit
}

// resultText is a run's result for a person: every field, each with what it says.
func resultText(r *sim.Result) string { return aligned(resultRows(r)) }

// resultRows are the figures of a run: names, values and what they say.
func resultRows(r *sim.Result) [][3]string {
	harm, suspended := unknownText, "no"
	if r.StrangersHarm != nil {
		harm = figure.Count(*r.StrangersHarm)
	}
	if r.Suspended {
		suspended = "yes: the run has failed"
	}
	rows := [][3]string{
		{"scenario", r.Scenario, ""},
		{"law", r.Law, ""},
		{"seed", strconv.FormatUint(r.Seed, 10), ""},
		{"horizon", figure.Duration(time.Duration(r.HorizonS * float64(time.Second))), "in virtual time"},
		{"attempts", figure.Count(r.Attempts), "that reached the provider"},
		{"admitted", figure.Count(r.Admitted), ""},
		{"throttled", figure.Count(r.Throttled), "refused by a limit"},
		{"throttled per 1000", decimal(r.ThrottledPer1000, 2, ""), "admitted"},
		{"goodput ratio", decimal(r.GoodputRatio, 3, ""), "of what a clairvoyant client is admitted"},
		{"time to 90 %", decimal(r.TimeTo90PctS, 0, " s"), "of that client's rate"},
		{"longest block", decimal(&r.LongestBlockS, 1, " s"), "with work and nothing admitted"},
		{"wait p50", decimal(r.WaitP50MS, 0, " ms"), "until work was admitted"},
		{"wait p99", decimal(r.WaitP99MS, 0, " ms"), ""},
		{"suspended", suspended, ""},
		{"throttles per change", decimal(r.ThrottlesPerChange, 1, ""), "of the limits"},
		{"strangers' harm", harm, "refusals that others would not have had"},
		{"ceiling violations", figure.Count(r.CeilingViolations), ""},
		{"fairness (Jain)", decimal(r.FairnessJain, 3, ""), "1 is even between clients"},
		{"belief", beliefText(r.Belief), "what the law holds the limit to be"},
	}
	for _, p := range r.Pools {
		rows = append(rows, [3]string{"pool " + p.Name, decimal(p.GoodputRatio, 3, ""), fmt.Sprintf("goodput ratio; %s admitted, %s throttled", figure.Count(p.Admitted), figure.Count(p.Throttled))})
	}
	if f := r.Fleet; f != nil {
		rows = append(rows,
			[3]string{"fleet", figure.Count(int64(f.Members)), fmt.Sprintf("members; %s messages/s to the server and back", decimal(&f.MessagesPerS, 0, ""))},
			[3]string{"overshoot", decimal(f.Overshoot, 4, ""), "of a limit in its worst window, or of the ceiling"},
			[3]string{"one process alone", decimal(f.Alone.GoodputRatio, 3, ""), fmt.Sprintf("goodput ratio; %s throttled per 1000, overshoot %s", decimal(f.Alone.ThrottledPer1000, 2, ""), decimal(f.Alone.Overshoot, 4, ""))},
		)
	}
	for _, note := range r.Notes {
		rows = append(rows, [3]string{"note", "", note})
	}
	return rows
}

// aligned is names, values and what they say, in columns.
func aligned(rows [][3]string) string {
	var wide [2]int
	for _, row := range rows {
		wide[0], wide[1] = max(wide[0], len(row[0])), max(wide[1], len(row[1]))
	}
	var b strings.Builder
	for _, row := range rows {
		line := fmt.Sprintf("%-*s  %-*s  %s", wide[0], row[0], wide[1], row[1], row[2])
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func beliefText(b *sim.Belief) string { return story.Belief((*event.Belief)(b)) }
