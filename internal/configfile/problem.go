package configfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Problem is one fault in a file.
type Problem struct {
	// File is the file's name as given.
	File string `json:"file"`
	// Line and Column say where, from 1; columns count characters. Both are 0 if the
	// problem concerns the file as a whole.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Field is the path of the field, such as streams[0].list.path; empty for the file.
	Field string `json:"field,omitempty"`
	// Message says what was found, what is allowed and what to do. It contains no secret.
	Message string `json:"message"`
}

// Error returns one line: file:line:column: field: message.
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

// Error holds all problems of a file, in the order of the file.
type Error struct {
	Problems []Problem
}

// Error returns one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems.
func (e *Error) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// maxProblems bounds a report: a reader with this many starts at the top anyway.
const maxProblems = 50

// File collects the problems of a file.
type File struct {
	name     string
	options  Options
	problems []Problem
	warnings []string
	fields   map[string]bool
	more     int
}

// NewFile returns a file without content, for problems in input that is not read by
// [Parse].
func NewFile(name string, o Options) *File {
	return &File{name: name, options: o, fields: map[string]bool{}}
}

// Fail reports a problem. Further problems with the same field, or with anything below
// it, are not reported, because they would follow from the first.
func (f *File) Fail(at Place, field, format string, args ...any) {
	if f.Covered(field) {
		return
	}
	f.fields[field] = true
	f.note(at, field, format, args...)
}

// note is Fail for messages that say nothing about the field's value.
func (f *File) note(at Place, field, format string, args ...any) {
	if len(f.problems) == maxProblems {
		f.more++
		return
	}
	f.problems = append(f.problems, Problem{
		File: f.name, Line: at.Line, Column: at.Column, Field: shorten(oneLine(field), 200),
		Message: oneLine(fmt.Sprintf(format, args...)),
	})
}

// Warn records a warning.
func (f *File) Warn(at Place, format string, args ...any) {
	f.warnings = append(f.warnings, Problem{File: f.name, Line: at.Line, Column: at.Column, Message: oneLine(fmt.Sprintf(format, args...))}.Error())
}

// Warnings returns the warnings, one line each.
func (f *File) Warnings() []string { return f.warnings }

// Failed returns the number of fields with a problem.
func (f *File) Failed() int { return len(f.problems) + f.more }

// Covered reports whether the field or one that holds it has a problem.
func (f *File) Covered(field string) bool {
	if field == "" || f.fields[field] {
		return f.fields[field]
	}
	for i := len(field) - 1; i > 0; i-- {
		if (field[i] == '.' || field[i] == '[') && f.fields[field[:i]] {
			return true
		}
	}
	return false
}

// Err returns an [*Error] with all problems; nil if there are none.
func (f *File) Err() error {
	if len(f.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(f.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	all := slices.Clone(f.problems)
	if f.more > 0 {
		all = append(all, Problem{File: f.name, Message: fmt.Sprintf("%d more problems are not shown", f.more)})
	}
	return &Error{Problems: all}
}

// oneLine keeps text that quotes the file on one line.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, s)
}

// Quote quotes text of a file, shortened.
func Quote(s string) string {
	return fmt.Sprintf("%q", shorten(s, 60))
}

func shorten(s string, limit int) string {
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}

// cause removes the path from an error of the file system: the message already has it.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// Suggest names the field that was probably meant, or all fields.
func Suggest(name string, known []string) string {
	best, near := "", 3
	for _, k := range known {
		if d := distance(strings.ToLower(name), k); d < near && d < len(k) {
			best, near = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %s?", best)
	}
	switch len(known) {
	case 0:
		return "nothing can be set here, remove it"
	case 1:
		return "want " + known[0]
	}
	return "want one of " + strings.Join(known, ", ")
}

// distance returns the number of insertions, deletions, substitutions and swaps of
// neighbours that turn a into b (optimal string alignment).
func distance(a, b string) int {
	const limit = 64
	if len(a) > limit || len(b) > limit {
		return limit
	}
	var rows [3][limit + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := &rows[(i+1)%3], &rows[(i+2)%3], &rows[i%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
