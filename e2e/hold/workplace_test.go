//go:build unix

package hold_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/collect"
)

// connection is a connection file. Zero fields take defaults that are fast.
type connection struct {
	auth     string // default: a bearer token
	ceiling  string
	step     string
	page     int
	provider string // more of the provider section, indented by two
	run      string // default: as long as it takes
	sink     string // default: files in the folder out
}

// pageSize is the default of connection.page.
const pageSize = 5

func (c connection) yaml() string {
	return fmt.Sprintf(`connection: chat-archive
provider:
  base_url: ${CHAT_URL}
  auth: %s
  ceiling: %s
  pacing: {initial: 1ms, step: %s, law: aimd, jitter: 0s}
%sstreams:
  - name: conversations
    list: {path: /conversations, query: {limit: "%d"}}
    records: .items
    key: .id
    paginate: {cursor: .next_cursor, param: cursor}
    incremental: {cursor: .updated_at, param: updated_after}
    detail:
      stream: messages
      path: /conversations/{key}
      records: .messages
      key: .id
run: %s
sink: %s
`, cmp.Or(c.auth, "{bearer: ${CHAT_TOKEN}}"), cmp.Or(c.ceiling, "1ms"), cmp.Or(c.step, "1ms"), c.provider,
		cmp.Or(c.page, pageSize), cmp.Or(c.run, "{max_wall_clock: 15m}"), cmp.Or(c.sink, "{jsonl: {dir: ./out}}"))
}

// workplace is a folder with a connection file, its state and its output.
type workplace struct {
	dir string
	env []string
	how *syscall.SysProcAttr
}

func newWorkplace(t *testing.T, url string, c connection) workplace {
	t.Helper()
	w := workplace{dir: t.TempDir(), env: []string{"CHAT_URL=" + url, "CHAT_TOKEN=" + token}}
	write(t, filepath.Join(w.dir, "conn.yaml"), c.yaml())
	return w
}

// at is the same folder with another provider, and more in the environment.
func (w workplace) at(url string, env ...string) workplace {
	w.env = append([]string{"CHAT_URL=" + url, "CHAT_TOKEN=" + token}, env...)
	return w
}

// headway runs the program to its end.
func (w workplace) headway(t *testing.T, args ...string) outcome {
	t.Helper()
	return launchAs(t, w.how, w.dir, w.env, append([]string{program}, args...)...).wait(t)
}

// start begins a collection.
func (w workplace) start(t *testing.T, args ...string) *process {
	t.Helper()
	return launchAs(t, w.how, w.dir, w.env, append([]string{program, "collect", "conn.yaml"}, args...)...)
}

// collect runs a collection to its end.
func (w workplace) collect(t *testing.T, args ...string) outcome {
	t.Helper()
	return w.start(t, args...).wait(t)
}

// read runs a command that prints JSON, and takes it.
func (w workplace) read(t *testing.T, into any, args ...string) {
	t.Helper()
	o := w.headway(t, append(args, "--json")...)
	if o.code != 0 {
		t.Fatalf("headway %s: %s", strings.Join(args, " "), o)
	}
	if err := json.Unmarshal([]byte(o.stdout), into); err != nil {
		t.Fatalf("headway %s --json: %v: %s", strings.Join(args, " "), err, o)
	}
}

// gaps are the details that are owed.
func (w workplace) gaps(t *testing.T) []collect.Gap {
	t.Helper()
	var owed []collect.Gap
	w.read(t, &owed, "gaps", "list", "--limit", "0")
	return owed
}

// healed runs until nothing is left, as an operator does once the provider is
// well: what is owed is made due at once. It must take two runs at most.
func (w workplace) healed(t *testing.T, want truth) {
	t.Helper()
	if _, err := os.Stat(w.state()); err == nil {
		if o := w.headway(t, "gaps", "retry", "--all"); o.code != 0 {
			t.Errorf("gaps retry: %s", o)
		}
	}
	if o := w.collect(t); o.code != exitDrained {
		t.Errorf("when all was well again: %s", o)
	}
	w.complete(t, want)
}

func (w workplace) state() string { return filepath.Join(w.dir, ".headway", "state.db") }

// file is the path of a stream's file.
func (w workplace) file(stream string) string {
	return filepath.Join(w.dir, "out", stream+".jsonl")
}

// records are the lines of a stream's file by id. Two lines with one id fail the
// test, and so does an unfinished last line.
func (w workplace) records(t *testing.T, stream string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(w.file(stream))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		t.Errorf("%s.jsonl ends in the middle of a line", stream)
	}
	texts := map[string]string{}
	for line := range bytes.Lines(b) {
		id, text := spell(t, line)
		if _, twice := texts[id]; twice {
			t.Errorf("%s.jsonl has %s twice", stream, id)
		}
		texts[id] = text
	}
	return texts
}

// complete fails unless the files hold exactly what the provider has, each
// record once.
func (w workplace) complete(t *testing.T, want truth) {
	t.Helper()
	same(t, "conversations", w.records(t, "conversations"), want.conversations)
	same(t, "messages", w.records(t, "messages"), want.messages)
}

// files are the contents of all files below the given folders, by path.
func (w workplace) files(t *testing.T, below ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range below {
		err := filepath.WalkDir(filepath.Join(w.dir, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			all[path] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// summary is the last line of collect --json.
func summary(t *testing.T, o outcome) collect.Summary {
	t.Helper()
	var last struct{ Summary *collect.Summary }
	for line := range strings.Lines(o.stdout) {
		last.Summary = nil
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("%q is no JSON: %v", line, err)
		}
	}
	if last.Summary == nil {
		t.Fatalf("the last line is no summary: %s", o)
	}
	return *last.Summary
}

// says fails unless the program said each of the texts.
func says(t *testing.T, o outcome, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.stdout+o.stderr, text) {
			t.Errorf("nothing says %q: %s", text, o)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
