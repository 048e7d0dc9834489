package collect_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// within serves a bench's provider in memory: a run waits for minutes of virtual time, and
// thousands of requests need no connection.
type within struct{ http.Handler }

func (w within) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	res := rec.Result()
	res.Request = r
	return res, nil
}

// endure is a bench in a bubble: a detail takes 200 ms, and waits have their defaults.
func endure(t *testing.T, n int) *bench {
	t.Helper()
	p := newProvider(n)
	b := benchOf(t, p, "http://provider.test", within{p})
	b.o.Pacing = headway.Config{Ceiling: 200 * time.Millisecond, Initial: 200 * time.Millisecond}
	return b
}

func TestPressureInRecoveryDoesNotEndTheWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 100)
		b.o.Retry.Attempts = 1
		b.o.MaxWallClock = 15 * time.Minute
		b.owe(t, reason.ServerError, 0, 60, func(g *collect.Gap) {})
		began := time.Now()
		listed := time.Duration(0)
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			if !isDetail(r) {
				listed = time.Since(began)
				return false
			}
			return fail(w, http.StatusServiceUnavailable)
		}
		s, err := b.run(t)
		if err != nil || s.State != collect.RunDeferred || s.Reason != reason.MaxWallClock.Reason() {
			t.Fatalf("got %s (%s), %v; want a run deferred by its cap", s.State, s.Reason, err)
		}
		// It ends before its cap only if the next attempt would be after it.
		took, next := s.Ended.Sub(s.Started), s.RetryAt.Sub(s.Started)
		if took < 14*time.Minute && next <= b.o.MaxWallClock || took > 15*time.Minute+10*time.Second {
			t.Errorf("the run took %v of its 15 minutes, with the next attempt at %v", took, next)
		}
		if listed == 0 {
			t.Error("the list was never asked for")
		}
	})
}

func TestTheListIsWalkedToItsEndWhileDetailsAreRefused(t *testing.T) {
	const span = 15 * time.Minute
	for _, tt := range []struct {
		status, attempts   int
		after              string
		items, concurrency int
	}{
		{http.StatusTooManyRequests, 1, "", 60, 1},
		{http.StatusServiceUnavailable, 1, "", 60, 1},
		// The retries that a run has are soon used up.
		{http.StatusTooManyRequests, 5, "", 60, 1},
		{http.StatusServiceUnavailable, 5, "", 60, 1},
		{http.StatusTooManyRequests, 5, "5", 60, 1},
		// Refusals of details do not slow a long list.
		{http.StatusTooManyRequests, 5, "", 1000, 0},
		{http.StatusServiceUnavailable, 5, "", 1000, 16},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := endure(t, tt.items)
			b.pageSize = 20
			b.o.Retry.Attempts, b.o.Concurrency = tt.attempts, tt.concurrency
			b.o.MaxWallClock = span
			refused, began, listed := true, time.Now(), time.Duration(0)
			b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
				if !isDetail(r) && r.URL.Query().Get("cursor") == fmt.Sprint("after-", tt.items-20) && listed == 0 {
					listed = time.Since(began)
				}
				if !refused || !isDetail(r) {
					return false
				}
				if tt.after != "" {
					w.Header().Set("Retry-After", tt.after)
				}
				return fail(w, tt.status)
			}
			s, err := b.run(t)
			if err != nil || s.State != collect.RunDeferred || s.Items < int64(tt.items) || s.Owed[s.Reason.String()] == 0 && s.Reason != reason.MaxWallClock.Reason() {
				t.Fatalf("%+v: got %s (%s), %d items, owed %v, %v", tt, s.State, s.Reason, s.Items, s.Owed, err)
			}
			if listed == 0 || listed > 3*time.Minute {
				t.Errorf("%+v: the last page was asked for after %v", tt, listed)
			}
			// It ends early only if the next attempt would be past the deadline.
			over := s.Started.Add(span)
			if s.Ended.Before(over.Add(-2*time.Minute)) && !s.RetryAt.After(over) || s.Ended.After(over.Add(10*time.Second)) {
				t.Errorf("%+v: the run took %v of its %v, with the next attempt at %v", tt, s.Ended.Sub(s.Started), span, s.RetryAt)
			}
			refused, b.o.MaxWallClock = false, 0
			b.retry(t)
			b.drained(t)
			b.complete(t)
		})
	}
}

// Failing details open the circuit, for the list too. The requests of the list are the
// probes that close it again, even if the run has no time limit.
func TestTheListIsWalkedToItsEndWhileDetailsFail(t *testing.T) {
	for i, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusInternalServerError} {
		synctest.Test(t, func(t *testing.T) {
			b := endure(t, 60)
			b.pageSize = 20
			b.o.Retry.Attempts = []int{1, 1, 5}[i]
			failing := true
			b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
				return failing && isDetail(r) && fail(w, status)
			}
			s, err := b.run(t)
			if err != nil || s.State != collect.RunDeferred || s.Items < 60 {
				t.Fatalf("%d: got %s (%s), %d items of 60, %v", status, s.State, s.Reason, s.Items, err)
			}
			failing = false
			b.retry(t)
			b.drained(t)
			b.complete(t)
		})
	}
}

func TestStopEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 9)
		stop := make(chan struct{})
		b.o.Stop = stop
		var asked time.Time
		b.overrule = func(n int, r *http.Request, w http.ResponseWriter) bool {
			if n < 4 {
				return false
			}
			if asked.IsZero() {
				asked = time.Now().Add(10 * time.Second)
				time.AfterFunc(10*time.Second, func() { close(stop) })
			}
			w.Header().Set("Retry-After", "120")
			return fail(w, http.StatusTooManyRequests)
		}
		s, err := b.run(t)
		if err != nil || s.Reason != reason.Interrupted {
			t.Fatalf("got %s (%s), %v", s.State, s.Reason, err)
		}
		if late := s.Ended.Sub(asked); late > time.Second {
			t.Errorf("the run ended %v after it was asked to", late)
		}
		if s.Details != 2 {
			t.Errorf("%d details committed, want the two that had come", s.Details)
		}
		b.o.Stop, b.overrule = nil, nil
		b.retry(t)
		b.drained(t)
		b.complete(t)
	})
}

// killed runs a collection that is killed after the given time, and counts the details
// that were answered.
func killed(t *testing.T, b *bench, after time.Duration) (s collect.Summary, answered int) {
	t.Helper()
	b.overrule = func(_ int, r *http.Request, _ http.ResponseWriter) bool {
		if isDetail(r) {
			answered++
		}
		return false
	}
	b.o.Sink = newSink(b)
	c, err := collect.New(b.o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithTimeout(t.Context(), after)
	defer kill()
	s, err = c.Run(ctx)
	if err != nil || s.State != collect.RunDeferred {
		t.Fatalf("got %s (%s), %v", s.State, s.Reason, err)
	}
	return s, answered
}

// A run that is killed keeps nearly everything: details are committed before their page
// is complete.
func TestAKilledRunKeepsWhatItFetched(t *testing.T) {
	for _, page := range []int{20, 100} {
		for _, after := range []time.Duration{800 * time.Millisecond, 2 * time.Second, 7500 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d a page, killed after %v", page, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := endure(t, 200)
					b.pageSize = page
					s, answered := killed(t, b, after)
					if kept := s.Details; float64(kept) < 0.9*float64(answered) || answered == 0 {
						t.Errorf("kept %d of %d answers", kept, answered)
					}
				})
			})
		}
	}
}

func TestAnOutageQuarantinesNothing(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"pages of HTML": func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = fmt.Fprint(w, "<html>back soon</html>")
			return true
		},
		"500": func(w http.ResponseWriter, _ *http.Request) bool { return fail(w, http.StatusInternalServerError) },
		"404 for every other": func(w http.ResponseWriter, r *http.Request) bool {
			return (r.URL.Path[len(r.URL.Path)-1]-'0')%2 == 0 && fail(w, http.StatusNotFound)
		},
		"a redirect in circles": func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
			return true
		},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := endure(t, 12)
				began := time.Now()
				b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
					return isDetail(r) && time.Since(began) < 3*time.Minute && answer(w, r)
				}
				var s collect.Summary
				for s.State != collect.RunDrained {
					if time.Since(began) > 24*time.Hour {
						t.Fatalf("a day later the run is %s (%s): owed %v, quarantined %d", s.State, s.Reason, s.Owed, s.Quarantined)
					}
					var err error
					if s, err = b.run(t); err != nil {
						t.Fatal(err)
					}
					if s.Quarantined > 0 {
						t.Fatalf("%d are quarantined after %v", s.Quarantined, time.Since(began))
					}
					if s.State == collect.RunDeferred {
						time.Sleep(max(time.Until(s.RetryAt), time.Second)) // as a process that stays does
					}
				}
				b.complete(t)
			})
		})
	}
}

// A few details refused under pressure are left for another run, however much time is left.
func TestAFewRefusedDetailsAreNoReasonToStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 12)
		b.o.Retry.Attempts, b.o.MaxWallClock, b.o.Pacing.NoBreaker = 1, 15*time.Minute, true
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			return r.URL.Path == "/docs/d05" && fail(w, http.StatusTooManyRequests)
		}
		var deferred []event.Event
		b.o.OnEvent = func(e event.Event) {
			if e.Type == event.Deferral {
				deferred = append(deferred, e)
			}
		}
		s, err := b.run(t)
		if len(deferred) == 0 || deferred[0].Reason != reason.RateLimited.Reason() || deferred[0].Count != 1 || deferred[0].Stream != "docs" {
			t.Errorf("said of what was put off: %+v", deferred)
		}
		if err != nil || s.State != collect.RunDeferred || s.Owed["rate_limited"] != 1 || s.Ended.Sub(s.Started) > time.Minute {
			t.Errorf("got %s (%s) after %v, owed %v, %v", s.State, s.Reason, s.Ended.Sub(s.Started), s.Owed, err)
		}
	})
}

// failingFirst is a connector with a stream that is gone before the one that works.
type failingFirst struct{ client }

func (f failingFirst) Streams() []connector.Stream {
	return append([]connector.Stream{{Name: "gone"}}, f.client.Streams()...)
}

func (f failingFirst) List(ctx context.Context, call connector.Caller, r connector.ListRequest) (connector.Page, error) {
	if r.Stream == "gone" {
		return connector.Page{}, f.get(ctx, call, "/gone", nil)
	}
	return f.client.List(ctx, call, r)
}

func TestAFailingStreamDoesNotStopTheOthers(t *testing.T) {
	b := newBench(t, 6)
	b.o.Connector = failingFirst{b.o.Connector.(client)}
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return strings.HasPrefix(r.URL.Path, "/gone") && fail(w, http.StatusNotFound)
	}
	s, err := b.run(t)
	if err == nil || s.State != collect.RunFailed || s.Reason != reason.NotFound {
		t.Fatalf("got %s (%s), %v; want a run that failed", s.State, s.Reason, err)
	}
	b.complete(t)
}

// several is a connector of streams that are listed at paths of their own.
type several struct {
	client
	names []string
}

func (s several) Streams() (all []connector.Stream) {
	for _, name := range s.names {
		all = append(all, connector.Stream{Name: name})
	}
	return all
}

func (s several) List(ctx context.Context, call connector.Caller, r connector.ListRequest) (connector.Page, error) {
	return connector.Page{}, s.get(ctx, call, "/"+r.Stream, new(any))
}

func TestTheFirstFailedStreamIsTheReason(t *testing.T) {
	for _, tt := range []struct {
		names []string
		state collect.RunState
		why   reason.Reason
	}{
		{[]string{"trouble", "fine"}, collect.RunDeferred, reason.ServerError},
		{[]string{"trouble", "missing", "wrong"}, collect.RunFailed, reason.NotFound},
		{[]string{"fine", "wrong", "trouble", "missing"}, collect.RunFailed, reason.ClientError},
	} {
		b := newBench(t, 0)
		b.o.Connector, b.o.Retry.Attempts, b.o.Pacing.NoBreaker = several{client{base: "http://provider.test"}, tt.names}, 1, true
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			switch r.URL.Path {
			case "/trouble":
				return fail(w, http.StatusInternalServerError)
			case "/missing":
				return fail(w, http.StatusNotFound)
			case "/wrong":
				return fail(w, http.StatusBadRequest)
			}
			_, _ = w.Write([]byte("{}"))
			return true
		}
		if s, err := b.run(t); s.State != tt.state || s.Reason != tt.why || (err != nil) != (tt.state == collect.RunFailed) {
			t.Errorf("%q: %s (%s), %v", tt.names, s.State, s.Reason, err)
		}
	}
}

// apart is a connector whose details share limits apart from its list.
type apart struct{ connector.Connector }

func (a apart) Detail(ctx context.Context, call connector.Caller, stream string, it connector.Item) ([]connector.Record, error) {
	return a.Connector.Detail(connector.WithPool(ctx, "details"), call, stream, it)
}

// Details that are refused for a while do not delay the list, in a pool of their own or not.
func TestDetailsThatAreRefusedHoldNoListUp(t *testing.T) {
	for _, pools := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := endure(t, 60)
			b.pageSize, b.o.MaxWallClock, b.o.Concurrency = 20, time.Hour, 16
			if pools {
				b.o.Connector = apart{b.o.Connector}
			}
			began, lists := time.Now(), []time.Duration{}
			b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
				at := time.Since(began)
				if !isDetail(r) {
					lists = append(lists, at)
					return false
				}
				if at > 100*time.Second {
					return false
				}
				return fail(w, http.StatusTooManyRequests)
			}
			b.drained(t)
			b.complete(t)
			// All pages are asked for while the details of the first are refused.
			if lists[2] > 100*time.Second {
				t.Errorf("details in a pool of their own: %v; pages were asked for after %v", pools, lists)
			}
		})
	}
}

// edited is a connector whose list has the given shape.
type edited struct {
	connector.Connector
	list string
}

func (e edited) Streams() []connector.Stream {
	all := e.Connector.Streams()
	all[0].Shape = connector.Shape{Base: "b", List: e.list, Records: "r", Key: "k", Detail: "d"}
	return all
}

func TestAnEditedListIsWalkedFromTheBeginningAtOnce(t *testing.T) {
	b := newBench(t, 4)
	of := b.o.Connector
	for _, list := range []string{"all", "all", "some"} {
		b.requests, b.o.Connector = nil, edited{of, list}
		b.drained(t)
	}
	if first := b.requests[0]; !strings.HasSuffix(first, "since=") {
		t.Errorf("the edited list is asked for by %s", first)
	}
}
