package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// stdio is where the program reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// run is the whole program: it returns the exit code.
func run(ctx context.Context, args []string, io stdio) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	strict(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	e := exitFor(err)
	if !e.silent {
		_, _ = fmt.Fprintf(io.err, "headway: %v\n", err)
	}
	return e.code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "headway",
		Short: "Goes as fast as an API you do not own lets you, never faster, and loses nothing on the way",
		Long: `Headway collects from APIs that you do not own: it finds the speed that the
provider allows by itself, keeps under it, stops and resumes at any point, and
leaves a durable record of everything that is still owed. In bulk it loads rows
the other way, just as fast as they are taken, and accounts for every one.

Exit codes: 0 drained, nothing is left; 75 deferred, run it again and it goes
on; 65 incomplete, something is quarantined; 64 bad usage or configuration;
69 the provider refused for good; 70 a fault on this side.`,
		Example: `  headway check connection.yaml         # what would it do?
  headway collect connection.yaml       # do it; run it again to resume
  headway status                        # what is collected, what is owed
  headway bulk run contacts.csv --target crm.yaml
  headway serve --upstream openai --rpm 60 --tpm 20000
  headway sim run scenario.yaml --law envelope --seed 1
  headway provider serve demo --listen 127.0.0.1:8080`,
		Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versionText(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w (see %q)", err, cmd.CommandPath()+" --help"))
	})
	root.AddCommand(
		newCollect(), newCheck(), newReplayRecords(), newStatus(), newRuns(), newGaps(), newRate(), newBulk(),
		newServe(), newSchedule(), newKey(), newQuota(), newSim(), newProvider(), newVersion(),
	)
	return root
}

// defaultState is beside the files that are collected, as both are relative to
// the working directory.
var defaultState = filepath.Join(".headway", "state.db")

// strict makes cobra's own commands refuse what they do not know. Standard output
// has to be set before.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				at, rest, err := root.Find(args)
				if err != nil {
					return usage(err)
				}
				return subcommand(at, rest)
			}
		case "completion":
			cmd.Args = subcommand
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// stateFlag lets a command, and those below it, use another state file.
func stateFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("state", "", "`file` that holds the durable state (default $HEADWAY_STATE, else "+defaultState+")")
}

// statePath is the state file by flag, environment or default, in that order.
func statePath(cmd *cobra.Command) string {
	if p, err := cmd.Flags().GetString("state"); err == nil && p != "" {
		return p
	}
	if p := os.Getenv("HEADWAY_STATE"); p != "" {
		return p
	}
	return defaultState
}

// exactly is cobra.ExactArgs with the program's exit code and a hint.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return usage(fmt.Errorf("%s needs %s, got %d arguments (see %q)", cmd.CommandPath(), what, len(args), cmd.CommandPath()+" --help"))
	}
}
