package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/store/postgres"
)

// overrideFlags are the numbers of a connection that a flag or the environment may set.
func overrideFlags(cmd *cobra.Command) {
	cmd.Flags().Duration("ceiling", 0, "shortest interval between two requests, over the file's (and under $HEADWAY_CEILING)")
	cmd.Flags().Int64("max-requests", 0, "send at most this many requests in this run")
	cmd.Flags().Duration("max-wall-clock", 0, "begin no request after this time")
	cmd.Flags().Int64("catchup-pages", 0, "walk at most this many pages of each stream's past, then see to what changed")
	cmd.Flags().Int("concurrency", 0, fmt.Sprintf("how many details are asked for at once, at the one rate; at most %d", rest.MaxConcurrency))
}

// override sets them: file, then flag, then environment, each within the file's bounds.
func override(cmd *cobra.Command, c *rest.Config) error {
	for _, f := range []struct{ flag, variable, field string }{
		{"ceiling", "HEADWAY_CEILING", rest.FieldCeiling},
		{"max-requests", "", rest.FieldMaxRequests},
		{"max-wall-clock", "", rest.FieldMaxWallClock},
		{"catchup-pages", "", rest.FieldCatchupPages},
		{"concurrency", "", rest.FieldConcurrency},
	} {
		from, text := "", ""
		if given := cmd.Flags().Lookup(f.flag); given.Changed {
			from, text = "--"+f.flag, given.Value.String()
		}
		if f.variable != "" {
			if v, ok := os.LookupEnv(f.variable); ok && v != "" {
				from, text = f.variable, v
			}
		}
		if from == "" {
			continue
		}
		if err := c.Override(f.field, text); err != nil {
			return usage(fmt.Errorf("%s %w", from, err))
		}
	}
	return nil
}

func newCollect() *cobra.Command {
	var (
		fresh       bool
		quiet, stay bool
		timetable   string
		streams     []string
		lane        string
	)
	cmd := &cobra.Command{
		Use:   "collect CONNECTION.yaml",
		Short: "Collect a connection, as fast as its provider allows",
		Long: `Collects everything that the connection describes, page by page, and commits
each page before it asks for the next. It can be stopped at any time and run
again: it goes on where it was, at the speed it had found, and skips what did
not change.

Ctrl-C finishes the requests under way; a second Ctrl-C stops at once. Neither
loses anything. Progress goes to standard error, the summary to standard output.`,
		Example: `  headway collect connection.yaml
  headway collect connection.yaml --max-wall-clock 10m   # in a cron job; exit code 75 means: run me again
  headway collect connection.yaml --ceiling 500ms        # never faster than two a second
  headway collect connection.yaml --fresh                # forget what is known and start over
  headway collect connection.yaml --stream users         # this stream only; its details come with it
  headway collect connection.yaml --watch                # stay; resume by itself, then every 15 minutes
  headway collect connection.yaml --schedule "0 3 * * *" # stay; run at three each night
  headway collect connection.yaml --fleet unix:///var/lib/headway/headway.sock   # share its pace with others
  headway collect connection.yaml --store postgres://headway@db/headway   # the state in PostgreSQL; PGPASSWORD has the password
  headway collect connection.yaml --json                 # events, progress and summary as JSON lines`,
		Args: exactly(1, "the connection's file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConnection(cmd, args[0])
			if err != nil {
				return err
			}
			if err := checkStreams(c, streams, fresh); err != nil {
				return err
			}
			if lane != "" && lane != string(collect.Steady) && lane != string(collect.Catchup) {
				return usage(fmt.Errorf("--lane is %q, must be %s or %s", lane, collect.Steady, collect.Catchup))
			}
			var every *watch
			if stay || cmd.Flags().Changed("schedule") {
				if c.Run.Schedule != "" && !cmd.Flags().Changed("schedule") {
					timetable = c.Run.Schedule
					if lane == string(collect.Catchup) && c.Run.CatchupSchedule != "" {
						timetable = c.Run.CatchupSchedule
					}
				}
				if every, err = newWatch(timetable, c.Run, collect.LaneKind(lane)); err != nil {
					return err
				}
			}
			return collectAll(cmd, c, newScreen(cmd, quiet), demand{fresh: fresh, streams: streams, turn: schedule.Turn{Lane: collect.LaneKind(lane)}, fixed: lane != ""}, every)
		},
		ValidArgsFunction: yamlFiles,
	}
	overrideFlags(cmd)
	stateFlag(cmd)
	fleetFlag(cmd)
	cmd.Flags().StringArrayVar(&streams, "stream", nil, "collect only this stream of the connection, with its details; may be given several times")
	cmd.Flags().StringVar(&lane, "lane", "", "collect only the `steady` state, what changes, or only the catchup, the past; the one does not move the other's position")
	_ = cmd.RegisterFlagCompletionFunc("lane", cobra.FixedCompletions([]string{string(collect.Steady), string(collect.Catchup)}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("stream", streamNames)
	cmd.Flags().BoolVar(&fresh, "fresh", false, "forget what is known of the connection; files that exist are set aside, not deleted")
	cmd.Flags().Bool("json", false, "print events, progress and summary as JSON lines")
	cmd.Flags().BoolVar(&stay, "watch", false, "stay, and run again: a deferred run at the time that it names, any other by --schedule")
	cmd.Flags().StringVar(&timetable, "schedule", schedule.DefaultTimetable, "with --watch, which it implies: when to run, as a cron expression in local time, over the file's run.schedule")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print no progress")
	return cmd
}

func yamlFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// loadConnection reads a connection file and the overrides.
func loadConnection(cmd *cobra.Command, path string) (*rest.Config, error) {
	c, err := readConnection(cmd, path)
	if err != nil {
		return nil, err
	}
	return c, override(cmd, c)
}

// readConnection reads a connection file.
func readConnection(cmd *cobra.Command, path string) (*rest.Config, error) {
	c, err := rest.Load(path, os.LookupEnv)
	if err != nil {
		return nil, badFile("connection that can be collected", err)
	}
	at, err := storeURL(cmd)
	if err != nil {
		return nil, err
	}
	if at != "" && c.Sink.SQLite != nil && c.Sink.SQLite.File == "" {
		return nil, usage(fmt.Errorf("%s: sink.sqlite has no file, which is the one of the state, and the state is in %s: give it a file", path, postgres.Place(at)))
	}
	if at == "" && c.Sink.Postgres != nil && !c.Sink.Postgres.URL.Given() {
		return nil, usage(fmt.Errorf("%s: sink.postgres has no url, which is then the database of the state, and the state is in a file: "+
			"give it a url, or name the state's database by --store", path))
	}
	if sink, ok := openDestination(cmd, c).sink.(collect.Namer); ok {
		if err := c.CheckNames(sink.CheckName); err != nil {
			return nil, badFile("connection that can be collected", err)
		}
	}
	return c, nil
}

// collectAll opens the state and runs once, or, with a watch, again and again
// until it is interrupted or running again is pointless.
func collectAll(cmd *cobra.Command, c *rest.Config, s *screen, ask demand, every *watch) error {
	to := openDestination(cmd, c)
	if to.piped {
		if s.json {
			return usage(fmt.Errorf("--json and the connection's sink both want standard output: leave --json out"))
		}
		s.out = s.err
		// A reader that goes away is an error of the run, which then ends in
		// order, and not the end of the process.
		signal.Ignore(syscall.SIGPIPE)
	}
	s.destination = to.name
	path := statePath(cmd)
	shared, err := fleetOf(cmd, c.Provider.Fleet)
	if err != nil {
		return err
	}
	ask.fleet = shared
	store, err := openStore(cmd)
	if err != nil {
		return err
	}
	if err := to.adopt(cmd, store, c.Name, s); err != nil {
		return errors.Join(err, store.Close())
	}
	ctx, stop, done := interruptible(cmd.Context(), s)
	defer done()
	for {
		var summary collect.Summary
		if every != nil {
			if turn := every.begin(); !ask.fixed {
				ask.turn = turn
			}
		}
		summary, err = collectOnce(ctx, stop, c, path, store, to, s, ask)
		ask.fresh = false
		if every == nil || !every.pause(ctx, stop, s, summary, err) {
			break
		}
		to = openDestination(cmd, c)
	}
	return errors.Join(err, store.Close())
}

func collectOnce(ctx context.Context, stop <-chan struct{}, c *rest.Config, state string, store collect.Store, to destination, s *screen, ask demand) (collect.Summary, error) {
	con, err := rest.New(c, rest.KeepTokens(state))
	if err != nil {
		return collect.Summary{}, usage(err)
	}
	o := schedule.Options(c)
	o.Connector, o.Store, o.Sink = con, store, to.sink
	o.Stop, o.OnEvent, o.Fresh, o.Streams = stop, s.event, ask.fresh, ask.streams
	o.Lane, o.Fleet = ask.turn.Lane, schedule.FleetOf(ask.fleet, c)
	if ask.turn.MaxWallClock > 0 {
		o.MaxWallClock = ask.turn.MaxWallClock
	}
	if to.onEvent != nil {
		o.OnEvent = func(e event.Event) {
			to.onEvent(e)
			s.event(e)
		}
	}
	collector, err := collect.New(o)
	if err != nil {
		return collect.Summary{}, usage(err)
	}
	if to.follow != nil {
		to.follow(collector)
	}
	end := s.follow(c, collector)
	summary, err := collector.Run(ctx)
	end()
	return summary, s.conclude(c, summary, err)
}

// interruptible listens for Ctrl-C and SIGTERM: the first closes stop, the
// second cancels the context.
func interruptible(parent context.Context, s *screen) (ctx context.Context, stop <-chan struct{}, done func()) {
	ctx, cancel := context.WithCancel(parent)
	graceful := make(chan struct{})
	end := onSignals(func() {
		s.say("finishing the requests under way; once more to stop at once (nothing is lost either way)")
		close(graceful)
	}, cancel)
	return ctx, graceful, func() { end(); cancel() }
}

// onSignals does first at the first Ctrl-C or SIGTERM and second at the next, until it
// is ended.
func onSignals(first, second func()) (end func()) {
	signals, ended := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for _, do := range []func(){first, second} {
			select {
			case <-ended:
				return
			case <-signals:
				do()
			}
		}
	}()
	return func() { signal.Stop(signals); close(ended) }
}

// exitOf is the exit that a run's end stands for.
func exitOf(s collect.Summary, err error) error {
	if held, ok := errors.AsType[*collect.HeldError](err); ok {
		return &exitError{code: exitDeferred, err: held, silent: true}
	}
	switch s.State {
	case collect.RunDrained:
		return nil
	case collect.RunIncomplete:
		return &exitError{code: exitIncomplete, silent: true}
	case collect.RunDeferred:
		return &exitError{code: exitDeferred, silent: true}
	case collect.RunFailed, collect.RunRunning, collect.RunAbandoned:
	}
	_, replayFirst := errors.AsType[*collect.ReplayError](err)
	code := exitRefused
	switch {
	case replayFirst, s.Reason == reason.WrongScheme: // of base_url
		code = exitUsage
	case s.Reason == reason.Internal, s.Reason == reason.LeaseLost, s.Reason == reason.None:
		code = exitInternal
	}
	return &exitError{code: code, err: err, silent: s.ID != ""}
}

// demand is what a run of collect was asked for beside the connection.
type demand struct {
	fresh   bool
	streams []string // nil is all
	turn    schedule.Turn
	fixed   bool // turn is the command line's
	fleet   *fleet.Fleet
}

// checkStreams holds --stream against the connection, before anything is opened.
func checkStreams(c *rest.Config, names []string, fresh bool) error {
	if len(names) == 0 {
		return nil
	}
	if fresh {
		return usage(errors.New("--fresh does not go with --stream: it forgets the whole connection"))
	}
	con, err := rest.New(c)
	if err != nil {
		return usage(err)
	}
	if err := collect.CheckStreams(names, con.Streams()); err != nil {
		return usage(fmt.Errorf("--stream: %w", err))
	}
	return nil
}

// streamNames completes the streams of the connection that the command line
// names. Variables that the file needs may be unset in this shell.
func streamNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := rest.Load(args[0], func(name string) (string, bool) {
		if v, ok := os.LookupEnv(name); ok {
			return v, true
		}
		return "https://example.com", true
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range c.Streams {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
