package rest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/retry"
)

// Plan describes what a run of a connection would do, for people and programs. It contains
// no secret.
type Plan struct {
	Connection string `json:"connection"`
	BaseURL    string `json:"base_url"`
	// Auth is the source of the credential: "bearer from ${CHAT_TOKEN}".
	Auth string `json:"auth"`
	// Profile is the profile of published limits, with its pools; "" without one.
	Profile string `json:"profile,omitempty"`
	// CeilingMS is the shortest time between two requests, and CeilingPerMin is the same as
	// a rate.
	CeilingMS     float64 `json:"ceiling_ms"`
	CeilingPerMin float64 `json:"ceiling_per_min"`
	// InitialMS is the time between requests before a rate is learned.
	InitialMS float64 `json:"initial_ms"`
	Law       string  `json:"law"`
	// Retries describes the bounds on the retries of one request and of a run, and Circuit
	// when requests to a failing provider stop.
	Retries string       `json:"retries"`
	Circuit string       `json:"circuit"`
	Streams []StreamPlan `json:"streams"`
	// Schedule and CatchupSchedule are when a long-running process runs it; "" means that
	// the file has no schedule.
	Schedule        string `json:"schedule,omitempty"`
	CatchupSchedule string `json:"catchup_schedule,omitempty"`
	// Bounds are the caps on one run; empty if there are none.
	Bounds []string `json:"bounds,omitempty"`
	Sink   string   `json:"sink"`
	// Warnings are what the owner should know before a run.
	Warnings []string `json:"warnings,omitempty"`
}

// StreamPlan describes one stream of a [Plan].
type StreamPlan struct {
	Name string `json:"name"`
	// Request is the request for the first page: "GET /v1/items?limit=100".
	Request string   `json:"request"`
	Paging  PageKind `json:"paging"`
	// Records and Key are the expressions.
	Records string `json:"records"`
	Key     string `json:"key"`
	// Incremental describes how changes are requested; "" means not at all.
	Incremental string `json:"incremental,omitempty"`
	// DetailStream is the stream of the details, and Detail the request for one.
	DetailStream string `json:"detail_stream,omitempty"`
	Detail       string `json:"detail,omitempty"`
	// Pool and DetailPool are the pools whose limits requests share; "" means the account.
	Pool       string `json:"pool,omitempty"`
	DetailPool string `json:"detail_pool,omitempty"`
}

// Describe returns what a run would do.
func Describe(cfg *Config) Plan {
	pr := cfg.Provider
	ceiling := cmp.Or(pr.Ceiling, control.DefaultCeiling)
	initial := max(cmp.Or(pr.Pacing.Initial, control.DefaultInitial), ceiling)
	p := Plan{
		Connection: cfg.Name,
		Auth:       pr.credentials(),
		Profile:    published(pr.Profile),
		CeilingMS:  milliseconds(ceiling), CeilingPerMin: float64(time.Minute) / float64(ceiling),
		InitialMS: milliseconds(initial),
		Law:       cmp.Or(pr.Pacing.Law, control.DefaultLaw),
		Retries:   pr.Retry.describe(cfg.Run.MaxRequests),
		Circuit:   pr.Circuit.String(),
		Sink:      cfg.Sink.String(),
		Warnings:  append(slices.Clone(cfg.warnings), pr.warnings(ceiling)...),
		Schedule:  cfg.Run.Schedule, CatchupSchedule: cfg.Run.CatchupSchedule,
	}
	if pr.BaseURL != nil {
		p.BaseURL = pr.BaseURL.String()
	}
	for _, s := range cfg.Streams {
		p.Streams = append(p.Streams, s.plan())
		p.Warnings = append(p.Warnings, s.warnings()...)
	}
	if cfg.Run.CatchupPages > 0 {
		p.Bounds = append(p.Bounds, fmt.Sprintf("at most %s pages of each stream's past", figure.Count(cfg.Run.CatchupPages)))
	}
	if cfg.Run.MaxRequests > 0 {
		p.Bounds = append(p.Bounds, fmt.Sprintf("at most %s requests", figure.Count(cfg.Run.MaxRequests)))
	}
	if cfg.Run.MaxWallClock > 0 {
		p.Bounds = append(p.Bounds, fmt.Sprintf("at most %s", figure.Duration(cfg.Run.MaxWallClock)))
	}
	return p
}

// published describes a profile.
func published(p *Profile) string {
	if p == nil {
		return ""
	}
	text := cmp.Or(p.File(), p.Name()) + ", " + p.Title()
	if pools := p.Pools(); len(pools) > 0 {
		text += "; pools " + strings.Join(pools, ", ")
	}
	if path := p.Ask(); path != "" {
		text += "; limits asked for at " + path
	}
	return text
}

// credentials describes the source of all credentials.
func (p Provider) credentials() string {
	if len(p.Keys) == 0 {
		return p.Auth.String()
	}
	var all []string
	for _, k := range p.Keys {
		all = append(all, fmt.Sprintf("key %s: %s", k.Name, k.Auth))
	}
	return strings.Join(all, "; ")
}

// String describes the credential and its source, never its value.
func (a Auth) String() string {
	switch a.Kind {
	case BearerAuth:
		return "bearer from " + a.Secret.String()
	case HeaderAuth:
		return fmt.Sprintf("header %s from %s", a.Name, a.Secret)
	case QueryAuth:
		return fmt.Sprintf("query parameter %s from %s", a.Name, a.Secret)
	case OAuth2Auth:
		from := a.OAuth2.ClientSecret
		if a.OAuth2.Grant == "refresh_token" {
			from = a.OAuth2.RefreshToken
		}
		host := ""
		if a.OAuth2.TokenURL != nil {
			host = a.OAuth2.TokenURL.Host
		}
		return fmt.Sprintf("oauth2 %s from %s at %s", a.OAuth2.Grant, from, host)
	default:
		return "none"
	}
}

// describe describes the retries of one request, and their bound in a run.
func (r Retry) describe(maxRequests int64) string {
	limits := r.Budget
	limits.MaxRequests = maxRequests
	backoff, err := retry.Backoff{Base: r.Base, Cap: r.Cap, Attempts: r.Attempts}.Resolve()
	budget, wrong := limits.Resolve()
	if err != nil || wrong != nil {
		return "" // a config from a file has been checked
	}
	if backoff.Attempts == 1 {
		return "none: each request is sent once"
	}
	return fmt.Sprintf("up to %d attempts a request; in a run %s retries at first, %s more for each success, at most %s at a time",
		backoff.Attempts, figure.Count(int64(budget.Start)), strconv.FormatFloat(float64(budget.PerSuccess)/1000, 'f', -1, 64), figure.Count(int64(budget.Capacity)))
}

// String describes when the circuit opens, and for how long.
func (c Circuit) String() string {
	r, err := c.Resolve()
	switch {
	case c.Off:
		return "off: a provider that keeps failing is sent requests all the same"
	case err != nil:
		return ""
	}
	probes := "one probe"
	if r.Probes > 1 {
		probes = fmt.Sprintf("%d probes", r.Probes)
	}
	return fmt.Sprintf("opens when %s%% of the last %d outcomes failed, of at least %d; then nothing is sent for %s, then %s at a time",
		round(r.Ratio*100), r.Window, r.Minimum, figure.Duration(r.OpenFor), probes)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (p Provider) warnings(ceiling time.Duration) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p.Ceiling == 0 {
		say("no ceiling is set, so %s between requests applies (provider.ceiling)", control.DefaultCeiling)
	}
	if i := p.Pacing.Initial; i > 0 && i < ceiling {
		say("the initial interval %s is shorter than the ceiling: the ceiling of %s applies", i, ceiling)
	}
	if j := p.Pacing.JitterMax; j > ceiling {
		say("jitter of up to %s is longer than the ceiling of %s: waits will often be longer than the rate asks for", j, ceiling)
	}
	if len(p.Keys) > 0 {
		say("%d keys share the work, each at a rate of its own: list only keys that their owner may use together, since many providers count all keys of an account as one, and some forbid it (provider.keys)", len(p.Keys))
		for _, k := range p.Keys {
			if unencrypted(p.BaseURL) {
				say("base_url is http: the keys go over the network unencrypted")
				break
			}
			if k.Auth.Kind == QueryAuth {
				say("key %s is sent in the URL, which servers and proxies log; prefer bearer or header where the provider takes them", k.Name)
			}
		}
	}
	if p.Auth.Kind == NoAuth && len(p.Keys) == 0 {
		say("no credential is sent (provider.auth)")
	}
	if p.Auth.Kind != NoAuth && unencrypted(p.BaseURL) {
		say("base_url is http: the credential goes over the network unencrypted")
	}
	if o := p.Auth.OAuth2; o != nil && unencrypted(o.TokenURL) {
		say("token_url is http: the client's secret goes over the network unencrypted")
	}
	if p.Auth.Kind == QueryAuth {
		say("the credential is sent in the URL, which servers and proxies log; prefer bearer or header where the provider takes them")
	}
	return out
}

// unencrypted reports whether requests to u leave this machine unencrypted.
func unencrypted(u *url.URL) bool {
	if u == nil || u.Scheme != "http" {
		return false
	}
	host := u.Hostname()
	return host != "localhost" && host != "::1" && !strings.HasPrefix(host, "127.")
}

func (s Stream) plan() StreamPlan {
	p := StreamPlan{
		Name: s.Name, Paging: s.Paginate.Kind, Records: s.Records.String(), Key: s.Key.String(),
		Request: s.List.shape(s.Paginate.first()), Pool: s.List.Pool,
	}
	if s.Incremental != nil {
		p.Incremental = fmt.Sprintf("%s sent as %s", s.Incremental.Cursor, s.Incremental.Param)
		if s.Incremental.Ascending {
			p.Incremental += ", ascending"
		}
		if s.Incremental.Inclusive {
			p.Incremental += ", inclusive"
		}
		if s.Incremental.Lookback > 0 {
			p.Incremental += ", looking back " + figure.Duration(s.Incremental.Lookback)
		}
	}
	if s.Detail != nil {
		p.DetailStream, p.Detail = s.Detail.Stream, s.Detail.Request.shape(s.Detail.Paginate.first())
		p.DetailPool = s.Detail.Request.Pool
	}
	return p
}

// first returns the query parameters that paging adds for the first page.
func (p Paginate) first() map[string]string {
	out := map[string]string{}
	if p.Kind == NumberPaging || p.Kind == OffsetPaging {
		out[p.Param] = fmt.Sprint(p.Start)
	}
	if p.SizeParam != "" {
		out[p.SizeParam] = fmt.Sprint(p.Size)
	}
	return out
}

// shape returns the request with values as written in the file.
func (r Request) shape(more map[string]string) string {
	for name, v := range r.Query {
		if more == nil {
			more = map[string]string{}
		}
		more[name] = v.String()
	}
	var b strings.Builder
	b.WriteString("GET " + r.Path)
	for i, name := range slices.Sorted(maps.Keys(more)) {
		b.WriteString(map[bool]string{true: "?", false: "&"}[i == 0] + name + "=" + more[name])
	}
	return b.String()
}

func (s Stream) warnings() []string {
	var out []string
	say := func(format string, args ...any) {
		out = append(out, "stream "+s.Name+": "+fmt.Sprintf(format, args...))
	}
	switch s.Paginate.Kind {
	case OffsetPaging:
		say("offset paging skips or repeats records when the list changes while it is walked; prefer a cursor where the provider has one")
	case NumberPaging:
		say("page numbers skip or repeat records when the list changes while it is walked; prefer a cursor where the provider has one")
	case SinglePage:
		say("no paginate: only the first page is collected")
	default:
	}
	if s.Detail != nil && s.Detail.Paginate.Kind == SinglePage {
		say("a detail is one request: where the provider pages it, only its first page is collected")
	}
	if s.Incremental == nil {
		say("no incremental: every run lists everything again")
	}
	return out
}

// Write writes the plan as text.
func (p Plan) Write(w io.Writer) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("connection", "%s", p.Connection)
	line("provider", "%s", p.BaseURL)
	line("auth", "%s", p.Auth)
	if p.Profile != "" {
		line("profile", "%s", p.Profile)
	}
	line("ceiling", "%s ms between requests, %s a minute", round(p.CeilingMS), round(p.CeilingPerMin))
	line("start", "%s ms between requests, law %s", round(p.InitialMS), p.Law)
	line("retries", "%s", p.Retries)
	line("circuit", "%s", p.Circuit)
	line("run", "%s", cmp.Or(strings.Join(p.Bounds, ", "), "no bounds"))
	if p.Schedule != "" || p.CatchupSchedule != "" {
		text := cmp.Or(p.Schedule, "the process's own")
		if p.CatchupSchedule != "" {
			text += "; the past apart from it: " + p.CatchupSchedule
		}
		line("schedule", "%s", text)
	}
	line("sink", "%s", p.Sink)
	for _, s := range p.Streams {
		b.WriteString("\n")
		line("stream", "%s", s.Name)
		line("  list", "%s", s.Request)
		line("  paging", "%s", s.Paging)
		line("  records", "%s, key %s", s.Records, s.Key)
		line("  changes", "%s", cmp.Or(s.Incremental, "not asked for"))
		if s.Detail != "" {
			line("  detail", "%s into stream %s", s.Detail, s.DetailStream)
		}
		if s.Pool != "" || s.DetailPool != "" {
			text := "the list in " + cmp.Or(s.Pool, "none")
			if s.Detail != "" {
				text += ", details in " + cmp.Or(s.DetailPool, "none")
			}
			line("  pools", "%s", text)
		}
	}
	if len(p.Warnings) > 0 {
		b.WriteString("\n")
	}
	for _, w := range p.Warnings {
		line("warning", "%s", w)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// round formats a number with at most two decimals.
func round(v float64) string { return figure.Digits(math.Round(v*100)/100, 15) }
