package jq_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/jq"
)

const canary = "hunter2"

func TestAMistakeIsNamedByItsCharacter(t *testing.T) {
	for source, want := range map[string]string{
		".items[":         `unexpected EOF at character 8 of ".items["`,
		".a | | .b":       `unexpected token "|" at character 6 of ".a | | .b"`,
		".é.x)":           `unexpected token "é" at character 2 of ".é.x)"`,
		"nosuch(.id)":     `function not defined: nosuch/1 in "nosuch(.id)"`,
		"input":           `input(s)/0 is not allowed in "input"`,
		"$ENV.HOME, $__x": `variable not defined: $__x in "$ENV.HOME, $__x"`,
	} {
		if _, err := jq.Compile(source); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}

func TestErrorsHoldNoContent(t *testing.T) {
	in := map[string]any{"secret": canary, "n": json.Number("12345678901234567890")}
	for source, want := range map[string]string{
		".secret.x":          "expected an object but got: string",
		".secret | tonumber": "tonumber cannot be applied to",
		"error(.secret)":     "the expression raised an error",
		".secret[]":          "cannot iterate over: string",
	} {
		code, err := jq.Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		v, err := code.First(t.Context(), in)
		if v != nil || err == nil || err.Error() != want {
			t.Errorf("%s gave %v, %v; want %s", source, v != nil, err, want)
		}
	}
}

func TestAnExpressionGivesSeveralValuesAndEndsWithItsContext(t *testing.T) {
	code, err := jq.Compile(".[] | . + 1")
	if err != nil {
		t.Fatal(err)
	}
	var got []any
	for v, err := range code.Run(t.Context(), []any{1, 2.5}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	if b, err := jq.Marshal(got); string(b) != "[2,3.5]" || err != nil {
		t.Errorf("got %s, %v", b, err)
	}
	if v, err := code.First(t.Context(), []any{}); v != nil || err != nil {
		t.Errorf("nothing is %v, %v", v, err)
	}
	forever, err := jq.Compile("def f: f; f")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := forever.First(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	many, err := jq.Compile("range(2000000)")
	if err != nil {
		t.Fatal(err)
	}
	for _, err = range many.Run(t.Context(), nil) {
	}
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 values") {
		t.Errorf("got %v", err)
	}
}
