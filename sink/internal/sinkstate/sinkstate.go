// Package sinkstate is what all sinks begin with: whether one may open or write, and what it
// committed: JSON that a state kept for it, which may be another sink's after a change of
// the connection. It keeps and writes nothing.
package sinkstate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNotOpen says that a sink is not open.
var ErrNotOpen = errors.New("the sink is not open: call Open first")

// MayOpen says why a sink cannot be opened: it is open, or the context has ended. Where
// is its place, for the error; "" if it has none.
func MayOpen(ctx context.Context, sink, where string, open bool) error {
	switch {
	case open:
		return fmt.Errorf("%s: the sink is open already: Close it first", sink)
	case ctx.Err() == nil:
		return nil
	case where != "":
		return fmt.Errorf("%s: open %s: %w", sink, where, ctx.Err())
	}
	return fmt.Errorf("%s: open: %w", sink, ctx.Err())
}

// MayWrite says why a sink cannot write: it is not open, or the context has ended.
func MayWrite(ctx context.Context, sink string, open bool) error {
	err := ctx.Err()
	if !open {
		err = ErrNotOpen
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", sink, err)
	}
	return err
}

// Position reads a committed position into p and has check look at it. Nothing, and
// null, is the very beginning: p stays as it is and check is not called. The error
// begins with the sink's name and says what to do; note, such as "; no file was
// changed", follows the statement that the position cannot be read.
func Position(sink, note string, position json.RawMessage, p any, check func() error) error {
	if len(position) == 0 || string(position) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(position))
	d.DisallowUnknownFields() // another sink's position is not an empty one
	err := d.Decode(p)
	if err == nil {
		err = check()
	}
	if err != nil {
		return fmt.Errorf("%s: the committed position cannot be read%s: %w: "+
			"is the connection's sink still the same? Start over with `headway collect --fresh` if it is not", sink, note, err)
	}
	return nil
}

// Entries is [Position] for one that is a mapping, which p holds in entries: it has to
// have what is named so, and check looks at each. The mapping is never nil afterwards.
func Entries[T any](sink, note, named string, position json.RawMessage, p any, entries *map[string]T, check func(name string, e T) error) error {
	err := Position(sink, note, position, p, func() error {
		if *entries == nil {
			return fmt.Errorf("it names no %s", named)
		}
		for name, e := range *entries {
			if err := check(name, e); err != nil {
				return err
			}
		}
		return nil
	})
	if *entries == nil {
		*entries = map[string]T{}
	}
	return err
}
