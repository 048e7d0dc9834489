package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/profile"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
)

// profile reads which published limits are used. The default is the profile that lists the
// upstream's host.
func (m section) profile(p *Provider, folders []string) {
	up := p.Description.Upstream
	if m.Take("profile") == nil {
		if p.Description.API == provider.HTTP && up != nil && p.Pacing != nil {
			var err error
			if p.Profile, err = profile.OfHost(up.Hostname(), folders...); err != nil {
				m.Node().Fail("has no profile: %v", err)
			}
		}
		return
	}
	var name string
	if m.Text("profile", &name); name == "" || name == "none" {
		return
	}
	switch {
	case p.Description.API != provider.HTTP:
		m.fail("profile", "given for api "+string(p.Description.API), "api http: of the others Headway knows what they say of their limits")
		return
	case p.Pacing == nil:
		m.fail("profile", "given beside pacing: off", "one of both")
		return
	}
	found, err := profile.Find(name, folders...)
	if err != nil {
		m.Take("profile").Fail("is %s: %v", configfile.Quote(name), err)
		return
	}
	p.Profile = found
}

// maxProviders is the maximum number of providers.
const maxProviders = 1000

// reserved are first path segments that the daemon uses itself. "default" is the budget at
// the top level.
var reserved = []string{"v1", "healthz", "readyz", "metrics", "console", "assets", "default"}

func (m section) providers(c *Config, profiles []string) {
	const atLeastOne = "a mapping with at least one provider, unless there is a quota, collections or forward"
	other := m.Has("quota") || m.Has("collections") || m.Has("forward")
	all := m.below("providers")
	if all.Section == nil {
		if !m.Has("providers") && !other {
			m.Want("providers", atLeastOne)
		}
		return
	}
	if len(all.Fields()) == 0 && !other {
		m.fail("providers", "empty", atLeastOne)
	}
	if len(all.Fields()) > maxProviders {
		m.Fail("providers", "has %d entries; want at most %d", len(all.Fields()), maxProviders)
		return
	}
	for _, f := range all.Fields() {
		path := all.Node().Below(f.Name)
		switch {
		case !plainName(f.Name):
			m.File().Fail(f.At, path, "is not a name for a path; want 1 to 64 of a-z, 0-9 and -, beginning with a letter or digit")
			continue
		case slices.Contains(reserved, f.Name):
			m.File().Fail(f.At, path, "is taken by the daemon itself; want another name than %s", strings.Join(reserved, ", "))
			continue
		}
		if s := (section{f.Node.Section()}); s.Section != nil {
			c.Providers = append(c.Providers, s.provider(f.Name, profiles))
			s.Done()
		}
	}
}

func plainName(name string) bool {
	for i, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0) {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

func (m section) provider(name string, profiles []string) Provider {
	p := Provider{Name: name, CallTimeout: DefaultCallTimeout, MaxWait: DefaultMaxWait, MaxBody: DefaultMaxBody}
	m.description(&p)
	m.credential(&p)
	m.Duration("call_timeout", &p.CallTimeout, time.Second, 24*time.Hour)
	for _, f := range []struct {
		key  string
		into *time.Duration
	}{
		{"response_header_timeout", &p.ResponseHeaderTimeout}, {"idle_timeout", &p.IdleTimeout},
		{"dial_timeout", &p.DialTimeout}, {"tls_timeout", &p.TLSTimeout}, {"body_timeout", &p.BodyTimeout},
	} {
		m.Duration(f.key, f.into, time.Millisecond, 24*time.Hour)
	}
	m.upstreamTLS(&p)
	configfile.OneOf(m.Section, "inject_usage", &p.InjectUsage, egress.InjectAuto, egress.InjectAlways, egress.InjectNever)
	m.Duration("max_wait", &p.MaxWait, time.Millisecond, time.Hour)
	m.Size("max_body", &p.MaxBody, 1<<10, 1<<30)
	if p.MaxUpload = egress.DefaultMaxUpload; m.Has("max_body") {
		p.MaxUpload = p.MaxBody
	}
	m.Size("max_upload", &p.MaxUpload, 1<<10, 64<<30)
	configfile.Int(m.Section, "retries", &p.Retries, 0, 10)
	m.circuit(&p.Circuit)
	m.pacing(&p)
	m.fleet(&p)
	m.profile(&p, profiles)
	p.Prices = m.prices()
	if n := m.Take("quota"); n != nil {
		q := quotafile.Section(n)
		p.Quota = &q
		p.RefuseUnknown = !defaultAllow(p.Quota)
		if _, ok := p.rule(); !ok && p.Description.Charge != "" {
			m.fail("charge", configfile.Quote(p.Description.Charge), "the name of a charge rule: a standard one, or one of quota.charges")
		}
	}
	switch n := m.Take("unknown_models"); {
	case n == nil:
	case p.Quota == nil:
		m.Want("unknown_models", "it left out where there is no quota: then every model is served")
	default:
		configfile.Choice(m.Section, "unknown_models", &p.RefuseUnknown, map[string]bool{"allow": false, "refuse": true}, "allow", "refuse")
	}
	p.complete()
	return p
}

// defaultAllow reports whether the budget lists no models, which means all of them.
func defaultAllow(s *quotafile.Settings) bool {
	_, other := s.Quota.Models[OtherModels]
	return other || len(s.Quota.Models) == 0
}

// rule returns the charge rule for models without one.
func (p *Provider) rule() (rule quota.Charge, ok bool) {
	if rule, ok = p.Quota.Quota.Charges[p.Description.Charge]; ok {
		return rule, true
	}
	return p.Description.Rule()
}

// complete sets the charge rule of the provider's API for models without one, and adds an
// entry for unlisted models. Limits per minute are assumed to be the provider's, whose way
// of counting is unknown. So they are spread, unless a burst is given or the file has
// spread: false.
func (p *Provider) complete() {
	if p.Quota == nil {
		return
	}
	models := make(map[string]quota.Model, len(p.Quota.Quota.Models)+1)
	for name, m := range p.Quota.Quota.Models {
		m.Charge = cmp.Or(m.Charge, p.Description.Charge)
		m.Spread = m.Spread || !p.Quota.SaysSpread(name)
		models[name] = m
	}
	if _, ok := models[OtherModels]; !ok && !p.RefuseUnknown {
		models[OtherModels] = quota.Model{Charge: p.Description.Charge}
	}
	p.Quota.Quota.Models = models
	if !p.Quota.SaysSpread("") {
		p.Quota.Quota.Global.Spread = true
	}
	// The usage of a call that outlives its permit would be lost.
	p.Quota.Quota.PermitTTLMS = max(p.Quota.Quota.PermitTTLMS, p.CallTimeout.Milliseconds())
}

// description reads the API: a known name, and settings in which the owner's upstream
// differs.
func (m section) description(p *Provider) {
	var names []string
	for _, a := range provider.APIs() {
		names = append(names, string(a))
	}
	var set provider.Settings
	before := m.File().Failed()
	configfile.OneOf(m.Section, "api", &set.API, provider.APIs()...)
	m.Require("api", "one of "+strings.Join(names, ", "))
	m.upstream(&set)
	if s := m.below("auth"); s.Section != nil {
		s.Text("header", &set.AuthHeader)
		s.Text("scheme", &set.AuthScheme)
		s.Text("query", &set.AuthQuery)
		s.Done()
	}
	m.Text("charge", &set.Charge)
	set.RequestHeaders = m.Texts("request_headers")
	set.LimitHeaders = m.Words("limit_headers")
	set.Addresses = m.Texts("addresses")
	if m.File().Failed() > before {
		return // the rest would only repeat these problems
	}
	d, err := provider.New(set)
	if err != nil {
		m.Node().Fail("is not described well: %s", strings.TrimPrefix(err.Error(), "provider: "))
		return
	}
	p.Description = d
}

// fleet reads the provider's mode in a fleet.
func (m section) fleet(p *Provider) {
	p.Fleet = FleetShare
	configfile.OneOf(m.Section, "fleet", &p.Fleet, FleetShare, FleetWait, FleetNone)
	if m.Has("fleet") && p.Pacing == nil && p.Fleet != FleetNone {
		m.fail("fleet", "given beside pacing: off", "one of both: without pacing there is no pace to share")
	}
}

// upstream reads the API's URL. Problems do not show the URL, which may contain a misplaced
// credential.
func (m section) upstream(set *provider.Settings) {
	if !m.Has("upstream") {
		if d, ok := provider.Builtin(set.API); ok && d.Upstream == nil {
			m.Want("upstream", "the http or https URL of the provider's API: api "+string(set.API)+" has none of its own")
		}
	}
	u := m.url("upstream")
	if u == nil {
		return
	}
	n := m.Take("upstream")
	if u.Scheme == "http" && !Loopback(u.Hostname()) {
		m.File().Warn(n.At, "%s: is an http URL: keys and content cross the network in clear", n.Path)
	}
	set.Upstream = n.Value
}

// url reads an API's URL and refuses one with a credential. Problems do not show the URL,
// which may contain one.
func (m section) url(key string) *url.URL {
	var text string
	if m.Text(key, &text); text == "" {
		return nil
	}
	u, err := url.Parse(text)
	bound := ""
	switch {
	case err != nil || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https":
		bound = "an absolute one, with scheme http or https, such as https://api.openai.com"
	case u.Hostname() == "":
		bound = "one with a host, such as https://api.openai.com"
	case u.User != nil:
		bound = "one without user and password: a credential does not stand in a URL"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#"):
		bound = "one without query and fragment"
	case u.Port() != "":
		if _, err := net.LookupPort("tcp", u.Port()); err != nil {
			bound = "one with a port from 1 to 65535"
		}
	}
	if bound != "" {
		m.fail(key, "a URL that cannot be used", bound)
		return nil
	}
	return u
}

// credential reads whose key is sent to the provider. It must be explicit: passing the
// clients' keys on by accident is as bad as lending the owner's.
func (m section) credential(p *Provider) {
	p.Key = m.key("key")
	m.several(p)
	m.Bool("pass_through", &p.PassThrough)
	switch {
	case m.Has("key") && p.PassThrough:
		m.fail("key", "given beside pass_through", "one of both")
	case m.Has("keys") && p.PassThrough:
		m.fail("keys", "given beside pass_through", "one of both")
	case m.Has("keys") && m.Has("key"):
		m.fail("keys", "given beside key", "one of both: make that the first of the keys")
	case !m.Has("key") && !m.Has("keys") && !p.PassThrough:
		m.Want("key", "${NAME} or ${file:PATH}; pass_through: true passes on what clients present")
	}
}

// maxKeys bounds the keys of one provider.
const maxKeys = 100

// several reads a list of keys. A list of one key is like key.
func (m section) several(p *Provider) {
	if m.Take("keys") == nil {
		return
	}
	all := m.List("keys")
	switch n := m.Take("keys"); {
	case n.Kind != configfile.List:
		return // which was reported
	case len(all) == 0:
		n.Fail("is empty; want at least one of ${NAME}, ${file:PATH} or {name: NAME, key: ${NAME}}")
	case len(all) > maxKeys:
		n.Fail("has %d keys; want at most %d", len(all), maxKeys)
		return
	case len(all) > 1:
		m.File().Warn(n.At, "%s: %d keys share the work, each at a rate of its own: list only keys that their owner may use together, since many providers count all keys of an account as one, and some forbid it", n.Path, len(all))
	}
	for i, n := range all {
		k := ProviderKey{Name: strconv.Itoa(i + 1)}
		if n.Kind == configfile.Table && (n.Get("name") != nil || n.Get("key") != nil) {
			s := section{n.Section()}
			s.Text("name", &k.Name)
			s.Require("key", "${NAME} or ${file:PATH}")
			k.Key = s.key("key")
			if !plainName(k.Name) {
				s.fail("name", configfile.Quote(k.Name), "1 to 64 of a-z, 0-9 and -, beginning with a letter or digit")
			}
			s.Done()
		} else {
			k.Key = sendable(n, false)
		}
		for j, other := range p.Keys {
			if other.Name == k.Name {
				n.Fail("is named %s, as keys[%d] is; want a name of its own", k.Name, j)
			}
			if other.Key.Given() && k.Key.Given() && other.Key.Reveal() == k.Key.Reveal() {
				n.Fail("has the secret of keys[%d]; want another key", j)
			}
		}
		p.Keys = append(p.Keys, k)
	}
	if len(p.Keys) == 1 {
		p.Key, p.Keys = p.Keys[0].Key, nil
	}
}

// upstreamTLS reads the certificate authorities to trust and the client certificate.
func (m section) upstreamTLS(p *Provider) {
	s := m.below("tls")
	if s.Section == nil {
		return
	}
	t := &UpstreamTLS{Made: &tls.Config{MinVersion: tls.VersionTLS12}}
	before := m.File().Failed()
	if s.Take("ca") != nil {
		s.file("ca", &t.CA)
	}
	if cert, key := s.Take("cert"), s.Take("key"); cert != nil || key != nil {
		s.file("cert", &t.Cert)
		s.file("key", &t.Key)
	}
	s.Done()
	if t.CA == "" && t.Cert == "" && m.File().Failed() == before {
		s.Node().Fail("is empty; want %s", "{ca: FILE}, {cert: FILE, key: FILE}, or all three")
	}
	if m.File().Failed() > before {
		return
	}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		t.Made.RootCAs = x509.NewCertPool()
		if err != nil || !t.Made.RootCAs.AppendCertsFromPEM(pem) {
			s.fail("ca", configfile.Quote(t.CA)+", in which there is no certificate", "a PEM file of certificates")
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			s.fail("cert", configfile.Quote(t.Cert)+", which does not fit its key", "a PEM file of a certificate, beside the file of its key")
		}
		t.Made.Certificates = []tls.Certificate{pair}
	}
	p.TLS = t
}

// circuit reads the settings of the circuit breakers.
func (m section) circuit(c *egress.Circuit) {
	n := m.Take("circuit")
	switch {
	case n == nil:
		return
	case n.Kind != configfile.Table:
		if c.Off = n.Value == "off" || n.Value == "false"; !c.Off {
			n.Want("off, or a mapping such as {ratio: 0.5, window: 10, open_for: 1m}")
		}
		return
	}
	s := m.below("circuit")
	s.Number("ratio", &c.Ratio, 0, 1)
	configfile.Int(s.Section, "window", &c.Window, 1, 64)
	configfile.Int(s.Section, "minimum", &c.Minimum, 1, 64)
	s.Duration("open_for", &c.OpenFor, time.Millisecond, 24*time.Hour)
	configfile.Int(s.Section, "probes", &c.Probes, 1, 255)
	configfile.Int(s.Section, "max", &c.Max, 1, 1<<16)
	s.Done()
	if _, err := c.Resolve(); err != nil {
		m.fail("circuit", "a shape that does not fit together", strings.TrimPrefix(err.Error(), "breaker: "))
	}
}

func (m section) pacing(p *Provider) {
	n := m.Take("pacing")
	if n != nil && (n.Value == "off" || n.Value == "false") {
		return
	}
	p.Pacing = &Pacing{Law: control.DefaultLaw}
	if n != nil {
		if n.Kind != configfile.Table {
			n.Want("off, or a mapping such as {ceiling: 10ms, law: cycle}")
			return
		}
		s := m.below("pacing")
		configfile.Choice(s.Section, "start", &p.Pacing.Conservative, map[string]bool{"passive": false, "conservative": true}, "passive", "conservative")
		s.Duration("ceiling", &p.Pacing.Ceiling, time.Microsecond, 24*time.Hour)
		s.Duration("initial", &p.Pacing.Initial, time.Microsecond, 24*time.Hour)
		if law := s.Take("law"); law != nil {
			if p.Pacing.Law = law.Value; law.Kind != configfile.Text || !slices.Contains(control.Names(), law.Value) {
				law.Want("one of " + control.Choices(law.Value))
			}
		}
		configfile.Int(s.Section, "max_in_flight", &p.Pacing.MaxInFlight, 0, 100_000)
		s.Done()
	}
	if p.Pacing.Conservative && p.Pacing.Ceiling == 0 {
		p.Pacing.Ceiling = DefaultCeiling
	}
	if !p.Pacing.Conservative && p.Pacing.Initial == 0 {
		p.Pacing.Initial = control.DefaultInitial
	}
	p.Pacing.Initial = max(p.Pacing.Initial, p.Pacing.Ceiling)
}
