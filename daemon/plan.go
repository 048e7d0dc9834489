package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/estimate"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
)

// plan is a configuration with everything that it needs, before it is in force:
// what can fail has been done, but for swapping.
type plan struct {
	config      config.Config
	issued      []keys.Key // while the daemon ran, beside those of the configuration
	data, admin *keys.Ring
	lines       []*line // of the providers, in their order
	pacing      []paces // beside lines; nil is off
	made        []*line // those whose budget was opened for this plan
	changes     []change
}

// change is a budget that stays and gets other limits.
type change struct {
	line *line
	to   quotafile.Settings
	from quota.Config
}

// loadTokenizers is replaced in tests, which need not wait for it.
var loadTokenizers = estimate.Load

// load loads the tokenizers that calls are estimated with, so that the first call
// does not wait for them.
func (p *plan) load() {
	for _, one := range p.config.Providers {
		if one.Quota == nil && one.Pacing == nil {
			continue
		}
		switch one.Description.API {
		case provider.OpenAI, provider.AzureOpenAI:
			loadTokenizers("gpt-5", "gpt-4")
		case provider.Anthropic, provider.Gemini:
			loadTokenizers()
		case provider.HTTP:
		}
	}
}

func (p *plan) rings() (err error) {
	if p.data, err = keys.New(slices.Concat(p.config.Keys, p.issued)); err != nil {
		return fmt.Errorf("daemon: keys: %w", err)
	}
	if p.admin, err = keys.New(p.config.AdminKeys); err != nil {
		return fmt.Errorf("daemon: admin_keys: %w", err)
	}
	return nil
}

// plan prepares a configuration. After an error what it opened is closed again.
func (d *Daemon) plan(c config.Config) (_ *plan, err error) {
	p := &plan{config: c, issued: d.issued}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.abandon())
		}
	}()
	if err := p.rings(); err != nil {
		return nil, err
	}
	for _, one := range c.Providers {
		l, err := d.line(p, one.Name, one.Quota)
		if err != nil {
			return nil, err
		}
		pacing, err := l.pace(one, d.proxied(one.Name), d.joins(one))
		if err != nil {
			return nil, fmt.Errorf("daemon: provider %s: %w", one.Name, err)
		}
		p.lines, p.pacing = append(p.lines, l), append(p.pacing, pacing)
	}
	p.load()
	if c.Quota != nil {
		if _, err := d.line(p, api.DefaultQuota, c.Quota); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// line is that of a name, with a budget if one is asked for.
func (d *Daemon) line(p *plan, name string, s *quotafile.Settings) (*line, error) {
	l := d.lines[name]
	if l == nil {
		l = &line{name: name}
	}
	switch {
	case s == nil:
	case l.quota != nil:
		p.changes = append(p.changes, change{l, *s, l.quota.Config()})
	default:
		if err := l.open(d.config.State, *s, d.log, d.hub); err != nil {
			return nil, err
		}
		p.made = append(p.made, l)
	}
	return l, nil
}

// abandon closes what the plan opened.
func (p *plan) abandon() error {
	var errs []error
	for _, l := range p.made {
		errs = append(errs, l.quota.Close(), l.file.Close())
		l.quota, l.file = nil, nil
	}
	return errors.Join(errs...)
}

// carryOut puts the plan in force, or changes nothing.
func (d *Daemon) carryOut(p *plan) error {
	o := d.egress(p)
	for i, one := range p.config.Providers {
		o.Providers = append(o.Providers, p.lines[i].upstream(one, p.pacing[i]))
	}
	for i, c := range p.changes {
		if err := c.line.quota.Replace(c.to.Quota); err != nil {
			return errors.Join(fmt.Errorf("daemon: the budget of %s: %w", c.line.name, err), p.undo(i), p.abandon())
		}
	}
	if err := d.proxy.Replace(o); err != nil {
		return errors.Join(err, p.undo(len(p.changes)), p.abandon())
	}
	for _, c := range p.changes {
		c.line.level.Set(c.to.LogLevel)
	}
	for _, l := range p.made {
		d.lines[l.name] = l
	}
	for i, l := range p.lines {
		d.lines[l.name] = l
		if p.pacing[i] != nil {
			l.retire(p.pacing[i])
			l.pacing, l.paced = p.pacing[i], termsOf(p.config.Providers[i])
		}
	}
	d.config = p.config
	return nil
}

// undo gives the first n changed budgets their limits back.
func (p *plan) undo(n int) error {
	var errs []error
	for _, c := range p.changes[:n] {
		errs = append(errs, c.line.quota.Replace(c.from))
	}
	return errors.Join(errs...)
}

// show lets requests see the plan that is in force.
func (d *Daemon) show(p *plan) {
	v := &view{config: p.config, issued: p.issued, quotas: map[string]api.Quota{}, gate: d.gate(p), page: Page(p.config, Base(p.config, d.address))}
	for i, one := range p.config.Providers {
		if one.Quota != nil {
			v.quotas[one.Name] = budgeted{p.lines[i].quota}
		}
	}
	if p.config.Quota != nil {
		v.quotas[api.DefaultQuota] = budgeted{d.lines[api.DefaultQuota].quota}
	}
	d.live.Store(v)
}

// egress are the proxy's options but for its providers.
func (d *Daemon) egress(p *plan) egress.Options {
	o := egress.Options{OnCall: d.recordCall, OnCircuit: d.circuit, OnKey: d.keySetAside, OnEstimate: d.saveSoon, Log: d.log}
	if p.config.Telemetry != nil {
		o.NewSpan = func(parent string) string {
			if d.telemetry == nil {
				return ""
			}
			return d.telemetry.NewSpan(parent)
		}
	}
	if p.data.Len() > 0 {
		o.Keys = p.data
	}
	return o
}

// Reload puts another configuration in force, whole, or not at all: after an
// error the old one stays. Calls under way end under what they began with.
// Budgets of names that stay keep their use, and pacing what it learned; limits
// that were changed through the API are again those of the configuration. What is
// bound to the process (listen, state, max_connections, whether there is TLS, the
// log's format) is refused when it differs; the certificate is read again.
func (d *Daemon) Reload(c config.Config) error {
	err := d.reload(c)
	d.metrics.Reloaded(err)
	return err
}

func (d *Daemon) reload(c config.Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := phase(d.phase.Load()); at != running {
		return fmt.Errorf("daemon: it is %s, must be running to be reloaded", at)
	}
	if err := fixed(d.config, c); err != nil {
		return err
	}
	if err := checkCollections(c); err != nil {
		return err
	}
	cert := d.cert.held.Load()
	if c.TLS != nil {
		var err error
		if cert, err = readCertificate(c.TLS); err != nil {
			return err
		}
	}
	p, err := d.plan(c)
	if err != nil {
		return err
	}
	if err := d.saveRates(time.Now()); err != nil { // of providers that may be taken out
		d.log.Error("learned rates were not stored", slog.Any("error", err))
	}
	if err := d.carryOut(p); err != nil {
		return err
	}
	ctx, done := context.WithTimeout(context.Background(), startTime)
	defer done()
	if err := d.collect(ctx, c); err != nil {
		d.log.Error("collections were not changed as the configuration says", slog.Any("error", err))
	}
	if err := d.openAccess(c); err != nil {
		d.log.Error("calls go to the access log of before", slog.Any("error", err))
	}
	d.cert.held.Store(cert)
	d.show(p)
	for _, w := range c.Warnings {
		d.log.Warn("configuration", slog.String("warning", w))
	}
	d.log.Info("configuration reloaded", slog.Int("providers", len(c.Providers)), slog.Int("keys", len(c.Keys)))
	return nil
}

// exported is where telemetry goes, to compare.
func exported(t *config.Telemetry) string {
	if t == nil {
		return "off"
	}
	return fmt.Sprintf("%s every %v, %v of traces, %v", t.Endpoint, t.Interval, t.Sample, t.Headers)
}

// fixed says what differs that only a restart can change.
func fixed(was, is config.Config) error {
	var errs []error
	differs := func(field string, was, is any) {
		if was != is {
			errs = append(errs, fmt.Errorf("daemon: %s is %v, was %v, and cannot change while the daemon runs: restart it", field, is, was))
		}
	}
	differs("listen", was.Listen, is.Listen)
	differs("state", was.State, is.State)
	if was.Store.Reveal() != is.Store.Reveal() {
		errs = append(errs, errors.New("daemon: store is another one than before, and cannot change while the daemon runs: restart it"))
	}
	if was.Fleet.Reveal() != is.Fleet.Reveal() {
		errs = append(errs, errors.New("daemon: fleet is another one than before, and cannot change while the daemon runs: restart it"))
	}
	if was.Collections != nil && is.Collections != nil {
		differs("collections.running", was.Collections.Running, is.Collections.Running)
	}
	differs("clients", was.Clients, is.Clients)
	differs("max_connections", was.MaxConnections, is.MaxConnections)
	differs("tls", was.TLS != nil, is.TLS != nil)
	differs("metrics.otlp", exported(was.Telemetry), exported(is.Telemetry))
	differs("log.format: json", was.Log.JSON, is.Log.JSON)
	return errors.Join(errs...)
}
