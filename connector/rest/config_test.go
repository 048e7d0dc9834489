package rest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/retry"
)

// canary is a secret that must not come out anywhere.
const canary = "hunter2"

// environment is what the tests' files can refer to.
func environment(name string) (string, bool) {
	v, ok := map[string]string{
		"TOKEN": canary, "SECRET": canary + " !", "EMPTY": "", "MULTILINE": canary + "\nx",
		"CHAT_URL": "https://chat.example.com/api", "CHAT_TOKEN": canary,
		"GITHUB_TOKEN": canary, "REPO": "golang/go",
	}[name]
	return v, ok
}

// plans is the archive of what is said about connections.
func plans(t *testing.T) *golden.Archive {
	t.Helper()
	return golden.Open(t, filepath.Join("testdata", "plan.txtar"))
}

// bad gives the archive of bad connections, each NAME.yaml with what is said about
// it in NAME.want, and the names of the connections.
func bad(t testing.TB) (*golden.Archive, []string) {
	t.Helper()
	a := golden.Open(t, filepath.Join("testdata", "bad.txtar"))
	names := slices.DeleteFunc(a.Names(), func(name string) bool { return filepath.Ext(name) != ".yaml" })
	if len(names) == 0 {
		t.Fatal("there are no bad connections")
	}
	return a, names
}

func TestBadFilesAreExplainedLineByLine(t *testing.T) {
	archive, names := bad(t)
	line := regexp.MustCompile(`^testdata/bad/\w+\.yaml(:\d+:\d+)?: .+$`)
	known := slices.Clone(names)
	for _, name := range names {
		want := strings.TrimSuffix(name, ".yaml") + ".want"
		known = append(known, want)
		t.Run(name, func(t *testing.T) {
			src, _ := archive.File(name)
			cfg, err := Parse("testdata/bad/"+name, []byte(src), environment)
			if cfg != nil {
				t.Fatal("a bad file gave a config")
			}
			if _, ok := errors.AsType[*ConfigError](err); !ok {
				t.Fatalf("got %T, want *ConfigError", err)
			}
			for l := range strings.SplitSeq(err.Error(), "\n") {
				if !line.MatchString(l) {
					t.Errorf("not file:line:column: message: %s", l)
				}
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the secret is in the error:\n%v", err)
			}
			archive.Check(t, want, err.Error()+"\n")
		})
	}
	archive.Only(t, known)
}

func TestABadFileIsExplainedFromTheDisk(t *testing.T) {
	archive, _ := bad(t)
	src, _ := archive.File("types.yaml")
	file := filepath.Join(t.TempDir(), "types.yaml")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	_, want := Parse(file, []byte(src), environment)
	cfg, err := Load(file, environment)
	if cfg != nil || err == nil {
		t.Fatalf("a bad file gave %v, %v", cfg, err)
	}
	if diff := cmp.Diff(fmt.Sprint(want), err.Error()); diff != "" {
		t.Errorf("-parsed +loaded:\n%s", diff)
	}
	if !strings.HasPrefix(err.Error(), file+":") {
		t.Errorf("the file is not named: %v", err)
	}
}

// parse reads a connection of one stream with more lines at its end.
func parse(t testing.TB, src string) *Config {
	t.Helper()
	cfg, err := Parse("test.yaml", []byte(src), environment)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func equalValues(a, b Value) bool { return a.String() == b.String() && a.Reveal() == b.Reveal() }

const everything = `
connection: all
provider:
  base_url: https://api.example.com/v1/
  auth: {header: {name: x-api-key, value: "${TOKEN}"}}
  ceiling: 50ms
  timeout: 1m30s
  max_body: 2MiB
  headers: {accept: text/json, X-Version: 3, X-Tenant: "t-${TOKEN}"}
  pacing: {initial: 2s, law: aimd, step: 10ms, factor: 0.25, tolerance: 0s, jitter: {min: 1ms, max: 20ms}, max_retry_after: 1m}
  retry: {base: 1s, cap: 10s, attempts: 3, budget: {start: 4, capacity: 50, per_success: 0.1}}
  circuit: {ratio: 0.8, window: 20, minimum: 6, open_for: 30s, probes: 2}
streams:
  - name: a
    list: {path: /a b/ü, query: {limit: 100, all: true, cost: "$${x}"}, headers: {X-List: "1"}, method: GET}
    records: .data.items
    key: .id
    fingerprint: "[.a, .b]"
    paginate: {offset: {param: skip, limit_param: take, limit: 50}}
    incremental: {cursor: .at, param: since}
    detail: {stream: a_detail, path: "/a/{key}/full", query: {of: "{key}"}, records: ., key: .id}
  - {name: b, list: {path: /b}, records: .items, key: .id, paginate: {page: {param: p, start: 0, size_param: n, size: 10}}}
errors: [{status: 403, body: .quota, as: quota}]
run: {max_requests: "1000", max_wall_clock: 2h, concurrency: 4}
sink: {jsonl: {dir: /data}}
`

func TestEveryFieldArrives(t *testing.T) {
	cfg := parse(t, everything)
	type plain struct {
		Name, Base, Header, Secret, Path, Cost, DetailPath, DetailQuery, Records, Fingerprint string
		Provider                                                                              Provider
		Paginate, Second                                                                      Paginate
		Run                                                                                   Run
		Sink                                                                                  string
	}
	s := cfg.Streams[0]
	provider := cfg.Provider
	provider.BaseURL, provider.Auth, provider.Headers = nil, Auth{}, nil
	got := plain{
		Name: cfg.Name, Base: cfg.Provider.BaseURL.String(), Header: cfg.Provider.Auth.Name, Secret: cfg.Provider.Auth.Secret.Reveal(),
		Path: s.List.Path, Cost: s.List.Query["cost"].Reveal(), DetailPath: s.Detail.Request.Path, DetailQuery: s.Detail.Request.Query["of"].Reveal(),
		Records: s.Records.String(), Fingerprint: s.Fingerprint.String(),
		Provider: provider, Paginate: s.Paginate, Second: cfg.Streams[1].Paginate, Run: cfg.Run, Sink: cfg.Sink.JSONL.Dir,
	}
	want := plain{
		Name: "all", Base: "https://api.example.com/v1/", Header: "X-Api-Key", Secret: canary,
		Path: "/a%20b/%C3%BC", Cost: "${x}", DetailPath: "/a/{key}/full", DetailQuery: "{key}",
		Records: ".data.items", Fingerprint: "[.a, .b]",
		Provider: Provider{
			Ceiling: 50 * time.Millisecond, Timeout: 90 * time.Second, MaxBody: 2 << 20,
			Pacing: Pacing{
				Initial: 2 * time.Second, Law: "aimd", Step: 10 * time.Millisecond, Factor: 0.25, Tolerance: -1,
				JitterMin: time.Millisecond, JitterMax: 20 * time.Millisecond, MaxRetryAfter: time.Minute,
			},
			Retry: Retry{
				Base: time.Second, Cap: 10 * time.Second, Attempts: 3,
				Budget: retry.Limits{Start: 4, Capacity: 50, PerSuccess: 100},
			},
			Circuit: Circuit{Config: breaker.Config{Ratio: 0.8, Window: 20, Minimum: 6, OpenFor: 30 * time.Second, Probes: 2}},
		},
		Paginate: Paginate{Kind: OffsetPaging, Param: "skip", SizeParam: "take", Size: 50},
		Second:   Paginate{Kind: NumberPaging, Param: "p", SizeParam: "n", Size: 10},
		Run:      Run{MaxRequests: 1000, MaxWallClock: 2 * time.Hour, Concurrency: 4},
		Sink:     "/data",
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(equalValues)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := cfg.Provider.Headers["X-Tenant"].Reveal(); got != "t-"+canary {
		t.Errorf("header X-Tenant is %q", got)
	}
}

const least = `
connection: least
provider: {base_url: "https://api.example.com"}
streams:
  - {name: a, list: {path: /a}, records: .items, key: .id}
`

func TestDefaultsAreFilledIn(t *testing.T) {
	cfg := parse(t, least)
	got := cfg.Provider
	got.BaseURL = nil
	want := Provider{
		Auth: Auth{Kind: NoAuth}, Timeout: DefaultTimeout, MaxBody: DefaultMaxBody,
		Pacing: Pacing{MaxRetryAfter: DefaultMaxRetryAfter},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(equalValues)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if cfg.Run != (Run{}) || cfg.Sink.JSONL.Dir != DefaultDir || cfg.Streams[0].Paginate.Kind != SinglePage {
		t.Errorf("got %+v, %+v, %+v", cfg.Run, *cfg.Sink.JSONL, cfg.Streams[0].Paginate)
	}
}

func TestJitterOfZeroIsNone(t *testing.T) {
	for _, jitter := range []string{"0s", `"0"`, "{max: 0s}"} {
		cfg := parse(t, strings.Replace(least, "com\"", "com\", pacing: {jitter: "+jitter+"}", 1))
		if got := cfg.Provider.Pacing.JitterMax; got != -1 {
			t.Errorf("jitter %s gave %v, want -1", jitter, got)
		}
	}
}

func TestWhatIsKnownOfAListReachesItsStream(t *testing.T) {
	for text, want := range map[string][2]bool{
		"": {false, false}, ", order: ascending": {true, false}, ", inclusive: true": {false, true},
		", order: ascending, inclusive: true": {true, true}, ", inclusive: false": {false, false},
	} {
		c, err := New(parse(t, strings.Replace(least, "key: .id", "key: .id, incremental: {cursor: .at, param: since"+text+"}", 1)))
		if err != nil {
			t.Fatal(err)
		}
		if s := c.Streams()[0]; [2]bool{s.Ascending, s.Inclusive} != want {
			t.Errorf("%q gave %+v", text, s)
		}
	}
}

func TestALookbackReachesItsStreamAndThePlan(t *testing.T) {
	cfg := parse(t, strings.Replace(least, "key: .id", "key: .id, incremental: {cursor: .at, param: since, lookback: 1h30m}", 1))
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Streams()[0].Lookback; got != 90*time.Minute {
		t.Errorf("lookback %v, want 1h30m", got)
	}
	if got, want := Describe(cfg).Streams[0].Incremental, ".at sent as since, looking back 1h30m"; got != want {
		t.Errorf("the plan says %q, want %q", got, want)
	}
}

func TestExamplesLoad(t *testing.T) {
	for file, streams := range map[string][]connector.Stream{
		"chat-archive.yaml":  {{Name: "conversations", DetailStream: "messages", Key: "id", DetailKey: "id", Incremental: true}},
		"github-issues.yaml": {{Name: "issues", Key: "number", Incremental: true}, {Name: "issue_comments", Key: "id", Incremental: true}},
	} {
		cfg, err := Load(filepath.Join("../../examples", file), environment)
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(streams, c.Streams(), cmpopts.IgnoreFields(connector.Stream{}, "Shape")); diff != "" {
			t.Errorf("%s: -want +got:\n%s", file, diff)
		}
		if got := cfg.Provider.Auth.Secret.Reveal(); got != canary {
			t.Errorf("%s: the token is %q", file, got)
		}
	}
}

func TestASecretPrintsAsItsReference(t *testing.T) {
	cfg := parse(t, everything)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", slog.Any("auth", cfg.Provider.Auth), slog.Any("config", cfg))
	marshaled, err := json.Marshal(cfg.Provider)
	if err != nil {
		t.Fatal(err)
	}
	hidden := struct{ v Value }{cfg.Provider.Auth.Secret}
	for name, got := range map[string]string{
		"unexported": fmt.Sprintf("%+v %#v", hidden, hidden),
		"%v":         fmt.Sprintf("%v", cfg.Provider), "%+v": fmt.Sprintf("%+v", cfg.Provider),
		"%#v": fmt.Sprintf("%#v", cfg.Provider), "%q": fmt.Sprintf("%q", cfg.Provider.Auth.Secret),
		"%x": fmt.Sprintf("%x", cfg.Provider.Auth.Secret), "json": string(marshaled), "slog": log.String(),
	} {
		if strings.Contains(got, canary) || strings.Contains(got, hex.EncodeToString([]byte(canary))) {
			t.Errorf("%s shows the secret: %s", name, got)
		}
	}
	if got := fmt.Sprint(cfg.Provider.Auth.Secret); got != "${TOKEN}" {
		t.Errorf("got %s, want the reference", got)
	}
}

func TestASecretIsReadFromAFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	load := func(file string) (*Config, error) {
		return Parse("test.yaml", fmt.Appendf(nil, `
connection: c
provider: {base_url: "https://h", auth: {bearer: {file: %q}}}
streams: [{name: a, list: {path: /a}, records: .items, key: .id}]
`, file), environment)
	}
	token := write("token", canary+"\r\n")
	inline := parse(t, strings.Replace(least, "base_url:", "auth: {bearer: '${file:"+token+"}'}, base_url:", 1))
	if got := inline.Provider.Auth.Secret; got.Reveal() != canary || got.String() != "${file:"+token+"}" {
		t.Errorf("in a text it is %d bytes long, shown as %s", len(got.Reveal()), got)
	}
	cfg, err := load(token)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Provider.Auth.Secret; got.Reveal() != canary || strings.Contains(got.String(), canary) {
		t.Errorf("got %q, shown as %s", got.Reveal(), got)
	}
	for file, want := range map[string]string{
		write("empty", "\n"):                         "it is empty",
		write("long", strings.Repeat("x", 64<<10+1)): "it has 65537 bytes, at most 65536 are read",
		dir:                          "it is not a regular file",
		filepath.Join(dir, "absent"): "no such file or directory",
		write("lines", "first "+canary+"\nsecond "+canary): "has a line break",
	} {
		_, err := load(file)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: got %v, want %q", filepath.Base(file), err, want)
		}
	}
}

func TestAValueFromTheEnvironmentCannotBringInYAML(t *testing.T) {
	cfg, err := Parse("test.yaml", []byte(strings.Replace(least, "path: /a", "path: /a, query: {q: ${Q}, r: ${Q}x}", 1)), func(string) (string, bool) {
		return "a}, method: POST, x: {y: ${TOKEN}", true
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Streams[0].List.Query["r"].Reveal(); got != "a}, method: POST, x: {y: ${TOKEN}x" {
		t.Errorf("got %q", got)
	}
}

func TestReferencesInsideBracesAndQuotes(t *testing.T) {
	for yaml, want := range map[string]string{
		"{q: ${TOKEN}}":         canary,
		"{q: a${TOKEN}b}":       "a" + canary + "b",
		"{q: '${TOKEN}'}":       canary,
		`{q: "${TOKEN}\u00e9"}`: canary + "é",
		"{q: $${TOKEN}}":        "${TOKEN}",
		"{q: '$$${TOKEN}'}":     "$${TOKEN}",
		"{q: '$TOKEN'}":         "$TOKEN",
		"{q: '{TOKEN}'}":        "{TOKEN}",
		"{q: '${EMPTY}x'}":      "x",
	} {
		cfg := parse(t, strings.Replace(least, "path: /a", "path: /a, query: "+yaml, 1))
		if got := cfg.Streams[0].List.Query["q"].Reveal(); got != want {
			t.Errorf("%s gave %q, want %q", yaml, got, want)
		}
	}
}

func TestAFileThatCannotBeReadIsNamed(t *testing.T) {
	_, err := Load("testdata/absent.yaml", environment)
	if err == nil || err.Error() != "testdata/absent.yaml: cannot be read: no such file or directory" {
		t.Errorf("got %v", err)
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Error("the cause is lost")
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, make([]byte, options.MaxBytes+10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big, environment); err == nil || !strings.Contains(err.Error(), "has more than 131072 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestManyProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "field%d: x\n", i)
	}
	_, err := Parse("test.yaml", []byte(b.String()), environment)
	e, ok := errors.AsType[*ConfigError](err)
	if !ok || len(e.Problems) != 51 || !strings.Contains(err.Error(), "more problems are not shown") {
		t.Errorf("got %d problems, %v", len(e.Problems), err)
	}
	if p, ok := errors.AsType[Problem](err); !ok || p.Line != 1 {
		t.Errorf("the first problem is %+v", p)
	}
}

func TestSchemaIsDraft202012AndDescribesEveryField(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	meta, err := c.Compile("https://json-schema.org/draft/2020-12/schema")
	if err != nil {
		t.Fatal(err)
	}
	if err := meta.Validate(doc); err != nil {
		t.Error(err)
	}
	s := loadSchema()
	var walk func(where string, v any)
	walk = func(where string, v any) {
		def := s.resolve(table(v))
		if len(def) == 0 {
			return
		}
		if where != "" && def["errorMessage"] == nil {
			t.Errorf("%s says nowhere what is allowed", where)
		}
		if def["type"] == "object" && def["additionalProperties"] == nil {
			t.Errorf("%s takes any field", where)
		}
		for name, p := range table(def["properties"]) {
			walk(where+"."+name, p)
		}
		if items, ok := def["items"]; ok {
			walk(where+"[]", items)
		}
	}
	walk("", map[string]any(s.source))
}

func TestPlansAreReadableAndHoldNoSecret(t *testing.T) {
	archive := plans(t)
	for name, src := range map[string]string{
		"everything": everything,
		"least":      least,
		"worrying": `
connection: worrying
provider:
  base_url: http://api.example.com
  auth: {query: {name: key, value: "${TOKEN}"}}
  ceiling: 90s
  pacing: {initial: 10s, jitter: 100s}
streams:
  - {name: a, list: {path: /a, query: {team: "t-${SECRET}"}}, records: .items, key: .id, paginate: {page: {param: page}}}
run: {max_requests: 10}
`,
		"pools": `
connection: pools
provider:
  base_url: https://api.example.com
  headers: {X-Mode: bulk}
  pools:
    - {name: search, path: /search/**}
    - {name: exports, query: {mode: "*", for: "${SECRET}"}, headers: {x-mode: bulk}}
  pool_by: stream
streams:
  - {name: hits, list: {path: /search/issues}, records: .items, key: .id, detail: {stream: issues, path: "/issues/{key}", records: ., key: .id}}
  - {name: files, list: {path: /files, query: {mode: all, for: "${SECRET}"}}, records: .items, key: .id}
`,
		"profile": `
connection: profile
provider: {base_url: https://api.github.com, profile: github, ceiling: 1s}
streams: [{name: found, list: {path: /search/issues}, records: .items, key: .id}]
`,
		"oauth": `
connection: oauth
provider:
  base_url: http://127.0.0.1:8080
  auth: {oauth2: {token_url: "http://login.example.com/token", client_id: "${SECRET}", refresh_token: "${TOKEN}"}}
  ceiling: 7ms
streams:
  - {name: a, list: {path: /a}, records: .items, key: .id, paginate: {link: true}, incremental: {cursor: .at, param: since}}
run: {max_wall_clock: 1h30m}
`,
	} {
		plan := Describe(parse(t, src))
		var text strings.Builder
		if err := plan.Write(&text); err != nil {
			t.Fatal(err)
		}
		marshaled, err := json.MarshalIndent(plan, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String()+string(marshaled), canary) {
			t.Errorf("%s shows the secret:\n%s\n%s", name, text.String(), marshaled)
		}
		archive.Check(t, name+".txt", text.String())
		archive.Check(t, name+".json", string(marshaled)+"\n")
	}
}
