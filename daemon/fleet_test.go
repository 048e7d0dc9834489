package daemon_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/daemon/client"
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
	g, err := headway.New(headway.Config{Name: "crawler", Fleet: f.Member("api.example.com", "key"), NoBreaker: true})
	if err != nil {
		t.Fatal(err)
	}
	p, err := g.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Settle(headway.Outcome{Class: headway.OK})
	all, err := f.Show(t.Context())
	if err != nil || len(all) != 1 || len(all[0].Members) != 1 || all[0].Members[0].Name != "crawler" || all[0].Members[0].Share != 1 || all[0].Members[0].Away {
		t.Errorf("the socket shows %+v, %v", all, err)
	}
	by, err := client.New(client.Options{Server: "http://" + d.Address().String()})
	if err != nil {
		t.Fatal(err)
	}
	if all, err = by.Fleet(t.Context()); err != nil || len(all) != 1 || len(all[0].Members) != 1 {
		t.Errorf("the API shows %+v, %v", all, err)
	}
	resp, err := http.Get("http://" + d.Address().String() + "/metrics") //nolint:noctx // It is on loopback.
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if !strings.Contains(string(text), `headway_fleet_members{away="false"} 1`) || errors.Join(err, resp.Body.Close()) != nil {
		t.Errorf("no member in the metrics: %v", err)
	}
	g.Close()
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
