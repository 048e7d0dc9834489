// Package sinktest is what the tests of several sinks share: JSON that is compared by
// value, a store that fails, and on Linux the test binary as another process.
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

// ErrDied is what a [Dying] store answers.
var ErrDied = errors.New("the process died")

// Dying is a store whose Nth commit, counted from 1, fails with [ErrDied]. It counts Nth
// down.
type Dying struct {
	collect.Store
	Nth int
	// Unheard makes the commit happen all the same: only its answer is lost.
	Unheard bool
}

// Commit counts, fails, or commits to the store.
func (d *Dying) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	if d.Nth--; d.Nth != 0 {
		return d.Store.Commit(ctx, l, c)
	}
	if d.Unheard {
		return errors.Join(d.Store.Commit(ctx, l, c), ErrDied)
	}
	return ErrDied
}

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
