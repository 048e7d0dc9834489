// Package schedule collects the connections of a folder on their schedules. A deferred run
// is continued at its RetryAt.
//
// Connections share only the store: one that waits, fails or panics does not delay others.
// A run that failed permanently is tried again by its schedule, but later each time, up to
// a day; a changed file resets that. A file that cannot be read leaves its connection
// unchanged.
//
// [Lanes] and [Next] are pure: the caller passes the time. [Scheduler] is the shell and
// safe for concurrent use; its time is real, or that of a testing/synctest bubble. For a
// single run at a terminal use the command.
package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
)

// DefaultRunning is the number of connections that are collected at once.
const DefaultRunning = 32

// Config says what is collected and when. Zero fields mean the defaults.
type Config struct {
	// Dir is the folder of the connection files, *.yaml and *.yml. Required.
	Dir string
	// Timetable is the schedule of connections whose file has none: a cron expression in
	// local time. Default [DefaultTimetable].
	Timetable string
	// Database is the URL of the database that holds the state; empty if the state is in a
	// file.
	Database string
	// Running is the maximum number of connections that are collected at once, 1 to 10,000.
	// Default [DefaultRunning]. Others wait.
	Running int
	// Lookup reads the environment for ${NAME} in files. Required.
	Lookup func(name string) (string, bool)
}

// resolve fills in the defaults and checks the rest.
func (c Config) resolve() (Config, cron.Schedule, error) {
	c.Timetable = cmp.Or(c.Timetable, DefaultTimetable)
	c.Running = cmp.Or(c.Running, DefaultRunning)
	switch {
	case c.Dir == "":
		return c, nil, errors.New("schedule: dir is empty, must be the folder of the connection files")
	case c.Lookup == nil:
		return c, nil, errors.New("schedule: lookup is nil: it is required")
	case c.Running < 1 || c.Running > 10_000:
		return c, nil, fmt.Errorf("schedule: running is %d, must be from 1 to 10000", c.Running)
	}
	usual, err := cron.ParseStandard(c.Timetable)
	if err != nil {
		return c, nil, fmt.Errorf("schedule: timetable is %q: %w (five fields such as \"*/15 * * * *\", or \"@every 15m\")", c.Timetable, err)
	}
	return c, usual, nil
}

// Deps are the dependencies of a scheduler.
type Deps struct {
	// Store holds the state of all connections. Its owner closes it, after Stop.
	Store collect.Store
	// State is the file of the store. Rotated credentials are stored beside it, and a
	// sqlite sink in the same file commits its records together with the state. Empty means
	// a store without a file; then rotated credentials are not stored.
	State string
	// Fleet is used by all runs; nil means none.
	Fleet *fleet.Fleet
	// OnEvent receives the events of all runs, from several goroutines.
	OnEvent func(event.Event)
	// Log receives a line when a run begins or ends, and about files that were edited since
	// the last run. Default: none.
	Log *slog.Logger
}

// Scheduler collects connections. Make one with [New].
type Scheduler struct {
	deps   Deps
	places chan struct{}

	mu      sync.Mutex
	jobs    map[string]*job // by the connection's name
	stopped bool
}

// New returns a scheduler, which does nothing before [Scheduler.Load]. It uses Running of
// the configuration and checks the rest.
func New(c Config, d Deps) (*Scheduler, error) {
	c, _, err := c.resolve()
	if err != nil {
		return nil, err
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.OnEvent == nil {
		d.OnEvent = func(event.Event) {}
	}
	return &Scheduler{deps: d, places: make(chan struct{}, c.Running), jobs: map[string]*job{}}, nil
}

// Check reads a configuration and its folder, for a store in the file state, without
// changing anything. The error joins all problems, with file and line.
func Check(c Config, state string) error {
	c, usual, err := c.resolve()
	if err != nil {
		return err
	}
	_, err = readAll(c, usual, state)
	return err
}

// Load reads the folder and schedules its connections: new ones run at once, changed ones
// restart after the current slice is committed, and those whose file is gone end. A file
// with an error leaves its connection unchanged; the returned error joins these errors.
func (s *Scheduler) Load(c Config) error {
	c, usual, err := c.resolve()
	if err != nil {
		return err
	}
	files, faults := readAll(c, usual, s.deps.State)
	if files == nil && faults != nil {
		return faults // the folder itself cannot be read
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("schedule: it is stopped")
	}
	seen := map[string]bool{}
	broken := map[string]bool{}
	for _, f := range files {
		if f.config == nil {
			broken[f.path] = true
			continue
		}
		name := f.config.Name
		seen[name] = true
		j := s.jobs[name]
		if j != nil && j.file.digest == f.digest && j.file.path == f.path && c.Timetable == j.timetable {
			continue
		}
		if j != nil {
			j.end()
		}
		s.jobs[name] = s.begin(f, c.Timetable, j)
	}
	for name, j := range s.jobs {
		if !seen[name] && !broken[j.file.path] {
			j.end()
			delete(s.jobs, name)
		}
	}
	return faults
}

// readAll reads every file of the folder. A file with an error has no configuration.
func readAll(c Config, usual cron.Schedule, state string) (files []*file, faults error) {
	paths, err := list(c.Dir)
	if err != nil {
		return nil, err
	}
	files = []*file{}
	from := map[string]string{}
	for _, path := range paths {
		f, err := read(path, c, usual, state)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err == nil {
			if first, twice := from[f.config.Name]; twice {
				err = fmt.Errorf("schedule: %s: connection %q is already that of %s", path, f.config.Name, first)
			} else {
				from[f.config.Name] = path
			}
		}
		if err != nil {
			faults = errors.Join(faults, err)
			f = &file{path: path}
		}
		files = append(files, f)
	}
	return files, faults
}

// Stop stops every run after its current slice, or at once when the context ends. Neither
// loses data. When Stop returns, nothing runs.
func (s *Scheduler) Stop(ctx context.Context) {
	s.mu.Lock()
	s.stopped = true
	jobs := s.all()
	s.mu.Unlock()
	for _, j := range jobs {
		j.end()
	}
	for _, j := range jobs {
		select {
		case <-j.done:
		case <-ctx.Done():
			j.cut()
			<-j.done
		}
	}
}

// Status returns the schedule of every connection, by name.
func (s *Scheduler) Status() []Status {
	s.mu.Lock()
	jobs := s.all()
	s.mu.Unlock()
	list := make([]Status, 0, len(jobs))
	for _, j := range jobs {
		list = append(list, j.status())
	}
	return list
}

// Live returns the runs under way, by the connection's name.
func (s *Scheduler) Live() map[string]collect.Live {
	s.mu.Lock()
	jobs := s.all()
	s.mu.Unlock()
	live := map[string]collect.Live{}
	for _, j := range jobs {
		if l, ok := j.live(); ok {
			live[j.file.config.Name] = l
		}
	}
	return live
}

// all returns the jobs by name. The lock must be held.
func (s *Scheduler) all() []*job {
	jobs := make([]*job, 0, len(s.jobs))
	for _, j := range s.jobs {
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.file.config.Name, b.file.config.Name) })
	return jobs
}

// Options turns a connection file into the options of a run. The caller sets Connector,
// Store and Sink.
func Options(c *rest.Config) collect.Options {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	p := c.Provider
	o := collect.Options{
		Connection: c.Name, Timeout: p.Timeout, MaxBody: p.MaxBody,
		MaxRequests: c.Run.MaxRequests, MaxWallClock: c.Run.MaxWallClock, Concurrency: c.Run.Concurrency,
		CatchupPages: c.Run.CatchupPages,
		Holder:       fmt.Sprintf("process %d on %s", os.Getpid(), host),
	}
	if len(c.Errors) > 0 {
		o.Classify = c.Classify
	}
	if p.Profile != nil {
		o.Profile = p.Profile
	}
	o.Pacing.Ceiling, o.Pacing.Initial, o.Pacing.Law = p.Ceiling, p.Pacing.Initial, p.Pacing.Law
	o.Pacing.Step, o.Pacing.Factor, o.Pacing.Tolerance = p.Pacing.Step, p.Pacing.Factor, p.Pacing.Tolerance
	o.Pacing.JitterMin, o.Pacing.JitterMax = p.Pacing.JitterMin, p.Pacing.JitterMax
	o.Pacing.MaxWait = p.Pacing.MaxRetryAfter
	o.Retry.Base, o.Retry.Cap, o.Retry.Attempts = p.Retry.Base, p.Retry.Cap, p.Retry.Attempts
	o.RetryBudget = p.Retry.Budget
	o.Pacing.Breaker, o.Pacing.NoBreaker = p.Circuit.Config, p.Circuit.Off
	atOnce := cmp.Or(o.Concurrency, collect.DefaultMaxConcurrency)
	if base, ok := http.DefaultTransport.(*http.Transport); ok && atOnce > max(base.MaxIdleConnsPerHost, http.DefaultMaxIdleConnsPerHost) {
		// By default two idle connections are kept. With more requests at once, nearly
		// every request would need a new connection with a handshake.
		base = base.Clone()
		base.MaxIdleConnsPerHost = atOnce
		base.MaxIdleConns = max(base.MaxIdleConns, atOnce)
		o.Base = base
	}
	return o
}
