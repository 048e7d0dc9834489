package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a scenario file.
type Problem struct {
	// File, Line and Column say where; Line and Column count from 1.
	File         string
	Line, Column int
	// Field is the path of the field, such as "provider.limits[2].rate"; empty
	// when the file could not be read as YAML.
	Field string
	// Message says what is wrong, with the value and the bound.
	Message string
}

// Error is one line: "file:line:column: field: message".
func (p Problem) Error() string {
	s := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Field != "" {
		s += p.Field + ": "
	}
	return s + p.Message
}

// Problems is all that is wrong with a file, up to 100 of them, in the order of
// the file. It is
// the error of [Parse]; match it with errors.AsType[scenario.Problems].
type Problems []Problem

// Error is one line a problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives each problem.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// sorted puts the problems into the order of the file.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return ps
}
