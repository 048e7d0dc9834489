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

	"github.com/headway-go/headway/fleet"
)

// openFleet lets other processes of the machine share the pace of what they collect, by a
// socket in the state's folder, which is this daemon's alone. Where there can be none, as
// in a folder with a very long name, the rest works all the same.
func (d *Daemon) openFleet(ctx context.Context) error {
	d.fleet = fleet.NewServer()
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
