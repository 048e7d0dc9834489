package arch

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

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
	"sync":         "a pure package holds no lock; whoever shares its state owns the lock",
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
					"a pure package starts no goroutine; whoever needs one owns its life"})
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
