package collect_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/memory"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
)

// scripted is a connector that sends nothing: each call returns what the script says. A
// run must end by itself whatever that is.
type scripted struct {
	mu      sync.Mutex
	pages   int
	lists   []error          // what call n of List gives, the last one for ever; nil is a page
	details map[string]error // what each item's detail gives
	calls   int
	limit   int
	stop    chan struct{}
}

// step counts a call. Past the limit it cancels the run, and the test fails.
func (s *scripted) step() {
	if s.calls++; s.calls == s.limit+1 {
		close(s.stop)
	}
}

func (s *scripted) Streams() []connector.Stream {
	return []connector.Stream{{Name: "docs", DetailStream: "messages"}}
}

func (s *scripted) List(_ context.Context, _ connector.Caller, r connector.ListRequest) (connector.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step()
	if err := s.lists[min(s.calls, len(s.lists))-1]; err != nil {
		return connector.Page{}, err
	}
	at := 0
	_, _ = fmt.Sscan(r.Cursor, &at)
	page := connector.Page{}
	for i := range 2 {
		key := fmt.Sprintf("%d-%d", at, i)
		page.Items = append(page.Items, connector.Item{Key: key, Data: []byte(`{"id":"` + key + `"}`)})
	}
	if at+1 < s.pages {
		page.Next = fmt.Sprint(at + 1)
	}
	return page, nil
}

func (s *scripted) Detail(_ context.Context, _ connector.Caller, _ string, it connector.Item) ([]connector.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step()
	return nil, s.details[it.Key]
}

// ends draws how a call ends without an attempt, or after one.
func ends() *rapid.Generator[error] {
	return rapid.Custom(func(t *rapid.T) error {
		failures := []reason.Reason{
			reason.InvalidResponse, reason.NotFound, reason.ServerError, reason.Unreachable, reason.Timeout,
			reason.Unauthorized, reason.QuotaExhausted, reason.CursorRepeats, reason.RateLimited.Reason(),
		}
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0, 1:
			return &connector.Failure{
				Reason: rapid.SampledFrom(failures).Draw(t, "reason"), Class: reason.Failed,
				Status:   rapid.SampledFrom([]int{0, 200, 400, 404, 410, 500}).Draw(t, "status"),
				Attempts: rapid.IntRange(0, 1).Draw(t, "attempts"),
			}
		case 2:
			return &reason.Refusal{Reason: rapid.SampledFrom([]reason.Reason{
				reason.RateLimited.Reason(), reason.CircuitOpen.Reason(), reason.MaxRequests.Reason(), reason.RetryBudget.Reason(),
			}).Draw(t, "refusal")}
		case 3:
			return errors.New("not a failure that the connector can name")
		}
		return nil
	})
}

func TestEveryLoopOfARunEndsWhateverTheConnectorDoes(t *testing.T) {
	store := memory.New()
	rapid.Check(t, func(t *rapid.T) {
		c := &scripted{
			pages: rapid.IntRange(1, 3).Draw(t, "pages"), details: map[string]error{}, stop: make(chan struct{}),
			lists: append(rapid.SliceOfN(ends(), 0, 4).Draw(t, "lists"), nil),
		}
		for p := range c.pages {
			for i := range 2 {
				c.details[fmt.Sprintf("%d-%d", p, i)] = ends().Draw(t, "detail")
			}
		}
		// Three passes over the items and five calls a page are more than any
		// path through a run needs.
		c.limit = 3*len(c.details) + 5*(c.pages+len(c.lists))
		once(t, store, c)
	})
}

func TestADetailThatCannotBeAskedForIsQuarantinedAtOnce(t *testing.T) {
	unasked := &connector.Failure{Reason: reason.InvalidResponse, Class: reason.Unknown}
	want := map[string]int{"no request can be made": 1, "every item of the stream": 2}
	for name, c := range map[string]*scripted{
		"no request can be made":   {details: map[string]error{"0-1": unasked}},
		"every item of the stream": {details: map[string]error{"0-0": unasked, "0-1": unasked}},
	} {
		t.Run(name, func(t *testing.T) {
			c.pages, c.lists, c.stop, c.limit = 1, []error{nil}, make(chan struct{}), 5
			store := memory.New()
			s := once(t, store, c)
			gaps, err := store.Gaps(t.Context(), collect.GapFilter{Connection: s.Connection, Status: collect.GapTerminal})
			if err != nil || len(gaps) != want[name] || s.Quarantined != int64(len(gaps)) {
				t.Errorf("got %d quarantined gaps, %v, and %d in the summary; want %d", len(gaps), err, s.Quarantined, want[name])
			}
		})
	}
}

// once runs a connection, which must end before the connector's limit.
func once(t rapid.TB, store collect.Store, c *scripted) collect.Summary {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := collect.Options{
		Connection: rand.Text(), Connector: c, Store: store, Sink: nowhere{}, Stop: c.stop,
		Pacing: headway.Config{Ceiling: 1, Initial: 1},
	}
	o.Retry.Base, o.Retry.Cap = time.Microsecond, time.Microsecond
	run, err := collect.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := run.Run(ctx)
	if c.calls > c.limit || ctx.Err() != nil {
		t.Fatalf("the run did not end by itself: %d calls of the connector, at most %d have a purpose (%s, %s)", c.calls, c.limit, s.State, s.Reason)
	}
	return s
}

// nowhere is a sink that discards records.
type nowhere struct{}

func (nowhere) Open(context.Context, json.RawMessage, []collect.StreamInfo) error { return nil }
func (nowhere) Write(context.Context, string, []collect.Record) error             { return nil }
func (nowhere) Sync(context.Context) (json.RawMessage, error)                     { return json.RawMessage("null"), nil }
func (nowhere) Close() error                                                      { return nil }

// slow answers every request of a bench after a delay; details are empty.
func slow(b *bench, latency time.Duration, answer func(n int, r *http.Request) int) answers {
	var asked atomic.Int64
	return func(r *http.Request) *http.Response {
		time.Sleep(latency)
		n := int(asked.Add(1))
		body := []byte("[]")
		if !isDetail(r) {
			body, _ = json.Marshal(map[string]any{"items": b.docs})
		}
		res := &http.Response{StatusCode: answer(n, r), Header: http.Header{}, Request: r}
		if res.StatusCode == http.StatusTooManyRequests {
			res.Header.Set("Retry-After", "60")
		}
		res.Body = io.NopCloser(strings.NewReader(string(body)))
		return res
	}
}

func TestARunSaysWhatBoundIt(t *testing.T) {
	fine := func(int, *http.Request) int { return http.StatusOK }
	for _, tt := range []struct {
		name    string
		pacing  headway.Config
		latency time.Duration
		answer  func(int, *http.Request) int
		want    reason.Bound
		least   float64
	}{
		{"the default ceiling", headway.Config{Law: "aimd", Initial: 250 * time.Millisecond}, 100 * time.Millisecond, fine, reason.BoundCeiling, 0.95},
		{"latency", headway.Config{Law: "aimd", Ceiling: time.Millisecond, Initial: time.Millisecond}, 100 * time.Millisecond, fine, reason.BoundLatency, 0.9},
		{"Retry-After", headway.Config{Law: "aimd", Ceiling: time.Millisecond, Initial: time.Millisecond}, time.Millisecond,
			func(n int, _ *http.Request) int {
				if n == 5 {
					return http.StatusTooManyRequests
				}
				return http.StatusOK
			}, reason.BoundCooldown, 0.9},
		{"an open circuit", headway.Config{Law: "aimd", Ceiling: time.Millisecond, Initial: time.Millisecond}, time.Millisecond,
			func(n int, r *http.Request) int {
				if isDetail(r) && n < 8 {
					return http.StatusInternalServerError
				}
				return http.StatusOK
			}, reason.BoundCircuit, 0.9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, 40)
			synctest.Test(t, func(t *testing.T) {
				b.o.Connector = client{base: "http://api.test"}
				b.o.Pacing = tt.pacing
				b.o.Pacing.JitterMax = -1
				b.o.Base = slow(b, tt.latency, tt.answer)
				var last event.Event
				b.o.OnEvent = func(e event.Event) { last = e }
				s := b.drained(t)
				shares := s.BoundBy.Shares()
				if len(shares) == 0 || shares[0].Bound != tt.want || shares[0].Of < tt.least {
					t.Errorf("the run was bound by %v, want %v", s.BoundBy, tt.want)
				}
				if total := s.BoundBy.Total(); total != s.Ended.Sub(s.Started) {
					t.Errorf("%v of %v is accounted for", total, s.Ended.Sub(s.Started))
				}
				if last.Type != event.RunEnd || last.Bound == nil || last.Bound.Shares[tt.want.String()] != shares[0].Of {
					t.Errorf("the last event is %+v, %+v", last, last.Bound)
				}
				runs, err := b.store.Runs(t.Context(), "bench", 1)
				if err != nil || len(runs) != 1 || runs[0].BoundBy != s.BoundBy {
					t.Errorf("on record is %v, %v; want %v", runs[0].BoundBy, err, s.BoundBy)
				}
			})
		})
	}
}

// TestConcurrencyIsFoundWhereNoneIsSet collects details that take long to come.
func TestConcurrencyIsFoundWhereNoneIsSet(t *testing.T) {
	for set, most := range map[int]time.Duration{0: 20 * time.Second, 1: 61 * time.Second} {
		b := newBench(t, 300)
		synctest.Test(t, func(t *testing.T) {
			b.o.Connector, b.o.Concurrency = client{base: "http://api.test"}, set
			b.o.Pacing = headway.Config{Law: "aimd", Ceiling: time.Millisecond, Initial: time.Millisecond}
			b.o.Base = slow(b, 200*time.Millisecond, func(int, *http.Request) int { return http.StatusOK })
			s := b.drained(t)
			if took := s.Ended.Sub(s.Started); s.Details != 300 || took > most || set == 1 && took < 60*time.Second {
				t.Errorf("concurrency %d: %d details in %v, want 300 within %v", set, s.Details, took, most)
			}
		})
	}
}

// TestAnInterruptedWaitCountsInTheAccount stops runs in the middle of
// their waits.
func TestAnInterruptedWaitCountsInTheAccount(t *testing.T) {
	quick := headway.Config{Law: "aimd", Ceiling: time.Millisecond, Initial: time.Millisecond}
	slowly := headway.Config{Law: "aimd", Ceiling: time.Hour, Initial: time.Hour, MaxWait: 2 * time.Hour}
	answering := func(status int) func(int, *http.Request) int {
		return func(_ int, r *http.Request) int {
			if isDetail(r) {
				return status
			}
			return http.StatusOK
		}
	}
	for _, tt := range []struct {
		name        string
		pacing      headway.Config
		concurrency int
		answer      func(int, *http.Request) int
		retry       retry.Backoff
		want        reason.Bound
	}{
		{"Retry-After", quick, 1, answering(http.StatusTooManyRequests), retry.Backoff{}, reason.BoundCooldown},
		{"Retry-After, for many", quick, 8, answering(http.StatusTooManyRequests), retry.Backoff{}, reason.BoundCooldown},
		{"the ceiling", slowly, 1, answering(http.StatusOK), retry.Backoff{}, reason.BoundCeiling},
		{"the ceiling, for many", slowly, 8, answering(http.StatusOK), retry.Backoff{}, reason.BoundCeiling},
		{"the wait before a retry", quick, 1, answering(http.StatusInternalServerError),
			retry.Backoff{Base: 40 * time.Minute, Cap: time.Hour}, reason.BoundBackoff},
		{"an open circuit", quick, 1, answering(http.StatusInternalServerError), retry.Backoff{Attempts: 1}, reason.BoundCircuit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, 40)
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				b.o.Connector = client{base: "http://api.test"}
				b.o.Pacing, b.o.Retry, b.o.Concurrency = tt.pacing, tt.retry, tt.concurrency
				b.o.Pacing.JitterMax = -1
				b.o.Base = slow(b, time.Millisecond, tt.answer)
				b.o.Stop = stop
				time.AfterFunc(30*time.Second, func() { close(stop) })
				s, err := b.run(t)
				if err != nil {
					t.Fatal(err)
				}
				shares := s.BoundBy.Shares()
				if s.State != collect.RunDeferred || len(shares) == 0 || shares[0].Bound != tt.want || shares[0].Of < 0.9 {
					t.Errorf("the run was %s (%s) after %v, bound by %v, want %v", s.State, s.Reason, s.Ended.Sub(s.Started), s.BoundBy, tt.want)
				}
			})
		})
	}
}

// TestPoolsRemember: the next run starts with the learned rate of a pool, unless that is
// hours old. A run that does not use the pool does not renew it.
func TestPoolsRemember(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pause time.Duration
		other bool // a run between, which uses no pool
		knows bool
	}{
		{"a minute later", time.Minute, false, true},
		{"after a run without pools", 2 * time.Hour, true, true},
		{"too old", 7 * time.Hour, false, false},
		{"too old, after a run without pools", 4 * time.Hour, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := endure(t, 400)
				b.pageSize = 50
				for i := range b.docs {
					b.docs[i].Updated = fmt.Sprintf("2024-01-01T00:%02d:%02dZ", i/60, i%60)
				}
				all := b.docs
				b.docs = all[:200]
				b.o.Pacing = headway.Config{Ceiling: 10 * time.Millisecond, Initial: 100 * time.Millisecond}
				refused, sent := 0, []time.Time{}
				b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool { // 30 in each 30 s
					if !isDetail(r) {
						return false
					}
					now := time.Now()
					sent = slices.DeleteFunc(sent, func(at time.Time) bool { return now.Sub(at) >= 30*time.Second })
					if len(sent) == 30 {
						refused++
						return fail(w, http.StatusTooManyRequests)
					}
					sent = append(sent, now)
					return false
				}
				var notes []string
				b.o.OnEvent = func(e event.Event) {
					if e.Type == event.WarmStart {
						notes = append(notes, e.Note)
					}
				}
				plain := b.o.Connector
				b.o.Connector = apart{plain}
				b.drained(t)
				first := refused
				time.Sleep(tt.pause)
				if tt.other {
					b.o.Connector = apart{plain}
					b.drained(t)
					time.Sleep(tt.pause)
				}
				b.docs, b.o.Connector, refused, notes = all, apart{plain}, 0, nil
				b.drained(t)
				b.complete(t)
				switch knew := slices.Contains(notes, "restored_pools"); {
				case knew != tt.knows:
					t.Errorf("said at the start: %q, want pools to be restored: %v", notes, tt.knows)
				case first < 3:
					t.Errorf("the first run was refused %d times, which teaches nothing", first)
				case tt.knows && refused > 1:
					t.Errorf("refused %d times, and %d in the run before", refused, first)
				case !tt.knows && refused < 2:
					t.Errorf("refused %d times with nothing learned", refused)
				}
			})
		})
	}
}
