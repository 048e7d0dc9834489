package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"

	quotaconfig "github.com/headway-go/headway/quota/config"
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

// mostProblems bounds what is said about a file.
const mostProblems = 50

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
	p.Line, p.Column = position(at)
	r.problems = append(r.problems, p)
}

func (r *reader) warn(at ast.Node, format string, args ...any) {
	line, column := position(at)
	r.warnings = append(r.warnings, fmt.Sprintf("%s:%d:%d: %s", r.file, line, column, fmt.Sprintf(format, args...)))
}

// take takes over what package quota/config found.
func (r *reader) take(problems []*quotaconfig.Problem) {
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
	for _, p := range r.problems[:min(len(r.problems), mostProblems)] {
		errs = append(errs, p)
	}
	if more := len(r.problems) - len(errs); more > 0 {
		errs = append(errs, fmt.Errorf("%d more problems are not shown", more))
	}
	return errors.Join(errs...)
}

func position(n ast.Node) (line, column int) {
	switch v := n.(type) {
	case nil:
		return 0, 0
	case *ast.MappingNode: // the parser has a mapping begin at its first colon
		if len(v.Values) > 0 && !v.IsFlowStyle {
			return position(v.Values[0])
		}
	case *ast.MappingValueNode:
		return position(v.Key)
	}
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return 0, 0
	}
	return max(1, t.Position.Line), max(1, t.Position.Column)
}

// clip keeps text of a file on one short line.
func clip(s string) string {
	if len(s) > 60 || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return fmt.Sprintf("%.60q", s)
	}
	return s
}

// quoted is clip, always in quotes.
func quoted(s string) string {
	if c := clip(s); c != s {
		return c
	}
	return strconv.Quote(s)
}

// kind is a value in words.
func kind(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "empty"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return quoted(n.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return clip(n.GetToken().Value)
	case *ast.AliasNode, *ast.AnchorNode, *ast.MergeKeyNode, *ast.TagNode:
		return "an anchor, alias, merge or tag, which these files do not have"
	default:
		return fmt.Sprintf("a YAML %s", strings.ToLower(n.Type().String()))
	}
}

// shape is kind without the value, for what may hold a secret.
func shape(n ast.Node) string {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode, *ast.LiteralNode:
		return "written out"
	}
	return kind(n)
}
