package headway_test

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/arch"
)

// A program that governs something needs one package of ours to settle attempts, to read
// refusals and to start warm.
func TestOnePackageIsEnough(t *testing.T) {
	for only, code := range map[string]string{
		"github.com/headway-go/headway": `package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-go/headway"
)

// main governs a queue consumer, which starts from what was learned before.
func main() {
	g, err := headway.New(headway.Config{
		Name:    "queue",
		Breaker: headway.Breaker{Window: 20},
		OnEvent: func(e headway.Event) { fmt.Println(e.Type) },
	})
	if err != nil {
		panic(err)
	}
	var stored headway.State
	var at time.Time
	if headway.Fresh(at, time.Now()) == nil {
		_ = g.Restore(stored)
	}
	for {
		permit, err := g.Acquire(context.Background())
		var refusal *headway.Refusal
		if errors.As(err, &refusal) {
			var why headway.Reason = refusal.Reason
			fmt.Println(why, refusal.RetryAt)
			break
		}
		permit.Settle(headway.Outcome{Class: class(work())})
	}
	stored = g.Learned()
}

func work() error { return nil }

func class(err error) headway.Class {
	if err != nil {
		return headway.Lost
	}
	return headway.OK
}
`,
		"github.com/headway-go/headway/transport": `package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headway-go/headway/transport"
)

// main wraps a client, with retries of its own.
func main() {
	var g *transport.Governor
	g, err := transport.NewGovernor(transport.Config{Name: "acme"})
	if err != nil {
		panic(err)
	}
	t, err := transport.New(g, transport.Options{
		Backoff: transport.Backoff{Attempts: 3},
		Budget:  transport.Budget{Capacity: 10},
		Classify: func(status int, _ http.Header, _ []byte) (c transport.Class, ok bool) {
			return c, false
		},
	})
	if err != nil {
		panic(err)
	}
	client := http.Client{Transport: t}
	res, err := client.Get("https://api.example.com/things")
	var refusal *transport.Refusal
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Reason, refusal.RetryAt)
		return
	}
	_ = res.Body.Close()
}
`,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), only, code, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		var ours []string
		for _, spec := range f.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil && strings.Contains(path, ".") {
				ours = append(ours, path)
			}
		}
		if !slices.Equal(ours, []string{only}) {
			t.Errorf("the program imports %v, want %s alone", ours, only)
		}
		vet(t, only, code)
	}
}

// TestArchitecture checks the whole source tree against the rules in internal/arch.
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

// TestDependenciesHaveReasons checks go.mod against docs/dependencies.md.
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

// report fails the test for each finding.
func report(t *testing.T, found []arch.Finding) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}
