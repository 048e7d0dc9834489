package rest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a connection file.
type Problem struct {
	// File is the file's name as it was given.
	File string `json:"file"`
	// Line and Column are where, from 1; columns count characters. Both are 0
	// when the problem is with the file as a whole.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Field is the path of the field, such as streams[0].list.path; empty for the file.
	Field string `json:"field,omitempty"`
	// Message says what is there, what is allowed and what to do. It holds no secret.
	Message string `json:"message"`
}

// Error is one line: file:line:column: field: message.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(oneLine(p.File))
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	if p.Field != "" {
		b.WriteString(": " + p.Field)
	}
	b.WriteString(": " + p.Message)
	return b.String()
}

// ConfigError is everything that is wrong with a connection file, in the order
// of the file.
type ConfigError struct {
	Problems []Problem
}

// Error has one line for each problem.
func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the problems one by one.
func (e *ConfigError) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// maxProblems bounds a report: a reader who sees this many starts at the top anyway.
const maxProblems = 50

// report collects problems. A field that has one is not reported again, nor is
// anything below it: the second message would follow from the first.
type report struct {
	file     string
	problems []Problem
	fields   map[string]bool
	more     int
}

func newReport(file string) *report {
	return &report{file: file, fields: map[string]bool{}}
}

func (r *report) add(at place, field, format string, args ...any) {
	if r.covered(field) {
		return
	}
	r.fields[field] = true
	if len(r.problems) == maxProblems {
		r.more++
		return
	}
	r.problems = append(r.problems, Problem{
		File: r.file, Line: at.line, Column: at.column, Field: shorten(oneLine(field), 200),
		Message: oneLine(fmt.Sprintf(format, args...)),
	})
}

// covered reports whether the field or one that holds it has a problem.
func (r *report) covered(field string) bool {
	if field == "" || r.fields[field] {
		return r.fields[field]
	}
	for i := len(field) - 1; i > 0; i-- {
		if (field[i] == '.' || field[i] == '[') && r.fields[field[:i]] {
			return true
		}
	}
	return false
}

func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if r.more > 0 {
		r.problems = append(r.problems, Problem{File: r.file, Message: fmt.Sprintf("%d more problems are not shown", r.more)})
	}
	return &ConfigError{Problems: r.problems}
}

// oneLine keeps a message that quotes the file on one line.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, s)
}

// quote shows a text of the file, shortened.
func quote(s string) string {
	return fmt.Sprintf("%q", shorten(s, 60))
}

func shorten(s string, limit int) string {
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}
