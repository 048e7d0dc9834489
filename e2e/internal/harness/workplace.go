package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/collect"
)

// Workplace is a folder with a connection file, its state and its output, and
// what a process there has in its environment.
type Workplace struct {
	// Dir is the folder.
	Dir string
	// Env is all of the environment, as NAME=value.
	Env []string
	// How is what the system should do about a process; nil is nothing.
	How *syscall.SysProcAttr
}

// NewWorkplace is a folder of its own, with the text of a connection file that
// takes the provider from ${CHAT_URL} and the credential from ${CHAT_TOKEN}.
func NewWorkplace(t *testing.T, url, text string) Workplace {
	t.Helper()
	w := Workplace{Dir: t.TempDir(), Env: []string{"CHAT_URL=" + url, "CHAT_TOKEN=" + Token}}
	Write(t, filepath.Join(w.Dir, "conn.yaml"), text)
	return w
}

// Headway begins any of the program's commands.
func (w Workplace) Headway(t *testing.T, args ...string) *Process {
	t.Helper()
	return LaunchAs(t, w.How, w.Dir, w.Env, append([]string{program}, args...)...)
}

// Start begins a collection.
func (w Workplace) Start(t *testing.T, args ...string) *Process {
	t.Helper()
	return w.Headway(t, append([]string{"collect", "conn.yaml"}, args...)...)
}

// Collect runs a collection to its end.
func (w Workplace) Collect(t *testing.T, args ...string) Outcome {
	t.Helper()
	return w.Start(t, args...).Wait(t)
}

// Read runs a command that prints JSON, and takes it.
func (w Workplace) Read(t *testing.T, into any, args ...string) {
	t.Helper()
	o := w.Headway(t, append(args, "--json")...).Wait(t)
	if o.Code != 0 {
		t.Fatalf("headway %s: %s", strings.Join(args, " "), o)
	}
	if err := json.Unmarshal([]byte(o.Stdout), into); err != nil {
		t.Fatalf("headway %s --json: %v: %s", strings.Join(args, " "), err, o)
	}
}

// Status is the connection's; nil before there is any.
func (w Workplace) Status(t *testing.T) *collect.ConnectionStatus {
	t.Helper()
	var all []collect.ConnectionStatus
	o := w.Headway(t, "status", "--json").Wait(t)
	switch {
	case o.Code == ExitUsage && strings.Contains(o.Stderr, "there is no state in"):
		return nil // killed before the state was there
	case o.Code != 0:
		t.Fatalf("headway status: %s", o)
	}
	if err := json.Unmarshal([]byte(o.Stdout), &all); err != nil {
		t.Fatalf("headway status --json: %v: %s", err, o)
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return &all[0]
	}
	t.Fatalf("the state has %d connections, want one", len(all))
	return nil
}

// Gaps are the details that are owed.
func (w Workplace) Gaps(t *testing.T) []collect.Gap {
	t.Helper()
	var owed []collect.Gap
	w.Read(t, &owed, "gaps", "list", "--limit", "0")
	return owed
}

// State is the path of the store's file.
func (w Workplace) State() string { return filepath.Join(w.Dir, ".headway", "state.db") }

// File is the path of a stream's file.
func (w Workplace) File(stream string) string {
	return filepath.Join(w.Dir, "out", stream+".jsonl")
}

// Records are the lines of a stream's file in order: ids, and texts by id. Two
// lines with one id fail the test, and so does an unfinished last line.
func (w Workplace) Records(t *testing.T, stream string) (ids []string, texts map[string]string) {
	t.Helper()
	ids, texts, whole := w.records(t, stream)
	if !whole {
		t.Errorf("%s.jsonl ends in the middle of a line", stream)
	}
	return ids, texts
}

// WholeRecords are the Records that a killed process leaves, without the last
// line if it is unfinished.
func (w Workplace) WholeRecords(t *testing.T, stream string) (ids []string, texts map[string]string) {
	t.Helper()
	ids, texts, _ = w.records(t, stream)
	return ids, texts
}

func (w Workplace) records(t *testing.T, stream string) (ids []string, texts map[string]string, whole bool) {
	t.Helper()
	b, err := os.ReadFile(w.File(stream))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	texts = map[string]string{}
	end := bytes.LastIndexByte(b, '\n') + 1
	for line := range bytes.Lines(b[:end]) {
		id, text := Spell(t, line)
		if _, twice := texts[id]; twice {
			t.Errorf("%s.jsonl has %s twice", stream, id)
		}
		ids, texts[id] = append(ids, id), text
	}
	return ids, texts, end == len(b)
}

// Complete fails the test unless the files hold exactly what the provider has,
// each record once.
func (w Workplace) Complete(t *testing.T, want Truth) {
	t.Helper()
	_, conversations := w.Records(t, "conversations")
	Same(t, "conversations", conversations, want.Conversations)
	_, messages := w.Records(t, "messages")
	Same(t, "messages", messages, want.Messages)
}
