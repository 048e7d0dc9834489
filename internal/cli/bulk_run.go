package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headway-go/headway/bulk"
	rowsource "github.com/headway-go/headway/bulk/source"
	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/reason"
)

// bulkFlags are what the command line says of a load.
type bulkFlags struct {
	target, dir   string
	format, comma string
	columns       []string
	types         []string
	maxRow        int
	numbers       numbers
	quiet         bool
}

// input adds the flags that say how rows are read.
func (f *bulkFlags) input(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.format, "format", "", "how the input is made of rows: jsonl, csv or parquet (default: by its name; standard input is jsonl). Compression (gzip, zstd) is found by itself")
	fl.StringVar(&f.comma, "csv-comma", "", "what separates the fields of CSV (default \",\"; \"tab\" for a tab)")
	fl.StringSliceVar(&f.columns, "csv-columns", nil, "the columns' names, where the first record of CSV is a row already")
	fl.StringSliceVar(&f.types, "csv-type", nil, "what columns of CSV hold, as name=number, name=boolean or name=json (default: text)")
	fl.IntVar(&f.maxRow, "max-row", 0, fmt.Sprintf("longest row in bytes; a longer one is rejected (default %d)", rowsource.DefaultMaxRow))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"jsonl", "csv", "parquet"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("csv-comma", cobra.FixedCompletions([]string{",", ";", "|", "tab"}, cobra.ShellCompDirectiveNoFileComp))
}

// load adds the flags of a load under way.
func (f *bulkFlags) load(cmd *cobra.Command) {
	n, fl := &f.numbers, cmd.Flags()
	fl.IntVar(&n.MaxParallel, "max-parallel", 0, "at most this many batches under way for each identity, whatever the server recommends, over the target file's ceiling (and under $HEADWAY_MAX_PARALLEL)")
	fl.IntVar(&n.BatchRows, "batch-rows", 0, "at most this many rows in a batch")
	fl.DurationVar(&n.TargetTime, "target-time", 0, "how long a batch should take; its size follows (default 10s)")
	fl.Int64Var(&n.MaxRejects, "max-rejects", 0, "stop when more rows than this are rejected (default: never)")
	fl.DurationVar(&n.StallTimeout, "stall-timeout", 0, "stop when no row was settled for this long, waits that the provider asks for included (default 15m)")
	fl.DurationVar(&n.Drain, "drain", 0, "how long batches under way may go on after Ctrl-C (default 30s)")
	fl.Uint64Var(&n.Seed, "seed", 0, "seed of the random numbers that spread retries (default: drawn)")
	fl.BoolVar(&n.StopOnMalformed, "stop-on-malformed", false, "stop at the first row that cannot be read, instead of rejecting it")
	fl.String("fleet", "", "share the pace on each credential with other processes, by the server at this `URL`, over the target file's: "+fleetForms+", or "+alone)
	fl.Bool("json", false, "print progress and summary as JSON lines")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "patience" { // its former name
			name = "stall-timeout"
		}
		return pflag.NormalizedName(name)
	})
}

func (f *bulkFlags) targetFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVarP(&f.target, "target", "t", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("target", cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt))
}

// check holds the numbers against their bounds, and takes the environment's.
func (f *bulkFlags) check(cmd *cobra.Command) error {
	n := &f.numbers
	if v, ok := os.LookupEnv("HEADWAY_MAX_PARALLEL"); ok && v != "" {
		parallel, err := strconv.Atoi(v)
		if err != nil || parallel < 1 || parallel > 1<<16 {
			return usage(fmt.Errorf("HEADWAY_MAX_PARALLEL is %q, must be a number from 1 to %d", v, 1<<16))
		}
		n.MaxParallel = parallel
	}
	for _, flag := range []struct {
		name  string
		value int64
		max   int64
	}{
		{"max-parallel", int64(n.MaxParallel), 1 << 16}, {"batch-rows", int64(n.BatchRows), 1 << 20},
		{"target-time", int64(n.TargetTime), int64(24 * time.Hour)}, {"max-rejects", n.MaxRejects, 1 << 62},
		{"stall-timeout", int64(n.StallTimeout), int64(366 * 24 * time.Hour)}, {"drain", int64(n.Drain), int64(24 * time.Hour)},
		{"max-row", int64(f.maxRow), 1 << 30},
	} {
		given := cmd.Flags().Lookup(flag.name)
		if given == nil || !given.Changed && flag.value == 0 {
			continue
		}
		if flag.value < 1 || flag.value > flag.max {
			lo, hi := "1", strconv.FormatInt(flag.max, 10)
			if given.Value.Type() == "duration" {
				lo, hi = "1ns", figure.Duration(time.Duration(flag.max))
			}
			return usage(fmt.Errorf("--%s is %s, must be from %s to %s", flag.name, given.Value, lo, hi))
		}
	}
	return nil
}

// csv makes options of the flags.
func (f *bulkFlags) csv() (o rowsource.CSVOptions, err error) {
	switch {
	case f.comma == "tab" || f.comma == `\t`:
		o.Comma = '\t'
	case len(f.comma) == 1:
		o.Comma = f.comma[0]
	case f.comma != "":
		return o, usage(fmt.Errorf("--csv-comma is %q, must be one character or \"tab\"", f.comma))
	}
	o.Columns = f.columns
	for _, pair := range f.types {
		name, kind, ok := strings.Cut(pair, "=")
		if !ok {
			return o, usage(fmt.Errorf("--csv-type is %q, must be name=number, name=boolean or name=json", pair))
		}
		if o.Types == nil {
			o.Types = map[string]rowsource.Type{}
		}
		o.Types[name] = rowsource.Type(kind)
	}
	return o, nil
}

// recipe is what the flags and the input's name come to.
func (f *bulkFlags) recipe(input string) (r recipe, err error) {
	if f.target == "" {
		return r, usage(errors.New("--target is missing: the file that says where rows go (docs/guides/bulk.md has one to start from)"))
	}
	r = recipe{Version: bulkVersion, Input: input, Format: rowsource.Format(f.format), MaxRow: f.maxRow, Numbers: f.numbers}
	if r.CSV, err = f.csv(); err != nil {
		return r, err
	}
	if input != "-" {
		if r.Input, err = filepath.Abs(input); err != nil {
			return r, err
		}
	}
	r.Target, err = filepath.Abs(f.target)
	r.targetAs = f.target
	return r, err
}

// open opens the input, under the name that errors are to have.
func (r *recipe) open(cmd *cobra.Command, name string) (*rowsource.Input, error) {
	o := rowsource.Options{Format: r.Format, MaxRow: r.MaxRow, CSV: r.CSV}
	o.Stdin, _ = cmd.InOrStdin().(*os.File)
	in, err := rowsource.Open(name, o)
	if err != nil {
		return nil, usage(err)
	}
	return in, nil
}

func newBulkRun() *cobra.Command {
	var f bulkFlags
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Load the rows of a file into a target; run it again to go on",
		Long: `Loads every row of FILE ("-" is standard input) into the target. It can be
stopped or killed at any time: run again, or with "bulk resume", it goes on where
it was and sends nothing twice that must not be.

Ctrl-C lets the batches under way end; a second Ctrl-C cuts them off. Neither
loses a row. Progress goes to standard error, the summary to standard output.

A pipe cannot be read again, so what is owed when such a load stops has to come
from a file: save it first where that matters ("-" < FILE can be resumed).
The exit code is 69 then and not 75, as to run the same again would send all rows
again.`,
		Example: `  headway bulk run contacts.csv --target crm.yaml
  headway bulk run contacts.csv --target crm.yaml --csv-type revenue=number --max-parallel 4
  headway bulk run contacts.parquet --target crm.yaml --dir loads/2026-11
  headway bulk run contacts.jsonl.gz --target crm.yaml --max-rejects 100   # exit code 69 when there are more
  headway bulk run contacts.csv --target crm.yaml --fleet valkey://valkey:6379   # share the pace with others
  export-contacts | headway bulk run - --target crm.yaml --json`,
		Args: exactly(1, "the rows' file, or \"-\" for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			r, err := f.recipe(args[0])
			if err != nil {
				return err
			}
			return runLoad(cmd, &r, args[0], f.dir, bulk.StartOrResume, newScreen(cmd, f.quiet))
		},
		ValidArgsFunction: rowFiles,
	}
	f.targetFlag(cmd, "file that says where rows go (required)")
	cmd.Flags().StringVar(&f.dir, "dir", "", "folder of the load (default: named after file and target, under $HEADWAY_BULK_DIR, else .headway/bulk)")
	_ = cmd.MarkFlagDirname("dir")
	f.input(cmd)
	f.load(cmd)
	return cmd
}

func rowFiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"jsonl", "ndjson", "json", "csv", "parquet", "gz", "zst"}, cobra.ShellCompDirectiveFilterFileExt
}

// runLoad runs a load to its end, or to where it stops.
func runLoad(cmd *cobra.Command, r *recipe, name, dir string, start bulk.Start, s *screen) error {
	config, err := target.Load(cmp.Or(r.targetAs, r.Target), os.LookupEnv)
	if err != nil {
		return badFile("target that rows can be sent to", err)
	}
	r.Numbers.over(&config.Params)
	if _, err := config.Params.Resolve(); err != nil {
		return usage(err)
	}
	paced, err := bulkFleet(cmd, config)
	if err != nil {
		return err
	}
	in, err := r.open(cmd, name)
	if err != nil {
		return err
	}
	// It is not closed: when a load stops, its reader may be in the middle of a row.
	// The process is about to end anyway.
	if dir == "" {
		dir = bulkDir(in.Identity(), config.Name, time.Now())
	} else if err := notShared(dir); err != nil {
		return err
	}
	if in.Identity().Stream() {
		s.say("the input is a pipe, which cannot be read again: should the load stop, what it owes has to come from a file")
	}
	if changed := changedInput(dir, in.Identity()); !changed.IsZero() {
		s.say("the input was written at " + changed.Local().Format(time.DateTime) + ", after this load began: its length and its beginning are unchanged, the rest is not compared; rows that are settled are not sent again, even if they changed")
	}
	l := &loadScreen{screen: s, name: loadName(name, config.Name), dir: dir, input: in}
	l.begin = func() error {
		if err := os.Remove(filepath.Join(dir, outcomeFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		dropViews(dir)
		return keepJSON(filepath.Join(dir, recipeFile), r)
	}
	ctx, abort, done := drainable(cmd.Context(), s)
	defer done()
	sum, err := bulk.Run(ctx, in, config.Target(nil), bulk.Options{
		Dir: dir, Start: start, Params: config.Params, Pacing: paced, StopOnMalformed: r.Numbers.StopOnMalformed,
		Drain: r.Numbers.Drain, Abort: abort, OnProgress: l.look, ProgressEvery: min(l.every(), viewEvery),
	})
	return l.conclude(sum, err)
}

// changedInput is when the input was last written, if that was after the folder's load
// began and rows are still owed; otherwise zero. An input of another length or with
// another beginning is refused anyway.
func changedInput(dir string, now journal.Input) time.Time {
	st, err := bulk.ReadStatus(dir)
	if err != nil || st.InputRead && st.Owed == 0 || st.Input.Modified.IsZero() || now.Modified.Equal(st.Input.Modified) {
		return time.Time{}
	}
	return now.Modified
}

// loadName is what a load is called on the screen.
func loadName(input, target string) string {
	if input == "-" {
		return "standard input into " + target
	}
	return filepath.Base(input) + " into " + target
}

// drainable listens for Ctrl-C and SIGTERM: the first ends the context, so that
// no more is sent, the second closes abort.
func drainable(parent context.Context, s *screen) (ctx context.Context, abort <-chan struct{}, done func()) {
	ctx, cancel := context.WithCancel(parent)
	cut := make(chan struct{})
	end := onSignals(func() {
		s.say("waiting for the batches under way; once more to cut them off (no row is lost either way)")
		cancel()
	}, func() {
		s.say("cutting off the batches under way")
		close(cut)
	})
	return ctx, cut, func() { end(); cancel() }
}

// exitOfLoad is the exit code of a load. A load from a pipe cannot be resumed, and to
// run its command again would send every row again; so its code is never the one that
// says "run it again".
func exitOfLoad(sum bulk.Summary, err error, pipe bool) error {
	shown := sum.Load != ""
	switch sum.State {
	case bulk.Drained:
		return nil
	case bulk.Deferred:
		code := exitDeferred
		switch sum.Reason {
		case reason.Unauthorized, reason.Forbidden, reason.NotFound, reason.ClientError:
			code = exitRefused
		default: // it may be otherwise another time
			if pipe {
				code = exitRefused
			}
		}
		return &exitError{code: code, silent: true}
	case bulk.Failed:
	}
	code := exitInternal
	_, other := errors.AsType[*journal.OtherError](err)
	_, malformed := errors.AsType[*bulk.MalformedError](err)
	switch {
	case sum.Reason == reason.LeaseHeld:
		code = exitDeferred
	case other || malformed:
		code = exitUsage
	}
	return &exitError{code: code, err: err, silent: shown}
}
