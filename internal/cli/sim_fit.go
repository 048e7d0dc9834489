package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/fit"
	"github.com/headway-go/headway/internal/sim/scenario"
)

func newSimFit() *cobra.Command {
	var (
		refused   []int
		name, out string
	)
	cmd := &cobra.Command{
		Use:   "fit TRACE",
		Short: "Make a scenario of a recorded trace of attempts",
		Long: `Reads what a client recorded of its attempts, finds the limits that explain what
was let through and what was refused, and writes a scenario with them: try there
what is not to be tried on the provider.

A trace is a file of JSON lines, an attempt each, in any order; - is the standard
input. Fields that are not listed here are not read:

  sent         when it left: seconds since any instant, or a time as RFC 3339 has it
  answered     when its answer was back, the same way
  took         the seconds between them, instead of one of them
  status       the HTTP status; 0 where there was no answer
  refused      whether it was refused, where the status does not say so
  retry_after  the wait that a refusal asked for, in seconds
  pool         what it shares limits with, such as a model; without it, all of them

"headway sim run --trace" writes such files, and the log of "headway provider serve"
is one. nginx writes one with
log_format trace escape=json '{"answered":$msec,"took":$request_time,"status":$status}'.

Without refused, a status of 429 or 503 is a refusal (see --refused); 0 and those from
500 on are unclear, and left out; all others were let through. Kinds that are found are
token_bucket, fixed_window, sliding_window and concurrency. Each has a confidence from
0 to 1, the count of what it would have refused although it was let through, and of
what it would have let through although it was refused; and so has the best limit of
each other kind. A limit that no attempt met is not found: a client that is refused now
and then, at different speeds, shows most. A server that delays attempts to a rate, and
refuses those for which its queue has no place, shows as concurrency, with that rate
beside it.

The scenario's first lines say what was found, as comments. With --json they are an
object on the output, and the scenario goes to --out alone. A trace without a refusal is
an error.`,
		Example: `  headway sim fit trace.jsonl > mine.yaml
  headway sim fit access.log --refused 429 --name nginx --out nginx.yaml
  headway sim run bucket-20 --trace trace.jsonl && headway sim fit trace.jsonl --json | jq '.limits[]'`,
		Args: exactly(1, "a trace: a file of JSON lines, or - for the standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("out") {
				if err := replaceable("--out", out); err != nil {
					return err
				}
			}
			if name == "" {
				name = nameOf(args[0])
			} else if !scenario.ValidName(name) {
				return usage(fmt.Errorf("--name is %q, must be lower-case letters, digits, '-', '_' and '.', at most 64", name))
			}
			for _, status := range refused {
				if status < 400 || status > 599 {
					return usage(fmt.Errorf("--refused: %d must be an HTTP status from 400 to 599", status))
				}
			}
			r, err := fitted(cmd, args[0], refused)
			if err != nil {
				return err
			}
			file := r.Scenario(name)
			if out != "" {
				if err := writeWhole("--out", out, content(file)); err != nil {
					return err
				}
			}
			switch {
			case asJSON(cmd):
				return writeJSON(cmd, r)
			case out != "":
				_, err = io.WriteString(cmd.OutOrStdout(), r.String())
			default:
				_, err = cmd.OutOrStdout().Write(file)
			}
			return err
		},
	}
	cmd.Flags().IntSliceVar(&refused, "refused", []int{429, 503}, "the statuses of refusals, separated by commas")
	cmd.Flags().StringVar(&name, "name", "", "what the scenario is called; by default as the file is")
	cmd.Flags().StringVar(&out, "out", "", "write the scenario into this `file`, and only what was found to the output")
	cmd.Flags().Bool("json", false, "print what was found as JSON")
	return cmd
}

// fitted reads a trace and finds its limits.
func fitted(cmd *cobra.Command, path string, refused []int) (*fit.Result, error) {
	in := cmd.InOrStdin()
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, usage(err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, fit.MaxSize+1))
	if err != nil {
		return nil, usage(err)
	}
	if len(src) > fit.MaxSize {
		return nil, usage(fmt.Errorf("%s: is longer than %d MiB: cut the trace", path, fit.MaxSize>>20))
	}
	attempts, err := fit.Parse(path, src, refused...)
	if err != nil {
		return nil, badFile("trace of attempts", err)
	}
	r, err := fit.Fit(attempts)
	if err != nil {
		return nil, usage(fmt.Errorf("%s: %w", path, err))
	}
	return r, nil
}

// nameOf is a scenario's name for a file.
func nameOf(path string) string {
	name := strings.ToLower(filepath.Base(path))
	name = strings.TrimSuffix(name, filepath.Ext(name))
	if !scenario.ValidName(name) {
		return "fitted"
	}
	return name
}

// traced keeps the attempts of a run as lines, for --trace; nothing where it is not set.
func traced(cmd *cobra.Command, path string, o *sim.Options) (write func() error, err error) {
	if !cmd.Flags().Changed("trace") {
		return func() error { return nil }, nil
	}
	if err := replaceable("--trace", path); err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	o.OnAttempt = func(a fit.Attempt) { lines.Write(a.Line()) }
	return func() error { return writeWhole("--trace", path, content(lines.Bytes())) }, nil
}

var errBulkTrace = errors.New("--trace: a bulk workload has no attempts that a trace is made of")
