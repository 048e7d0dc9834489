package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headway-go/headway/internal/jq"
	"github.com/headway-go/headway/internal/rawjson"
)

// Expr is a compiled jq expression. It has access to its input only, not to the environment
// or files. It is safe for concurrent use.
type Expr struct {
	source string
	// fields is the path of a plain expression; then code is nil.
	fields []string
	code   *jq.Code
}

// String returns the expression as written, after variables were replaced.
func (e *Expr) String() string { return e.source }

// MarshalText returns the expression.
func (e *Expr) MarshalText() ([]byte, error) { return []byte(e.source), nil }

// field returns the top-level field that the expression names; "" for any other
// expression.
func (e *Expr) field() string {
	if e.code != nil || len(e.fields) != 1 {
		return ""
	}
	return e.fields[0]
}

// missing reports whether the expression is the path of a field that in does not have. It
// is false for any other expression.
func (e *Expr) missing(in *datum) bool {
	if e == nil || in == nil || e.code != nil || len(e.fields) == 0 {
		return false
	}
	raw := in.bytes()
	for i, name := range e.fields {
		if kindOf(raw) != kindTable {
			return false
		}
		value := member
		if i == 0 {
			value = in.member
		}
		if raw = value(raw, name); raw == nil {
			return true
		}
	}
	return false
}

// compile compiles an expression. The error has the position in it.
func compile(source string) (*Expr, error) {
	source = strings.TrimSpace(source)
	if fields, ok := fieldPath(source); ok {
		return &Expr{source: source, fields: fields}, nil
	}
	code, err := jq.Compile(source)
	if err != nil {
		return nil, err
	}
	return &Expr{source: source, code: code}, nil
}

// datum is a JSON value, as bytes, decoded, or both.
type datum struct {
	raw  []byte
	tree any
	read bool // tree is set
	// compacted reports that raw has no white space between tokens.
	compacted bool
	// body reports that several expressions read the value, so its fields are cached in
	// top.
	body bool
	top  []topField
}

// decoded returns the value as gojq expects it, with numbers as json.Number.
func (d *datum) decoded() any {
	if !d.read {
		dec := json.NewDecoder(bytes.NewReader(d.raw))
		dec.UseNumber()
		if dec.Decode(&d.tree) != nil {
			d.tree = nil // not reached: the body was checked
		}
		d.read = true
	}
	return d.tree
}

// bytes returns the value as JSON.
func (d *datum) bytes() []byte {
	if d.raw == nil {
		d.raw, _ = jq.Marshal(d.tree) // cannot fail for the result of an expression
	}
	return d.raw
}

func (d *datum) kind() kind {
	if d.raw == nil {
		return kind(jq.TypeOf(d.tree))
	}
	return kindOf(d.raw)
}

// compact returns the value as one line of JSON.
func (d *datum) compact() json.RawMessage {
	if d.compacted {
		return slices.Clip(d.raw)
	}
	return rawjson.Compact(d.bytes())
}

// text returns a string, or the digits of a number. ok is false for other types.
func (d *datum) text() (s string, ok bool) {
	switch d.kind() {
	case kindText:
		raw := bytes.TrimSpace(d.bytes())
		if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
			return string(inner), true
		}
		return s, json.Unmarshal(raw, &s) == nil
	case kindNumber:
		return string(d.bytes()), true
	default:
		return "", false
	}
}

// all evaluates the expression. Errors contain no part of the value.
func (e *Expr) all(ctx context.Context, in *datum) ([]datum, error) {
	if e.code == nil {
		raw, err := walk(in, e.fields)
		if err != nil {
			return nil, err
		}
		return []datum{{raw: raw}}, nil
	}
	var out []datum
	for v, err := range e.code.Run(ctx, in.decoded()) {
		if err != nil {
			return nil, err
		}
		out = append(out, datum{tree: v, read: true})
	}
	return out, nil
}

// one evaluates an expression that yields one value, or null if it yields none.
func (e *Expr) one(ctx context.Context, in *datum) (*datum, error) {
	out, err := e.all(ctx, in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("failed: %w", err)
	case len(out) == 0:
		return &datum{raw: jsonNull}, nil
	case len(out) > 1:
		return nil, fmt.Errorf("gave %d values, want one", len(out))
	}
	return &out[0], nil
}
