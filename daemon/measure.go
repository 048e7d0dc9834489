package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/metrics"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/internal/telemetry"
	"github.com/headway-go/headway/store/postgres"
	"github.com/headway-go/headway/store/sqlite"
)

// gatherTime bounds reading the store for one scrape.
const gatherTime = 5 * time.Second

// measure returns the daemon's metrics.
func (d *Daemon) measure() *metrics.Metrics {
	return metrics.New(metrics.Options{
		Version:   d.o.Version,
		Providers: func() []egress.ProviderStatus { return d.proxy.Status() },
		Quotas: func() map[string]metrics.Quota {
			all := map[string]metrics.Quota{}
			for name, q := range d.live.Load().quotas {
				all[name] = q
			}
			return all
		},
		Connections: func() (all []headway.Snapshot) {
			for _, one := range d.rates() {
				all = append(all, one.Snapshot)
			}
			return all
		},
		Collections: func() ([]collect.ConnectionStatus, error) {
			ctx, done := context.WithTimeout(context.Background(), gatherTime)
			defer done()
			return d.archive.Connections(ctx)
		},
		Fleet: d.shared,
		Log:   d.log,
	})
}

// report starts sending telemetry, if an endpoint is configured.
func (d *Daemon) report(ctx context.Context) (err error) {
	c := d.config.Telemetry
	if c == nil {
		return nil
	}
	headers := make(map[string]string, len(c.Headers))
	for name, secret := range c.Headers {
		headers[name] = secret.Reveal()
	}
	sample := c.Sample
	if sample == 0 {
		sample = -1 // none; there, 0 is the default
	}
	d.telemetry, err = telemetry.Start(ctx, telemetry.Config{
		Endpoint: c.Endpoint, Headers: headers, Interval: c.Interval, Sample: sample, Version: d.o.Version,
	}, d.metrics.Gatherer())
	return err
}

// startHooks begins to send events to the webhooks.
func (d *Daemon) startHooks() {
	ctx, end := context.WithCancel(context.Background())
	d.endHooks = end
	for i, w := range d.config.Webhooks {
		drop := func(n uint64) { d.metrics.HookDropped(i, n) }
		drop(0)
		hook := events.Webhook{URL: w.URL, Secret: w.Secret.Reveal(), Types: w.Types, OnDrop: drop, Log: d.log}
		from := d.hub.Read("")
		d.hooks.Go(func() { hook.Run(ctx, from) })
	}
}

// stopHooks gives webhooks a moment to send what is left, after the hub was closed.
func (d *Daemon) stopHooks() {
	if d.endHooks == nil {
		return
	}
	late := time.AfterFunc(flushTime, d.endHooks)
	d.hooks.Wait()
	late.Stop()
	d.endHooks()
}

// flushTime bounds sending the last telemetry at the stop.
const flushTime = 5 * time.Second

// unreport sends the remaining telemetry and stops.
func (d *Daemon) unreport() {
	if d.telemetry == nil {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), flushTime)
	defer done()
	if err := d.telemetry.Stop(ctx); err != nil {
		d.log.Warn("some telemetry was not sent before the end")
	}
}

// recordCall counts, logs and traces a call at its end.
func (d *Daemon) recordCall(c egress.CallLog) {
	// Names from clients may be invalid UTF-8, which labels and spans do not take.
	for _, word := range [...]*string{&c.Model, &c.Budget, &c.Tenant, &c.Agent} {
		*word = strings.ToValidUTF8(*word, "\uFFFD")
	}
	d.metrics.Call(c)
	if d.telemetry != nil {
		d.telemetry.Call(c)
	}
	one := calls.Of(&c)
	d.bill(&one)
	d.recent.Add(one)
	d.usage.Add(&one)
	if err := writeAccess(d.access.Load, one); err != nil {
		d.unlogged.Do(func() { d.log.Error("calls are missing in the access log", slog.Any("error", err)) })
	}
	if d.o.OnCall != nil {
		d.o.OnCall(c)
	}
}

// bill adds what a call costs by the owner's prices, where those are known.
func (d *Daemon) bill(c *calls.Call) {
	v := d.live.Load()
	if v == nil {
		return
	}
	for i := range v.config.Providers {
		if p := &v.config.Providers[i]; p.Name == c.Provider {
			if price, ok := p.Prices.Of(c.Model); ok {
				c.Bill(v.config.Currency, price)
			}
			return
		}
	}
}

// collecting runs the configured collections.
type collecting struct {
	scheduler *schedule.Scheduler
	store     store
}

// store keeps the state of collections.
type store interface {
	collect.Store
	io.Closer
}

// openStore opens the state for writing by runs.
func openStore(ctx context.Context, c config.Config) (store, error) {
	if at := c.Store.Reveal(); at != "" {
		return postgres.Open(ctx, at)
	}
	return sqlite.Open(ctx, stateFile(c))
}

// openReader opens the state for reading.
func openReader(ctx context.Context, c config.Config) (collect.ClosingReader, error) {
	if at := c.Store.Reveal(); at != "" {
		return postgres.OpenReader(ctx, at)
	}
	return sqlite.OpenReader(ctx, stateFile(c))
}

// actOnGaps changes gaps in the store of the collections, or in the one that other processes
// collect into.
func (d *Daemon) actOnGaps(ctx context.Context, a collect.GapAction, f collect.GapFilter, ids []int64) (int64, error) {
	if at := d.collecting.Load(); at != nil {
		return at.store.Act(ctx, a, f, ids)
	}
	s, err := openStore(ctx, d.live.Load().config)
	if err != nil {
		return 0, err
	}
	n, err := s.Act(ctx, a, f, ids)
	return n, errors.Join(err, s.Close())
}

// timetable converts the configuration to the scheduler's.
func timetable(of config.Config) schedule.Config {
	c := of.Collections
	return schedule.Config{Dir: c.Dir, Timetable: c.Schedule, Running: c.Running, Database: of.Store.Reveal(), Lookup: os.LookupEnv}
}

// stateFile returns the path of the state of all connections.
func stateFile(c config.Config) string { return filepath.Join(c.State, "state.db") }

// checkCollections reads the connection files without running any.
func checkCollections(c config.Config) error {
	if c.Collections == nil {
		return nil
	}
	return schedule.Check(timetable(c), stateFile(c))
}

// collect starts, changes or stops the collections as configured. The caller holds the lock
// and has checked the connection files.
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
		store, err := openStore(ctx, c)
		if err != nil {
			return err
		}
		s, err := schedule.New(timetable(c), schedule.Deps{Store: store, State: path, Fleet: d.members, OnEvent: d.onConnectionEvent, Log: d.log})
		if err != nil {
			return errors.Join(err, store.Close())
		}
		at = &collecting{s, store}
		d.collecting.Store(at)
	}
	if err := at.scheduler.Load(timetable(c)); err != nil {
		return fmt.Errorf("daemon: collections: %w", err)
	}
	return nil
}

// stop ends the runs and closes the state.
func (c *collecting) stop(ctx context.Context) error {
	c.scheduler.Stop(ctx)
	return c.store.Close()
}

// stopCollecting stops the collections when the daemon stops.
func (d *Daemon) stopCollecting(ctx context.Context) error {
	at := d.collecting.Swap(nil)
	if at == nil {
		return nil
	}
	return at.stop(ctx)
}

// scheduled returns the status of each collection.
func (d *Daemon) scheduled() []schedule.Status {
	at := d.collecting.Load()
	if at == nil {
		return nil
	}
	return at.scheduler.Status()
}

// collected returns the live rates of the runs under way.
func (d *Daemon) collected() (all []api.Live) {
	at := d.collecting.Load()
	if at == nil {
		return nil
	}
	for _, run := range at.scheduler.Live() {
		all = append(all, api.Live{Source: api.Collect, Snapshot: run.Pacing, Throttled: run.Progress.Throttled, Run: run.Run})
	}
	return all
}

// startTime bounds how long the first connection to the state may take at a reload.
const startTime = 30 * time.Second

// bounded is a listener that limits the number of open connections. Further ones wait in
// the system's queue until one is closed.
type bounded struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func bound(l net.Listener, limit int) net.Listener {
	return &bounded{Listener: l, places: make(chan struct{}, limit), closed: make(chan struct{})}
}

// Accept waits until there are fewer connections than the limit.
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
	return &countedConn{Conn: c, leave: sync.OnceFunc(func() { <-b.places })}, nil
}

// Close also ends a waiting Accept.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// countedConn is a connection that counts against the limit until it is closed.
type countedConn struct {
	net.Conn
	leave func()
}

func (p *countedConn) Close() error {
	err := p.Conn.Close()
	p.leave()
	return err
}

// openAccess opens the configured access log. A file that was moved away, as by logrotate,
// is made again.
func (d *Daemon) openAccess(c config.Config) error {
	var next *calls.Log
	if c.Log.Access != "" {
		var err error
		if next, err = calls.OpenLog(c.Log.Access, c.Log.JSON); err != nil {
			return fmt.Errorf("daemon: log.access: %w", err)
		}
	}
	return d.access.Swap(next).Close()
}

// writeAccess adds a line to the current access log, if there is one. A reload may close the
// log between the two: then the line goes to the next one.
func writeAccess(current func() *calls.Log, c calls.Call) error {
	for l := current(); l != nil; {
		err := l.Write(c)
		next := current()
		if next == l || !errors.Is(err, os.ErrClosed) {
			return err
		}
		l = next
	}
	return nil
}

// storeUsage stores the usage of calls. It logs the first of a row of failures. What the end of
// ctx interrupts is stored at the stop.
func (d *Daemon) storeUsage(ctx context.Context) {
	switch err := d.usage.Flush(ctx); {
	case ctx.Err() != nil:
	case err != nil && !d.unstored.Swap(true):
		d.log.Error("the usage of calls was not stored; storing is retried", slog.Any("error", err))
	case err == nil && d.unstored.Swap(false):
		d.log.Info("the usage of calls is stored again")
	}
}

// Rates are sampled every lookEvery, and the samples are stored every storeEvery and at the
// stop. A daemon that is killed loses at most storeEvery of its charts.
const (
	lookEvery  = 2 * time.Second
	storeEvery = 5 * time.Minute
)

// sampler samples the rates of connections for charts.
type sampler struct {
	book *samples.Book
	end  context.CancelFunc
	done sync.WaitGroup
}

// readSamples reads the stored samples. Without a file it returns an empty book. A damaged
// file is renamed and logged, since only charts need it.
func readSamples(path string, log *slog.Logger) (*samples.Book, error) {
	data, err := atomicfile.Read(path, samples.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return &samples.Book{}, nil
	}
	if err == nil {
		var b *samples.Book
		if b, err = samples.Decode(data); err == nil {
			return b, nil
		}
	}
	aside := path + ".unread"
	if moved := os.Rename(path, aside); moved != nil {
		return nil, fmt.Errorf("daemon: the samples: %s: %w; and it could not be moved aside: %w", path, err, moved)
	}
	log.Warn("the samples of charts could not be read and were moved aside; the charts start empty", slog.String("file", aside), slog.Any("error", err))
	return &samples.Book{}, nil
}

func (d *Daemon) samplesPath() string { return filepath.Join(d.config.State, samples.FileName) }

// keepLooking starts the sampler.
func (d *Daemon) keepLooking() *sampler {
	ctx, end := context.WithCancel(context.Background())
	s := &sampler{book: d.samples.Load(), end: end}
	path := d.samplesPath()
	s.done.Go(func() {
		look, store := time.NewTicker(lookEvery), time.NewTicker(storeEvery)
		defer look.Stop()
		defer store.Stop()
		for {
			select {
			case <-ctx.Done():
				s.book.Add(time.Now(), looks(d.rates()))
				d.storeSamples(path, s.book)
				return
			case <-look.C:
				s.book.Add(time.Now(), looks(d.rates()))
				d.storeUsage(ctx)
			case <-store.C:
				d.storeSamples(path, s.book)
			}
		}
	})
	return s
}

// stop takes a last sample and stores the book.
func (s *sampler) stop() {
	if s != nil {
		s.end()
		s.done.Wait()
	}
}

// storeSamples writes the file. A failure is logged, and the next write is a new try.
func (d *Daemon) storeSamples(path string, b *samples.Book) {
	data, err := b.Encode(time.Now())
	if err == nil {
		err = atomicfile.Write(disk.OS{}, path, data)
	}
	if err != nil {
		d.log.Warn("the samples of charts were not stored", slog.Any("error", err))
	}
}

// looks converts live rates to samples.
func looks(all []api.Live) []samples.Look {
	list := make([]samples.Look, len(all))
	for i, l := range all {
		list[i] = samples.Look{Connection: l.Connection, Refused: l.Throttled, Epoch: l.Run, Waiting: l.Waiting}
		if l.Rate != nil && l.Rate.EffectiveRatePerMin > 0 {
			list[i].Known, list[i].Rate, list[i].Ceiling = true, l.Rate.EffectiveRatePerMin, l.Rate.CeilingRatePerMin
		}
	}
	return list
}
