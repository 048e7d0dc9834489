package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/quota"
)

// The environment's keys for a running "headway serve", and the key to ask with,
// which stands on no command line.
const (
	serverVariable = "HEADWAY_SERVER"
	keyVariable    = "HEADWAY_KEY"
)

// serverFlag lets a command, and those below it, ask a running daemon instead of
// a file.
func serverFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("server", "", "`URL` of a running headway serve to ask instead of a file (default $"+serverVariable+"); $"+keyVariable+" holds the key")
}

// serverOf is the daemon to ask, "" for none. A file that is named on the command
// line goes before a daemon of the environment.
func serverOf(cmd *cobra.Command) (string, error) {
	server, err := cmd.Flags().GetString("server")
	if err != nil {
		return "", nil //nolint:nilerr // the command asks no daemon
	}
	state := cmd.Flags().Changed("state") || cmd.Flags().Changed("store")
	switch {
	case server != "" && state:
		return "", usage(errors.New("--server does not go with --state or --store: ask a daemon, a file or a database"))
	case server != "":
		return server, nil
	case state:
		return "", nil
	}
	return os.Getenv(serverVariable), nil
}

// remote is a client of the daemon to ask; nil for none.
func remote(cmd *cobra.Command) (*client.Client, error) {
	server, err := serverOf(cmd)
	if err != nil || server == "" {
		return nil, err
	}
	c, err := client.New(client.Options{Server: server, Key: os.Getenv(keyVariable)})
	if err != nil {
		return nil, usage(err)
	}
	return c, nil
}

// asked says where what is shown comes from.
func asked(cmd *cobra.Command) string {
	if server, err := serverOf(cmd); err == nil && server != "" {
		return server
	}
	return statePlace(cmd)
}

// answered gives the error of a daemon its exit code: what another key or another
// question would change is usage, and a daemon that is not there has refused.
func answered(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e
	}
	p, ok := errors.AsType[*api.Problem](err)
	switch {
	case ok && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden):
		return usage(fmt.Errorf("%s: %w ($%s holds the key to ask with)", asked(cmd), err, keyVariable))
	case ok && p.Status < http.StatusInternalServerError:
		return usage(fmt.Errorf("%s: %w", asked(cmd), err))
	}
	return &exitError{code: exitRefused, err: err}
}

// far reads through a daemon what the store has.
type far struct{ *client.Client }

func (f far) Connections(ctx context.Context) ([]collect.ConnectionStatus, error) {
	return f.Client.Connections(ctx, "")
}

func (f far) Events(ctx context.Context, run string) ([]event.Event, error) {
	trace, err := f.Run(ctx, run)
	return trace.Events, err
}

// farRates shows the rates that a daemon knows: those of what it proxies, live,
// and those of what is collected.
func farRates(cmd *cobra.Command, c *client.Client, args []string) error {
	name := ""
	if len(args) == 1 {
		name = args[0]
	}
	rates, err := c.Rate(cmd.Context(), name)
	if err != nil {
		return answered(cmd, err)
	}
	if asJSON(cmd) {
		return writeJSON(cmd, orEmpty(rates))
	}
	for _, r := range rates {
		text := rateStatus{Connection: r.Connection, Running: r.Running, Pacing: r.Pacing, Rate: r.Rate}.text()
		if r.Live != nil {
			text = rateText(r.Rate)
			if r.Live.Circuit != "closed" && r.Live.Circuit != "off" {
				text += ", circuit " + r.Live.Circuit
			}
			if !r.SetAside.IsZero() {
				text = fmt.Sprintf("set aside %s ago, refused with %d", ago(r.SetAside), r.SetAsideStatus)
			}
			text += inFleet(r.Live.Fleet)
			text += fmt.Sprintf(", %s under way, %s waiting", figure.Count(int64(r.Live.InFlight)), figure.Count(int64(r.Live.Waiting)))
		}
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", r.Connection, text)
		writeLimits(cmd.OutOrStdout(), "  ", r.Limits)
		if r.Live != nil {
			writePools(cmd.OutOrStdout(), r.Live.Pools)
		} else {
			writeParts(cmd.OutOrStdout(), "  ", r.Pacing)
		}
		if r.BoundBy.Total() > 0 {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "  calls bound by %s\n", r.BoundBy)
		}
		for _, c := range r.Circuits {
			of := cmp.Or(strings.TrimSpace(c.Model+" "+c.Path), "the whole provider")
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "  circuit %s: %s\n", c.State, of)
		}
	}
	return nil
}

// farSnapshot shows what is left of a budget of a daemon.
func farSnapshot(cmd *cobra.Command, c *client.Client, provider string) error {
	s, err := c.Snapshot(cmd.Context(), provider)
	if err != nil {
		return answered(cmd, err)
	}
	var table sheet
	table.line(scopeHeader)
	row := func(name string, state quota.State, left ...*int64) {
		cells := []string{name, state.String()}
		for _, n := range left {
			cells = append(cells, orUnlimited(n))
		}
		table.line("%s", strings.Join(cells, "\t"))
	}
	g := s.Global
	row("global", g.State, g.CallsRemaining, g.TokensRemaining, g.SoftTokensRemaining, g.DailyTokensRemaining, g.DailyCallsRemaining)
	for name := range sortedKeys(s.Models) {
		m := s.Models[name]
		row(quota.Scope{Model: name}.String(), m.State, m.CallsRemaining, m.TokensRemaining, m.SoftTokensRemaining, m.DailyTokensRemaining, m.DailyCallsRemaining)
	}
	return present(cmd, s, table.String()+sharedBudget(s.Fleet))
}

// sharedBudgets shows the budgets that a daemon shares with other processes.
func sharedBudgets(cmd *cobra.Command, c *client.Client) error {
	index, err := c.Index(cmd.Context())
	if err != nil {
		return err
	}
	for _, name := range index.Quotas {
		s, err := c.Snapshot(cmd.Context(), name)
		if err != nil {
			return err
		}
		if s.Fleet != nil {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "budget %s: %s", name, sharedBudget(s.Fleet))
		}
	}
	return nil
}

// sharedBudget says where a budget that several processes share is held.
func sharedBudget(f *quota.FleetStatus) string {
	switch {
	case f == nil:
		return ""
	case f.New:
		return fmt.Sprintf("at %s, which has not answered yet: calls wait\n", f.Server)
	case !f.Away && f.Evicts:
		return fmt.Sprintf("at %s, shared by %s; it may lose what they used: set maxmemory-policy noeviction\n", f.Server, plural(int64(f.Members), "process", "processes"))
	case !f.Away && f.Members == 1:
		return fmt.Sprintf("at %s, shared with no other process now\n", f.Server)
	case !f.Away && f.Silent > 0:
		return fmt.Sprintf("at %s, shared by %d processes, %d of them silent\n", f.Server, f.Members, f.Silent)
	case !f.Away:
		return fmt.Sprintf("at %s, shared by %d processes\n", f.Server, f.Members)
	case f.Without == "wait":
		return fmt.Sprintf("at %s, which is away: calls wait\n", f.Server)
	}
	return fmt.Sprintf("at %s, which is away: calls go on at the share of one in %d for up to a minute\n", f.Server, f.Members)
}
