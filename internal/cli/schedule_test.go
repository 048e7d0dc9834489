package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/schedule"
)

func TestScheduleSaysWhatRunsWhen(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local)
	text := scheduleText([]schedule.Status{
		{Connection: "chats", File: "chats.yaml", Running: true},
		{Connection: "issues", File: "issues.yaml", Next: now.Add(15 * time.Minute)},
		{Connection: "mail", File: "mail.yaml", Next: now.Add(time.Hour), Failures: 2, Error: "401 unauthorized"},
	}, now)
	for i, want := range [][]string{
		{"CONNECTION", "NEXT RUN"}, {"chats", "now", "chats.yaml"}, {"issues", "2026-01-02 03:15:00, in 15m0s", "ok"},
		{"mail", "04:00:00", "failed 2 in a row: 401 unauthorized"},
	} {
		line := strings.Split(text, "\n")[i]
		for _, w := range want {
			if !strings.Contains(line, w) {
				t.Errorf("line %d lacks %q: %s", i, w, line)
			}
		}
	}
	text = scheduleText([]schedule.Status{
		{Connection: "chats", File: "chats.yaml", Running: true, Lane: collect.Catchup, Next: now.Add(time.Minute)},
		{Connection: "issues", File: "issues.yaml", Next: now.Add(time.Minute), CatchupNext: now.Add(time.Hour)},
		{Connection: "mail", File: "mail.yaml", Running: true},
	}, now)
	for i, want := range []string{"NEXT RUN NEXT CATCH-UP LAST RUN FILE", "in 1m0s now - chats.yaml", "in 1m0s 2026-01-02 04:00:00, in 1h0m", "now with each run"} {
		if line := strings.Join(strings.Fields(strings.Split(text, "\n")[i]), " "); !strings.Contains(line, want) {
			t.Errorf("with lanes apart line %d lacks %q: %s", i, want, line)
		}
	}
	if text := scheduleText(nil, now); !strings.Contains(text, "nothing") {
		t.Errorf("without collections: %q", text)
	}
	if code, out, errOut := headway(t, "schedule"); code != exitUsage || !strings.Contains(errOut, "--server") {
		t.Errorf("without a daemon: %d %s %s", code, out, errOut)
	}
}
