package collect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/sink/jsonl"
)

// listed is a connector for the bench's docs without details.
type listed struct{ client }

func (listed) Streams() []connector.Stream { return []connector.Stream{{Name: "docs"}} }

// watched is a bench of listed docs with hooks in its sink and store.
type watched struct {
	*bench
	syncing func(ctx context.Context, n int) error // before the n-th Sync, from 1 on
	asked   []string                               // keys looked up in the store
}

func watch(t *testing.T, docs int) *watched {
	t.Helper()
	w := &watched{bench: endure(t, docs)}
	w.o.Connector = listed{client{base: "http://provider.test"}}
	w.o.Store = watchedStore{w.store, w}
	return w
}

func (w *watched) run(t *testing.T) (collect.Summary, error) {
	t.Helper()
	w.o.Sink = &watchedSink{Sink: jsonl.New(filepath.Join(w.dir, "out")), w: w}
	c, err := collect.New(w.o)
	if err != nil {
		t.Fatal(err)
	}
	return c.Run(t.Context())
}

func (w *watched) drained(t *testing.T) collect.Summary {
	t.Helper()
	s, err := w.run(t)
	if err != nil || s.State != collect.RunDrained {
		t.Fatalf("got %s (%s), %v; want drained", s.State, s.Reason, err)
	}
	return s
}

// lists counts the list requests that the provider has seen.
func (w *watched) lists() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests)
}

// once checks that each of the first n docs is in the sink exactly once.
func (w *watched) once(t *testing.T, n int) {
	t.Helper()
	var want []string
	for _, d := range w.docs[:n] {
		data, _ := json.Marshal(d)
		want = append(want, string(data))
	}
	if got := w.lines(t, "docs"); !slices.Equal(got, want) {
		t.Fatalf("the sink has %d docs, want the first %d:\n%s", len(got), n, strings.Join(got, "\n"))
	}
}

type watchedSink struct {
	collect.Sink
	w *watched
	n int
}

func (s *watchedSink) Sync(ctx context.Context) (json.RawMessage, error) {
	s.n++
	if s.w.syncing != nil && s.n > 1 { // the first Sync is at the start, with nothing written
		if err := s.w.syncing(ctx, s.n-1); err != nil {
			return nil, err
		}
	}
	return s.Sink.Sync(ctx)
}

type watchedStore struct {
	collect.Store
	w *watched
}

func (s watchedStore) Known(ctx context.Context, connection, stream string, keys []string) (map[string]collect.KnownItem, error) {
	s.w.asked = append(s.w.asked, keys...)
	return s.Store.Known(ctx, connection, stream, keys)
}

func TestTheNextPageIsAskedForWhileOneIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, 12)
		var before []int
		w.syncing = func(context.Context, int) error {
			time.Sleep(time.Second)
			before = append(before, w.lists())
			return nil
		}
		w.o.Pacing.Ceiling, w.o.Pacing.Initial = 1, 1
		s := w.drained(t)
		// Never more than one page ahead of what is stored, and nothing after the last.
		// The other pages come at once and share a commit.
		if want := []int{2, 4}; s.Pages != 4 || s.Attempts != 4 || !slices.Equal(before, want) {
			t.Errorf("%d pages by %d attempts; %d requests before each commit, want %d", s.Pages, s.Attempts, before, want)
		}
		w.once(t, 12)
	})
}

// TestAPageAheadIsPaced: the request for the next page waits for its permit like
// any other.
func TestAPageAheadIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, 12)
		s := w.drained(t)
		if took := s.Ended.Sub(s.Started); took < 3*w.o.Pacing.Ceiling {
			t.Errorf("four requests took %v at a ceiling of one in %v", took, w.o.Pacing.Ceiling)
		}
	})
}

func TestNoPageIsAskedForAheadWhereDetailsComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, 6)
		w.o.Connector = client{base: "http://provider.test"}
		w.drained(t)
		for i, at := range w.requests[:8] {
			if list := strings.HasPrefix(at, "/docs?"); list != (i%4 == 0) {
				t.Fatalf("request %d is %s; want a page's three details before the next page", i, at)
			}
		}
	})
}

// TestCapsHoldForThePageAhead: caps are checked before the request for a page is sent,
// and a page that was requested is kept.
func TestCapsHoldForThePageAhead(t *testing.T) {
	for name, c := range map[string]struct {
		cap         func(*watched)
		pages, docs int
	}{
		"max_requests":  {func(w *watched) { w.o.MaxRequests = 2 }, 2, 6},
		"catchup pages": {func(w *watched) { w.o.CatchupPages = 2 }, 2, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, 12)
				c.cap(w)
				s, err := w.run(t)
				if err != nil || s.State != collect.RunDeferred || s.Pages != int64(c.pages) || w.lists() != c.pages || s.Attempts != int64(c.pages) {
					t.Fatalf("%s (%s), %v: %d pages by %d attempts, %d requests; want %d of each", s.State, s.Reason, err, s.Pages, s.Attempts, w.lists(), c.pages)
				}
				w.once(t, c.docs)
				w.o.MaxRequests, w.o.CatchupPages = 0, 0
				w.drained(t)
				w.once(t, 12)
				if w.lists() != 4 {
					t.Errorf("%d requests for 4 pages", w.lists())
				}
			})
		})
	}
}

// TestAStopKeepsThePageThatWasAskedFor stops a run while its first page is stored and the
// request for the second is in flight.
func TestAStopKeepsThePageThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, 12)
		w.o.Pacing.Ceiling, w.o.Pacing.Initial = 1, 1
		halt := make(chan struct{})
		w.o.Stop = halt
		w.syncing = func(_ context.Context, n int) error {
			if n == 1 {
				time.Sleep(time.Second)
				close(halt)
				time.Sleep(time.Second)
			}
			return nil
		}
		s, err := w.run(t)
		if err != nil || s.State != collect.RunDeferred || s.Pages != 2 || w.lists() != 2 {
			t.Fatalf("%s (%s), %v: %d pages by %d requests, want 2 by 2", s.State, s.Reason, err, s.Pages, w.lists())
		}
		w.once(t, 6)
	})
}

// TestAStopEndsTheWaitOfThePageAhead: a request that has no permit yet is not sent.
func TestAStopEndsTheWaitOfThePageAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, 12)
		halt := make(chan struct{})
		w.o.Stop = halt
		var stopped time.Time
		w.o.Pacing.Ceiling, w.o.Pacing.Initial = time.Minute, time.Minute
		w.syncing = func(context.Context, int) error {
			time.Sleep(time.Second)
			close(halt)
			stopped = time.Now()
			return nil
		}
		s, err := w.run(t)
		if err != nil || s.State != collect.RunDeferred || s.Pages != 1 || w.lists() != 1 || s.Ended.Sub(stopped) > time.Second {
			t.Fatalf("%s (%s), %v: %d pages by %d requests in %v, want 1 by 1 at once", s.State, s.Reason, err, s.Pages, w.lists(), s.Ended.Sub(stopped))
		}
	})
}

// TestAPageThatCannotBeStoredEndsTheRequestForTheNext: the provider never answers that
// request, and the run ends anyway, with no goroutine left.
func TestAPageThatCannotBeStoredEndsTheRequestForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, 12)
		w.o.Pacing.Ceiling, w.o.Pacing.Initial = 1, 1
		w.overrule = func(n int, r *http.Request, _ http.ResponseWriter) bool {
			if n > 1 {
				<-r.Context().Done()
			}
			return n > 1
		}
		full := errors.New("the disk is full")
		w.syncing = func(context.Context, int) error {
			time.Sleep(time.Second)
			return full
		}
		s, err := w.run(t)
		if !errors.Is(err, full) || s.Pages != 0 || s.Attempts != 2 {
			t.Fatalf("%s, %v: %d pages by %d attempts; want a run that failed with both attempts counted", s.State, err, s.Pages, s.Attempts)
		}
		w.overrule, w.syncing = nil, nil
		w.drained(t)
		w.once(t, 12)
	})
}

// TestAFirstCatchUpAsksTheStoreForNothing: it looks up only an item that appears on two
// of its pages, and writes it once. Later runs look up every item.
func TestAFirstCatchUpAsksTheStoreForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, 12)
		shifted := doc{ID: "d02", Updated: w.docs[2].Updated}
		w.docs = slices.Insert(w.docs, 3, shifted) // again on the second page
		if s := w.drained(t); s.Records != 12 || s.Unchanged != 1 || !slices.Equal(w.asked, []string{"d02"}) {
			t.Errorf("%d records, %d unchanged, asked for %s; want 12, 1 and the one that comes twice", s.Records, s.Unchanged, w.asked)
		}
		w.docs = slices.Delete(w.docs, 3, 4)
		w.once(t, 12)
		w.asked = nil
		if s := w.drained(t); s.Records != 0 || s.Unchanged != 12 || len(w.asked) != 12 {
			t.Errorf("the second run: %d records, %d unchanged, asked for %d; want 0, 12, 12", s.Records, s.Unchanged, len(w.asked))
		}
		// A run that resumes another one has to look items up.
		w.docs = append(w.docs, doc{ID: "d90", Updated: fmt.Sprint(w.docs[11].Updated, "1")})
		w.asked = nil
		if s := w.drained(t); s.Records != 1 || len(w.asked) != 13 {
			t.Errorf("the third run: %d records, asked for %d; want 1 and 13", s.Records, len(w.asked))
		}
	})
}

// TestTheNextPageIsAskedForWhileTheLastDetailsAreUnderWay has three details a page: with
// two requests at once, the next page is requested together with the third detail.
func TestTheNextPageIsAskedForWhileTheLastDetailsAreUnderWay(t *testing.T) {
	for concurrency, want := range map[int]time.Duration{
		1: 10 * time.Second, // 2 x (a page and three details), and two pages of the steady state
		2: 7 * time.Second,  // a page, 2 x 2 for details, and two pages
	} {
		b := newBench(t, 6)
		synctest.Test(t, func(t *testing.T) {
			b.o.Connector, b.o.Concurrency = client{base: "http://api.test"}, concurrency
			b.o.Pacing = headway.Config{Law: "aimd", Ceiling: 1, Initial: 1}
			b.o.Base = answers(func(r *http.Request) *http.Response {
				time.Sleep(time.Second)
				res, _ := within{b.provider}.RoundTrip(r)
				return res
			})
			s := b.drained(t)
			b.complete(t)
			if took := s.Ended.Sub(s.Started).Round(100 * time.Millisecond); took != want {
				t.Errorf("concurrency %d: %v, want %v", concurrency, took, want)
			}
		})
	}
}
