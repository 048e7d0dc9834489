package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

// plan is a configuration that is ready to be put in force: everything that can fail has
// been done, except for the swap itself.
type plan struct {
	config      config.Config
	issued      []keys.Key       // through the API, in addition to those of the configuration
	data, roles *keys.Ring       // of keys for calls, and of keys with a role
	states      []*providerState // of the providers, in their order
	pacing      []governors      // of states; nil is off
	made        []*providerState // those whose budget was opened for this plan
	changes     []change
}

// change is a budget that stays open and gets new limits.
type change struct {
	state *providerState
	to    quotafile.Settings
	from  quota.Config
}

// loadTokenizers is replaced in tests, to save time.
var loadTokenizers = estimate.Load

// load loads the tokenizers needed for estimates, so that the first call does not wait for
// them.
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
	if p.roles, err = keys.New(slices.Concat(p.config.AdminKeys, p.config.ViewKeys)); err != nil {
		return fmt.Errorf("daemon: keys with a role: %w", err)
	}
	return nil
}

// plan prepares a configuration. On an error it closes what it opened.
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
		st, err := d.openProvider(p, one.Name, one.Description.Upstream.Host, one.Fleet, one.Quota)
		if err != nil {
			return nil, err
		}
		pacing, err := st.newGovernors(one, d.onPacing(one.Name), d.memberships(one))
		if err != nil {
			return nil, fmt.Errorf("daemon: provider %s: %w", one.Name, err)
		}
		p.states, p.pacing = append(p.states, st), append(p.pacing, pacing)
	}
	p.load()
	if c.Quota != nil {
		if _, err := d.openProvider(p, api.DefaultQuota, "", "", c.Quota); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// openProvider returns the state of a provider, with its budget open if s is not nil.
func (d *Daemon) openProvider(p *plan, name, host string, mode config.FleetMode, s *quotafile.Settings) (*providerState, error) {
	st := d.providers[name]
	if st == nil {
		st = &providerState{name: name}
	}
	if s == nil {
		return st, nil
	}
	share, err := d.sharingOf(name, host, s, mode)
	switch {
	case err != nil:
		return nil, err
	case st.quota != nil && share != st.shared:
		return nil, fmt.Errorf("daemon: the budget of %s is shared in another way than before, which needs a restart of the daemon", name)
	case st.quota != nil:
		p.changes = append(p.changes, change{st, *s, st.quota.Config()})
	default:
		st.shared = share
		if err := st.open(d.config.State, *s, d.members, d.log, d.hub); err != nil {
			return nil, err
		}
		p.made = append(p.made, st)
	}
	return st, nil
}

// abandon closes what the plan opened. Governors that are closed leave their fleets.
func (p *plan) abandon() error {
	var errs []error
	for i, st := range p.states {
		st.discard(p.pacing[i])
	}
	for _, st := range p.made {
		errs = append(errs, st.quota.Close(), st.file.Close())
		st.quota, st.file = nil, nil
	}
	return errors.Join(errs...)
}

// carryOut puts the plan in force, or changes nothing.
func (d *Daemon) carryOut(p *plan) error {
	o := d.egress(p)
	for i, one := range p.config.Providers {
		o.Providers = append(o.Providers, p.states[i].egressProvider(one, p.pacing[i]))
	}
	for i, c := range p.changes {
		if err := c.state.quota.Replace(c.to.Quota); err != nil {
			return errors.Join(fmt.Errorf("daemon: the budget of %s: %w", c.state.name, err), p.undo(i), p.abandon())
		}
	}
	if err := d.proxy.Replace(o); err != nil {
		return errors.Join(err, p.undo(len(p.changes)), p.abandon())
	}
	for _, c := range p.changes {
		c.state.level.Set(c.to.LogLevel)
	}
	for _, st := range p.made {
		d.providers[st.name] = st
	}
	for i, st := range p.states {
		d.providers[st.name] = st
		if p.pacing[i] != nil {
			st.retire(p.pacing[i])
			st.pacing, st.settings = p.pacing[i], settingsOf(p.config.Providers[i])
		}
	}
	d.config = p.config
	return nil
}

// undo restores the limits of the first n changed budgets.
func (p *plan) undo(n int) error {
	var errs []error
	for _, c := range p.changes[:n] {
		errs = append(errs, c.state.quota.Replace(c.from))
	}
	return errors.Join(errs...)
}

// publish makes the plan visible to requests.
func (d *Daemon) publish(p *plan) {
	v := &view{config: p.config, issued: p.issued, quotas: map[string]api.Quota{}, gate: d.gate(p), page: Page(p.config, Base(p.config, d.address))}
	for i, one := range p.config.Providers {
		if one.Quota != nil {
			v.quotas[one.Name] = budgeted{p.states[i].quota}
		}
	}
	if p.config.Quota != nil {
		v.quotas[api.DefaultQuota] = budgeted{d.providers[api.DefaultQuota].quota}
	}
	d.live.Store(v)
}

// egress returns the proxy's options, without its providers.
func (d *Daemon) egress(p *plan) egress.Options {
	o := egress.Options{OnCall: d.recordCall, OnCircuit: d.onCircuit, OnKey: d.onKeySetAside, OnEstimate: d.saveSoon, Log: d.log}
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

// Reload replaces the configuration. On an error the old one stays in force. Calls under
// way end under the configuration they began with. A provider whose name stays keeps the
// use of its budget and its learned rate; limits that were changed through the API return to
// the configured ones. The certificate is read again. Settings that need a restart (listen,
// state, store, fleet, forward, clients, max_connections, TLS on or off, webhooks, metrics.otlp, log.format,
// collections.running) are refused when they differ.
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
	if err := checkFixed(d.config, c); err != nil {
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
	if err := d.saveRates(time.Now()); err != nil { // of providers that may be removed
		d.log.Error("learned rates were not stored", slog.Any("error", err))
	}
	if err := d.carryOut(p); err != nil {
		return err
	}
	ctx, done := context.WithTimeout(context.Background(), startTime)
	defer done()
	if err := d.collect(ctx, c); err != nil {
		d.log.Error("the schedule of collections could not be changed", slog.Any("error", err))
	}
	if err := d.openAccess(c); err != nil {
		d.log.Error("the new access log cannot be opened; calls are still logged to the previous one", slog.Any("error", err))
	}
	d.cert.held.Store(cert)
	d.publish(p)
	for _, w := range c.Warnings {
		d.log.Warn("configuration", slog.String("warning", w))
	}
	d.log.Info("configuration reloaded", slog.Int("providers", len(c.Providers)),
		slog.Int("keys", len(c.Keys)), slog.Int("admin_keys", len(c.AdminKeys)), slog.Int("view_keys", len(c.ViewKeys)))
	return nil
}

// telemetryTarget describes where telemetry goes, for comparison.
func telemetryTarget(t *config.Telemetry) string {
	if t == nil {
		return "off"
	}
	return fmt.Sprintf("%s every %v, %v of traces, %v", t.Endpoint, t.Interval, t.Sample, t.Headers)
}

// hooks describes webhooks, for comparison.
func hooks(all []config.Webhook) string {
	var text []string
	for _, w := range all {
		text = append(text, fmt.Sprintf("%s signed with %s: %q", w.URL, w.Secret, w.Types))
	}
	return cmp.Or(strings.Join(text, "; "), "none")
}

// checkFixed returns an error for each changed setting that needs a restart.
func checkFixed(was, is config.Config) error {
	var errs []error
	differs := func(field string, was, is any) {
		if was != is {
			errs = append(errs, fmt.Errorf("daemon: %s is %v, was %v, and cannot change while the daemon runs: restart it", field, is, was))
		}
	}
	differs("listen", was.Listen, is.Listen)
	differs("state", was.State, is.State)
	if was.Store.Reveal() != is.Store.Reveal() {
		errs = append(errs, errors.New("daemon: store changed, which needs a restart of the daemon"))
	}
	if was.Fleet.Reveal() != is.Fleet.Reveal() {
		errs = append(errs, errors.New("daemon: fleet changed, which needs a restart of the daemon"))
	}
	if was.Collections != nil && is.Collections != nil {
		differs("collections.running", was.Collections.Running, is.Collections.Running)
	}
	differs("clients", was.Clients, is.Clients)
	differs("max_connections", was.MaxConnections, is.MaxConnections)
	differs("tls", was.TLS != nil, is.TLS != nil)
	differs("webhooks", hooks(was.Webhooks), hooks(is.Webhooks))
	differs("forward", forwardText(was.Forward), forwardText(is.Forward))
	differs("metrics.otlp", telemetryTarget(was.Telemetry), telemetryTarget(is.Telemetry))
	differs("log.format: json", was.Log.JSON, is.Log.JSON)
	return errors.Join(errs...)
}
