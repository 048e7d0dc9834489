package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	root "github.com/headway-go/headway"
	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/figure"
)

// alone is what --fleet says where no fleet is wanted.
const alone = "none"

// fleetForms are the addresses of a fleet's server.
const fleetForms = "unix:///PATH/" + fleet.Socket + " of a headway serve, valkey://HOST:PORT of a Valkey or Redis"

func fleetFlag(cmd *cobra.Command) {
	cmd.Flags().String("fleet", "", "share the pace with other processes on the same credential, by the server at this `URL`, over the file's: "+
		fleetForms+", or "+alone+" (default: the one in the state's folder, where there is one)")
}

// socketPath is where a headway serve with the same state has its socket. The state may also
// be named by its folder, as that command has it.
func socketPath(cmd *cobra.Command) string {
	path := statePath(cmd)
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		path = filepath.Dir(path)
	}
	return filepath.Join(path, fleet.Socket)
}

// fleetOf is the fleet that the flag or else the file names, or that of a headway serve in the state's
// folder; nil means none.
func fleetOf(cmd *cobra.Command, file configfile.Secret) (*fleet.Fleet, error) {
	return fleetAmong(cmd, file, socketPath(cmd))
}

// fleetAmong is the fleet that the flag or else the file names, or that of the first of some
// sockets at which a server is; nil means none.
func fleetAmong(cmd *cobra.Command, file configfile.Secret, sockets ...string) (*fleet.Fleet, error) {
	address, err := cmd.Flags().GetString("fleet")
	if err != nil {
		return nil, err
	}
	address = cmp.Or(address, file.Reveal())
	switch address {
	case alone:
		return nil, nil
	case "":
		for _, path := range sockets {
			if _, err := os.Stat(path); err != nil {
				continue // nobody serves here
			}
			f, err := fleet.Open(cmd.Context(), "unix://"+path)
			if errors.Is(err, fleet.ErrAway) {
				continue // what a killed one left
			}
			return f, err
		}
		return nil, nil
	}
	f, err := fleet.Open(cmd.Context(), address)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, fleet.ErrAway):
		mend := "start headway serve there, or leave --fleet out"
		if !strings.HasPrefix(address, "unix:") {
			mend = "see that it is reachable from here, and the user and password, or leave --fleet out"
		}
		return nil, &exitError{code: exitRefused, err: fmt.Errorf("--fleet: %w; %s", err, mend)}
	}
	return nil, usage(fmt.Errorf("--fleet: %w", err))
}

// bulkFleet has the batches of a load wait for their turn in the fleet that the flag or the
// target's file names; nil means none.
func bulkFleet(cmd *cobra.Command, c *target.Config) (func(identity string) (*root.Governor, error), error) {
	if at, err := cmd.Flags().GetString("fleet"); err != nil || cmp.Or(at, c.Fleet.Reveal()) == "" {
		return nil, err
	}
	f, err := fleetOf(cmd, c.Fleet)
	if err != nil || f == nil {
		return nil, err
	}
	return func(identity string) (*root.Governor, error) {
		host, secret := c.Account(identity)
		return root.New(root.Config{
			Name: c.Name, Fleet: f.Member(host, secret), Passive: true, NoBreaker: true, JitterMax: -1,
			MaxWait: 366 * 24 * time.Hour, PermitTimeout: c.Timeout + time.Minute, // the load bounds its waits itself
		})
	}, nil
}

// inFleet is a connection's membership, for a line of text.
func inFleet(f *root.FleetStatus) string {
	switch {
	case f != nil && f.Away && f.New:
		return ", the fleet's server has not been reached yet: nothing is sent"
	case f == nil || f.Members == 0:
		return ""
	case f.Away:
		return fmt.Sprintf(", the fleet's server is away: 1 of %d members goes on at its share, or waits", f.Members)
	}
	text := ", shared by " + counted(int64(f.Members), "member")
	if f.New {
		text += "; this one has no share yet"
	}
	return text
}

// newFleet shows the members that share credentials.
func newFleet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Show which processes share a credential, and their shares",
		Long: `Shows the processes that share the pace on a credential through a headway serve: by
its socket in the state's folder, by the socket that --fleet names, or with --server by
its API. Each credential has a heading with the rate of all its members together; the
credential itself is not known here. A member that is away sends nothing: its share is
kept for a minute, since it may continue by itself.

Exit codes: 0 shown; 64 bad usage; 69 no server is there.`,
		Example: `  headway fleet
  headway fleet --fleet unix:///var/lib/headway/headway.sock --json
  headway fleet --server http://127.0.0.1:8700`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := credentials(cmd)
			if err != nil {
				return err
			}
			var table sheet
			for i, c := range all {
				table.line("credential %d: %s\t\t\t", i+1, figure.Rate(60000/max(c.IntervalMS, 1e-3)))
				for _, m := range c.Members {
					state := "heard " + clock(time.Duration(m.HeardMS)*time.Millisecond) + " ago"
					if m.Away {
						state = "away, " + state
					}
					table.line("  %s\t%.0f %%\t%s waiting\t%s", m.Name, 100*m.Share, figure.Count(int64(m.Waiting)), state)
				}
			}
			if len(all) == 0 {
				table.line("no process shares a credential here")
			}
			return present(cmd, orEmpty(all), table.String())
		},
	}
	fileFlag(cmd)
	serverFlag(cmd)
	cmd.Flags().String("fleet", "", "`URL` of the socket to ask: unix:///PATH/"+fleet.Socket+" (default: the one in the state's folder)")
	return jsonFlag(cmd)
}

// credentials asks a daemon for the shared credentials, by its API or its socket.
func credentials(cmd *cobra.Command) ([]fleet.Credential, error) {
	address, err := cmd.Flags().GetString("fleet")
	if err != nil {
		return nil, err
	}
	if address == "" {
		c, err := remote(cmd)
		if err != nil {
			return nil, err
		}
		if c != nil {
			all, err := c.Fleet(cmd.Context())
			return all, answered(cmd, err)
		}
		address = "unix://" + socketPath(cmd)
	}
	f, err := fleet.Open(cmd.Context(), address)
	var all []fleet.Credential
	if err == nil {
		all, err = f.Show(cmd.Context())
	}
	switch {
	case errors.Is(err, fleet.ErrAway):
		return nil, &exitError{code: exitRefused, err: fmt.Errorf("%w; start headway serve there", err)}
	case err != nil:
		return nil, usage(err)
	}
	return all, nil
}
