// Package worker collects a folder of connections with several processes, which take runs
// from a queue in PostgreSQL (River).
//
// Each connection has one job in the queue for as long as its file is there. A run ends by
// putting the job off to the instant at which the next is due, which internal/schedule
// decides: by the timetable, at a deferred run's RetryAt, or later each time after
// failures. So a connection is never queued twice, and there is nothing to be lost but a
// row:
//
//	stateDiagram-v2
//	    [*] --> available: a worker finds the file
//	    scheduled --> available: the instant comes
//	    available --> running: a worker takes it
//	    running --> scheduled: the run ended, with the instant of the next
//	    running --> available: the worker is stopping, or its session ended
//	    available --> completed: the worker that takes it has no file of it
//
// A worker holds an advisory lock while it lives. The others look for jobs that run without
// one, once a second, and make them available again. The queue says who is to run what;
// that nobody runs what another still does is up to the store's leases.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/pgsql"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/reason"
)

const (
	queue  = "headway"        // where the jobs are in River
	beat   = time.Second      // how often a worker looks for jobs that are due, or whose worker is gone
	reread = 30 * time.Second // how often it looks for new files
)

// Config says what is collected.
type Config struct {
	// Folder says which connections there are and when they run. Its database holds the
	// state and the queue, and is required.
	Folder schedule.Config
	// Split names connections each of whose streams is a job of its own, collected as the
	// connection NAME.STREAM. They share the pace by the fleet, which is then required.
	Split []string
}

// Deps are what a worker uses.
type Deps struct {
	// Store keeps the state, in the same database. Its owner closes it, after Run.
	Store collect.Store
	// Fleet is that of the runs; nil means none.
	Fleet *fleet.Fleet
	// Log gets a line for each run that begins and ends.
	Log *slog.Logger
}

// Worker takes runs from the queue. Make one with [Open].
type Worker struct {
	river.WorkerDefaults[task]
	c      Config
	d      Deps
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	// alive is the session with this worker's lock; only the goroutine of Run uses it.
	alive *pgx.Conn
	stop  chan struct{}

	mu    sync.Mutex
	files map[task]schedule.Connection
}

// task names a job: a connection, or one stream of it.
type task struct {
	Connection string `json:"connection" river:"unique"`
	Stream     string `json:"stream,omitempty" river:"unique"`
}

// Kind is the kind of the jobs in River.
func (task) Kind() string { return "headway_collect" }

// name is the connection as the store knows it.
func (t task) name() string { return strings.TrimSuffix(t.Connection+"."+t.Stream, ".") }

// outcome is what a job keeps between runs.
type outcome struct {
	schedule.Standing
	Digest string           `json:"digest"`
	File   string           `json:"file"`
	Lane   collect.LaneKind `json:"lane,omitempty"`
	Error  string           `json:"error,omitempty"`
	Ended  time.Time        `json:"ended"`
}

// Job is one job of a folder, as it is shown before it has run.
type Job struct {
	// Connection is the connection's name, or NAME.STREAM of one that is split.
	Connection string `json:"connection"`
	// Schedule is when it runs, and CatchupSchedule when its past is collected, "" for with
	// each run.
	Schedule        string `json:"schedule"`
	CatchupSchedule string `json:"catchup_schedule,omitempty"`
	File            string `json:"file"`
}

// Check returns the jobs of a folder by name, and what cannot be run. It changes nothing.
func Check(c Config, shared bool) ([]Job, error) {
	found, err := tasks(c)
	all, apart := []Job{}, false
	for t, f := range found {
		at := f.Config.Provider.Fleet.Reveal()
		apart = apart || t.Stream != "" && (at == "none" || at == "" && !shared)
		all = append(all, Job{
			Connection: t.name(), File: f.Path, CatchupSchedule: f.Config.Run.CatchupSchedule,
			Schedule: cmp.Or(f.Config.Run.Schedule, c.Folder.Timetable, schedule.DefaultTimetable),
		})
	}
	slices.SortFunc(all, func(a, b Job) int { return cmp.Compare(a.Connection, b.Connection) })
	if apart {
		err = errors.Join(err, errors.New("worker: --split needs a fleet, by which the parts share the pace: name a fleet with --fleet"))
	}
	return all, err
}

// tasks are the jobs of a folder.
func tasks(c Config) (map[task]schedule.Connection, error) {
	all, faults := schedule.Read(c.Folder, "")
	if all == nil && faults != nil {
		return nil, faults // the folder itself
	}
	found := map[task]schedule.Connection{}
	split := map[string]bool{}
	for _, f := range all {
		if !slices.Contains(c.Split, f.Config.Name) {
			found[task{Connection: f.Config.Name}] = f
			continue
		}
		split[f.Config.Name] = true
		for _, s := range f.Config.Streams {
			part := *f.Config
			part.Streams = []rest.Stream{s}
			t := task{f.Config.Name, s.Name}
			part.Name = t.name()
			of := f
			of.Config = &part
			found[t] = of
		}
	}
	for _, name := range c.Split {
		if !split[name] && faults == nil {
			faults = fmt.Errorf("worker: there is no connection %q to split in %s", name, c.Folder.Dir)
		}
	}
	return found, faults
}

// Open prepares the queue in the database, whose schema the store has made. A folder that
// cannot be read is an error; a file that cannot be read is logged.
func Open(ctx context.Context, c Config, d Deps) (*Worker, error) {
	w := &Worker{c: c, d: d, stop: make(chan struct{})}
	w.d.Log = cmp.Or(d.Log, slog.New(slog.DiscardHandler))
	var err error
	if w.files, err = tasks(c); w.files == nil {
		return nil, err
	} else if err != nil {
		w.d.Log.Warn("some connections are not collected", slog.Any("error", err))
	}
	if w.pool, err = connect(ctx, c.Folder.Database); err != nil {
		return nil, err
	}
	if err := w.prepare(ctx); err != nil {
		w.pool.Close()
		return nil, fmt.Errorf("worker: the queue: %w", err)
	}
	return w, nil
}

// connect opens the database of the queue.
func connect(ctx context.Context, at string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(at)
	if err != nil {
		return nil, errors.New("worker: the address of the PostgreSQL database cannot be read: write postgres://user@host:5432/database")
	}
	config.ConnConfig.RuntimeParams["application_name"] = "headway worker"
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, pgsql.ConnectTime)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		err = pool.Ping(ctx)
	}
	if err != nil && pool != nil {
		pool.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("worker: %s: %w", cmp.Or(pgsql.Advise(err), "the database cannot be opened"), err)
	}
	return pool, nil
}

// prepare brings River's tables up to date, one process at a time, and makes the client.
func (w *Worker) prepare(ctx context.Context) error {
	driver := riverpgxv5.New(w.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	// Not in one transaction: a value that a step adds to a type can be used only after it.
	const lock = `(hashtextextended('headway queue', 0))`
	if err = w.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		if _, err := c.Exec(ctx, `SELECT pg_advisory_lock`+lock); err != nil {
			return err
		}
		_, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		_, freed := c.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock`+lock)
		return errors.Join(err, freed)
	}); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	w.client, err = river.NewClient(driver, &river.Config{
		Queues:  map[string]river.QueueConfig{queue: {MaxWorkers: cmp.Or(w.c.Folder.Running, schedule.DefaultRunning)}},
		Workers: workers,
		// A run has bounds of its own, and whether its worker lives is known by its lock.
		JobTimeout: -1,
		Logger:     slog.New(quiet{w.d.Log.Handler()}),
	})
	return err
}

// quiet passes on what River says from warnings on.
type quiet struct{ slog.Handler }

func (quiet) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Run takes runs until stop is closed; then those under way end after their slice, and what
// is left of them is available to other workers. When the context ends they are cut, which
// loses nothing. A database that goes away is waited for.
func (w *Worker) Run(ctx context.Context, stop <-chan struct{}) error {
	defer w.pool.Close()
	until, end := context.WithCancel(ctx) // until stop is closed
	defer end()
	go func() {
		defer end()
		select {
		case <-stop:
		case <-until.Done():
		}
	}()
	if err := w.live(ctx); err != nil {
		return err
	}
	defer func() { _ = w.alive.Close(context.WithoutCancel(ctx)) }()
	if err := w.offer(ctx); err != nil {
		return err
	}
	within, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	if err := w.client.Start(within); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	read, away := time.Now(), false
	for going := true; going; {
		select {
		case <-until.Done():
			going = false
		case <-ticker.C:
			err := w.tend(ctx, until)
			if err == nil && time.Since(read) >= reread {
				read, err = time.Now(), w.reload(ctx)
			}
			if until.Err() != nil {
				continue
			}
			switch {
			case err != nil && !away:
				w.d.Log.Warn("the queue does not answer; waiting for it", slog.Any("error", err))
			case err == nil && away:
				w.d.Log.Info("the queue answers again")
			}
			away = err != nil
		}
	}
	close(w.stop)
	if err := w.client.Stop(ctx); err != nil {
		hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return w.client.StopAndCancel(hard)
	}
	return nil
}

// live takes this worker's lock.
func (w *Worker) live(ctx context.Context) error {
	config, _, err := pgsql.Parse(w.c.Folder.Database, 2)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	pgsql.Watch(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		_, err = conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended('headway worker ' || $1::text, 0))`, w.client.ID())
	}
	if err == nil {
		w.alive = conn
		return nil
	}
	if conn != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
	return fmt.Errorf("worker: %w", err)
}

// Work makes one run, and puts the job off to when the next is due.
func (w *Worker) Work(ctx context.Context, job *river.Job[task]) error {
	f, ok := w.known()[job.Args]
	if !ok {
		w.d.Log.Info("the connection has no file that can be read", slog.String("connection", job.Args.name()))
		return nil
	}
	lanes := schedule.NewLanes(f.Steady, f.Catchup, f.Config.Run.MaxWallClock, time.Now())
	if was, ok := outcomeOf(job.JobRow); ok && was.Digest == f.Digest {
		lanes.Resume(was.Standing)
	}
	turn := lanes.Begin(time.Now())
	sum, err := w.guarded(ctx, f.Config, turn)
	now := time.Now()
	lanes.Ended(turn, sum, err, now)
	at, _, _ := lanes.Due()
	if held, ok := errors.AsType[*collect.HeldError](err); ok && held.Expires.Before(at) {
		at = held.Expires.Add(time.Second)
	}
	if sum.Reason == reason.Interrupted && sum.State == collect.RunDeferred {
		at = now // this worker is stopping
	}
	out := outcome{Standing: lanes.Standing(), Digest: f.Digest, File: f.Path, Lane: turn.Lane, Ended: now.Round(0)}
	if err != nil {
		out.Error = err.Error()
	}
	w.note(f.Config.Name, sum, err, at)
	if err := river.RecordOutput(ctx, out); err != nil {
		return err
	}
	return river.JobSnooze(max(0, at.Sub(now)))
}

// guarded runs once. What panics in one connection must not end the others.
func (w *Worker) guarded(ctx context.Context, c *rest.Config, turn schedule.Turn) (sum collect.Summary, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.d.Log.Error("a collection panicked", slog.String("connection", c.Name), slog.String("stack", string(debug.Stack())))
			sum, err = collect.Summary{}, fmt.Errorf("worker: connection %q: a fault of ours (%T), see the log", c.Name, p)
		}
	}()
	con, err := rest.New(c)
	if err != nil {
		return sum, err
	}
	o := schedule.Options(c)
	shared, err := schedule.FleetFor(ctx, c, w.d.Fleet)
	if err != nil {
		return sum, err
	}
	o.Lane, o.Fleet = turn.Lane, schedule.FleetOf(shared, c)
	if turn.MaxWallClock > 0 {
		o.MaxWallClock = turn.MaxWallClock
	}
	if o.Sink, err = schedule.SinkOf(c, "", w.c.Folder.Database); err != nil {
		return sum, err
	}
	o.Connector, o.Store, o.Stop = con, w.d.Store, w.stop
	collector, err := collect.New(o)
	if err != nil {
		return sum, err
	}
	w.d.Log.Info("collection begins", slog.String("connection", c.Name), turn.Log())
	return collector.Run(ctx)
}

func (w *Worker) note(connection string, s collect.Summary, err error, next time.Time) {
	log, end := w.d.Log, w.d.Log.Info
	if err != nil {
		log = log.With(slog.Any("error", err))
		end = log.Warn
	}
	end("collection ended", slog.String("connection", connection), slog.String("state", string(s.State)), slog.String("reason", s.Reason.String()),
		slog.Int64("records", s.Records), slog.Int64("attempts", s.Attempts), slog.Int64("throttled", s.Throttled), slog.Time("next", next))
}
