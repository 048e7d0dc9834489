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

// Defaults and bounds for the fields of [Provider].
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

// Approver is a quota, such as a *governor.Governor. If it has the method
// Away() bool, answers say while the server of shared budgets is away; if it has
// Config() quota.Config, refusals report the limits in RateLimit fields, and with
// Forecast(quota.Scope) []quota.Forecast the status says how much of them is used. If it has the method
// Reserve of a governor and the provider is paced, a call waits for both in the pacing queue.
// Otherwise it waits for the quota first.
type Approver interface {
	// ApproveWait waits for a permit, at most until the context's deadline.
	ApproveWait(ctx context.Context, r quota.Request) (quota.Decision, error)
	// RecordUsage settles a permit, Cancel gives it back.
	RecordUsage(id quota.Permit, actual quota.Usage) (first bool, err error)
	Cancel(id quota.Permit) (first bool, err error)
	// Drain charges n more output tokens of a stream that is still under way.
	Drain(id quota.Permit, n int64) error
	// Factor returns the factor by which an agent should stretch its interval.
	Factor(r quota.Request) float64
}

// configured is a quota that reports its limits.
type configured interface{ Config() quota.Config }

// forecaster is a quota that reports how much of its limits is used.
type forecaster interface {
	Forecast(s quota.Scope) []quota.Forecast
}

// Provider is one upstream. Name and Description are required; the zero value of any other
// field means its default.
type Provider struct {
	// Name is the first segment of the path: /{name}/... Lower-case letters,
	// digits, dots, hyphens and underscores, at most 64 bytes.
	Name string
	// Description is the provider's API and address.
	Description provider.Description
	// Key is the provider's key. If it is empty, the client's own credential is passed
	// on, and a Headway key, where required, must be in X-Headway-Key.
	Key string
	// Keys are 2 to 100 keys of the provider, instead of Key and Pacing. Each attempt uses
	// the key that can send soonest, or the one selected by X-Headway-Affinity. A key that
	// is refused with 401 or 403 for a call that another key can send is set aside until
	// the configuration is replaced. List only keys that the owner may use together.
	// Default: Key alone.
	Keys []Credential
	// Approver is the quota. Default: no budget.
	Approver Approver
	// Models maps a model to its name in the quota. The result "" refuses the model as
	// not configured. Default: the same name.
	Models func(model string) string
	// Pacing paces the calls. Its MaxRetryAfter should be about an hour, since a
	// Retry-After holds up all calls of the provider. Default: no pacing.
	Pacing *headway.Governor
	// Profile describes the limits that the provider publishes: the pool and cost of a
	// call, the limits a pool starts with, and how to read the remaining limits from an
	// answer. It needs the API [provider.HTTP] and Pacing. Default: none; the pool of a
	// call is its model.
	Profile *provider.Profile
	// InjectUsage says whether the proxy asks streams of chat completions for their usage.
	// The client does not see it. Default [InjectAuto].
	InjectUsage InjectUsage
	// Circuit configures the circuit breakers of the provider. A governor for Pacing should
	// have NoBreaker set, since its breaker would be one for all models and paths.
	Circuit Circuit
	// MaxWait bounds the waits for quota and pacing together. Default 15 s.
	MaxWait time.Duration
	// MaxBody bounds, in bytes, a body that is read before it is sent, as for calls that
	// cost tokens. MaxUpload bounds a body that is streamed. Defaults 32 MiB and 512 MiB.
	MaxBody, MaxUpload int64
	// Retries is how often a throttled, overloaded or lost attempt is retried before
	// anything of an answer was passed on, 0 to 10. Default 0, since SDKs retry themselves.
	Retries int
	// CallTimeout bounds a whole attempt, streams included. Default 1 h, or the life of
	// the quota's permits if that is known and shorter: the usage of an expired permit
	// would be lost.
	CallTimeout time.Duration
	// ResponseHeaderTimeout bounds the time from the last byte of the request to the
	// response's header, IdleTimeout the time without data within the response. Default:
	// CallTimeout.
	ResponseHeaderTimeout, IdleTimeout time.Duration
	// DialTimeout bounds making a connection, TLSTimeout its handshake. Default 10 s
	// each. Roundtripper does not use them.
	DialTimeout, TLSTimeout time.Duration
	// BodyTimeout bounds how long the client may take to send a body that is read before
	// it is sent upstream. Default 2 min.
	BodyTimeout time.Duration
	// TLS configures connections to the upstream. Roundtripper does not use it. Default:
	// the system's certificate authorities and no client certificate.
	TLS *tls.Config
	// Roundtripper sends the requests. It must not follow redirects or decompress.
	// Default: an http.Transport that the providers of a proxy share.
	Roundtripper http.RoundTripper
}

// resolve fills in defaults and checks all fields.
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

// rule returns the rule by which the provider counts tokens, as named in its description. The
// quota may define its own rule under that name. Default: all tokens.
func (p *Provider) rule() quota.Charge {
	if q, ok := p.Approver.(configured); ok {
		if rule, ok := q.Config().Charges[p.Description.Charge]; ok {
			return rule
		}
	}
	rule, _ := p.Description.Rule()
	return rule
}

// validName reports whether a name can be the first segment of a path without escapes.
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
