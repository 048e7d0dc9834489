package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/sim/serve"
)

func TestTheLogIsForItsOwnerAndIsAppendedTo(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log.jsonl")
	for i := range 2 {
		s := provide(t, "--log", log)
		s.get(t, "/conversations?limit=1", "")
		if code, last := s.end(); code != exitOK {
			t.Fatalf("exit %d: %s", code, last)
		}
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(b, []byte("\n")); got != i+1 {
			t.Errorf("%d lines after %d requests", got, i+1)
		}
	}
	info, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
}

func TestTheLogCanGoToStandardOutput(t *testing.T) {
	s := provide(t, "demo", "--log", "-")
	s.get(t, "/conversations/c000000", "")
	s.end()
	var paths []string
	for e, err := range serve.ReadLog(strings.NewReader(s.out.String())) {
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, e.Path)
	}
	if !slices.Equal(paths, []string{"/conversations/c000000"}) {
		t.Errorf("standard output has entries for %q, want the one request", paths)
	}
}

func TestALogThatCannotBeWrittenIsAnError(t *testing.T) {
	s := provide(t, "--log", "-")
	s.out.fail(errors.New("no space"))
	s.get(t, "/conversations", "")
	if code, last := s.end(); code != exitInternal || !strings.Contains(last, "log: no space") {
		t.Errorf("exit %d, %q, want %d and why", code, last, exitInternal)
	}
}
