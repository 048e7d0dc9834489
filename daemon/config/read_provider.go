package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/internal/yamlnode"
	"github.com/headway-go/headway/quota"
)

// maxProviders bounds what one daemon proxies.
const maxProviders = 1000

// reserved are first segments of paths that the daemon serves itself.
// "default" is the budget at the top.
var reserved = []string{"v1", "healthz", "readyz", "metrics", "console", "assets", "default"}

func (m *section) providers(c *Config) {
	all := m.below("providers")
	if all == nil {
		if !m.has("providers") && !m.has("quota") && !m.has("collections") {
			m.r.fail(m.node, "providers", "missing", "a mapping with at least one provider, unless there is a quota or collections")
		}
		return
	}
	if len(all.pairs) == 0 && !m.has("quota") && !m.has("collections") {
		m.r.fail(all.node, "providers", "empty", "a mapping with at least one provider, unless there is a quota or collections")
	}
	if len(all.pairs) > maxProviders {
		m.r.fail(all.node, "providers", fmt.Sprintf("%d entries", len(all.pairs)), fmt.Sprintf("at most %d", maxProviders))
		return
	}
	for i := range all.pairs {
		p := &all.pairs[i]
		p.taken = true
		path := all.at(yamlnode.Clip(p.name))
		switch {
		case !plainName(p.name):
			m.r.fail(p.key, path, "not a name for a path", "1 to 64 of a-z, 0-9 and -, and begin with a letter or digit")
			continue
		case slices.Contains(reserved, p.name):
			m.r.fail(p.key, path, "taken by the daemon itself", "another name than "+strings.Join(reserved, ", "))
			continue
		}
		if s := m.r.section(p.value, path); s != nil {
			c.Providers = append(c.Providers, s.provider(p.name))
			s.done()
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

func (m *section) provider(name string) Provider {
	p := Provider{Name: name, CallTimeout: DefaultCallTimeout, MaxWait: DefaultMaxWait, MaxBody: DefaultMaxBody}
	m.description(&p)
	m.credential(&p)
	m.duration("call_timeout", &p.CallTimeout, time.Second, 24*time.Hour)
	for _, f := range []struct {
		key  string
		into *time.Duration
	}{
		{"response_header_timeout", &p.ResponseHeaderTimeout}, {"idle_timeout", &p.IdleTimeout},
		{"dial_timeout", &p.DialTimeout}, {"tls_timeout", &p.TLSTimeout}, {"body_timeout", &p.BodyTimeout},
	} {
		m.duration(f.key, f.into, time.Millisecond, 24*time.Hour)
	}
	m.upstreamTLS(&p)
	choice(m, "inject_usage", &p.InjectUsage, map[string]egress.InjectUsage{
		"auto": egress.InjectAuto, "always": egress.InjectAlways, "never": egress.InjectNever,
	}, "auto", "always", "never")
	m.duration("max_wait", &p.MaxWait, time.Millisecond, time.Hour)
	m.size("max_body", &p.MaxBody, 1<<10, 1<<30)
	if p.MaxUpload = egress.DefaultMaxUpload; m.has("max_body") {
		p.MaxUpload = p.MaxBody
	}
	m.size("max_upload", &p.MaxUpload, 1<<10, 64<<30)
	m.integer("retries", &p.Retries, 0, 10)
	m.circuit(&p.Circuit)
	m.pacing(&p)
	if n := m.take("quota"); n != nil {
		p.Quota = m.quota(n, m.at("quota"))
		p.RefuseUnknown = !defaultAllow(p.Quota)
		if _, ok := p.rule(); !ok && p.Description.Charge != "" {
			m.r.fail(n, m.at("charge"), yamlnode.Quoted(p.Description.Charge), "the name of a charge rule: a standard one, or one of quota.charges")
		}
	}
	switch n := m.take("unknown_models"); {
	case n == nil:
	case p.Quota == nil:
		m.fail(n, "unknown_models", "left out where there is no quota: then every model is served")
	default:
		choice(m, "unknown_models", &p.RefuseUnknown, map[string]bool{"allow": false, "refuse": true}, "allow", "refuse")
	}
	p.complete()
	return p
}

// defaultAllow: who lists no models means all of them.
func defaultAllow(s *quotafile.Settings) bool {
	_, other := s.Quota.Models[OtherModels]
	return other || len(s.Quota.Models) == 0
}

// rule is the charge rule of models that name none.
func (p *Provider) rule() (rule quota.Charge, ok bool) {
	if rule, ok = p.Quota.Quota.Charges[p.Description.Charge]; ok {
		return rule, true
	}
	return p.Description.Rule()
}

// complete gives models without a charge rule that of the provider's API, and
// those that are not listed an entry. Limits by the minute are taken for the
// provider's own, which nobody knows how it counts: they are spread, unless a burst
// is given, or the file says spread: false.
func (p *Provider) complete() {
	if p.Quota == nil {
		return
	}
	models := make(map[string]quota.Model, len(p.Quota.Quota.Models)+1)
	for name, m := range p.Quota.Quota.Models {
		if m.Charge == "" {
			m.Charge = p.Description.Charge
		}
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
	// A permit that ends before its call would forget what the call used.
	p.Quota.Quota.PermitTTLMS = max(p.Quota.Quota.PermitTTLMS, p.CallTimeout.Milliseconds())
}

// description reads what the API is like: a name that is known, and where the
// owner's differs.
func (m *section) description(p *Provider) {
	apis := make(map[string]provider.API)
	var order []string
	for _, a := range provider.APIs() {
		apis[string(a)] = a
		order = append(order, string(a))
	}
	var set provider.Settings
	before := len(m.r.problems)
	choice(m, "api", &set.API, apis, order...)
	if !m.has("api") {
		m.r.fail(m.node, m.at("api"), "missing", "one of "+strings.Join(order, ", "))
	}
	m.upstream(&set)
	if s := m.below("auth"); s != nil {
		s.text("header", &set.AuthHeader)
		s.text("scheme", &set.AuthScheme)
		s.text("query", &set.AuthQuery)
		s.done()
	}
	m.text("charge", &set.Charge)
	set.RequestHeaders = m.texts("request_headers")
	set.LimitHeaders = m.words("limit_headers")
	set.Addresses = m.texts("addresses")
	if len(m.r.problems) > before {
		return // what follows would only repeat them
	}
	d, err := provider.New(set)
	if err != nil {
		m.r.fail(m.node, m.path, "not described well", strings.TrimPrefix(err.Error(), "provider: "))
		return
	}
	p.Description = d
}

// upstream reads where the API is. The URL is not repeated in a problem: what is
// wrong with it may be a credential in it.
func (m *section) upstream(set *provider.Settings) {
	n := m.take("upstream")
	if n == nil {
		if d, ok := provider.Builtin(set.API); ok && d.Upstream == nil {
			m.r.fail(m.node, m.at("upstream"), "missing", "the http or https URL of the provider's API: api "+string(set.API)+" has none of its own")
		}
		return
	}
	s, ok := n.(*ast.StringNode)
	if !ok {
		m.r.fail(n, m.at("upstream"), shape(n), "a URL")
		return
	}
	u, bound := upstream(s.Value)
	if bound != "" {
		m.r.fail(n, m.at("upstream"), "a URL that cannot be used", bound)
		return
	}
	if u.Scheme == "http" && !Loopback(u.Hostname()) {
		m.r.warn(n, "%s is an http URL: keys and content cross the network in clear", m.at("upstream"))
	}
	set.Upstream = s.Value
}

// upstream reads the URL of an API; bound says what it must be when it is invalid.
func upstream(text string) (_ *url.URL, bound string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, "absolute, with scheme http or https, such as https://api.openai.com"
	case u.Hostname() == "":
		return nil, "one with a host, such as https://api.openai.com"
	case u.User != nil:
		return nil, "without user and password; the key belongs into key: {env: NAME}"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#"):
		return nil, "without query and fragment"
	}
	if port := u.Port(); port != "" {
		if _, err := net.LookupPort("tcp", port); err != nil {
			return nil, "with a port from 1 to 65535"
		}
	}
	return u, ""
}

// credential reads whose key goes to the provider. That has to be said: a proxy
// that passes keys on by accident is as bad as one that lends its own.
func (m *section) credential(p *Provider) {
	p.Key = m.secret("key")
	m.boolean("pass_through", &p.PassThrough)
	switch {
	case m.has("key") && p.PassThrough:
		m.r.fail(m.node, m.at("key"), "given beside pass_through", "one of both")
	case !m.has("key") && !p.PassThrough:
		m.r.fail(m.node, m.at("key"), "missing", "{env: NAME} or {file: PATH}; pass_through: true passes on what clients present")
	}
}

// upstreamTLS reads whom to trust, and what to show.
func (m *section) upstreamTLS(p *Provider) {
	s := m.below("tls")
	if s == nil {
		return
	}
	t := &UpstreamTLS{Made: &tls.Config{MinVersion: tls.VersionTLS12}}
	before := len(m.r.problems)
	if s.has("ca") {
		s.file("ca", &t.CA)
	}
	if s.has("cert") || s.has("key") {
		s.file("cert", &t.Cert)
		s.file("key", &t.Key)
	}
	if s.take("ca"); t.CA == "" && t.Cert == "" && len(m.r.problems) == before {
		m.r.fail(s.node, s.path, "empty", "{ca: FILE}, {cert: FILE, key: FILE}, or all three")
	}
	s.done()
	if len(m.r.problems) > before {
		return
	}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		t.Made.RootCAs = x509.NewCertPool()
		if err != nil || !t.Made.RootCAs.AppendCertsFromPEM(pem) {
			m.r.fail(s.take("ca"), s.at("ca"), yamlnode.Quoted(t.CA)+", in which there is no certificate", "a PEM file of certificates")
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			m.r.fail(s.take("cert"), s.at("cert"), yamlnode.Quoted(t.Cert)+", which does not fit its key", "a PEM file of a certificate, beside the file of its key")
		}
		t.Made.Certificates = []tls.Certificate{pair}
	}
	p.TLS = t
}

// circuit reads when a provider that keeps failing is left alone.
func (m *section) circuit(c *egress.Circuit) {
	switch n := m.take("circuit").(type) {
	case nil:
		return
	case *ast.StringNode, *ast.BoolNode:
		if c.Off = n.GetToken().Value == "off" || n.GetToken().Value == "false"; !c.Off {
			m.fail(n, "circuit", "off, or a mapping such as {ratio: 0.5, window: 10, open_for: 1m}")
		}
		return
	}
	s := m.below("circuit")
	if s == nil {
		return
	}
	s.share("ratio", &c.Ratio)
	s.integer("window", &c.Window, 1, 64)
	s.integer("minimum", &c.Minimum, 1, 64)
	s.duration("open_for", &c.OpenFor, time.Millisecond, 24*time.Hour)
	s.integer("probes", &c.Probes, 1, 255)
	s.integer("max", &c.Max, 1, 1<<16)
	s.done()
	if _, err := c.Resolve(); err != nil {
		m.r.fail(m.take("circuit"), m.at("circuit"), "a shape that does not fit together", strings.TrimPrefix(err.Error(), "breaker: "))
	}
}

func (m *section) pacing(p *Provider) {
	n := m.take("pacing")
	switch v := n.(type) {
	case *ast.StringNode:
		if v.Value == "off" {
			return
		}
	case *ast.BoolNode:
		if !v.Value {
			return
		}
	}
	p.Pacing = &Pacing{Ceiling: DefaultCeiling, Law: control.DefaultLaw}
	if n != nil {
		switch n.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
		default:
			m.fail(n, "pacing", "off, or a mapping such as {ceiling: 10ms, law: envelope}")
			return
		}
		s := m.r.section(n, m.at("pacing"))
		s.duration("ceiling", &p.Pacing.Ceiling, time.Microsecond, 24*time.Hour)
		s.duration("initial", &p.Pacing.Initial, time.Microsecond, 24*time.Hour)
		laws := make(map[string]string)
		for _, law := range control.Names() {
			laws[law] = law
		}
		choice(s, "law", &p.Pacing.Law, laws, slices.Sorted(maps.Keys(laws))...)
		s.integer("max_in_flight", &p.Pacing.MaxInFlight, 0, 100_000)
		s.done()
	}
	p.Pacing.Initial = max(p.Pacing.Initial, p.Pacing.Ceiling)
}
