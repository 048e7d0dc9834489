//go:build unix

// Package provider_test runs the headway binary as it is shipped, as processes:
// a provider that limits, and collections of it that are throttled, killed,
// interrupted and lied to. What was collected is held against what the provider
// has, and what the client says against what the provider saw.
package provider_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/sim/serve"
)

// commands are those that read the state.
var commands = [][]string{{"status"}, {"runs"}, {"gaps", "list"}, {"gaps", "list", "--status", "all"}, {"rate"}}

// printed is what a command prints as JSON: lists of objects.
func printed(t *testing.T, w harness.Workplace, args []string) []map[string]json.RawMessage {
	t.Helper()
	var list []map[string]json.RawMessage
	w.Read(t, &list, args...)
	if list == nil {
		t.Errorf("headway %s prints null, want a list", strings.Join(args, " "))
	}
	return list
}

// only is the one object of a list.
func only(t *testing.T, list []map[string]json.RawMessage) map[string]json.RawMessage {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("%d entries, want one: %v", len(list), list)
	}
	return list[0]
}

func TestJSONOutput(t *testing.T) {
	data := serve.Options{Seed: 6, Conversations: 40, Messages: 4}
	want := harness.TruthOf(t, data, pageSize)
	u := provide(t, noLimit, data)
	// Longer than five seconds, after which there is a first line of progress.
	w := newWorkplace(t, u.url, connection{ceiling: "140ms", initial: "140ms"})

	o := w.Collect(t, "--json", "--max-requests", "6")
	if s := harness.Summary(t, o); o.Code != harness.ExitDeferred || s.Reason.String() != "max_requests" || s.Owed["max_requests"] != pageSize-5 {
		t.Errorf("want one page of which all but five details are owed: %s", o)
	}
	if list := printed(t, w, []string{"gaps", "list"}); len(list) != pageSize-5 || string(list[0]["reason"]) != `"max_requests"` {
		t.Errorf("%d gaps are listed, want %d for max_requests: %v", len(list), pageSize-5, list)
	}

	o = w.Collect(t, "--json")
	if o.Code != harness.ExitDrained || o.Stderr != "" {
		t.Errorf("want exit code 0 and nothing beside the JSON: %s", o)
	}
	kinds := map[string]int{}
	for _, l := range harness.Lines(t, o) {
		kinds[l.Type]++
	}
	if kinds["event"] == 0 || kinds["progress"] == 0 || kinds["summary"] != 1 {
		t.Errorf("lines by type: %v, want events, progress and one summary", kinds)
	}
	s := harness.Summary(t, o)
	if int(s.Details) != len(want.Order)-5 || s.GapsRecovered != pageSize-5 || len(s.Owed) != 0 || s.Rate == nil {
		t.Errorf("the summary counts %d details and %d gaps recovered, owes %v and has the rate %v; want %d, %d, nothing and one",
			s.Details, s.GapsRecovered, s.Owed, s.Rate, len(want.Order)-5, pageSize-5)
	}
	w.Complete(t, want)
	for i, entries := range []int{1, 2, 0, pageSize - 5, 1} {
		if list := printed(t, w, commands[i]); len(list) != entries {
			t.Errorf("headway %s prints %d entries, want %d", strings.Join(commands[i], " "), len(list), entries)
		}
	}
	for field, value := range only(t, printed(t, w, []string{"limits"})) {
		if slices.Contains([]string{"pacing", "rate", "limits"}, field) && string(value) == "null" {
			t.Errorf("after a run the %s is still unknown", field)
		}
	}
	var run struct{ Events []json.RawMessage }
	if w.Read(t, &run, "runs", "show", s.ID); len(run.Events) != kinds["event"] {
		t.Errorf("the trace has %d events, the output had %d", len(run.Events), kinds["event"])
	}
}

func TestUnknownIsNull(t *testing.T) {
	w := newWorkplace(t, nobody(t), connection{provider: "  retry: {attempts: 1}\n"})
	for _, args := range commands {
		o := w.Headway(t, append(args, "--json")...).Wait(t)
		if o.Code != harness.ExitUsage || o.Stdout != "" || !strings.Contains(o.Stderr, "no state") {
			t.Errorf("headway %s without any state: want exit code %d and why: %s", strings.Join(args, " "), harness.ExitUsage, o)
		}
	}
	// A run that nobody answered leaves state, but nothing is known of the rate.
	o := w.Collect(t, "--json")
	if o.Code != harness.ExitDeferred {
		t.Fatalf("want exit code %d: %s", harness.ExitDeferred, o)
	}
	if s := harness.Summary(t, o); s.Rate != nil {
		t.Errorf("the summary knows the rate %+v", s.Rate)
	}
	if !strings.Contains(o.Stdout, `"rate":null`) {
		t.Errorf("the summary does not say that the rate is unknown: %s", o)
	}
	rate := only(t, printed(t, w, []string{"rate"}))
	if string(rate["pacing"]) != "null" || string(rate["rate"]) != "null" || string(rate["limits"]) != "null" {
		t.Errorf("limits --json says %s, %s and %s, want null", rate["pacing"], rate["rate"], rate["limits"])
	}
	status := only(t, printed(t, w, []string{"status"}))
	if string(status["pacing"]) != "null" {
		t.Errorf("status --json says that pacing is %s, want null", status["pacing"])
	}
	for _, args := range commands {
		printed(t, w, args)
	}
}

func TestWarmStart(t *testing.T) {
	data := serve.Options{Seed: 8, Conversations: 30, Messages: 4}
	u := provide(t, noLimit, data)
	w := newWorkplace(t, u.url, connection{ceiling: "5ms", initial: "60ms", step: "5ms"})
	o := w.Collect(t, "--json")
	first := harness.Summary(t, o)
	if o.Code != harness.ExitDrained || first.WarmStart || first.Rate == nil {
		t.Fatalf("want a first run that begins cold, drains and knows a rate: %s", o)
	}
	if first.Rate.CurrentIntervalMS != 5 {
		t.Errorf("the first run found an interval of %v ms, want the ceiling of 5", first.Rate.CurrentIntervalMS)
	}
	o = w.Collect(t, "--json")
	second := harness.Summary(t, o)
	if o.Code != harness.ExitDrained || !second.WarmStart || !strings.Contains(o.Stdout, `"note":"restored"`) {
		t.Errorf("want a second run that begins warm: %s", o)
	}
	if second.Attempts != 1 || second.Rate == nil || second.Rate.CurrentIntervalMS != first.Rate.CurrentIntervalMS {
		t.Errorf("the second run sent %d requests and ended at %+v, want one request at the first one's interval", second.Attempts, second.Rate)
	}
	// Another connection of the same provider knows nothing of it.
	other := newWorkplace(t, u.url, connection{ceiling: "5ms", initial: "20ms"})
	if s := harness.Summary(t, other.Collect(t, "--json")); s.WarmStart {
		t.Error("a connection that was never collected began warm")
	}
}

func TestMain(m *testing.M) {
	os.Exit(harness.Run(m, harness.Setup{}))
}
