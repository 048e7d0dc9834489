package headway_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/headway-go/headway/internal/arch"
)

// TestArchitecture holds the whole source tree against the laws in internal/arch.
func TestArchitecture(t *testing.T) {
	tree, err := arch.Load(os.DirFS("."), "github.com/headway-go/headway")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(tree.Packages, func(p *arch.Package) bool { return p.Dir == "reason" }) {
		t.Fatal("the source tree holds no package reason: the checks below would pass on nothing")
	}
	for name, check := range map[string]func(*arch.Tree) []arch.Finding{
		"imports":          arch.Headway.CheckImports,
		"purity":           arch.Headway.CheckPure,
		"virtual time":     arch.Headway.CheckVirtual,
		"environment":      arch.Headway.CheckEnvironment,
		"package comments": arch.CheckComments,
		"public packages":  arch.CheckPublic,
		"public API":       arch.CheckLeaks,
		"length of files":  arch.CheckLength,
		"names":            arch.CheckNames,
	} {
		t.Run(name, func(t *testing.T) { report(t, check(tree)) })
	}
	t.Run("words", func(t *testing.T) {
		words, err := arch.Words()
		if err != nil {
			t.Fatal(err)
		}
		found, err := arch.CheckWords(os.DirFS("."), words)
		if err != nil {
			t.Fatal(err)
		}
		report(t, found)
	})
}

// TestDependenciesHaveReasons holds go.mod against docs/dependencies.md.
func TestDependenciesHaveReasons(t *testing.T) {
	goMod, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	page, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	found, err := arch.CheckDependencies(goMod, string(page))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

// report fails the test once for each finding.
func report(t *testing.T, found []arch.Finding) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}
