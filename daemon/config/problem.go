package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/internal/yamlnode"
)

// Problem is one thing that is wrong, and where. Several are joined in the
// order of the file; errors.AsType[*Problem] gives the first.
type Problem struct {
	// File is the name that was given to [Read], or "environment".
	File string
	// Line and Column count from 1; both are 0 in the environment and where the
	// file as a whole is wrong.
	Line, Column int
	// Field is a path such as providers.openai.max_wait; Value what it is, never
	// that of a secret; Bound what it must be.
	Field, Value, Bound string
}

// Error is one line: file, line, column, field, value and bound.
func (p *Problem) Error() string {
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	}
	return fmt.Sprintf("%s: %s is %s, must be %s", where, p.Field, p.Value, p.Bound)
}

// maxProblems bounds what is said about a file.
const maxProblems = 50

// reader collects everything that is wrong with a file, so that one run shows
// it all.
type reader struct {
	file     string
	getenv   func(string) string
	problems []*Problem
	warnings []string
}

func (r *reader) fail(at ast.Node, field, value, bound string) {
	p := &Problem{File: r.file, Field: field, Value: value, Bound: bound}
	p.Line, p.Column = yamlnode.Position(at)
	r.problems = append(r.problems, p)
}

func (r *reader) warn(at ast.Node, format string, args ...any) {
	line, column := yamlnode.Position(at)
	r.warnings = append(r.warnings, fmt.Sprintf("%s:%d:%d: %s", r.file, line, column, fmt.Sprintf(format, args...)))
}

// take takes over what package quotafile found.
func (r *reader) take(problems []*quotafile.Problem) {
	for _, p := range problems {
		f := p.FieldError
		r.problems = append(r.problems, &Problem{p.File, p.Line, p.Column, f.Field, f.Value, f.Bound})
	}
}

// err is the problems as one error, in the order of the file; nil without any.
func (r *reader) err() error {
	slices.SortStableFunc(r.problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for _, p := range r.problems[:min(len(r.problems), maxProblems)] {
		errs = append(errs, p)
	}
	if more := len(r.problems) - len(errs); more > 0 {
		errs = append(errs, fmt.Errorf("%d more problems are not shown", more))
	}
	return errors.Join(errs...)
}

// shape is kind without the value, for what may hold a secret.
func shape(n ast.Node) string {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode, *ast.LiteralNode:
		return "written out"
	}
	return yamlnode.Kind(n)
}
