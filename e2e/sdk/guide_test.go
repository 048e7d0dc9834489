package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The guide's program that imports an SDK compiles here, where the SDK is
// required; the root compiles the others.
func TestTheProgramOfTheGuideCompiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "llm.md"))
	if err != nil {
		t.Fatal(err)
	}
	compiled := 0
	for _, part := range strings.Split(string(text), "```go\n")[1:] {
		code, _, ok := strings.Cut(part, "```")
		if !ok {
			t.Fatal("a block of the guide does not end")
		}
		if !strings.Contains(code, "openai-go") {
			continue
		}
		compiled++
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, code)
		}
	}
	if compiled == 0 {
		t.Error("the guide has no program with an SDK")
	}
}
