package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/sim/replay"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

const limitsYAML = `
global: {max_daily_calls: 1000}
models:
  small: {calls_per_minute: 60, burst: 2}
  day: {max_daily_tokens: 1000}
forecast: false
adaptive_scaling: false
`

const timelineYAML = `
- {at: 0s, id: a, model: small, input: 10}
- {at: 0s, id: b, model: small, input: 10}
- {at: 0s, id: c, model: small, input: 10}
- {at: 0s, do: wait, id: w, model: small, within: 10s}
- {at: 1s, do: record, id: a, input: 12, output: 3}
- {at: 1s, do: record, id: c, input: 1}        # it was refused
- {at: 2s, id: d, model: day, input: 600, output: 300}
- {at: 3s, do: drain, id: d, output: 350}
- {at: 4s, do: cancel, id: b}
- {at: 4s, do: record, id: d, input: 600, output: 395}
- {at: 5s, model: day, input: 100, times: 3, every: 1s}
- {at: 9s, id: x, model: none}
- {at: 10s, do: config, patch: {models: {day: {maxDailyTokens: 5000}}}}
- {at: 11s, id: e, model: day, input: 100}
- {at: 20m, do: record, id: e, input: 100}     # too late
`

func quotaFiles(t *testing.T) (limits, timeline string) {
	t.Helper()
	return scenarioFile(t, "quota.yaml", limitsYAML), scenarioFile(t, "day.yaml", timelineYAML)
}

func TestQuotaSimulatePrintsEventsStatesAndTheHash(t *testing.T) {
	limits, timeline := quotaFiles(t)
	code, out, complaints := simulate(t, "quota", "simulate", timeline, "--config", limits, "--tail", "0s")
	if code != exitOK || complaints != "" {
		t.Fatalf("exit %d, %s", code, complaints)
	}
	head, hash, _ := strings.Cut(out, "\nhash         ")
	if len(strings.TrimSpace(hash)) != 64 {
		t.Errorf("hash %q", hash)
	}
	want := `0s           call a: approved
0s           call b: approved
0s           call c: refused, RATE_THROTTLED, retry in 1s
0s           rate:throttle model small THROTTLED, retry in 1s
0s           rate:denied model small RATE_THROTTLED, retry in 1s
0s           model small: normal > throttle (bucket_empty)
1s           call w: approved, throttled
2s           call d: approved
3s           rate:resume model small
3s           model small: throttle > normal (resume)
`
	if !strings.HasPrefix(head, want) {
		t.Errorf("it begins otherwise: %s", cmp.Diff(want, head))
	}
	for _, line := range []string{
		"llm:quota_exhausted model day", "model day: normal > exhausted (cap_reached)", "model day: exhausted > normal (cap_raised)",
		"9s           call x: refused, RATE_MODEL_NOT_CONFIGURED, waiting does not help\n",
		"10s          rate:config global\n", "11s          call e: approved\n", "20m0s        call e: cannot record, RATE_APPROVAL_CONFLICT\n",
		"SCOPE        STATE   CALLS LEFT", "approved     5\n",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
}

func TestQuotaSimulateTheSameFilesGiveTheSameBytes(t *testing.T) {
	limits, timeline := quotaFiles(t)
	for _, format := range [][]string{nil, {"--json"}} {
		args := append([]string{"quota", "simulate", timeline, "--config", limits}, format...)
		_, first, _ := simulate(t, args...)
		if _, second, _ := simulate(t, args...); first == "" || first != second {
			t.Errorf("%v: two replays differ:\n%s\n%s", format, first, second)
		}
	}
}

func TestQuotaSimulateJSONHasAllOfIt(t *testing.T) {
	limits, timeline := quotaFiles(t)
	_, out, _ := simulate(t, "quota", "simulate", timeline, "--config", limits, "--json", "--start", "2026-03-04T12:00:00Z")
	var r replay.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	_, text, _ := simulate(t, "quota", "simulate", timeline, "--config", limits)
	if !strings.Contains(text, r.TransitionHash) || r.TransitionHash != r.Snapshot.Statistics.LogHash {
		t.Errorf("hash %s", r.TransitionHash)
	}
	if len(r.Answers) != 10 || len(r.Moves) != int(r.Snapshot.Statistics.Moves) || len(r.Events) == 0 || r.Lost != 0 {
		t.Errorf("%d answers, %d moves, %d events", len(r.Answers), len(r.Moves), len(r.Events))
	}
	if got := r.Snapshot.Timestamp.Format("15:04:05"); got != "12:21:00" {
		t.Errorf("it ended at %s", got)
	}
	if a := r.Answers[2]; a.ID != "c" || a.Approved || a.Code != quota.CodeThrottled || a.RetryInMS == nil || *a.RetryInMS != 1000 {
		t.Errorf("%+v", a)
	}
}

func TestQuotaSimulateReadsJSONLines(t *testing.T) {
	limits, _ := quotaFiles(t)
	yaml := scenarioFile(t, "a.yaml", "- {at: 0s, id: a, model: small, input: 10}\n- {at: 1s, model: small, times: 5}\n")
	lines := scenarioFile(t, "a.jsonl", `{"at":"0s","id":"a","model":"small","input":10}`+"\n\n"+`{"at":"1s","model":"small","times":5}`)
	_, a, _ := simulate(t, "quota", "simulate", yaml, "--config", limits, "--json")
	code, b, complaints := simulate(t, "quota", "simulate", lines, "--config", limits, "--json")
	if code != exitOK || a != b {
		t.Errorf("exit %d, %s%s", code, complaints, cmp.Diff(a, b))
	}
}

func TestQuotaComplainsAboutWhatItCannotUse(t *testing.T) {
	limits, timeline := quotaFiles(t)
	state := filepath.Join(t.TempDir(), "use.json")
	file := func(content string) string { return scenarioFile(t, "t.yaml", content) }
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no file", []string{"simulate", "--config", limits}, "needs a file with a timeline"},
		{"no limits", []string{"simulate", timeline}, "--config is missing"},
		{"limits that are not there", []string{"simulate", timeline, "--config", "nowhere.yaml"}, "nowhere.yaml"},
		{"limits that are wrong", []string{"simulate", timeline, "--config", file("models: {m: {burst: -1}}")}, ":1:21: models.m.burst: is -1"},
		{"a timeline that is not there", []string{"simulate", "nowhere.yaml", "--config", limits}, "nowhere.yaml"},
		{"an empty timeline", []string{"simulate", file("[]"), "--config", limits}, "no steps"},
		{"no list", []string{"simulate", file("a: 1"), "--config", limits}, "t.yaml:1:1: is a mapping; want a list of steps"},
		{"no YAML", []string{"simulate", file("- {"), "--config", limits}, "is not valid YAML here"},
		{"nesting", []string{"simulate", file("- {at: 0s}\n- " + strings.Repeat("[", 200)), "--config", limits}, "t.yaml:2:35: is nested more than 32 levels deep"},
		{"nesting by indent", []string{"simulate", file(strings.Repeat("- ", 200) + "a"), "--config", limits}, "t.yaml:1:65: is nested more than 32 levels deep"},
		{"too much YAML", []string{"simulate", file("#" + strings.Repeat(" ", 4<<20)), "--config", limits}, "JSON lines"},
		{"an unknown field", []string{"simulate", file("- {at: 0s, modle: m}"), "--config", limits}, "t.yaml:1:12: [0].modle: is not a field here: did you mean model?"},
		{"an unknown field on a line", []string{"simulate", file("{\"at\":\"0s\"}\n{\"modle\":1}"), "--config", limits}, "t.yaml:2:1: [line 2]: cannot be read: "},
		{"no time", []string{"simulate", file("- {at: 0s, model: small}\n- {model: small}"), "--config", limits}, `t.yaml:2:3: [1].at: is missing; want a duration`},
		{"a negative time", []string{"simulate", file("- {at: -1s, model: small}"), "--config", limits}, `t.yaml:1:8: [0].at: is "-1s"; want a duration`},
		{"an unknown verb", []string{"simulate", file("- {at: 0s, do: hope}"), "--config", limits}, `t.yaml:1:16: [0].do: is "hope"; want approve`},
		{"a field of another verb", []string{"simulate", file("- {at: 0s, do: cancel, id: a, output: 1}"), "--config", limits}, "[0].output: is not a field of cancel: want one of at, do, id"},
		{"no id", []string{"simulate", file("- {at: 0s, do: cancel}"), "--config", limits}, "[0].id: is missing; want the id of a call for cancel"},
		{"an unknown id", []string{"simulate", file("- {at: 0s, do: cancel, id: q}"), "--config", limits}, `t.yaml:1: there is no call "q"`},
		{"an id that is repeated", []string{"simulate", file("- {at: 0s, id: q, model: small, times: 2}"), "--config", limits}, "cannot be repeated"},
		{"too many", []string{"simulate", file("- {at: 0s, model: small, times: 1000000}\n- {at: 0s, model: small}"), "--config", limits}, "1000001 calls"},
		{"repeats without end", []string{"simulate", file("- {at: 0s, model: small, times: 1000000, every: 1h}"), "--config", limits}, "the repeats end after"},
		{"a bad patch", []string{"simulate", file("- {at: 0s, do: config, patch: {models: {small: {burst: -1}}}}"), "--config", limits}, "t.yaml:1: quota: models.small.burst is -1"},
		{"usage out of its bound", []string{"simulate", file("- {at: 0s, id: a, model: small}\n- {at: 0s, do: record, id: a, input: -1}"), "--config", limits}, "t.yaml:2:38: [1].input: is -1; want a whole number from 0 to 1000000000"},
		{"a bad start", []string{"simulate", timeline, "--config", limits, "--start", "noon"}, "--start"},
		{"a bad tail", []string{"simulate", timeline, "--config", limits, "--tail", "-1s"}, "--tail"},
		{"no such subcommand", []string{"simulat"}, "did you mean simulate?"},
		{"a snapshot of nothing", []string{"snapshot", "--config", limits, "--state", state}, "no daily use in"},
		{"nothing to set", []string{"set", "--config", limits, "--state", state}, "--tokens, --calls or both"},
		{"a negative use", []string{"set", "--config", limits, "--state", state, "--tokens", "-1"}, "negative"},
		{"a scope without limits", []string{"set", "--config", limits, "--state", state, "--model", "none", "--tokens", "1"}, "model none has no limits"},
		{"a use beyond all bounds", []string{"set", "--config", limits, "--state", state, "--tokens", "9000000000000000000"}, "tokens is 9000000000000000000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, _, complaints := simulate(t, append([]string{"quota"}, tt.args...)...)
			if code != exitUsage || !strings.Contains(complaints, tt.want) {
				t.Errorf("exit %d and complaint %q, want %d and %q", code, complaints, exitUsage, tt.want)
			}
		})
	}
}

func TestQuotaSetChangesOneScopeAndSnapshotShowsIt(t *testing.T) {
	limits, _ := quotaFiles(t)
	state := filepath.Join(t.TempDir(), "new", "use.json")
	set := func(args ...string) string {
		t.Helper()
		code, out, complaints := simulate(t, append([]string{"quota", "set", "--config", limits, "--state", state}, args...)...)
		if code != exitOK {
			t.Fatalf("exit %d, %s", code, complaints)
		}
		return out
	}
	set("--calls", "7")
	set("--model", "day", "--tokens", "999", "--calls", "3")
	if out := set("--model", "day", "--tokens", "400"); !strings.Contains(out, "model day") || !strings.Contains(out, "400") {
		t.Errorf("said %q", out)
	}
	code, out, _ := simulate(t, "quota", "snapshot", "--config", limits, "--state", state, "--json")
	var s quotaSnapshot
	if err := json.Unmarshal([]byte(out), &s); code != exitOK || err != nil {
		t.Fatal(code, err)
	}
	if *s.Models["day"].DailyTokensRemaining != 600 || *s.Global.DailyCallsRemaining != 993 || len(s.DailyUse) != 2 || s.DailyUse[1].Calls != 3 {
		t.Errorf("%s", out)
	}
	if _, out, _ = simulate(t, "quota", "snapshot", "--config", limits, "--state", state); !strings.Contains(out, "model day") || !strings.Contains(out, "993") {
		t.Errorf("said\n%s", out)
	}

	held, err := governor.OpenFile(state)
	if err != nil {
		t.Fatal(err)
	}
	code, _, complaints := simulate(t, "quota", "set", "--config", limits, "--state", state, "--calls", "1")
	if code != exitDeferred || !strings.Contains(complaints, "another process") {
		t.Errorf("set while it is used: exit %d, %q", code, complaints)
	}
	if code, _, _ := simulate(t, "quota", "snapshot", "--config", limits, "--state", state); code != exitOK {
		t.Errorf("snapshot while it is used: exit %d", code)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(state, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"snapshot", "set"} {
		args := []string{"quota", verb, "--config", limits, "--state", state}
		if verb == "set" {
			args = append(args, "--calls", "1")
		}
		if code, _, complaints := simulate(t, args...); code != exitInternal || !strings.Contains(complaints, "not a file of daily use") {
			t.Errorf("%s of a broken file: exit %d, %q", verb, code, complaints)
		}
	}
}

func TestTheTimelineInTheHelpCanBeReplayed(t *testing.T) {
	limits, _ := quotaFiles(t)
	var steps strings.Builder
	for line := range strings.Lines(newQuotaSimulate().Long) {
		if strings.HasPrefix(line, "  - {") {
			steps.WriteString(line)
		}
	}
	code, out, complaints := simulate(t, "quota", "simulate", scenarioFile(t, "help.yaml", steps.String()), "--config", limits)
	if code != exitOK || strings.Count(steps.String(), "\n") != 7 || !strings.Contains(out, "call a: approved") || !strings.Contains(out, "rate:config") {
		t.Errorf("exit %d, %s\n%s", code, complaints, out)
	}
}
