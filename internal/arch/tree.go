// Package arch answers one question: does the source tree still keep the laws
// that the architecture records in docs/adr state? It reads Go source, never
// compiles or runs it, and reports every place that breaks a law together with
// the reason for the law.
//
// The laws themselves are the tables in law.go. The checkers take a [Tree], so
// a test can hand them a small tree in memory that breaks a law on purpose.
//
// Do not use it outside tests, and do not use it for what a linter already
// checks.
//
// Concurrency: a Tree and a Law are not changed once made, so any number of
// goroutines may check them. Time: no check reads a clock.
package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Tree is the parsed source of one module, nested modules left out.
type Tree struct {
	Module   string     // The module path.
	Folders  []string   // Every folder below the root, slash-separated, in order.
	Packages []*Package // In order of Dir.
	fset     *token.FileSet
}

// A Package is the Go files of one folder, tests included.
type Package struct {
	Dir   string // Relative to the module root; "." is the root.
	Files []*File
}

// A File is one parsed Go file.
type File struct {
	Path      string // Relative to the module root.
	Test      bool   // The name ends in _test.go.
	Generated bool   // It carries the standard "Code generated" line.
	Lines     int
	AST       *ast.File
}

// unread are the folders that hold no source of ours.
var unread = []string{"testdata", "vendor", "node_modules"}

// builds are the folders below the root that the Makefile writes to.
var builds = []string{"bin", "out", "dist"}

// Load parses every Go file of the module rooted at fsys. It leaves out hidden
// folders, test data, build output, nested modules, and files that carry the
// build constraint "ignore". A file that does not parse is an error that names
// the file and line.
func Load(fsys fs.FS, module string) (*Tree, error) {
	t := &Tree{Module: module, fset: token.NewFileSet()}
	byDir := map[string]*Package{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name == "." {
				return nil
			}
			if foreign(fsys, name) {
				return fs.SkipDir
			}
			t.Folders = append(t.Folders, name)
			return nil
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, err := t.parse(fsys, name)
		if err != nil || f == nil {
			return err
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &Package{Dir: dir}
			t.Packages = append(t.Packages, byDir[dir])
		}
		byDir[dir].Files = append(byDir[dir].Files, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("arch: read the source tree: %w", err)
	}
	slices.SortFunc(t.Packages, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
	return t, nil
}

// foreign reports whether the folder holds nothing that this module builds.
func foreign(fsys fs.FS, dir string) bool {
	base := path.Base(dir)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") ||
		slices.Contains(unread, base) || slices.Contains(builds, dir) {
		return true
	}
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	return err == nil
}

// parse reads one file, or returns nil for one that no build includes.
func (t *Tree) parse(fsys fs.FS, name string) (*File, error) {
	src, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	tree, err := parser.ParseFile(t.fset, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ignored(tree) {
		return nil, nil
	}
	return &File{
		Path:      name,
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(tree),
		Lines:     bytes.Count(src, []byte("\n")),
		AST:       tree,
	}, nil
}

// ignored reports whether only the build tag "ignore" brings the file in, the
// convention for a program that go generate runs.
func ignored(f *ast.File) bool {
	for _, group := range f.Comments {
		if group.Pos() > f.Package {
			return false
		}
		for _, c := range group.List {
			if expr, err := constraint.Parse(c.Text); err == nil {
				return !expr.Eval(func(tag string) bool { return tag != "ignore" })
			}
		}
	}
	return false
}

// production returns the files of the package that are not tests.
func (p *Package) production() []*File {
	return slices.DeleteFunc(slices.Clone(p.Files), func(f *File) bool { return f.Test })
}

// at gives a position as file:line.
func (t *Tree) at(pos token.Pos) string {
	p := t.fset.Position(pos)
	return p.Filename + ":" + strconv.Itoa(p.Line)
}

// local returns the folder of an import of this module, and whether it is one.
func (t *Tree) local(importPath string) (string, bool) {
	if importPath == t.Module {
		return ".", true
	}
	return strings.CutPrefix(importPath, t.Module+"/")
}

// importPath returns the path of an import without its quotes.
func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return p
}

// matches reports whether dir is what pattern names. "x" is the folder x, "x/..."
// is x and all below it, "." is the root folder, "..." is everything.
func matches(pattern, dir string) bool {
	if pattern == "..." {
		return true
	}
	if base, below := strings.CutSuffix(pattern, "/..."); below {
		return dir == base || strings.HasPrefix(dir, base+"/")
	}
	return pattern == dir
}

// matchesAny reports whether one of the patterns matches dir.
func matchesAny(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, dir) })
}

// MaxLines is how long a Go file that is neither a test nor generated may be.
const MaxLines = 500

// empty are names that say nothing about the domain.
var empty = []string{"util", "utils", "common", "types", "manager", "managers", "helper", "helpers"}

const whyNoun = "a name is a noun of the domain; a folder or file that could hold anything soon does"

// CheckComments reports every package whose comment does not stand in exactly
// one file. Tests are exempt.
func CheckComments(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		files := p.production()
		var with []string
		for _, f := range files {
			if f.AST.Doc != nil {
				with = append(with, path.Base(f.Path))
			}
		}
		if len(files) == 0 || len(with) == 1 {
			continue
		}
		what := "no package comment"
		if len(with) > 1 {
			what = "package comments in " + strings.Join(with, ", ")
		}
		found = append(found, Finding{p.Dir, what,
			"a reader finds in one place what the package answers, when not to use it, its concurrency and its time"})
	}
	return found
}

// CheckLength reports every Go file longer than [MaxLines]. Tests and generated
// files are exempt.
func CheckLength(t *Tree) []Finding {
	return t.eachFile([]string{"..."}, func(_ *Package, f *File) []Finding {
		if f.Generated || f.Lines <= MaxLines {
			return nil
		}
		return []Finding{{f.Path, fmt.Sprintf("%d lines, at most %d", f.Lines, MaxLines),
			"a file holds one idea that fits into one reading"}}
	})
}

// CheckNames reports every folder, package and Go file whose name says nothing
// about the domain. Of a file name, each part between underscores counts.
func CheckNames(t *Tree) []Finding {
	var found []Finding
	report := func(where, kind, name string) {
		if slices.Contains(empty, name) {
			found = append(found, Finding{where, fmt.Sprintf("%s named %q", kind, name), whyNoun})
		}
	}
	for _, folder := range t.Folders {
		report(folder, "folder", path.Base(folder))
	}
	for _, p := range t.Packages {
		for _, f := range p.Files {
			name := strings.TrimSuffix(f.AST.Name.Name, "_test")
			if name != path.Base(p.Dir) {
				report(f.Path, "package", name)
			}
			for part := range strings.SplitSeq(strings.TrimSuffix(path.Base(f.Path), ".go"), "_") {
				report(f.Path, "file", part)
			}
		}
	}
	return found
}

// A Finding is one place that breaks a law.
type Finding struct {
	Where string // File and line, or folder, relative to the module root.
	What  string // What stands there.
	Why   string // The reason for the law that it breaks.
}

// String gives the finding on one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %s", f.Where, f.What, f.Why)
}
