package schedule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/sink/parquet"
	pgsink "github.com/headway-go/headway/sink/postgres"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
)

// Status is the schedule of one connection.
type Status struct {
	Connection string `json:"connection"`
	// File is the connection's file.
	File string `json:"file"`
	// Running reports that it is being collected, or waits for a slot.
	Running bool `json:"running"`
	// Lane is the lane that is being collected; empty if both, or none.
	Lane collect.LaneKind `json:"lane,omitempty"`
	// Next is when the next run begins, and CatchupNext when the next catch-up does if it
	// has a timetable of its own. Each is zero while that run is under way.
	Next        time.Time `json:"next,omitzero"`
	CatchupNext time.Time `json:"catchup_next,omitzero"`
	// Failures counts consecutive runs that failed permanently.
	Failures int `json:"failures"`
	// Error is the error of the last run, without content; empty if it succeeded.
	Error string `json:"error,omitempty"`
}

// job runs one connection repeatedly.
type job struct {
	s         *Scheduler
	file      *file
	timetable string // the default timetable when the job began
	stop      chan struct{}
	cut       context.CancelFunc
	done      chan struct{}
	once      sync.Once

	mu        sync.Mutex
	report    Status
	collector *collect.Collector // of the run under way
}

// begin starts a job, which first waits until the job before has ended.
func (s *Scheduler) begin(f *file, timetable string, before *job) *job {
	ctx, cut := context.WithCancel(context.Background())
	j := &job{
		s: s, file: f, timetable: timetable, stop: make(chan struct{}), cut: cut, done: make(chan struct{}),
		report: Status{Connection: f.config.Name, File: f.path},
	}
	go func() {
		defer close(j.done)
		defer cut()
		if before != nil {
			<-before.done
		}
		j.loop(ctx)
	}()
	return j
}

// end asks the job to end after the slice under way.
func (j *job) end() { j.once.Do(func() { close(j.stop) }) }

func (j *job) loop(ctx context.Context) {
	lanes := NewLanes(j.file.timetable, j.file.catchup, j.file.config.Run.MaxWallClock, time.Now())
	for {
		if !j.take() {
			return
		}
		turn := lanes.Begin(time.Now())
		j.change(func(t *Status) {
			t.Running, t.Lane = true, turn.Lane
			if turn.Lane == collect.Catchup {
				t.CatchupNext = time.Time{}
			} else {
				t.Next = time.Time{}
			}
		})
		sum, err := j.guarded(ctx, turn)
		<-j.s.places
		lanes.Ended(turn, sum, err, time.Now())
		at, steady, catchup := lanes.Due()
		why := ""
		if err != nil {
			why = err.Error()
		}
		j.change(func(t *Status) {
			t.Running, t.Lane, t.Next, t.CatchupNext, t.Failures, t.Error = false, "", steady, catchup, lanes.failures, why
		})
		j.note(sum, err, at)
		if sum.Reason == reason.Interrupted && sum.State == collect.RunDeferred {
			return
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-timer.C:
		case <-j.stop:
			timer.Stop()
			return
		}
	}
}

// take waits for a slot; it returns false if the job ends first.
func (j *job) take() bool {
	select {
	case <-j.stop:
		return false
	default:
	}
	select {
	case j.s.places <- struct{}{}:
		return true
	case <-j.stop:
		return false
	}
}

// guarded runs once and recovers from a panic, so that other connections continue.
func (j *job) guarded(ctx context.Context, turn Turn) (sum collect.Summary, err error) {
	defer func() {
		if p := recover(); p != nil {
			j.s.deps.Log.Error("a collection panicked", slog.String("connection", j.file.config.Name), slog.String("stack", string(debug.Stack())))
			sum, err = collect.Summary{}, fmt.Errorf("schedule: connection %q: a fault of ours (%T), see the log", j.file.config.Name, p)
		}
	}()
	c := j.file.config
	var options []rest.Option
	if j.s.deps.State != "" {
		options = append(options, rest.KeepTokens(j.s.deps.State))
	}
	con, err := rest.New(c, options...)
	if err != nil {
		return sum, err
	}
	o := Options(c)
	shared, err := FleetFor(ctx, c, j.s.deps.Fleet)
	if err != nil {
		return sum, err
	}
	o.Lane, o.Fleet = turn.Lane, FleetOf(shared, c)
	if turn.MaxWallClock > 0 {
		o.MaxWallClock = turn.MaxWallClock
	}
	if o.Sink, err = SinkOf(c, j.s.deps.State, j.file.database); err != nil {
		return sum, err
	}
	if err := j.adopt(ctx, o.Sink); err != nil {
		return sum, err
	}
	o.Connector, o.Store, o.Stop, o.OnEvent = con, j.s.deps.Store, j.stop, j.hear
	collector, err := collect.New(o)
	if err != nil {
		return sum, err
	}
	j.s.deps.Log.Info("collection begins", slog.String("connection", c.Name), turn.Log())
	j.mu.Lock()
	j.collector = collector
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		j.collector = nil
		j.mu.Unlock()
	}()
	return collector.Run(ctx)
}

// FleetFor returns the fleet that the connection's file names, or other if it names none.
func FleetFor(ctx context.Context, c *rest.Config, other *fleet.Fleet) (*fleet.Fleet, error) {
	address := c.Provider.Fleet.Reveal()
	switch address {
	case "":
		return other, nil
	case "none":
		return nil, nil
	}
	return fleet.Open(ctx, address)
}

// adopter is a store that takes over state which an earlier version stored in the sink's
// file.
type adopter interface {
	Adopt(ctx context.Context, connection string, at collect.Location) (moved bool, err error)
}

// adopt moves the state out of the sink's file, where an earlier version stored it.
func (j *job) adopt(ctx context.Context, sink collect.Sink) error {
	store, ok := j.s.deps.Store.(adopter)
	located, has := sink.(collect.Located)
	if !ok || !has {
		return nil
	}
	name, at := j.file.config.Name, located.Location()
	moved, err := store.Adopt(ctx, name, at)
	if moved {
		j.s.deps.Log.Info("the state was moved out of the file of the records",
			slog.String("connection", name), slog.String("from", at.Path), slog.String("to", j.s.deps.State))
	}
	return err
}

// hear passes an event on. At the start of a run it logs what a user should know: what was
// edited, and signs that a list is not read as intended.
func (j *job) hear(e event.Event) {
	log := j.s.deps.Log.With(slog.String("connection", e.Connection), slog.String("stream", e.Stream))
	switch e.Type {
	case event.ConnectionChanged:
		log.Warn("the connection was edited", slog.String("what", collect.ChangeOf(e).String()))
	case event.Warning:
		log.Warn("records may be missing", slog.String("what", collect.WarningOf(e).String()))
	default:
	}
	j.s.deps.OnEvent(e)
}

func (j *job) note(s collect.Summary, err error, next time.Time) {
	attrs := []any{
		slog.String("connection", j.file.config.Name), slog.String("state", string(s.State)), slog.String("reason", s.Reason.String()),
		slog.Int64("records", s.Records), slog.Int64("attempts", s.Attempts), slog.Int64("throttled", s.Throttled),
		slog.Time("next", next),
	}
	if err != nil {
		j.s.deps.Log.Warn("collection ended", append(attrs, slog.Any("error", err))...)
		return
	}
	j.s.deps.Log.Info("collection ended", attrs...)
}

func (j *job) change(set func(*Status)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	set(&j.report)
}

func (j *job) status() Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.report
}

func (j *job) live() (collect.Live, bool) {
	j.mu.Lock()
	c := j.collector
	j.mu.Unlock()
	if c == nil {
		return collect.Live{}, false
	}
	return c.Live()
}

// DefaultTimetable is the timetable of connections whose file has none.
const DefaultTimetable = "@every 15m"

// file is a connection file.
type file struct {
	path      string
	digest    [sha256.Size]byte
	config    *rest.Config
	timetable cron.Schedule
	catchup   cron.Schedule // nil if it runs together with the steady lane
	database  string        // of the state; empty if the state is in a file
}

// Connection is one connection file of a folder, for callers that do not use a [Scheduler].
type Connection struct {
	Path   string
	Config *rest.Config
	// Digest changes with the file and the variables that it uses.
	Digest string
	// Steady is its timetable. Catchup is nil if it has no timetable of its own.
	Steady, Catchup cron.Schedule
}

// Read reads the folder of a configuration, for a store in its database or in the file
// state. A file with an error is left out; the returned error joins all of them, with file
// and line.
func Read(c Config, state string) ([]Connection, error) {
	c, usual, err := c.resolve()
	if err != nil {
		return nil, err
	}
	files, faults := readAll(c, usual, state)
	all := make([]Connection, 0, len(files))
	for _, f := range files {
		if f.config != nil {
			all = append(all, Connection{f.path, f.config, hex.EncodeToString(f.digest[:8]), f.timetable, f.catchup})
		}
	}
	return all, faults
}

// list returns the connection files of a folder, sorted. A missing folder is an error.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("schedule: the folder of connections: %w", err)
	}
	var paths []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if !e.IsDir() && (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// read reads one connection file. Its digest includes the environment, which holds the
// credentials.
func read(path string, of Config, usual cron.Schedule, state string) (*file, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, fmt.Errorf("schedule: %w", err)
	}
	sum := sha256.New()
	sum.Write(raw)
	c, err := rest.Load(path, func(name string) (string, bool) {
		v, ok := of.Lookup(name)
		fmt.Fprintf(sum, "\x00%s\x00%v\x00%s", name, ok, v)
		return v, ok
	})
	if err != nil {
		return nil, err
	}
	f := &file{path: path, config: c, timetable: usual}
	sum.Sum(f.digest[:0])
	if c.Run.Schedule != "" {
		if f.timetable, err = cron.ParseStandard(c.Run.Schedule); err != nil {
			return nil, fmt.Errorf("schedule: %s: run.schedule is %q: %w", path, c.Run.Schedule, err)
		}
	}
	if c.Run.CatchupSchedule != "" {
		if f.catchup, err = cron.ParseStandard(c.Run.CatchupSchedule); err != nil {
			return nil, fmt.Errorf("schedule: %s: run.catchup_schedule is %q: %w", path, c.Run.CatchupSchedule, err)
		}
	}
	f.database = of.Database
	sink, err := SinkOf(c, state, of.Database)
	if err != nil {
		return nil, fmt.Errorf("schedule: %s: %w", path, err)
	}
	if sink, ok := sink.(collect.Namer); ok {
		if err := c.CheckNames(sink.CheckName); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// SinkOf returns the sink of a connection whose state is in the file state, or in a
// database. A sink that writes to standard output is an error, since a daemon has no reader
// there.
func SinkOf(c *rest.Config, state, database string) (collect.Sink, error) {
	switch s := c.Sink; {
	case s.SQLite != nil && database != "":
		if s.SQLite.File == "" {
			return nil, errors.New("sink.sqlite has no file, which is the one of the state, and the state is in a database: give it a file")
		}
		return sqlsink.For(c.Name, s.SQLite.File, ""), nil
	case s.SQLite != nil:
		return sqlsink.For(c.Name, s.SQLite.File, state), nil
	case s.Postgres != nil && !s.Postgres.URL.Given() && database == "":
		return nil, errors.New("sink.postgres has no url, which is then the database of the state, and the state is in a file: give it a url")
	case s.Postgres != nil:
		return pgsink.For(c.Name, s.Postgres.URL.Reveal(), s.Postgres.Schema, database), nil
	case s.Parquet != nil:
		return parquet.New(s.Parquet.Dir), nil
	case s.JSONL != nil:
		return jsonl.New(s.JSONL.Dir), nil
	default:
		return nil, errors.New("sink is one that writes to standard output, which a daemon has none of: use jsonl, parquet, postgres or sqlite, or \"headway collect\"")
	}
}

// FleetOf returns a connection's fleet members by key, for collect.Options; nil if there is
// no fleet. Two connections use the same credential if the provider's host and the secret
// are equal.
func FleetOf(f *fleet.Fleet, c *rest.Config) func(key string) headway.Fleet {
	if f == nil {
		return nil
	}
	return func(key string) headway.Fleet {
		auth := c.Provider.Auth
		for _, k := range c.Provider.Keys {
			if k.Name == key {
				auth = k.Auth
			}
		}
		return f.Member(c.Provider.BaseURL.Host, secretOf(auth))
	}
}

// secretOf identifies a credential. For one that the provider rotates it uses the part that
// stays.
func secretOf(a rest.Auth) string {
	if o := a.OAuth2; o != nil {
		return o.TokenURL.String() + "\n" + o.ClientID.Reveal() + "\n" + o.ClientSecret.Reveal() + "\n" + o.RefreshToken.Reveal() + "\n" + o.TokenFile
	}
	return a.Secret.Reveal()
}
