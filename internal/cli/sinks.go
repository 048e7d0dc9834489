package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/sink/airbyte"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/sink/parquet"
	pgsink "github.com/headway-go/headway/sink/postgres"
	"github.com/headway-go/headway/sink/singer"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
	pgstore "github.com/headway-go/headway/store/postgres"
	"github.com/headway-go/headway/store/sqlite"
)

// destination is where a connection's records go.
type destination struct {
	sink collect.Sink
	// name says where for people.
	name string
	// piped says that standard output carries the records.
	piped bool
	// onEvent lets the sink speak of the run; nil for most.
	onEvent func(event.Event)
	// follow gives the run to the sink; nil for most.
	follow func(*collect.Collector)
}

// location is where it writes; the zero value is unknown.
func (d destination) location() collect.Location {
	if s, ok := d.sink.(collect.Located); ok {
		return s.Location()
	}
	return collect.Location{}
}

// openDestination makes the sink that the connection names.
func openDestination(cmd *cobra.Command, c *rest.Config) destination {
	out := cmd.OutOrStdout()
	switch s := c.Sink; {
	case s.SQLite != nil:
		state := statePath(cmd)
		if at, _ := storeURL(cmd); at != "" {
			state = "" // no file has it
		}
		sink := sqlsink.For(c.Name, s.SQLite.File, state)
		return destination{sink: sink, name: "the SQLite file " + cmp.Or(sink.Location().Path, statePath(cmd))}
	case s.Postgres != nil:
		state, _ := storeURL(cmd)
		sink := pgsink.For(c.Name, s.Postgres.URL.Reveal(), s.Postgres.Schema, state)
		return destination{sink: sink, name: "the PostgreSQL database " + sink.Location().Path}
	case s.Parquet != nil:
		return destination{sink: parquet.New(s.Parquet.Dir), name: s.Parquet.Dir}
	case s.Singer != nil:
		return destination{sink: singer.New(out), name: "standard output (Singer)", piped: true}
	case s.Airbyte != nil:
		// The sink estimates what is left from the run's progress, which exists
		// once the run does.
		var running atomic.Pointer[collect.Collector]
		sink := airbyte.New(out, airbyte.Options{Now: time.Now, Live: func() (collect.Live, bool) {
			if c := running.Load(); c != nil {
				return c.Live()
			}
			return collect.Live{}, false
		}})
		return destination{
			sink: sink, name: "standard output (Airbyte)", piped: true,
			onEvent: sink.OnEvent, follow: func(c *collect.Collector) { running.Store(c) },
		}
	default:
		return destination{sink: jsonl.New(s.JSONL.Dir), name: s.JSONL.Dir}
	}
}

// adopt moves the state out of the sink's file, where an earlier version kept it,
// to where all commands look for it.
func (d destination) adopt(cmd *cobra.Command, store durable, connection string, s *screen) error {
	at := d.location()
	file, ok := store.(*sqlite.Store)
	if !ok {
		return nil
	}
	moved, err := file.Adopt(cmd.Context(), connection, at)
	if moved {
		s.say(fmt.Sprintf("the state of %s was in %s with its records; it is in %s now", connection, at.Path, statePath(cmd)))
	}
	return err
}

// together says that the sink's file has the state as well, as an earlier version
// kept it; empty is no.
func (d destination) together(cmd *cobra.Command, connection string) string {
	at := d.location()
	if at.Kind != "sqlite" {
		return ""
	}
	r, err := sqlite.OpenReader(cmd.Context(), at.Path)
	if err != nil {
		return "" // none, or one of records only
	}
	defer func() { _ = r.Close() }()
	if _, ok, err := collect.StatusOf(cmd.Context(), r, connection); err != nil || !ok {
		return ""
	}
	return fmt.Sprintf("the state of %s is in %s with its records: the next run moves it to %s, where every command looks", connection, at.Path, statePath(cmd))
}

func newReplayRecords() *cobra.Command {
	var (
		from  string
		quiet bool
	)
	cmd := &cobra.Command{
		Use:   "replay CONNECTION.yaml",
		Short: "Copy what a former sqlite or postgres sink kept into the connection's new sink, without fetching",
		Long: `Copies the records that the connection's former sink kept into the sink that the
file names now. It sends no request. Change the sink in the file, replay, and go
on collecting: a run afterwards goes on where collection stood.

A sqlite or postgres sink keeps its records, also those that the provider no longer has, which
are copied as such. jsonl, parquet, singer and airbyte keep nothing that could be
read back: there only "collect --fresh" fills another sink.

A new sqlite or postgres sink takes older records at any time, and what it has itself is newer
and stays. jsonl and parquet can only append, so replay into them before anything
is collected into them.

It can be stopped at any time, or killed, and run again: it goes on where it was,
and no record comes twice.

Exit codes: 0 done; 75 stopped, or the connection is being collected: run it again;
64 it is not possible, and the text says what is; 70 a fault on this side.`,
		Example: `  headway replay connection.yaml
  headway replay connection.yaml --from old/data.db   # the records file was moved, or is another's
  headway replay connection.yaml --json               # progress and summary as JSON lines`,
		Args: exactly(1, "the connection's file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readConnection(cmd, args[0])
			if err != nil {
				return err
			}
			return replayRecords(cmd, c, newScreen(cmd, quiet), from)
		},
		ValidArgsFunction: yamlFiles,
	}
	stateFlag(cmd)
	cmd.Flags().StringVar(&from, "from", "", "the `FILE` that a sqlite sink kept the records in, or the URL of a PostgreSQL database (default the connection's former sink)")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{"db", "sqlite", "sqlite3"}, cobra.ShellCompDirectiveFilterFileExt))
	cmd.Flags().Bool("json", false, "print progress and summary as JSON lines")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print no progress")
	return cmd
}

func replayRecords(cmd *cobra.Command, c *rest.Config, s *screen, from string) (err error) {
	to := openDestination(cmd, c)
	if to.piped {
		return usage(fmt.Errorf("records cannot be replayed into %s: its reader keeps what it has by itself; "+
			"to send it all of them, collect with --fresh, which fetches all of it again", to.name))
	}
	path := statePath(cmd)
	r, err := openReader(cmd.Context(), cmd)
	switch {
	case err == nil:
		err = r.Close()
	case errors.Is(err, fs.ErrNotExist):
		err = noState(cmd)
	}
	if err != nil {
		return err
	}
	con, err := rest.New(c, rest.KeepTokens(path))
	if err != nil {
		return usage(err)
	}
	store, err := openStore(cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ctx, stop, done := interruptible(cmd.Context(), s)
	defer done()
	// Where a sink was is on record without user and password.
	databases := []string{from}
	if at, err := storeURL(cmd); err == nil {
		databases = append(databases, at)
	}
	if c.Sink.Postgres != nil {
		databases = append(databases, c.Sink.Postgres.URL.Reveal())
	}
	o := collect.ReplayOptions{
		Connection: c.Name, Connector: con, Store: store, Sink: to.sink, Stop: stop, Holder: schedule.Options(c).Holder,
		Open: func(ctx context.Context, from collect.Location, former []collect.FormerSink, streams []collect.StreamInfo) (collect.Kept, error) {
			if from.Kind == "postgres" {
				return pgsink.OpenKept(ctx, from, databases, c.Name, former, streams)
			}
			file := from.Path
			if from.Kind == "state" {
				file = path
			}
			return sqlsink.OpenKept(ctx, file, c.Name, from, former, streams)
		},
		OnProgress: s.replaying(c.Name),
	}
	switch {
	case pgstore.Names(from):
		at := pgsink.For(c.Name, from, "", "").Location()
		o.From = &at
	case from != "":
		at := sqlsink.For(c.Name, from, path).Location()
		o.From = &at
	}
	summary, err := collect.RunReplay(ctx, o)
	s.clear()
	return s.replayed(c, summary, err)
}

// replaying shows how far a replay is.
func (s *screen) replaying(name string) func(collect.ReplaySummary) {
	if s.quiet {
		return nil
	}
	last := time.Now()
	return func(now collect.ReplaySummary) {
		if time.Since(last) < s.every() {
			return
		}
		last = time.Now()
		s.progress(now, func(width int) []string {
			line := fmt.Sprintf("%s %s: replay, %s of %s records", clock(time.Since(now.Started)), name, figure.Count(now.Replay.Records), figure.Count(now.Total))
			if width > 0 {
				line = clip(line, width-1)
			}
			return []string{line}
		})
	}
}

// replayed prints what a replay came to, and gives the exit.
func (s *screen) replayed(c *rest.Config, sum collect.ReplaySummary, err error) error {
	if _, ok := errors.AsType[*collect.HeldError](err); ok {
		return s.conclude(c, collect.Summary{}, err)
	}
	if impossible, ok := errors.AsType[*collect.ReplayError](err); ok {
		return usage(impossible)
	}
	if sum.Run == "" || err != nil {
		return err
	}
	if s.json {
		s.line("summary", sum)
	} else {
		_, _ = fmt.Fprint(s.out, replayText(c.Name, sum))
	}
	if sum.State != collect.RunDrained {
		return &exitError{code: exitDeferred, silent: true}
	}
	return nil
}

func replayText(name string, s collect.ReplaySummary) string {
	var b strings.Builder
	row := func(label, format string, args ...any) {
		_, _ = fmt.Fprintf(&b, "  %-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	took := clock(s.Ended.Sub(s.Started))
	switch {
	case s.Repeated:
		fmt.Fprintf(&b, "%s: replayed before, on %s: nothing is left to copy\n", name, s.Replay.Ended.Local().Format(time.DateTime))
	case s.State == collect.RunDrained:
		fmt.Fprintf(&b, "%s: replayed in %s; a run goes on where collection stood\n", name, took)
	default:
		fmt.Fprintf(&b, "%s: the replay stopped after %s; run it again and it goes on\n", name, took)
	}
	row("replayed", "%s", recordsText(s.Replay))
	row("from", "%s", s.Replay.From)
	row("into", "%s", s.Replay.To)
	if len(s.LeftOut) > 0 {
		row("left out", "%s, no longer in the connection", strings.Join(s.LeftOut, ", "))
	}
	return b.String()
}

// recordsText counts what a replay copied.
func recordsText(r collect.Replay) string {
	text := counted(r.Records, "record")
	if r.Deleted > 0 {
		text += fmt.Sprintf(", %s of them no longer at the provider", figure.Count(r.Deleted))
	}
	return text
}

// replayLine is a replay for the status.
func replayLine(r collect.Replay) string {
	text := fmt.Sprintf("%s from %s into %s", recordsText(r), r.From, r.To)
	if r.State == collect.ReplayDone {
		return text + ", done " + r.Ended.Local().Format(time.DateTime)
	}
	return text + `, not finished: "headway replay" goes on`
}
