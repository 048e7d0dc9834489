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

// TestRecordsInADatabase: connections collect into PostgreSQL, with the state and apart from
// it, and records are replayed from there and into it, by what the state has on record.
func TestRecordsInADatabase(t *testing.T) {
	server := pgserver.New(t)
	const secret = "hunter2canary"
	urlOf := func() string { return strings.Replace(server.Database(t), "headway@", "headway:"+secret+"@", 1) }
	state, records := urlOf(), urlOf()
	a := connectTo(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"items": [{"id": "a", "n": 1}, {"id": "b", "n": 2.5}]}`))
	}, "", "")
	t.Chdir(a.dir)
	for name, value := range map[string]string{"HEADWAY_STATE": "", "HEADWAY_STORE": state, "HEADWAY_SERVER": "", "RECORDS": records} {
		t.Setenv(name, value)
	}
	text, err := os.ReadFile("acme.yaml")
	if err != nil {
		t.Fatal(err)
	}
	begin, _, _ := strings.Cut(string(text), "sink: {jsonl:")
	run := func(sink string, code int, says string, args ...string) {
		t.Helper()
		if err := os.WriteFile("c.yaml", []byte(begin+"sink: {"+sink+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got, out, errs := headway(t, append([]string{args[0], "c.yaml"}, args[1:]...)...)
		if got != code || !strings.Contains(out+errs, says) {
			t.Errorf("%s: headway %s: exit %d, want %d and %q:\n%s%s", sink, strings.Join(args, " "), got, code, says, out, errs)
		}
		if strings.Contains(out+errs, secret) {
			t.Errorf("%s: headway %s says the password:\n%s%s", sink, strings.Join(args, " "), out, errs)
		}
	}
	has := func(at, table, want string) {
		t.Helper()
		var got string
		if err := pgserver.Open(t, at).QueryRowContext(t.Context(), `SELECT string_agg(_key || '=' || n, ' ' ORDER BY _key) FROM `+table).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", table, got, err, want)
		}
	}
	const all, with, apart = "a=1 b=2.5", `postgres: {schema: raw}`, `postgres: {url: "${RECORDS}"}`
	run(with, exitOK, "postgres in the state's database, schema raw", "check")
	run(with, exitOK, "drained", "collect")
	has(state, "raw.docs", all)
	run(apart, exitOK, "`headway replay`, which fetches nothing", "check")
	run(apart, exitOK, "replayed in", "replay")
	has(records, "docs", all)
	run(apart, exitOK, "drained", "collect")
	run("sqlite: {file: new.db}", exitInternal, "name it with its user by --from", "replay")
	run("sqlite: {file: new.db}", exitOK, "2 records", "replay", "--from", records)
	run(`postgres: {url: "${RECORDS}", schema: Fresh}`, exitOK, "2 records", "replay", "--from", state+"&search_path=raw")
	has(records, `"Fresh".docs`, all)
	run(`postgres: {url: "${RECORDS}", schema: empty}`, exitUsage, "holds no records of the connection", "replay", "--from", state+"&search_path=nowhere")

	t.Setenv("HEADWAY_STORE", "")
	run(with, exitUsage, "sink.postgres has no url", "collect")
	run(apart, exitInternal, "collected with another state", "collect") // records of the state in the database
	server.Stop(t, syscall.SIGINT)
	run(apart, exitRefused, "cannot be reached", "check")
}
