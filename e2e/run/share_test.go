//go:build unix

package run_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
)

// members are how many processes share each credential, by the socket in the state folder.
func (w *world) members(t *testing.T) (all []int) {
	t.Helper()
	o := harness.Launch(t, w.dir, nil, "fleet", "--fleet", "unix://"+filepath.Join(w.state, "headway.sock"), "--json").Wait(t)
	var shared []struct{ Members []json.RawMessage }
	if o.Code == 0 && json.Unmarshal([]byte(o.Stdout), &shared) != nil {
		t.Fatal(o)
	}
	for _, c := range shared {
		all = append(all, len(c.Members))
	}
	return all
}

// Runs on one credential share its limit with nothing else there: the first serves the others,
// and another takes over when it is killed.
func TestRunsShareALimit(t *testing.T) {
	w := newWorld(t)
	const host = "shared.ten.headway.test"
	begin := func(name, script string) *harness.Process {
		return harness.Launch(t, w.dir, append(w.env(t), "URL=https://"+host+"/f/1", "STOP="+filepath.Join(w.dir, name)), "run", "--state", w.state,
			"--host", host, "--json", "--", "sh", "-c", `get() { curl -sS -H 'Authorization: Bearer canary' -o /dev/null -o /dev/null -w '%{http_code}\n' "$URL" "$URL"; }; get; echo ready; `+script)
	}
	const untilStopped = `until [ -e "$STOP" ]; do get; done`
	first := begin("first", untilStopped)
	first.Await(t, &first.Stdout, "ready")
	if alone := w.members(t); slices.Max(append(alone, 0)) != 0 {
		t.Errorf("alone, it goes by a server: %v", alone)
	}
	second := begin("second", untilStopped)
	second.Await(t, &second.Stdout, "ready")
	harness.Eventually(t, "two runs share the credential", func() bool { return slices.Equal(w.members(t), []int{2}) })
	third := begin("third", untilStopped)
	third.Await(t, &third.Stdout, "ready")
	harness.Eventually(t, "three runs share the credential", func() bool { return slices.Equal(w.members(t), []int{3}) })

	first.Signal(t, syscall.SIGKILL)
	harness.Write(t, filepath.Join(w.dir, "first"), "") // its command goes on, without a proxy
	first.Wait(t)
	harness.Eventually(t, "another has taken over", func() bool { return slices.Equal(w.members(t), []int{2}) })
	late := begin("late", "get; get")
	harness.Write(t, filepath.Join(w.dir, "second"), "")
	harness.Write(t, filepath.Join(w.dir, "third"), "")
	served, refused := 0, 0
	for _, p := range []*harness.Process{second, third, late} {
		o := p.Wait(t)
		var s struct {
			Connections []struct{ Requests, Throttled, Passed, Refused int }
		}
		at := strings.LastIndex("\n"+o.Stderr, "\n{\n")
		if at < 0 || json.Unmarshal([]byte(o.Stderr[at:]), &s) != nil || o.Code != 0 || len(s.Connections) != 1 || s.Connections[0].Passed+s.Connections[0].Refused > 0 ||
			strings.Trim(strings.ReplaceAll(o.Stdout, "ready", ""), "20\n") != "" {
			t.Fatal(o)
		}
		served, refused = served+s.Connections[0].Requests, refused+s.Connections[0].Throttled
	}
	t.Logf("%d answers of the three, %d refused and held", served, refused)
	if refused > served/4 {
		t.Errorf("%d of %d were refused: they do not share", refused, served+refused)
	}
	// If all left at once, the socket is there for the next run to find, which removes it.
	if o := begin("last", ":").Wait(t); o.Code != 0 {
		t.Error(o)
	}
	if _, err := os.Stat(filepath.Join(w.state, "headway.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}
