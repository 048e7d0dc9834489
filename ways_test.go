package headway_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// step is a line of a way through the code: "1. [`file`](file): `Func` does this."
var (
	step = regexp.MustCompile("^[0-9]+\\. \\[`([^`]+)`\\]\\(([^)]+)\\): (.+)$")
	code = regexp.MustCompile("`([^`]+)`")
)

// TestWaysThroughTheCode: the files and functions that CONTRIBUTING.md names are
// there, and each way is short and leads back nowhere.
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

// declarations are the functions, methods (as Type.Method) and types of a file.
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

// receiver is "Type." of a method; "" of a function.
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
