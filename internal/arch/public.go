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

// impure are the imports that a pure package may not have, with everything
// below them.
var impure = map[string]string{
	"os":           "a pure package does no I/O",
	"io":           "a pure package does no I/O",
	"bufio":        "a pure package does no I/O",
	"net":          "a pure package does no I/O",
	"database/sql": "a pure package does no I/O",
	"crypto/rand":  "a pure package draws no random numbers of its own; its caller passes a source, so that a seed repeats a run",
	"log":          "a pure package does not log; its decision carries the reason and the caller reports it",
	"sync":         "a pure package holds no lock; the caller that shares its state owns the lock",
	"runtime":      "a pure package depends on its arguments alone",
	"syscall":      "a pure package depends on its arguments alone",
	"unsafe":       "a pure package depends on its arguments alone",
}

// Reasons against a use, shared by the table of calls.
const (
	noClock = "the caller reads the clock once and passes the instant, so that tests, simulator and production run one code path"
	noTimer = "a pure package starts no timer and never waits; it returns when to come back and the caller waits"
	noPrint = "a pure package does no I/O"
)

// clocks are the names that read a clock or start a timer.
var clocks = map[string]map[string]string{
	"time": {
		"Now": noClock, "Since": noClock, "Until": noClock,
		"Sleep": noTimer, "After": noTimer, "AfterFunc": noTimer, "Tick": noTimer,
		"NewTimer": noTimer, "NewTicker": noTimer,
	},
	"context": {
		"WithTimeout": noTimer, "WithTimeoutCause": noTimer,
		"WithDeadline": noTimer, "WithDeadlineCause": noTimer, "AfterFunc": noTimer,
	},
}

// prints are names that do I/O although their package mostly does not.
var prints = map[string]map[string]string{
	"fmt": {
		"Print": noPrint, "Printf": noPrint, "Println": noPrint,
		"Scan": noPrint, "Scanf": noPrint, "Scanln": noPrint,
	},
	"time": {"LoadLocation": "it reads the time zone database from disk; the caller passes a *time.Location"},
}

// environment are the names that read the environment of the process.
var environment = map[string][]string{
	"os":      {"Getenv", "LookupEnv", "Environ", "ExpandEnv"},
	"syscall": {"Getenv", "Environ"},
}

// CheckPure reports every place where a pure package could do more than
// compute: an import that does I/O, logs, locks or hides names, a clock or
// timer, a print, or a go statement. Tests are exempt.
func (l Law) CheckPure(t *Tree) []Finding {
	return t.eachFile(l.Pure, func(p *Package, f *File) []Finding {
		found := l.impureImports(t, p, f)
		found = append(found, t.uses(f, clocks)...)
		found = append(found, t.uses(f, prints)...)
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if stmt, ok := n.(*ast.GoStmt); ok {
				found = append(found, Finding{t.at(stmt.Pos()), "go statement",
					"a pure package starts no goroutine; the caller that needs one owns its life"})
			}
			return true
		})
		return found
	})
}

// CheckVirtual reports every clock or timer in the packages whose only time is
// virtual. Tests are exempt.
func (l Law) CheckVirtual(t *Tree) []Finding {
	return t.eachFile(l.Virtual, func(_ *Package, f *File) []Finding { return t.uses(f, clocks) })
}

// CheckEnvironment reports every place outside the edge that reads the
// environment. Tests are exempt.
func (l Law) CheckEnvironment(t *Tree) []Finding {
	return t.eachFile([]string{"..."}, func(p *Package, f *File) []Finding {
		if matchesAny(l.Edge, p.Dir) {
			return nil
		}
		var found []Finding
		t.selectors(f, func(imported string, sel *ast.SelectorExpr) {
			if slices.Contains(environment[imported], sel.Sel.Name) {
				found = append(found, Finding{t.at(sel.Pos()), imported + "." + sel.Sel.Name,
					"environment variables are read at the edge, in cmd and daemon; a library is given its configuration"})
			}
		})
		return found
	})
}

// impureImports reports the imports of a file that purity forbids, and every
// name of an excepted import that its exception does not list.
func (l Law) impureImports(t *Tree, p *Package, f *File) []Finding {
	var found []Finding
	excepted := map[string]*Exception{}
	for _, spec := range f.AST.Imports {
		target := importPath(spec)
		if spec.Name != nil && spec.Name.Name == "." {
			found = append(found, Finding{t.at(spec.Pos()), fmt.Sprintf("dot import of %q", target),
				"it hides which package a name belongs to, so that nothing can check purity"})
		}
		why := whyImpure(target)
		if why == "" {
			continue
		}
		if e := l.exception(p.Dir, target); e != nil {
			excepted[target] = e
			continue
		}
		found = append(found, Finding{t.at(spec.Pos()), fmt.Sprintf("import of %q", target), why})
	}
	t.selectors(f, func(imported string, sel *ast.SelectorExpr) {
		if e := excepted[imported]; e != nil && !e.covers(sel.Sel.Name) {
			found = append(found, Finding{t.at(sel.Pos()), imported + "." + sel.Sel.Name,
				"the exception for " + p.Dir + " covers only " + strings.Join(e.Names, ", ") + ", because " + e.Why})
		}
	})
	return found
}

// whyImpure returns why a pure package may not import target, or "".
func whyImpure(target string) string {
	for prefix, why := range impure {
		if target == prefix || strings.HasPrefix(target, prefix+"/") {
			return why
		}
	}
	return ""
}

// exception returns the exception that lets dir import target, or nil.
func (l Law) exception(dir, target string) *Exception {
	i := slices.IndexFunc(l.Allowed, func(e Exception) bool {
		return e.Import == target && matches(e.Packages, dir)
	})
	if i < 0 {
		return nil
	}
	return &l.Allowed[i]
}

// covers reports whether the exception lists the name.
func (e *Exception) covers(name string) bool {
	return slices.ContainsFunc(e.Names, func(n string) bool {
		prefix, open := strings.CutSuffix(n, "*")
		return n == name || open && strings.HasPrefix(name, prefix)
	})
}

// eachFile collects what check finds in the files that are not tests of the
// packages that the patterns name.
func (t *Tree) eachFile(patterns []string, check func(*Package, *File) []Finding) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		if !matchesAny(patterns, p.Dir) {
			continue
		}
		for _, f := range p.production() {
			found = append(found, check(p, f)...)
		}
	}
	return found
}

// uses reports every use of a name in the table.
func (t *Tree) uses(f *File, table map[string]map[string]string) []Finding {
	var found []Finding
	t.selectors(f, func(imported string, sel *ast.SelectorExpr) {
		if why := table[imported][sel.Sel.Name]; why != "" {
			found = append(found, Finding{t.at(sel.Pos()), imported + "." + sel.Sel.Name, why})
		}
	})
	return found
}

// selectors calls visit for every name taken from an imported package, whatever
// the file calls that import.
func (t *Tree) selectors(f *File, visit func(imported string, sel *ast.SelectorExpr)) {
	imports := map[string]string{}
	for _, spec := range f.AST.Imports {
		imports[localName(spec)] = importPath(spec)
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		// The parser binds what the file itself declares; a name that it
		// left unbound can be an import, and a shadowed one cannot.
		if id, ok := sel.X.(*ast.Ident); ok && id.Obj == nil && imports[id.Name] != "" {
			visit(imports[id.Name], sel)
		}
		return true
	})
}

// localName returns what the file calls an import.
func localName(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	target := importPath(spec)
	base := path.Base(target)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(target))
	}
	return base
}
