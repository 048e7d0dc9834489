package target

import (
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/dispatch"
)

var (
	named      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	versioned  = regexp.MustCompile(`^[0-9]{1,2}\.[0-9]{1,2}$`)
)

// section is one mapping of the file. Each method reads one key.
type section struct{ *configfile.Section }

func (s section) below(key string) section { return section{s.Below(key)} }

// config reads the file.
func (s section) config(c *Config) {
	s.match("target", &c.Name, named, "a name of at most 64 letters, digits, dots, dashes and underscores")
	s.Require("target", "a name such as crm")
	c.Fleet = s.Take("fleet").Fleet()
	c.Timeout = s.duration("timeout", DefaultTimeout, 24*time.Hour)
	c.Headers, c.written = s.below("headers").headers()
	c.Params = s.below("load").load()
	h, d := s.below("http"), s.below("dataverse")
	switch {
	case s.Has("http") && s.Has("dataverse"):
		s.Node().Fail("describes http and dataverse; want one of them")
	case !s.Has("http") && !s.Has("dataverse"):
		s.Node().Fail("describes neither http nor dataverse; want one of them")
	case h.Section != nil:
		c.HTTP = h.http()
		h.Done()
	case d.Section != nil:
		c.Dataverse = d.dataverse()
		d.Done()
	}
	c.Identities = s.identities()
}

func (s section) identities() (all []Identity) {
	auth, list := s.below("auth"), s.List("identities")
	if len(list) == 0 {
		return []Identity{{Name: "default", Auth: auth.auth()}}
	}
	if s.Has("auth") {
		s.Fail("auth", "stands beside identities: give each of them its auth")
	}
	if len(list) > 64 {
		s.Fail("identities", "has %d entries; want at most 64", len(list))
	}
	for _, n := range list {
		id := section{n.Section()}
		if id.Section == nil {
			continue
		}
		var name string
		id.match("name", &name, named, "a name of letters, digits, dots, dashes and underscores")
		id.Require("name", "a name of its own")
		if slices.ContainsFunc(all, func(o Identity) bool { return o.Name == name }) {
			id.Fail("name", "is %q, which another identity has", name)
		}
		all = append(all, Identity{name, id.below("auth").auth()})
		id.Done()
	}
	return all
}

func (s section) http() *HTTP {
	h := &HTTP{Method: http.MethodPost}
	s.Bool("single", &h.Single)
	configfile.Int(s.Section, "max_rows", &h.MaxRows, 0, maxCount)
	configfile.Int(s.Section, "max_bytes", &h.MaxBytes, 0, maxCount)
	if h.Single {
		h.MaxRows = 1
	}
	s.Text("url", &h.template)
	h.URL = s.url("url")
	switch {
	case h.URL == nil:
	case placeholder.MatchString(host(h.template)):
		s.Fail("url", "has a field of the row as its host")
	case !h.Single && placeholder.MatchString(h.template):
		s.Fail("url", "has a field of the row, which a request for many rows cannot have: set single: true")
	}
	configfile.OneOf(s.Section, "method", &h.Method, http.MethodPost, http.MethodPut, http.MethodPatch)
	h.Body = s.body(h.Single)
	h.KeyHeader, h.Resend = s.resend()
	a := s.below("answer")
	h.Answer = Answer{
		Rows: a.expr("rows"), Success: a.expr("success"), Code: a.expr("code"), Message: a.expr("message"),
		Divide: []int{http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity},
	}
	if a.Has("divide") {
		h.Answer.Divide = nil
	}
	for _, n := range a.List("divide") {
		status, ok := n.Int()
		if !ok || status < 400 || status > 499 {
			n.Want("a status from 400 to 499")
		}
		h.Answer.Divide = append(h.Answer.Divide, int(status))
	}
	a.Done()
	return h
}

func (s section) resend() (keyHeader string, r dispatch.Resend) {
	keyHeader = s.headerName("key_header")
	if r = dispatch.ResendNothing; keyHeader != "" && !s.Has("resend") {
		r = dispatch.ResendWhole
	}
	configfile.Choice(s.Section, "resend", &r, map[string]dispatch.Resend{
		"never": dispatch.ResendNothing, "with_key": dispatch.ResendWhole, "any": dispatch.ResendAny,
	}, "never (twice is two rows)", "with_key (the server knows a batch by its key)", "any (an upsert)")
	if n := s.Take("resend"); n != nil && n.Value == "with_key" {
		s.Require("key_header", "the header of the idempotency key; resend: with_key needs it")
	}
	return keyHeader, r
}

func (s section) dataverse() *Dataverse {
	d := &Dataverse{URL: s.url("url"), Version: "9.2", MaxRows: 1000}
	if d.URL != nil && strings.Trim(d.URL.Path, "/") != "" {
		s.Fail("url", "has the path %q; want the environment alone, such as https://contoso.crm.dynamics.com", d.URL.Path)
	}
	if n := s.Take("version"); n != nil {
		if d.Version = n.Written; !versioned.MatchString(d.Version) {
			n.Want("a version such as 9.2")
		}
	}
	const name = "a name of letters, digits and underscores (table: contacts, type: contact)"
	s.match("table", &d.Table, identifier, name)
	s.match("type", &d.Type, identifier, name)
	s.Require("table", name)
	s.Require("type", name)
	for _, n := range s.List("key") {
		if n.Kind != configfile.Text || !identifier.MatchString(n.Value) {
			n.Want("the name of a column")
		}
		d.Key = append(d.Key, n.Value)
	}
	configfile.OneOf(s.Section, "operation", &d.Operation, Create, Update, Upsert)
	s.Require("operation", "create, update or upsert")
	if d.Operation == Create && len(d.Key) > 0 {
		s.Fail("key", "is for update and upsert; create has none")
	}
	if configfile.Int(s.Section, "max_rows", &d.MaxRows, 0, maxCount); d.MaxRows == 0 {
		d.MaxRows = 1000
	}
	return d
}

// maxCount bounds numbers of rows, bytes and attempts.
const maxCount = 1 << 30

// load reads the parameters of the load.
func (s section) load() (p dispatch.Params) {
	if s.Section == nil {
		return p
	}
	day := 24 * time.Hour
	configfile.Int(s.Section, "batch_rows", &p.BatchRows, 0, maxCount)
	configfile.Int(s.Section, "batch_bytes", &p.BatchBytes, 0, maxCount)
	configfile.Int(s.Section, "first_rows", &p.FirstRows, 0, maxCount)
	configfile.Int(s.Section, "max_rejects", &p.MaxRejects, 0, math.MaxInt64)
	configfile.Int(s.Section, "attempts", &p.Backoff.Attempts, 0, maxCount)
	p.TargetTime = s.duration("target_time", 0, day)
	p.StallTimeout = s.duration("patience", s.duration("stall_timeout", 0, 366*day), 366*day)
	if s.Has("stall_timeout") && s.Has("patience") {
		s.Fail("patience", "is the former name of stall_timeout; give only that")
	}
	if l := s.below("parallelism"); l.Section != nil {
		l.Bool("disabled", &p.Law.Disabled)
		for _, f := range []struct {
			key  string
			into *int
		}{
			{"max", &p.Law.Max}, {"ceiling", &p.Law.Ceiling}, {"min", &p.Law.Min}, {"increase", &p.Law.Increase},
			{"stabilization_batches", &p.Law.StabilizationBatches}, {"recovery_multiplier", &p.Law.RecoveryMultiplier},
		} {
			configfile.Int(l.Section, f.key, f.into, 0, maxCount)
		}
		l.Number("initial_factor", &p.Law.InitialFactor, 0, 1)
		l.Number("decrease_factor", &p.Law.DecreaseFactor, 0, 1)
		p.Law.MinIncreaseInterval = l.duration("min_increase_interval", 0, day)
		p.Law.LastKnownGoodTTL = l.duration("last_known_good_ttl", 0, day)
		p.Law.IdleReset = l.duration("idle_reset", 0, day)
		p.Law.BusyBudget = l.duration("busy_budget", 0, day)
		p.Law.BusyWindow = l.duration("busy_window", 0, day)
		l.Done()
	}
	s.Done()
	if _, err := p.Resolve(); err != nil {
		s.Node().Fail("%v", err)
	}
	return p
}

// match reads a text that matches a pattern.
func (s section) match(key string, into *string, shape *regexp.Regexp, bound string) {
	if s.Text(key, into); *into != "" && !shape.MatchString(*into) {
		s.Want(key, bound)
	}
}

// duration reads a length of time above 0.
func (s section) duration(key string, unset, limit time.Duration) time.Duration {
	s.Duration(key, &unset, 1, limit)
	return unset
}

// host returns the host of a URL template.
func host(template string) string {
	_, rest, _ := strings.Cut(template, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return rest
}

// url reads a URL, which may contain fields of the row.
func (s section) url(key string) *url.URL {
	var text string
	s.Require(key, "a URL such as https://api.example.com/contacts")
	if s.Text(key, &text); text == "" {
		return nil
	}
	u, err := url.Parse(placeholder.ReplaceAllString(text, "x"))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		s.Fail(key, "is not a URL; want one such as https://api.example.com/contacts")
		return nil
	case u.User != nil:
		s.Fail(key, "holds a login: put it under auth")
	case u.Fragment != "":
		s.Fail(key, "has a fragment, which is never sent: remove it")
	}
	return u
}

// own are headers that the owner must not set.
var own = []string{"Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection", "Te", "Trailer", "Upgrade", "Accept-Encoding"}

func (s section) headers() (h, written http.Header) {
	h, written = http.Header{}, http.Header{}
	for _, f := range s.Fields() {
		key := http.CanonicalHeaderKey(f.Name)
		switch {
		case !headerName(f.Name):
			s.Fail(f.Name, "is not a header name")
		case slices.Contains(own, key):
			s.Fail(f.Name, "is a header that the target itself sets: remove it")
		case slices.Contains([]string{"Authorization", "Cookie"}, key):
			s.Fail(f.Name, "is a credential: put it under auth")
		}
		v := s.Value(f.Name)
		h.Set(key, v.Reveal())
		written.Set(key, v.String())
	}
	return h, written
}

// headerName reads the name of a header.
func (s section) headerName(key string) (name string) {
	if s.Text(key, &name); name != "" && !headerName(name) {
		s.Fail(key, "is not a header name")
	}
	return name
}

// headerName reports whether s is a token of RFC 9110, section 5.6.2.
func headerName(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}) < 0
}
