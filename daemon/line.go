package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// line is what is kept for a name as long as the daemon runs: its budget and its
// pacing. One whose provider was taken out of the configuration stays, unused,
// so that the day's use and what was learned are there when it comes back.
type line struct {
	name   string
	quota  *governor.Governor
	file   *governor.File
	level  *slog.LevelVar
	pacing paces
	paced  terms // what pacing was made of
	former paces // that calls under way may still wait for
	saved  int64 // attempts of which the stored rate knows
	stored rate  // what was learned before the start
}

// paces are the governors of a provider by the names of its keys, of which the only one
// has none; nil is off.
type paces map[string]*headway.Governor

// terms are all that a pacing governor is made of.
type terms struct {
	config.Pacing
	wait, call time.Duration
	fleet      config.FleetMode
	host, keys string // what a fleet knows the credentials by
}

func termsOf(p config.Provider) terms {
	t := terms{*p.Pacing, p.MaxWait, p.CallTimeout, p.Fleet, p.Description.Upstream.Host, ""}
	for _, key := range keyNames(p) {
		t.keys += secretOf(p, key) + "\n"
	}
	return t
}

// quotaPath is the file of a budget's daily use.
func quotaPath(state, name string) string { return filepath.Join(state, "quota-"+name+".json") }

// maxWait bounds a wait for a budget; the provider's own bound, which may
// change while the governor stays, is the proxy's to keep.
const maxWait = time.Hour

// open opens the budget of the name, with the day's use as it was stored.
func (l *line) open(state string, s quotafile.Settings, log *slog.Logger, hub *events.Hub) error {
	file, err := governor.OpenFile(quotaPath(state, l.name))
	if err != nil {
		return fmt.Errorf("daemon: the day's use of %s: %w", l.name, err)
	}
	if _, err := file.Load(); err != nil {
		return errors.Join(fmt.Errorf("daemon: the day's use of %s: %w; restore the file, or move it away to count this day from nothing", l.name, err), file.Close())
	}
	level := new(slog.LevelVar)
	level.Set(s.LogLevel)
	g, err := governor.New(governor.Options{
		Config: s.Quota, Store: file, MaxWait: maxWait, OnEvent: hub.Quota(l.name),
		Log: slog.New(&leveled{log.Handler(), level}).With(slog.String("quota", l.name)),
	})
	if err != nil {
		return errors.Join(fmt.Errorf("daemon: the budget of %s: %w", l.name, err), file.Close())
	}
	l.quota, l.file, l.level = g, file, level
	return nil
}

// maxRetryAfter bounds how long a Retry-After can hold up all calls of a provider: one
// that asks for more is asked again after this long.
const maxRetryAfter = time.Hour

// governed is the pacing governor that a configuration asks for, of one key.
func governed(name, key string, p config.Provider, on func(event.Event), join func(key string) headway.Fleet) (*headway.Governor, error) {
	c := headway.Config{
		Name: egress.ConnectionOf(name, key), Ceiling: p.Pacing.Ceiling, Initial: p.Pacing.Initial, Law: p.Pacing.Law,
		Passive:     !p.Pacing.Conservative,
		NoBreaker:   true, // those of the proxy tell models and paths apart
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

// pace is the pacing that a configuration asks for: what is there when it is made of the
// same, else what is new knows what that has learned.
func (l *line) pace(p config.Provider, on func(event.Event), join func(key string) headway.Fleet) (paces, error) {
	if p.Pacing == nil {
		return nil, nil
	}
	all := paces{}
	for _, key := range keyNames(p) {
		was := l.pacing[key]
		if was != nil && l.paced == termsOf(p) {
			all[key] = was
			continue
		}
		g, err := governed(l.name, key, p, on, join)
		if err != nil {
			return nil, err
		}
		if was != nil {
			if was.Snapshot().Rate != nil {
				_ = g.Restore(was.Learned()) // another law begins again
			}
			g.RestorePools(was.LearnedPools())
		}
		all[key] = g
	}
	return all, nil
}

// retire has governors that were replaced leave their fleet, once no call waits for them any
// more.
func (l *line) retire(by paces) {
	for key, g := range l.pacing {
		if g == by[key] {
			continue
		}
		if l.former == nil {
			l.former = paces{}
		} else if before := l.former[key]; before != nil {
			go before.Close()
		}
		l.former[key] = g
		time.AfterFunc(l.paced.wait, g.Close)
	}
}

// keyNames are the names of a provider's keys, of which the only one has none.
func keyNames(p config.Provider) (all []string) {
	for _, k := range p.Keys {
		all = append(all, k.Name)
	}
	if all == nil {
		all = []string{""}
	}
	return all
}

// learned is what the pacing knows at an instant, of each key; ok is false when that is
// nothing.
func (l *line) learned(now time.Time) (r rate, ok bool) {
	if g := l.pacing[""]; g != nil {
		return learnedBy(g, now)
	}
	r.Keys = make(map[string]rate)
	for name, g := range l.pacing {
		k, known := learnedBy(g, now)
		if ok = ok || known; !known {
			if k, known = l.stored.Keys[name]; !known {
				continue
			}
		}
		r.Keys[name] = k
	}
	r.RecordedAt = now.UTC()
	return r, ok
}

// learnedBy is what a governor knows, of the account and of its models.
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

// warm starts the pacing from what was learned before the last stop.
func (l *line) warm(r rate, now time.Time, log *slog.Logger) {
	l.stored = r
	for name, g := range l.pacing {
		of := r
		if name != "" {
			of = r.Keys[name]
		} else if r.Law == "" && len(r.Pools) == 0 {
			continue // it had several keys
		}
		if name == "" || !of.RecordedAt.IsZero() {
			warm(egress.ConnectionOf(l.name, name), g, of, now, log)
		}
	}
}

// warm starts one governor.
func warm(name string, g *headway.Governor, r rate, now time.Time, log *slog.Logger) {
	err := control.Fresh(r.RecordedAt, now, control.StaleAfter)
	if err == nil {
		pools := make(map[string]control.State, len(r.Pools))
		for name, p := range r.Pools {
			pools[name] = p.learned()
		}
		g.RestorePools(pools)
		if r.Law != "" { // else only models had limits
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

// close ends the budget and stores the exact use.
func (l *line) close() error {
	for _, all := range [...]paces{l.pacing, l.former} {
		for _, g := range all {
			g.Close()
		}
	}
	if l.quota == nil {
		return nil
	}
	return errors.Join(l.quota.Close(), l.file.Close())
}

// upstream is the provider as the proxy takes it.
func (l *line) upstream(p config.Provider, pacing paces) egress.Provider {
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
	if p.Quota != nil && l != nil && l.quota != nil {
		u.Approver, u.Models = l.quota, known(l.quota)
	}
	return u
}

// known gives the name under which a budget counts a model: its own when it is
// listed, else that of all others, if there is one.
func known(g *governor.Governor) func(string) string {
	return func(model string) string {
		models := g.Config().Models
		if _, ok := models[model]; ok {
			return model
		}
		if _, ok := models[config.OtherModels]; ok {
			return config.OtherModels
		}
		return model // which is then refused by its name
	}
}

// budgeted is a governor as the API asks it: models that are not listed count as
// they do at the proxy.
type budgeted struct{ *governor.Governor }

func (b budgeted) counted(r quota.Request) quota.Request {
	r.Model = known(b.Governor)(r.Model)
	return r
}

func (b budgeted) Approve(r quota.Request) (quota.Decision, error) {
	return b.Governor.Approve(b.counted(r))
}

func (b budgeted) ApproveWait(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return b.Governor.ApproveWait(ctx, b.counted(r))
}

func (b budgeted) Factor(r quota.Request) float64 { return b.Governor.Factor(b.counted(r)) }

// leveled is a handler with a level of its own beside the log's.
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

// makeFolder makes the state's folder, for its owner only.
func makeFolder(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("daemon: state: %w", err)
	}
	return nil
}

// circuit publishes and logs a move of a provider's breaker.
func (d *Daemon) circuit(e event.Event) {
	d.hub.Proxied(e.Connection)(e)
	event.Log(d.log)(e)
}

// proxied publishes what the pacing of a provider reports, and logs whether the server of its
// fleet is there.
func (d *Daemon) proxied(name string) func(event.Event) {
	publish, log := d.hub.Proxied(name), event.Log(d.log)
	return func(e event.Event) {
		if publish(e); e.Type == event.Fleet {
			log(e)
		}
	}
}

// keySetAside publishes that a provider's key was refused for good, which the proxy logs.
func (d *Daemon) keySetAside(e event.Event) {
	provider, _, _ := strings.Cut(e.Connection, "/")
	d.hub.Proxied(provider)(e)
}

// hear publishes and logs an event of a collected connection, but for those
// that the schedule logs in its own words.
func (d *Daemon) hear(e event.Event) {
	d.hub.Connection(e)
	switch e.Type {
	case event.RunStart, event.RunEnd, event.ConnectionChanged, event.Warning:
	default:
		event.Log(d.log)(e)
	}
}
