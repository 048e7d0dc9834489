package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/headway-go/headway/collect"
)

func TestCollectsTheNamedStreamsOnly(t *testing.T) {
	s := newSite(t)
	users := streamYAML{name: "users", path: "/v2/docs"}
	s.write(t, "", "", streamYAML{more: detail}, users)
	for _, tt := range []struct{ name, says string }{
		{"nobody", `no stream "nobody" in this connection, which has docs, users`},
		{"messages", `stream "messages" is collected with docs`},
		{"", `no stream ""`},
	} {
		code, out, errs := headway(t, "collect", "c.yaml", "--stream", "users", "--stream", tt.name)
		if code != exitUsage || !strings.Contains(errs, tt.says) || out != "" {
			t.Errorf("--stream %q: exit %d, want %d and %q: %s%s", tt.name, code, exitUsage, tt.says, errs, out)
		}
	}
	if code, _, errs := headway(t, "collect", "c.yaml", "--stream", "docs", "--fresh"); code != exitUsage || !strings.Contains(errs, "--fresh does not go with --stream") {
		t.Errorf("with --fresh: exit %d: %s", code, errs)
	}
	if n := s.asked(""); n != 0 {
		t.Fatalf("%d requests were sent for command lines that are wrong", n)
	}

	code, out, errs := headway(t, "collect", "c.yaml", "--stream", "users")
	if code != exitOK || !strings.Contains(out, "nothing is left to do for what was asked for") || !strings.Contains(out, `users only; "headway status" shows the rest`) {
		t.Fatalf("exit %d: %s%s", code, errs, out)
	}
	if rows(t, "users") != siteDocs || rows(t, "docs")+rows(t, "messages") != 0 || s.asked("/docs") != 0 {
		t.Error("other streams were collected as well")
	}

	// Details that are owed are those of other runs.
	s.fail = true
	collects(t, exitDeferred)
	s.fail = false
	if code, _, errs := headway(t, "gaps", "retry", "--connection", "site"); code != exitOK {
		t.Fatalf("gaps retry: exit %d: %s", code, errs)
	}
	s.asked("")
	if code, out, errs = headway(t, "collect", "c.yaml", "--stream", "users", "--json"); code != exitOK {
		t.Fatalf("exit %d: %s%s", code, errs, out)
	}
	var last struct{ Summary collect.Summary }
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if sum := last.Summary; !slices.Equal(sum.Streams, []string{"users"}) || len(sum.Owed) != 0 || sum.State != collect.RunDrained {
		t.Errorf("the summary is %+v", sum)
	}
	if n := s.asked("/docs"); n != 0 {
		t.Errorf("%d requests for the other stream", n)
	}
	if code, out, errs = headway(t, "collect", "c.yaml", "--stream", "docs", "--stream", "users"); code != exitOK || rows(t, "messages") != siteDocs {
		t.Errorf("both: exit %d, %d messages: %s%s", code, rows(t, "messages"), errs, out)
	}
}

func TestCompletesTheNamesOfStreams(t *testing.T) {
	s := newSite(t)
	s.write(t, "", "", streamYAML{more: detail}, streamYAML{name: "users"})
	code, out, errs := headway(t, "__complete", "collect", "c.yaml", "--stream", "")
	if code != exitOK || !strings.HasPrefix(out, "docs\nusers\n") {
		t.Errorf("exit %d, completions %q: %s", code, out, errs)
	}
}
