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
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// fast is a bench with given durations for its pages of three docs and for its commits. It
// records the time from one commit to the begin of the next.
func fast(t *testing.T, docs int, page, commit time.Duration) (w *watched, began *[]time.Duration) {
	t.Helper()
	w = watch(t, docs)
	w.o.Pacing.Ceiling, w.o.Pacing.Initial = 1, 1
	w.overrule = func(int, *http.Request, http.ResponseWriter) bool {
		time.Sleep(page)
		return false
	}
	var last time.Time
	began = &[]time.Duration{}
	w.syncing = func(context.Context, int) error {
		if !last.IsZero() {
			*began = append(*began, time.Since(last))
		}
		time.Sleep(commit)
		last = time.Now()
		return nil
	}
	return w, began
}

func TestPagesThatComeFasterThanCommitsShareThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const page, commit = 3 * time.Millisecond, 10 * time.Millisecond
		w, began := fast(t, 99, page, commit)
		s := w.drained(t)
		if took := s.Ended.Sub(s.Started); s.Pages != 33 || took > 33*page*3/2 {
			t.Errorf("%d pages took %v at %v each", s.Pages, took, page)
		}
		for _, after := range *began {
			if after > 60*time.Millisecond {
				t.Errorf("a commit began %v after the one before", after)
			}
		}
		if n := len(*began); n < 2 || n > 4 {
			t.Errorf("%d commits for 33 pages in %v", n, s.Ended.Sub(s.Started))
		}
		w.once(t, 99)
	})
}

func TestACheapCommitIsMadeForEachPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, began := fast(t, 60, 10*time.Millisecond, 100*time.Microsecond)
		w.drained(t)
		if len(*began) != 19 {
			t.Errorf("%d commits for 20 pages", len(*began)+1)
		}
	})
}

// TestAPageThatTakesLongHoldsNoCommitUp: the pages before it are committed while the run
// waits for it.
func TestAPageThatTakesLongHoldsNoCommitUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, began := fast(t, 12, 0, 10*time.Millisecond)
		w.overrule = func(n int, _ *http.Request, _ http.ResponseWriter) bool {
			if n == 4 {
				time.Sleep(time.Hour)
			}
			return false
		}
		w.drained(t)
		if len(*began) != 2 || (*began)[0] > 60*time.Millisecond {
			t.Errorf("the commits began %v after the one before; want that of three pages at once, and that of the last", *began)
		}
		w.once(t, 12)
	})
}

// TestAnItemOfAPageThatWaitsIsKnown, although it is not in the store yet.
func TestAnItemOfAPageThatWaitsIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := fast(t, 30, 0, 10*time.Millisecond)
		w.docs = slices.Insert(w.docs, 9, doc{ID: "d08", Updated: w.docs[8].Updated}) // the next page begins with it
		if s := w.drained(t); s.Records != 30 || s.Unchanged != 1 {
			t.Errorf("%d records, %d unchanged; want 30 and 1", s.Records, s.Unchanged)
		}
		w.docs = slices.Delete(w.docs, 9, 10)
		w.once(t, 30)
	})
}

// TestPagesThatWaitAreKept whatever the outcome of the next page.
func TestPagesThatWaitAreKept(t *testing.T) {
	for name, spoil := range map[string]func(w *watched){
		"refused": func(w *watched) {
			w.overrule = func(n int, _ *http.Request, out http.ResponseWriter) bool {
				return n == 5 && fail(out, http.StatusForbidden)
			}
		},
		"its cursor repeats": func(w *watched) {
			w.overrule = func(n int, _ *http.Request, out http.ResponseWriter) bool {
				if n == 5 {
					_, _ = out.Write([]byte(`{"items":[],"next":"after-12"}`))
				}
				return n == 5
			}
		},
		"contradicts what is declared": func(w *watched) {
			w.o.Connector = ascending{listed{client{base: "http://provider.test"}}}
			w.overrule = func(n int, _ *http.Request, out http.ResponseWriter) bool {
				if n == 5 {
					_, _ = out.Write([]byte(`{"items":[{"id":"x","updated":"2023-01-01T00:00:00Z"}],"next":""}`))
				}
				return n == 5
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := fast(t, 30, 0, 10*time.Millisecond)
				spoil(w)
				s, err := w.run(t)
				if err == nil || s.State != collect.RunFailed || s.Records != 12 || s.Reason == reason.Internal {
					t.Fatalf("%s (%s), %v: %d records; want a run that failed with 12", s.State, s.Reason, err, s.Records)
				}
				w.once(t, 12)
				w.overrule = nil
				w.drained(t)
				w.once(t, 30)
			})
		})
	}
}

type ascending struct{ listed }

func (ascending) Streams() []connector.Stream {
	return []connector.Stream{{Name: "docs", Incremental: true, Ascending: true}}
}

// TestPagesThatWaitComeAgainAfterACommitThatFails: their items stay unknown, and the sink
// is truncated.
func TestPagesThatWaitComeAgainAfterACommitThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := fast(t, 30, 0, 10*time.Millisecond)
		full := errors.New("the disk is full")
		w.syncing = func(_ context.Context, n int) error {
			time.Sleep(10 * time.Millisecond)
			if n == 2 {
				return full
			}
			return nil
		}
		if s, err := w.run(t); !errors.Is(err, full) || s.Records != 3 {
			t.Fatalf("%s, %v: %d records; want a run that failed with the first page's", s.State, err, s.Records)
		}
		w.syncing = nil
		w.drained(t)
		w.once(t, 30)
	})
}

// diary is a sink and a store that record the calls of a run.
type diary struct {
	collect.Sink
	collect.Store
	lines []string
	// refuse returns the result of the nth Committed; lose returns the error of the nth
	// Commit, which then commits nothing.
	refuse, lose   func(n int) error
	informed, kept int
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

// informed is a diary's sink.
type informed struct{ *diary }

func (i informed) Open(ctx context.Context, p json.RawMessage, s []collect.StreamInfo) error {
	return i.Sink.Open(ctx, p, s)
}

func (i informed) Close() error { return i.Sink.Close() }

func (i informed) Committed(_ context.Context, p json.RawMessage) error {
	i.lines = append(i.lines, "informed "+string(p))
	i.informed++
	return i.refuse(i.informed)
}

func never(int) error { return nil }

// written runs a bench with a diary.
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

func TestASinkLearnsEachPositionRightAfterItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4) // two pages
		d := &diary{refuse: never, lose: never}
		if s, err := written(t, b, d); err != nil || s.State != collect.RunDrained {
			t.Fatalf("got %+v, %v", s, err)
		}
		// The initial position, then one for each page. Other commits do not call the sink.
		var want []string
		for _, line := range d.lines {
			if position, ok := strings.CutPrefix(line, "commit {"); ok {
				want = append(want, line, "informed {"+position)
			} else if line == "commit" {
				want = append(want, line)
			}
		}
		if !slices.Equal(d.lines, want) || d.informed != 3 {
			t.Fatalf("got %q", d.lines)
		}
		// A run that writes nothing reports its initial position only.
		d = &diary{refuse: never, lose: never}
		if s, err := written(t, b, d); err != nil || s.State != collect.RunDrained || d.informed != 1 || d.lines[len(d.lines)-1] != "commit" {
			t.Fatalf("got %+v, %v: %q", s, err, d.lines)
		}
	})
}

func TestASinkLearnsNothingThatWasNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4)
		full := errors.New("no space is left")
		d := &diary{refuse: never, lose: func(n int) error {
			if n == 2 {
				return full
			}
			return nil
		}}
		if _, err := written(t, b, d); !errors.Is(err, full) || d.informed != 1 || len(d.lines) != 2 {
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
