package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/sim"
)

// defaultSeed is the seed of everything that is simulated, unless one is given.
const defaultSeed = 1

func newSim() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Try a control law against a model of a provider, in virtual time",
		Long: `Runs the control laws that collect for you against a model of a provider, in
virtual time: an hour takes a moment, no account is at risk, and the same
scenario, law and seed give the same bytes.

A scenario is a YAML file, or one of those that come with headway (see
"headway sim list"). A plain name is looked for among those first; write
./NAME for a file that is called the same.`,
		Example: `  headway sim list
  headway sim run github-primary
  headway sim compare bucket-20 fixed-600 --laws aimd
  headway sim population --n 100
  headway sim fit trace.jsonl > mine.yaml`,
	}
	return group(cmd, newSimRun(), newSimCompare(), newSimPopulation(), newSimFit(), newSimList())
}

// group makes a command that does nothing itself of those below it.
func group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args, cmd.RunE = subcommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(below...)
	return cmd
}

// subcommand is what a command that only groups others is called with: nothing,
// which shows its help. Anything else is a word that is not a subcommand.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf(", did you mean %s?", strings.Join(near, " or "))
	}
	return usage(fmt.Errorf("unknown command %q for %q%s (see %q)", args[0], cmd.CommandPath(), hint, cmd.CommandPath()+" --help"))
}

func newSimRun() *cobra.Command {
	var (
		law, plot, trace string
		seed             uint64
	)
	cmd := &cobra.Command{
		Use:   "run FILE|NAME",
		Short: "Run one scenario under one law",
		Long: `Runs a scenario in virtual time and prints the results of the law: what it was
admitted against a clairvoyant client (goodput ratio), how often it was refused,
how long work waited, and whether it broke anything. What is not known, or has
no meaning in the scenario, is "unknown", and null with --json.

A scenario whose workload is bulk loads rows in batches instead: the laws are
parallel (the default), which obeys the server's hint and keeps within the
execution time that it allows; advertised, the same where nobody has configured that
time; aimd, which knows neither; hint, the server's recommendation as it is; and
fixed:N, which keeps N batches of each user in flight.

--plot draws the rate, the limit and the throttles over time; of a bulk load the
parallelism, the rows a second and the throttles.

--trace writes each attempt as a line of JSON, as "headway sim fit" reads them.`,
		Example: `  headway sim run github-primary
  headway sim run ./mine.yaml --law cycle --seed 7
  headway sim run fixed-600 --plot fixed-600.svg
  headway sim run strava --json | jq .goodput_ratio
  headway sim run dataverse-bulk-1user --law fixed:8 --plot fixed-8.svg`,
		Args:              exactly(1, "a scenario: a file, or a name from \"headway sim list\""),
		ValidArgsFunction: completeScenario,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := plottable(cmd, plot); err != nil {
				return err
			}
			s, err := scenarioOf(args[0])
			if err != nil {
				return badFile("scenario that can be run", err)
			}
			if sim.Bulk(s) {
				if cmd.Flags().Changed("trace") {
					return usage(errBulkTrace)
				}
				if !cmd.Flags().Changed("law") {
					law = sim.BulkParallel
				}
				return runBulk(cmd, s, sim.Options{Law: law, Seed: seed, Trace: plot != ""}, plot)
			}
			if err := knownLaws("--law", s, law); err != nil {
				return err
			}
			o := sim.Options{Law: law, Seed: seed, Trace: plot != ""}
			writeTrace, err := traced(cmd, trace, &o)
			if err != nil {
				return err
			}
			r, err := sim.Run(s, o)
			if err != nil {
				return usage(err) // the law is known: it is the scenario that cannot be played
			}
			if err := writeTrace(); err != nil {
				return err
			}
			return show(cmd, plot, report{
				svg:  func(w io.Writer) error { return sim.WriteSVG(w, r.Trace) },
				json: r.JSON,
				text: func(w io.Writer) error { _, err := io.WriteString(w, resultText(&r)); return err },
			})
		},
	}
	cmd.Flags().StringVar(&law, "law", control.DefaultLaw, "control law: "+strings.Join(control.Names(), ", ")+
		"; for a bulk workload: "+bulkLawNames+" (default parallel)")
	cmd.Flags().Uint64Var(&seed, "seed", defaultSeed, "decides everything that is left to chance")
	cmd.Flags().StringVar(&plot, "plot", "", "draw the run into this SVG `file`")
	cmd.Flags().StringVar(&trace, "trace", "", "write the attempts into this `file` of JSON lines")
	completeFlag(cmd, "law", cobra.FixedCompletions(allLaws(), cobra.ShellCompDirectiveNoFileComp))
	return jsonFlag(cmd)
}

func newSimCompare() *cobra.Command {
	var (
		laws []string
		seed uint64
	)
	cmd := &cobra.Command{
		Use:   "compare FILE|NAME...",
		Short: "Run scenarios under several laws and show them side by side",
		Long: `Plays every scenario under every law with the same seed, and prints a line for
each: goodput against a clairvoyant client, throttles per 1000 admitted, waits,
and what broke. "-" is what is not known or has no meaning in the scenario.
Scenarios whose workload is bulk are compared among themselves, under laws of
their own: by default parallel, advertised, aimd and hint.

With --json the results are an array, in the order of the scenarios and within
a scenario in that of the laws.`,
		Example: `  headway sim compare bucket-20 burst-1 fixed-600
  headway sim compare scenarios/*.yaml --laws aimd --seed 7
  headway sim compare dataverse-bulk-1user dataverse-bulk-2users
  headway sim compare github-primary --json | jq '.[] | {law, goodput_ratio}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			return exactly(1, "at least one scenario: a file, or a name from \"headway sim list\"")(cmd, args)
		},
		ValidArgsFunction: completeScenarios,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := scenariosOf(args)
			if err != nil {
				return badFile("scenario that can be run", err)
			}
			if err := sameKind(all); err != nil {
				return err
			}
			if sim.Bulk(all[0]) && !cmd.Flags().Changed("laws") {
				laws = sim.BulkLaws()
			}
			if err := knownLaws("--laws", all[0], laws...); err != nil {
				return err
			}
			if sim.Bulk(all[0]) {
				return compareBulk(cmd, all, laws, seed)
			}
			results, err := sim.Compare(all, laws, seed)
			if err != nil {
				return usage(err)
			}
			if asJSON(cmd) {
				return writeJSON(cmd, results)
			}
			return sim.WriteTable(cmd.OutOrStdout(), results)
		},
	}
	cmd.Flags().StringSliceVar(&laws, "laws", control.Names(), "control laws, separated by commas: "+strings.Join(control.Names(), ", ")+
		"; for bulk workloads: "+bulkLawNames)
	cmd.Flags().Uint64Var(&seed, "seed", defaultSeed, "decides everything that is left to chance")
	cmd.Flags().Bool("json", false, "print a JSON array")
	completeFlag(cmd, "laws", completeLaws)
	return cmd
}

// report is the result of a simulation in its output formats.
type report struct {
	svg, text func(io.Writer) error
	json      func() ([]byte, error)
}

// show draws a report where a plot is asked for, and prints it.
func show(cmd *cobra.Command, plot string, r report) error {
	if plot != "" {
		if err := writeWhole("--plot", plot, r.svg); err != nil {
			return err
		}
	}
	if !asJSON(cmd) {
		return r.text(cmd.OutOrStdout())
	}
	b, err := r.json()
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(b)
	return err
}

// badFile puts each problem of a file that is not what it should be on a line of its
// own, as editors and terminals know it: file:line:column.
func badFile(what string, err error) error {
	if _, ok := errors.AsType[*configfile.Error](err); ok {
		err = fmt.Errorf("not a %s:\n%w", what, err)
	}
	return usage(err)
}
