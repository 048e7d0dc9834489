package cli

import (
	"encoding/json"
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
			t.Errorf("exit %d, the help does not tell of %s", code, want)
		}
	}
}
