package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/quota"
)

// Defaults and bounds of a [Provider].
const (
	DefaultMaxWait     = 15 * time.Second
	DefaultMaxBody     = 32 << 20
	DefaultMaxUpload   = 512 << 20
	DefaultDialTimeout = 10 * time.Second
	DefaultTLSTimeout  = 10 * time.Second
	DefaultBodyTimeout = 2 * time.Minute
	DefaultCallTimeout = time.Hour

	maxRetries = 10
)

// Approver is a quota: a *governor.Governor is one. When it also has the method
// Config() quota.Config, refusals hold the limits in RateLimit fields. When it has the
// method Reserve of a governor and the provider is paced, a call waits for both in the
// pacing's queue; else it waits for the quota first.
type Approver interface {
	// ApproveWait waits for a permit until the context's deadline at most.
	ApproveWait(ctx context.Context, r quota.Request) (quota.Decision, error)
	// RecordUsage settles a permit, Cancel gives it back.
	RecordUsage(id quota.Permit, actual quota.Usage) (first bool, err error)
	Cancel(id quota.Permit) (first bool, err error)
	// Drain says that n more output tokens have flowed.
	Drain(id quota.Permit, n int64) error
	// Factor is the scale factor for an agent's decision interval.
	Factor(r quota.Request) float64
}

// configured is a quota that shows its limits.
type configured interface{ Config() quota.Config }

// Provider is one upstream connection. Name and Description are needed; other
// zero fields take the defaults.
type Provider struct {
	// Name is the first segment of the path: /{name}/... Lower-case letters,
	// digits, dots, hyphens and underscores, at most 64 bytes.
	Name string
	// Description is the API that it speaks, and where.
	Description provider.Description
	// Key is the provider's key. Empty: what the client presents is passed on,
	// and a Headway key, when keys are asked for, is expected in X-Headway-Key.
	Key string
	// Keys are several of the provider's keys, 2 to 100, instead of Key and Pacing: each
	// attempt goes by the one that has room soonest, or by the one that X-Headway-Affinity
	// asks for. One that is refused (401, or 403) where another is not is set aside, until
	// the configuration is replaced. Only keys that their owner may use together belong
	// here. Default: one.
	Keys []Credential
	// Approver is the quota. Default: none, calls are not budgeted.
	Approver Approver
	// Models gives the name under which the quota knows a model. "" refuses the
	// model as not configured. Default: its own name.
	Models func(model string) string
	// Pacing is the connection's rate authority. Its MaxRetryAfter should be an hour
	// or so: a Retry-After holds up all calls of the provider. Default: none.
	Pacing *headway.Governor
	// Profile is what the provider publishes of its limits: it gives calls their pools and
	// what they cost, begins pools with what is published, and reads in answers what is
	// left. For [provider.HTTP], with Pacing. Default: none; calls are in the pool of their
	// model.
	Profile *provider.Profile
	// InjectUsage says whether streams of chat completions are asked for their
	// usage, which is taken out again. Default [InjectAuto].
	InjectUsage InjectUsage
	// Circuit is when the provider, or a part of it, is left alone because it keeps
	// failing. A governor for Pacing should have no breaker of its own (NoBreaker):
	// it would be one for all models and paths.
	Circuit Circuit
	// MaxWait bounds the waits for quota and pacing together. Default 15 s.
	MaxWait time.Duration
	// MaxBody bounds the body of a call that costs tokens and so has to be read
	// first, in bytes; MaxUpload any other, which is streamed. Defaults 32 MiB
	// and 512 MiB.
	MaxBody, MaxUpload int64
	// Retries is how often a throttled, overloaded or lost attempt is sent again
	// before anything was answered, 0 to 10. Default 0: SDKs retry by themselves.
	Retries int
	// CallTimeout bounds an attempt as a whole, streams included. Default 1 h, but
	// not longer than a permit of the quota lives, where that is known: what an
	// expired one used would be forgotten.
	CallTimeout time.Duration
	// ResponseHeaderTimeout bounds the time from the last byte of the request to the
	// response's header, IdleTimeout a silence within the response. Default: the call
	// timeout, so that only that one bounds them.
	ResponseHeaderTimeout, IdleTimeout time.Duration
	// DialTimeout bounds making a connection, TLSTimeout its handshake. Default 10 s
	// each. They do not concern a Roundtripper.
	DialTimeout, TLSTimeout time.Duration
	// BodyTimeout bounds how long the client may take to send a body that is read
	// first. Default 2 min.
	BodyTimeout time.Duration
	// TLS is how the upstream is trusted, and what it is shown. It does not concern
	// a Roundtripper. Default: the system's authorities, and no certificate.
	TLS *tls.Config
	// Roundtripper sends. It must not follow redirects nor decompress. Default:
	// an http.Transport that all providers of a proxy share.
	Roundtripper http.RoundTripper
}

// resolve fills in the defaults and checks the rest.
func (p Provider) resolve() (Provider, error) {
	bad := func(field string, value any, bound string) (Provider, error) {
		return Provider{}, fmt.Errorf("egress: provider %.64q: %s is %v, must be %s", p.Name, field, value, bound)
	}
	if !validName(p.Name) {
		return bad("name", fmt.Sprintf("%.64q", p.Name), "1 to 64 lower-case letters, digits, dots, hyphens and underscores, and begin with a letter or digit")
	}
	up := p.Description.Upstream
	switch {
	case up == nil:
		return bad("upstream", "missing", "an absolute http or https URL")
	case up.Scheme != "https" && up.Scheme != "http" || up.Host == "":
		return bad("upstream", fmt.Sprintf("a URL of scheme %q and host %q", up.Scheme, up.Host), "an absolute http or https URL")
	case up.User != nil || up.RawQuery != "" || up.Fragment != "":
		return bad("upstream", "a URL with user, query or fragment", "scheme, host and path only; give the key as the provider's key")
	case p.Retries < 0 || p.Retries > maxRetries:
		return bad("retries", p.Retries, fmt.Sprintf("from 0 to %d", maxRetries))
	case p.Profile != nil && p.Description.API != provider.HTTP:
		return bad("profile", p.Profile.Name(), "none: what "+string(p.Description.API)+" says of its limits is known")
	}
	if field, value, bound := p.checkKeys(); bound != "" {
		return bad(field, value, bound)
	}
	longest := DefaultCallTimeout
	if q, ok := p.Approver.(configured); ok {
		ttl := time.Duration(q.Config().PermitTTLMS) * time.Millisecond
		if p.CallTimeout > ttl {
			return bad("call timeout", p.CallTimeout, fmt.Sprintf("at most %v, as long as the quota's permits live (permit_ttl)", ttl))
		}
		longest = min(longest, ttl-min(ttl/10, time.Second))
	}
	if p.InjectUsage == "" {
		p.InjectUsage = InjectAuto
	}
	if p.InjectUsage != InjectAuto && p.InjectUsage != InjectAlways && p.InjectUsage != InjectNever {
		return bad("inject usage", fmt.Sprintf("%.64q", string(p.InjectUsage)), "auto, always or never")
	}
	circuit, err := p.Circuit.resolve()
	if err != nil {
		return Provider{}, fmt.Errorf("egress: provider %q: circuit: %w", p.Name, err)
	}
	p.Circuit = circuit
	for _, f := range []struct {
		name  string
		value *time.Duration
		rest  time.Duration
	}{
		{"max wait", &p.MaxWait, DefaultMaxWait},
		{"call timeout", &p.CallTimeout, longest},
		{"response-header timeout", &p.ResponseHeaderTimeout, cmp.Or(p.CallTimeout, longest)},
		{"idle timeout", &p.IdleTimeout, cmp.Or(p.CallTimeout, longest)},
		{"dial timeout", &p.DialTimeout, DefaultDialTimeout},
		{"TLS timeout", &p.TLSTimeout, DefaultTLSTimeout},
		{"body timeout", &p.BodyTimeout, DefaultBodyTimeout},
	} {
		if *f.value < 0 {
			return bad(f.name, *f.value, "above 0, or 0 for the default")
		}
		if *f.value == 0 {
			*f.value = f.rest
		}
	}
	for _, f := range []struct {
		name  string
		value *int64
		rest  int64
	}{{"max body", &p.MaxBody, DefaultMaxBody}, {"max upload", &p.MaxUpload, DefaultMaxUpload}} {
		if *f.value < 0 {
			return bad(f.name, *f.value, "above 0, or 0 for the default")
		}
		if *f.value == 0 {
			*f.value = f.rest
		}
	}
	return p, nil
}

// rule is what of a call the provider counts, as its description names it; the
// quota may have a rule of its own under that name. Default: all tokens.
func (p *Provider) rule() quota.Charge {
	if q, ok := p.Approver.(configured); ok {
		if rule, ok := q.Config().Charges[p.Description.Charge]; ok {
			return rule
		}
	}
	rule, _ := p.Description.Rule()
	return rule
}

// validName reports whether a name can be a path's first segment as it stands.
func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		word := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !word && (i == 0 || c != '.' && c != '-' && c != '_') {
			return false
		}
	}
	return len(name) > 0 && len(name) <= 64
}
