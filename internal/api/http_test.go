package api_test

import (
	"bytes"
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

func TestNewNamesTheOptionThatIsWrong(t *testing.T) {
	for want, o := range map[string]api.Options{
		"api: authorize is nil, must be a function; api.Anybody lets everybody in": {},
		"api: streams is -1, must be from 1 to 100000, or 0 for 256":               {Authorize: api.Anybody, Streams: -1},
		"api: permits is 10000001, must be from 1 to 10000000, or 0 for 100000":    {Authorize: api.Anybody, Permits: 10_000_001},
	} {
		if _, err := api.New(o); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestTheLeastAPIAnswersEmptyListsToAnybody(t *testing.T) {
	a, err := api.New(api.Options{Authorize: api.Anybody})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{API: a}
	for _, path := range []string{"/v1/rate", "/v1/connections", "/v1/runs", "/v1/gaps"} {
		if rec := w.do("GET", path, "", ""); rec.Code != 200 || rec.Body.String() != "[]\n" {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
	into[api.Health](t, w.do("GET", "/readyz", "", ""), 200)
	for _, path := range []string{"/metrics", "/v1/runs/r", "/v1/gaps/1", "/v1/quota/snapshot"} {
		into[api.Problem](t, w.do("GET", path, "", ""), 404)
	}
}

func TestAPathThatIsWrittenOddlyIsNoPath(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"/v1//rate", "//v1/rate", "/v1/./rate", "/v1/quota/../rate", "/v1/rate/", "/v1/", "//evil.example/"} {
		r := request("GET", "/", "admin", "")
		r.URL.Path = path
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		into[api.Problem](t, rec, 404)
	}
	r := request("CONNECT", "/", "admin", "")
	r.URL.Path, r.Host = "", "evil.example:443"
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	into[api.Problem](t, rec, 404)
}

func TestEveryAnswerCarriesTheSecurityHeadersAndNoneAllowsOtherOrigins(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"/v1", "/nowhere", "/healthz", "/metrics", "/v1/runs/nobody"} {
		h := w.do("GET", path, "admin", "").Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Access-Control-Allow-Origin": "",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

func TestMethodsThatAPathDoesNotTakeAreNamed(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []struct{ method, path, allow string }{
		{"GET", "/v1/quota/approve", "OPTIONS, POST"},
		{"DELETE", "/v1/quota/config", "GET, HEAD, OPTIONS, PATCH"},
		{"POST", "/v1/events", "GET, HEAD, OPTIONS"},
		{"HEAD", "/v1/quota/usage", "OPTIONS, POST"},
	} {
		rec := w.do(c.method, c.path, "admin", "")
		if rec.Code != 405 || rec.Header().Get("Allow") != c.allow || rec.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d, Allow %q, want %q", c.method, c.path, rec.Code, rec.Header().Get("Allow"), c.allow)
		}
	}
	if rec := w.do("OPTIONS", "/v1/rate", "", ""); rec.Code != 204 || rec.Header().Get("Allow") != "GET, HEAD, OPTIONS" {
		t.Errorf("OPTIONS: %d %v", rec.Code, rec.Header())
	}
	if p := into[api.Problem](t, w.do("GET", "/v2", "admin", ""), 404); p.Type != "about:blank" {
		t.Errorf("%+v", p)
	}
}

func TestHEADIsGETWithoutTheBody(t *testing.T) {
	w := newWorld(t, nil)
	server := httptest.NewServer(w)
	defer server.Close()
	for _, path := range []string{"/healthz", "/v1/openapi.json", "/v1/events"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer plain")
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 200 || res.Header.Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", path, res.StatusCode, res.Header)
		}
	}
}

func TestWhoMayWhat(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"/v1/rate", "/v1/connections", "/v1/runs", "/v1/runs/r1", "/v1/gaps", "/v1/gaps/1", "/v1/quota/config?provider=openai", "/v1/quota/statistics?provider=openai", "/metrics"} {
		for key, status := range map[string]int{"": 401, "nobody": 401, "plain": 403, "screen": 200, "shift": 200, "admin": 200} {
			if rec := w.do("GET", path, key, ""); rec.Code != status {
				t.Errorf("%s with %q: %d, want %d", path, key, rec.Code, status)
			}
		}
	}
	// What each route takes: any caller, any key, a key for calls, or a role.
	needs := map[string]string{
		"GET /healthz": "any", "GET /readyz": "any", "GET /v1/openapi.json": "any",
		"GET /v1": "key", "GET /v1/quota/snapshot": "key", "GET /v1/quota/forecast": "key", "GET /v1/events": "key",
		"POST /v1/quota/approve": "call", "POST /v1/quota/usage": "call",
		"PATCH /v1/quota/config": "operator", "POST /v1/gaps": "operator", "POST /v1/simulator": "operator", "GET /v1/keys": "admin", "POST /v1/keys": "admin", "DELETE /v1/keys/{id}": "admin",
	}
	may := map[string][]string{
		"any": {"", "plain", "screen", "shift", "admin"}, "key": {"plain", "screen", "shift", "admin"}, "call": {"plain", "admin"},
		"viewer": {"screen", "shift", "admin"}, "operator": {"shift", "admin"}, "admin": {"admin"},
	}
	for _, route := range w.Routes() {
		need := cmp.Or(needs[route], "viewer")
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{id}", "1").Replace(path)
		for _, key := range []string{"", "plain", "screen", "shift", "admin"} {
			// What is asked is wrong, so that those who are let in change nothing.
			rec := w.do(method, path+"?unknown", key, "no JSON")
			if !slices.Contains(may[need], key) {
				want := 403
				if key == "" {
					want = 401
				}
				p := into[api.Problem](t, rec, want)
				if want == 403 && (p.Role == "" || p.Role != need && need != "call" || !strings.Contains(p.Detail, p.Role)) {
					t.Errorf("%s with %q: the problem does not name the role: %+v", route, key, p)
				}
			} else if rec.Code == 401 || rec.Code == 403 {
				t.Errorf("%s with %q: %d %s", route, key, rec.Code, rec.Body)
			}
		}
	}
	for _, path := range []string{"/v1", "/v1/quota/snapshot?provider=openai", "/v1/quota/forecast?provider=openai"} {
		for key, status := range map[string]int{"": 401, "plain": 200, "admin": 200} {
			if rec := w.do("GET", path, key, ""); rec.Code != status {
				t.Errorf("%s with %q: %d, want %d", path, key, rec.Code, status)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/v1/openapi.json"} {
		if rec := w.do("GET", path, "", ""); rec.Code != 200 {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
}

func TestAnAuthorizeThatForgetsToAskForAnAdminLetsNobodyIn(t *testing.T) {
	w := newWorld(t, func(o *api.Options) {
		o.Authorize = func(*http.Request, api.Role) (api.Caller, error) { return api.Caller{ID: "x"}, nil }
	})
	into[api.Problem](t, w.do("GET", "/v1/gaps", "", ""), 403)
}

func TestARefusalSaysHowToSendAKeyAndNothingElse(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(o *api.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	rec := w.do("GET", "/v1", "canary-key", "")
	if p := into[api.Problem](t, rec, 401); p.Reason != "unauthorized" || rec.Header().Get("WWW-Authenticate") != `Bearer realm="headway"` {
		t.Errorf("%+v %v", p, rec.Header())
	}
	if strings.Contains(rec.Body.String()+log.String(), "canary") {
		t.Errorf("answered %s, logged %s", rec.Body, log.String())
	}
	rec = w.do("GET", "/v1", "busy", "")
	if p := into[api.Problem](t, rec, 429); rec.Header().Get("Retry-After") != "2" || p.RetryInMS < 1000 || p.RetryInMS > 1500 {
		t.Errorf("%+v %v", p, rec.Header())
	}
}

func TestAPageOfAnotherSiteIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	for name, c := range map[string]struct {
		header, value string
		status        int
	}{
		"another site":   {"Sec-Fetch-Site", "cross-site", 403},
		"another origin": {"Origin", "https://evil.example", 403},
		"our console":    {"Sec-Fetch-Site", "same-origin", 200},
		"no browser":     {"User-Agent", "headway", 200},
	} {
		r := request("POST", "/v1/quota/approve", "plain", someCall)
		r.Header.Set(c.header, c.value)
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		if rec.Code != c.status {
			t.Errorf("%s: %d, want %d", name, rec.Code, c.status)
		}
	}
}

func TestBodiesAreStrict(t *testing.T) {
	w := newWorld(t, nil)
	for body, want := range map[string]struct{ field, detail string }{
		``:                          {"", "the body is not JSON"},
		`null`:                      {"", "must be a JSON object"},
		`[]`:                        {"", "must be a JSON object"},
		`"m"`:                       {"", "must be a JSON object"},
		`{"model":"m"`:              {"", "not JSON"},
		`{"model":"m"} {}`:          {"", "not JSON at byte 15"},
		`{"model":"m"}x`:            {"", "not JSON at byte 14"},
		`{"model":"m","brust":1}`:   {`"brust"`, `"brust" is an unknown field, must be one of model, expected_input_tokens,`},
		`{"Model":"m"}`:             {`"Model"`, "unknown field"},
		`{"model":"m","model":"n"}`: {"model", "model is given twice"},
		`{"model":7}`:               {"model", "model is a JSON number, must be a string"},
		`{"model":"m","expected_input_tokens":"9"}`:                 {"expected_input_tokens", "is a JSON string, must be a whole number"},
		`{"model":"m","expected_input_tokens":1.5}`:                 {"expected_input_tokens", "is a JSON number, must be a whole number"},
		`{"model":"m","expected_input_tokens":-1}`:                  {"expected_input_tokens", "is -1, must be from 0 to 1000000000"},
		`{"model":"m","expected_input_tokens":1e99}`:                {"expected_input_tokens", "is a JSON number"},
		`{"model":"m","cached_tokens":1}`:                           {"cached_tokens", "is 1, must be from 0 to 0"},
		`{"model":"m","wait_ms":-1}`:                                {"wait_ms", "is -1, must be from 0 to 86400000"},
		`{"model":"m","wait_ms":86400001}`:                          {"wait_ms", "must be from 0"},
		`{"model":"m","tenant":"` + strings.Repeat("t", 257) + `"}`: {"tenant", "a name of 257 bytes, must be at most 256"},
		`{"` + strings.Repeat("x", 9000) + `":1}`:                   {`"` + strings.Repeat("x", 64) + `..."`, "unknown field"},
	} {
		w.quotas = map[string]api.Quota{"openai": w.openai}
		p := into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", body), 400)
		if p.Field != want.field || !strings.Contains(p.Detail, want.detail) || p.Code != quota.CodeInvalidConfig || len(p.Detail) > 600 {
			t.Errorf("%.60s: field %q, %q; want %q, %q", body, p.Field, p.Detail, want.field, want.detail)
		}
	}
	if n := w.openai.Snapshot().Statistics; n.Approved != 0 {
		t.Errorf("%d approved", n.Approved)
	}
	for body, field := range map[string]string{
		`{"permit":"x","input_tokens":-1}`:          "input_tokens",
		`{"permit":"x","output_tokens":2000000000}`: "output_tokens",
		`{"permit":"x","cached_tokens":1}`:          "cached_tokens",
		`{"permit":"x","cancel":1}`:                 "cancel",
		`{"permit":"x","input":1}`:                  `"input"`,
	} {
		if p := into[api.Problem](t, w.do("POST", "/v1/quota/usage", "plain", body), 400); p.Field != field {
			t.Errorf("%s: %+v", body, p)
		}
	}
}

func TestBodiesOfOtherTypesEncodingsAndSizesAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	send := func(method, path string, change func(http.Header), body string) *httptest.ResponseRecorder {
		r := request(method, path, "admin", body)
		change(r.Header)
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		return rec
	}
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	const ask, config = "/v1/quota/approve", "/v1/quota/config?provider=openai"
	for name, c := range map[string]struct {
		rec           *httptest.ResponseRecorder
		status        int
		header, value string
	}{
		"a form":        {send("POST", ask, set("Content-Type", "application/x-www-form-urlencoded"), someCall), 415, "Accept-Post", "application/json"},
		"no type":       {send("POST", ask, set("Content-Type", ""), someCall), 415, "Accept-Post", "application/json"},
		"latin":         {send("POST", ask, set("Content-Type", "application/json; charset=latin1"), someCall), 415, "Accept-Post", "application/json"},
		"utf-8":         {send("POST", ask, set("Content-Type", "application/json; charset=UTF-8"), someCall), 200, "Content-Type", "application/json"},
		"JSON as patch": {send("PATCH", config, set("Content-Type", "application/json"), `{}`), 415, "Accept-Patch", "application/merge-patch+json"},
		"gzip":          {send("POST", ask, set("Content-Encoding", "gzip"), someCall), 415, "Accept-Encoding", "identity"},
		"too large":     {send("PATCH", config, set("X", "x"), `{"dayZone":"`+strings.Repeat("x", api.MaxBody)+`"}`), 413, "Content-Type", "application/problem+json"},
	} {
		if c.rec.Code != c.status || c.rec.Header().Get(c.header) != c.value {
			t.Errorf("%s: %d, %s %q; want %d, %q", name, c.rec.Code, c.header, c.rec.Header().Get(c.header), c.status, c.value)
		}
	}
	// The largest that is taken is taken.
	pad := strings.Repeat(" ", api.MaxBody-len(someCall))
	into[api.Approval](t, send("POST", ask, set("X", "x"), someCall+pad), 200)
}

func TestReadinessTellsEverybodyWhetherAndOnlyTheLogWhyNot(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(o *api.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	into[api.Health](t, w.do("GET", "/readyz", "", ""), 200)
	w.notReady = errors.New("open /srv/canary.db: disk full")
	rec := w.do("GET", "/readyz", "", "")
	if p := into[api.Problem](t, rec, 503); p.Reason != "internal" || strings.Contains(rec.Body.String(), "canary") {
		t.Errorf("%s", rec.Body)
	}
	if !strings.Contains(log.String(), "canary.db") {
		t.Errorf("log %s", log.String())
	}
	w.notReady = &reason.Refusal{Reason: reason.Closed}
	if p := into[api.Problem](t, w.do("GET", "/readyz", "", ""), 503); p.Reason != "closed" {
		t.Errorf("%+v", p)
	}
	into[api.Health](t, w.do("GET", "/healthz", "", ""), 200)
}

func TestAFaultOfOursIsInTheLogAndNotInTheAnswer(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(o *api.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	w.reader.fails = errors.New("store /srv/canary.db is damaged")
	for _, path := range []string{"/v1/rate", "/v1/connections", "/v1/runs", "/v1/runs/r1", "/v1/gaps", "/v1/gaps/1"} {
		log.Reset()
		rec := w.do("GET", path, "admin", "")
		if p := into[api.Problem](t, rec, 500); p.Reason != "internal" || strings.Contains(rec.Body.String(), "canary") {
			t.Errorf("%s: %s", path, rec.Body)
		}
		if !strings.Contains(log.String(), "canary.db") {
			t.Errorf("%s: log %s", path, log.String())
		}
	}
}

func TestUnknownAndRepeatedParametersAreNamed(t *testing.T) {
	w := newWorld(t, nil)
	got := map[string]string{}
	for _, query := range []string{"/v1/runs?limt=5", "/v1/runs?limit=5&limit=6", "/v1/gaps?status=open", "/v1/gaps?reason=bad", "/v1/gaps?after=-1", "/v1/runs?limit=1001", "/v1/runs?limit=", "/v1/healthz", "/v1?a=b"} {
		if rec := w.do("GET", query, "admin", ""); rec.Code == 400 {
			got[query] = into[api.Problem](t, rec, 400).Detail
		}
	}
	want := map[string]string{
		"/v1/runs?limt=5":          `"limt" is an unknown parameter, must be one of: connection, before, limit`,
		"/v1/runs?limit=5&limit=6": `limit is given more than once, must be given once`,
		"/v1/gaps?status=open":     `status is "open", must be pending, leased, recovered, terminal or all`,
		"/v1/gaps?reason=bad":      `reason is "bad", must be a reason of a gap, such as rate_limited`,
		"/v1/gaps?after=-1":        `after is "-1", must be a whole number from 0 to 4611686018427387904`,
		"/v1/runs?limit=1001":      `limit is "1001", must be a whole number from 1 to 1000`,
		"/v1/runs?limit=":          `limit is "", must be a whole number from 1 to 1000`,
		"/v1?a=b":                  `"a" is an unknown parameter, must be one of: none`,
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestKeysAreForAdmins(t *testing.T) {
	w := newWorld(t, nil)
	past := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for _, c := range []struct {
		method, path, key, body string
		status                  int
		want                    string
	}{
		{"GET", "/v1/keys", "", "", 401, ""},
		{"POST", "/v1/keys", "plain", `{"id":"a"}`, 403, ""},
		{"DELETE", "/v1/keys/a", "plain", "", 403, ""},
		{"GET", "/v1/keys", "admin", "", 200, `[{"id":"configured","configured":true}]`},
		{"GET", "/v1/keys?x=1", "admin", "", 400, "an unknown parameter"},
		{"POST", "/v1/keys", "admin", `{"id":"a","models":["m"],"uploads":true}`, 200, `{"secret":"hw_secret","id":"a","models":["m"],"uploads":true,"configured":false}`},
		{"POST", "/v1/keys", "admin", `{}`, 400, "id is missing"},
		{"POST", "/v1/keys", "admin", `{"id":"a","hash":"x"}`, 400, "an unknown field"},
		{"POST", "/v1/keys", "admin", `{"id":"a","expires":"` + past + `"}`, 400, "later than now"},
		{"DELETE", "/v1/keys/a", "admin", "", 204, ""},
		{"DELETE", "/v1/keys/a", "admin", "", 404, "No such key"},
		{"DELETE", "/v1/keys/configured", "admin", "", 409, "delete its lines and reload"},
	} {
		res := w.do(c.method, c.path, c.key, c.body)
		if res.Code != c.status || !strings.Contains(res.Body.String(), c.want) {
			t.Errorf("%s %s by %q: %d %s, want %d %s", c.method, c.path, c.key, res.Code, res.Body, c.status, c.want)
		}
	}
}
