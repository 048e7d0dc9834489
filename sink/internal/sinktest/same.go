// Package sinktest is what the tests of several sinks share: JSON that is compared by
// value, and on Linux the test binary as another process.
package sinktest

import (
	"encoding/json"
	"maps"
	"math/big"
	"slices"
)

// Same compares decoded JSON, with json.Number for its numbers: 1 and 1.0 are the same.
func Same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, Same)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Same)
	case json.Number:
		b, ok := b.(json.Number)
		x, okX := new(big.Rat).SetString(a.String())
		y, okY := new(big.Rat).SetString(b.String())
		return ok && okX && okY && x.Cmp(y) == 0
	default:
		return a == b
	}
}
