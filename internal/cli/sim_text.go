package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/span"
)

func newSimList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
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
			if asJSON {
				return writeJSON(cmd, all)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), listText(all))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
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
		limits := strings.Join(e.Limits, "; ")
		if limits == "" {
			limits = "no limits"
		}
		about := span.Text(time.Duration(e.HorizonS * float64(time.Second)))
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
func resultText(r *sim.Result) string {
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
		{"horizon", span.Text(time.Duration(r.HorizonS * float64(time.Second))), "in virtual time"},
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
	for _, note := range r.Notes {
		rows = append(rows, [3]string{"note", "", note})
	}
	return aligned(rows)
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

func beliefText(b *sim.Belief) string {
	if b == nil {
		return unknownText
	}
	limit := "of " + unknownText + " size"
	if b.Limit > 0 {
		limit = figure.Digits(b.Limit, 6)
	}
	if b.WindowS > 0 {
		limit += " in " + span.Text(time.Duration(b.WindowS*float64(time.Second)))
	}
	return fmt.Sprintf("%s %s (confidence %.2f)", b.Kind, limit, b.Confidence)
}
