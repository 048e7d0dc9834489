package headway_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/daemon/config"
)

// guides returns the fenced blocks of one language in the guides, by their location.
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

// The SDKs are not dependencies of this module: programs that import one are compiled in
// e2e/sdk.
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

// The program of the guide to clients runs as it stands there, against fewer answers.
func TestTheClientOfTheGuideRuns(t *testing.T) {
	programs := fenced(t, filepath.Join("docs", "guides", "client.md"), "go")
	if len(programs) != 1 {
		t.Fatalf("%d programs", len(programs))
	}
	var asked atomic.Int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); r.URL.Path != "/conversations" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer provider.Close()
	code := strings.NewReplacer("http://127.0.0.1:8080", provider.URL, "range 200", "range 3").Replace(programs[0])
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "200 answers in") || asked.Load() != 3 {
		t.Errorf("%v, %d requests: %s", err, asked.Load(), out)
	}
}

// YAML blocks are connections, or else configurations of the daemon.
func TestGuideConfigurationsAreValid(t *testing.T) {
	env := func(name string) string {
		if slices.ContainsFunc([]string{"_AUTH", "_KEY", "_TOKEN"}, func(end string) bool { return strings.HasSuffix(name, end) }) {
			return "secret"
		}
		return ""
	}
	for at, src := range guides(t, "yaml") {
		if strings.HasPrefix(src, "connection:") {
			_, err := rest.Parse(at, []byte(src), func(string) (string, bool) { return "secret", true })
			if err != nil {
				t.Error(err)
			}
			continue
		}
		c, err := config.Read(at, []byte(src), env)
		if err != nil {
			t.Error(err)
		}
		for _, w := range c.Warnings {
			t.Errorf("%s: %s", at, w)
		}
	}
}

// The target file in the guide to loads is the example file, which is valid.
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

// Links between documents, and to files of this repository, resolve; those to a heading find it.
func TestLinksLeadSomewhere(t *testing.T) {
	texts := map[string]string{} // what is outside fenced blocks
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = fence.ReplaceAllString(string(text), "")
		}
	}
	if len(texts) < 30 {
		t.Fatalf("%d documents", len(texts))
	}
	seen := 0
	for name, text := range texts {
		for _, m := range link.FindAllStringSubmatch(inCode.ReplaceAllString(text, ""), -1) {
			to, id, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			seen++
			target := name
			if to != "" {
				target = filepath.Join(filepath.Dir(name), to)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if id != "" && !slices.Contains(headings(texts[target]), id) {
				t.Errorf("%s: %s has no heading #%s", name, target, id)
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d links were followed", seen)
	}
}

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inCode  = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// headings lists the ids that GitHub gives to the headings of a document.
func headings(text string) (ids []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		id := strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		for n, first := 1, id; slices.Contains(ids, id); n++ {
			id = fmt.Sprintf("%s-%d", first, n)
		}
		ids = append(ids, id)
	}
	return ids
}

// blocks returns the README's fenced blocks of one language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	found := fenced(t, "README.md", language)
	if len(found) == 0 {
		t.Fatalf("README.md has no %s block", language)
	}
	return found
}

// fenced returns a file's fenced blocks of one language.
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

// vet compiles a program that may import only public packages.
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

// importsPublic fails if a program imports packages that only this module may import.
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

// step matches one step of a path through the code: "1. [`file`](file): `Func` does
// this.".
var (
	step = regexp.MustCompile("^[0-9]+\\. \\[`([^`]+)`\\]\\(([^)]+)\\): (.+)$")
	code = regexp.MustCompile("`([^`]+)`")
)

// The files and functions named in CONTRIBUTING.md exist, and each path through the code
// is short and never returns to a package.
func TestWaysThroughTheCode(t *testing.T) {
	b, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(b), "\n## Four ways through the code\n")
	if !found {
		t.Fatal("CONTRIBUTING.md has no ways through the code")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	ways := strings.Split(text, "\n### ")[1:]
	if len(ways) != 4 {
		t.Fatalf("%d ways, want 4", len(ways))
	}
	for _, way := range ways {
		name, _, _ := strings.Cut(way, "\n")
		t.Run(name, func(t *testing.T) { follow(t, way) })
	}
}

func follow(t *testing.T, way string) {
	t.Helper()
	var files, packages []string
	for line := range strings.Lines(way) {
		m := step.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		file := m[1]
		if m[2] != file {
			t.Errorf("%s links to %s", file, m[2])
		}
		if slices.Contains(files, file) {
			t.Errorf("%s comes twice", file)
		}
		files = append(files, file)
		if dir := path.Dir(file); !slices.Contains(packages, dir) {
			packages = append(packages, dir)
		} else if packages[len(packages)-1] != dir {
			t.Errorf("%s leads back to package %s", file, dir)
		}
		declared, err := declarations(file)
		if err != nil {
			t.Error(err)
			continue
		}
		named := code.FindAllStringSubmatch(m[3], -1)
		if len(named) == 0 {
			t.Errorf("%s: no function is named", file)
		}
		for _, n := range named {
			if !slices.Contains(declared, n[1]) {
				t.Errorf("%s does not declare %s", file, n[1])
			}
		}
	}
	if len(files) < 5 || len(files) > 10 || len(packages) > 4 {
		t.Errorf("%d files in %d packages, want 5 to 10 in at most 4", len(files), len(packages))
	}
}

// declarations returns the functions, methods (as Type.Method) and types of a file.
func declarations(file string) (names []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, receiver(d)+d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names, nil
}

// receiver returns "Type." for a method and "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return x.Name + "."
		default:
			return ""
		}
	}
}
