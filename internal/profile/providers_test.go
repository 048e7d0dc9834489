package profile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/internal/memory"
	"github.com/headway-go/headway/internal/profile"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/transport"
)

// meter is a limit of a simulated provider, in units.
type meter struct {
	name   string
	size   float64
	window time.Duration
	kind   string // fixed, sliding or bucket

	begun time.Time // of a fixed window
	used  float64   // in a fixed window or a bucket
	at    time.Time
	sent  []spent // in a sliding window
}

type spent struct {
	at   time.Time
	cost float64
}

// advance advances the meter to an instant.
func (m *meter) advance(now time.Time) {
	switch m.kind {
	case "fixed":
		if now.Sub(m.begun) >= m.window {
			m.begun, m.used = m.begun.Add(now.Sub(m.begun).Truncate(m.window)), 0
		}
	case "bucket":
		m.used = max(0, m.used-now.Sub(m.at).Seconds()*m.size/m.window.Seconds())
		m.at = now
	case "sliding":
		for len(m.sent) > 0 && now.Sub(m.sent[0].at) >= m.window {
			m.used -= m.sent[0].cost
			m.sent = m.sent[1:]
		}
	}
}

func (m *meter) fits(cost float64) bool { return m.used+cost <= m.size+1e-9 }

func (m *meter) take(now time.Time, cost float64) {
	m.used += cost
	if m.kind == "sliding" {
		m.sent = append(m.sent, spent{now, cost})
	}
}

// wait returns how long it takes until a cost fits.
func (m *meter) wait(now time.Time, cost float64) time.Duration {
	switch m.kind {
	case "fixed":
		return m.begun.Add(m.window).Sub(now)
	case "bucket":
		return time.Duration((m.used + cost - m.size) / m.size * float64(m.window))
	}
	over := m.used + cost - m.size
	for _, s := range m.sent {
		if over -= s.cost; over <= 1e-9 {
			return s.at.Add(m.window).Sub(now)
		}
	}
	return m.window
}

// use is the cost of a request on a meter.
type use struct {
	of   *meter
	cost float64
}

// upstream is a simulated provider: it decides on each request by the meters that its rules
// name, and responds like the real provider.
type upstream struct {
	mu      sync.Mutex
	rules   func(now time.Time, req *http.Request, body map[string]any) []use
	answer  func(now time.Time, req *http.Request, body map[string]any, uses []use, refused *use) (status int, header http.Header, answer string)
	latency func() (way, work time.Duration)

	admitted map[string]float64 // units, by meter
	total    int
	refused  int
	asked    int // requests for limits, at no cost
	log      []string
}

func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	var body map[string]any
	if req.Body != nil {
		b, _ := io.ReadAll(req.Body)
		_ = req.Body.Close()
		_ = json.Unmarshal(b, &body)
	}
	way, work := u.latency()
	time.Sleep(way)
	u.mu.Lock()
	now := time.Now()
	u.total++
	uses := u.rules(now, req, body)
	var refused *use
	for i := range uses {
		if uses[i].of.advance(now); !uses[i].of.fits(uses[i].cost) {
			refused = &uses[i]
		}
	}
	if refused == nil {
		for _, x := range uses {
			x.of.take(now, x.cost)
			u.admitted[x.of.name] += x.cost
		}
	} else {
		u.refused++
		u.log = append(u.log, fmt.Sprintf("%v %s by %s", now.Sub(start), req.URL.Path, refused.of.name))
	}
	status, header, text := u.answer(now, req, body, uses, refused)
	u.mu.Unlock()
	if refused == nil {
		time.Sleep(work)
	}
	time.Sleep(way)
	header.Set("Content-Type", "application/json")
	return &http.Response{
		StatusCode: status, Header: header, Request: req, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}, nil
}

// start is the time at the start of a bubble.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// newUpstream returns an upstream with about 40 ms of latency and a mean processing time.
func newUpstream(mean time.Duration) *upstream {
	random := rand.New(rand.NewPCG(1, 2))
	around := func(mean time.Duration, part float64) time.Duration {
		return time.Duration(float64(mean) * (1 - part + part*random.ExpFloat64()))
	}
	var mu sync.Mutex
	return &upstream{admitted: map[string]float64{}, latency: func() (way, work time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		return around(40*time.Millisecond, 0.1), around(mean, 0.5)
	}}
}

// worker sends requests one after another.
type worker func(n int) *http.Request

// drive lets workers send requests to a provider with its profile for a time.
func drive(t *testing.T, u *upstream, name string, c headway.Config, span time.Duration, workers ...worker) *transport.Transport {
	t.Helper()
	p, err := profile.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	c.Name, c.Law, c.MaxWait, c.NoBreaker = name, "cycle", 2*time.Hour, true
	g, err := headway.New(c)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := transport.New(g, transport.Options{Base: u, Profile: p, Retryable: func(*http.Request) bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				res, err := tr.RoundTrip(w(n).WithContext(ctx))
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					continue
				}
				var r *reason.Refusal
				if ctx.Err() == nil && !asRefusal(err, &r) {
					t.Errorf("%v", err)
					return
				}
				time.Sleep(time.Second)
			}
		})
	}
	all.Wait()
	return tr
}

func asRefusal(err error, r **reason.Refusal) (ok bool) {
	*r, ok = errors.AsType[*reason.Refusal](err)
	return ok
}

// expect checks the used part of each limit, and the number of refusals.
func (u *upstream) expect(t *testing.T, span time.Duration, maxRefused int, reached map[*meter]float64) {
	t.Helper()
	t.Logf("%d refused of %d", u.refused, u.total)
	for m, want := range reached {
		part := u.admitted[m.name] / (m.size * float64(span) / float64(m.window))
		if t.Logf("%s: %.3f", m.name, part); part < want {
			t.Errorf("%s: %.3f of the limit, want %.2f", m.name, part, want)
		}
	}
	if u.refused > maxRefused {
		t.Errorf("%d refusals, want at most %d:\n%s", u.refused, maxRefused, strings.Join(u.log, "\n"))
	}
}

func get(path string) worker {
	return func(int) *http.Request { return newRequest(http.MethodGet, path, "") }
}

func newRequest(method, path, body string) *http.Request {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, "https://provider.example"+path, r)
	if err != nil {
		panic(err)
	}
	return req
}

func repeat(w worker, n int) (all []worker) {
	for range n {
		all = append(all, w)
	}
	return all
}

// github simulates core, search and GraphQL, with the secondary limits.
func github() (u *upstream, core, search, graphql *meter) {
	u = newUpstream(150 * time.Millisecond)
	core = &meter{name: "core", size: 5000, window: time.Hour, kind: "fixed", begun: start}
	search = &meter{name: "search", size: 30, window: time.Minute, kind: "fixed", begun: start}
	graphql = &meter{name: "graphql", size: 5000, window: time.Hour, kind: "fixed", begun: start}
	secondary := &meter{name: "secondary", size: 900, window: time.Minute, kind: "sliding"}
	queries := map[string]float64{"{a}": 1, "{b}": 7, "{c}": 30}
	u.rules = func(now time.Time, req *http.Request, body map[string]any) []use {
		switch {
		case req.URL.Path == "/rate_limit":
			u.asked++
			return nil
		case req.URL.Path == "/graphql":
			return []use{{graphql, queries[body["query"].(string)]}}
		case strings.HasPrefix(req.URL.Path, "/search/"):
			return []use{{search, 1}}
		}
		return []use{{core, 1}, {secondary, 1}}
	}
	u.answer = func(now time.Time, req *http.Request, _ map[string]any, uses []use, refused *use) (int, http.Header, string) {
		h := http.Header{}
		if len(uses) == 0 {
			text := `{"resources": {`
			for i, m := range []*meter{core, search, graphql} {
				m.advance(now)
				text += fmt.Sprintf(`%.*s"%s": {"limit": %.0f, "remaining": %.0f, "reset": %d}`, i, ",", m.name, m.size, m.size-m.used, m.begun.Add(m.window).Unix())
			}
			return 200, h, text + "}}"
		}
		m := uses[0].of
		h.Set("X-RateLimit-Limit", strconv.FormatFloat(m.size, 'f', 0, 64))
		h.Set("X-RateLimit-Remaining", strconv.FormatFloat(math.Floor(m.size-m.used), 'f', 0, 64))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(m.begun.Add(m.window).Unix(), 10))
		h.Set("X-RateLimit-Resource", m.name)
		switch {
		case refused != nil && refused.of.name == "secondary":
			return 403, h, `{"message": "You have exceeded a secondary rate limit."}`
		case refused != nil && m == graphql:
			return 200, h, `{"errors": [{"type": "RATE_LIMITED"}]}`
		case refused != nil:
			return 403, h, `{"message": "API rate limit exceeded"}`
		case m == graphql:
			return 200, h, fmt.Sprintf(`{"data": {"rateLimit": {"cost": %.0f}}}`, uses[0].cost)
		}
		return 200, h, `{}`
	}
	return u, core, search, graphql
}

// TestGitHubIsUsedToItsLimits: core, search and GraphQL are used concurrently, each with
// its own points, under the secondary limits.
func TestGitHubIsUsedToItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = 2 * time.Hour
		u, core, search, graphql := github()
		query := func(n int) *http.Request {
			return newRequest(http.MethodPost, "/graphql", fmt.Sprintf(`{"query": "{%c}"}`, "abc"[n%3]))
		}
		drive(t, u, "github", headway.Config{Ceiling: 20 * time.Millisecond}, span,
			append(repeat(get("/repos/a/b"), 4), get("/search/issues"), query, query)...)
		u.expect(t, span, 1, map[*meter]float64{core: .95, search: .95, graphql: .95})
	})
}

// TestSlackIsUsedByTheTiersOfItsMethods: responses do not report the limits.
func TestSlackIsUsedByTheTiersOfItsMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = 30 * time.Minute
		u := newUpstream(180 * time.Millisecond)
		meters := map[string]*meter{}
		for name, size := range map[string]float64{"conversations.list": 20, "conversations.history": 50, "users.info": 100} {
			meters["/api/"+name] = &meter{name: name, size: size, window: time.Minute, kind: "sliding"}
		}
		u.rules = func(_ time.Time, req *http.Request, _ map[string]any) []use {
			return []use{{meters[req.URL.Path], 1}}
		}
		u.answer = func(now time.Time, _ *http.Request, _ map[string]any, _ []use, refused *use) (int, http.Header, string) {
			if refused == nil {
				return 200, http.Header{}, `{"ok": true}`
			}
			h := http.Header{}
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(refused.of.wait(now, 1).Seconds()))))
			return 429, h, `{"ok": false, "error": "ratelimited"}`
		}
		drive(t, u, "slack", headway.Config{}, span, get("/api/conversations.list"), get("/api/conversations.history"), get("/api/users.info"))
		want := map[*meter]float64{}
		for _, m := range meters {
			want[m] = .95
		}
		u.expect(t, span, 1, want)
	})
}

// TestHubSpotIsUsedToItsLimit: 190 in ten seconds. Its headers say what is left of them, but
// not when they end: a law that goes by that was refused 337 times here, at 0.75.
func TestHubSpotIsUsedToItsLimit(t *testing.T) { hubSpot(t, 0, 12, .92, 0) }

// TestHubSpotsSearchesAreApart: five a second, without headers. As one pool with the others
// they had 0.70 of that, and the others 0.37 of theirs.
//
// Callers that are woken at one instant go in any order. Of those seen, the best has .856 of
// the searches and 32 refusals, another one .788 and 40, and the worst .804 and 50: the bounds
// leave room for others.
//
// Of forty runs the lists got .95 of their limit in seventeen, and .76 to .82 in twenty, by who goes
// first: each run has to reach .7, and one of twenty .9.
func TestHubSpotsSearchesAreApart(t *testing.T) {
	for range 20 {
		if hubSpot(t, 3, 80, .7, .75) >= .9 {
			return
		}
	}
	t.Error("no run got 0.90 of the lists' limit")
}

func hubSpot(t *testing.T, searching, maxRefused int, wantRolling, wantSearches float64) (lists float64) {
	synctest.Test(t, func(t *testing.T) {
		const span = 10 * time.Minute
		u := newUpstream(60 * time.Millisecond)
		rolling := &meter{name: "rolling", size: 190, window: 10 * time.Second, kind: "sliding"}
		day := &meter{name: "day", size: 625_000, window: 24 * time.Hour, kind: "sliding"}
		searches := &meter{name: "searches", size: 5, window: time.Second, kind: "sliding"}
		u.rules = func(_ time.Time, req *http.Request, _ map[string]any) []use {
			if strings.HasSuffix(req.URL.Path, "/search") {
				return []use{{searches, 1}, {day, 1}}
			}
			return []use{{rolling, 1}, {day, 1}}
		}
		u.answer = func(now time.Time, _ *http.Request, _ map[string]any, uses []use, refused *use) (int, http.Header, string) {
			h, policy := http.Header{}, "SECONDLY"
			if uses[0].of == rolling {
				policy = "TEN_SECONDLY_ROLLING"
				h.Set("X-HubSpot-RateLimit-Daily", "625000")
				h.Set("X-HubSpot-RateLimit-Daily-Remaining", strconv.Itoa(int(day.size-day.used)))
				h.Set("X-HubSpot-RateLimit-Interval-Milliseconds", "10000")
				h.Set("X-HubSpot-RateLimit-Max", "190")
				h.Set("X-HubSpot-RateLimit-Remaining", strconv.Itoa(int(rolling.size-rolling.used)))
			}
			if refused == nil {
				return 200, h, `{}`
			}
			return 429, h, fmt.Sprintf(`{"status": "error", "errorType": "RATE_LIMIT", "policyName": %q}`, policy)
		}
		search := func(int) *http.Request {
			return newRequest(http.MethodPost, "/crm/v3/objects/contacts/search", `{}`)
		}
		drive(t, u, "hubspot", headway.Config{Ceiling: 10 * time.Millisecond}, span,
			append(repeat(get("/crm/v3/objects/contacts"), 6), repeat(search, searching)...)...)
		u.expect(t, span, maxRefused, map[*meter]float64{rolling: wantRolling, searches: wantSearches})
		lists = u.admitted[rolling.name] / (rolling.size * float64(span) / float64(rolling.window))
	})
	return lists
}

// TestJiraIsUsedByItsEndpoints: each endpoint and method has a bucket, of which answers
// say what the current second has left, and only refusals when that ends.
func TestJiraIsUsedByItsEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = 5 * time.Minute
		u := newUpstream(80 * time.Millisecond)
		bucket := func(name string, size float64) *meter {
			return &meter{name: name, size: size, window: time.Second, kind: "bucket", at: time.Now()}
		}
		issue, edit, search := bucket("issue", 20), bucket("edit", 5), bucket("search", 10)
		u.rules = func(_ time.Time, req *http.Request, _ map[string]any) []use {
			switch {
			case strings.HasPrefix(req.URL.Path, "/rest/api/3/search"):
				return []use{{search, 1}}
			case req.Method == http.MethodPut:
				return []use{{edit, 1}}
			}
			return []use{{issue, 1}}
		}
		u.answer = func(now time.Time, _ *http.Request, _ map[string]any, uses []use, refused *use) (int, http.Header, string) {
			m := uses[0].of
			h := http.Header{}
			h.Set("X-RateLimit-Limit", strconv.Itoa(int(m.size)))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(int(m.size-m.used)))
			if refused == nil {
				return 200, h, `{}`
			}
			h.Set("X-RateLimit-Reset", now.Add(time.Second).UTC().Format(time.RFC3339))
			h.Set("RateLimit-Reason", "jira-burst-based")
			h.Set("Retry-After", "1")
			return 429, h, `{}`
		}
		put := func(int) *http.Request { return newRequest(http.MethodPut, "/rest/api/3/issue/A-1", `{}`) }
		drive(t, u, "atlassian", headway.Config{Ceiling: 10 * time.Millisecond}, span, append(append(
			repeat(get("/rest/api/3/issue/A-1"), 6), repeat(get("/rest/api/3/search/jql"), 4)...), repeat(put, 3)...)...)
		u.expect(t, span, 2, map[*meter]float64{issue: .93, search: .93, edit: .93})
	})
}

// llm simulates a provider of language models with buckets for requests and tokens.
func llm(limits map[string][]*meter, took func(body map[string]any) map[string]float64, answer func(h http.Header, now time.Time, m *meter), text func(map[string]float64) string) *upstream {
	u := newUpstream(4 * time.Second)
	u.rules = func(_ time.Time, _ *http.Request, body map[string]any) (all []use) {
		cost := took(body)
		for _, m := range limits[body["model"].(string)] {
			kind := m.name[strings.LastIndex(m.name, " ")+1:]
			all = append(all, use{m, cost[kind]})
		}
		return all
	}
	u.answer = func(now time.Time, _ *http.Request, body map[string]any, uses []use, refused *use) (int, http.Header, string) {
		h := http.Header{}
		for _, x := range uses {
			answer(h, now, x.of)
		}
		if refused == nil {
			return 200, h, text(took(body))
		}
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(refused.of.wait(now, refused.cost).Seconds()))))
		return 429, h, `{"error": {"type": "rate_limit_error", "code": "rate_limit_exceeded"}}`
	}
	return u
}

// TestOpenAIIsUsedByItsModels: each model has its own requests and tokens; models of one
// organisation share its limits.
func TestOpenAIIsUsedByItsModels(t *testing.T) {
	bucket := func(name string, size float64) *meter {
		return &meter{name: name, size: size, window: time.Minute, kind: "bucket", at: start}
	}
	sized := func(model string, tokens int) worker {
		return func(n int) *http.Request {
			return newRequest(http.MethodPost, "/v1/chat/completions", fmt.Sprintf(`{"model": %q, "max_tokens": %d}`, model, tokens*(1+n%3)))
		}
	}
	took := func(body map[string]any) map[string]float64 {
		return map[string]float64{"requests": 1, "tokens": body["max_tokens"].(float64)}
	}
	answer := func(h http.Header, now time.Time, m *meter) {
		kind := m.name[strings.LastIndex(m.name, " ")+1:]
		h.Set("X-RateLimit-Limit-"+kind, strconv.Itoa(int(m.size)))
		h.Set("X-RateLimit-Remaining-"+kind, strconv.Itoa(int(m.size-m.used)))
		h.Set("X-RateLimit-Reset-"+kind, time.Duration(m.used/m.size*float64(m.window)).Round(time.Millisecond).String())
	}
	text := func(cost map[string]float64) string {
		return fmt.Sprintf(`{"usage": {"total_tokens": %.0f}}`, cost["tokens"])
	}
	const span = 30 * time.Minute
	t.Run("models", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			few, tokens := bucket("few requests", 60), bucket("many tokens", 90_000)
			u := llm(map[string][]*meter{
				"few":  {few, bucket("few tokens", 1e6)},
				"many": {bucket("many requests", 3000), tokens},
			}, took, answer, text)
			drive(t, u, "openai", headway.Config{Ceiling: 20 * time.Millisecond}, span, append(repeat(sized("few", 100), 16), repeat(sized("many", 500), 16)...)...)
			u.expect(t, span, 1, map[*meter]float64{few: .95, tokens: .95})
		})
	})
	t.Run("organisations", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := bucket("a tokens", 60_000), bucket("b tokens", 90_000)
			u := llm(map[string][]*meter{"a": {a}, "b": {b}}, took, answer, text)
			of := u.rules
			u.rules = func(now time.Time, req *http.Request, body map[string]any) []use {
				body["model"] = req.Header.Get("OpenAI-Organization")
				return of(now, req, body)
			}
			in := func(organisation string) worker {
				w := sized("m", 500)
				return func(n int) *http.Request {
					req := w(n)
					req.Header.Set("OpenAI-Organization", organisation)
					return req
				}
			}
			drive(t, u, "openai", headway.Config{Ceiling: 20 * time.Millisecond}, span, append(repeat(in("a"), 12), repeat(in("b"), 12)...)...)
			u.expect(t, span, 1, map[*meter]float64{a: .95, b: .95})
		})
	})
}

// TestAnthropicIsUsedByInputAndOutput: either of them may be used up first.
func TestAnthropicIsUsedByInputAndOutput(t *testing.T) {
	const span = 30 * time.Minute
	for name, c := range map[string]struct{ in, out float64 }{"input": {4000, 100}, "output": {300, 700}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket := func(name string, size float64) *meter {
					return &meter{name: name, size: size, window: time.Minute, kind: "bucket", at: start}
				}
				in, out := bucket("input-tokens", 30_000), bucket("output-tokens", 8_000)
				took := func(body map[string]any) map[string]float64 {
					size := float64(int(body["size"].(float64)))
					return map[string]float64{"requests": 1, "input-tokens": c.in * size, "output-tokens": c.out * size}
				}
				u := llm(map[string][]*meter{"m": {bucket("requests", 50), in, out}}, took, func(h http.Header, now time.Time, m *meter) {
					left := m.size - m.used
					if m.name != "requests" {
						left = math.Floor(left/1000) * 1000
					}
					prefix := "Anthropic-RateLimit-" + m.name
					h.Set(prefix+"-Limit", strconv.Itoa(int(m.size)))
					h.Set(prefix+"-Remaining", strconv.Itoa(int(left)))
					h.Set(prefix+"-Reset", now.Add(time.Duration(m.used/m.size*float64(m.window))).Add(time.Second-1).Truncate(time.Second).Format(time.RFC3339))
				}, func(cost map[string]float64) string {
					return fmt.Sprintf(`{"usage": {"input_tokens": %.0f, "output_tokens": %.0f}}`, cost["input-tokens"], cost["output-tokens"])
				})
				drive(t, u, "anthropic", headway.Config{Ceiling: 20 * time.Millisecond}, span, repeat(func(n int) *http.Request {
					size := 1 + n%2
					return newRequest(http.MethodPost, "/v1/messages", fmt.Sprintf(`{"model": "m", "size": %d, "max_tokens": %d, "text": %q}`,
						size, 2*int(c.out)*size, strings.Repeat("word", int(c.in)*size)))
				}, 12)...)
				u.expect(t, span, 1, map[*meter]float64{map[string]*meter{"input": in, "output": out}[name]: .95})
			})
		})
	}
}

// TestShopifyIsUsedByTheCostsOfQueries: responses report the costs, and describe the
// bucket.
func TestShopifyIsUsedByTheCostsOfQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = 30 * time.Minute
		u := newUpstream(300 * time.Millisecond)
		// 100 points return each second, up to 2,000.
		graphql := &meter{name: "graphql", size: 2000, window: 20 * time.Second, kind: "bucket", at: start}
		rest := &meter{name: "rest", size: 40, window: 20 * time.Second, kind: "bucket", at: start}
		costs := map[string]float64{"{a}": 12, "{b}": 80, "{c}": 240}
		u.rules = func(_ time.Time, req *http.Request, body map[string]any) []use {
			if strings.HasSuffix(req.URL.Path, "graphql.json") {
				return []use{{graphql, costs[body["query"].(string)]}}
			}
			return []use{{rest, 1}}
		}
		u.answer = func(now time.Time, _ *http.Request, _ map[string]any, uses []use, refused *use) (int, http.Header, string) {
			h := http.Header{}
			if uses[0].of == rest {
				h.Set("X-Shopify-Shop-Api-Call-Limit", fmt.Sprintf("%.0f/40", math.Ceil(rest.used)))
				if refused != nil {
					h.Set("Retry-After", "2.0")
					return 429, h, `{"errors": "Exceeded 2 calls per second"}`
				}
				return 200, h, `{}`
			}
			cost := fmt.Sprintf(`"throttleStatus": {"maximumAvailable": %.1f, "currentlyAvailable": %.0f, "restoreRate": 100.0}`, graphql.size, math.Floor(graphql.size-graphql.used))
			if refused != nil {
				return 200, h, `{"errors": [{"extensions": {"code": "THROTTLED"}}], "extensions": {"cost": {"requestedQueryCost": 1, ` + cost + `}}}`
			}
			return 200, h, fmt.Sprintf(`{"extensions": {"cost": {"requestedQueryCost": %.0f, "actualQueryCost": %.0f, %s}}}`, uses[0].cost, uses[0].cost, cost)
		}
		query := func(n int) *http.Request {
			return newRequest(http.MethodPost, "/admin/api/2026-07/graphql.json", fmt.Sprintf(`{"query": "{%c}"}`, "abc"[n%3]))
		}
		drive(t, u, "shopify", headway.Config{Ceiling: 20 * time.Millisecond}, span, append(repeat(query, 4), repeat(get("/admin/api/2026-07/orders.json"), 2)...)...)
		u.expect(t, span, 1, map[*meter]float64{graphql: .95, rest: .95})
	})
}

// TestDataverseIsUsedToItsLimit: responses report nothing useful about the limit.
func TestDataverseIsUsedToItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = 20 * time.Minute
		u := newUpstream(60 * time.Millisecond)
		requests := &meter{name: "requests", size: 6000, window: 5 * time.Minute, kind: "sliding"}
		u.rules = func(time.Time, *http.Request, map[string]any) []use { return []use{{requests, 1}} }
		u.answer = func(now time.Time, _ *http.Request, _ map[string]any, _ []use, refused *use) (int, http.Header, string) {
			h := http.Header{}
			h.Set("X-Ms-Ratelimit-Burst-Remaining-Xrm-Requests", "5999") // of another server
			if refused == nil {
				return 200, h, `{}`
			}
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(requests.wait(now, 1).Seconds()))))
			return 429, h, `{"error": {"code": "0x80072322", "message": "Number of requests exceeded the limit of 6000 over time window of 300 seconds."}}`
		}
		drive(t, u, "dataverse", headway.Config{Ceiling: 10 * time.Millisecond}, span, repeat(get("/api/data/v9.2/contacts"), 8)...)
		u.expect(t, span, 1, map[*meter]float64{requests: .95})
	})
}

// TestACollectionAsksGitHubForItsLimitsFirst: the use by others is known before the first
// page, and each pool has its own pace.
func TestACollectionAsksGitHubForItsLimitsFirst(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const pages = 120
		u, core, search, _ := github()
		core.used, search.used = 4000, 25
		answer := u.answer
		var first string
		u.answer = func(now time.Time, req *http.Request, body map[string]any, uses []use, refused *use) (int, http.Header, string) {
			if first == "" {
				first = req.URL.Path
			}
			status, h, text := answer(now, req, body, uses, refused)
			if n, _ := strconv.Atoi(req.URL.Query().Get("page")); status == 200 && len(uses) > 0 {
				text = fmt.Sprintf(`{"items": [{"id": %d}]}`, n)
				if n > pages {
					text = `{"items": []}`
				}
			}
			return status, h, text
		}
		cfg, err := rest.Parse("github.yaml", []byte(`
connection: github
provider: {base_url: "https://api.github.com/api/v3", ceiling: 20ms, profile: github, pacing: {law: cycle}}
streams:
  - {name: issues, list: {path: /repos/a/b/issues}, records: .items, key: .id, paginate: {page: {param: page}}}
  - {name: found, list: {path: /search/issues}, records: .items, key: .id, paginate: {page: {param: page}}}
`), nil)
		if err != nil {
			t.Fatal(err)
		}
		o := schedule.Options(cfg)
		strip := u.rules
		u.rules = func(now time.Time, req *http.Request, body map[string]any) []use {
			req.URL.Path = strings.TrimPrefix(req.URL.Path, "/api/v3")
			return strip(now, req, body)
		}
		o.Base, o.Store = u, memory.New()
		if o.Connector, err = rest.New(cfg); err != nil {
			t.Fatal(err)
		}
		o.Sink = jsonl.New(dir)
		c, err := collect.New(o)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if u.admitted["core"] != pages+1 || u.admitted["search"] != pages+1 || u.refused > 0 || u.asked != 1 || first != "/rate_limit" {
			t.Errorf("%v admitted, %d refused, asked %d times, first %s: %q", u.admitted, u.refused, u.asked, first, u.log)
		}
		// 5 of the first minute, then 30 a minute.
		if took := time.Since(began); took > 330*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// byKey has an upstream for each key.
type byKey map[string]*upstream

func (b byKey) RoundTrip(req *http.Request) (*http.Response, error) {
	return b[req.Header.Get("Authorization")].RoundTrip(req)
}

// TestACollectionAsksGitHubForTheLimitsOfEachKey: one key is used up for an hour, which is
// known before a refusal.
func TestACollectionAsksGitHubForTheLimitsOfEachKey(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const pages = 105
		all := byKey{}
		for i, used := range []float64{4900, 5000, 4990} {
			u, core, _, _ := github()
			core.used = used
			answer := u.answer
			u.answer = func(now time.Time, req *http.Request, body map[string]any, uses []use, refused *use) (int, http.Header, string) {
				status, h, text := answer(now, req, body, uses, refused)
				if n, _ := strconv.Atoi(req.URL.Query().Get("page")); status == 200 && len(uses) > 0 {
					if text = `{"items": []}`; n <= pages {
						text = fmt.Sprintf(`{"items": [{"id": %d}]}`, n)
					}
				}
				return status, h, text
			}
			all[fmt.Sprint("Bearer secret-", i)] = u
		}
		cfg, err := rest.Parse("github.yaml", []byte(`
connection: github
provider:
  base_url: "https://provider.example"
  ceiling: 20ms
  profile: github
  pacing: {law: cycle}
  keys:
    - {name: a, bearer: "${A}"}
    - {name: b, bearer: "${B}"}
    - {name: c, bearer: "${C}"}
streams:
  - {name: issues, list: {path: /repos/a/b/issues}, records: .items, key: .id, paginate: {page: {param: page}}}
`), func(name string) (string, bool) { return fmt.Sprint("secret-", strings.Index("ABC", name)), true })
		if err != nil {
			t.Fatal(err)
		}
		o := schedule.Options(cfg)
		o.Base, o.Store, o.Sink = all, memory.New(), jsonl.New(dir)
		if o.Connector, err = rest.New(cfg); err != nil {
			t.Fatal(err)
		}
		c, err := collect.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for key, u := range all {
			if sum += u.admitted["core"]; u.refused > 0 || u.asked != 1 {
				t.Errorf("%s: %v admitted, %d refused, asked %d times: %q", key, u.admitted, u.refused, u.asked, u.log)
			}
		}
		if sum != pages+1 {
			t.Errorf("%v pages, want %d", sum, pages+1)
		}
	})
}
