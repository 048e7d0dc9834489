package target

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/span"
	"github.com/headway-go/headway/retry"
)

var (
	named      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	versioned  = regexp.MustCompile(`^[0-9]{1,2}\.[0-9]{1,2}$`)
)

// config makes the configuration and reports what is wrong.
func (r *report) config(raw *rawFile) *Config {
	c := &Config{
		Name: raw.Target, Params: r.params(&raw.Load),
		Timeout: r.duration(raw.Timeout, "timeout", DefaultTimeout),
	}
	c.Headers, c.written = r.headers(raw.Headers)
	if !named.MatchString(raw.Target) {
		r.add("target", "is %q, must be a name of at most 64 letters, digits, dots, dashes and underscores", raw.Target)
	}
	switch {
	case (raw.HTTP == nil) == (raw.Dataverse == nil):
		r.add("", "must describe either http or dataverse")
	case raw.HTTP != nil:
		c.HTTP = r.http(raw.HTTP)
	default:
		c.Dataverse = r.dataverse(raw.Dataverse)
	}
	c.Identities = r.identities(raw)
	return c
}

func (r *report) identities(raw *rawFile) []Identity {
	if len(raw.Identities) == 0 {
		return []Identity{{Name: "default", Auth: r.auth(raw.Auth, "auth")}}
	}
	if raw.Auth != nil {
		r.add("auth", "stands beside identities: give each of them its auth")
	}
	if len(raw.Identities) > 64 {
		r.add("identities", "has %d, at most 64", len(raw.Identities))
	}
	var all []Identity
	for i, id := range raw.Identities {
		field := fmt.Sprintf("identities[%d]", i)
		switch {
		case !named.MatchString(id.Name):
			r.add(field+".name", "is %q, must be a name of letters, digits, dots, dashes and underscores", id.Name)
		case slices.ContainsFunc(all, func(o Identity) bool { return o.Name == id.Name }):
			r.add(field+".name", "is %q, which another identity has", id.Name)
		}
		all = append(all, Identity{id.Name, r.auth(id.Auth, field+".auth")})
	}
	return all
}

func (r *report) http(raw *rawHTTP) *HTTP {
	h := &HTTP{
		Single: raw.Single, MaxRows: r.count(raw.MaxRows, "http.max_rows"), MaxBytes: r.count(raw.MaxBytes, "http.max_bytes"),
		Method: cmp.Or(raw.Method, http.MethodPost), KeyHeader: raw.KeyHeader, template: raw.URL,
	}
	if h.Single {
		h.MaxRows = 1
	}
	h.URL = r.url(placeholder.ReplaceAllString(raw.URL, "x"), "http.url")
	if h.URL != nil && placeholder.MatchString(h.URL.Host) {
		r.add("http.url", "has a field of the row as its host")
	}
	if !h.Single && placeholder.MatchString(raw.URL) {
		r.add("http.url", "has a field of the row, which a request for many rows cannot have: set single: true")
	}
	if !slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, h.Method) {
		r.add("http.method", "is %q, must be POST, PUT or PATCH", h.Method)
	}
	h.Body = r.body(raw.Body, h.Single)
	h.Resend = r.resend(raw)
	if a := raw.Answer; a != nil {
		h.Answer = Answer{
			Rows: r.expr(a.Rows, "http.answer.rows"), Success: r.expr(a.Success, "http.answer.success"),
			Code: r.expr(a.Code, "http.answer.code"), Message: r.expr(a.Message, "http.answer.message"), Divide: a.Divide,
		}
		for _, status := range a.Divide {
			if status < 400 || status > 499 {
				r.add("http.answer.divide", "has %d, must have statuses from 400 to 499", status)
			}
		}
	}
	if raw.Answer == nil || raw.Answer.Divide == nil {
		h.Answer.Divide = []int{http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity}
	}
	return h
}

func (r *report) resend(raw *rawHTTP) dispatch.Resend {
	if raw.KeyHeader != "" && !headerName(raw.KeyHeader) {
		r.add("http.key_header", "is not a header name")
	}
	switch raw.Resend {
	case "never", "":
		if raw.Resend == "" && raw.KeyHeader != "" {
			return dispatch.ResendWhole
		}
		return dispatch.ResendNothing
	case "with_key":
		if raw.KeyHeader == "" {
			r.add("http.key_header", "is missing; resend: with_key needs it")
		}
		return dispatch.ResendWhole
	case "any":
		return dispatch.ResendAny
	}
	r.add("http.resend", "is %q, must be never (twice is two rows), with_key (the server knows a batch by its key) or any (an upsert)", raw.Resend)
	return dispatch.ResendNothing
}

func (r *report) dataverse(raw *rawDataverse) *Dataverse {
	d := &Dataverse{
		URL: r.url(raw.URL, "dataverse.url"), Version: cmp.Or(raw.Version, "9.2"), Table: raw.Table, Type: raw.Type,
		Operation: Operation(raw.Operation), Key: raw.Key, MaxRows: cmp.Or(r.count(raw.MaxRows, "dataverse.max_rows"), 1000),
	}
	if d.URL != nil && strings.Trim(d.URL.Path, "/") != "" {
		r.add("dataverse.url", "has the path %q; want the environment alone, such as https://contoso.crm.dynamics.com", d.URL.Path)
	}
	if !versioned.MatchString(d.Version) {
		r.add("dataverse.version", "is %q, must be a version such as 9.2", d.Version)
	}
	for _, f := range []struct{ name, value string }{{"table", d.Table}, {"type", d.Type}} {
		if !identifier.MatchString(f.value) {
			r.add("dataverse."+f.name, "is %q, must be a name of letters, digits and underscores (table: contacts, type: contact)", f.value)
		}
	}
	for _, k := range d.Key {
		if !identifier.MatchString(k) {
			r.add("dataverse.key", "has %q, must have names of columns", k)
		}
	}
	switch d.Operation {
	case Create:
		if len(d.Key) > 0 {
			r.add("dataverse.key", "is for update and upsert; create has none")
		}
	case Update, Upsert:
	default:
		r.add("dataverse.operation", "is %q, must be create, update or upsert", raw.Operation)
	}
	return d
}

func (r *report) params(raw *rawLoad) dispatch.Params {
	law := raw.Parallelism
	p := dispatch.Params{
		BatchRows: raw.BatchRows, BatchBytes: raw.BatchBytes, FirstRows: raw.FirstRows, MaxRejects: raw.MaxRejects,
		TargetTime: r.duration(raw.TargetTime, "load.target_time", 0), StallTimeout: r.stallTimeout(raw),
		Backoff: retry.Backoff{Attempts: raw.Attempts},
		Law: control.ParallelismParams{
			Disabled: law.Disabled, Max: law.Max, Ceiling: law.Ceiling, Min: law.Min, InitialFactor: law.Initial,
			Increase: law.Increase, DecreaseFactor: law.Decrease, StabilizationBatches: law.Batches, RecoveryMultiplier: law.Recovery,
			MinIncreaseInterval: r.duration(law.Interval, "load.parallelism.min_increase_interval", 0),
			LastKnownGoodTTL:    r.duration(law.TTL, "load.parallelism.last_known_good_ttl", 0),
			IdleReset:           r.duration(law.IdleReset, "load.parallelism.idle_reset", 0),
			BusyBudget:          r.duration(law.BusyBudget, "load.parallelism.busy_budget", 0),
			BusyWindow:          r.duration(law.BusyWindow, "load.parallelism.busy_window", 0),
		},
	}
	if _, err := p.Resolve(); err != nil {
		r.add("load", "%v", err)
	}
	return p
}

// stallTimeout reads load.stall_timeout, or load.patience, its former name.
func (r *report) stallTimeout(raw *rawLoad) time.Duration {
	text, field := raw.StallTimeout, "load.stall_timeout"
	if raw.Patience != "" {
		if text != "" {
			r.add("load.patience", "is the former name of stall_timeout; give only that")
		}
		text, field = raw.Patience, "load.patience"
	}
	return r.upTo(366*24*time.Hour, text, field, 0)
}

func (r *report) duration(text, field string, unset time.Duration) time.Duration {
	return r.upTo(24*time.Hour, text, field, unset)
}

func (r *report) upTo(limit time.Duration, text, field string, unset time.Duration) time.Duration {
	if text == "" {
		return unset
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > limit {
		r.add(field, "is %q, must be a duration up to %s with a unit, such as 10s or 5m", text, span.Text(limit))
		return unset
	}
	return d
}

func (r *report) count(n int, field string) int {
	if n < 0 || n > 1<<30 {
		r.add(field, "is %d, must be from 1 to %d", n, 1<<30)
		return 0
	}
	return n
}

func (r *report) url(text, field string) *url.URL {
	u, err := url.Parse(text)
	switch {
	case text == "":
		r.add(field, "is missing")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		r.add(field, "is not a URL such as https://api.example.com/contacts")
		return nil
	case u.User != nil:
		r.add(field, "holds a login: put it under auth")
	case u.Fragment != "":
		r.add(field, "has a fragment, which is never sent: remove it")
	}
	return u
}

// own are the headers that are not the owner's to set.
var own = []string{"Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection", "Te", "Trailer", "Upgrade", "Accept-Encoding"}

func (r *report) headers(raw map[string]string) (h, written http.Header) {
	h, written = http.Header{}, http.Header{}
	for name, value := range raw {
		field, key := "headers."+name, http.CanonicalHeaderKey(name)
		switch {
		case !headerName(name):
			r.add(field, "is not a header name")
		case slices.Contains(own, key):
			r.add(field, "is a header that the target itself sets: remove it")
		case slices.Contains([]string{"Authorization", "Cookie"}, key):
			r.add(field, "is a credential: put it under auth")
		}
		h.Set(key, r.checked(r.filled(value, field), field).Reveal())
		written.Set(key, value)
	}
	return h, written
}

// headerName reports whether s is a token of RFC 9110, section 5.6.2.
func headerName(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}) < 0
}
