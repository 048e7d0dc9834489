package event_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// logger writes lines without their time.
func logger(out *bytes.Buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestOneLineAnEvent(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, tt := range []struct {
		e    event.Event
		want string
	}{
		{event.Event{Type: event.RunStart, Connection: "crm", Run: "7"}, "level=INFO msg=run_start connection=crm run=7"},
		{event.Event{Type: event.Phase, Connection: "crm", Stream: "people", Phase: "walk"}, "level=DEBUG msg=phase connection=crm stream=people phase=walk"},
		{event.Event{Type: event.Deferral, Stream: "people", Reason: reason.Deadline, Count: 3}, "level=INFO msg=deferral stream=people reason=" + reason.Deadline.String() + " count=3"},
		{event.Event{Type: event.Warning, Note: "full_page", Count: 1}, "level=WARN msg=warning note=full_page count=1"},
		{event.Event{Type: event.ConnectionChanged, Note: "base_url"}, "level=INFO msg=connection_changed note=base_url"},
		{
			event.Event{Type: event.Circuit, Circuit: &event.Breaker{Previous: "closed", State: "open", Trigger: "failures", ElapsedMS: 5, Requests: 6, Retries: 7}},
			"level=WARN msg=circuit circuit.previous_state=closed circuit.state=open circuit.trigger=failures circuit.elapsed_ms=5 circuit.requests=6 circuit.retries=7",
		},
		{
			event.Event{Type: event.Circuit, Circuit: &event.Breaker{Previous: "half_open", State: "closed"}},
			"level=INFO msg=circuit circuit.previous_state=half_open circuit.state=closed circuit.trigger=\"\" circuit.elapsed_ms=0 circuit.requests=0 circuit.retries=0",
		},
		{event.Event{Type: event.Circuit}, "level=INFO msg=circuit"},
		{
			event.Event{Type: event.CollectionRate, Rate: &event.Rate{
				CurrentIntervalMS: 500, EffectiveRatePerMin: 120, CeilingIntervalMS: 250, CeilingRatePerMin: 240,
				LastBackoff: &event.Backoff{Reason: reason.Pacing, AtIntervalMS: 300, At: at},
				Belief:      &event.Belief{Kind: "token_bucket", Limit: 60, WindowS: 60, Confidence: 0.9},
			}},
			"level=DEBUG msg=collection_rate rate.current_interval_ms=500 rate.effective_rate_per_min=120 rate.ceiling_interval_ms=250 rate.ceiling_rate_per_min=240" +
				" rate.last_backoff.reason=" + reason.Pacing.String() + " rate.last_backoff.at_interval_ms=300 rate.last_backoff.at=2026-03-04T05:06:07.000Z" +
				" rate.belief.kind=token_bucket rate.belief.limit=60 rate.belief.window_s=60 rate.belief.confidence=0.9",
		},
		{event.Event{Type: event.RunEnd, Bound: &event.Bound{Shares: map[string]float64{"latency": 0.25, "ceiling": 0.75}}}, "level=INFO msg=run_end bound.ceiling=0.75 bound.latency=0.25"},
		{event.Event{Type: event.WarmStart}, "level=INFO msg=warm_start"},
	} {
		var out bytes.Buffer
		event.Log(logger(&out, slog.LevelDebug))(tt.e)
		if got := strings.TrimSuffix(out.String(), "\n"); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.e.Type, got, tt.want)
		}
	}
}

func TestTheLevelIsKept(t *testing.T) {
	var out bytes.Buffer
	log := event.Log(logger(&out, slog.LevelInfo))
	log(event.Event{Type: event.Phase})
	log(event.Event{Type: event.CollectionRate, Rate: &event.Rate{}})
	if out.Len() > 0 {
		t.Errorf("logged %s", out.String())
	}
}

// TestTheNamesAreThoseOfTheJSON: who knows one knows the other.
func TestTheNamesAreThoseOfTheJSON(t *testing.T) {
	e := event.Event{
		Type: event.RunEnd, Connection: "c", Run: "r", Reason: reason.Pacing, Stream: "s", Phase: "p", Count: 1, Note: "n",
		Rate:    &event.Rate{LastBackoff: &event.Backoff{}, Belief: &event.Belief{}},
		Circuit: &event.Breaker{}, Bound: &event.Bound{Shares: map[string]float64{"queue": 1}},
	}
	var out bytes.Buffer
	event.Log(slog.New(slog.NewJSONHandler(&out, nil)))(e)
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var line, want map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"at", "type"} { // the line's own time and message
		delete(want, name)
	}
	bound, _ := want["bound"].(map[string]any)
	want["bound"] = bound["shares"]
	compare(t, "", line, want)
}

func compare(t *testing.T, at string, line, want map[string]any) {
	t.Helper()
	for name, member := range want {
		got, ok := line[name]
		if !ok {
			t.Errorf("the line lacks %s%s", at, name)
		}
		if object, ok := member.(map[string]any); ok {
			below, _ := got.(map[string]any)
			compare(t, at+name+".", below, object)
		}
	}
}

func ExampleLog() {
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: noTime}))
	onEvent := event.Log(log) // for headway.Config, collect.Options and others
	onEvent(event.Event{Type: event.Deferral, Connection: "crm", Stream: "people", Count: 12})
	// Output: level=INFO msg=deferral connection=crm stream=people count=12
}
