package arch

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// MaxPublic is how many packages other modules may import.
const MaxPublic = 32

// stabilities are what a package comment may promise; CONTRIBUTING.md explains them.
var stabilities = []string{"stable", "settling", "experimental"}

// public reports whether other modules are meant to import the package in dir.
func public(dir string) bool {
	return !slices.Contains(strings.Split(dir, "/"), "internal") && !matches(commands, dir) && !matches("e2e/...", dir)
}

// CheckPublic reports when more than [MaxPublic] packages are public, and every
// public package whose comment does not say once how stable it is, on a line of
// its own. Folders with tests alone are not packages.
func CheckPublic(t *Tree) []Finding {
	var found []Finding
	count := 0
	for _, p := range t.Packages {
		files := p.production()
		if !public(p.Dir) || len(files) == 0 {
			continue
		}
		count++
		var said []string
		for _, f := range files {
			for line := range strings.Lines(f.AST.Doc.Text()) {
				if level, ok := strings.CutPrefix(strings.TrimSpace(line), "Stability:"); ok {
					said = append(said, strings.TrimSuffix(strings.TrimSpace(level), "."))
				}
			}
		}
		if len(said) != 1 || !slices.Contains(stabilities, said[0]) {
			found = append(found, Finding{p.Dir, fmt.Sprintf("stability is %q", said),
				"a package that others import has one line \"Stability: stable.\", \"settling.\" or \"experimental.\" in its comment; CONTRIBUTING.md explains them"})
		}
	}
	if count > MaxPublic {
		found = append(found, Finding{".", fmt.Sprintf("%d public packages, at most %d", count, MaxPublic),
			"a package is public when somebody outside is meant to import it; the rest stands under internal"})
	}
	return found
}

// a symbol is an exported type, by the folder of its package and its name.
type symbol struct{ dir, name string }

func (s symbol) String() string { return s.dir + "." + s.name }

// CheckLeaks reports every type under internal that the exported API of a public
// package names, and for which no public package has a name: nobody outside
// could declare a variable of it. What a public package gives a name to is part
// of its API, so the exported fields and methods of that count too.
func CheckLeaks(t *Tree) []Finding {
	exported := map[symbol][]mention{} // of internal types
	named := map[symbol]bool{}
	var open []mention
	for _, p := range t.Packages {
		for _, f := range p.production() {
			for _, m := range t.api(p, f) {
				switch {
				case !public(p.Dir):
					exported[m.owner] = append(exported[m.owner], m)
				case m.alias:
					named[m.of] = true
					open = append(open, m)
				default:
					open = append(open, m)
				}
			}
		}
	}
	var found []Finding
	seen := map[symbol]bool{}
	for len(open) > 0 {
		m := open[0]
		open = open[1:]
		if seen[m.of] {
			continue
		}
		seen[m.of] = true
		if !named[m.of] {
			found = append(found, Finding{m.where, fmt.Sprintf("%s names %s", m.owner, m.of),
				"what a public package takes or gives has a name in a public package: declare an alias"})
		}
		open = append(open, exported[m.of]...)
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Where, b.Where) })
	return found
}

// A mention is an internal type in the declaration of an exported name.
type mention struct {
	where     string
	owner, of symbol
	alias     bool // owner is another name of it
}

// api gives the internal types that the exported declarations of a file name. Of
// a package under internal these include its own.
func (t *Tree) api(p *Package, f *File) (all []mention) {
	own := p.types()
	if public(p.Dir) {
		own = nil
	}
	imports := map[string]string{}
	for _, spec := range f.AST.Imports {
		if to, local := t.local(importPath(spec)); local && !public(to) {
			name := path.Base(to)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			imports[name] = to
		}
	}
	visit := func(owner string, n ast.Node, alias bool) {
		types(n, func(x *ast.Ident, name *ast.Ident) {
			of := symbol{p.Dir, name.Name}
			if x != nil {
				of.dir = imports[x.Name]
			}
			if x != nil && of.dir != "" || x == nil && own[name.Name] {
				all = append(all, mention{t.at(name.Pos()), symbol{p.Dir, owner}, of, alias})
			}
		})
	}
	for _, d := range f.AST.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if owner := owner(d); d.Name.IsExported() && ast.IsExported(owner) {
				visit(owner, d.Type, false)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						visit(s.Name.Name, s.Type, s.Assign.IsValid())
					}
				case *ast.ValueSpec:
					if s.Type != nil && slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) {
						visit(s.Names[0].Name, s.Type, false)
					}
				}
			}
		}
	}
	return all
}

// types are the names of the exported types that the package declares.
func (p *Package) types() map[string]bool {
	names := map[string]bool{}
	for _, f := range p.production() {
		for _, d := range f.AST.Decls {
			if d, ok := d.(*ast.GenDecl); ok {
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
						names[s.Name.Name] = true
					}
				}
			}
		}
	}
	return names
}

// owner is the name of the type that a method belongs to, or of the function.
func owner(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	name := ""
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// types calls found for each name in a type, qualified by x or not. It leaves out
// unexported fields and methods, and the names of fields and parameters.
func types(n ast.Node, found func(x, name *ast.Ident)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			fields(n.Fields, found)
			return false
		case *ast.InterfaceType:
			fields(n.Methods, found)
			return false
		case *ast.Field:
			types(n.Type, found)
			return false
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				found(x, n.Sel)
			}
			return false
		case *ast.Ident:
			found(nil, n)
		}
		return true
	})
}

func fields(list *ast.FieldList, found func(x, name *ast.Ident)) {
	for _, f := range list.List {
		if len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
			types(f.Type, found)
		}
	}
}
