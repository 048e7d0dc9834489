package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/dataverse"
)

const (
	upsertPath = "/api/data/v9.2/contacts/Microsoft.Dynamics.CRM.UpsertMultiple"
	createPath = "/api/data/v9.2/contacts/Microsoft.Dynamics.CRM.CreateMultiple"
)

// contacts is the body of a bulk operation on rows with these codes.
func contacts(codes ...string) string {
	rows := make([]string, len(codes))
	for i, c := range codes {
		rows[i] = `{"@odata.type":"Microsoft.Dynamics.CRM.contact","@odata.id":"contacts(code='` + c + `')","code":"` + c + `"}`
	}
	return `{"Targets":[` + strings.Join(rows, ",") + `]}`
}

func TestDataverseIsServedAsTheFlagsSay(t *testing.T) {
	s := provide(t, "--data", "dataverse", "--scale", "1000", "--users", "2", "--servers", "3", "--hint", "7", "--hint-at", "1000h=1",
		"--batch-overhead", "0s", "--row-time", "1ms", "--knee", "9", "--max-rows", "2", "--table-kind", "elastic",
		"--alternate-key", "code", "--fault", "unauthorized@1,broken@2", "--fault", "garbage@2")
	for _, want := range []string{
		"serving dataverse at " + s.url, "sliding_window 6000/300ms", "busy_time 1.2s/300ms", "concurrency 52",
		"elastic tables, hint 7, 3 web servers, 1000 times faster", createPath, `"Authorization: Bearer any"`,
	} {
		if !strings.Contains(s.banner, want) {
			t.Errorf("banner %q does not say %q", s.banner, want)
		}
	}
	for i, tt := range []struct {
		user, path, body string
		status           int
		says             string
	}{
		{"ann", upsertPath, contacts("a"), 401, ""},
		{"ann", upsertPath, contacts("a"), 500, "0x80040216"},
		{"ann", upsertPath, contacts("a", "b"), 204, ""},
		{"ann", upsertPath, contacts("a", "b", "c"), 413, ""},
		{"bob", createPath, contacts("c"), 200, "<html>"},
		{"bob", createPath, `{"Targets":[{"@odata.type":"Microsoft.Dynamics.CRM.contact","code":"a"}]}`, 412, "0x80060892"},
		{"cy", upsertPath, contacts("a"), 403, "0x80072560"},
	} {
		if status, body := s.complete(t, tt.path, "Authorization", "Bearer "+tt.user, tt.body); status != tt.status || !strings.Contains(body, tt.says) {
			t.Errorf("request %d: %d %s, want %d and %q", i, status, body, tt.status, tt.says)
		}
	}
	_, body := s.get(t, "/-/dataverse", "")
	var r dataverse.Report
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	if c := r.Sets["contacts"]; r.Hint != 7 || c.Rows != 3 || c.Refused != 1 || len(r.Servers) != 3 || r.Users[serve.KeyID("ann")].Rows != 2 {
		t.Errorf("report %s", body)
	}
	if code, last := s.end(); code != exitOK || !strings.Contains(last, "3 admitted, 0 refused") {
		t.Errorf("exit %d, %q", code, last)
	}
}

func TestDataverseTakesAScenarioOfItsOwn(t *testing.T) {
	file := scenarioFile(t, "load.yaml", "name: load\nworkload: {kind: bulk, rows: 10, users: 1}\nprovider:\n  latency: {p50: 1ms, uplink_p50: 0s, uplink_p99: 0s}\n"+
		"  batch: {overhead: 0s, per_row: 1us, max_rows: 2}\n  hint: 6\n  limits: [{kind: sliding_window, limit: 1, window: 1h}]\n")
	s := provide(t, tokenVariable+"=sesame", file, "--data", "dataverse", "--fail-every", "1")
	if !strings.Contains(s.banner, "serving load at") || !strings.Contains(s.banner, "hint 6") || strings.Contains(s.banner, "sesame") {
		t.Errorf("banner %q, want the file's scenario and its hint", s.banner)
	}
	for i, tt := range []struct {
		token, body string
		status      int
	}{
		{"other", contacts("a"), 401},
		{"sesame", contacts("a", "b", "c"), 413},
		{"sesame", contacts("a"), 400},
		{"sesame", contacts("a"), 429},
	} {
		if status, body := s.complete(t, upsertPath, "Authorization", "Bearer "+tt.token, tt.body); status != tt.status {
			t.Errorf("request %d: %d %s, want %d", i, status, body, tt.status)
		}
	}
	s.end()
}

func TestFlagsOfDataverseAreChecked(t *testing.T) {
	t.Setenv(tokenVariable, "")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"a flag of other data":       {[]string{"--hint", "5"}, "--hint does not go with --data conversations"},
		"a flag with models":         {[]string{"--data", "llm", "--scale", "5"}, "--scale does not go with --data llm"},
		"a flag of models":           {[]string{"--data", "dataverse", "--rpm", "5"}, "--rpm does not go with --data dataverse"},
		"a scale and a scenario":     {[]string{"strava", "--data", "dataverse", "--scale", "5"}, `--scale does not go with --data dataverse and scenario "strava"`},
		"a scale that slows":         {[]string{"--data", "dataverse", "--scale", "0.5"}, "Scale is 0.5"},
		"no scale":                   {[]string{"--data", "dataverse", "--scale", "0"}, "--scale is empty or 0"},
		"no hint":                    {[]string{"--data", "dataverse", "--hint", "0"}, "--hint is empty or 0"},
		"a time below zero":          {[]string{"--data", "dataverse", "--row-time", "-1s"}, "must be at least 0"},
		"an unknown kind":            {[]string{"--data", "dataverse", "--table-kind", "virtual"}, `Tables is "virtual"`},
		"a hint without a time":      {[]string{"--data", "dataverse", "--hint-at", "4"}, `--hint-at: dataverse: hint "4"`},
		"an unknown fault":           {[]string{"--data", "dataverse", "--fault", "fire@1"}, `--fault: dataverse: fault "fire@1"`},
		"users beyond the bound":     {[]string{"--data", "dataverse", "--users", "2000"}, "Users is 2000"},
		"a scenario that is nowhere": {[]string{"nowhere", "--data", "dataverse"}, `"nowhere"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, complaints := simulate(t, append([]string{"provider", "serve", "--listen", ":0"}, tt.args...)...)
			if code != exitUsage || out != "" || !strings.Contains(complaints, tt.want) {
				t.Errorf("exit %d, %q, %q, want %d and %q", code, out, complaints, exitUsage, tt.want)
			}
		})
	}
}

func TestHelpTellsOfDataverse(t *testing.T) {
	code, out, _ := simulate(t, "provider", "serve", "--help")
	for _, want := range append([]string{"--data dataverse", "/-/dataverse", "CreateMultiple"}, flagsOfDataverse...) {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("exit %d, the help does not mention %s", code, want)
		}
	}
}

// complete makes one call of a language model and gives its status and body.
func (s *served) complete(t *testing.T, path, field, key, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(field, key)
	res, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

func TestLanguageModelsAreServedWithTheLimitsOfTheFlags(t *testing.T) {
	const question = `{"model":"sim-small","max_tokens":400,"messages":[{"role":"user","content":"hello"}]}`
	s := provide(t, "--data", "llm", "--rpm", "4", "--tpm", "900", "--rpd", "50", "--pace", "0", "--output-tokens", "3")
	for _, want := range []string{"serving llm at " + s.url, "sliding_window 4/1m", "cost_window 900/1m", "fixed_window 50/1d", "language models", "/v1/chat/completions'"} {
		if !strings.Contains(s.banner, want) {
			t.Errorf("banner %q does not say %q", s.banner, want)
		}
	}
	for i, want := range []int{200, 200, 429} { // of 400 tokens each
		if status, body := s.complete(t, "/v1/chat/completions", "Authorization", "Bearer mine", question); status != want {
			t.Errorf("call %d: %d %s, want %d", i, status, body, want)
		}
	}
	if status, body := s.complete(t, "/v1/messages", "X-Api-Key", "yours", question); status != 200 || !strings.Contains(body, "end_turn") {
		t.Errorf("another API: %d %s, want it to weigh less", status, body)
	}
	_, body := s.get(t, "/-/stats", "")
	var st serve.Stats
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		t.Fatal(err)
	}
	mine, yours := st.ByKey[serve.KeyID("mine")], st.ByKey[serve.KeyID("yours")]
	if mine.Admitted != 2 || mine.Throttled != 1 || mine.Charged != 800 || yours.Admitted != 1 {
		t.Errorf("stats %s, want 2 admitted at 800 tokens and 1", body)
	}
	if code, last := s.end(); code != exitOK || !strings.Contains(last, "3 admitted, 1 refused (1 by cost_window 900/1m)") {
		t.Errorf("exit %d, %q", code, last)
	}
}

func TestLanguageModelsTakeAScenarioOfTheirOwn(t *testing.T) {
	file := scenarioFile(t, "one.yaml", "name: one\nprovider: {latency: {p50: 1ms}, limits: [{kind: sliding_window, limit: 1, window: 1h}]}\n")
	s := provide(t, tokenVariable+"=sesame", file, "--data", "llm")
	if !strings.Contains(s.banner, "serving one at") || strings.Contains(s.banner, "sesame") || !strings.Contains(s.banner, "$"+tokenVariable) {
		t.Errorf("banner %q, want the file's scenario and how to give the token", s.banner)
	}
	for _, tt := range []struct {
		key  string
		want int
	}{{"Bearer other", 401}, {"Bearer sesame", 200}, {"Bearer sesame", 429}} {
		if status, body := s.complete(t, "/v1/responses", "Authorization", tt.key, `{"model":"m","input":"hello"}`); status != tt.want {
			t.Errorf("%d %s, want %d", status, body, tt.want)
		}
	}
	s.end()
}

func TestFlagsOfLanguageModelsAreChecked(t *testing.T) {
	t.Setenv(tokenVariable, "")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"unknown data":               {[]string{"--data", "images"}, `--data is "images"`},
		"a limit of other data":      {[]string{"--rpm", "5"}, "--rpm does not go with --data conversations"},
		"a pace of other data":       {[]string{"--pace", "5"}, "--pace does not go"},
		"a limit and a scenario":     {[]string{"strava", "--data", "llm", "--tpm", "5"}, `--tpm does not go with --data llm and scenario "strava"`},
		"a limit below zero":         {[]string{"--data", "llm", "--rpd", "-1"}, "RequestsPerDay is -1"},
		"a pace below zero":          {[]string{"--data", "llm", "--pace", "-1"}, "TokensPerSecond is -1"},
		"answers of nothing":         {[]string{"--data", "llm", "--output-tokens", "0"}, "--output-tokens is 0"},
		"a scenario that is nowhere": {[]string{"nowhere", "--data", "llm"}, `"nowhere"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, complaints := simulate(t, append([]string{"provider", "serve", "--listen", ":0"}, tt.args...)...)
			if code != exitUsage || out != "" || !strings.Contains(complaints, tt.want) {
				t.Errorf("exit %d, %q, %q, want %d and %q", code, out, complaints, exitUsage, tt.want)
			}
		})
	}
}

func TestServeComplainsAboutWhatItCannotServe(t *testing.T) {
	t.Setenv(tokenVariable, "")
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	bad := scenarioFile(t, "bad.yaml", "name: bad\nbogus: 1\nhorizon: -1h\n")
	folder := t.TempDir()
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"two scenarios", []string{"demo", "strava"}, []string{"got 2"}},
		{"no such scenario", []string{"nowhere"}, []string{`"nowhere"`, "sim list"}},
		{"every problem", []string{bad}, []string{bad + ":2:1: bogus: ", bad + ":3:10: horizon: "}},
		{"all addresses without a token", []string{"--listen", "0.0.0.0:0"}, []string{"0.0.0.0:0", tokenVariable, "127.0.0.1:0"}},
		{"all IPv6 addresses without a token", []string{"--listen", "[::]:0"}, []string{tokenVariable}},
		{"another machine's address without a token", []string{"--listen", "192.0.2.1:80"}, []string{tokenVariable}},
		{"no port", []string{"--listen", "127.0.0.1"}, []string{"HOST:PORT"}},
		{"an invalid port", []string{"--listen", "127.0.0.1:70000"}, []string{"70000", "65535"}},
		{"a port that is taken", []string{"--listen", taken.Addr().String()}, []string{"in use", "port 0"}},
		{"no conversations", []string{"--conversations", "0"}, []string{"--conversations", "at least 1"}},
		{"too many conversations", []string{"--conversations", "100001"}, []string{"100001", "100000"}},
		{"no messages", []string{"--messages", "0"}, []string{"--messages", "at least 1"}},
		{"more updated than there are", []string{"--conversations", "3", "--updated", "4"}, []string{"Updated", "4", "3"}},
		{"an empty token", []string{"--token", ""}, []string{"--token"}},
		{"a token that cannot be sent", []string{"--token", "top secret"}, []string{"--token", "ASCII"}},
		{"log into no directory", []string{"--log", filepath.Join(folder, "none", "log")}, []string{"--log"}},
		{"log without a name", []string{"--log", ""}, []string{"--log"}},
		{"ready file into no directory", []string{"--ready-file", filepath.Join(folder, "none", "url")}, []string{"--ready-file", "none"}},
		{"ready file over a directory", []string{"--ready-file", folder}, []string{"--ready-file", "regular file"}},
		{"no such subcommand", nil, []string{`"sreve"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"provider", "serve", "--listen", ":0"}, tt.args...)
			if tt.args == nil {
				args = []string{"provider", "sreve"}
			}
			code, out, complaints := simulate(t, args...)
			if code != exitUsage || out != "" {
				t.Errorf("exit %d and output %q, want %d and none", code, out, exitUsage)
			}
			for _, want := range tt.want {
				if !strings.Contains(complaints, want) {
					t.Errorf("complaint %q does not say %q", complaints, want)
				}
			}
			if strings.Contains(complaints, "top secret") {
				t.Errorf("complaint %q shows the token", complaints)
			}
		})
	}
}

func TestBaseURLIsOneThatClientsHereCanUse(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "http://127.0.0.1:80", "0.0.0.0:81": "http://127.0.0.1:81",
		"[::]:82": "http://[::1]:82", "[::1]:83": "http://[::1]:83", "192.0.2.7:84": "http://192.0.2.7:84",
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := baseURL(a); got != want {
			t.Errorf("%s is reached at %s, want %s", address, got, want)
		}
	}
}
