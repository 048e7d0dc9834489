package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/forward"
	"github.com/headway-go/headway/internal/quotafile"
)

// section is one mapping of the file. Each method reads one key.
type section struct{ *configfile.Section }

// below returns the section of a key; it is empty if the key is absent.
func (m section) below(key string) section { return section{m.Below(key)} }

// fail reports the value of a key, and what is expected.
func (m section) fail(key, value, bound string) { m.Fail(key, "is %s; want %s", value, bound) }

// store reads the URL of a database, without its password.
func (m section) store(c *Config) {
	c.Store = m.Value("store")
	at := c.Store.Reveal()
	if at == "" {
		return
	}
	u, err := url.Parse(at)
	_, password := "", false
	if err == nil && u.User != nil {
		_, password = u.User.Password()
	}
	switch {
	case err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql":
		m.fail("store", "no URL of a PostgreSQL database", "postgres://user@host:5432/database, or a reference such as ${HEADWAY_STORE}")
	case password && c.Store.String() == at:
		m.fail("store", "a URL with a password in it", "the password in PGPASSWORD or a password file, or the whole URL as ${NAME}")
	}
}

// key reads a reference to a credential.
func (m section) key(key string) Secret { return sendable(m.Take(key), false) }

// header reads a reference to the value of a header, which may contain spaces, such as
// Bearer and a token. Spaces may be percent-encoded, as in OTEL_EXPORTER_OTLP_HEADERS.
func (m section) header(key string) Secret {
	s := m.Secret(key)
	if v := s.Reveal(); !strings.Contains(v, " ") && strings.Contains(v, "%20") {
		if v, err := url.PathUnescape(v); err == nil {
			s = configfile.NewSecret(s.String(), v)
		}
	}
	return sendableAs(m.Take(key), s, true)
}

// sendable reads a reference to a secret that must be valid in a header.
func sendable(n *configfile.Node, spaces bool) Secret { return sendableAs(n, n.Secret(), spaces) }

// sendableAs refuses a secret that is not valid in a header. If spaces are allowed, then
// only between other characters.
func sendableAs(n *configfile.Node, s Secret, spaces bool) Secret {
	v := s.Reveal()
	bad := strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' || c == ' ' && !spaces })
	if bad || v != strings.TrimSpace(v) {
		n.Fail("is %s, whose value has a space or another character that no header takes; want printable ASCII", configfile.Quote(s.String()))
		return Secret{}
	}
	return s
}

// file reads the name of a file, which must exist and be readable.
func (m section) file(key string, into *string) {
	m.Require(key, "the name of a PEM file")
	if m.Text(key, into); *into == "" {
		return
	}
	f, err := os.Open(*into)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err // the path is reported anyway
		}
		m.fail(key, configfile.Quote(*into)+", which cannot be read: "+err.Error(), "a PEM file")
	}
}

// budgetKeys are the environment variables for a budget.
var budgetKeys = []string{
	quotafile.EnvCallsPerMinute, quotafile.EnvBurst, quotafile.EnvAdapt, quotafile.EnvEventBuffer,
	quotafile.EnvLogLevel, quotafile.EnvScaleMin, quotafile.EnvScaleMax,
}

// environment applies the environment variables to the budget at the top level, and to that
// of the only provider, which gets a budget if it has none. file is the name for warnings.
func (c *Config) environment(file string, getenv func(string) string) error {
	var set []string
	for _, key := range budgetKeys {
		if getenv(key) != "" {
			set = append(set, key)
		}
	}
	if len(set) == 0 {
		return nil
	}
	if c.Quota != nil {
		next, err := c.Quota.WithEnv(getenv)
		if err != nil {
			return err
		}
		*c.Quota = next
	}
	if len(c.Providers) == 1 {
		p := &c.Providers[0]
		if p.Quota == nil {
			p.Quota = &quotafile.Settings{}
			p.RefuseUnknown = false
		}
		next, err := p.Quota.WithEnv(getenv)
		if err != nil {
			return err
		}
		*p.Quota = next
		p.complete()
	} else if c.Quota == nil {
		c.Warnings = append(c.Warnings, "environment: "+strings.Join(set, ", ")+
			": not used, since there are several providers and no quota at the top of "+file)
	}
	return nil
}

// maxPrice bounds a price for a million tokens, in any currency.
const maxPrice = 1e6

// prices reads the prices of models' tokens.
func (m section) prices() Prices {
	all := m.below("prices")
	if all.Section == nil {
		return nil
	}
	prices := Prices{}
	for _, f := range all.Fields() {
		if _, err := path.Match(f.Name, ""); err != nil {
			all.File().Fail(f.At, all.Node().Below(f.Name), "is not the name of a model or a glob such as \"gpt-*\"")
			continue
		}
		s := section{f.Node.Section()}
		if s.Section == nil {
			continue
		}
		var p Price
		for _, of := range [...]struct {
			key  string
			into **float64
		}{{"input", &p.Input}, {"cached", &p.Cached}, {"output", &p.Output}} {
			if s.Take(of.key) != nil {
				*of.into = new(float64)
				s.Number(of.key, *of.into, 0, maxPrice)
			}
		}
		s.Done()
		if p == (Price{}) {
			s.fail("input", "missing, as are cached and output", "at least one price for a million tokens")
		}
		prices[f.Name] = p
	}
	return prices
}

// currency reads the currency of all prices, which prices require.
func (m section) currency(c *Config) {
	m.Text("currency", &c.Currency)
	priced := slices.ContainsFunc(c.Providers, func(p Provider) bool { return len(p.Prices) > 0 })
	capitals := !strings.ContainsFunc(c.Currency, func(r rune) bool { return r < 'A' || r > 'Z' })
	switch {
	case m.Has("currency") && (len(c.Currency) != 3 || !capitals):
		m.fail("currency", configfile.Quote(c.Currency), "three capital letters such as USD")
	case priced && c.Currency == "":
		m.fail("currency", "missing", "that of the prices, such as USD")
	}
}

// maxWebhooks is the maximum number of webhooks.
const maxWebhooks = 16

// webhooks reads where events are sent.
func (m section) webhooks() (all []Webhook) {
	for _, n := range m.List("webhooks") {
		s := section{n.Section()}
		if s.Section == nil {
			continue
		}
		var w Webhook
		s.Require("url", "where events are sent, such as https://hooks.example/headway")
		s.Require("secret", "a reference to the secret that signs, such as ${WEBHOOK_SECRET}")
		if u := s.url("url"); u != nil {
			w.URL = u.String()
		}
		w.Secret = s.Secret("secret")
		w.Types = s.Texts("types")
		for i, t := range w.Types {
			if !slices.Contains(events.Types(), t) {
				s.fail(fmt.Sprintf("types[%d]", i), configfile.Quote(t), "one of "+strings.Join(events.Types(), ", "))
			}
		}
		s.Done()
		all = append(all, w)
	}
	if len(all) > maxWebhooks {
		m.Fail("webhooks", "has %d entries; want at most %d", len(all), maxWebhooks)
	}
	return all
}

// forward reads the forward proxy; nil without one.
func (m section) forward(folders []string) *Forward {
	s := m.below("forward")
	if s.Section == nil {
		return nil
	}
	f := &Forward{Listen: DefaultForward, MaxWait: DefaultForwardWait, MaxOutage: forward.DefaultOutage}
	s.Text("listen", &f.Listen)
	if !forward.Loopback(f.Listen) {
		s.fail("listen", configfile.Quote(f.Listen), "an address of this machine alone, such as "+DefaultForward)
	}
	s.Bool("all", &f.All)
	if f.All {
		s.File().Warn(s.Take("all").At, "forward.all decrypts every connection of the programs, those to hosts without limits too; name hosts where you can")
	}
	s.governed(f, folders)
	s.Bool("pass_through", &f.PassThrough)
	for i, method := range s.Texts("resend") {
		if !forward.IsMethod(method) {
			s.fail(fmt.Sprintf("resend[%d]", i), configfile.Quote(method), "a method such as POST")
		}
		f.Resend = append(f.Resend, method)
	}
	s.Duration("max_wait", &f.MaxWait, forward.MinWait, forward.MaxWait)
	s.Duration("max_outage", &f.MaxOutage, forward.MinWait, forward.MaxWait)
	s.Duration("ceiling", &f.Ceiling, forward.MinCeiling, forward.MaxCeiling)
	s.Text("env_file", &f.EnvFile)
	s.Text("authority", &f.Authority)
	s.Done()
	return f
}

// governed reads the hosts of a forward proxy, and the profiles of their providers.
func (m section) governed(f *Forward, folders []string) {
	hosts, refs := m.Texts("hosts"), m.Texts("profiles")
	if len(hosts)+len(refs) == 0 && !f.All {
		m.Want("hosts", "the hosts to govern, such as [api.example.com], or profiles: [github]; all: true governs every host")
	}
	var wrong []*forward.NameError
	f.Rules, wrong = forward.Rules(hosts, refs, folders...)
	for _, e := range wrong {
		switch {
		case e.Profile && e.Index < 0:
			m.Fail("profiles", "has %d entries beside hosts; want at most one, else it is unclear which hosts are whose", len(refs))
		case e.Profile:
			m.fail(fmt.Sprintf("profiles[%d]", e.Index), configfile.Quote(e.Name)+": "+e.Error(), "a profile that \"headway profiles\" lists, or a file")
		default:
			m.Fail(fmt.Sprintf("hosts[%d]", e.Index), "is %s; %v", configfile.Quote(e.Name), e)
		}
	}
}
