package profile

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// TestEveryFigureHasASource with an address and a day.
func TestEveryFigureHasASource(t *testing.T) {
	if n := len(Names()); n < 19 {
		t.Errorf("%d profiles", n)
	}
	for _, name := range Names() {
		p, err := Find(name)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if p.name != name || p.title == "" || len(p.hosts) == 0 {
			t.Errorf("%s: name %q, title %q, hosts %q", name, p.name, p.title, p.hosts)
		}
		if len(p.cited()) == 0 {
			t.Errorf("%s says nothing", name)
		}
		for _, key := range p.cited() {
			if _, ok := p.sources[key]; !ok {
				t.Errorf("%s: no source %q", name, key)
			}
		}
		for key, s := range p.sources {
			if u, err := url.Parse(s.URL); err != nil || u.Scheme != "https" || u.Host == "" {
				t.Errorf("%s: source %s is %q", name, key, s.URL)
			}
			if _, err := time.Parse(time.DateOnly, s.Date); err != nil {
				t.Errorf("%s: source %s: %v", name, key, err)
			}
			if !slices.Contains(p.cited(), key) {
				t.Errorf("%s: nothing is from source %s", name, key)
			}
		}
	}
}

func TestAProfileIsReadStrictly(t *testing.T) {
	const head = "profile: x\nsources: {a: {url: https://example.com, date: \"2026-11-22\"}}\n"
	for src, problem := range map[string]string{
		head + "pool: []": "x.yaml:3:1: pool: is not a field here",
		head + "account: {limits: [{size: 1, window: 1s}]}":                             "account.limits[0].source: is missing",
		head + "account: {limits: [{size: 1, source: a}]}":                              "account.limits[0].window: is missing",
		head + "account: {limits: [{size: 1, window: 1s, source: b}]}":                  "account.limits[0].source: ",
		head + "account: {limits: [{siz: 1, window: 1s, source: a}]}":                   "account.limits[0].siz: is not a field here",
		head + "account: {limits: [{kind: in_flight, size: 1, window: 1s, source: a}]}": "account.limits[0].window: does not belong to kind in_flight",
		head + "pools: [{name: a, cost: {source: a}}]":                                  "pools[0].cost.unit: is missing",
		head + "pools: [{name: a, advertised: [{name: b, source: a}]}]":                 "pools[0].advertised[0].remaining: ",
		head + "refusals: [{class: throttled, source: a}]":                              "refusals[0].status: ",
		head + "refusals: [{status: [42], source: a}]":                                  "refusals[0].status[0]: ",
		head + "ask: {path: /x, source: a}":                                             "ask.in: is missing",
		"profile: x\nsources: {a: {url: u, date: today}}":                               "sources.a.date: ",
		"title: x": "profile: is missing",
	} {
		if _, err := Parse("x.yaml", []byte(src)); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s\ngives %v\nwant  %s", src, err, problem)
		}
	}
}

// TestAFileOfOnesOwnComesFirst by its path, and by its name in a folder.
func TestAFileOfOnesOwnComesFirst(t *testing.T) {
	dir := t.TempDir()
	own := strings.Replace(string(find(t, "notion").Text()), "size: 3", "size: 7", 1)
	path := filepath.Join(dir, "notion.yaml")
	if err := os.WriteFile(path, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		folders []string
		want    float64
	}{
		{"notion", nil, 3},
		{"notion", []string{t.TempDir()}, 3},
		{"notion", []string{t.TempDir(), dir}, 7},
		{path, nil, 7},
	} {
		p, err := Find(c.name, c.folders...)
		if err != nil {
			t.Errorf("%v", err)
		} else if got := p.Limits("")[0].Size; got != c.want {
			t.Errorf("%s in %s: %v, want %v", c.name, c.folders, got, c.want)
		}
	}
	if _, err := Find("githup"); err == nil || !strings.Contains(err.Error(), "github") {
		t.Errorf("%v", err)
	}
}

func find(t *testing.T, name string) *Profile {
	t.Helper()
	p, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPoolsOfProviders are as their pages say.
func TestPoolsOfProviders(t *testing.T) {
	for _, c := range []struct {
		profile, method, path, body, want string
		cost                              float64
	}{
		{"github", "GET", "/repos/a/b", "", "core", 1},
		{"github", "PATCH", "/repos/a/b", "", "core", 5},
		{"github", "GET", "/search/issues", "", "search", 1},
		{"github", "GET", "/search/code", "", "code_search", 1},
		{"github", "POST", "/graphql", `{"query": "{}"}`, "graphql", 1},
		{"slack", "GET", "/api/conversations.list", "", "tier-2:conversations.list", 1},
		{"slack", "GET", "/api/users.info", "", "tier-4:users.info", 1},
		{"slack", "GET", "/api/views.open", "", "method:views.open", 1},
		{"openai", "POST", "/v1/chat/completions", `{"model": "m", "max_tokens": 100}`, "model:m", 108.25},
		{"azure-openai", "POST", "/openai/deployments/d/chat/completions", `{"max_tokens": 10}`, "deployment:d", 14.5},
		{"anthropic", "POST", "/v1/messages", `{"model": "c", "max_tokens": 5}`, "model:c", 12.75},
		{"gemini", "POST", "/v1beta/models/g:generateContent", `{"contents": []}`, "model:g:generateContent", 4},
		{"shopify", "POST", "/admin/api/2026-07/graphql.json", `{"query": "{}"}`, "graphql", 1000},
		{"shopify", "GET", "/admin/api/2026-07/orders.json", "", "rest", 1},
		{"stripe", "GET", "/v1/charges/search", "", "search", 1},
		{"stripe", "GET", "/v1/charges", "", "endpoint:charges", 1},
		{"airtable", "GET", "/v0/app1/Table", "", "base:app1", 1},
		{"atlassian", "GET", "/rest/api/3/search/jql", "", "jira:search", 1},
		{"discord", "GET", "/api/v10/users/@me", "", "", 1},
		{"notion", "GET", "/v1/pages/1", "", "", 1},
	} {
		p := find(t, c.profile)
		pool, cost := p.Attempt(request(c.method, "https://x"+c.path, c.body), "")
		if pool != c.want || cost != c.cost {
			t.Errorf("%s: %s %s is of %q for %v, want %q for %v", c.profile, c.method, c.path, pool, cost, c.want, c.cost)
		}
	}
}

func TestWhatIsPublishedForAllIsAssumed(t *testing.T) {
	for _, c := range []struct {
		profile, pool string
		want          []control.Limit
	}{
		{"slack", "tier-2:users.list", []control.Limit{{Name: "requests", Kind: control.SlidingWindow, Size: 20, Window: time.Minute}}},
		{"slack", "method:x", nil},
		{"github", "graphql", []control.Limit{{Name: "points", PerCost: true, Kind: control.SlidingWindow, Size: 5000, Window: time.Hour}}},
		{"github", "", []control.Limit{{Name: "requests", Kind: control.Concurrency, Size: 100}}},
		{"github", "unheard_of", nil},
		{"notion", "", []control.Limit{{Name: "requests", Kind: control.TokenBucket, Size: 3, Window: time.Second}}},
		{"hubspot", "", nil},
		{"shopify", "graphql", nil},
	} {
		if got := find(t, c.profile).Limits(c.pool); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %+v", c.profile, c.pool, got)
		}
	}
}

// TestAnswersAreReadByTheirProfile: pool, cost, limits and refusals.
type reading struct {
	Pool    string
	Cost    float64
	Account bool
}

func TestAnswersAreReadByTheirProfile(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, profile, method, path, body string
		status                            int
		header                            []string
		answer                            string

		want    reading
		class   reason.Class
		wait    time.Duration
		spent   bool
		limit   signal.Limit // the first
		nothing bool         // there is none
	}{
		{
			name: "a GraphQL query", profile: "github", method: "POST", path: "/graphql", body: `{"query": "{a}"}`, status: 200,
			header: []string{"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4990", "X-RateLimit-Reset", "1795350600", "X-RateLimit-Resource", "graphql"},
			answer: `{"data": {"rateLimit": {"cost": 10}}}`,
			want:   reading{Pool: "graphql", Cost: 10}, class: reason.OK,
			limit: signal.Limit{Name: "graphql", Unit: "points", Quota: 5000, Remaining: 4990, Window: time.Hour, Reset: 30 * time.Minute},
		},
		{
			name: "a pool that is new", profile: "github", method: "GET", path: "/repos/a/b/dependency-graph/sbom", status: 200,
			header: []string{"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "99", "X-RateLimit-Reset", "1795348860", "X-RateLimit-Resource", "dependency_sbom"},
			want:   reading{Pool: "dependency_sbom"}, class: reason.OK,
			limit: signal.Limit{Name: "dependency_sbom", Unit: "requests", Quota: 100, Remaining: 99, Window: -1, Reset: time.Minute},
		},
		{
			name: "the primary limit", profile: "github", method: "GET", path: "/search/issues", status: 403,
			header: []string{"X-RateLimit-Limit", "30", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1795348830", "X-RateLimit-Resource", "search"},
			want:   reading{Pool: "search"}, class: reason.Throttled, wait: 30 * time.Second,
			limit: signal.Limit{Name: "search", Unit: "requests", Quota: 30, Window: time.Minute, Reset: 30 * time.Second},
		},
		{
			name: "a secondary limit", profile: "github", method: "GET", path: "/repos/a/b", status: 403, answer: `{"message": "You have exceeded a secondary rate limit."}`,
			want: reading{Account: true}, class: reason.Throttled, wait: time.Minute, nothing: true,
		},
		{
			name: "forbidden", profile: "github", method: "GET", path: "/repos/a/b", status: 403, answer: `{"message": "Resource not accessible by integration"}`,
			class: reason.Rejected, nothing: true,
		},
		{
			name: "a GraphQL refusal with 200", profile: "shopify", method: "POST", path: "/admin/api/2026-07/graphql.json", status: 200,
			answer: `{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}], "extensions": {"cost": {"requestedQueryCost": 900, "throttleStatus": {"maximumAvailable": 2000.0, "currentlyAvailable": 800, "restoreRate": 100.0}}}}`,
			class:  reason.Throttled,
			limit:  signal.Limit{Name: "graphql", Unit: "points", Quota: 2000, Remaining: 800, Window: -1, Reset: 12 * time.Second, Refills: true},
		},
		{
			name: "a query", profile: "shopify", method: "POST", path: "/admin/api/2026-07/graphql.json", status: 200,
			answer: `{"extensions": {"cost": {"actualQueryCost": 46, "throttleStatus": {"maximumAvailable": 2000.0, "currentlyAvailable": 1954, "restoreRate": 100.0}}}}`,
			want:   reading{Cost: 46}, class: reason.OK,
			limit: signal.Limit{Name: "graphql", Unit: "points", Quota: 2000, Remaining: 1954, Window: -1, Reset: 460 * time.Millisecond, Refills: true},
		},
		{
			name: "money", profile: "openai", method: "POST", path: "/v1/responses", body: `{"model": "m"}`, status: 429, answer: `{"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}`,
			want: reading{Account: true}, class: reason.Throttled, spent: true, nothing: true,
		},
		{
			name: "tokens", profile: "anthropic", method: "POST", path: "/v1/messages", body: `{"model": "c"}`, status: 200,
			answer: `{"usage": {"input_tokens": 7, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 9000, "output_tokens": 20}}`,
			want:   reading{Cost: 127}, class: reason.OK, nothing: true,
		},
		{
			name: "a day", profile: "gemini", method: "POST", path: "/v1beta/models/g:generateContent", status: 429,
			answer: `{"error": {"status": "RESOURCE_EXHAUSTED", "details": [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}]}}`,
			class:  reason.Throttled, spent: true, nothing: true,
		},
		{
			name: "a method", profile: "slack", method: "GET", path: "/api/users.list", status: 429, header: []string{"Retry-After", "12"},
			class: reason.Throttled, wait: 12 * time.Second, nothing: true,
		},
		{
			name: "of the whole account", profile: "stripe", method: "GET", path: "/v1/charges", status: 429, header: []string{"Stripe-Rate-Limited-Reason", "global-rate"},
			want: reading{Account: true}, class: reason.Throttled, nothing: true,
		},
		{
			name: "a lock", profile: "stripe", method: "POST", path: "/v1/charges", status: 429, answer: `{"error": {"code": "lock_timeout"}}`,
			class: reason.Failed, nothing: true,
		},
		{
			name: "a base", profile: "airtable", method: "GET", path: "/v0/app1/T", status: 429,
			class: reason.Throttled, wait: 30 * time.Second, nothing: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := find(t, c.profile)
			header := http.Header{}
			for i := 0; i < len(c.header); i += 2 {
				header.Set(c.header[i], c.header[i+1])
			}
			req := request(c.method, "https://x"+c.path, c.body)
			s := signal.Read(now, c.status, header, []byte(c.answer))
			pool, _ := p.Attempt(req, "")
			var got reading
			if got.Pool, got.Cost, got.Account = p.Read(now, req, pool, c.status, header, []byte(c.answer), &s); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if s.Class != c.class || s.RetryAfter != c.wait || s.Exhausted != c.spent {
				t.Errorf("class %v, wait %v, exhausted %v", s.Class, s.RetryAfter, s.Exhausted)
			}
			switch {
			case c.nothing && len(s.Limits) > 0:
				t.Errorf("limits %+v", s.Limits)
			case !c.nothing && (len(s.Limits) == 0 || s.Limits[0] != c.limit):
				t.Errorf("limits %+v, want %+v", s.Limits, c.limit)
			}
		})
	}
}

// TestCostsAreThoseOfRequestsAlike: what a query took is what it is thought to take.
func TestCostsAreThoseOfRequestsAlike(t *testing.T) {
	p := find(t, "shopify")
	const path = "https://x/admin/api/2026-07/graphql.json"
	dear, cheap := request("POST", path, `{"query": "{orders}"}`), request("POST", path, `{"query": "{shop}"}`)
	answer := func(req *http.Request, body string) {
		var s signal.Signal
		s.Class = reason.OK
		p.Read(time.Now(), req, "graphql", 200, http.Header{}, []byte(body), &s)
	}
	answer(dear, `{"extensions": {"cost": {"actualQueryCost": 400}}}`)
	answer(cheap, `{"extensions": {"cost": {"actualQueryCost": 1}}}`)
	for req, want := range map[*http.Request]float64{dear: 400, cheap: 1, request("POST", path, `{"query": "{new}"}`): 1000} {
		if _, got := p.Attempt(req, ""); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestLimitsThatWereAskedFor are those of the pools.
func TestLimitsThatWereAskedFor(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	got := find(t, "github").Asked(now, []byte(`{"resources": {
		"core": {"limit": 5000, "used": 1, "remaining": 4999, "reset": 1795350600},
		"graphql": {"limit": 5000, "used": 7, "remaining": 4993, "reset": 1795350600},
		"search": {"limit": 30, "remaining": "x", "reset": 1795350600},
		"source_import": {"limit": 100, "remaining": 100, "reset": 1795350600}
	}}`))
	want := map[string][]control.Fact{
		"core":    {{Name: "core", Quota: 5000, Remaining: 4999, Window: time.Hour, Reset: 30 * time.Minute}},
		"graphql": {{Name: "graphql", PerCost: true, Quota: 5000, Remaining: 4993, Window: time.Hour, Reset: 30 * time.Minute}},
	}
	if len(got) != len(want) || !slices.Equal(got["core"], want["core"]) || !slices.Equal(got["graphql"], want["graphql"]) {
		t.Errorf("%+v", got)
	}
}

func request(method, target, body string, header ...string) *http.Request {
	req := httptest.NewRequest(method, target, nil)
	if body != "" {
		req, _ = http.NewRequest(method, target, bytes.NewReader([]byte(body)))
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func TestPathsFitTheirPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"/search/*", "/search/code", true},
		{"/search/*", "/search", false},
		{"/search/*", "/search/code/x", false},
		{"/search/**", "/search", true},
		{"/search/**", "/search/a/b", true},
		{"/search/**", "/searching", false},
		{"/**/comments", "/repos/a/b/comments", true},
		{"/**/comments", "/comments", true},
		{"/**/comments", "/comments/1", false},
		{"/**/issues/*/comments", "/repos/a/issues/7/comments", true},
		{"/api/chat.*", "/api/chat.postMessage", true},
		{"/api/chat.*", "/api/conversations.list", false},
		{"/v*/models/*:generateContent", "/v1beta/models/gemini:generateContent", true},
		{"/a", "/a/", true},
		{"/a", "/", false},
		{"/", "/", true},
		{"/**", "/", true},
		{"/*/b", "/a/b", true},
	} {
		m := Match{Paths: []string{c.pattern}}
		if got := m.Fits(&Request{Path: c.path}); got != c.want {
			t.Errorf("%s fits %s: %v, want %v", c.path, c.pattern, got, c.want)
		}
	}
}

func TestAMatchWantsAllThatItNames(t *testing.T) {
	m := Match{
		Paths: []string{"/items", "/things"}, Methods: []string{"POST"},
		Query: map[string]string{"kind": "a*"}, Header: map[string]string{"x-api": "2"}, Fields: map[string]string{"a.model": "m-*"},
	}
	const body = `{"a": {"model": "m-1"}}`
	for name, c := range map[string]struct {
		req  *http.Request
		want bool
	}{
		"all":     {request("POST", "/items?kind=ab", body, "X-Api", "2"), true},
		"path":    {request("POST", "/other?kind=ab", body, "X-Api", "2"), false},
		"method":  {request("PUT", "/items?kind=ab", body, "X-Api", "2"), false},
		"query":   {request("POST", "/items?kind=b", body, "X-Api", "2"), false},
		"none":    {request("POST", "/items", body, "X-Api", "2"), false},
		"header":  {request("POST", "/items?kind=ab", body, "X-Api", "3"), false},
		"field":   {request("POST", "/items?kind=ab", `{"a": {"model": "n"}}`, "X-Api", "2"), false},
		"no body": {request("POST", "/items?kind=ab", "", "X-Api", "2"), false},
	} {
		if got := m.Fits(RequestOf(c.req, "")); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestTheFirstPoolCounts(t *testing.T) {
	p := Pools{Base: "/api/v3", List: []Pool{
		{Name: "writes", Match: Match{Methods: []string{"POST"}, Paths: []string{"/things/**"}}},
		{Name: "tier", Match: Match{Paths: []string{"/methods/*"}}, Each: Each{Segment: -1}},
		{Match: Match{Paths: []string{"/chat"}}, Each: Each{Field: "model"}},
		{Name: "region", Each: Each{Query: "region"}},
		{Name: "team", Each: Each{Header: "X-Team"}},
		{Name: "rest", Match: Match{Paths: []string{"/rest"}}},
		{Name: "both", Match: Match{Paths: []string{"/both"}}, Each: Each{Header: "X-Org", Field: "model"}},
	}}
	for _, c := range []struct {
		req  *http.Request
		want string
	}{
		{request("POST", "/api/v3/things/1", ""), "writes"},
		{request("GET", "/api/v3/things/1", ""), ""},
		{request("GET", "/api/v3/methods/chat.list", ""), "tier:chat.list"},
		{request("POST", "/api/v3/chat", `{"model": "m-1"}`), "m-1"},
		{request("POST", "/api/v3/chat", `{`), ""},
		{request("GET", "/api/v3/x?region=eu", ""), "region:eu"},
		{request("GET", "/api/v3/x", "", "X-Team", "blue team"), "team:blue_team"},
		{request("GET", "/api/v3/rest", ""), "rest"},
		{request("GET", "/api/v3rest", ""), ""},
		{request("POST", "/api/v3/both", `{"model": "m"}`), "both:m"},
		{request("POST", "/api/v3/both", `{"model": "m"}`, "X-Org", "o"), "both:o,m"},
		{request("POST", "/api/v3/both", `{}`, "X-Org", "o"), ""},
	} {
		if got := p.Name(RequestOf(c.req, p.Base)); got != c.want {
			t.Errorf("%s %s is of %q, want %q", c.req.Method, c.req.URL, got, c.want)
		}
	}
	long := request("GET", "/x?region="+strings.Repeat("x", 500), "")
	if got := p.Name(RequestOf(long, p.Base)); len(got) > maxName {
		t.Errorf("a name of %d bytes", len(got))
	}
}

// TestABodyIsThereAfterItWasMatched: the request is sent with it.
func TestABodyIsThereAfterItWasMatched(t *testing.T) {
	p := Pools{List: []Pool{{Each: Each{Field: "model"}}}}
	req := request("POST", "/", `{"model": "m"}`)
	if got := p.Name(RequestOf(req, p.Base)); got != "m" {
		t.Fatal(got)
	}
	var sent bytes.Buffer
	if _, err := sent.ReadFrom(req.Body); err != nil || sent.String() != `{"model": "m"}` {
		t.Fatalf("%q, %v", sent.String(), err)
	}
}

// TestResponsesTeachThePoolsOfTheirRoutes, and what a route's attempts have in common.
func TestResponsesTeachThePoolsOfTheirRoutes(t *testing.T) {
	p := Pools{List: []Pool{
		{Each: Each{Response: "X-Resource"}},
		{Name: "rest", Match: Match{Paths: []string{"/rest/**"}}},
	}}
	learn := func(path, resource string) string {
		h := http.Header{}
		if resource != "" {
			h.Set("X-Resource", resource)
		}
		return p.Learn(RequestOf(request("GET", path, ""), ""), h)
	}
	of := func(path string) string { return p.Name(RequestOf(request("GET", path, ""), p.Base)) }
	if got := of("/rest/x"); got != "rest" {
		t.Fatalf("before any response: %q", got)
	}
	if got := learn("/rest/x", ""); got != "" {
		t.Fatalf("a response that says nothing: %q", got)
	}
	if got := learn("/rest/x/1", "core"); got != "core" {
		t.Fatal(got)
	}
	for path, want := range map[string]string{"/rest/x/2": "core", "/rest/y": "core", "/other": ""} {
		if got := of(path); got != want {
			t.Errorf("%s is of %q, want %q", path, got, want)
		}
	}
	learn("/rest/y", "search")
	for path, want := range map[string]string{"/rest/x/2": "core", "/rest/y/9": "search", "/rest/z": "rest"} {
		if got := of(path); got != want {
			t.Errorf("%s is of %q, want %q", path, got, want)
		}
	}
}

func TestPoolsAreReadFromAFile(t *testing.T) {
	read := func(src string) ([]Pool, error) {
		root, file := configfile.Parse("pools.yaml", []byte(src), configfile.Options{What: "pools", Want: "pools"})
		if root == nil {
			return nil, file.Err()
		}
		s := root.Section()
		var all []Pool
		for _, n := range s.List("pools") {
			below := n.Section()
			all = append(all, readPool(below))
			below.Done()
		}
		s.Done()
		return all, file.Err()
	}
	got, err := read(`pools:
  - name: search
    match: {path: /search/**, method: [GET, HEAD], query: {type: code}, header: {X-Api: "2"}, field: {a.b: "*"}}
  - each: {segment: -1}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Pool{
		{Name: "search", Match: Match{
			Paths: []string{"/search/**"}, Methods: []string{"GET", "HEAD"},
			Query: map[string]string{"type": "code"}, Header: map[string]string{"X-Api": "2"}, Fields: map[string]string{"a.b": "*"},
		}},
		{Each: Each{Segment: -1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for src, problem := range map[string]string{
		"pools:\n  - name: a\n    match: {paths: /x}":            "pools.yaml:3:13: pools[0].match.paths: is not a field here",
		"pools:\n  - match: {path: /x}":                          "pools.yaml:2:5: pools[0].name: is missing; want a name, or each",
		"pools:\n  - name: a\n    match: {path: x}":              "pools[0].match.path: ",
		"pools:\n  - name: a\n    match: {method: get}":          "pools[0].match.method: ",
		"pools:\n  - name: a b":                                  "pools[0].name: ",
		"pools:\n  - each: {response: A, field: x}":              "pools[0].each: ",
		"pools:\n  - each: {}":                                   "pools[0].each: ",
		"pools:\n  - each: {segment: 0}":                         "pools[0].each: ",
		"pools:\n  - x":                                          "pools[0]: ",
		"pools:\n  - name: " + strings.Repeat("x", 90):           "pools[0].name: has 90 bytes",
		"pools:\n  - name: a\n    each: {responses: X-Resource}": "pools[0].each.responses: is not a field here",
	} {
		if _, err := read(src); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %s", src, err, problem)
		}
	}
}

// cited returns the keys of the sources that limits and rules refer to.
func (p *Profile) cited() []string {
	var keys []string
	for c := range p.all() {
		for _, l := range c.Limits {
			keys = append(keys, l.Source)
		}
		if c.Cost.Source != "" {
			keys = append(keys, c.Cost.Source)
		}
		for _, a := range c.Advertised {
			keys = append(keys, a.Source)
		}
	}
	for _, r := range p.refusals {
		keys = append(keys, r.Source)
	}
	if p.ask != nil {
		keys = append(keys, p.ask.Source)
	}
	return keys
}

// all yields the account and the pools.
func (p *Profile) all() func(yield func(*Class) bool) {
	return func(yield func(*Class) bool) {
		if !yield(&p.account) {
			return
		}
		for i := range p.pools {
			if !yield(&p.pools[i]) {
				return
			}
		}
	}
}
