package cli

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/sink/airbyte"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/sink/parquet"
	"github.com/headway-go/headway/sink/singer"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
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
	// follow tells the sink of the run; nil for most.
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
		sink := sqlsink.For(c.Name, s.SQLite.File, statePath(cmd))
		return destination{sink: sink, name: "the SQLite file " + cmp.Or(sink.Location().Path, statePath(cmd))}
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
func (d destination) adopt(cmd *cobra.Command, store *sqlite.Store, connection string, s *screen) error {
	at := d.location()
	moved, err := store.Adopt(cmd.Context(), connection, at)
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
