// Package jq compiles and runs jq expressions from files. Compile errors name the
// position in the expression; errors at run time contain no part of the values.
//
//	code, err := jq.Compile(".items[] | select(.ok)")
//	for v, err := range code.Run(ctx, value) { ... }
//
// An expression has no access to the environment, files or input beyond the value. It may
// run forever unless the context ends it. A Code is safe for concurrent use.
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

// Compile compiles an expression; the error names the character at fault, from 1.
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

// maxOutputs bounds the values that an expression yields for one input.
const maxOutputs = 1 << 20

// Run evaluates the expression on a value as decoded by encoding/json; numbers may be
// float64 or [json.Number]. After an error it yields nothing more.
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

// First returns the first value that the expression yields; nil if there is none.
func (c *Code) First(ctx context.Context, in any) (any, error) {
	for v, err := range c.Run(ctx, in) {
		return v, err
	}
	return nil, nil
}

// Marshal encodes a value that an expression yielded as JSON.
func Marshal(v any) ([]byte, error) { return gojq.Marshal(v) }

// TypeOf returns the type of such a value, in JSON's terms.
func TypeOf(v any) string { return gojq.TypeOf(v) }

// withoutContent keeps the part of jq's error that names operations and types. What
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
