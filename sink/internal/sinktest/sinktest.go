// Package sinktest is shared by the tests of sinks: it compares JSON by value, provides a
// store that fails and a bench for a sink with its store, and on Linux runs the test binary as another process.
package sinktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

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

// TB is what tests, benchmarks and properties have in common.
type TB interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Bench is a store, a lease of the connection "c" in it, and the connection's sink.
type Bench[S collect.Sink] struct {
	Store   collect.Store
	Lease   collect.Lease
	Sink    S
	Streams []collect.StreamInfo // of the last Open
}

// Open opens the sink at the committed position and commits an empty slice, as the runtime
// does. A sink that is open is closed first.
func (b *Bench[S]) Open(t TB, streams ...collect.StreamInfo) {
	t.Helper()
	if err := b.Reopen(t, streams...); err != nil {
		t.Fatal(err)
	}
}

// Reopen is Open, but returns the error of opening or committing.
func (b *Bench[S]) Reopen(t TB, streams ...collect.StreamInfo) error {
	t.Helper()
	if err := b.Sink.Close(); err != nil {
		t.Fatal(err)
	}
	state, err := b.Store.Load(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	b.Streams = streams
	if err := b.Sink.Open(t.Context(), state.Sink, streams); err != nil {
		return err
	}
	return b.Commit(t.Context())
}

// Put writes records and commits them.
func (b *Bench[S]) Put(t TB, stream string, records ...collect.Record) {
	t.Helper()
	if err := errors.Join(b.Sink.Write(t.Context(), stream, records), b.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// Commit commits a slice.
func (b *Bench[S]) Commit(ctx context.Context) error {
	return Commit(ctx, b.Store, b.Lease, b.Sink, collect.Commit{})
}

// Commit syncs a sink and commits c with its position and pending writes.
func Commit(ctx context.Context, to collect.Store, l collect.Lease, s collect.Sink, c collect.Commit) error {
	position, err := s.Sync(ctx)
	if err != nil {
		return err
	}
	c.At, c.Sink = time.Now(), position
	if located, ok := s.(collect.Located); ok {
		c.SinkAt = located.Location()
	}
	if transactional, ok := s.(collect.Transactional); ok {
		c.Within = transactional.Pending()
	}
	if err := to.Commit(ctx, l, c); err != nil {
		return err
	}
	if informed, ok := s.(collect.Informed); ok {
		return informed.Committed(ctx, position)
	}
	return nil
}

// Parsed decodes JSON, with numbers as json.Number.
func Parsed(t TB, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err, text)
	}
	return v
}

// Record returns a record of a list.
func Record(key, data string) collect.Record {
	return collect.Record{Key: key, Data: json.RawMessage(data)}
}

// Detail returns a record of a detail stream.
func Detail(parent, key, data string) collect.Record {
	return collect.Record{Parent: parent, Key: key, Data: json.RawMessage(data)}
}

// Is fails a test if got and want are printed differently.
func Is(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is\n%v, want\n%v", what, got, want)
	}
}

// Says fails a test if an error's text lacks one of the parts.
func Says(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("error %v does not say %q", err, p)
		}
	}
}
