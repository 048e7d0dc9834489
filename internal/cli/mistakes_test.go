package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// One mistake in five files: whoever has read one error can read them all.
func TestTheSameMistakeReadsTheSameInEveryFile(t *testing.T) {
	t.Setenv("HEADWAY_TEST_TOKEN", "hunter2")
	type file struct {
		name    string
		command []string // the file's name goes to its end
		text    string   // a good file
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rows := write("rows.jsonl", "{\"id\":1}\n")
	timeline := write("timeline.yaml", "- {at: 0s, model: small, input: 1}\n")
	connection := file{
		"connection", []string{"check", "--state", filepath.Join(dir, "state.db")},
		`connection: chat
provider:
  base_url: http://127.0.0.1:1
  auth: {bearer: "${HEADWAY_TEST_TOKEN}"}
  timeout: 5s
streams: [{name: a, list: {path: /a}, records: .items, key: .id}]
`,
	}
	target := file{
		"target", []string{"bulk", "check", rows, "--target"},
		`target: crm
http:
  url: http://127.0.0.1:1/rows
auth: {bearer: "${HEADWAY_TEST_TOKEN}"}
timeout: 5s
`,
	}
	server := file{
		"configuration", []string{"serve", "--check"},
		`drain: 5s
providers:
  openai:
    api: openai
    key: ${HEADWAY_TEST_TOKEN}
`,
	}
	budget := file{
		"quota", []string{"quota", "simulate", timeline, "--config"},
		`permit_ttl: 5m
global: {calls_per_minute: 60}
models: {small: {calls_per_minute: 6}}
day_zone: Europe/Berlin
`,
	}
	scenario := file{
		"scenario", []string{"sim", "run"},
		`name: steady
horizon: 60s
workload: {max_in_flight: 4}
provider: {}
`,
	}
	for _, tt := range []struct {
		mistake, form string
		file          file
		from, to      string // what is written instead of what
		place, field  string
		message       string
	}{
		{"unknown key", "is not a field here: did you mean %s?", connection, "  timeout:", "  timeotu:", "5:3", "provider.timeotu", "timeout"},
		{"unknown key", "is not a field here: did you mean %s?", target, "timeout:", "timeotu:", "5:1", "timeotu", "timeout"},
		{"unknown key", "is not a field here: did you mean %s?", server, "drain:", "drian:", "1:1", "drian", "drain"},
		{"unknown key", "is not a field here: did you mean %s?", budget, "permit_ttl:", "permit_tll:", "1:1", "permit_tll", "permit_ttl"},
		{"unknown key", "is not a field here: did you mean %s?", scenario, "horizon:", "horzion:", "2:1", "horzion", "horizon"},

		{"wrong type", "is a list; want %s", connection, "http://127.0.0.1:1", "[x]", "3:13", "provider.base_url", "a URL such as https://api.example.com/v1"},
		{"wrong type", "is a list; want %s", target, "http://127.0.0.1:1/rows", "[x]", "3:8", "http.url", "a text"},
		{"wrong type", "is a list; want %s", server, "api: openai", "api: [x]", "4:10", "providers.openai.api", "one of openai, "},
		{"wrong type", "is a list; want %s", budget, "Europe/Berlin", "[x]", "4:11", "day_zone", "a text"},
		{"wrong type", "is a list; want %s", scenario, "steady", "[x]", "1:7", "name", "a text"},

		{"missing variable", "needs the environment variable HEADWAY_TEST_NONE, which is not set%s", connection, "TEST_TOKEN", "TEST_NONE", "4:18", "provider.auth.bearer", ""},
		{"missing variable", "needs the environment variable HEADWAY_TEST_NONE, which is not set%s", target, "TEST_TOKEN", "TEST_NONE", "4:16", "auth.bearer", ""},
		{"missing variable", "needs the environment variable HEADWAY_TEST_NONE, which is not set%s", server, "TEST_TOKEN", "TEST_NONE", "5:10", "providers.openai.key", ""},
		{"variable where none is taken", "refers to ${HEADWAY_TEST_NONE}, which is replaced in secrets only; want %s", budget, "Europe/Berlin", "${HEADWAY_TEST_NONE}", "4:11", "day_zone", "the value written out"},
		{"variable where none is taken", "refers to ${HEADWAY_TEST_NONE}, which is replaced in secrets only; want %s", scenario, "steady", "${HEADWAY_TEST_NONE}", "1:7", "name", "the value written out"},

		{"secret written out", "is written out; want %s", connection, "${HEADWAY_TEST_TOKEN}", "hunter2", "4:18", "provider.auth.bearer", "a reference such as ${"},
		{"secret written out", "is written out; want %s", target, "${HEADWAY_TEST_TOKEN}", "hunter2", "4:16", "auth.bearer", "a reference such as ${"},
		{"secret written out", "is written out; want %s", server, "${HEADWAY_TEST_TOKEN}", "hunter2", "5:10", "providers.openai.key", "a reference such as ${"},

		{"bad duration", "is \"soon\"; want a duration with a unit, such as %s", connection, "5s", "soon", "5:12", "provider.timeout", "250ms"},
		{"bad duration", "is \"soon\"; want a duration with a unit, such as %s", target, "5s", "soon", "5:10", "timeout", "250ms"},
		{"bad duration", "is \"soon\"; want a duration with a unit, such as %s", server, "5s", "soon", "1:8", "drain", "250ms"},
		{"bad duration", "is \"soon\"; want a duration with a unit, such as %s", budget, "5m", "soon", "1:13", "permit_ttl", "250ms"},
		{"bad duration", "is \"soon\"; want a duration with a unit, such as %s", scenario, "60s", "soon", "2:10", "horizon", "250ms"},

		{"duration out of bounds", "is \"9000h\"; want from %s", connection, "5s", "9000h", "5:12", "provider.timeout", "1ms to 1h"},
		{"duration out of bounds", "is \"9000h\"; want from %s", target, "5s", "9000h", "5:10", "timeout", "1ns to 24h"},
		{"duration out of bounds", "is \"9000h\"; want from %s", server, "5s", "9000h", "1:8", "drain", "100ms to 1h"},
		{"duration out of bounds", "is \"9000h\"; want from %s", budget, "5m", "9000h", "1:13", "permit_ttl", "1ms to 744h"},
		{"duration out of bounds", "is \"9000h\"; want from %s", scenario, "60s", "9000h", "2:10", "horizon", "1s to 31d"},

		{"duplicate key", "is set twice, first at line %s: remove one", connection, "connection: chat\n", "connection: chat\nconnection: chat\n", "2:1", "connection", "1"},
		{"duplicate key", "is set twice, first at line %s: remove one", target, "target: crm\n", "target: crm\ntarget: crm\n", "2:1", "target", "1"},
		{"duplicate key", "is set twice, first at line %s: remove one", server, "drain: 5s\n", "drain: 5s\ndrain: 5s\n", "2:1", "drain", "1"},
		{"duplicate key", "is set twice, first at line %s: remove one", budget, "permit_ttl: 5m\n", "permit_ttl: 5m\npermit_ttl: 5m\n", "2:1", "permit_ttl", "1"},
		{"duplicate key", "is set twice, first at line %s: remove one", scenario, "name: steady\n", "name: steady\nname: steady\n", "2:1", "name", "1"},

		{"list for a file", "is a list; want a mapping with %s", connection, connection.text, "- x\n", "1:1", "", "connection, provider and streams"},
		{"list for a file", "is a list; want a mapping with %s", target, target.text, "- x\n", "1:1", "", "target"},
		{"list for a file", "is a list; want a mapping with %s", server, server.text, "- x\n", "1:1", "", "keys such as listen"},
		{"list for a file", "is a list; want a mapping with %s", budget, budget.text, "- x\n", "1:1", "", "keys such as global"},
		{"list for a file", "is a list; want a mapping with %s", scenario, scenario.text, "- x\n", "1:1", "", "a name"},

		{"anchor", "is an anchor or alias, which %s files do not have: write the value out", connection, "chat", "&a chat", "1:13", "connection", "connection"},
		{"anchor", "is an anchor or alias, which %s files do not have: write the value out", target, "crm", "&a crm", "1:9", "target", "target"},
		{"anchor", "is an anchor or alias, which %s files do not have: write the value out", server, "5s", "&a 5s", "1:8", "drain", "configuration"},
		{"anchor", "is an anchor or alias, which %s files do not have: write the value out", budget, "5m", "&a 5m", "1:13", "permit_ttl", "quota"},
		{"anchor", "is an anchor or alias, which %s files do not have: write the value out", scenario, "steady", "&a steady", "1:7", "name", "scenario"},
	} {
		t.Run(tt.mistake+"/"+tt.file.name, func(t *testing.T) {
			path := write(tt.file.name+".yaml", strings.Replace(tt.file.text, tt.from, tt.to, 1))
			code, out, errs := headway(t, append(tt.file.command, path)...)
			where := path + ":" + tt.place + ": "
			if tt.field != "" {
				where += tt.field + ": "
			}
			want := where + fmt.Sprintf(tt.form, tt.message)
			if code != exitUsage || !strings.Contains(errs, want) {
				t.Errorf("exit %d, %s%s\nwant in it: %s", code, out, errs, want)
			}
			if strings.Contains(errs+out, "hunter2") {
				t.Errorf("the secret is shown: %s%s", out, errs)
			}
		})
	}
	for _, f := range []file{connection, target, server, budget, scenario} {
		t.Run("no mistake/"+f.name, func(t *testing.T) {
			if code, out, errs := headway(t, append(f.command, write(f.name+".yaml", f.text))...); code != exitOK || strings.Contains(errs+out, "hunter2") {
				t.Errorf("exit %d, %s%s", code, out, errs)
			}
		})
	}
}
