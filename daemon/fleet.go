package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
)

// openFleet shares the pace of proxied and collected connections with other processes:
// through the configured server, or with processes of this machine through the state folder.
// Where no socket can be made there, as in a folder with a very long name, it logs that and
// the daemon runs without it.
func (d *Daemon) openFleet(ctx context.Context) (err error) {
	switch at := d.config.Fleet.Reveal(); at {
	case "":
	case "none":
		return nil
	default:
		d.members, err = fleet.Open(ctx, at)
		switch {
		case err == nil:
		case errors.Is(err, fleet.ErrAway) && !errors.Is(err, fleet.ErrRefused):
			d.log.Warn("the fleet's server is away; nothing is sent that is shared, until it has been reached: this process does not know its share", slog.Any("error", err))
		default:
			return fmt.Errorf("daemon: %w", err)
		}
		return nil
	}
	d.folder = fleet.NewFolder(d.config.State)
	if d.socketFunc != nil {
		d.folder.Listen = d.socketFunc
	}
	if err := d.folder.Open(ctx); err != nil {
		d.log.Warn("other processes cannot share the pace", slog.Any("error", err))
	}
	d.members = d.folder.Fleet()
	return nil
}

// memberships returns a function that gives the fleet membership of a key of the provider.
// Credentials are the same when host and secret are, also between proxy and collections.
func (d *Daemon) memberships(p config.Provider) func(key string) headway.Fleet {
	if p.Pacing == nil || p.Fleet == config.FleetNone || d.members == nil || d.folder != nil && p.PassThrough {
		return nil // the clients bring their own credentials
	}
	host := p.Description.Upstream.Host
	return func(key string) headway.Fleet {
		secret := secretOf(p, key)
		switch {
		case d.folder != nil:
			return d.folder.Member(host, secret)
		case p.Fleet == config.FleetWait:
			return d.members.FailClosed().Member(host, secret)
		}
		return d.members.Member(host, secret)
	}
}

// sharing says how a budget is shared with other daemons; the zero value is not at all.
type sharing struct {
	group string
	quota.FleetOptions
}

// sharingOf returns how the budget of a provider, or of the daemon, is shared: members of a fleet
// on a Valkey share it if name and host are the same.
func (d *Daemon) sharingOf(name, host string, s *quotafile.Settings, mode config.FleetMode) (sharing, error) {
	said := config.FleetMode(s.Fleet)
	mode = cmp.Or(said, mode, config.FleetShare)
	if mode == config.FleetNone || d.members == nil && said == "" {
		return sharing{}, nil
	}
	if d.members == nil || !d.members.Budgets() {
		if said == "" {
			return sharing{}, nil
		}
		return sharing{}, fmt.Errorf("daemon: the budget of %s: fleet is %s; want it left out, or fleet: valkey://HOST:PORT for the daemon: budgets are shared in no other way", name, said)
	}
	return sharing{fmt.Sprintf("%d %s %s", len(name), name, host), quota.FleetOptions{Ahead: s.Ahead, Wait: mode == config.FleetWait}}, nil
}

// secretOf returns the secret of a provider's key.
func secretOf(p config.Provider, key string) string {
	for _, k := range p.Keys {
		if k.Name == key {
			return k.Key.Reveal()
		}
	}
	return p.Key.Reveal()
}

// closeFleet ends the fleet's server if this daemon runs it. Members in other processes
// continue, and one of them takes over.
func (d *Daemon) closeFleet() error {
	if d.folder == nil {
		return nil
	}
	return d.folder.Close()
}

// showTime bounds a question to the process that runs the fleet's server.
const showTime = time.Second

// shared returns the credentials that processes share through the state folder; nil where that
// is not known.
func (d *Daemon) shared() []fleet.Credential {
	if d.folder == nil {
		return nil
	}
	ctx, done := context.WithTimeout(context.Background(), showTime)
	defer done()
	all, _ := d.folder.Show(ctx)
	return all
}
