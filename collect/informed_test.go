package collect_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// diary is a sink and a store that write down what the runtime asks of them.
type diary struct {
	collect.Sink
	collect.Store
	lines []string
	// refuse gives what the nth Committed returns, lose what the nth Commit
	// returns instead of committing.
	refuse, lose func(n int) error
	told, kept   int
}

func (d *diary) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	d.kept++
	if err := d.lose(d.kept); err != nil {
		return err
	}
	if err := d.Store.Commit(ctx, l, c); err != nil {
		return err
	}
	if c.Sink != nil {
		d.lines = append(d.lines, "commit "+string(c.Sink))
	} else {
		d.lines = append(d.lines, "commit")
	}
	return nil
}

// informed is the diary as a sink.
type informed struct{ *diary }

func (i informed) Open(ctx context.Context, p json.RawMessage, s []collect.StreamInfo) error {
	return i.Sink.Open(ctx, p, s)
}

func (i informed) Close() error { return i.Sink.Close() }

func (i informed) Committed(_ context.Context, p json.RawMessage) error {
	i.lines = append(i.lines, "told "+string(p))
	i.told++
	return i.refuse(i.told)
}

func never(int) error { return nil }

// written is a run whose calls were written down.
func written(t *testing.T, b *bench, d *diary) (collect.Summary, error) {
	t.Helper()
	d.Sink, d.Store = newSink(b), b.store
	b.o.Sink, b.o.Store = informed{d}, d
	c, err := collect.New(b.o)
	if err != nil {
		t.Fatal(err)
	}
	return c.Run(t.Context())
}

func TestASinkIsToldOfEachPositionRightAfterItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4) // two pages
		d := &diary{refuse: never, lose: never}
		if s, err := written(t, b, d); err != nil || s.State != collect.RunDrained {
			t.Fatalf("got %+v, %v", s, err)
		}
		// Where the run began, then a page each. What changes nothing of the sink's is not told.
		var want []string
		for _, line := range d.lines {
			if position, ok := strings.CutPrefix(line, "commit {"); ok {
				want = append(want, line, "told {"+position)
			} else if line == "commit" {
				want = append(want, line)
			}
		}
		if !slices.Equal(d.lines, want) || d.told != 3 {
			t.Fatalf("got %q", d.lines)
		}
		// A run that writes nothing tells where it began, and no more.
		d = &diary{refuse: never, lose: never}
		if s, err := written(t, b, d); err != nil || s.State != collect.RunDrained || d.told != 1 || d.lines[len(d.lines)-1] != "commit" {
			t.Fatalf("got %+v, %v: %q", s, err, d.lines)
		}
	})
}

func TestASinkIsNotToldOfWhatWasNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4)
		full := errors.New("no space is left")
		d := &diary{refuse: never, lose: func(n int) error {
			if n == 2 {
				return full
			}
			return nil
		}}
		if _, err := written(t, b, d); !errors.Is(err, full) || d.told != 1 || len(d.lines) != 2 {
			t.Fatalf("got %v: %q", err, d.lines)
		}
	})
}

func TestASinkThatCannotPassACommitOnEndsTheRunAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4)
		gone := errors.New("nobody listens")
		d := &diary{lose: never, refuse: func(n int) error {
			if n == 2 {
				return gone
			}
			return nil
		}}
		s, err := written(t, b, d)
		if !errors.Is(err, gone) || s.State != collect.RunFailed || s.Reason != reason.Internal || s.Pages != 1 {
			t.Fatalf("got %+v, %v", s, err)
		}
		b.o.Store = b.store
		b.overrule = func(_ int, r *http.Request, _ http.ResponseWriter) bool {
			if r.URL.Path == "/docs/d00" {
				t.Error("a detail of the page that was committed is asked for again")
			}
			return false
		}
		b.drained(t)
		b.complete(t)
	})
}
