package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/sim/population"
)

// populationSize is how many members are drawn, unless a number is given.
const populationSize = 500

func newSimPopulation() *cobra.Command {
	var (
		o          population.Options
		family     string
		member     int
		out, plot  string
		names      []string
		allMembers = population.Families()
	)
	for _, f := range allMembers {
		names = append(names, string(f))
	}
	cmd := &cobra.Command{
		Use:   "population",
		Short: "Run a law on providers drawn at random",
		Long: `Draws providers at random and runs a law on each, in virtual time: limits of
every kind and size, one to three at once, with and without Retry-After and limit
headers, penalties, other users, changes, outages, and work that comes in bursts.
The same seed gives the same providers and the same bytes.

There is a line for each family of providers and one for all: the mean goodput
against a clairvoyant client; refusals for each 1000 admitted (their mean over the
members, their median, and pooled); the share of members with few of them (3 for
each 1000, or 8 in all); the mean goodput of the worst twentieth, and the worst
member with its number; Jain's index where there are several clients; the median
time until 90 % of the clairvoyant client's rate, and how many never got there;
suspended accounts, and violations of the owner's ceiling.

Each "bound" is the figure before it of an informed client, which knows all of a
provider but the sizes of its limits, and has the best of twelve margins in
hindsight: what is inherent, it loses too. --bound=false leaves it out, in a third
of the time.

--plot draws goodput against refusals, a dot a member and one for the mean, of the
law and of the informed client.

The families pools, whose providers limit parts of an account apart, and fleet,
processes that share what they learn through a server, are drawn with --family
alone: the others' members stay what they are. Beside a fleet's goodput, refusals
and overshoot of a limit stand those of one process with the same work ("alone").

--member draws one member alone and writes it as a scenario file, whose first line
says how to run it; with --out the command is printed too. Its seed is part of that
command: with another one, chance decides otherwise.`,
		Example: `  headway sim population
  headway sim population --n 200 --seed 7 --law aimd
  headway sim population --family ban --n 50 --json | jq '.members[] | {number, goodput}'
  headway sim population --n 100 --seed 7 --passive --bound=false
  headway sim population --seed 7 --plot population.svg
  headway sim population --seed 7 --member 42 --out 42.yaml`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Family = population.Family(family)
			if family != "" && !slices.Contains(allMembers, o.Family) {
				return usage(fmt.Errorf("--family: unknown family %q, want one of %s", family, strings.Join(names, ", ")))
			}
			if o.N < 1 || o.N > population.MaxMembers {
				return usage(fmt.Errorf("--n: %d must be from 1 to %d", o.N, population.MaxMembers))
			}
			if !slices.Contains(control.Names(), o.Law) {
				return usage(fmt.Errorf("--law: unknown law %q, want one of %s", o.Law, control.Choices(o.Law)))
			}
			if cmd.Flags().Changed("member") || cmd.Flags().Changed("out") {
				return writeMember(cmd, &o, member, out)
			}
			if err := plottable(cmd, plot); err != nil {
				return err
			}
			o.Progress = progressOf(cmd.ErrOrStderr(), o.N)
			r, err := population.Run(o)
			if err != nil {
				return err
			}
			return show(cmd, plot, report{svg: r.WriteSVG, text: r.WriteText, json: r.JSON})
		},
	}
	cmd.Flags().IntVar(&o.N, "n", populationSize, "how many providers to draw")
	cmd.Flags().Uint64Var(&o.Seed, "seed", defaultSeed, "decides everything that is left to chance")
	cmd.Flags().StringVar(&family, "family", "", "draw one family alone: "+strings.Join(names, ", "))
	cmd.Flags().StringVar(&o.Law, "law", control.DefaultLaw, "control law: "+strings.Join(control.Names(), ", "))
	cmd.Flags().BoolVar(&o.Passive, "passive", false, "hold nothing back until the first refusal, as headway serve and headway run do")
	cmd.Flags().BoolVar(&o.Bound, "bound", true, "play the informed client too")
	cmd.Flags().IntVar(&member, "member", 0, "write this member, from 0, as a scenario `number`, and run nothing")
	cmd.Flags().StringVar(&out, "out", "", "where --member goes, a `file`; by default the output")
	cmd.Flags().StringVar(&plot, "plot", "", "draw goodput against refusals into this SVG `file`")
	cmd.Flags().Bool("json", false, "print JSON, with every member")
	completeFlag(cmd, "law", cobra.FixedCompletions(control.Names(), cobra.ShellCompDirectiveNoFileComp))
	completeFlag(cmd, "family", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// writeMember writes one member as a scenario file.
func writeMember(cmd *cobra.Command, o *population.Options, number int, out string) error {
	switch {
	case !cmd.Flags().Changed("member"):
		return usage(fmt.Errorf("--out needs --member"))
	case number < 0 || number >= population.MaxMembers:
		return usage(fmt.Errorf("--member: %d must be from 0 to %d", number, population.MaxMembers-1))
	case cmd.Flags().Changed("out"):
		if err := replaceable("--out", out); err != nil {
			return err
		}
	}
	if err := refuseFlags(cmd, "--member, which writes a file and runs nothing", "json", "plot", "law", "passive", "bound"); err != nil {
		return err
	}
	m, err := o.Draw(number)
	if err != nil {
		return err
	}
	if out == "" {
		_, err = cmd.OutOrStdout().Write(m.File())
		return err
	}
	if err := writeWhole("--out", out, content(m.File())); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "headway sim run %s --seed %d\n", out, m.Seed)
	return nil
}

// progressOf says now and then how many members are done, and nothing of a
// population that is done at once.
func progressOf(w io.Writer, n int) func(done int) {
	const often = 2 * time.Second
	last := time.Now()
	return func(done int) {
		if now := time.Now(); done < n && now.Sub(last) >= often {
			last = now
			fmt.Fprintf(w, "%d of %d members\n", done, n)
		}
	}
}
