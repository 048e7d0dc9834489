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

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/field"
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

// Stream returns one of the streams that were passed to Open.
func Stream(sink string, streams []collect.StreamInfo, name string) (collect.StreamInfo, error) {
	for _, s := range streams {
		if s.Name == name {
			return s, nil
		}
	}
	return collect.StreamInfo{}, fmt.Errorf("%s: the stream %q was not passed to Open", sink, name)
}

// AppendRow appends the data of record i of n to b as compact JSON, if the record can be a row of
// a table: it must have a key, and a parent exactly if its stream has one.
func AppendRow(b *bytes.Buffer, sink string, stream collect.StreamInfo, r collect.Record, i, n int) error {
	wrong := ""
	switch {
	case !field.Record(b, r.Data):
		wrong = "is not JSON in UTF-8"
	case r.Key == "":
		wrong = "has no key"
	case r.Parent == "" && stream.Parent != "":
		wrong = "has no parent, and the stream's rows have one"
	case r.Parent != "" && stream.Parent == "":
		wrong = "has a parent, and the stream's rows have none"
	default:
		return nil
	}
	return fmt.Errorf("%s: stream %q: record %d of %d %s; none of them was written: "+
		"the connector must give one JSON value and a key for each record", sink, stream.Name, i+1, n, wrong)
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
