package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/forward"
)

// forwarding is the daemon's forward proxy. The methods of nil do nothing.
type forwarding struct {
	*forward.Service
	log     *slog.Logger
	state   string // folder of what was learned
	env     string // file with the variables for programs
	serving sync.WaitGroup
	saved   int64 // attempts when it was last saved; guarded by the daemon's lock
}

// openForward opens the configured forward proxy, and writes the file with the variables for
// programs.
func (d *Daemon) openForward(ctx context.Context) (err error) {
	c := d.config.Forward
	if c == nil {
		return nil
	}
	at := c.Authority
	if at == "" {
		if at, err = forward.UserFolder(os.Getenv); err != nil {
			return fmt.Errorf("daemon: forward: %w; name a folder with authority", err)
		}
	}
	state, err := filepath.Abs(d.config.State)
	if err != nil {
		return fmt.Errorf("daemon: forward: %w", err)
	}
	f := &forwarding{log: d.log, state: state, env: envFile(d.config)}
	s := forward.Setup{
		Options: forward.Options{
			Hosts: forward.Patterns(c.Rules), All: c.All, PassThrough: c.PassThrough, Profile: forward.Profiles(c.Rules, d.o.Profiles...),
			MaxWait: c.MaxWait, MaxOutage: c.MaxOutage, Resend: c.Resend, Ceiling: c.Ceiling, OnEvent: d.onForwarded,
			OnDistrust: d.onDistrust,
		},
		Authority: at, Address: c.Listen, Files: filepath.Join(state, "forward"), Getenv: os.Getenv,
	}
	if err := makeFolder(s.Files); err != nil {
		return err
	}
	if s.Learned, err = forward.Load(state); err != nil {
		d.log.Warn("forward", slog.Any("error", err))
	}
	switch {
	case d.folder != nil:
		s.Fleet = d.folder
	case d.members != nil:
		s.Fleet = d.members
	}
	if f.Service, err = forward.Open(ctx, s); err != nil {
		if errors.Is(err, forward.ErrListen) {
			err = errors.Join(ErrListen, err)
		}
		return fmt.Errorf("daemon: forward: %w", err)
	}
	d.forward = f
	f.serving.Go(func() {
		if err := <-f.Ended; err != nil {
			f.log.Error("the forward proxy has ended", slog.Any("error", err))
		}
	})
	if err := atomicfile.WriteUnsynced(disk.OS{}, f.env, f.At.Script(os.Getenv)); err != nil {
		return fmt.Errorf("daemon: forward: env_file: %w", err)
	}
	d.log.Info("forwarding", slog.String("listen", f.At.Address), slog.String("variables", f.env), slog.Bool("all", c.All), slog.Int("hosts", len(c.Rules)))
	return nil
}

// onForwarded publishes the pacing events of the forward proxy.
func (d *Daemon) onForwarded(e event.Event) {
	e.Connection = forwardName(e.Connection)
	d.hub.Connection(e)
	if e.Type == event.Fleet {
		event.Log(d.log)(e)
	}
}

// onDistrust logs the first rejection of the certificate for a host.
func (d *Daemon) onDistrust(host string) {
	what := "its connections to the host fail; let them pass with forward.pass_through"
	if d.config.Forward.PassThrough {
		what = "connections to the host are no longer governed"
	}
	d.log.Warn("a program rejects the certificate of the forward proxy", slog.String("host", host), slog.String("effect", what))
}

// forwardName returns the name of a connection of the forward proxy among those of the daemon.
func forwardName(name string) string { return "forward/" + name }

// envFile returns the file with the variables for programs.
func envFile(c config.Config) string {
	return cmp.Or(c.Forward.EnvFile, filepath.Join(c.State, "proxy.env"))
}

// drain waits for requests under way.
func (f *forwarding) drain(ctx context.Context) {
	if f == nil {
		return
	}
	if f.Drain(ctx) != nil {
		f.log.Warn("requests of the forward proxy were cut at the end of the drain time")
	}
}

// save stores what was learned since the last time. The caller holds the daemon's lock.
func (f *forwarding) save(ctx context.Context) error {
	if f == nil {
		return nil
	}
	var n int64
	for _, c := range f.Summary().Connections {
		n += c.Attempts
	}
	if n == f.saved {
		return nil
	}
	if err := forward.Save(ctx, f.state, f.Learned()); err != nil {
		return fmt.Errorf("daemon: what the forward proxy has learned: %w", err)
	}
	f.saved = n
	return nil
}

// close ends the proxy and its memberships, stores what was learned and removes the variables.
func (f *forwarding) close() error {
	if f == nil {
		return nil
	}
	err := f.save(context.Background())
	s, cut := f.Summary(), f.Close()
	f.serving.Wait()
	f.log.Info("the forward proxy has ended", slog.Int64("requests", s.Requests()), slog.Int("cut", cut), slog.Int("hosts_passed_through", len(s.Tunneled)),
		slog.Int("hosts_distrusted", len(s.Distrusted)), slog.Int64("not_http", s.NotHTTP), slog.Int64("refused_callers", s.Unauthenticated))
	if gone := os.Remove(f.env); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// rates returns the live rates of the proxy's connections, each under the name of its provider
// after "forward/". Further credentials of a provider have a number.
func (f *forwarding) rates() (all []api.Live) {
	if f == nil {
		return nil
	}
	seen := map[string]int{}
	for _, c := range f.Summary().Connections {
		one := api.Live{Source: api.Forward, Snapshot: c.Now, Throttled: c.Throttled}
		one.Connection = forwardName(c.Name)
		if seen[c.Name]++; seen[c.Name] > 1 {
			one.Connection += "/" + strconv.Itoa(seen[c.Name])
		}
		all = append(all, one)
	}
	return all
}

// forwardText describes a forward proxy, for comparison.
func forwardText(f *config.Forward) string {
	if f == nil {
		return "off"
	}
	return fmt.Sprintf("%+v", *f)
}
