package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// providerState is the budget and the pacing of one provider. It is kept for the
// life of the daemon, also while its provider is not in the configuration, so that
// the day's use and the learned rate are there when the provider comes back.
type providerState struct {
	name          string
	quota         *governor.Governor
	file          *governor.File
	level         *slog.LevelVar
	shared        sharing // of the budget
	pacing        governors
	settings      pacingSettings // of the governors in pacing
	replaced      governors      // calls under way may still wait for these
	savedAttempts int64          // attempts when the rate was last stored
	stored        rate           // learned before the start
}

// governors holds the pacing governors of a provider by key name. The name is "" where
// the provider has one key. Nil means that the provider is not paced.
type governors map[string]*headway.Governor

// pacingSettings are the settings from which a pacing governor is made. When they change,
// the governor is replaced.
type pacingSettings struct {
	config.Pacing
	wait, call time.Duration
	fleet      config.FleetMode
	host, keys string // identify the credentials in a fleet
	windows    string // lengths of the budget's windows
}

func settingsOf(p config.Provider) pacingSettings {
	t := pacingSettings{*p.Pacing, p.MaxWait, p.CallTimeout, p.Fleet, p.Description.Upstream.Host, "", fmt.Sprint(windowsOf(p))}
	for _, key := range keyNames(p) {
		t.keys += secretOf(p, key) + "\n"
	}
	return t
}

// quotaPath is the file of a budget's daily use.
func quotaPath(state, name string) string { return filepath.Join(state, "quota-"+name+".json") }

// maxWait bounds a wait for a budget. The provider's own bound may change while the
// governor stays, so the proxy applies it.
const maxWait = time.Hour

// open opens the budget and loads the stored use of the day.
func (st *providerState) open(state string, s quotafile.Settings, f *fleet.Fleet, log *slog.Logger, hub *events.Hub) error {
	file, err := governor.OpenFile(quotaPath(state, st.name))
	if err != nil {
		return fmt.Errorf("daemon: the day's use of %s: %w", st.name, err)
	}
	if _, err := file.Load(); err != nil {
		return errors.Join(fmt.Errorf("daemon: the day's use of %s: %w; restore the file, or move it away to count this day from nothing", st.name, err), file.Close())
	}
	level := new(slog.LevelVar)
	level.Set(s.LogLevel)
	o := governor.Options{
		Config: s.Quota, Store: file, MaxWait: maxWait, OnEvent: hub.Quota(st.name),
		Log: slog.New(&leveled{log.Handler(), level}).With(slog.String("quota", st.name)),
	}
	if st.shared.group != "" {
		o.Fleet, o.Share = f.Share(st.shared.group), st.shared.FleetOptions
	}
	g, err := governor.New(o)
	if err != nil {
		return errors.Join(fmt.Errorf("daemon: the budget of %s: %w", st.name, err), file.Close())
	}
	st.quota, st.file, st.level = g, file, level
	return nil
}

// maxRetryAfter bounds how long a Retry-After can hold up all calls of a provider. A
// provider that asks for a longer pause is called again after this time.
const maxRetryAfter = time.Hour

// newGovernor returns the pacing governor of one key, as configured.
func newGovernor(name, key string, p config.Provider, on func(event.Event), join func(key string) headway.Fleet) (*headway.Governor, error) {
	c := headway.Config{
		Name: egress.ConnectionOf(name, key), Ceiling: p.Pacing.Ceiling, Initial: p.Pacing.Initial, Law: p.Pacing.Law,
		Passive:     !p.Pacing.Conservative,
		NoBreaker:   true, // the proxy has breakers by model and path
		Windows:     windowsOf(p),
		MaxInFlight: p.Pacing.MaxInFlight, MaxWait: p.MaxWait, PermitTimeout: p.CallTimeout,
		MaxRetryAfter: maxRetryAfter,
	}
	if on != nil {
		c.OnEvent = on
	}
	if join != nil {
		c.Fleet = join(key)
	}
	return headway.New(c)
}

// windowsOf returns the lengths of the windows of a provider's budget, which mostly is what
// the provider allows. Those of tenants and agents are the owner's own.
func windowsOf(p config.Provider) (all []time.Duration) {
	if p.Quota == nil {
		return nil
	}
	q := p.Quota.Quota
	limits := []quota.Limits{q.Global}
	for _, m := range q.Models {
		limits = append(limits, m.Limits)
	}
	in := func(limited func(quota.Limits) bool, length time.Duration) {
		if slices.ContainsFunc(limits, limited) {
			all = append(all, length)
		}
	}
	in(func(l quota.Limits) bool {
		return l.CallsPerMinute+l.TokensPerMinute+l.InputTokensPerMinute+l.OutputTokensPerMinute > 0
	}, time.Minute)
	in(func(l quota.Limits) bool { return l.MaxDailyCalls+l.MaxDailyTokens > 0 }, 24*time.Hour)
	return all
}

// newGovernors returns the pacing governors for a configuration. It keeps a governor whose
// settings did not change, and gives a new one what its predecessor learned.
func (st *providerState) newGovernors(p config.Provider, on func(event.Event), join func(key string) headway.Fleet) (governors, error) {
	if p.Pacing == nil {
		return nil, nil
	}
	all := governors{}
	for _, key := range keyNames(p) {
		was := st.pacing[key]
		if was != nil && st.settings == settingsOf(p) {
			all[key] = was
			continue
		}
		g, err := newGovernor(st.name, key, p, on, join)
		if err != nil {
			st.discard(all)
			return nil, err
		}
		if was != nil {
			if was.Snapshot().Rate != nil {
				_ = g.Restore(was.Learned()) // a governor of another law starts from scratch
			}
			g.RestorePools(was.LearnedPools())
		}
		all[key] = g
	}
	return all, nil
}

// retire closes the governors that by replaces, once no call can wait for them any more.
// A closed governor leaves its fleet.
func (st *providerState) retire(by governors) {
	for key, g := range st.pacing {
		if g == by[key] {
			continue
		}
		if st.replaced == nil {
			st.replaced = governors{}
		} else if before := st.replaced[key]; before != nil {
			go before.Close()
		}
		st.replaced[key] = g
		time.AfterFunc(st.settings.wait, g.Close)
	}
}

// discard closes governors that were made for the provider and are not in use.
func (st *providerState) discard(made governors) {
	for key, g := range made {
		if g != st.pacing[key] {
			g.Close()
		}
	}
}

// keyNames returns the names of a provider's keys, or one empty name where there is a
// single key.
func keyNames(p config.Provider) (all []string) {
	for _, k := range p.Keys {
		all = append(all, k.Name)
	}
	if all == nil {
		all = []string{""}
	}
	return all
}

// learned returns what the governors of all keys have learned. ok is false when they have
// learned nothing.
func (st *providerState) learned(now time.Time) (r rate, ok bool) {
	if g := st.pacing[""]; g != nil {
		return learnedBy(g, now)
	}
	r.Keys = make(map[string]rate)
	for name, g := range st.pacing {
		k, known := learnedBy(g, now)
		if ok = ok || known; !known {
			if k, known = st.stored.Keys[name]; !known {
				continue
			}
		}
		r.Keys[name] = k
	}
	r.RecordedAt = now.UTC()
	return r, ok
}

// learnedBy returns what one governor has learned about the account and its models.
func learnedBy(g *headway.Governor, now time.Time) (r rate, ok bool) {
	if g.Snapshot().Rate != nil {
		r, ok = rateOf(g.Learned(), now), true
	}
	for name, s := range g.LearnedPools() {
		if r.Pools == nil {
			r.Pools = make(map[string]rate)
		}
		r.Pools[name] = rateOf(s, now)
		r.RecordedAt, ok = now.UTC(), true
	}
	return r, ok
}

// restore gives the governors what was learned before the last stop.
func (st *providerState) restore(r rate, now time.Time, log *slog.Logger) {
	st.stored = r
	for name, g := range st.pacing {
		of := r
		if name != "" {
			of = r.Keys[name]
		} else if r.Law == "" && len(r.Pools) == 0 {
			continue // stored while the provider had several keys
		}
		if name == "" || !of.RecordedAt.IsZero() {
			restoreGovernor(egress.ConnectionOf(st.name, name), g, of, now, log)
		}
	}
}

// restoreGovernor gives one governor what was stored, unless that is too old.
func restoreGovernor(name string, g *headway.Governor, r rate, now time.Time, log *slog.Logger) {
	err := control.Fresh(r.RecordedAt, now, control.StaleAfter)
	if err == nil {
		pools := make(map[string]control.State, len(r.Pools))
		for name, p := range r.Pools {
			pools[name] = p.learned()
		}
		g.RestorePools(pools)
		if r.Law != "" { // otherwise only models had limits
			err = g.Restore(r.learned())
		}
	}
	if err != nil {
		log.Info("learned rate not used", slog.String("provider", name), slog.Any("reason", err))
		return
	}
	log.Info("learned rate restored", slog.String("provider", name),
		slog.Float64("interval_ms", float64(g.Learned().Interval)/float64(time.Millisecond)), slog.Int("models", len(r.Pools)))
}

// close closes the governors and the budget, which stores the exact use.
func (st *providerState) close() error {
	for _, all := range [...]governors{st.pacing, st.replaced} {
		for _, g := range all {
			g.Close()
		}
	}
	if st.quota == nil {
		return nil
	}
	return errors.Join(st.quota.Close(), st.file.Close())
}

// egressProvider converts the configuration of a provider to the form the proxy takes.
func (st *providerState) egressProvider(p config.Provider, pacing governors) egress.Provider {
	u := egress.Provider{
		Name: p.Name, Description: p.Description, Key: p.Key.Reveal(), Pacing: pacing[""], Profile: p.Profile,
		MaxWait: p.MaxWait, MaxBody: p.MaxBody, Retries: p.Retries, CallTimeout: p.CallTimeout,
		Circuit: p.Circuit, InjectUsage: p.InjectUsage, MaxUpload: p.MaxUpload,
		ResponseHeaderTimeout: p.ResponseHeaderTimeout, IdleTimeout: p.IdleTimeout,
		DialTimeout: p.DialTimeout, TLSTimeout: p.TLSTimeout, BodyTimeout: p.BodyTimeout,
	}
	for _, k := range p.Keys {
		u.Keys = append(u.Keys, egress.Credential{Name: k.Name, Key: k.Key.Reveal(), Pacing: pacing[k.Name]})
	}
	if p.TLS != nil {
		u.TLS = p.TLS.Made
	}
	if p.Quota != nil && st != nil && st.quota != nil {
		u.Approver, u.Models = st.quota, budgetModel(st.quota)
	}
	return u
}

// budgetModel returns a function that gives the name under which a budget counts a model:
// the model's own name if it is listed, otherwise [config.OtherModels] if that is listed.
func budgetModel(g *governor.Governor) func(string) string {
	return func(model string) string {
		models := g.Config().Models
		if _, ok := models[model]; ok {
			return model
		}
		if _, ok := models[config.OtherModels]; ok {
			return config.OtherModels
		}
		return model // not in the budget, which refuses it by name
	}
}

// budgeted adapts a governor for the API: it counts models that are not listed as the
// proxy does.
type budgeted struct{ *governor.Governor }

func (b budgeted) counted(r quota.Request) quota.Request {
	r.Model = budgetModel(b.Governor)(r.Model)
	return r
}

func (b budgeted) Approve(r quota.Request) (quota.Decision, error) {
	return b.Governor.Approve(b.counted(r))
}

func (b budgeted) ApproveWait(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return b.Governor.ApproveWait(ctx, b.counted(r))
}

func (b budgeted) Factor(r quota.Request) float64 { return b.Governor.Factor(b.counted(r)) }

// leveled is a handler with a level of its own in addition to the log's.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

func (h *leveled) Enabled(ctx context.Context, at slog.Level) bool {
	return at >= h.level.Level() && h.Handler.Enabled(ctx, at)
}

func (h *leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &leveled{h.Handler.WithAttrs(attrs), h.level}
}

func (h *leveled) WithGroup(name string) slog.Handler {
	return &leveled{h.Handler.WithGroup(name), h.level}
}

// makeFolder makes the state folder, readable by its owner only.
func makeFolder(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("daemon: state: %w", err)
	}
	return nil
}

// onCircuit publishes and logs a change of a provider's breaker.
func (d *Daemon) onCircuit(e event.Event) {
	d.hub.Proxied(e.Connection)(e)
	event.Log(d.log)(e)
}

// onPacing returns a function that publishes the pacing events of a provider, and logs those
// that say whether the fleet server is reachable.
func (d *Daemon) onPacing(name string) func(event.Event) {
	publish, log := d.hub.Proxied(name), event.Log(d.log)
	return func(e event.Event) {
		if publish(e); e.Type == event.Fleet {
			log(e)
		}
	}
}

// onKeySetAside publishes that a provider refused a key for good. The proxy logs it.
func (d *Daemon) onKeySetAside(e event.Event) {
	provider, _, _ := strings.Cut(e.Connection, "/")
	d.hub.Proxied(provider)(e)
}

// onConnectionEvent publishes and logs an event of a collected connection. The scheduler
// logs some events itself; those are only published.
func (d *Daemon) onConnectionEvent(e event.Event) {
	d.hub.Connection(e)
	switch e.Type {
	case event.RunStart, event.RunEnd, event.ConnectionChanged, event.Warning:
	default:
		event.Log(d.log)(e)
	}
}
