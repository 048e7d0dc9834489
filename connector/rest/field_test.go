package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/itchyny/gojq"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/rawjson"

	"github.com/headway-go/headway/internal/jq"
)

// names are the fields that documents and paths are drawn from: few, so that
// they meet, one with an escape, one a keyword of jq.
var names = []string{"a", "b", "items", "and", "é", "id"}

// document draws JSON text as a provider might write it: white space, escapes,
// fields that come twice, numbers of any length.
func document(t *rapid.T, depth int) string {
	pad := rapid.SampledFrom([]string{"", "", "", " ", "\n\t"}).Draw(t, "space")
	kinds := []string{"null", "true", "number", "text", "object", "array"}
	if depth == 0 {
		kinds = kinds[:4]
	}
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "null":
		return pad + "null" + pad
	case "true":
		return pad + rapid.SampledFrom([]string{"true", "false"}).Draw(t, "bool") + pad
	case "number":
		return pad + rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,3})?`).Draw(t, "number") + pad
	case "text":
		return pad + quoted(t, rapid.String().Draw(t, "text")) + pad
	case "array":
		parts := make([]string, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range parts {
			parts[i] = document(t, depth-1)
		}
		return pad + "[" + pad + strings.Join(parts, ",") + pad + "]"
	default:
		parts := make([]string, rapid.IntRange(0, 4).Draw(t, "length"))
		for i := range parts {
			key := quoted(t, rapid.SampledFrom(names).Draw(t, "key"))
			parts[i] = pad + key + pad + ":" + document(t, depth-1)
		}
		return "{" + pad + strings.Join(parts, ",") + pad + "}" + pad
	}
}

func quoted(t *rapid.T, s string) string {
	if rapid.IntRange(0, 3).Draw(t, "escape") > 0 {
		b, _ := json.Marshal(s)
		return string(b)
	}
	var b strings.Builder
	for _, c := range s {
		if c > 0xffff {
			c = '?'
		}
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return `"` + b.String() + `"`
}

func TestPlainPathsAgreeWithJQ(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := document(t, 4)
		path := "."
		if parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "items", "and", "id"}), 0, 3).Draw(t, "path"); len(parts) > 0 {
			path = "." + strings.Join(parts, ".")
		}
		plain, err := compile(path)
		if err != nil || plain.code != nil {
			t.Fatalf("%s is not a plain path: %v", path, err)
		}
		code, err := jq.Compile(path)
		if err != nil {
			t.Fatal(err)
		}
		slow := &Expr{source: path, code: code}

		want, wantErr := slow.one(t.Context(), &datum{raw: []byte(doc)})
		got, gotErr := plain.one(t.Context(), &datum{raw: []byte(doc)})
		if (wantErr == nil) != (gotErr == nil) || wantErr != nil && wantErr.Error() != gotErr.Error() {
			t.Fatalf("%s on %s: error %v, jq has %v", path, doc, gotErr, wantErr)
		}
		if wantErr != nil {
			return
		}
		if gojq.Compare(got.decoded(), want.decoded()) != 0 {
			t.Fatalf("%s on %s gave %s, jq has %s", path, doc, got.raw, want.bytes())
		}
		if got.kind() != want.kind() {
			t.Fatalf("%s on %s gave a %s, jq has a %s", path, doc, got.kind(), want.kind())
		}
		if !bytes.Contains([]byte(doc), got.raw) && string(got.raw) != "null" {
			t.Fatalf("%s on %s gave %s, which are not the provider's bytes", path, doc, got.raw)
		}
	})
}

func TestElementsAreThoseOfTheArray(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := make([]string, rapid.IntRange(0, 5).Draw(t, "length"))
		for i := range parts {
			parts[i] = document(t, 2)
		}
		array := "[ " + strings.Join(parts, ",") + "]"
		var got []string
		elements([]byte(array), func(raw []byte, compact bool) {
			if compact && !bytes.Equal(raw, rawjson.Compact(raw)) {
				t.Errorf("%s is taken for compact", raw)
			}
			got = append(got, string(raw))
		})
		if len(got) != len(parts) {
			t.Fatalf("%s gave %d elements, want %d", array, len(got), len(parts))
		}
		for i := range parts {
			if got[i] != strings.TrimSpace(parts[i]) {
				t.Errorf("element %d of %s is %s, want %s", i, array, got[i], parts[i])
			}
		}
	})
}

func TestNumbersKeepTheirDigits(t *testing.T) {
	const doc = `{"id":9007199254740993,"huge":123456789012345678901234567890,"price":1.10,"neg":-9223372036854775808,"deep":{"id":9007199254740993}}`
	for expr, want := range map[string]string{
		".id":                  "9007199254740993",
		"(.id)":                "9007199254740993",
		".id | tostring":       `"9007199254740993"`,
		".id + 2":              "9007199254740995",
		".huge":                "123456789012345678901234567890",
		"[.huge] | .[0]":       "123456789012345678901234567890",
		".price":               "1.10",
		"{price} | .price":     "1.10",
		".neg":                 "-9223372036854775808",
		".neg | .":             "-9223372036854775808",
		".deep":                `{"id":9007199254740993}`,
		".deep | {id, more:1}": `{"id":9007199254740993,"more":1}`,
	} {
		e, err := compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.one(t.Context(), &datum{raw: []byte(doc)})
		if err != nil || string(got.compact()) != want {
			t.Errorf("%s gave %s, %v; want %s", expr, got.compact(), err, want)
		}
	}
}

func TestErrorsHoldNoContent(t *testing.T) {
	const doc = `{"title":"hunter2 secret","list":["hunter2"],"map":{"hunter2":"hunter2"}}`
	for _, expr := range []string{
		".title.x", ".title[]", ".list.x", ".map[0]", ".title | tonumber", ".title | fromjson", ".title + 1", ".list - .title",
		".map | error", ".title | error", "error(.title)", ".title | @base64d | fromjson", ".title | strptime(\"%Y\")",
		".title | test(.title + \"[\")", ".list | implode", "{(.list): 1}", ".title | ltrimstr(1) | keys", ".title as [$a] | $a",
		".title | halt_error", ".title | todate", ".title | splits(1)", ".list | join(.title) | keys", "break", ".title | getpath([\"a\"])",
		".title | ascii", ".list | flatten(-1)", ".title | sub(\"(?<x>.)\"; 1)", "limit(-1; .title)", ".map | setpath([1]; .title)",
	} {
		e, err := compile(expr)
		if err != nil {
			continue // not in this jq
		}
		if _, err := e.all(t.Context(), &datum{raw: []byte(doc)}); err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", expr, err)
		}
	}
}

func TestAnEndlessExpressionEndsWithTheContext(t *testing.T) {
	for _, expr := range []string{"def f: f; f", "[range(1e12)]"} {
		e, err := compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := e.all(ctx, &datum{raw: jsonNull}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", expr, err)
		}
	}
}

func TestExpressionsSeeNoEnvironment(t *testing.T) {
	t.Setenv("HEADWAY_CANARY", canary)
	for _, expr := range []string{"$ENV", "env", "[env.HEADWAY_CANARY]"} {
		e, err := compile(expr)
		if err != nil {
			continue
		}
		out, err := e.one(t.Context(), &datum{raw: jsonNull})
		if err == nil && strings.Contains(string(out.bytes()), canary) {
			t.Errorf("%s gave the environment", expr)
		}
	}
}
