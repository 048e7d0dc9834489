package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
)

// openFleet shares the pace of proxied and collected connections with other processes:
// through the configured server, or with processes of this machine through a socket in the
// state folder. Where the socket cannot be made, as in a folder with a very long name, it
// logs that and the daemon runs without it.
func (d *Daemon) openFleet(ctx context.Context) (err error) {
	switch at := d.config.Fleet.Reveal(); at {
	case "":
	case "none":
		return nil
	default:
		if d.members, err = fleet.Open(ctx, at); err != nil {
			return fmt.Errorf("daemon: %w", err)
		}
		return nil
	}
	d.fleet = fleet.NewServer()
	d.members = d.fleet.Fleet()
	path := filepath.Join(d.config.State, fleet.Socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a daemon that was killed
		return fmt.Errorf("daemon: %w", err)
	}
	l, err := d.socketFunc(ctx, path)
	if err != nil {
		d.log.Warn("other processes cannot share the pace: there is no socket", slog.Any("error", err))
		return nil
	}
	d.sharing.Go(func() { d.fleet.Serve(l) })
	d.socket = l
	return nil
}

// memberships returns a function that gives the fleet membership of a key of the provider.
// Credentials are the same when host and secret are, also between proxy and collections.
func (d *Daemon) memberships(p config.Provider) func(key string) headway.Fleet {
	if p.Pacing == nil || p.Fleet == config.FleetNone || d.members == nil || d.fleet != nil && p.PassThrough {
		return nil // the clients bring their own credentials
	}
	host := p.Description.Upstream.Host
	return func(key string) headway.Fleet {
		secret := secretOf(p, key)
		switch {
		case d.fleet != nil:
			return d.fleet.Local(host, secret)
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

// listenSocket listens on a socket that only the owner of this process can use.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// closeFleet closes the fleet server. Members continue at their current shares.
func (d *Daemon) closeFleet() (err error) {
	if d.socket != nil {
		err = d.socket.Close() // also removes the file
		d.socket = nil
	}
	if d.fleet != nil {
		d.fleet.Close()
	}
	d.sharing.Wait()
	return err
}

// shared returns the credentials that processes share through this daemon.
func (d *Daemon) shared() []fleet.Credential {
	if d.fleet == nil {
		return nil
	}
	return d.fleet.Show()
}
