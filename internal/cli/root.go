// Package cli is the command line of headway: one file a subcommand, the work is in
// the packages. It reads the environment and the terminal; nothing imports it but the
// main package. Not for concurrent use: one process runs it once.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

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
	if e.interrupted {
		endInterrupted()
	}
	return e.code
}

// Root returns all commands, for the reference.
func Root() *cobra.Command { return newRoot() }

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
		Example: `  headway init https://api.example.com/things   # a first connection file
  headway check connection.yaml         # what would it do?
  headway collect connection.yaml       # do it; run it again to resume
  headway status                        # what is collected, what is owed
  headway bulk run contacts.csv --target crm.yaml
  headway run --profile github -- gh api --paginate /orgs/acme/repos
  headway serve --upstream openai --rpm 60 --tpm 20000
  headway sim run scenario.yaml --law cycle --seed 1
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
		newInit(), newCollect(), newCheck(), newReplayRecords(), newStatus(), newRuns(), newGaps(), newLimits(), newFleet(), newProfiles(), newBulk(),
		newRun(), newProxy(), newServe(), newConsole(), newTop(), newUsage(), newAudit(), newSchedule(), newWorker(), newKey(), newCA(), newQuota(), newSim(), newProvider(), newSchema(), newVersion(),
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

// exactly is cobra.ExactArgs with the program's exit code and a hint.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return usage(fmt.Errorf("%s needs %s, got %d arguments (see %q)", cmd.CommandPath(), what, len(args), cmd.CommandPath()+" --help"))
	}
}

// Main runs the command line of this process and gives its exit code. The version is
// that of a released build, or empty.
func Main(released string) int {
	version = released
	// net/http prints to the standard logger what a provider sent where nothing
	// was expected. Content goes into sinks, never onto the terminal.
	log.SetOutput(io.Discard)
	return run(context.Background(), os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr})
}

// The exit codes, after sysexits.h.
const (
	exitOK         = 0  // done, and nothing is left to do
	exitUsage      = 64 // bad usage or configuration
	exitIncomplete = 65 // nothing left to do, but something is quarantined
	exitRefused    = 69 // the provider refused for good
	exitInternal   = 70 // a fault on this side
	exitDeferred   = 75 // deferred and resumable
)

// exitError is an error with an exit code. A silent one has been reported.
type exitError struct {
	code        int
	err         error
	silent      bool
	interrupted bool // Ctrl-C ended the command of headway run
}

func (e *exitError) Error() string {
	if e.err == nil {
		return "exit"
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error { return &exitError{code: exitUsage, err: err} }

// refuseFlags returns a usage error if one of those flags was given, which do not go with something else.
func refuseFlags(cmd *cobra.Command, with string, names ...string) error {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return usage(fmt.Errorf("--%s does not go with %s", name, with))
		}
	}
	return nil
}

// exitFor finds the exit code of an error. What has none is a fault of ours,
// but for cobra's own complaints about the command line.
func exitFor(err error) *exitError {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e
	}
	code := exitInternal
	if strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "invalid argument") {
		code = exitUsage
	}
	return &exitError{code: code, err: err}
}

// version is that of a released build; see Main.
var version string

type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Dirty   bool   `json:"dirty,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func readVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = cmp.Or(v.Version, info.Main.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Dirty = s.Value == "true"
			}
		}
	}
	v.Version = cmp.Or(v.Version, "unknown")
	return v
}

func versionText() string {
	v := readVersion()
	return fmt.Sprintf("headway %s (%s, %s/%s)", v.Version, v.Go, v.OS, v.Arch)
}

func newVersion() *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  headway version
  headway version --json`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return present(cmd, readVersion(), fmt.Sprintln(versionText()))
		},
	})
}

// jsonFlag adds --json to a command that prints one value.
func jsonFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// asJSON reports whether --json was given.
func asJSON(cmd *cobra.Command) bool {
	given, err := cmd.Flags().GetBool("json")
	return err == nil && given
}

// present prints a value: as JSON with --json, and otherwise as text.
func present(cmd *cobra.Command, v any, text string) error {
	if asJSON(cmd) {
		return writeJSON(cmd, v)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// sheet is text in columns. Cells of a line are separated by tabs.
type sheet struct {
	text  strings.Builder
	cells *tabwriter.Writer
}

func (s *sheet) line(format string, args ...any) {
	if s.cells == nil {
		s.cells = tabwriter.NewWriter(&s.text, 0, 0, 2, ' ', 0)
	}
	_, _ = fmt.Fprintf(s.cells, format+"\n", args...)
}

// row is an indented line of a label and a text.
func (s *sheet) row(label, format string, args ...any) {
	s.line("  "+label+"\t"+format, args...)
}

// String is what was written so far.
func (s *sheet) String() string {
	if s.cells != nil {
		_ = s.cells.Flush() // into memory
	}
	return s.text.String()
}

// writeJSON prints one indented JSON value.
func writeJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
