package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	facade "github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

func TestWhatIsUnknownIsBadUsage(t *testing.T) {
	path := owing(t)
	for _, line := range []string{
		"bogus", "gaps bogus", "bulk bogus", "sim bogus", "runs show nope", "runs nope", "status nope", "rate nope",
		"gaps show 99999", "gaps retry 99999", "gaps list --connection nope",
	} {
		args := strings.Fields(line)
		if first := args[0]; first != "bogus" && first != "bulk" && first != "sim" {
			args = append(args, "--state", path)
		}
		if code, out, errs := headway(t, args...); code != exitUsage || errs == "" {
			t.Errorf("headway %s: exit %d, %s%s", line, code, out, errs)
		}
	}
}

func TestALoadTakesNoSharedFolder(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for dir, refused := range map[string]bool{
		"/": true, "/tmp": true, home: true, home + "/": true, filepath.Join(home, "loads"): false,
	} {
		if err := notShared(dir); (err != nil) != refused {
			t.Errorf("%s: %v, refused %v", dir, err, refused)
		} else if err != nil && exitFor(err).code != exitUsage {
			t.Errorf("%s: %v is not bad usage", dir, err)
		}
	}
}

func TestUnknownWordsAndTooManyAreBadUsage(t *testing.T) {
	for _, line := range []string{
		"bogus", "help bogus", "help gaps bogus", "completion bogus", "runs a b c", "status a b", "rate a b",
		"key revoke", "key list x", "key new x", "schedule x", "provider bogus", "quota bogus", "schema", "schema demon", "schema quota x",
	} {
		if code, out, errs := headway(t, strings.Fields(line)...); code != exitUsage || errs == "" {
			t.Errorf("headway %s: exit %d, %s%s", line, code, out, errs)
		}
	}
	for _, line := range []string{"", "help", "help gaps list", "completion", "completion bash"} {
		if code, out, errs := headway(t, strings.Fields(line)...); code != exitOK || out == "" || errs != "" {
			t.Errorf("headway %s: exit %d, %q %s", line, code, out, errs)
		}
	}
}

func TestAFlagHasTheRangeOfTheFile(t *testing.T) {
	connection := func(provider, run string) string {
		path := filepath.Join(t.TempDir(), "c.yaml")
		text := "connection: acme\nprovider: {base_url: \"https://api.example.com\"" + provider + "}\n" +
			"streams: [{name: a, list: {path: /a}, records: .items, key: .id}]\n" + run
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := connection("", "")
	for _, tt := range []struct{ flag, field, value, bounds string }{
		{"concurrency", "run: {concurrency: %s}", "1024", ""},
		{"concurrency", "run: {concurrency: %s}", "0", "want a whole number of at least 1"},
		{"concurrency", "run: {concurrency: %s}", "1025", "want a whole number of at most 1024"},
		{"max-wall-clock", "run: {max_wall_clock: %s}", "999ms", "want from 1s to 8784h"},
		{"max-wall-clock", "run: {max_wall_clock: %s}", "1s", ""},
		{"max-requests", "run: {max_requests: %s}", "0", "want a whole number of at least 1"},
		{"catchup-pages", "run: {catchup_pages: %s}", "-1", "want a whole number of at least 1"},
		{"ceiling", ", ceiling: %s", "100us", "want from 1ms to 24h"},
		{"ceiling", ", ceiling: %s", "25h", "want from 1ms to 24h"},
		{"ceiling", ", ceiling: %s", "24h", ""},
	} {
		field := fmt.Sprintf(tt.field, tt.value)
		file := connection("", field)
		if tt.flag == "ceiling" {
			file = connection(field, "")
		}
		for _, args := range [][]string{{file}, {plain, "--" + tt.flag, tt.value}} {
			code, _, errs := headway(t, append([]string{"check"}, args...)...)
			if tt.bounds == "" && code != exitOK || tt.bounds != "" && (code != exitUsage || !strings.Contains(errs, tt.bounds)) {
				t.Errorf("%s %s as %v: exit %d, %s, want %q", tt.flag, tt.value, args[1:], code, errs, tt.bounds)
			}
		}
	}
	t.Setenv("HEADWAY_CEILING", "100us")
	if code, _, errs := headway(t, "check", plain); code != exitUsage || !strings.Contains(errs, "HEADWAY_CEILING is 100us; want from 1ms to 24h") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestABulkFlagNamesItsBounds(t *testing.T) {
	for flag, want := range map[string]string{
		"--max-parallel=70000":   "must be from 1 to 65536",
		"--batch-rows=-1":        "must be from 1 to 1048576",
		"--target-time=25h":      "must be from 1ns to 24h",
		"--stall-timeout=9000h":  "--stall-timeout is 9000h0m0s, must be from 1ns to 8784h",
		"--patience=9000h":       "must be from 1ns to 8784h",
		"--drain=25h":            "must be from 1ns to 24h",
		"--max-row=2000000000":   "must be from 1 to 1073741824",
		"--max-parallel=seventy": "invalid argument",
	} {
		if code, _, errs := headway(t, "bulk", "run", "-", "--target", "x.yaml", flag); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %s", flag, code, errs)
		}
	}
}

func TestOptionsShowOnlyWhereTheyAreUsed(t *testing.T) {
	uses := map[string][]string{
		"--state": {
			"collect", "check", "replay", "status", "runs", "runs show", "limits", "fleet", "run", "proxy", "serve", "worker", "console", "top", "usage", "audit", "quota snapshot", "quota set",
			"ca", "ca show", "ca export", "ca rotate",
			"gaps", "gaps list", "gaps show", "gaps retry", "gaps quarantine", "gaps release", "gaps drop",
		},
		"--store": {
			"collect", "check", "replay", "status", "runs", "runs show", "limits", "serve", "worker", "schedule", "console", "top",
			"gaps", "gaps list", "gaps show", "gaps retry", "gaps quarantine", "gaps release", "gaps drop",
		},
		"--server": {
			"status", "runs", "runs show", "limits", "fleet", "top", "usage", "audit", "schedule", "gaps list", "gaps show", "quota snapshot",
			"gaps retry", "gaps quarantine", "gaps release", "gaps drop",
			"key", "key new", "key list", "key revoke",
		},
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		name := strings.TrimPrefix(cmd.CommandPath(), "headway ")
		for flag, commands := range uses {
			declared := cmd.Flag(strings.TrimPrefix(flag, "--")) != nil
			if used := slices.Contains(commands, name); declared != used {
				t.Errorf("headway %s: %s is declared: %v, is used: %v", name, flag, declared, used)
			}
		}
	}
	walk(newRoot())
	args := map[string]string{
		"collect": "FILE", "check": "FILE", "replay": "FILE", "runs show": "x", "serve": "--upstream openai", "gaps show": "1", "worker": ".",
		"gaps retry": "--all", "gaps quarantine": "--all", "gaps release": "--all", "gaps drop": "--all",
	}
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "connection: acme\nprovider: {base_url: \"https://api.example.com\"}\nstreams: [{name: a, list: {path: /a}, records: .items, key: .id}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range uses["--store"] {
		if name == "gaps" {
			continue // a group
		}
		line := strings.Fields(name + " " + strings.ReplaceAll(args[name], "FILE", file) + " --store state.db")
		if code, _, errs := headway(t, line...); code != exitUsage || !strings.Contains(errs, "a file is named by --state") {
			t.Errorf("headway %s ignores --store: exit %d, %s", name, code, errs)
		}
	}
}

func TestProgressSaysWhatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon := time.Now().Add(2 * time.Minute)
		rate := &event.Rate{EffectiveRatePerMin: 60_000, CeilingRatePerMin: 60_000}
		for want, now := range map[string]collect.Live{
			"1,000/s of at most 1,000/s, no back-off, waiting 2m0s for api.example.com: Retry-After": {
				Pacing: facade.Snapshot{Rate: rate, Circuit: "closed", RetryAt: soon},
			},
			"waiting 2m0s for api.example.com: it kept failing, so the circuit is open": {
				Pacing: facade.Snapshot{Rate: rate, Circuit: "open", RetryAt: soon},
			},
			"rate unknown, waiting 2m0s for api.example.com: it refuses for rate": {
				Waiting: reason.RateLimited.Reason(), Until: soon,
			},
			"no back-off, 90s left":             {Left: 90 * time.Second, Pacing: facade.Snapshot{Rate: rate}},
			"no back-off, 3s left on this page": {Left: 3 * time.Second, More: true, Pacing: facade.Snapshot{Rate: rate}},
		} {
			want = strings.ReplaceAll(want, "90s", "1m30s")
			if got := progressBlock("acme", "api.example.com", now, 0)[1]; !strings.HasSuffix(got, want) {
				t.Errorf("got %q, want %q at its end", got, want)
			}
		}
	})
}

func TestBadScheduleIsRefused(t *testing.T) {
	if _, err := newWatch("whenever", rest.Run{}, ""); err == nil || !strings.Contains(err.Error(), `--schedule is "whenever"`) || exitFor(err).code != exitUsage {
		t.Errorf("a bad schedule: %v", err)
	}
}

func TestTheSummarySaysWhatBoundTheRun(t *testing.T) {
	set := func(ceiling time.Duration) *rest.Config {
		return &rest.Config{Name: "c", Provider: rest.Provider{Ceiling: ceiling}, Run: rest.Run{Concurrency: 2}}
	}
	belief := &event.Rate{Belief: &event.Belief{Kind: "token_bucket", Limit: 10, WindowS: 1, Confidence: 1}}
	for _, tt := range []struct {
		c    *rest.Config
		by   reason.Bounds
		rate *event.Rate
		want string
	}{
		{set(0), reason.Bounds{reason.BoundCeiling: 9, reason.BoundDisk: 1}, nil,
			"90% ceiling, 10% disk; your ceiling of 250ms (4/s), not the provider, was the limit: it is the default, set provider.ceiling"},
		{set(20 * time.Millisecond), reason.Bounds{reason.BoundCeiling: 1}, nil,
			"100% ceiling; your ceiling of 20ms (50/s), not the provider, was the limit"},
		{set(0), reason.Bounds{reason.BoundCeiling: 2, reason.BoundLatency: 2, reason.BoundProcessing: 1}, nil, "40% ceiling, 40% latency, 20% processing"},
		{set(0), reason.Bounds{reason.BoundLatency: 1}, nil,
			"100% latency; most of the time went on waiting for responses, with run.concurrency set to 2"},
		{set(0), reason.Bounds{reason.BoundLimit: 1}, belief, "100% provider limit; the provider's limit is believed to be "},
		{set(0), reason.Bounds{reason.BoundLimit: 1}, nil, "100% provider limit"},
		{set(0), reason.Bounds{}, nil, "unknown"},
	} {
		s := collect.Summary{Run: collect.Run{State: collect.RunDrained, Progress: collect.Progress{BoundBy: tt.by}}, Rate: tt.rate}
		if got := summaryText(tt.c, s, "nowhere"); !strings.Contains(got, "  bound by   "+tt.want) {
			t.Errorf("%v: got\n%swant %q", tt.by, got, tt.want)
		}
	}
	status := statusText(collect.ConnectionStatus{Name: "c", LastRun: &collect.Run{Progress: collect.Progress{BoundBy: reason.Bounds{reason.BoundCircuit: 1}}}})
	if !strings.Contains(status, "bound by  100% circuit") {
		t.Errorf("got\n%s", status)
	}
}

// One mistake in five files: a person who has read one error can read them all.
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
			if code != exitUsage || !strings.Contains(errs, "\n"+want) {
				t.Errorf("exit %d, %s%s\nwant on a line of its own: %s", code, out, errs, want)
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

// TestProfilesAreListedAndShown, those that come with headway and one's own.
func TestProfilesAreListedAndShown(t *testing.T) {
	own := t.TempDir()
	code, shown, errs := headway(t, "profiles", "show", "notion")
	if code != exitOK || !strings.HasPrefix(shown, "profile: notion\n") || !strings.Contains(shown, "https://developers.notion.com/") {
		t.Fatalf("exit %d, %s%s", code, shown, errs)
	}
	write := func(name, src string) string {
		path := filepath.Join(own, name)
		if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	copied := write("notion.yaml", strings.Replace(shown, "title: Notion", "title: My Notion", 1))
	if code, out, errs := headway(t, "profiles", "show", copied); code != exitOK || !strings.Contains(out, "My Notion") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if _, out, _ := headway(t, "profiles", "list"); !strings.Contains(out, "graphql, code_search, search, core") || strings.Contains(out, "My Notion") {
		t.Error(out)
	}
	t.Setenv("HEADWAY_PROFILES", own)
	if _, out, _ := headway(t, "profiles", "list"); !strings.Contains(out, "My Notion") || !strings.Contains(out, copied) {
		t.Error(out)
	}
	if code, out, _ := headway(t, "profiles", "show", "notion", "--json"); code != exitOK || !strings.Contains(out, `"title": "My Notion"`) {
		t.Errorf("exit %d, %s", code, out)
	}
	if _, out, _ := headway(t, "__complete", "profiles", "show", "git"); !strings.Contains(out, "github\t") || !strings.Contains(out, "gitlab\t") {
		t.Error(out)
	}
	bad := write("bad.yaml", "profile: bad\nlimit: 3\n")
	for _, c := range []struct{ name, want string }{{"githib", "did you mean github?"}, {bad, "bad.yaml:2:1: limit: is not a field here"}} {
		if code, out, errs := headway(t, "profiles", "show", c.name); code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("exit %d, %s%s, want %s", code, out, errs, c.want)
		}
	}
}

func TestSchemaPrintsOneKindOfFile(t *testing.T) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(schemas, &all); err != nil {
		t.Fatal(err)
	}
	kinds := slices.Sorted(maps.Keys(all))
	if diff := cmp.Diff(kinds, newSchema().ValidArgs); diff != "" {
		t.Error(diff)
	}
	for _, kind := range kinds {
		code, out, errs := headway(t, "schema", kind)
		var schema map[string]any
		if err := json.Unmarshal([]byte(out), &schema); code != 0 || err != nil || schema["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("headway schema %s: exit %d, %v, %s", kind, code, err, errs)
		}
	}
	if code, _, errs := headway(t, "schema", "demon"); code != exitUsage || !strings.Contains(errs, `no kind of file is called "demon": did you mean daemon?`) {
		t.Errorf("exit %d, %s", code, errs)
	}
}
