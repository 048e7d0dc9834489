package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/store/sqlite"
)

// collecting is what the daemon collects by itself.
type collecting struct {
	scheduler *schedule.Scheduler
	store     *sqlite.Store
}

// timetable is the configuration in the scheduler's words.
func timetable(c *config.Collections) schedule.Config {
	return schedule.Config{Dir: c.Dir, Timetable: c.Schedule, Running: c.Running, Lookup: os.LookupEnv}
}

// stateFile is where the state of all connections is kept.
func stateFile(c config.Config) string { return filepath.Join(c.State, "state.db") }

// checkCollections reads the connection files without running any.
func checkCollections(c config.Config) error {
	if c.Collections == nil {
		return nil
	}
	return schedule.Check(timetable(c.Collections), stateFile(c))
}

// collect makes what runs follow the configuration, with the lock held. The
// files have been checked.
func (d *Daemon) collect(ctx context.Context, c config.Config) error {
	at := d.collecting.Load()
	switch {
	case c.Collections == nil:
		if at == nil {
			return nil
		}
		d.collecting.Store(nil)
		ctx, done := context.WithTimeout(ctx, c.Drain)
		defer done()
		return at.stop(ctx)
	case at == nil:
		path := stateFile(c)
		store, err := sqlite.Open(ctx, path)
		if err != nil {
			return err
		}
		s, err := schedule.New(timetable(c.Collections), schedule.Deps{Store: store, State: path, OnEvent: d.hear, Log: d.log})
		if err != nil {
			return errors.Join(err, store.Close())
		}
		at = &collecting{s, store}
		d.collecting.Store(at)
	}
	if err := at.scheduler.Load(timetable(c.Collections)); err != nil {
		return fmt.Errorf("daemon: collections: %w", err)
	}
	return nil
}

// stop ends the runs, and lets go of the state.
func (c *collecting) stop(ctx context.Context) error {
	c.scheduler.Stop(ctx)
	return c.store.Close()
}

// stopCollecting is for the end of the daemon.
func (d *Daemon) stopCollecting(ctx context.Context) error {
	at := d.collecting.Swap(nil)
	if at == nil {
		return nil
	}
	return at.stop(ctx)
}

// scheduled is where each collection stands.
func (d *Daemon) scheduled() []schedule.Status {
	at := d.collecting.Load()
	if at == nil {
		return nil
	}
	return at.scheduler.Status()
}

// collected are the live rates of the runs under way.
func (d *Daemon) collected() (all []api.Live) {
	at := d.collecting.Load()
	if at == nil {
		return nil
	}
	for _, run := range at.scheduler.Live() {
		all = append(all, api.Live{Source: api.Collect, Snapshot: run.Pacing})
	}
	return all
}

// startTime bounds how long the first connection to the state may take at a reload.
const startTime = 30 * time.Second

// bounded is a listener that lets no more connections in than it has places:
// others wait in the system's queue until one ends.
type bounded struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func bound(l net.Listener, limit int) net.Listener {
	return &bounded{Listener: l, places: make(chan struct{}, limit), closed: make(chan struct{})}
}

// Accept waits for a place first.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.places <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.places
		return nil, err
	}
	return &placed{Conn: c, leave: sync.OnceFunc(func() { <-b.places })}, nil
}

// Close also ends a wait for a place.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// placed is a connection that gives its place back when it is closed.
type placed struct {
	net.Conn
	leave func()
}

func (p *placed) Close() error {
	err := p.Conn.Close()
	p.leave()
	return err
}
