package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/profile"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
)

// MaxSize is the maximum size of a file, in bytes.
const MaxSize = quotafile.MaxSize

// Read parses a file. name stands for the file in errors. The error is an [*Error] with all
// problems; then the configuration is the zero value. getenv is os.Getenv or a function
// like it. Read does not panic, whatever the bytes.
func Read(name string, data []byte, getenv func(string) string) (Config, error) {
	root, file := configfile.Parse(name, data, configfile.Options{
		What: "configuration", Want: "keys such as listen and providers",
		Env: func(name string) (string, bool) { v := getenv(name); return v, v != "" },
	})
	var profiles []string // folders of user profiles
	if dir := getenv(profile.FolderVariable); dir != "" {
		profiles = append(profiles, dir)
	}
	var c Config
	if m := root.Section(); m != nil {
		c = section{m}.config(profiles)
		m.Done()
	}
	if err := file.Err(); err != nil {
		return Config{}, err
	}
	c.Warnings = file.Warnings()
	if err := c.environment(name, getenv); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (m section) config(profiles []string) Config {
	c := Config{
		Listen: DefaultListen, State: DefaultState, Drain: DefaultDrain, MaxConnections: DefaultMaxConnections,
		Log: Log{Level: slog.LevelInfo},
	}
	m.Text("listen", &c.Listen)
	if s := m.below("tls"); s.Section != nil {
		c.TLS = &TLS{}
		s.file("cert", &c.TLS.Cert)
		s.file("key", &c.TLS.Key)
		s.Done()
	}
	m.Bool("insecure", &c.Insecure)
	console := true
	m.Bool("console", &console)
	c.NoConsole = !console
	c.Hosts = m.Texts("hosts")
	m.Text("state", &c.State)
	m.store(&c)
	c.Fleet = m.Take("fleet").Fleet()
	m.Duration("drain", &c.Drain, 100*time.Millisecond, time.Hour)
	configfile.Int(m.Section, "max_connections", &c.MaxConnections, 1, 1_000_000)
	if s := m.below("clients"); s.Section != nil {
		s.Duration("body_stall", &c.Clients.BodyStall, time.Second, 24*time.Hour)
		s.Size("body_rate", &c.Clients.BodyRate, 1, 1<<30)
		s.Duration("answer_stall", &c.Clients.AnswerStall, time.Second, 24*time.Hour)
		s.Done()
	}
	if s := m.below("log"); s.Section != nil {
		configfile.Choice(s.Section, "level", &c.Log.Level, map[string]slog.Level{
			"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
		}, "debug", "info", "warn", "error")
		configfile.Choice(s.Section, "format", &c.Log.JSON, map[string]bool{"text": false, "json": true}, "text", "json")
		s.Text("access", &c.Log.Access)
		s.Done()
	}
	if s := m.below("metrics"); s.Section != nil {
		c.Telemetry = s.telemetry()
		s.Done()
	}
	c.Webhooks = m.webhooks()
	c.Forward = m.forward(profiles)
	if s := m.below("collections"); s.Section != nil {
		c.Collections = s.collections()
		s.Done()
	}
	m.providers(&c, profiles)
	m.currency(&c)
	if n := m.Take("quota"); n != nil {
		q := quotafile.Section(n)
		c.Quota = &q
		if len(c.Quota.Quota.Models) == 0 { // a budget that lists no models applies to all
			c.Quota.Quota.Models = map[string]quota.Model{OtherModels: {}}
		}
	}
	for _, k := range m.keys("keys", false) {
		switch k.Role {
		case "":
			c.Keys = append(c.Keys, k)
		case Admin:
			c.AdminKeys = append(c.AdminKeys, k)
		default:
			c.ViewKeys = append(c.ViewKeys, k)
		}
	}
	c.AdminKeys = append(c.AdminKeys, m.keys("admin_keys", true)...)
	m.cors(&c)
	m.distinct(&c)
	m.exposure(&c)
	return c
}

// cors reads which web pages may call the daemon.
func (m section) cors(c *Config) {
	s := m.below("cors")
	if s.Section == nil {
		return
	}
	c.CORS = &CORS{MaxAge: 10 * time.Minute, Origins: s.Texts("origins")}
	s.Duration("max_age", &c.CORS.MaxAge, 0, 24*time.Hour)
	s.Done()
	if len(c.CORS.Origins) == 0 {
		s.fail("origins", "empty", "a list of origins such as https://app.example")
	}
	for i, origin := range c.CORS.Origins {
		at := fmt.Sprintf("origins[%d]", i)
		if origin == "*" {
			if c.Open() {
				s.fail(at, `"*" without keys`, "an origin such as https://app.example: else every web page may call")
			}
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			s.fail(at, configfile.Quote(origin), "scheme and host as browsers name them, such as https://app.example")
		}
	}
}

// collections reads the folder and schedule of collections. The scheduler reads the
// connection files.
func (m section) collections() *Collections {
	c := &Collections{Schedule: DefaultSchedule, Running: DefaultRunning}
	m.Text("dir", &c.Dir)
	m.Require("dir", "the folder of the connection files")
	m.Text("schedule", &c.Schedule)
	if _, err := cron.ParseStandard(c.Schedule); err != nil {
		m.fail("schedule", configfile.Quote(c.Schedule), "five fields such as \"*/15 * * * *\", or \"@every 15m\"")
	}
	configfile.Int(m.Section, "running", &c.Running, 1, 10_000)
	return c
}

// telemetry reads where traces and metrics are sent; nil without an otlp section.
func (m section) telemetry() *Telemetry {
	s := m.below("otlp")
	if s.Section == nil {
		return nil
	}
	t := &Telemetry{Interval: 30 * time.Second, Sample: 1}
	s.Require("endpoint", "the collector's base URL, such as http://localhost:4318")
	if u := s.url("endpoint"); u != nil {
		t.Endpoint = u.String()
	}
	if headers := s.below("headers"); headers.Section != nil {
		t.Headers = map[string]Secret{}
		for _, f := range headers.Fields() {
			t.Headers[f.Name] = headers.header(f.Name)
		}
	}
	s.Duration("interval", &t.Interval, time.Second, time.Hour)
	s.Number("sample", &t.Sample, 0, 1)
	s.Done()
	return t
}

// keys reads a list of keys.
func (m section) keys(list string, admin bool) (all []keys.Key) {
	ids := map[string]bool{}
	for _, n := range m.List(list) {
		s := section{n.Section()}
		if s.Section == nil {
			continue
		}
		var k keys.Key
		if admin {
			k.Role = Admin
		} else {
			configfile.OneOf(s.Section, "role", &k.Role, Viewer, Operator, Admin)
		}
		s.Text("id", &k.ID)
		k.Hash = s.Value("hash").Reveal()
		if k.Role == "" {
			s.Text("tenant", &k.Tenant)
			s.Text("agent", &k.Agent)
			k.Models = s.Texts("models")
			k.Providers = s.Texts("providers")
			s.Bool("uploads", &k.Uploads)
			configfile.Int(s.Section, "priority", &k.Priority, -1000, 1000)
			configfile.Int(s.Section, "priority_max", &k.PriorityMax, -1000, 1000)
		}
		s.instant("expires", &k.Expires)
		s.Done()
		if _, err := keys.New([]keys.Key{k}); err != nil {
			n.Fail("is not a key; want %s", inner(err))
			continue
		}
		if k.Uploads && len(k.Models) == 0 {
			s.fail("uploads", "true", "it left out where the key has no models: any other key may upload without it")
		}
		if ids[k.ID] {
			s.fail("id", configfile.Quote(k.ID)+", which another key has too", "a unique one")
		}
		ids[k.ID] = true
		all = append(all, k)
	}
	if len(all) > keys.MaxKeys {
		m.Fail(list, "has %d keys; want at most %d", len(all), keys.MaxKeys)
	}
	return all
}

// inner returns the problem of a key, without the key's number and name.
func inner(err error) string {
	if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) > 0 {
		err = all.Unwrap()[0]
	}
	if e := errors.Unwrap(err); e != nil {
		err = e
	}
	return "one whose every field is good: " + err.Error()
}

// instant reads a date, or a date with time and zone.
func (m section) instant(key string, into *time.Time) {
	var text string
	n := m.Take(key)
	if n == nil {
		return
	}
	m.Text(key, &text)
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			*into = t
			return
		}
	}
	n.Want("a date such as 2027-01-31, or 2027-01-31T18:00:00Z")
}

// distinct refuses a secret that two keys have: an admin's secret would be in the settings
// of a program that only makes calls. It also refuses an id that two keys with roles have,
// since the audit log identifies them by it.
func (m section) distinct(c *Config) {
	hashes, ids := map[string]string{}, map[string]bool{}
	for _, k := range slices.Concat(c.AdminKeys, c.ViewKeys) {
		m.hash(hashes, "admin_keys", k)
		if ids[k.ID] {
			m.fail("keys", "the id "+configfile.Quote(k.ID)+" of two keys with a role", "an id of its own for each")
		}
		ids[k.ID] = true
	}
	for _, k := range c.Keys {
		m.hash(hashes, "keys", k)
	}
}

func (m section) hash(seen map[string]string, list string, k keys.Key) {
	who := fmt.Sprintf("%s %s", list, configfile.Quote(k.ID))
	hash := strings.ToLower(k.Hash)
	if other, ok := seen[hash]; ok {
		m.fail(list, fmt.Sprintf("the hash of %s again, for %s", other, who), "a key of its own for each: headway key new makes one")
		return
	}
	seen[hash] = who
}

// exposure checks that keys and TLS are configured if other machines can reach the
// listener.
func (m section) exposure(c *Config) {
	if value, bound := c.exposed(); value != "" {
		m.fail("listen", value, bound)
	}
	if m.Has("hosts") && !c.Open() {
		m.Want("hosts", "it left out where there are keys: then any name will do")
	}
	if host, _, _ := net.SplitHostPort(c.Listen); c.TLS == nil && c.Insecure && !Loopback(host) {
		at := m.Node().At
		if n := m.Take("listen"); n != nil {
			at = n.At
		}
		m.File().Warn(at, "listen: is %s without tls: keys and content cross the network in clear", configfile.Quote(c.Listen))
	}
}

// ListenOn replaces the address to listen on, for a command-line flag. The error says what
// the address requires.
func (c *Config) ListenOn(address string) error {
	c.Listen = address
	file := configfile.NewFile("command line", configfile.Options{})
	if value, bound := c.exposed(); value != "" {
		file.Fail(configfile.Place{}, "listen", "is %s; want %s", value, bound)
	}
	return file.Err()
}

// exposed returns what is wrong with the address, and what is required; "" if nothing is.
func (c *Config) exposed() (value, bound string) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return configfile.Quote(c.Listen), "HOST:PORT, such as 127.0.0.1:8700"
	}
	if Loopback(host) {
		return "", ""
	}
	var missing, with []string
	if len(c.Keys) == 0 || len(c.AdminKeys) == 0 {
		if missing = []string{"keys"}; len(c.Keys) > 0 {
			missing[0] = "admin_keys"
		}
		with = append(with, "keys and admin_keys (headway key new makes them)")
	}
	if c.TLS == nil && !c.Insecure {
		missing = append(missing, "tls")
		with = append(with, "tls: {cert: FILE, key: FILE} (insecure: true is your word that something else encrypts)")
	}
	if len(missing) == 0 {
		return "", ""
	}
	return configfile.Quote(c.Listen) + ", which other machines can reach, without " + strings.Join(missing, " and without "),
		"a loopback address such as 127.0.0.1:" + port + ", or " + strings.Join(with, ", and ")
}

// Loopback reports whether only this machine can reach a listener on a host: localhost, a
// loopback address, or "", which means 127.0.0.1.
func Loopback(host string) bool {
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
