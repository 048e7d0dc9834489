package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/internal/yamlnode"
	"github.com/headway-go/headway/quota"
)

// MaxSize is how large a file may be, in bytes.
const MaxSize = quotafile.MaxSize

// Read reads the file's bytes. The name stands for the file in errors, which
// are *[Problem], all of them joined; then the configuration is zero. getenv is
// os.Getenv or anything like it. Bytes that are not a configuration are an error,
// never a panic.
func Read(name string, data []byte, getenv func(string) string) (Config, error) {
	r := &reader{file: yamlnode.Clip(name), getenv: getenv}
	root, problems := quotafile.Root(r.file, "one YAML mapping with keys such as listen and providers", data)
	r.take(problems)
	var c Config
	if root != nil {
		if m := r.section(root, ""); m != nil {
			c = m.config()
			m.done()
		}
	}
	if len(r.problems) == 0 {
		r.environment(&c)
	}
	if err := r.err(); err != nil {
		return Config{}, err
	}
	c.Warnings = r.warnings
	return c, nil
}

func (m *section) config() Config {
	c := Config{
		Listen: DefaultListen, State: DefaultState, Drain: DefaultDrain, MaxConnections: DefaultMaxConnections,
		Log: Log{Level: slog.LevelInfo},
	}
	m.text("listen", &c.Listen)
	if s := m.below("tls"); s != nil {
		c.TLS = &TLS{}
		s.file("cert", &c.TLS.Cert)
		s.file("key", &c.TLS.Key)
		s.done()
	}
	m.boolean("insecure", &c.Insecure)
	c.Hosts = m.texts("hosts")
	m.text("state", &c.State)
	m.duration("drain", &c.Drain, 100*time.Millisecond, time.Hour)
	m.integer("max_connections", &c.MaxConnections, 1, 1_000_000)
	if s := m.below("clients"); s != nil {
		s.duration("body_stall", &c.Clients.BodyStall, time.Second, 24*time.Hour)
		s.size("body_rate", &c.Clients.BodyRate, 1, 1<<30)
		s.duration("answer_stall", &c.Clients.AnswerStall, time.Second, 24*time.Hour)
		s.done()
	}
	if s := m.below("log"); s != nil {
		choice(s, "level", &c.Log.Level, map[string]slog.Level{
			"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
		}, "debug", "info", "warn", "error")
		choice(s, "format", &c.Log.JSON, map[string]bool{"text": false, "json": true}, "text", "json")
		s.done()
	}
	if s := m.below("metrics"); s != nil {
		c.Telemetry = s.telemetry()
		s.done()
	}
	if s := m.below("collections"); s != nil {
		c.Collections = s.collections()
		s.done()
	}
	m.providers(&c)
	if n := m.take("quota"); n != nil {
		c.Quota = m.quota(n, "quota")
		if len(c.Quota.Quota.Models) == 0 { // who lists none means all
			c.Quota.Quota.Models = map[string]quota.Model{OtherModels: {}}
		}
	}
	c.Keys = m.keys("keys", &c, false)
	c.AdminKeys = m.keys("admin_keys", &c, true)
	m.cors(&c)
	m.distinct(&c)
	m.exposure(&c)
	return c
}

// cors reads which web pages may call.
func (m *section) cors(c *Config) {
	s := m.below("cors")
	if s == nil {
		return
	}
	c.CORS = &CORS{MaxAge: 10 * time.Minute, Origins: s.texts("origins")}
	s.duration("max_age", &c.CORS.MaxAge, 0, 24*time.Hour)
	s.done()
	if len(c.CORS.Origins) == 0 {
		m.r.fail(s.node, s.at("origins"), "empty", "a list of origins such as https://app.example")
	}
	for i, origin := range c.CORS.Origins {
		at := fmt.Sprintf("%s[%d]", s.at("origins"), i)
		if origin == "*" {
			if c.Open() {
				m.r.fail(s.node, at, `"*" without keys`, "an origin such as https://app.example: else every web page may call")
			}
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			m.r.fail(s.node, at, yamlnode.Quoted(origin), "scheme and host as browsers name them, such as https://app.example")
		}
	}
}

// collections reads what is collected when. The files themselves are read by
// whoever collects.
func (m *section) collections() *Collections {
	c := &Collections{Schedule: DefaultSchedule, Running: DefaultRunning}
	m.text("dir", &c.Dir)
	if !m.has("dir") {
		m.r.fail(m.node, m.at("dir"), "missing", "the folder of the connection files")
	}
	m.text("schedule", &c.Schedule)
	if _, err := cron.ParseStandard(c.Schedule); err != nil {
		m.r.fail(m.take("schedule"), m.at("schedule"), yamlnode.Quoted(c.Schedule), "five fields such as \"*/15 * * * *\", or \"@every 15m\"")
	}
	m.integer("running", &c.Running, 1, 10_000)
	return c
}

// telemetry reads where traces and metrics go; nil without an otlp section.
func (m *section) telemetry() *Telemetry {
	s := m.below("otlp")
	if s == nil {
		return nil
	}
	t := &Telemetry{Interval: 30 * time.Second, Sample: 1}
	n := s.take("endpoint")
	text, _ := n.(*ast.StringNode)
	switch {
	case n == nil:
		s.r.fail(s.node, s.at("endpoint"), "missing", "the collector's base URL, such as http://localhost:4318")
	case text == nil:
		s.r.fail(n, s.at("endpoint"), shape(n), "a URL")
	default:
		u, bound := upstream(text.Value)
		if bound != "" {
			s.r.fail(n, s.at("endpoint"), "a URL that cannot be used", bound)
			break
		}
		t.Endpoint = u.String()
	}
	if headers := s.below("headers"); headers != nil {
		t.Headers = map[string]Secret{}
		for _, p := range headers.pairs {
			t.Headers[p.name] = headers.headerValue(p.name)
		}
	}
	s.duration("interval", &t.Interval, time.Second, time.Hour)
	s.share("sample", &t.Sample)
	s.done()
	return t
}

// file reads the name of a file, which must be there and readable.
func (m *section) file(key string, into *string) {
	m.text(key, into)
	if *into == "" {
		if !m.has(key) {
			m.r.fail(m.node, m.at(key), "missing", "the name of a PEM file")
		}
		return
	}
	f, err := os.Open(*into)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		m.r.fail(m.take(key), m.at(key), fmt.Sprintf("%s, which cannot be read: %v", yamlnode.Quoted(*into), cause(err)), "a PEM file")
	}
}

func (m *section) quota(n ast.Node, path string) *quotafile.Settings {
	s, problems := quotafile.Section(m.r.file, path, n)
	m.r.take(problems)
	return &s
}

// keys reads a list of keys.
func (m *section) keys(list string, c *Config, admin bool) (all []keys.Key) {
	ids := map[string]bool{}
	for i, n := range m.list(list) {
		path := fmt.Sprintf("%s[%d]", m.at(list), i)
		s := m.r.section(n, path)
		if s == nil {
			continue
		}
		k := keys.Key{Admin: admin}
		s.text("id", &k.ID)
		s.text("hash", &k.Hash)
		if !admin {
			s.text("tenant", &k.Tenant)
			s.text("agent", &k.Agent)
			k.Models = s.texts("models")
			k.Providers = s.texts("providers")
			s.boolean("uploads", &k.Uploads)
			s.integer("priority", &k.Priority, -1000, 1000)
			s.integer("priority_max", &k.PriorityMax, -1000, 1000)
		}
		s.instant("expires", &k.Expires)
		s.done()
		if _, err := keys.New([]keys.Key{k}); err != nil {
			m.r.fail(n, path, "not a key", inner(err))
			continue
		}
		if k.Uploads && len(k.Models) == 0 {
			m.r.fail(n, path+".uploads", "true", "left out where the key has no models: any other key may upload without it")
		}
		if ids[k.ID] {
			m.r.fail(n, path+".id", yamlnode.Quoted(k.ID)+", which another key has too", "unique")
		}
		ids[k.ID] = true
		all = append(all, k)
	}
	if len(all) > keys.MaxKeys {
		m.r.fail(m.take(list), m.at(list), fmt.Sprintf("%d keys", len(all)), fmt.Sprintf("at most %d", keys.MaxKeys))
	}
	return all
}

// inner is what is wrong with the one key, without its number and name.
func inner(err error) string {
	if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) > 0 {
		err = all.Unwrap()[0]
	}
	if e := errors.Unwrap(err); e != nil {
		err = e
	}
	return "one whose every field is good: " + err.Error()
}

// instant reads a date or a date with time and zone.
func (m *section) instant(key string, into *time.Time) {
	var text string
	n := m.take(key)
	if n == nil {
		return
	}
	m.text(key, &text)
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			*into = t
			return
		}
	}
	m.fail(n, key, "a date such as 2027-01-31, or 2027-01-31T18:00:00Z")
}

// distinct refuses a secret that is in both lists: it would be an admin's, and
// stand in the settings of a program that only calls.
func (m *section) distinct(c *Config) {
	hashes := map[string]string{}
	for _, k := range c.AdminKeys {
		m.hash(hashes, "admin_keys", k)
	}
	for _, k := range c.Keys {
		m.hash(hashes, "keys", k)
	}
}

func (m *section) hash(seen map[string]string, list string, k keys.Key) {
	who := fmt.Sprintf("%s %s", list, yamlnode.Quoted(k.ID))
	hash := strings.ToLower(k.Hash)
	if other, ok := seen[hash]; ok {
		m.r.fail(m.take(list), m.at(list), fmt.Sprintf("the hash of %s again, for %s", other, who), "a key of its own for each: headway key new makes one")
		return
	}
	seen[hash] = who
}

// exposure checks who can reach the listener against who is let in.
func (m *section) exposure(c *Config) {
	n := m.take("listen")
	if n == nil {
		n = m.node
	}
	for _, f := range c.exposed() {
		m.r.fail(n, "listen", f[0], f[1])
	}
	if m.has("hosts") && !c.Open() {
		m.fail(m.take("hosts"), "hosts", "left out where there are keys: then any name will do")
	}
	if host, _, _ := net.SplitHostPort(c.Listen); c.TLS == nil && c.Insecure && !Loopback(host) {
		m.r.warn(n, "listen is %s without tls: keys and content cross the network in clear", yamlnode.Clip(c.Listen))
	}
}

// ListenOn replaces the address to listen on, as a command line may ask for. The
// error says what it would take.
func (c *Config) ListenOn(address string) error {
	c.Listen = address
	var errs []error
	for _, f := range c.exposed() {
		errs = append(errs, &Problem{File: "command line", Field: "listen", Value: f[0], Bound: f[1]})
	}
	return errors.Join(errs...)
}

// exposed says, as value and bound, what is wrong with the address.
func (c *Config) exposed() (wrong [][2]string) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return [][2]string{{yamlnode.Quoted(c.Listen), "HOST:PORT, such as 127.0.0.1:8700"}}
	}
	if Loopback(host) {
		return nil
	}
	reached := yamlnode.Quoted(c.Listen) + ", which other machines can reach, without "
	if len(c.Keys) == 0 || len(c.AdminKeys) == 0 {
		missing := "keys"
		if len(c.Keys) > 0 {
			missing = "admin_keys"
		}
		wrong = append(wrong, [2]string{reached + missing,
			"a loopback address such as 127.0.0.1:" + port + ", or go with keys and admin_keys: headway key new makes them"})
	}
	if c.TLS == nil && !c.Insecure {
		wrong = append(wrong, [2]string{reached + "tls",
			"a loopback address, or go with tls: {cert: FILE, key: FILE}; insecure: true is your word that something else encrypts"})
	}
	return wrong
}

// Loopback reports whether only this machine reaches a host of an address to
// listen on: localhost, a loopback address, or none, which stands for 127.0.0.1.
func Loopback(host string) bool {
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
