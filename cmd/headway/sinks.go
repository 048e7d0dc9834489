package main

import (
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
)

// destination is where a connection's records go.
type destination struct {
	sink collect.Sink
	// name says where for people.
	name string
	// state is the file that must hold the state, where the sink asks for one.
	state string
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
		d := destination{sink: sqlsink.New(c.Name), state: s.SQLite.File}
		d.name = "the SQLite file " + statePath(cmd)
		if d.state != "" {
			d.name = "the SQLite file " + d.state
		}
		return d
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

// stateOf is the file that holds the connection's state: records and state that
// commit together live in one file.
func (d destination) stateOf(cmd *cobra.Command) (string, error) {
	if d.state == "" {
		return statePath(cmd), nil
	}
	if flag, err := cmd.Flags().GetString("state"); err == nil && flag != "" && flag != d.state {
		return "", usage(fmt.Errorf("--state is %s, but the connection's sink keeps records and state in %s: leave one of them out", flag, d.state))
	}
	return d.state, nil
}
