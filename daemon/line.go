package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
	pacing *headway.Governor
	paced  terms // what pacing was made of
	saved  int64 // attempts of which the stored rate knows
}

// terms are all that a pacing governor is made of.
type terms struct {
	config.Pacing
	wait, call time.Duration
}

func termsOf(p config.Provider) terms { return terms{*p.Pacing, p.MaxWait, p.CallTimeout} }

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

// governed is the pacing governor that a configuration asks for.
func governed(name string, p config.Provider, hub *events.Hub) (*headway.Governor, error) {
	c := headway.Config{
		Name: name, Ceiling: p.Pacing.Ceiling, Initial: p.Pacing.Initial, Law: p.Pacing.Law,
		Passive:     !p.Pacing.Conservative,
		NoBreaker:   true, // those of the proxy tell models and paths apart
		MaxInFlight: p.Pacing.MaxInFlight, MaxWait: p.MaxWait, PermitTimeout: p.CallTimeout,
		MaxRetryAfter: maxRetryAfter,
	}
	if hub != nil {
		c.OnEvent = hub.Proxied(name)
	}
	return headway.New(c)
}

// pace is the pacing that a configuration asks for: the one that is there when
// it is made of the same, else a new one that knows what that one has learned.
func (l *line) pace(p config.Provider, hub *events.Hub) (*headway.Governor, error) {
	if p.Pacing == nil {
		return nil, nil
	}
	if l.pacing != nil && l.paced == termsOf(p) {
		return l.pacing, nil
	}
	g, err := governed(l.name, p, hub)
	if err != nil {
		return nil, err
	}
	if l.pacing != nil {
		if l.pacing.Snapshot().Rate != nil {
			_ = g.Restore(l.pacing.Learned()) // another law begins again
		}
		g.RestorePools(l.pacing.LearnedPools())
	}
	return g, nil
}

// learned is what the pacing knows at an instant, of the account and of its models;
// ok is false when that is nothing.
func (l *line) learned(now time.Time) (r rate, ok bool) {
	if l.pacing.Snapshot().Rate != nil {
		r, ok = rateOf(l.pacing.Learned(), now), true
	}
	for name, s := range l.pacing.LearnedPools() {
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
	err := control.Fresh(r.RecordedAt, now, control.StaleAfter)
	if err == nil {
		pools := make(map[string]control.State, len(r.Pools))
		for name, p := range r.Pools {
			pools[name] = p.learned()
		}
		l.pacing.RestorePools(pools)
		if r.Law != "" { // else only models had limits
			err = l.pacing.Restore(r.learned())
		}
	}
	if err != nil {
		log.Info("learned rate not used", slog.String("provider", l.name), slog.Any("reason", err))
		return
	}
	log.Info("learned rate restored", slog.String("provider", l.name),
		slog.Float64("interval_ms", float64(l.pacing.Learned().Interval)/float64(time.Millisecond)), slog.Int("models", len(r.Pools)))
}

// close ends the budget and stores the exact use.
func (l *line) close() error {
	if l.pacing != nil {
		l.pacing.Close()
	}
	if l.quota == nil {
		return nil
	}
	return errors.Join(l.quota.Close(), l.file.Close())
}

// upstream is the provider as the proxy takes it.
func (l *line) upstream(p config.Provider, pacing *headway.Governor) egress.Provider {
	u := egress.Provider{
		Name: p.Name, Description: p.Description, Key: p.Key.Reveal(), Pacing: pacing, Profile: p.Profile,
		MaxWait: p.MaxWait, MaxBody: p.MaxBody, Retries: p.Retries, CallTimeout: p.CallTimeout,
		Circuit: p.Circuit, InjectUsage: p.InjectUsage, MaxUpload: p.MaxUpload,
		ResponseHeaderTimeout: p.ResponseHeaderTimeout, IdleTimeout: p.IdleTimeout,
		DialTimeout: p.DialTimeout, TLSTimeout: p.TLSTimeout, BodyTimeout: p.BodyTimeout,
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
