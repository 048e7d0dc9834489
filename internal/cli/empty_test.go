package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-go/headway/store/sqlite"
)

// A state in which nothing is collected is said to be so, beside the list.
func TestStatusOfNothingSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := headway(t, "status", "--state", path); code != 0 || out != "" || !strings.Contains(errOut, "nothing is collected in "+path) {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := headway(t, "status", "--json", "--state", path); code != 0 || out != "[]\n" || errOut != "" {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}
