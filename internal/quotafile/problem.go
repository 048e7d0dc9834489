package quotafile

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/headway-go/headway/quota"
)

// Problem is one thing that is wrong, and where. Several are joined in the
// order of the file; errors.AsType[*Problem] gives the first. It wraps the
// *quota.FieldError.
type Problem struct {
	// File is the name that was given, or "environment".
	File string
	// Line and Column count from 1; both are 0 in the environment and where the
	// file as a whole is wrong.
	Line, Column int
	// FieldError says what is wrong: field, value and bound.
	FieldError quota.FieldError
}

// Error is one line: file, line, column, field, value and bound.
func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.FieldError.Error()
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.FieldError.Error())
}

// Unwrap gives the *quota.FieldError.
func (p *Problem) Unwrap() error { return &p.FieldError }

// maxProblems bounds what is said about a file: whoever sees so many starts at
// the top anyway.
const maxProblems = 50

// joined is the problems as one error, in the order of the file.
func joined(problems []*Problem) error {
	slices.SortStableFunc(problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for _, p := range problems[:min(len(problems), maxProblems)] {
		errs = append(errs, p)
	}
	if more := len(problems) - len(errs); more > 0 {
		errs = append(errs, fmt.Errorf("%d more problems are not shown", more))
	}
	return errors.Join(errs...)
}

// faults are the single errors of what quota says about a configuration; none
// of them gets lost, whatever their type.
func faults(err error) []*quota.FieldError {
	if err == nil {
		return nil
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*quota.FieldError
		for _, e := range several.Unwrap() {
			all = append(all, faults(e)...)
		}
		return all
	}
	if f, ok := errors.AsType[*quota.FieldError](err); ok {
		return []*quota.FieldError{f}
	}
	return []*quota.FieldError{{Field: "configuration", Value: oneLine(err.Error()), Bound: "one that a governor takes"}}
}

var camel = regexp.MustCompile(`\b[a-z]+([A-Z][a-z]+)+\b`)

// written is text of package quota with its JSON keys as a file has them:
// softTokenWindowMs is soft_token_window.
func written(text string) string {
	return camel.ReplaceAllStringFunc(text, func(key string) string {
		var b strings.Builder
		for _, c := range key {
			if unicode.IsUpper(c) {
				b.WriteByte('_')
			}
			b.WriteRune(unicode.ToLower(c))
		}
		return strings.TrimSuffix(b.String(), "_ms")
	})
}

// inJSON is the JSON key of a file's key: soft_token_window is softTokenWindow.
func inJSON(key string) string {
	var b strings.Builder
	for i, part := range strings.Split(key, "_") {
		if i > 0 && part != "" {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		b.WriteString(part)
	}
	return b.String()
}

// oneLine keeps text that quotes the file on one line.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, s)
}
