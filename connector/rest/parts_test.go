package rest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
)

// scalar is a value as a file has it.
func scalar(f *configfile.File, text string) *node {
	n := configfile.NewNode(f, "f", text)
	n.Kind = configfile.Text
	return n
}

// said is what a builder's reading of a scalar found wrong.
func said(text string, read func(builder, *node)) string {
	f := configfile.NewFile("x.yaml", configfile.Options{})
	read(builder{File: f}, scalar(f, text))
	if e, ok := errors.AsType[*ConfigError](f.Err()); ok {
		return e.Problems[0].Message
	}
	return ""
}

func TestANameIsOfPlainLetters(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "Z": true, "0": true, "9x": true, "a.b": true, "a_b": true, "a-b": true, "azAZ09": true, "abcdefgh": true, "": true,
		"abcdefghi": false, ".a": false, "-a": false, "_a": false, "a/b": false, "a b": false, "ä": false,
		"a:": false, "a;": false, "a@": false, "a[": false, "a`": false, "a{": false, "a,": false,
	} {
		if problem := said(name, func(b builder, n *node) { b.name(n, 8) }); (problem == "") != ok {
			t.Errorf("%q: %q, want it to pass: %v", name, problem, ok)
		}
	}
}

func TestNumbersSizesAndTimesHaveTheirBounds(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 7, "1ms": time.Millisecond, "1h": time.Hour, "90s": 90 * time.Second} {
		var got time.Duration
		if problem := said(text, func(b builder, n *node) { got = b.duration(n, 7, time.Millisecond, time.Hour) }); problem != "" || got != want {
			t.Errorf("%q is %v, want %v; %q", text, got, want, problem)
		}
	}
	for text, want := range map[string]string{
		"999us": "want from 1ms to 1h", "1h1ns": "want from 1ms to 1h", "20": "want a duration with a unit, such as 250ms, 20s or 15m",
	} {
		if problem := said(text, func(b builder, n *node) { b.duration(n, 7, time.Millisecond, time.Hour) }); !strings.Contains(problem, want) {
			t.Errorf("%q: %q, want %q", text, problem, want)
		}
	}
	for text, want := range map[string]int64{"": 7, "0": 0, "1": 1, "100": 100, "010": 10} {
		var got int64
		if problem := said(text, func(b builder, n *node) { got = b.count(n, 7, 100) }); problem != "" || got != want {
			t.Errorf("%q is %d, want %d; %q", text, got, want, problem)
		}
	}
	for _, text := range []string{"-1", "101", "x", "1.5", "0x10"} {
		if problem := said(text, func(b builder, n *node) { b.count(n, 7, 100) }); !strings.Contains(problem, "at most 100") {
			t.Errorf("%q: %q", text, problem)
		}
	}
	for text, want := range map[string]int64{"": DefaultMaxBody, "1": 1, "010": 10, "2KiB": 2 << 10, "3MiB": 3 << 20, "1GiB": 1 << 30, "1024MiB": 1 << 30} {
		var got int64
		if problem := said(text, func(b builder, n *node) { got = b.bytes(n) }); problem != "" || got != want {
			t.Errorf("%q is %d bytes, want %d; %q", text, got, want, problem)
		}
	}
	for _, text := range []string{"0", "-1", "0KiB", "2GiB", "1025MiB", "1073741825", "x", "1MB"} {
		var got int64
		if problem := said(text, func(b builder, n *node) { got = b.bytes(n) }); !strings.Contains(problem, "want a size") || got != DefaultMaxBody {
			t.Errorf("%q: %q, %d bytes", text, problem, got)
		}
	}
}

func TestAPathStaysWithItsHost(t *testing.T) {
	for _, segment := range []string{".", ".."} {
		for _, path := range []string{"/" + segment, "/a/" + segment, "/" + segment + "/a", "/a/{key}/" + segment} {
			src := "connection: test\nprovider: {base_url: https://api.test}\nstreams:\n  - {name: a, list: {path: /a}, records: .items, key: .id, " +
				"detail: {name: d, path: \"" + path + "/{key}\", records: .items, key: .id}}\n"
			if _, err := Parse("x.yaml", []byte(src), environment); err == nil || !strings.Contains(err.Error(), "want no . or .. between slashes") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

func TestAMediaTypeIsNamedWhenItIsOne(t *testing.T) {
	for header, want := range map[string]string{
		"text/html; charset=utf-8": "text/html", "Text/CSV": "text/csv", "": "an unnamed type", ";": "an unnamed type",
		"a/b": "a/b", "text/" + strings.Repeat("x", 55): "text/" + strings.Repeat("x", 55),
		"text/" + strings.Repeat("x", 56): "an odd type",
	} {
		if got := mediaType(http.Header{"Content-Type": {header}}); got != want {
			t.Errorf("%q is %q, want %q", header, got, want)
		}
	}
}

func TestAParameterOfALinkIsRead(t *testing.T) {
	for _, tt := range []struct {
		in, name, value, rest string
		ok                    bool
	}{
		{"rel", "rel", "", "", true},
		{" rel=next", "rel", "next", "", true},
		{"rel=next;x", "rel", "next", ";x", true},
		{"rel=next, <y>", "rel", "next", ", <y>", true},
		{"rel = \"a b\" ;x", "rel", "a b", " ;x", true},
		{`t="a\"b"`, "t", `a"b`, "", true},
		{`t="a`, "", "", "", false},
		{`t="a\`, "", "", "", false},
		{"flag;x", "flag", "", ";x", true},
		{"=x", "", "x", "", true},
		{"rel=", "rel", "", "", true},
		{"rel=;x", "rel", "", ";x", true},
	} {
		if name, value, rest, ok := linkParam(tt.in); name != tt.name || value != tt.value || rest != tt.rest || ok != tt.ok {
			t.Errorf("%q: %q, %q, %q, %v", tt.in, name, value, rest, ok)
		}
	}
}

func TestThePageSizeIsNoPartOfAShape(t *testing.T) {
	r := Request{Query: map[string]Value{"limit": configfile.NewSecret("1", "1"), "per_page": configfile.NewSecret("2", "2"), "q": configfile.NewSecret("3", "3")}}
	if got, want := r.parts(true), []string{"q", "3"}; !slices.Equal(got, want) {
		t.Errorf("without the size %q, want %q", got, want)
	}
	if got, want := r.parts(false), []string{"limit", "1", "per_page", "2", "q", "3"}; !slices.Equal(got, want) {
		t.Errorf("with it %q, want %q", got, want)
	}
}

func TestWhichPathsAPoolHolds(t *testing.T) {
	for _, tt := range []struct {
		pattern, path string
		ok            bool
	}{
		{"/search", "/search", true}, {"/search", "/search/a", false}, {"/search/*", "/search/a", true}, {"/search/*", "/search/a/b", false},
		{"/search/*", "/search", false}, {"/search/**", "/search/a", true}, {"/search/**", "/search/a/b", true}, {"/search/**", "/search", true},
		{"/search/**", "/searches/a", false}, {"/*/search/**", "/v1/search/a", true}, {"/**", "/a", true}, {"/docs/{key}", "/docs/{key}", true},
		{"/docs/*", "/docs/{key}", true},
	} {
		if got := (Pool{Path: tt.pattern}).holds(Request{Path: tt.path}, nil); got != tt.ok {
			t.Errorf("%s holds %s: %v", tt.pattern, tt.path, got)
		}
	}
}

// pooled notes the pool of each request, by its path.
type pooled map[string]string

func (p pooled) Do(ctx context.Context, req *http.Request) (*connector.Response, error) {
	p[req.URL.Path] = connector.PoolOf(req.WithContext(ctx))
	return &connector.Response{Status: http.StatusOK, Body: []byte(`{"items":[{"id":1}],"id":1}`)}, nil
}

func TestRequestsNameTheirPools(t *testing.T) {
	const streams = `
streams:
  - {name: hits, list: {path: /search/issues}, records: .items, key: .id, detail: {stream: issues, path: "/issues/{key}", records: ., key: .id}}
  - {name: files, list: {path: /files, headers: {x-mode: bulk}}, records: .items, key: .id}
`
	for provider, want := range map[string]pooled{
		``:                  {"/search/issues": "", "/issues/7": "", "/files": ""},
		`, pool_by: stream`: {"/search/issues": "hits", "/issues/7": "issues", "/files": "files"},
		`, pools: [{name: search, path: /search/*}]`:                                                        {"/search/issues": "search", "/issues/7": "", "/files": ""},
		`, pools: [{name: search, path: /search/*}], pool_by: stream`:                                       {"/search/issues": "search", "/issues/7": "issues", "/files": "files"},
		`, pools: [{name: exports, headers: {X-Mode: "*"}}, {name: all, path: /**}]`:                        {"/search/issues": "all", "/issues/7": "all", "/files": "exports"},
		`, pools: [{name: one, path: /issues/*}, {name: one, path: /files}, {name: two, path: /search/**}]`: {"/search/issues": "two", "/issues/7": "one", "/files": "one"},
	} {
		c, err := New(parse(t, "connection: c\nprovider: {base_url: 'https://api.example.com'"+provider+"}"+streams))
		if err != nil {
			t.Fatal(err)
		}
		got := pooled{}
		for _, s := range []string{"hits", "files"} {
			if _, err := c.List(t.Context(), got, connector.ListRequest{Stream: s}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Detail(t.Context(), got, "hits", connector.Item{Key: "7"}); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%q: %v, want %v", provider, got, want)
		}
	}
}

// provided is the least connection with one more line for its provider.
func provided(t *testing.T, line string) *Config {
	t.Helper()
	return parse(t, strings.Replace(least, `com"`, `com", `+line, 1))
}

func TestTheCircuitIsReadAndDescribed(t *testing.T) {
	for _, tt := range []struct {
		line, want string
		circuit    Circuit
	}{
		{"timeout: 1s", "opens when 50% of the last 10 outcomes failed, of at least 5; then nothing is sent for 1m, then one probe at a time", Circuit{}},
		{"circuit: off", "off: a provider that keeps failing is sent requests all the same", Circuit{Off: true}},
		{"circuit: {window: 3}", "opens when 50% of the last 3 outcomes failed, of at least 3; then nothing is sent for 1m, then one probe at a time",
			Circuit{Config: breaker.Config{Window: 3}}},
		{`circuit: {ratio: "1", minimum: 10, open_for: 5m, probes: 3}`, "opens when 100% of the last 10 outcomes failed, of at least 10; then nothing is sent for 5m, then 3 probes at a time",
			Circuit{Config: breaker.Config{Ratio: 1, Minimum: 10, OpenFor: 5 * time.Minute, Probes: 3}}},
	} {
		cfg := provided(t, tt.line)
		if got := Describe(cfg).Circuit; cfg.Provider.Circuit != tt.circuit || got != tt.want {
			t.Errorf("%s:\n got %+v, %q\nwant %+v, %q", tt.line, cfg.Provider.Circuit, got, tt.circuit, tt.want)
		}
	}
}

func TestTheRetryBudgetIsReadAndDescribed(t *testing.T) {
	for _, tt := range []struct {
		line, want string
		budget     retry.Limits
	}{
		{"timeout: 1s", "up to 5 attempts a request; in a run 8 retries at first, 0.2 more for each success, at most 100 at a time", retry.Limits{}},
		{"retry: {attempts: 1}", "none: each request is sent once", retry.Limits{}},
		{"retry: {budget: {start: 1, capacity: 3, per_success: 0.001}}", "up to 5 attempts a request; in a run 1 retries at first, 0.001 more for each success, at most 3 at a time",
			retry.Limits{Start: 1, Capacity: 3, PerSuccess: 1}},
	} {
		cfg := provided(t, tt.line)
		if got := Describe(cfg).Retries; cfg.Provider.Retry.Budget != tt.budget || got != tt.want {
			t.Errorf("%s:\n got %+v, %q\nwant %+v, %q", tt.line, cfg.Provider.Retry.Budget, got, tt.budget, tt.want)
		}
	}
}

func TestErrorRulesClassifyResponses(t *testing.T) {
	cfg := parse(t, least+`
errors:
  - {status: 403, body: '.message // "" | test("rate limit"; "i")', as: throttle}
  - {status: 403, body: .code == 9007199254740993, as: quota}
  - {status: 403, as: forbidden}
  - {status: 200, body: '.ok == false and .error == "ratelimited"', as: throttle}
  - {status: 200, body: '.ok == false', as: unauthorized}
  - {status: 500, as: overloaded}
  - {status: 409, as: retry}
  - {status: 451, as: not_found}
`)
	type verdict struct {
		class reason.Class
		why   reason.Reason
		ok    bool
	}
	for _, c := range []struct {
		status int
		body   string
		want   verdict
	}{
		{403, `{"message":"API Rate Limit exceeded"}`, verdict{reason.Throttled, reason.RateLimited.Reason(), true}},
		{403, `{"code":9007199254740993}`, verdict{reason.Throttled, reason.QuotaExhausted, true}},
		{403, `{"code":9007199254740992}`, verdict{reason.Rejected, reason.Forbidden, true}},
		{403, `no json`, verdict{reason.Rejected, reason.Forbidden, true}},
		{403, `["message"]`, verdict{reason.Rejected, reason.Forbidden, true}},
		{200, `{"ok":false,"error":"ratelimited"}`, verdict{reason.Throttled, reason.RateLimited.Reason(), true}},
		{200, `{"ok":false,"error":"invalid_auth"}`, verdict{reason.Rejected, reason.Unauthorized, true}},
		{200, `{"ok":true}`, verdict{}},
		{200, ``, verdict{}},
		{500, ``, verdict{reason.Overloaded, reason.UpstreamPressure.Reason(), true}},
		{409, ``, verdict{reason.Failed, reason.ServerError, true}},
		{451, ``, verdict{reason.Rejected, reason.NotFound, true}},
		{404, ``, verdict{}},
	} {
		class, why, ok := cfg.Classify(c.status, []byte(c.body))
		if got := (verdict{class, why, ok}); got != c.want {
			t.Errorf("%d %s: got %v, want %v", c.status, c.body, got, c.want)
		}
	}
}

func TestSinks(t *testing.T) {
	for written, want := range map[string]struct {
		sink Sink
		says string
	}{
		"":                                    {sink: Sink{JSONL: &JSONL{Dir: "./out"}}, says: "jsonl in ./out"},
		"sink: {jsonl: {}}":                   {sink: Sink{JSONL: &JSONL{Dir: "./out"}}, says: "jsonl in ./out"},
		"sink: {jsonl: {dir: a b}}":           {sink: Sink{JSONL: &JSONL{Dir: "a b"}}, says: "jsonl in a b"},
		"sink: {sqlite: {}}":                  {sink: Sink{SQLite: &SQLite{}}, says: "sqlite in the state file"},
		"sink: {sqlite: {file: data.db}}":     {sink: Sink{SQLite: &SQLite{File: "data.db"}}, says: "sqlite in data.db"},
		"sink: {parquet: {}}":                 {sink: Sink{Parquet: &Parquet{Dir: "./out"}}, says: "parquet in ./out"},
		"sink: {parquet: {dir: /data/lake}}":  {sink: Sink{Parquet: &Parquet{Dir: "/data/lake"}}, says: "parquet in /data/lake"},
		"sink: {postgres: {}}":                {sink: Sink{Postgres: &Postgres{}}, says: "postgres in the state's database"},
		"sink: {singer: {}}":                  {sink: Sink{Singer: &Singer{}}, says: "singer on standard output"},
		"sink: {airbyte: {}}":                 {sink: Sink{Airbyte: &Airbyte{}}, says: "airbyte on standard output"},
		"sink: {sqlite: {file: \"${REPO}\"}}": {sink: Sink{SQLite: &SQLite{File: "golang/go"}}, says: "sqlite in golang/go"},
	} {
		t.Run(written, func(t *testing.T) {
			cfg := parse(t, least+written+"\n")
			if diff := cmp.Diff(want.sink, cfg.Sink, cmp.AllowUnexported(Value{})); diff != "" {
				t.Error(diff)
			}
			if got := cfg.Sink.String(); got != want.says || Describe(cfg).Sink != want.says {
				t.Errorf("it says %q and the plan %q, want %q", got, Describe(cfg).Sink, want.says)
			}
		})
	}
	env := func(string) (string, bool) { return "postgres://crm:canary@db/crm", true }
	for written, want := range map[string]string{
		`{url: "postgres://crm@db/crm", schema: raw}`: "postgres in postgres://crm@db/crm, schema raw",
		`{url: "${RECORDS_URL}"}`:                     "postgres in ${RECORDS_URL}",
		`{url: "postgres://crm:canary@db/crm"}`:       "sink.postgres.url: has a password written out; want the whole URL as ${NAME}",
		`{url: canary.db}`:                            "sink.postgres.url: is not the URL of a PostgreSQL database; want postgres://",
		`{schema: ` + strings.Repeat("x", 64) + `}`:   "sink.postgres.schema",
	} {
		cfg, err := Parse("c.yaml", []byte(least+"sink: {postgres: "+written+"}\n"), env)
		got := fmt.Sprint(err)
		if err == nil {
			got = cfg.Sink.String()
		}
		if !strings.Contains(got, want) || strings.Contains(got, "canary") {
			t.Errorf("%s: %s, want %s", written, got, want)
		}
	}
	if got := (Sink{}).String(); got != "" {
		t.Errorf("no sink is %q", got)
	}
}

// TestEachSinkOfTheSchemaIsBuilt keeps the schema and the code from naming
// different kinds.
func TestEachSinkOfTheSchemaIsBuilt(t *testing.T) {
	def := table(table(loadSchema().source["$defs"])["sink"])
	kinds := table(def["properties"])
	if len(kinds) < 5 {
		t.Fatalf("the schema knows %d sinks", len(kinds))
	}
	for kind := range kinds {
		if says := parse(t, least+"sink: {"+kind+": {}}\n").Sink.String(); !strings.HasPrefix(says, kind+" ") {
			t.Errorf("%s becomes %q", kind, says)
		}
		if !strings.Contains(def["errorMessage"].(string), kind) {
			t.Errorf("the advice does not name %s", kind)
		}
	}
}

func TestThePlanNamesTheSink(t *testing.T) {
	archive := plans(t)
	for _, kind := range []string{"sqlite", "parquet", "singer", "airbyte"} {
		var text strings.Builder
		if err := Describe(parse(t, least+"sink: {"+kind+": {}}\n")).Write(&text); err != nil {
			t.Fatal(err)
		}
		archive.Check(t, "sink_"+kind+".txt", text.String())
	}
}
