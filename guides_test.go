package headway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/daemon/config"
)

// guides are the guides' fenced blocks of one language, by where they stand.
func guides(t *testing.T, language string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("docs", "guides", "*.md"))
	if err != nil || len(names) < 3 {
		t.Fatalf("%d guides: %v", len(names), err)
	}
	found := map[string]string{}
	for _, name := range names {
		for n, code := range fenced(t, name, language) {
			found[fmt.Sprintf("%s block %d", name, n+1)] = code
		}
	}
	if len(found) == 0 {
		t.Fatalf("no %s block in the guides", language)
	}
	return found
}

// An SDK is not a requirement of this module: the programs that import one are
// compiled in e2e/sdk.
func TestGuideProgramsCompile(t *testing.T) {
	compiled := 0
	for at, code := range guides(t, "go") {
		if strings.Contains(code, "openai-go") {
			importsPublic(t, at, code)
			continue
		}
		compiled++
		vet(t, at, code)
	}
	if compiled == 0 {
		t.Error("no program was compiled")
	}
}

// Blocks of YAML are configurations of the daemon.
func TestGuideConfigurationsAreValid(t *testing.T) {
	env := func(name string) string {
		if slices.ContainsFunc([]string{"_AUTH", "_KEY", "_TOKEN"}, func(end string) bool { return strings.HasSuffix(name, end) }) {
			return "secret"
		}
		return ""
	}
	for at, src := range guides(t, "yaml") {
		c, err := config.Read(at, []byte(src), env)
		if err != nil {
			t.Error(err)
		}
		for _, w := range c.Warnings {
			t.Errorf("%s: %s", at, w)
		}
	}
}

// What the guide of loads shows of its target file is that file, which is valid.
func TestGuideTargetIsTheExample(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("docs", "guides", "bulk.md"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join("examples", "bulk", "dataverse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), "$ cat dataverse.yaml\n"+string(file)) {
		t.Error("bulk.md shows another file than examples/bulk/dataverse.yaml")
	}
	env := func(string) (string, bool) { return "secret", true }
	if _, err := target.Parse("dataverse.yaml", file, env); err != nil {
		t.Error(err)
	}
}

// Links to files of this repository lead somewhere.
func TestGuideLinksLeadSomewhere(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("docs", "guides", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var prose strings.Builder
		for i, part := range strings.Split(string(text), "```") {
			if i%2 == 0 { // outside of blocks
				prose.WriteString(part)
			}
		}
		for _, part := range strings.Split(prose.String(), "](")[1:] {
			to, _, _ := strings.Cut(part, ")")
			if strings.Contains(to, "://") {
				continue
			}
			seen++
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), to)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if seen == 0 {
		t.Error("no link was followed")
	}
}
