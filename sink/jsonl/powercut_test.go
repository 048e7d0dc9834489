package jsonl

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/powercut"
)

// committed is what a store knows: a position, and what it stands for.
type committed struct {
	position json.RawMessage
	lines    map[string][]string
	// aside says that a file was set aside instead.
	aside bool
}

func sinkOn(d *powercut.Disk) *Sink {
	s := New(filepath.Join(d.Dir, "data", "out"))
	s.disk = d
	return s
}

// lastOf is what was committed last.
func lastOf(l *powercut.Life[committed]) committed {
	if n := len(l.Before); n > 0 {
		return l.Before[n-1]
	}
	return committed{}
}

// collectSlices collects a few slices from where the last life was.
func collectSlices(t *testing.T, l *powercut.Life[committed], s *Sink, c committed, streams ...[]string) {
	t.Helper()
	for i, slice := range streams {
		lines := map[string][]string{}
		for stream, old := range c.lines {
			lines[stream] = slices.Clip(old)
		}
		for _, stream := range slice {
			line := fmt.Sprintf(`{"life":%d,"slice":%d,"text":"%s"}`, len(l.Before), i, strings.Repeat("x", 40))
			put(t, s, stream, line, line)
			lines[stream] = append(lines[stream], line, line)
		}
		position, err := s.Sync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l.Step()
		c = committed{position: position, lines: lines}
		l.Ack(c)
	}
}

func TestAPowerCutLosesNothingCommitted(t *testing.T) {
	powercut.Test(t, powercut.Plan{Draws: 4, Stride: 2}, func(t *testing.T, l *powercut.Life[committed]) {
		s := sinkOn(l.Disk)
		if err := s.Open(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		collectSlices(t, l, s, committed{}, []string{"talks"}, []string{"talks", "messages"}, []string{"messages"})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}, goOn)
}

// goOn checks what was committed and collects more.
func goOn(t *testing.T, l *powercut.Life[committed]) {
	c := lastOf(l)
	s := sinkOn(l.Disk)
	if err := s.Open(t.Context(), c.position, nil); err != nil {
		t.Fatal(err)
	}
	for stream, lines := range c.lines {
		b, err := os.ReadFile(filepath.Join(s.dir, stream+".jsonl"))
		if want := strings.Join(lines, "\n") + "\n"; err != nil || string(b) != want {
			t.Fatalf("%s holds %q, %v; %q was committed", stream, b, err, want)
		}
	}
	// A new stream first: its marker is made safe, and with it that another's is
	// gone, whose file was cut.
	collectSlices(t, l, s, c, []string{"users"}, []string{"talks", "messages"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAPowerCutUndoesNoStartOver(t *testing.T) {
	const old = "{\"old\":1}\n"
	setAside := func(t *testing.T, l *powercut.Life[committed]) {
		paths, err := sinkOn(l.Disk).SetAside([]string{"talks"}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		l.Step()
		l.Ack(committed{aside: len(paths) > 0})
	}
	powercut.Test(t, powercut.Plan{Draws: 4}, func(t *testing.T, l *powercut.Life[committed]) {
		dir := filepath.Join(l.Dir, "data", "out")
		if err := disk.MkdirAll(l, dir, 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := l.OpenFile(filepath.Join(dir, "talks.jsonl"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write([]byte(old))
		if err := errors.Join(err, f.Sync(), f.Close(), l.SyncDir(dir)); err != nil {
			t.Fatal(err)
		}
		l.Ack(committed{}) // it is there, and nothing of it set aside
		setAside(t, l)
	}, func(t *testing.T, l *powercut.Life[committed]) {
		switch len(l.Before) {
		case 0:
			return
		case 1:
			setAside(t, l) // it was cut short
			return
		}
		goOn(t, l)
		if b, err := os.ReadFile(filepath.Join(l.Dir, "data", "out", "talks.jsonl.20260102T030405Z.bak")); l.Before[1].aside && string(b) != old {
			t.Fatalf("what was set aside holds %q, %v", b, err)
		}
	})
}
