package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

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
