// Package sinktest is shared by the tests of sinks: it compares JSON by value, provides a
// store that fails, and on Linux runs the test binary as another process.
package sinktest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"slices"

	"github.com/headway-go/headway/collect"
)

// ErrDied is the error of a [Dying] store.
var ErrDied = errors.New("the process died")

// Dying is a store whose Nth commit, counted from 1, fails with [ErrDied]. Each commit
// decrements Nth.
type Dying struct {
	collect.Store
	Nth int
	// Unheard makes the failing commit take effect: only its result is lost.
	Unheard bool
}

// Commit commits to the underlying store, or fails.
func (d *Dying) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	if d.Nth--; d.Nth != 0 {
		return d.Store.Commit(ctx, l, c)
	}
	if d.Unheard {
		return errors.Join(d.Store.Commit(ctx, l, c), ErrDied)
	}
	return ErrDied
}

// Same reports whether two decoded JSON values with json.Number numbers are equal. 1 and
// 1.0 are equal.
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
