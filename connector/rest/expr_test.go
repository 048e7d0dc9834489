package rest

import (
	"context"
	"errors"
	"strings"
	"testing"
)

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
