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

// Expr is a compiled jq expression. It has no access to the environment,
// files or input beyond the value it is given. Safe for concurrent use.
type Expr struct {
	source string
	// fields is the path of a plain expression; code is nil then.
	fields []string
	code   *jq.Code
}

// String is the expression as written, with the environment in it.
func (e *Expr) String() string { return e.source }

// MarshalText gives the expression.
func (e *Expr) MarshalText() ([]byte, error) { return []byte(e.source), nil }

// field is the top-level field that the expression names; empty when it is
// anything else.
func (e *Expr) field() string {
	if e.code != nil || len(e.fields) != 1 {
		return ""
	}
	return e.fields[0]
}

// missing reports whether the expression is the path of a field that in does not
// have. Of any other expression nobody can say.
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

// compile parses an expression; the error names the position in it.
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

// datum is one JSON value, held as bytes, decoded, or both.
type datum struct {
	raw  []byte
	tree any
	read bool // tree is set
	// compacted says that raw has no white space between its tokens.
	compacted bool
	// body says that several expressions look into it, so that its fields are kept
	// in top.
	body bool
	top  []topField
}

// decoded is the value as an expression takes it, with numbers as their digits.
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

// bytes is the value as JSON.
func (d *datum) bytes() []byte {
	if d.raw == nil {
		d.raw, _ = jq.Marshal(d.tree) // fails for no value that an expression gives
	}
	return d.raw
}

func (d *datum) kind() kind {
	if d.raw == nil {
		return kind(jq.TypeOf(d.tree))
	}
	return kindOf(d.raw)
}

// compact is the value as one line of JSON.
func (d *datum) compact() json.RawMessage {
	if d.compacted {
		return slices.Clip(d.raw)
	}
	return rawjson.Compact(d.bytes())
}

// text is a string, or a number's digits; ok is false for any other type.
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

// all evaluates the expression. Errors hold no part of the value.
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

// one evaluates an expression that gives one value, null if it gives nothing.
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
