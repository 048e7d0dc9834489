// Package jq runs jq expressions that a file has: compiled once, with errors that
// name the place in the expression, and run on values that are somebody's, with errors
// that hold no part of them.
//
//	code, err := jq.Compile(".items[] | select(.ok)")
//	for v, err := range code.Run(ctx, value) { ... }
//
// An expression has no access to the environment, files or input beyond the value. It
// may run forever: the context ends it. Codes are safe for concurrent use.
package jq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/headway-go/headway/internal/configfile"
)

// Code is a compiled expression.
type Code struct{ code *gojq.Code }

// Compile parses an expression; the error names the character in it, from 1.
func Compile(source string) (*Code, error) {
	q, err := gojq.Parse(source)
	if err != nil {
		if e, ok := errors.AsType[*gojq.ParseError](err); ok {
			at := max(0, e.Offset-len(e.Token))
			at = len([]rune(source[:min(at, len(source))]))
			return nil, fmt.Errorf("%w at character %d of %s", err, at+1, configfile.Quote(source))
		}
		return nil, fmt.Errorf("%w in %s", err, configfile.Quote(source))
	}
	code, err := gojq.Compile(q)
	if err != nil {
		return nil, fmt.Errorf("%w in %s", err, configfile.Quote(source))
	}
	return &Code{code}, nil
}

// maxOutputs bounds what an expression gives for one value.
const maxOutputs = 1 << 20

// Run evaluates the expression on a value as encoding/json decodes it; numbers may be
// float64 or [json.Number]. An error is the last of what it gives.
func (c *Code) Run(ctx context.Context, in any) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		results := c.code.RunWithContext(ctx, in)
		for n := 0; ; n++ {
			v, ok := results.Next()
			if !ok {
				return
			}
			err, failed := v.(error)
			switch {
			case failed && ctx.Err() != nil:
				err = ctx.Err()
			case failed:
				err = withoutContent(err)
			case n == maxOutputs:
				err = fmt.Errorf("gave more than %d values", maxOutputs)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

// First is the first value that the expression gives; nil for none.
func (c *Code) First(ctx context.Context, in any) (any, error) {
	for v, err := range c.Run(ctx, in) {
		return v, err
	}
	return nil, nil
}

// Marshal is a value that an expression gave as JSON.
func Marshal(v any) ([]byte, error) { return gojq.Marshal(v) }

// TypeOf is the type of such a value in the words of JSON.
func TypeOf(v any) string { return gojq.TypeOf(v) }

// withoutContent keeps of jq's error what names operations and types. What
// follows a parenthesis or a quote may be a piece of the response.
func withoutContent(err error) error {
	if _, own := err.(gojq.ValueError); own { //nolint:errorlint // gojq gives its errors unwrapped
		return errors.New("the expression raised an error")
	}
	s := err.Error()
	if i := strings.IndexFunc(s, func(c rune) bool {
		return c != ' ' && c != ':' && c != ',' && c != '_' && (c < 'a' || c > 'z')
	}); i >= 0 {
		s = s[:i]
	}
	if s = strings.TrimRight(s, " :,"); s == "" {
		s = "the expression does not fit the response"
	}
	return errors.New(s)
}
