package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/internal/story"
	"github.com/headway-go/headway/reason"
)

func newCheck() *cobra.Command {
	var (
		probe  bool
		schema bool
	)
	cmd := &cobra.Command{
		Use:   "check CONNECTION.yaml",
		Short: "Say what collecting a connection would do, and what is wrong with its file",
		Long: `Reads a connection file, reports everything that is wrong with it by line and
field, and says what a run would do. Where the connection was collected before,
by the state file, it says what was edited since and what the next run does about
it. With --store it also asks the database for that. It sends nothing else, unless --probe asks for one request: the first page of the
first stream. The probe warns of a paging or incremental expression that matches
nothing there, and of a list that ends on a full page.`,
		Example: `  headway check connection.yaml
  headway check connection.yaml --probe      # one real request
  headway check connection.yaml --store postgres://db/headway   # and the database of the state
  headway check --schema > connection.schema.json   # for an editor`,
		Args: func(cmd *cobra.Command, args []string) error {
			if schema {
				return exactly(0, "no argument with --schema")(cmd, args)
			}
			return exactly(1, "the connection's file")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(rest.Schema())
				return err
			}
			c, err := loadConnection(cmd, args[0])
			if err != nil {
				return err
			}
			path := statePath(cmd)
			con, err := rest.New(c, rest.KeepTokens(path))
			if err != nil {
				return usage(err)
			}
			report := struct {
				rest.Plan
				// Changes are what differs from the last run, by the state file.
				Changes []collect.Change `json:"changes,omitempty"`
				// Store is the database of the state; empty for a file.
				Store string       `json:"store,omitempty"`
				Probe *rest.Probed `json:"probe,omitempty"`
			}{Plan: rest.Describe(c)}
			to := openDestination(cmd, c)
			if report.Changes, err = changesOf(cmd, c.Name, to.location(), con.Streams()); err != nil {
				report.Warnings = append(report.Warnings, fmt.Sprintf("what was collected before is not known: %v", err))
			}
			if at, err := storeURL(cmd); err == nil && at != "" {
				if report.Store, err = storeText(cmd); err != nil {
					return err
				}
			}
			if sink, ok := to.sink.(interface{ Ping(context.Context) error }); ok {
				if err := sink.Ping(cmd.Context()); err != nil {
					return unavailable(err)
				}
			}
			if text := to.together(cmd, c.Name); text != "" {
				report.Warnings = append(report.Warnings, text)
			}
			if !asJSON(cmd) {
				if err := report.Write(cmd.OutOrStdout()); err != nil {
					return err
				}
				if report.Store != "" {
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", "store", report.Store)
				}
				for i, change := range report.Changes {
					if i == 0 {
						_, _ = fmt.Fprintln(cmd.OutOrStdout())
					}
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", "changed", story.Change(c.Name, change))
				}
			}
			if probe {
				found, err := probeOnce(cmd, c, con)
				if err != nil {
					return err
				}
				report.Probe = &found
				if !asJSON(cmd) {
					_, _ = fmt.Fprintln(cmd.OutOrStdout(), "probe: "+found.String())
					for _, w := range found.Warnings {
						_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", "warning", w)
					}
				}
			}
			if asJSON(cmd) {
				return writeJSON(cmd, report)
			}
			return nil
		},
		ValidArgsFunction: yamlFiles,
	}
	overrideFlags(cmd)
	stateFlag(cmd)
	cmd.Flags().BoolVar(&probe, "probe", false, "send one request")
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of connection files")
	return jsonFlag(cmd)
}

// probeOnce sends one request, not one retry more.
func probeOnce(cmd *cobra.Command, c *rest.Config, con *rest.Connector) (rest.Probed, error) {
	o := schedule.Options(c)
	o.MaxRequests = 1
	o.Retry.Attempts = 1
	caller, err := collect.NewCaller(o)
	if err != nil {
		return rest.Probed{}, usage(err)
	}
	found, err := con.Probe(cmd.Context(), caller)
	if f, ok := errors.AsType[*connector.Failure](err); ok {
		var code int
		switch f.Reason {
		case reason.Unreachable, reason.Timeout, reason.ServerError, reason.RateLimited.Reason(),
			reason.UpstreamPressure.Reason(), reason.QuotaExhausted:
			code = exitDeferred
		case reason.WrongScheme:
			code = exitUsage
		default:
			code = exitRefused
		}
		return found, &exitError{code: code, err: err}
	}
	return found, err
}

// changesOf compares a connection with its state, which is only read. Without a
// state there are no changes.
func changesOf(cmd *cobra.Command, name string, sink collect.Location, streams []connector.Stream) (changes []collect.Change, err error) {
	r, err := openReader(cmd.Context(), cmd)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	was, ok, err := collect.StatusOf(cmd.Context(), r, name)
	if !ok {
		return nil, err
	}
	changes = collect.Changes(was, streams)
	if c, changed := collect.SinkChange(was.SinkAt(), sink); changed {
		if slices.Contains(was.FormerSinks, sink) {
			c.Kind = collect.SinkReturned
		}
		changes = append(changes, c)
	}
	orphans, err := orphansOf(cmd, r, name, streams)
	return append(changes, orphans...), err
}

// orphansOf counts the gaps that no stream can fetch, by stream.
func orphansOf(cmd *cobra.Command, r collect.Reader, name string, streams []connector.Stream) (changes []collect.Change, err error) {
	f := collect.GapFilter{Connection: name, Limit: 500}
	for {
		gaps, err := r.Gaps(cmd.Context(), f)
		if err != nil {
			return nil, err
		}
		for _, g := range gaps {
			f.AfterID = g.ID
			if g.Status == collect.GapRecovered || !collect.Orphaned(g, streams) {
				continue
			}
			i := slices.IndexFunc(changes, func(c collect.Change) bool { return c.Stream == g.Stream })
			if i < 0 {
				i = len(changes)
				changes = append(changes, collect.Change{Kind: collect.GapsOrphaned, Stream: g.Stream})
			}
			changes[i].Count++
		}
		if len(gaps) < f.Limit {
			return changes, nil
		}
	}
}
