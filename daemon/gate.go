package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/reason"
)

// gate decides who may use the API under one configuration.
type gate struct {
	data, roles *keys.Ring
	failures    *keys.Limiter // of callers with an invalid key
	origin      time.Time
	hosts       map[string]bool // names by which a daemon without keys may be called
	guard       *http.CrossOriginProtection
}

func (d *Daemon) gate(p *plan) *gate {
	g := &gate{data: p.data, roles: p.roles, origin: time.Now(), hosts: map[string]bool{}, guard: http.NewCrossOriginProtection()}
	g.failures, _ = keys.NewLimiter(keys.Limits{}) // the defaults are valid
	if v := d.live.Load(); v != nil {
		g.failures, g.origin = v.gate.failures, v.gate.origin // invalid keys are remembered
	}
	if c := p.config.CORS; c != nil {
		for _, origin := range c.Origins {
			if origin != "*" {
				_ = g.guard.AddTrustedOrigin(origin) // checked with the configuration
			}
		}
	}
	for _, h := range p.config.Hosts {
		g.hosts[strings.ToLower(h)] = true
	}
	return g
}

// otherOrigin reports whether a web page of another origin may call the API: one of the
// configured origins, and for requests that take a role only when keys with one are configured.
func (d *Daemon) otherOrigin(r *http.Request, need api.Role) bool {
	v := d.live.Load()
	return trusted(v.config.CORS, r.Header.Get("Origin")) && (need == "" || v.gate.roles.Len() > 0)
}

// authorize identifies the caller; see [api.Options].
func (d *Daemon) authorize(r *http.Request, need api.Role) (api.Caller, error) {
	return d.live.Load().gate.authorize(r, need, time.Now())
}

func (g *gate) authorize(r *http.Request, need api.Role, now time.Time) (api.Caller, error) {
	if g.data.Len() == 0 && g.roles.Len() == 0 {
		return api.Anybody(r, need) // the configuration allows this on loopback only
	}
	secret := presented(r)
	// Check both, so that the time taken does not reveal the kind of a key.
	of, errRole := g.roles.Admit(secret, now)
	key, errData := g.data.Admit(secret, now)
	switch {
	case errRole == nil:
		return api.Caller{ID: string(of.Role) + " " + of.ID, Role: api.Role(of.Role)}, nil
	case errData == nil && need != "":
		return api.Caller{}, &reason.Refusal{Reason: reason.Forbidden, Scope: "key " + key.ID, Err: errors.New("this takes a key with a role")}
	case errData == nil:
		return api.Caller{
			ID: key.ID, Tenant: key.Tenant, Agent: key.Agent, Priority: key.Priority, PriorityMax: key.PriorityMax,
			May: may(key),
		}, nil
	case secret == "" && need == "" && g.data.Len() == 0:
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

// may returns a function that reports whether the key permits a model of a provider. With
// an empty model it reports whether the key permits the provider at all.
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

// presented returns the key in an API request; "" without one.
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

// crossSite guards a daemon without keys against web pages that a browser on this machine
// shows. It returns the reason to refuse a request, or "".
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
		return "" // an address, which DNS rebinding cannot forge
	}
	if config.Loopback(host) || g.hosts[host] {
		return ""
	}
	return "this daemon asks for no keys, so it is called as localhost or by its address; hosts: in its configuration lists more names"
}

// maxIssued bounds the file of issued keys, in bytes.
const maxIssued = 16 << 20

// issuedContent is the content of the file. It holds hashes, never secrets.
type issuedContent struct {
	Version int        `json:"version"`
	Keys    []keys.Key `json:"keys"`
}

func (d *Daemon) issuedPath() string { return filepath.Join(d.config.State, "keys.json") }

// readIssued reads the keys issued through the API. A file that cannot be read is an error:
// starting without it would lock clients out.
func readIssued(path string) ([]keys.Key, error) {
	b, err := atomicfile.Read(path, maxIssued)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var c issuedContent
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && c.Version != 1 {
		err = fmt.Errorf("its version is %d, this program reads version 1", c.Version)
	}
	if err == nil {
		_, err = keys.New(c.Keys)
	}
	if err != nil {
		return nil, fmt.Errorf("daemon: the issued keys: %s: %w; restore the file, or move it away to go on without them", path, err)
	}
	return c.Keys, nil
}

// keyring issues and revokes keys.
type keyring struct{ d *Daemon }

// List returns the configured keys, then the issued ones.
func (k keyring) List() []api.IssuedKey {
	v := k.d.live.Load()
	all := make([]api.IssuedKey, 0, len(v.config.Keys)+len(v.issued))
	for i, list := range [][]keys.Key{v.config.Keys, v.issued} {
		for _, key := range list {
			asked := api.KeyRequest{
				ID: key.ID, Tenant: key.Tenant, Agent: key.Agent, Models: key.Models, Providers: key.Providers, Uploads: key.Uploads,
				Priority: key.Priority, PriorityMax: key.PriorityMax, Expires: key.Expires,
			}
			all = append(all, api.IssuedKey{KeyRequest: asked, Configured: i == 0})
		}
	}
	return all
}

// Issue makes a key. When it returns, the key is durable and valid.
func (k keyring) Issue(asked api.KeyRequest) (string, error) {
	secret, hash := keys.Generate()
	key := keys.Key{
		ID: asked.ID, Hash: hash, Tenant: asked.Tenant, Agent: asked.Agent, Models: asked.Models, Providers: asked.Providers, Uploads: asked.Uploads,
		Priority: asked.Priority, PriorityMax: asked.PriorityMax, Expires: asked.Expires,
	}
	if _, err := keys.New([]keys.Key{key}); err != nil {
		return "", api.BadKey(cmp.Or(errors.Unwrap(err), err))
	}
	return secret, k.d.rekey(func(now []keys.Key) ([]keys.Key, error) {
		if len(k.d.config.AdminKeys) == 0 {
			return nil, &api.Problem{Status: http.StatusConflict, Title: "No admin keys", Detail: "keys are issued only where admin_keys are configured: else nobody could revoke them"}
		}
		for _, other := range slices.Concat(k.d.config.Keys, now) {
			if other.ID == key.ID {
				return nil, &api.Problem{Status: http.StatusConflict, Title: "Taken", Detail: "there is a key of that id"}
			}
		}
		return append(slices.Clone(now), key), nil
	})
}

// Revoke removes a key. When it returns, the key is invalid.
func (k keyring) Revoke(id string) error {
	return k.d.rekey(func(now []keys.Key) ([]keys.Key, error) {
		at := slices.IndexFunc(now, func(key keys.Key) bool { return key.ID == id })
		if at < 0 {
			return nil, api.NoKey(id, slices.ContainsFunc(k.d.config.Keys, func(key keys.Key) bool { return key.ID == id }))
		}
		return slices.Delete(slices.Clone(now), at, at+1), nil
	})
}

// rekey changes the issued keys, on disk first, then for new requests.
func (d *Daemon) rekey(change func(now []keys.Key) ([]keys.Key, error)) error {
	if !d.mu.TryLock() {
		return &api.Problem{Status: http.StatusServiceUnavailable, Title: "Busy", Detail: "the daemon is being reloaded or stopped; ask again", RetryInMS: time.Second.Milliseconds()}
	}
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return err
	}
	issued, err := change(d.issued)
	if err != nil {
		return err
	}
	p := &plan{config: d.config, issued: issued}
	if err := p.rings(); err != nil {
		return err
	}
	b, err := json.Marshal(issuedContent{1, issued})
	if err == nil {
		err = atomicfile.Write(disk.OS{}, d.issuedPath(), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("daemon: the issued keys: %w", err)
	}
	d.issued = issued
	d.proxy.SetKeys(d.egress(p).Keys)
	v := *d.live.Load()
	v.issued, v.gate = issued, d.gate(p)
	d.live.Store(&v)
	return nil
}
