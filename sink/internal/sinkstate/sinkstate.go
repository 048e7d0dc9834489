// Package sinkstate holds the checks that all sinks share: whether a sink may open or
// write, and whether a committed position is its own. After a change of the connection it
// may belong to another sink.
package sinkstate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNotOpen reports that a sink is not open.
var ErrNotOpen = errors.New("the sink is not open: call Open first")

// MayOpen returns an error if a sink is open already or the context has ended. where is
// the sink's path, for the error; "" if it has none.
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

// MayWrite returns an error if a sink is not open or the context has ended.
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

// Position decodes a committed position into p and calls check. An empty position or null
// is the beginning: p is unchanged and check is not called. note, such as "; no file was
// changed", is added to the error.
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

// Entries is like [Position] for a position that is a map. entries points to the map in p,
// and named is the JSON name of the map, for errors. check is called for each entry. The
// map is never nil afterwards.
func Entries[T any](sink, note, named string, position json.RawMessage, p any, entries *map[string]T, check func(name string, e T) error) error {
	err := Position(sink, note, position, p, func() error {
		if *entries == nil {
			return fmt.Errorf("it has no %s", named)
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
