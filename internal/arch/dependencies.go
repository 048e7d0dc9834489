package arch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

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
