package rest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
)

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
		sink  Sink
		says  string
		piped bool
	}{
		"":                                    {sink: Sink{JSONL: &JSONL{Dir: "./out"}}, says: "jsonl in ./out"},
		"sink: {jsonl: {}}":                   {sink: Sink{JSONL: &JSONL{Dir: "./out"}}, says: "jsonl in ./out"},
		"sink: {jsonl: {dir: a b}}":           {sink: Sink{JSONL: &JSONL{Dir: "a b"}}, says: "jsonl in a b"},
		"sink: {sqlite: {}}":                  {sink: Sink{SQLite: &SQLite{}}, says: "sqlite in the state file"},
		"sink: {sqlite: {file: data.db}}":     {sink: Sink{SQLite: &SQLite{File: "data.db"}}, says: "sqlite in data.db"},
		"sink: {parquet: {}}":                 {sink: Sink{Parquet: &Parquet{Dir: "./out"}}, says: "parquet in ./out"},
		"sink: {parquet: {dir: /data/lake}}":  {sink: Sink{Parquet: &Parquet{Dir: "/data/lake"}}, says: "parquet in /data/lake"},
		"sink: {singer: {}}":                  {sink: Sink{Singer: &Singer{}}, says: "singer on standard output", piped: true},
		"sink: {airbyte: {}}":                 {sink: Sink{Airbyte: &Airbyte{}}, says: "airbyte on standard output", piped: true},
		"sink: {sqlite: {file: \"${REPO}\"}}": {sink: Sink{SQLite: &SQLite{File: "golang/go"}}, says: "sqlite in golang/go"},
	} {
		t.Run(written, func(t *testing.T) {
			cfg := parse(t, least+written+"\n")
			if diff := cmp.Diff(want.sink, cfg.Sink); diff != "" {
				t.Error(diff)
			}
			if got := cfg.Sink.String(); got != want.says || Describe(cfg).Sink != want.says {
				t.Errorf("it says %q and the plan %q, want %q", got, Describe(cfg).Sink, want.says)
			}
			if cfg.Sink.Piped() != want.piped {
				t.Errorf("standard output is the sink's: %v", cfg.Sink.Piped())
			}
		})
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
