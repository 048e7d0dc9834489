//go:build unix

package provider_test

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
	"testing"

	"github.com/headway-go/headway/collect"
)

// connection is a connection file. Zero fields take defaults that are fast.
type connection struct {
	ceiling, initial, step string
	page                   int // items of a list page
	concurrency            int
	records                string // expression for the items of a page
	provider               string // more of the provider section, indented by two
}

// pageSize is the default of connection.page.
const pageSize = 20

func (c connection) yaml() string {
	return fmt.Sprintf(`connection: chat-archive
provider:
  base_url: ${CHAT_URL}
  auth: {bearer: ${CHAT_TOKEN}}
  ceiling: %s
  pacing: {initial: %s, step: %s, law: aimd}
%sstreams:
  - name: conversations
    list: {path: /conversations, query: {limit: "%d"}}
    records: %s
    key: .id
    paginate: {cursor: .next_cursor, param: cursor}
    incremental: {cursor: .updated_at, param: updated_after}
    detail:
      stream: messages
      path: /conversations/{key}
      records: .messages
      key: .id
run: {max_wall_clock: 15m, concurrency: %d}
sink: {jsonl: {dir: ./out}}
`, cmp.Or(c.ceiling, "1ms"), cmp.Or(c.initial, "2ms"), cmp.Or(c.step, "1ms"), c.provider,
		cmp.Or(c.page, pageSize), cmp.Or(c.records, ".items"), cmp.Or(c.concurrency, 1))
}

// workplace is a folder with a connection file, its state and its output.
type workplace struct {
	dir string
	env []string
}

func newWorkplace(t *testing.T, url string, c connection) workplace {
	t.Helper()
	w := workplace{dir: t.TempDir(), env: []string{"CHAT_URL=" + url, "CHAT_TOKEN=" + token}}
	write(t, filepath.Join(w.dir, "conn.yaml"), c.yaml())
	return w
}

// start begins a collection.
func (w workplace) start(t *testing.T, args ...string) *process {
	t.Helper()
	return launch(t, w.dir, w.env, append([]string{"collect", "conn.yaml"}, args...)...)
}

// collect runs a collection to its end.
func (w workplace) collect(t *testing.T, args ...string) outcome {
	t.Helper()
	return w.start(t, args...).wait(t)
}

// read runs a command that prints JSON, and takes it.
func (w workplace) read(t *testing.T, into any, args ...string) {
	t.Helper()
	o := launch(t, w.dir, w.env, append(args, "--json")...).wait(t)
	if o.code != 0 {
		t.Fatalf("headway %s: %s", strings.Join(args, " "), o)
	}
	if err := json.Unmarshal([]byte(o.stdout), into); err != nil {
		t.Fatalf("headway %s --json: %v: %s", strings.Join(args, " "), err, o)
	}
}

// status is the connection's; nil before there is any.
func (w workplace) status(t *testing.T) *collect.ConnectionStatus {
	t.Helper()
	if _, err := os.Stat(filepath.Join(w.dir, ".headway", "state.db")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all []collect.ConnectionStatus
	w.read(t, &all, "status")
	switch len(all) {
	case 0:
		return nil
	case 1:
		return &all[0]
	}
	t.Fatalf("the state has %d connections, want one", len(all))
	return nil
}

// gaps are the details that are owed, by conversation.
func (w workplace) gaps(t *testing.T) map[string]collect.Gap {
	t.Helper()
	var all []collect.Gap
	w.read(t, &all, "gaps", "list", "--limit", "0")
	owed := map[string]collect.Gap{}
	for _, g := range all {
		owed[g.Key] = g
	}
	return owed
}

// file is the path of a stream's file.
func (w workplace) file(stream string) string {
	return filepath.Join(w.dir, "out", stream+".jsonl")
}

// records are the whole lines of a stream's file in order: ids, and texts by id.
// Two lines with one id fail the test, and so does an unfinished last line
// unless tails are allowed, as a killed process leaves them.
func (w workplace) records(t *testing.T, stream string, tail bool) (ids []string, texts map[string]string) {
	t.Helper()
	b, err := os.ReadFile(w.file(stream))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	texts = map[string]string{}
	whole := b[:bytes.LastIndexByte(b, '\n')+1]
	if len(whole) < len(b) && !tail {
		t.Errorf("%s.jsonl ends in the middle of a line", stream)
	}
	for line := range bytes.Lines(whole) {
		id, text := spell(t, line)
		if _, twice := texts[id]; twice {
			t.Errorf("%s.jsonl has %s twice", stream, id)
		}
		ids, texts[id] = append(ids, id), text
	}
	return ids, texts
}

// complete fails unless the files hold exactly what the provider has, each
// record once.
func (w workplace) complete(t *testing.T, want truth) {
	t.Helper()
	_, conversations := w.records(t, "conversations", false)
	same(t, "conversations", conversations, want.conversations)
	_, messages := w.records(t, "messages", false)
	same(t, "messages", messages, want.messages)
}

// line is one line of collect --json.
type line struct {
	Type     string
	Event    json.RawMessage
	Progress json.RawMessage
	Held     *struct{ Connection, Holder, Run string }
	Summary  *collect.Summary
}

// lines reads the output of collect --json: valid JSON in every line, of a known
// type, the last one and no other a summary.
func lines(t *testing.T, o outcome) []line {
	t.Helper()
	if o.stdout == "" || !strings.HasSuffix(o.stdout, "\n") {
		t.Fatalf("the output is empty or its last line unfinished: %s", o)
	}
	var all []line
	for text := range strings.Lines(o.stdout) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q is no JSON: %v", text, err)
		}
		held := map[string]bool{
			"event": l.Event != nil, "progress": l.Progress != nil, "held": l.Held != nil, "summary": l.Summary != nil,
		}
		if !held[l.Type] {
			t.Errorf("a line of type %q without it: %s", l.Type, text)
		}
		if len(all) > 0 && all[len(all)-1].Summary != nil {
			t.Errorf("a line after the summary: %s", text)
		}
		all = append(all, l)
	}
	return all
}

// summary is the last line of collect --json.
func summary(t *testing.T, o outcome) collect.Summary {
	t.Helper()
	all := lines(t, o)
	last := all[len(all)-1].Summary
	if last == nil {
		t.Fatalf("the last line is no summary: %s", o)
	}
	return *last
}
