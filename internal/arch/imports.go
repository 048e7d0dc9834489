package arch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// CheckImports reports every import that the map forbids, every import of a
// command, every import outside tests of what is only for them, and every
// package that no row of the map covers.
func (l Law) CheckImports(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		row := l.row(p.Dir)
		if row == nil {
			found = append(found, Finding{
				Where: p.Dir,
				What:  "no row of the package map covers this package",
				Why:   "the map in internal/arch/law.go stays whole; add the package there with what it may import and why not more",
			})
		}
		for _, f := range p.Files {
			for _, spec := range f.AST.Imports {
				target := importPath(spec)
				if why := l.forbidden(t, p.Dir, row, f.Test, target); why != "" {
					found = append(found, Finding{
						Where: t.at(spec.Pos()),
						What:  fmt.Sprintf("%s may not import %q", p.Dir, target),
						Why:   why,
					})
				}
			}
		}
	}
	return found
}

// row returns the row of the map that covers dir, or nil.
func (l Law) row(dir string) *Row {
	i := slices.IndexFunc(l.Map, func(r Row) bool { return matchesAny(r.Covers, dir) })
	if i < 0 {
		return nil
	}
	return &l.Map[i]
}

// forbidden returns why a package may not import target, or "" when it may.
func (l Law) forbidden(t *Tree, dir string, row *Row, test bool, target string) string {
	to, local := t.local(target)
	if local && matches(commands, to) && !matches(commands, dir) {
		return "nothing imports a command: what a command and another package share belongs in a package of its own"
	}
	if local && matches(cli, to) && dir != cli && !matches(commands, dir) {
		return "nothing imports the command line but a command"
	}
	if local && matches(harness, to) && dir != harness && (!test || !matches("e2e/...", dir)) {
		return "only the end-to-end tests run the binary as a process: what another package needs of it belongs elsewhere"
	}
	if why := onlyTests[to]; local && why != "" && !test && onlyTests[dir] == "" {
		return why
	}
	switch {
	case row == nil, test:
		return ""
	case local:
		if matchesAny(row.Imports, to) {
			return ""
		}
		return row.Why
	case standard(target), row.library(target):
		return ""
	default:
		return row.Why
	}
}

// onlyTests are the packages that nothing but tests may import, each with the reason.
var onlyTests = map[string]string{
	debian:    "only a test installs programs",
	fleetTest: "only a test holds a fleet against what fleets have to do",
	fullDisk:  "only a test takes space away from itself",
	goldens:   "only a test compares with golden files",
	leakTest:  "only a test looks for goroutines that were left",
	longTest:  "only a test has the flag -long",
	pgServer:  "only a test starts a database server",
	pipeNet:   "only a test needs a network without sockets",
	powerCut:  "only a test cuts the power",
	sinkTest:  "only a test starts its own binary again",
	valkeySrv: "only a test starts a Valkey",
}

// standard reports whether the path is of the standard library, whose first
// element never holds a dot. Cgo's "C" is not part of it.
func standard(target string) bool {
	first, _, _ := strings.Cut(target, "/")
	return target != "C" && !strings.Contains(first, ".")
}

// library reports whether the row lets its packages import this library.
func (r *Row) library(target string) bool {
	return slices.ContainsFunc(r.Libraries, func(lib string) bool {
		return lib == "*" || target == lib || strings.HasPrefix(target, lib+"/")
	})
}

// A requirement is one module that a go.mod requires.
type requirement struct {
	Path     string
	Indirect bool // Only other modules need it.
}

// CheckDependencies compares the direct requirements of a go.mod, given as the
// output of "go mod edit -json", with the table in a Markdown page. Each direct
// requirement has one row of three filled cells: the module in backquotes, why
// this one, and what was rejected. No row stands for anything else.
func CheckDependencies(goMod []byte, page string) ([]Finding, error) {
	var mod struct{ Require []requirement }
	if err := json.Unmarshal(goMod, &mod); err != nil {
		return nil, fmt.Errorf("arch: read the requirements of go.mod: %w", err)
	}
	const why = "each direct dependency is a decision, so it has one row with its reason in docs/dependencies.md"
	var found []Finding
	rows := rowsOf(page)
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		if n := len(rows[r.Path]); n != 1 {
			found = append(found, Finding{"go.mod", fmt.Sprintf("%s has %d rows", r.Path, n), why})
			continue
		}
		cells := rows[r.Path][0]
		if len(cells) != 3 || slices.Contains(cells, "") {
			found = append(found, Finding{"docs/dependencies.md", "the row of " + r.Path + " has an empty or missing cell", why})
		}
	}
	for module := range rows {
		if !slices.ContainsFunc(mod.Require, func(r requirement) bool { return r.Path == module && !r.Indirect }) {
			found = append(found, Finding{"docs/dependencies.md", module + " is not a direct requirement of go.mod", why})
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	return found, nil
}

// rowsOf returns the cells of every table row that starts with a name in
// backquotes, by that name.
func rowsOf(page string) map[string][][]string {
	rows := map[string][][]string{}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		module := strings.Trim(cells[0], "`")
		rows[module] = append(rows[module], cells)
	}
	return rows
}
