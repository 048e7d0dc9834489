package daemon

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/reason"
)

// gate says who may come in to the API, under one configuration.
type gate struct {
	data, admin *keys.Ring
	failures    *keys.Limiter // of callers with an invalid key
	origin      time.Time
	hosts       map[string]bool // by which an open daemon may be called
	guard       *http.CrossOriginProtection
}

func (d *Daemon) gate(p *plan) *gate {
	g := &gate{data: p.data, admin: p.admin, origin: time.Now(), hosts: map[string]bool{}, guard: http.NewCrossOriginProtection()}
	g.failures, _ = keys.NewLimiter(keys.Limits{}) // its defaults are within its bounds
	if v := d.live.Load(); v != nil {
		g.failures, g.origin = v.gate.failures, v.gate.origin // invalid keys are remembered
	}
	if c := p.config.CORS; c != nil {
		for _, origin := range c.Origins {
			if origin != "*" {
				_ = g.guard.AddTrustedOrigin(origin) // the configuration has looked at it
			}
		}
	}
	for _, h := range p.config.Hosts {
		g.hosts[strings.ToLower(h)] = true
	}
	return g
}

// otherOrigin lets pages of the configured origins ask the API. What takes an admin
// they may only where admins have keys: an open daemon is its machine's, not a page's.
func (d *Daemon) otherOrigin(r *http.Request, admin bool) bool {
	v := d.live.Load()
	return trusted(v.config.CORS, r.Header.Get("Origin")) && (!admin || v.gate.admin.Len() > 0)
}

// authorize says who asks; see [api.Options].
func (d *Daemon) authorize(r *http.Request, admin bool) (api.Caller, error) {
	return d.live.Load().gate.authorize(r, admin, time.Now())
}

func (g *gate) authorize(r *http.Request, admin bool, now time.Time) (api.Caller, error) {
	if g.data.Len() == 0 && g.admin.Len() == 0 {
		return api.Anybody(r, admin) // only on loopback; the configuration sees to that
	}
	secret := presented(r)
	// Both are always looked at, so that time does not tell whose a key is.
	of, errAdmin := g.admin.Admit(secret, now)
	key, errData := g.data.Admit(secret, now)
	switch {
	case errAdmin == nil:
		return api.Caller{ID: "admin " + of.ID, Admin: true}, nil
	case errData == nil && admin:
		return api.Caller{}, &reason.Refusal{Reason: reason.Forbidden, Scope: "key " + key.ID, Err: errors.New("this takes an admin key")}
	case errData == nil:
		return api.Caller{
			ID: key.ID, Tenant: key.Tenant, Agent: key.Agent, Priority: key.Priority, PriorityMax: key.PriorityMax,
			May: may(key),
		}, nil
	case secret == "" && !admin && g.data.Len() == 0:
		return api.Caller{ID: "anybody"}, nil
	case secret == "":
		return api.Caller{}, errData
	}
	at := now.Sub(g.origin)
	if retryIn, blocked := g.failures.Blocked(at, r.RemoteAddr); blocked {
		return api.Caller{}, &reason.Refusal{Reason: reason.RateLimited.Reason(), Scope: "keys", RetryAt: now.Add(retryIn), Err: errors.New("too many invalid keys")}
	}
	g.failures.Failed(at, r.RemoteAddr)
	return api.Caller{}, errData
}

// may asks the key; about a provider alone when there is no model.
func may(key keys.Key) func(provider, model string) bool {
	anyModel := key
	anyModel.Models = nil
	return func(provider, model string) bool {
		if model == "" {
			return anyModel.Permit(provider, "") == nil
		}
		return key.Permit(provider, model) == nil
	}
}

// presented is the key that a request to the API shows.
func presented(r *http.Request) string {
	if key := r.Header.Get("X-Headway-Key"); key != "" {
		return key
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

// crossSite says why a request to an open daemon may come from a web page that
// only uses its reader's place on this machine; "" when there is no sign of that.
func (g *gate) crossSite(r *http.Request) string {
	if g.data.Len() > 0 {
		return ""
	}
	if err := g.guard.Check(r); err != nil {
		return "a web page of another origin sent this, and this daemon asks for no keys"
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if ip, err := netip.ParseAddr(host); err == nil && !ip.IsUnspecified() || host == "" {
		return "" // no name that could have been moved here
	}
	if config.Loopback(host) || g.hosts[host] {
		return ""
	}
	return "this daemon asks for no keys, so it is called as localhost or by its address; hosts: in its configuration lists more names"
}
