package target

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/itchyny/gojq"
)

// expr is a jq expression of the file.
type expr struct{ code *gojq.Code }

// maxExpr bounds how long an expression may work on one answer: one of the file
// can run forever.
const maxExpr = 10 * time.Second

func (s section) expr(key string) *expr {
	var text string
	if s.Text(key, &text); text == "" {
		return nil
	}
	q, err := gojq.Parse(text)
	if err != nil {
		s.Fail(key, "is not a jq expression: %v", err)
		return nil
	}
	code, err := gojq.Compile(q)
	if err != nil {
		s.Fail(key, "is not a jq expression: %v", err)
		return nil
	}
	return &expr{code}
}

var errExpr = errors.New("the expression does not fit the answer")

// first is the first thing that the expression gives; nil for nothing.
func (e *expr) first(ctx context.Context, in any) (any, error) {
	out, ok := e.code.RunWithContext(ctx, in).Next()
	if !ok {
		return nil, nil
	}
	if _, failed := out.(error); failed {
		return nil, errExpr // its own text quotes the answer
	}
	return out, nil
}

// text is what the expression gives as a text; empty where it gives none.
func (e *expr) text(ctx context.Context, in any) string {
	if e == nil {
		return ""
	}
	out, err := e.first(ctx, in)
	switch v := out.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		if err != nil {
			return ""
		}
		return fmt.Sprint(v)
	}
}

// decode reads JSON as gojq takes it.
func decode(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&v); err != nil {
		return nil, errors.New("it is not JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is more than one JSON value")
	}
	return v, nil
}
