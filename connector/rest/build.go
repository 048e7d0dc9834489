package rest

import (
	"cmp"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/retry"
)

// builder makes a Config from a file's nodes and reports problems that the schema cannot
// express. A node that is absent or of the wrong type gives the zero value; the schema has
// reported it.
type builder struct {
	*configfile.File
	names *[]naming // of streams
	env   Env
}

func (b builder) config(root *node) *Config {
	c := &Config{
		Name:     b.name(root.Get("connection"), 64),
		Provider: b.provider(root.Get("provider")),
		Run:      b.run(root.Get("run")),
		Sink:     b.sink(root.Get("sink")),
	}
	seen := map[string]string{}
	if list := root.Get("streams"); list != nil {
		for _, n := range list.Items {
			c.Streams = append(c.Streams, b.stream(n, c.Provider.Auth, seen))
		}
	}
	b.pools(root.Get("provider"), c)
	if list := root.Get("errors"); list != nil {
		for _, n := range list.Items {
			c.Errors = append(c.Errors, b.rule(n))
		}
	}
	return c
}

func (b builder) run(n *node) Run {
	r := Run{
		MaxRequests:  b.maxRequests(n.Get("max_requests")),
		CatchupPages: b.catchupPages(n.Get("catchup_pages")),
		MaxWallClock: b.maxWallClock(n.Get("max_wall_clock")),
		Concurrency:  b.concurrency(n.Get("concurrency")),

		Schedule: b.timetable(n.Get("schedule")), CatchupSchedule: b.timetable(n.Get("catchup_schedule")),
	}
	return r
}

// timetable reads a cron expression.
func (b builder) timetable(n *node) string {
	s := b.text(n)
	if s == "" {
		return ""
	}
	if _, err := cron.ParseStandard(s); err != nil {
		n.Fail("%s; want five fields such as \"*/15 * * * *\", or \"@every 15m\" (%v)", n.Is(), err)
	}
	return s
}

func (b builder) sink(n *node) Sink {
	folder := func(n *node) string { return cmp.Or(b.text(n.Get("dir")), DefaultDir) }
	switch {
	case n.Get("sqlite") != nil:
		return Sink{SQLite: &SQLite{File: b.text(n.Get("sqlite").Get("file"))}}
	case n.Get("parquet") != nil:
		return Sink{Parquet: &Parquet{Dir: folder(n.Get("parquet"))}}
	case n.Get("postgres") != nil:
		p := n.Get("postgres")
		return Sink{Postgres: &Postgres{URL: b.database(p.Get("url")), Schema: b.text(p.Get("schema"))}}
	case n.Get("singer") != nil:
		return Sink{Singer: &Singer{}}
	case n.Get("airbyte") != nil:
		return Sink{Airbyte: &Airbyte{}}
	}
	return Sink{JSONL: &JSONL{Dir: folder(n.Get("jsonl"))}}
}

// database reads the URL of a database, without its password.
func (b builder) database(n *node) Value {
	v := b.value(n)
	if v.Reveal() == "" || b.Covered(n.Path) {
		return v
	}
	u, err := url.Parse(v.Reveal())
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		n.Fail("is not the URL of a PostgreSQL database; want postgres://user@host:5432/database, or a reference such as ${RECORDS_URL}")
		return v
	}
	if _, password := u.User.Password(); password && v.String() == v.Reveal() {
		n.Fail("has a password written out; want the whole URL as ${NAME}, or the password in PGPASSWORD or a password file")
	}
	return v
}

// name reads a name, which may contain variables.
func (b builder) name(n *node, hi int) string {
	s := b.text(n)
	bad := strings.IndexFunc(s, func(c rune) bool {
		return c != '.' && c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
	if s != "" && (bad >= 0 || len(s) > hi || strings.Trim(s[:1], ".-_") == "") {
		n.Fail("%s; want at most %d letters, digits, dots, dashes and underscores after a letter or digit", n.Is(), hi)
	}
	return s
}

// text reads a text, or a number where a text is allowed.
func (b builder) text(n *node) string {
	if n == nil || n.Kind == configfile.List || n.Kind == configfile.Table {
		return ""
	}
	return n.Value
}

func (b builder) expr(n *node) *Expr {
	s := b.text(n)
	if s == "" {
		return nil
	}
	e, err := compile(s)
	switch {
	case err != nil && n.References():
		n.Fail("is %s, whose value is not a jq expression (not shown)", configfile.Quote(n.Written))
	case err != nil:
		n.Fail("is not a jq expression: %v", err)
	}
	return e
}

func (b builder) duration(n *node, unset, lo, hi time.Duration) time.Duration {
	s := b.text(n)
	if s == "" {
		return unset
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		n.Want("a duration with a unit, such as 250ms, 20s or 15m")
	case d < lo || d > hi:
		n.Fail("%s; want from %s to %s", n.Is(), figure.Duration(lo), figure.Duration(hi))
	}
	return d
}

func (b builder) count(n *node, unset, hi int64) int64 {
	s := b.text(n)
	if s == "" {
		return unset
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 0 || v > hi {
		n.Fail("%s; want a whole number of at most %d", n.Is(), hi)
	}
	return v
}

func (b builder) bytes(n *node) int64 {
	s := b.text(n)
	if s == "" {
		return DefaultMaxBody
	}
	unit := int64(1)
	for suffix, size := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = rest, size
			break
		}
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 1 || v > (1<<30)/unit {
		n.Want("a size from 1 byte to 1GiB, such as 65536 or 64MiB")
		return DefaultMaxBody
	}
	return v * unit
}

func (b builder) value(n *node) Value {
	if n == nil || n.Kind == configfile.List || n.Kind == configfile.Table {
		return Value{}
	}
	return configfile.NewSecret(n.Written, n.Value)
}

func (b builder) auth(n *node) Auth {
	switch {
	case n.Get("bearer") != nil:
		return Auth{Kind: BearerAuth, Secret: b.secret(n.Get("bearer"))}
	case n.Get("header") != nil:
		h := n.Get("header")
		return Auth{Kind: HeaderAuth, Name: b.headerName(h.Get("name")), Secret: b.secret(h.Get("value"))}
	case n.Get("query") != nil:
		q := n.Get("query")
		return Auth{Kind: QueryAuth, Name: b.text(q.Get("name")), Secret: b.secret(q.Get("value"))}
	case n.Get("oauth2") != nil:
		return Auth{Kind: OAuth2Auth, OAuth2: b.oauth2(n.Get("oauth2"))}
	default:
		return Auth{Kind: NoAuth}
	}
}

func (b builder) oauth2(n *node) *OAuth2 {
	o := &OAuth2{
		TokenURL:     b.url(n.Get("token_url")),
		Grant:        b.text(n.Get("grant")),
		ClientID:     b.value(n.Get("client_id")),
		ClientSecret: b.secret(n.Get("client_secret")),
		RefreshToken: b.secret(n.Get("refresh_token")),
		TokenFile:    b.text(n.Get("token_file")),
	}
	if list := n.Get("scopes"); list != nil {
		for _, s := range list.Items {
			o.Scopes = append(o.Scopes, b.text(s))
		}
	}
	if o.Grant == "" {
		o.Grant = "client_credentials"
		if n.Get("refresh_token") != nil {
			o.Grant = "refresh_token"
		}
	}
	need := map[string]string{"client_credentials": "client_secret", "refresh_token": "refresh_token"}[o.Grant]
	if need != "" && n.Get(need) == nil {
		b.Fail(n.At, n.Below(need), "is missing; grant %s needs it", o.Grant)
	}
	return o
}

// secret resolves a reference; the schema allows nothing else.
func (b builder) secret(n *node) Value {
	if n == nil || b.Covered(n.Path) {
		return Value{}
	}
	return n.Secret()
}

// Circuit configures when nothing is sent to a provider that keeps failing.
type Circuit struct {
	// Config is the circuit's configuration. Zero fields mean the defaults of package
	// breaker.
	breaker.Config
	// Off disables the circuit.
	Off bool
}

// circuit reads provider.circuit.
func (b builder) circuit(n *node) Circuit {
	if n == nil || n.Kind != configfile.Table {
		return Circuit{Off: b.text(n) == "off"}
	}
	c := Circuit{Config: breaker.Config{
		Ratio:   b.fraction(n.Get("ratio")),
		Window:  int(b.count(n.Get("window"), 0, 64)),
		Minimum: int(b.count(n.Get("minimum"), 0, 64)),
		OpenFor: b.duration(n.Get("open_for"), 0, time.Millisecond, 24*time.Hour),
		Probes:  int(b.count(n.Get("probes"), 0, 255)),
	}}
	if r, _ := (breaker.Config{Window: c.Window}).Resolve(); c.Minimum > r.Window && r.Window > 0 {
		at := n.Get("minimum")
		at.Fail("%s; want at most the window of %d", at.Is(), r.Window)
	}
	return c
}

// retryBudget reads provider.retry.budget.
func (b builder) retryBudget(n *node) retry.Limits {
	if n == nil {
		return retry.Limits{}
	}
	l := retry.Limits{
		Start:      int(b.count(n.Get("start"), 0, 1_000_000)),
		Capacity:   int(b.count(n.Get("capacity"), 0, 1_000_000)),
		PerSuccess: int(b.fraction(n.Get("per_success"))*1000 + 0.5),
	}
	if l.Capacity > 0 && l.Start > l.Capacity {
		at := n.Get("start")
		at.Fail("%s; want at most the capacity of %d", at.Is(), l.Capacity)
	}
	return l
}

// fraction reads a number above 0 and at most 1, in thousandths; 0 if it is absent.
func (b builder) fraction(n *node) float64 {
	s := b.text(n)
	if s == "" {
		return 0
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0.001 && v <= 1) {
		n.Want("a number from 0.001 to 1, such as 0.5")
		return 0
	}
	return v
}

func (b builder) headerName(n *node) string {
	s := b.text(n)
	if s != "" && !headerToken(s) {
		n.Fail("is not a header name: want letters, digits and dashes")
	}
	return textproto.CanonicalMIMEHeaderKey(s)
}

// headers reads headers. Those that hold credentials must be references.
func (b builder) headers(n *node) map[string]Value {
	if n == nil || len(n.Fields) == 0 {
		return nil
	}
	out := make(map[string]Value, len(n.Fields))
	for _, f := range n.Fields {
		name, path := http.CanonicalHeaderKey(f.Name), n.Below(f.Name)
		v := b.value(f.Node)
		_, twice := out[name]
		switch {
		case !headerToken(f.Name):
			b.Fail(f.At, path, "is not a header name: want letters, digits and dashes")
		case slices.Contains(hopHeaders, name):
			b.Fail(f.At, path, "is a header that the connection itself sets: remove it")
		case twice:
			b.Fail(f.At, path, "is set twice: header names do not differ by case")
		case !headerText(v.Reveal()):
			b.Fail(f.Node.At, path, "has a value that a header cannot hold: it has a line break or another control character")
		case sounds(name) && !f.Node.References() && v.Reveal() != "":
			b.Fail(f.Node.At, path, "is written out, and sounds like a secret; want a reference such as ${API_TOKEN}, best under provider.auth")
		}
		out[name] = v
	}
	return out
}

// hopHeaders are set by the HTTP client.
var hopHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Te", "Trailer", "Upgrade", "Accept-Encoding"}

// secretNames are words in the names of headers and parameters for credentials.
var secretNames = []string{"authorization", "cookie", "token", "secret", "password", "apikey", "api-key", "api_key"}

func sounds(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretNames, func(s string) bool { return strings.HasSuffix(name, s) })
}

func headerText(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) < 0
}

// headerToken reports whether s is a token of RFC 9110, section 5.6.2.
func headerToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}) < 0
}

func (b builder) query(n *node, auth Auth) map[string]Value {
	if n == nil || len(n.Fields) == 0 {
		return nil
	}
	out := make(map[string]Value, len(n.Fields))
	for _, f := range n.Fields {
		path := n.Below(f.Name)
		switch v := b.value(f.Node); {
		case auth.Kind == QueryAuth && f.Name == auth.Name:
			b.Fail(f.At, path, "provider.auth sends this parameter: remove it here")
		case sounds(f.Name) && !pageToken(f.Name) && !f.Node.References() && v.Reveal() != "":
			b.Fail(f.Node.At, path, "is written out, and sounds like a secret; want a reference such as ${API_TOKEN}, best under provider.auth.query")
		}
		out[f.Name] = b.value(f.Node)
	}
	return out
}

// pageToken reports whether a parameter named *token* is a position in a list and not a
// credential.
func pageToken(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "page") || strings.Contains(name, "sync") || strings.Contains(name, "next")
}
