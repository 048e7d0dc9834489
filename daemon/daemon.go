// Package daemon is "headway serve" as a value: a proxy in front of providers, its
// budgets and pacing, and the API to look at and change them, behind one
// listener. It can be started, reloaded and stopped without losing use or learned rates.
// Programs can embed it; the command is a thin shell around it.
//
//	new -> running -> stopping -> stopped
//
// [New] checks the configuration without opening state or sockets. [Daemon.Start] locks the
// state folder, restores the day's use and the learned rates, and listens. [Daemon.Reload]
// replaces the whole configuration or nothing. [Daemon.Stop] refuses new and waiting calls,
// lets calls under way end within the drain time, and stores use and learned rates.
//
// The state folder holds quota-NAME.json, the day's use of each budget; rates.json, the
// learned rates; keys.json, the hashes of issued keys; samples of charts and totals of calls;
// daemon.lock, which the system releases when the process ends; and state.db, the state of
// collections. Use is stored before it is granted (see package quota/governor), so a daemon
// that is killed does not grant it twice.
//
// To govern calls inside a program, use packages transport or llm instead. A
// [Daemon] is safe for concurrent use. Time is the machine's own.
//
// Stability: settling.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/console"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/lockfile"
	"github.com/headway-go/headway/internal/metrics"
	"github.com/headway-go/headway/internal/ratelimit"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/internal/telemetry"
	"github.com/headway-go/headway/reason"
)

// ErrInUse is returned by [Daemon.Start], wrapped, when another process holds the state
// folder.
var ErrInUse = errors.New("another headway serve uses this state folder; stop that one, or give this one another")

// ErrListen is returned by [Daemon.Start], wrapped, when the daemon cannot listen on the
// configured address.
var ErrListen = errors.New("cannot listen")

// Options are the parts of a daemon that are not in its configuration. The zero value works.
type Options struct {
	// Log receives log lines, which hold no content, credentials or client addresses.
	// Default: nothing is logged.
	Log *slog.Logger
	// Version is the program version that the API reports.
	Version string
	// Profiles are folders with provider profiles for the console, in addition to the
	// built-in ones.
	Profiles []string
	// Simulator tries laws for the console. Default: its page says that there is none.
	Simulator Simulator
	// OnCall, when set, is called at the end of every proxied call, on the call's
	// goroutine. It must be safe for concurrent use.
	OnCall func(egress.CallLog)
}

// What a simulator of [Options] is asked for and answers.
type (
	// Simulator tries laws against models of providers.
	Simulator = api.Simulator
	// SimulatorMenu is what there is to choose from, with scenarios of the type
	// SimulatorScenario, and SimulatorPick one choice.
	SimulatorMenu     = api.SimulatorMenu
	SimulatorScenario = api.SimulatorScenario
	SimulatorPick     = api.SimulatorPick
	// Simulation asks to run a scenario under laws; Simulated is its result, for each
	// law a SimulatedLaw with figures of the type SimulatedFigure.
	Simulation      = api.Simulation
	Simulated       = api.Simulated
	SimulatedLaw    = api.SimulatedLaw
	SimulatedFigure = api.SimulatedFigure
)

// phase is a step of the life cycle of a daemon.
type phase int32

const (
	fresh phase = iota
	running
	stopping
	stopped
)

func (p phase) String() string { return [...]string{"new", "running", "stopping", "stopped"}[p] }

// Daemon is a proxy with its budgets, pacing and API. Make one with [New]. It is safe for
// concurrent use.
type Daemon struct {
	o         Options
	log       *slog.Logger
	hub       *events.Hub
	archive   *collect.Archive
	proxy     *egress.Proxy
	metrics   *metrics.Metrics
	telemetry *telemetry.Telemetry // nil without telemetry; set before the first request
	forward   *forwarding          // nil without one; set before the first request
	// collecting is nil without collections.
	collecting atomic.Pointer[collecting]
	api        *api.API
	limits     http.Handler // Envoy's rate limit service
	console    *console.Console
	phase      atomic.Int32
	live       atomic.Pointer[view]
	samples    atomic.Pointer[samples.Book] // nil before the start
	recent     calls.Recent
	usage      *calls.Ledger
	access     atomic.Pointer[calls.Log] // nil without one
	unlogged   sync.Once                 // logs once that the access log has gaps
	unstored   atomic.Bool               // storing the usage of calls failed the last time
	cert       certificate
	ended      chan struct{} // closed when stopped, after outcome is set

	mu           sync.Mutex // serializes Start, Reload and Stop; guards the fields below
	config       config.Config
	providers    map[string]*providerState // all names since the start
	lock         *lockfile.Lock
	stored       ratesContent // learned rates, as on disk
	issued       []keys.Key   // as on disk
	address      net.Addr
	folder       *fleet.Folder // for processes of this machine; nil when the configuration names another server
	members      *fleet.Fleet  // that the daemon's pacing takes part in; nil without one
	server       *server
	saver        *saver
	hooks        sync.WaitGroup     // webhooks that run
	endHooks     context.CancelFunc // nil before the start
	sampler      *sampler
	saveRequests chan struct{} // asks the saver to store the learned rates
	outcome      error

	listenFunc func(context.Context) (net.Listener, error)         // listen; replaced in tests
	socketFunc func(context.Context, string) (net.Listener, error) // of the fleet; nil but in tests
}

// view is the part of the configuration that requests read. It is immutable.
type view struct {
	issued []keys.Key
	config config.Config
	quotas map[string]api.Quota
	gate   *gate
	page   string
}

// New returns a daemon that has not been started. It checks the configuration and reads the
// certificate and the connection files, but opens no state and does not listen. The error
// names the field, its value and the bound.
func New(c config.Config, o Options) (*Daemon, error) {
	d := &Daemon{
		o: o, log: o.Log, config: c, providers: map[string]*providerState{}, ended: make(chan struct{}),
		saveRequests: make(chan struct{}, 1),
		usage:        calls.NewLedger(filepath.Join(c.State, calls.FileName)),
		archive:      collect.NewArchive(func(ctx context.Context) (collect.ClosingReader, error) { return openReader(ctx, c) }),
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.listenFunc = d.listen
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
			if _, err := newGovernor(one.Name, "", one, nil, nil); err != nil {
				return nil, fmt.Errorf("daemon: provider %s: %w", one.Name, err)
			}
		}
		dry.Providers = append(dry.Providers, (*providerState)(nil).egressProvider(one, nil))
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
		Sparks: func(now time.Time) []samples.Spark {
			if b := d.samples.Load(); b != nil {
				return b.Sparks(now)
			}
			return nil
		},
		Schedule: d.scheduled, Fleet: d.shared,
		Simulator: o.Simulator,
		Reader:    d.archive, Act: d.actOnGaps, Audit: audit.New(c.State, d.log),
		Keys:   keyring{d},
		Events: d.hub, Ready: d.ready, Metrics: d.metrics.Handler(), Version: o.Version, Log: d.log,
	})
	if err != nil {
		return nil, err
	}
	d.limits = ratelimit.Handler(d.api)
	d.console, err = console.New(console.Options{API: d.api, Source: c.State, Profiles: o.Profiles, Log: d.log})
	return d, err
}

// Start opens the state and listens. When it returns nil, the daemon serves requests. The
// context bounds the start only. After an error everything is released and the daemon cannot
// be started again. The error matches [ErrInUse] or [ErrListen], or names the part of the
// state that cannot be used and says what to do.
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
	if err := d.openForward(ctx); err != nil {
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
		if st := d.providers[name]; st != nil && st.pacing != nil {
			st.restore(r, time.Now(), d.log)
		}
	}
	listener, err := d.listenFunc(ctx)
	if err != nil {
		return err
	}
	d.address = listener.Addr()
	d.publish(p)
	if err := d.report(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := d.collect(ctx, d.config); err != nil {
		return errors.Join(err, listener.Close())
	}
	d.phase.Store(int32(running))
	d.server = d.serve(listener)
	d.startHooks()
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

// takeState makes and locks the state folder.
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

// release closes what Start opened.
func (d *Daemon) release() error {
	ended, end := context.WithCancel(context.Background())
	end() // cuts runs that have not ended
	errs := []error{d.stopCollecting(ended)}
	for _, st := range d.providers {
		errs = append(errs, st.close())
	}
	errs = append(errs, d.forward.close(), d.closeFleet(), d.access.Swap(nil).Close())
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
		d.lock = nil
	}
	return errors.Join(errs...)
}

// Address returns the address on which the daemon listens, nil before it was started.
func (d *Daemon) Address() net.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.address
}

// Config returns the configuration in force. Callers must not change what it points to.
func (d *Daemon) Config() config.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config
}

// ready returns nil while the daemon serves requests.
func (d *Daemon) ready() error {
	if at := phase(d.phase.Load()); at != running {
		return &reason.Refusal{Reason: reason.Closed, Err: fmt.Errorf("the daemon is %s", at)}
	}
	return nil
}

// rates returns the live rates of the proxied providers and of the collections under way.
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
	return append(append(all, d.forward.rates()...), d.collected()...)
}

// wholeCircuit returns the state of the breaker for the whole provider; empty when it is
// closed.
func wholeCircuit(all []egress.CircuitStatus) (state string, retryAt time.Time) {
	for _, c := range all {
		if c.Model+c.Path == "" {
			return c.State, c.RetryAt
		}
	}
	return "", time.Time{}
}

// ratesOfKeys returns the live rates of a provider with several keys.
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

// Wait waits until the daemon has stopped, by [Daemon.Stop] or because its server failed,
// and returns the error of the stop.
func (d *Daemon) Wait() error {
	<-d.ended
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.outcome
}

// Ended returns a channel that is closed when the daemon has stopped.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }
