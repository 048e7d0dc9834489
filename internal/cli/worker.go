package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/internal/worker"
)

func newWorker() *cobra.Command {
	var (
		c     worker.Config
		check bool
		json  bool
	)
	cmd := &cobra.Command{
		Use:   "worker FOLDER",
		Short: "Collect a folder of connections together with other workers on one database",
		Long: `Takes runs from a queue in PostgreSQL and makes them, as do the other workers that are
given the same folder and database, on this machine or others. Each connection runs by its
own run.schedule or by --schedule, a deferred run at the instant that it named, and one that
failed later each time. No two workers run a connection at once. When a worker is killed,
another has its runs within seconds and goes on where they were.

The state is in the database (--store), and the folder has to be the same everywhere, with
the same environment. Records have to go where every worker reaches them, such as a postgres
sink. Workers that share a credential share the pace by --fleet.

--split NAME has each stream of a large connection collected as a job of its own, by as many
workers as there are: as the connection NAME.STREAM, with a state of its own that begins
empty. Its parts share the pace by --fleet.

A connection whose credential the provider replaces with each use (OAuth2 refresh tokens that
rotate) is not for workers, which share no file: collect it with "headway serve".

SIGTERM ends it after the slices under way; a second one at once. Neither loses anything.
"headway schedule --store URL" shows what runs when, "headway status" how it stands.

Exit codes: 0 stopped; 64 bad usage or files; 69 the database or the fleet is not there;
70 a fault on this side.`,
		Example: `  headway worker connections --store postgres://headway@db/headway     # PGPASSWORD has the password
  headway worker connections --store "$DB" --fleet valkey://cache:6379 # several credentials, shared
  headway worker connections --store "$DB" --fleet valkey://cache:6379 --split archive
  headway worker connections --store "$DB" --check                     # what would run?`,
		Args: exactly(1, "the folder of the connection files"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := storeURL(cmd)
			if err != nil {
				return err
			}
			if at == "" {
				return usage(errors.New("workers need a database, for the state and the queue: name it by --store or $" + storeVariable))
			}
			c.Folder.Dir, c.Folder.Database, c.Folder.Lookup = args[0], at, os.LookupEnv
			fleet, err := fleetOf(cmd, configfile.Secret{})
			if err != nil {
				return err
			}
			jobs, err := worker.Check(c, fleet != nil)
			if err != nil {
				return usage(fmt.Errorf("not a folder that can be collected:\n%w", err))
			}
			if check {
				return present(cmd, jobs, jobsText(jobs))
			}
			var log slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), nil)
			if json {
				log = slog.NewJSONHandler(cmd.ErrOrStderr(), nil)
			}
			store, err := openStore(cmd)
			if err != nil {
				return err
			}
			ctx, stop, done := interruptible(cmd.Context(), newScreen(cmd, true))
			defer done()
			w, err := worker.Open(ctx, c, worker.Deps{Store: store, Fleet: fleet, Log: slog.New(log)})
			if err != nil {
				return errors.Join(unavailable(err), store.Close())
			}
			return errors.Join(w.Run(ctx, stop), store.Close())
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	fleetFlag(cmd)
	f := cmd.Flags()
	f.String("state", "", "`folder` of a headway serve to find its fleet in (default $HEADWAY_STATE)")
	f.String("store", "", "`URL` of the PostgreSQL database: postgres://USER@HOST:5432/DATABASE?search_path=SCHEMA (default $"+storeVariable+")")
	f.StringVar(&c.Folder.Timetable, "schedule", "", "when connections run whose file does not say: five cron `fields` or @every 15m (default "+schedule.DefaultTimetable+")")
	f.IntVar(&c.Folder.Running, "running", 0, fmt.Sprintf("how many runs this worker makes at once, 1 to 10,000 (default %d)", cmp.Or(0, schedule.DefaultRunning)))
	f.StringArrayVar(&c.Split, "split", nil, "collect each stream of the connection `NAME` as a job of its own; may be repeated")
	f.BoolVar(&check, "check", false, "check the files, show what would run, and end")
	f.BoolVar(&json, "json", false, "log JSON lines; with --check, print JSON")
	return cmd
}

// jobsText is a line for each job.
func jobsText(all []worker.Job) string {
	if len(all) == 0 {
		return "no connection files here\n"
	}
	var table sheet
	table.line("CONNECTION\tRUNS\tFILE")
	for _, j := range all {
		when := j.Schedule
		if j.CatchupSchedule != "" {
			when += ", the past " + j.CatchupSchedule
		}
		table.line("%s\t%s\t%s", j.Connection, when, j.File)
	}
	return table.String()
}
