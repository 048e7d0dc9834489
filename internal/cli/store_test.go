//go:build linux

package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/internal/pgserver"
)

// TestTheStateInADatabase: every command that has a state takes it from --store or its
// variable, none leaves a file, and none says the password.
func TestTheStateInADatabase(t *testing.T) {
	server := pgserver.New(t)
	const secret = "hunter2canary"
	at := strings.Replace(server.Database(t), "headway@", "headway:"+secret+"@", 1) + "&search_path=mine"
	fails := false
	a := connectTo(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/docs/") && fails:
			http.Error(w, "no", http.StatusBadRequest)
		case strings.HasPrefix(r.URL.Path, "/docs/"):
			_, _ = w.Write([]byte(`{"parts": [{"id": 1}]}`))
		default:
			_, _ = w.Write([]byte(`{"items": [{"id": "a"}, {"id": "b"}]}`))
		}
	}, `detail: {stream: parts, path: "/docs/{key}", records: .parts, key: .id}`, "")
	t.Chdir(a.dir)
	for _, name := range []string{"HEADWAY_STATE", "HEADWAY_STORE", "HEADWAY_SERVER"} {
		t.Setenv(name, "")
	}
	run := func(code int, says string, args ...string) {
		t.Helper()
		got, out, errs := headway(t, args...)
		if got != code || !strings.Contains(out+errs, says) {
			t.Errorf("headway %s: exit %d, want %d and %q:\n%s%s", strings.Join(args, " "), got, code, says, out, errs)
		}
		if strings.Contains(out+errs, secret) {
			t.Errorf("headway %s says the password:\n%s%s", strings.Join(args, " "), out, errs)
		}
	}
	run(exitUsage, "there is no state in postgres://"+server.Address(), "status", "--store", at)
	run(exitOK, "nothing was collected into it yet", "check", "acme.yaml", "--store", at)
	fails = true
	run(exitDeferred, "", "collect", "acme.yaml", "--store", at, "--quiet")
	t.Setenv("HEADWAY_STORE", at)
	run(exitOK, "holds the state of 1 connection", "check", "acme.yaml")
	run(exitOK, "acme", "status")
	run(exitOK, "deferred", "runs")
	said, stop := consoleOf(t)
	stop()
	if !strings.HasPrefix(said, "headway console of postgres://"+server.Address()+"/") || strings.Contains(said, secret) {
		t.Errorf("the console says %q", said)
	}
	run(exitOK, "acme", "limits")
	run(exitOK, "parts", "gaps", "list")
	fails = false
	run(exitOK, "retry: 2 gaps", "gaps", "retry", "--all")
	run(exitOK, "drained", "collect", "acme.yaml")
	run(exitUsage, "there is no state in state.db", "status", "--state", "state.db")
	run(exitUsage, "a file is named by --state", "status", "--store", "state.db")
	run(exitUsage, "--store is empty", "status", "--store", "")
	run(exitUsage, "replay", "replay", "acme.yaml") // jsonl keeps nothing
	if left, _ := filepath.Glob(".headway*"); len(left) > 0 {
		t.Errorf("files of a state were left: %v", left)
	}
	text, err := os.ReadFile("acme.yaml")
	if err != nil {
		t.Fatal(err)
	}
	here := strings.Replace(string(text), "sink: {jsonl:", "sink: {sqlite: {}} #", 1)
	if err := os.WriteFile("here.yaml", []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	run(exitUsage, "give it a file", "collect", "here.yaml")
	server.Stop(t, syscall.SIGINT)
	run(exitRefused, "cannot be reached", "status")
	run(exitRefused, "cannot be reached", "collect", "acme.yaml")
	run(exitRefused, "cannot be reached", "check", "acme.yaml")
}
