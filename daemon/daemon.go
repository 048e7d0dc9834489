package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/console"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/lockfile"
	"github.com/headway-go/headway/internal/metrics"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/internal/telemetry"
	"github.com/headway-go/headway/reason"
)

// ErrInUse is what the error of [Daemon.Start] matches when another process has
// the state's folder.
var ErrInUse = errors.New("another headway serve uses this state folder; stop that one, or give this one another")

// ErrListen is what the error of [Daemon.Start] matches when nothing can listen
// on the address.
var ErrListen = errors.New("cannot listen")

// Options are what a daemon is made with, beside its configuration.
type Options struct {
	// Log gets what happens, without content, credentials or addresses. Default:
	// none.
	Log *slog.Logger
	// Version is the program's, for the API.
	Version string
	// Profiles are folders with profiles of providers, beside those that come with
	// Headway, for the console.
	Profiles []string
	// OnCall, when set, is called for every proxied call when it is over, on the
	// call's goroutine.
	OnCall func(egress.CallLog)
}

// phase is where a daemon is in its life.
type phase int32

const (
	fresh phase = iota
	running
	stopping
	stopped
)

func (p phase) String() string { return [...]string{"new", "running", "stopping", "stopped"}[p] }

// Daemon is one. Make it with [New].
type Daemon struct {
	o         Options
	log       *slog.Logger
	hub       *events.Hub
	archive   *collect.Archive
	proxy     *egress.Proxy
	metrics   *metrics.Metrics
	telemetry *telemetry.Telemetry // nil sends nothing; set before anything is served
	// collecting is nil while nothing is collected.
	collecting atomic.Pointer[collecting]
	api        *api.API
	console    *console.Console
	phase      atomic.Int32
	live       atomic.Pointer[view]
	samples    atomic.Pointer[samples.Book] // nil before the start
	recent     calls.Recent
	usage      *calls.Ledger
	access     atomic.Pointer[calls.Log] // nil without one
	unlogged   sync.Once                 // says that the access log has gaps
	unstored   atomic.Bool               // what calls used could not be stored the last time
	cert       certificate
	ended      chan struct{} // closed when stopped, after outcome is set

	mu      sync.Mutex // one of Start, Reload and Stop at a time, and what follows
	config  config.Config
	lines   map[string]*line // all names since the start
	lock    *lockfile.Lock
	stored  ratesContent // what was learned, as on disk
	issued  []keys.Key   // as on disk
	address net.Addr
	fleet   *fleet.Server // for processes of this machine; nil where the configuration names another
	members *fleet.Fleet  // that the collections are members of
	socket  net.Listener  // of the fleet; nil without one
	sharing sync.WaitGroup
	server  *server
	saver   *saver
	sampler *sampler
	unsaved chan struct{} // asks the saver to store what was learned
	outcome error

	opens func(context.Context) (net.Listener, error)         // listen, but in tests
	meets func(context.Context, string) (net.Listener, error) // meet, but in tests
}

// view is what requests see of the configuration. It never changes.
type view struct {
	issued []keys.Key
	config config.Config
	quotas map[string]api.Quota
	gate   *gate
	page   string
}

// New checks the configuration as far as that goes without touching what is
// outside: no file of state is opened, and nothing listens. The certificate is
// read. The error names field, value and bound.
func New(c config.Config, o Options) (*Daemon, error) {
	d := &Daemon{
		o: o, log: o.Log, config: c, lines: map[string]*line{}, ended: make(chan struct{}),
		unsaved: make(chan struct{}, 1),
		usage:   calls.NewLedger(filepath.Join(c.State, calls.FileName)),
		archive: collect.NewArchive(func(ctx context.Context) (collect.ClosingReader, error) { return openReader(ctx, c) }),
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.opens, d.meets = d.listen, meet
	var err error
	if d.hub, err = events.New(0); err != nil {
		return nil, err
	}
	if c.TLS != nil {
		cert, err := readCertificate(c.TLS)
		if err != nil {
			return nil, err
		}
		d.cert.held.Store(cert)
	}
	if err := checkCollections(c); err != nil {
		return nil, err
	}
	d.metrics = d.measure()
	p := plan{config: c}
	if err := p.rings(); err != nil {
		return nil, err
	}
	dry := d.egress(&p)
	for _, one := range c.Providers {
		if one.Pacing != nil {
			if _, err := governed(one.Name, "", one, nil, nil); err != nil {
				return nil, fmt.Errorf("daemon: provider %s: %w", one.Name, err)
			}
		}
		dry.Providers = append(dry.Providers, (*line)(nil).upstream(one, nil))
	}
	if d.proxy, err = egress.New(dry); err != nil {
		return nil, err
	}
	d.api, err = api.New(api.Options{
		Authorize: d.authorize, OtherOrigins: d.otherOrigin,
		Quotas: func() map[string]api.Quota { return d.live.Load().quotas },
		Rates:  d.rates,
		Calls:  &d.recent, Usage: d.usage,
		Samples: func(name string, span samples.Span, now time.Time) (s samples.Series, ok bool) {
			if b := d.samples.Load(); b != nil {
				s, ok = b.Series(name, span, now)
			}
			return s, ok
		},
		Schedule: d.scheduled, Fleet: d.shared,
		Reader: d.archive,
		Keys:   keyring{d},
		Events: d.hub, Ready: d.ready, Metrics: d.metrics.Handler(), Version: o.Version, Log: d.log,
	})
	if err != nil {
		return nil, err
	}
	d.console, err = console.New(console.Options{API: d.api, Source: c.State, Profiles: o.Profiles, Log: d.log})
	return d, err
}

// Start opens the state and listens; when it returns nil, requests are served.
// The context bounds the start only. After an error nothing is held, and the
// daemon is of no more use. The error matches [ErrInUse] or [ErrListen], or names
// what of the state cannot be used and what to do.
func (d *Daemon) Start(ctx context.Context) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := phase(d.phase.Load()); at != fresh {
		return fmt.Errorf("daemon: it is %s, must be new to be started", at)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("daemon: start: %w", err)
	}
	defer func() {
		if err != nil {
			d.phase.Store(int32(stopped))
			err = errors.Join(err, d.release())
			d.outcome = err
			close(d.ended)
		}
	}()
	if err := d.takeState(); err != nil {
		return err
	}
	if err := d.openFleet(ctx); err != nil {
		return err
	}
	if d.stored, err = readRates(d.ratesPath(), d.log); err != nil {
		return err
	}
	if err := d.openAccess(d.config); err != nil {
		return err
	}
	book, err := readSamples(d.samplesPath(), d.log)
	if err != nil {
		return err
	}
	d.samples.Store(book)
	if d.issued, err = readIssued(d.issuedPath()); err != nil {
		return err
	}
	p, err := d.plan(d.config)
	if err != nil {
		return err
	}
	if err := d.carryOut(p); err != nil {
		return err
	}
	d.proxy.RestoreUnasked(time.Now(), d.stored.Unasked)
	d.proxy.RestoreEstimates(d.stored.Estimates)
	for name, r := range d.stored.Rates {
		if l := d.lines[name]; l != nil && l.pacing != nil {
			l.warm(r, time.Now(), d.log)
		}
	}
	listener, err := d.opens(ctx)
	if err != nil {
		return err
	}
	d.address = listener.Addr()
	d.show(p)
	if err := d.report(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := d.collect(ctx, d.config); err != nil {
		return errors.Join(err, listener.Close())
	}
	d.phase.Store(int32(running))
	d.server = d.serve(listener)
	d.saver = d.keepSaving()
	d.sampler = d.keepLooking()
	for _, w := range d.config.Warnings {
		d.log.Warn("configuration", slog.String("warning", w))
	}
	if err := d.config.Check("configuration", time.Now()); err != nil {
		for line := range strings.Lines(err.Error()) {
			d.log.Warn("configuration", slog.String("warning", strings.TrimSpace(line)))
		}
	}
	d.log.Info("serving", slog.String("listen", d.address.String()), slog.Bool("tls", d.config.TLS != nil),
		slog.Int("providers", len(d.config.Providers)), slog.String("state", d.config.State))
	return nil
}

// takeState makes and locks the state's folder.
func (d *Daemon) takeState() error {
	if err := makeFolder(d.config.State); err != nil {
		return err
	}
	lock, err := lockfile.Open(filepath.Join(d.config.State, "daemon.lock"))
	if held, ok := errors.AsType[*lockfile.HeldError](err); ok {
		err = fmt.Errorf("%w; %s has it", ErrInUse, held.Holder())
	}
	if err != nil {
		return fmt.Errorf("daemon: state %s: %w", d.config.State, err)
	}
	d.lock = lock
	return nil
}

// release gives back what a start took.
func (d *Daemon) release() error {
	ended, end := context.WithCancel(context.Background())
	end() // what still runs is cut
	errs := []error{d.stopCollecting(ended)}
	for _, l := range d.lines {
		errs = append(errs, l.close())
	}
	errs = append(errs, d.closeFleet(), d.access.Swap(nil).Close())
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
		d.lock = nil
	}
	return errors.Join(errs...)
}

// Address is where it listens, nil before it was started.
func (d *Daemon) Address() net.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.address
}

// Config is the configuration in force. What it points to must not be changed.
func (d *Daemon) Config() config.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config
}

// ready is nil while requests are served.
func (d *Daemon) ready() error {
	if at := phase(d.phase.Load()); at != running {
		return &reason.Refusal{Reason: reason.Closed, Err: fmt.Errorf("the daemon is %s", at)}
	}
	return nil
}

// rates are the live rates of what is proxied, and of what is being collected.
func (d *Daemon) rates() []api.Live {
	var all []api.Live
	for _, p := range d.proxy.Status() {
		if len(p.Keys) > 0 {
			all = append(all, ratesOfKeys(p)...)
			continue
		}
		if p.Pacing == nil && len(p.Circuits) == 0 && len(p.Limits) == 0 {
			continue
		}
		one := api.Live{Source: api.Proxy, Circuits: p.Circuits, BoundBy: p.BoundBy, Throttled: p.Throttles}
		if p.Pacing != nil {
			one.Snapshot = *p.Pacing
		} else {
			one.Snapshot = headway.Snapshot{At: time.Now(), Connection: p.Name, InFlight: int(p.InFlight), Waiting: int(p.Waiting)}
		}
		one.Limits = p.Limits
		one.Circuit = breaker.Closed.String()
		if state, at := wholeCircuit(p.Circuits); state != "" {
			one.Circuit, one.RetryAt = state, at
		}
		all = append(all, one)
	}
	return append(all, d.collected()...)
}

// wholeCircuit is the breaker of the whole provider; empty when it is closed.
func wholeCircuit(all []egress.CircuitStatus) (state string, retryAt time.Time) {
	for _, c := range all {
		if c.Model+c.Path == "" {
			return c.State, c.RetryAt
		}
	}
	return "", time.Time{}
}

// ratesOfKeys are the live rates of a provider that has several keys.
func ratesOfKeys(p egress.ProviderStatus) (all []api.Live) {
	for _, k := range p.Keys {
		one := api.Live{Source: api.Proxy, Circuits: p.Circuits, BoundBy: p.BoundBy, SetAside: k.SetAside, SetAsideStatus: k.Status, Throttled: k.Throttles}
		if k.Pacing != nil {
			one.Snapshot = *k.Pacing
			one.Limits = append(slices.Clone(p.Limits), k.Pacing.Limits...)
		} else {
			one.Snapshot = headway.Snapshot{At: time.Now(), Connection: egress.ConnectionOf(p.Name, k.Name), InFlight: k.InFlight, Limits: p.Limits}
		}
		one.Circuit = breaker.Closed.String()
		if state, at := wholeCircuit(p.Circuits); state != "" {
			one.Circuit, one.RetryAt = state, at
		}
		all = append(all, one)
	}
	return all
}

// Wait waits until the daemon has stopped, or its server failed, and gives the
// error of [Daemon.Stop], or the server's.
func (d *Daemon) Wait() error {
	<-d.ended
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.outcome
}

// Ended is closed when the daemon has stopped.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }
