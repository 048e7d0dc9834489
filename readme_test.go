package headway_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-go/headway/connector/rest"
)

// blocks are the README's fenced blocks of one language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, part := range strings.Split(string(text), "```"+language+"\n")[1:] {
		code, _, ok := strings.Cut(part, "```")
		if !ok {
			t.Fatalf("a %s block of README.md does not end", language)
		}
		found = append(found, code)
	}
	if len(found) == 0 {
		t.Fatalf("README.md has no %s block", language)
	}
	return found
}

func TestReadmeProgramsCompile(t *testing.T) {
	for _, code := range blocks(t, "go") {
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, code)
		}
	}
}

func TestReadmeConnectionsAreValid(t *testing.T) {
	env := func(name string) (string, bool) { return "http://" + strings.ToLower(name) + ".test", true }
	for _, src := range blocks(t, "yaml") {
		if _, err := rest.Parse("README.md", []byte(src), env); err != nil {
			t.Error(err)
		}
	}
}
