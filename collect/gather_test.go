package collect_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// fast is a bench whose pages of three docs each take so long to come, and its
// commits as long as given. It notes how long after the one before each began.
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

// TestAPageThatTakesLongHoldsNoCommitUp: what came before it is committed while it
// is waited for.
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

// TestAnItemOfAPageThatWaitsIsKnown though the store has not heard of it.
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

// TestPagesThatWaitAreKept whatever comes of the next one.
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

// TestPagesThatWaitComeAgainAfterACommitThatFails: nothing of them is known, and
// the sink is cut back.
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
