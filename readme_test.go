package headway_test

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-go/headway/connector/rest"
)

// blocks are the README's fenced blocks of one language, of which there are some.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	found := fenced(t, "README.md", language)
	if len(found) == 0 {
		t.Fatalf("README.md has no %s block", language)
	}
	return found
}

// fenced are a file's fenced blocks of one language.
func fenced(t *testing.T, name, language string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "```"+language+"\n")[1:] {
		code, _, ok := strings.Cut(part, "```")
		if !ok {
			t.Fatalf("a %s block of %s does not end", language, name)
		}
		found = append(found, code)
	}
	return found
}

// vet compiles a program, which imports only what others may.
func vet(t *testing.T, at, code string) {
	t.Helper()
	importsPublic(t, at, code)
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s\n%s", at, err, out, code)
	}
}

// importsPublic fails on a program that only this module can compile.
func importsPublic(t *testing.T, at, code string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), at, code, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil || slices.Contains(strings.Split(path, "/"), "internal") {
			t.Errorf("%s imports %s: a reader cannot", at, spec.Path.Value)
		}
	}
}

func TestReadmeProgramsCompile(t *testing.T) {
	for _, code := range blocks(t, "go") {
		vet(t, "README.md", code)
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
