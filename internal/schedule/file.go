package schedule

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/sink/parquet"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
)

// DefaultTimetable is that of connections whose file says none.
const DefaultTimetable = "@every 15m"

// file is one connection file that was read.
type file struct {
	path      string
	digest    [sha256.Size]byte
	config    *rest.Config
	timetable cron.Schedule
	catchup   cron.Schedule // nil: with the steady state
}

// list gives the connection files of a folder, by name. A folder that is not
// there is an error: whoever named it expects collections.
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

// read reads one connection file. The environment counts as a part of it: it
// holds the credentials.
func read(path string, lookup func(string) (string, bool), usual cron.Schedule, state string) (*file, error) {
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
		v, ok := lookup(name)
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
	sink, err := sinkOf(c, state)
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

// sinkOf makes the sink of a connection whose state is in the file state. One that
// writes to standard output is an error: a daemon has no reader there.
func sinkOf(c *rest.Config, state string) (collect.Sink, error) {
	switch s := c.Sink; {
	case s.SQLite != nil:
		return sqlsink.For(c.Name, s.SQLite.File, state), nil
	case s.Parquet != nil:
		return parquet.New(s.Parquet.Dir), nil
	case s.JSONL != nil:
		return jsonl.New(s.JSONL.Dir), nil
	default:
		return nil, errors.New("sink is one that writes to standard output, which a daemon has none of: use jsonl, parquet or sqlite, or \"headway collect\"")
	}
}
