package daemon

import (
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
)

// openFleet lets what is proxied and collected share its pace with other processes: by the
// server that the configuration names, or with those of this machine by a socket in the
// state's folder, which is this daemon's alone. Where there can be no socket, as in a folder
// with a very long name, the rest works all the same.
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
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // one that was killed left it
		return fmt.Errorf("daemon: %w", err)
	}
	l, err := d.meets(ctx, path)
	if err != nil {
		d.log.Warn("other processes cannot share the pace: there is no socket", slog.Any("error", err))
		return nil
	}
	d.sharing.Go(func() { d.fleet.Serve(l) })
	d.socket = l
	return nil
}

// joins gives the memberships of a provider's governors, by the names of its keys. A
// credential is the same where the host and the secret are, as with what is collected.
func (d *Daemon) joins(p config.Provider) func(key string) headway.Fleet {
	if p.Pacing == nil || p.Fleet == config.FleetNone || d.members == nil || d.fleet != nil && p.PassThrough {
		return nil // whose credential it is only its clients know
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

// secretOf is the credential of a provider's key.
func secretOf(p config.Provider, key string) string {
	for _, k := range p.Keys {
		if k.Name == key {
			return k.Key.Reveal()
		}
	}
	return p.Key.Reveal()
}

// meet opens a socket for the owner of this process only.
func meet(ctx context.Context, path string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// closeFleet ends it; members go on at their shares.
func (d *Daemon) closeFleet() (err error) {
	if d.socket != nil {
		err = d.socket.Close() // which removes it
		d.socket = nil
	}
	if d.fleet != nil {
		d.fleet.Close()
	}
	d.sharing.Wait()
	return err
}

// shared are the credentials that processes share through this one.
func (d *Daemon) shared() []fleet.Credential {
	if d.fleet == nil {
		return nil
	}
	return d.fleet.Show()
}
