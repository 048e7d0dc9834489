package collect_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
)

func TestAnEmptyRetryBudgetDefersTheRemainder(t *testing.T) {
	b := newBench(t, 12)
	b.pageSize = 12
	b.o.Retry.Attempts = 3
	b.o.Pacing.NoBreaker = true
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return isDetail(r) && fail(w, http.StatusInternalServerError)
	}
	s, err := b.run(t)
	if err != nil || s.State != collect.RunDeferred || s.Reason != reason.RetryBudget.Reason() {
		t.Fatalf("got %s (%s), %v", s.State, s.Reason, err)
	}
	// The list, four details with two retries each, and the one that found the
	// budget empty.
	if s.Attempts != 1+4*3+1 || s.Retries != 8 {
		t.Fatalf("%d attempts, %d retries", s.Attempts, s.Retries)
	}
	gaps, unsent := b.gaps(t, collect.GapPending), 0
	for _, g := range gaps {
		if g.Attempts == 0 {
			unsent++
			if g.Reason != reason.RetryBudget.Reason() {
				t.Errorf("a detail that was not asked for is owed for %s", g.Reason)
			}
		}
	}
	if len(gaps) != 12 || unsent != 7 {
		t.Fatalf("%d gaps, %d of them never sent, want 12 and 7", len(gaps), unsent)
	}
	if s.Cooldown.Cycles != 0 || !s.Cooldown.Until.IsZero() {
		t.Fatalf("a cap of the owner's armed the cooldown: %+v", s.Cooldown)
	}
}

func TestTheRetryBudgetIsTheOwnersToSet(t *testing.T) {
	b := newBench(t, 12)
	b.pageSize = 12
	b.o.Pacing.NoBreaker = true
	b.o.RetryBudget = retry.Limits{Start: 2, PerSuccess: 1}
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return isDetail(r) && fail(w, http.StatusInternalServerError)
	}
	s, err := b.run(t)
	if err != nil || s.Reason != reason.RetryBudget.Reason() || s.Retries != 2 || s.Attempts != 1+3 {
		t.Fatalf("got %s, %v after %d attempts, %d retries", s.Reason, err, s.Attempts, s.Retries)
	}
	b.o.RetryBudget.Capacity = -1
	if _, err := collect.New(b.o); err == nil || !strings.Contains(err.Error(), "capacity is -1") {
		t.Fatalf("got %v", err)
	}
}

func TestFailedProbesLeaveTheRetryBudgetAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 12)
		b.pageSize = 12
		b.o.Pacing.Law = "aimd"
		b.o.Pacing.Breaker.OpenFor = time.Millisecond
		failures := 0
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			// Six openings of the circuit, which would have burned six of the four
			// retries that are left when it first opens.
			if isDetail(r) && failures < 11 {
				failures++
				return fail(w, http.StatusInternalServerError)
			}
			return false
		}
		s := b.drained(t)
		b.complete(t)
		if s.GapsOpened != 0 {
			t.Fatalf("%d details were deferred: %v", s.GapsOpened, s.Owed)
		}
	})
}

func TestTheCircuitsEventCountsTheAttemptThatMovedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 3)
		b.o.Pacing.Breaker.OpenFor = time.Millisecond
		failures := 0
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			if isDetail(r) && failures < 4 {
				failures++
				return fail(w, http.StatusInternalServerError)
			}
			return false
		}
		var moves []event.Breaker
		b.o.OnEvent = func(e event.Event) {
			if e.Type == event.Circuit {
				moves = append(moves, *e.Circuit)
			}
		}
		b.drained(t)
		if len(moves) != 3 {
			t.Fatalf("moves %+v", moves)
		}
		// The list was answered, then one detail failed four times in a row: half of
		// at least five outcomes.
		if open := moves[0]; open.State != "open" || open.Requests != 5 || open.Retries != 3 {
			t.Errorf("it opened after %d requests and %d retries, want 5 and 3: %+v", open.Requests, open.Retries, open)
		}
		if closed := moves[2]; closed.State != "closed" || closed.Requests != 6 {
			t.Errorf("it closed after %d requests, want 6: %+v", closed.Requests, closed)
		}
	})
}

func TestARefusedDetailIsOwedUntilTheProviderAllowsIt(t *testing.T) {
	b := newBench(t, 1)
	b.o.Retry.Attempts = 1
	b.o.Pacing.MaxWait = time.Second
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		if !isDetail(r) {
			return false
		}
		w.Header().Set("Retry-After", "3600")
		return fail(w, http.StatusTooManyRequests)
	}
	before := time.Now()
	s, err := b.run(t)
	after := time.Now()
	if err != nil || s.State != collect.RunDeferred {
		t.Fatalf("got %s, %v", s.State, err)
	}
	for what, at := range map[string]time.Time{"gap": b.gaps(t, collect.GapPending)[0].RetryAt, "run": s.RetryAt} {
		if at.Before(before.Add(time.Hour).Truncate(time.Second)) || at.After(after.Add(time.Hour+time.Second)) {
			t.Errorf("the %s may be tried again at %v, want an hour after %v", what, at, before)
		}
	}
}

// answers is a base transport that gives each request what it is asked to.
type answers func(*http.Request) *http.Response

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return a(r), nil
}

func TestARedirectFromHTTPSToHTTPIsNotFollowedOnOneHostEither(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		follows  bool
	}{
		{"https://api.test", "http://api.test/elsewhere", false},
		{"https://api.test", "https://other.test/elsewhere", false},
		{"https://api.test", "https://api.test:8443/elsewhere", false},
		{"https://api.test", "https://api.test/elsewhere", true},
		{"http://api.test", "http://api.test/elsewhere", true},
	} {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			b := newBench(t, 0)
			b.o.Connector = client{base: tt.from}
			var sent []string
			b.o.Base = answers(func(r *http.Request) *http.Response {
				sent = append(sent, r.URL.Scheme+"://"+r.URL.Host)
				res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r}
				body, _ := json.Marshal(map[string]any{"items": []doc{}})
				if !strings.HasPrefix(r.URL.Path, "/elsewhere") {
					res.StatusCode = http.StatusFound
					res.Header.Set("Location", tt.to)
				}
				res.Body = io.NopCloser(strings.NewReader(string(body)))
				return res
			})
			s, err := b.run(t)
			if tt.follows {
				if err != nil || len(sent) < 2 || len(sent)%2 != 0 {
					t.Fatalf("got %s, %v after %q", s.State, err, sent)
				}
				return
			}
			if err == nil || s.Reason != reason.InvalidResponse || len(sent) != 1 {
				t.Fatalf("got %s (%s), %v after %q", s.State, s.Reason, err, sent)
			}
		})
	}
}
