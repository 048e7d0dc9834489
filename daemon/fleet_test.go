package daemon_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/fleet"
)

// A daemon lets others share its pace by a socket that is its owner's, also where one that
// was killed left its own, and takes it away at its end.
func TestSocketOfTheFleet(t *testing.T) {
	dir, err := os.MkdirTemp("", "fleet") //nolint:usetesting // A socket's name must be short.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, fleet.Socket)
	killed, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Open(t.Context(), "unix://"+path); !errors.Is(err, fleet.ErrAway) {
		t.Errorf("what a killed daemon left: %v", err)
	}
	c, err := config.Read("headway.yaml", []byte("listen: 127.0.0.1:0\nstate: "+dir+"\nquota: {global: {max_daily_calls: 1}}\n"), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(c, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", i, err)
	}
	f, err := fleet.Open(t.Context(), "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	g, err := headway.New(headway.Config{Fleet: f.Member("api.example.com", "key"), NoBreaker: true})
	if err != nil {
		t.Fatal(err)
	}
	p, err := g.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Settle(headway.Outcome{Class: headway.OK})
	g.Close()
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
