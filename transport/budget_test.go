package transport_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
	"github.com/headway-go/headway/transport"
)

var quick = headway.Config{Ceiling: time.Millisecond, Initial: time.Millisecond, Tolerance: -1}

func TestARetryThatTheCircuitRefusesCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		conf := quick
		conf.Breaker = breaker.Config{Minimum: 1, OpenFor: time.Minute}
		c, tr := serve(t, conf, transport.Options{Budget: retry.Limits{Start: 3}}, script(&at, 500))
		for probe := 1; probe <= 20; probe++ {
			var trace transport.Trace
			status, _, err := send(t, c, http.MethodGet, nil, transport.WithTrace(t.Context(), &trace))
			if status != 500 || err != nil || len(at) != probe || trace.Stopped == nil {
				t.Fatalf("probe %d: got %d, %v after %d attempts, stopped by %v", probe, status, err, len(at), trace.Stopped)
			}
			if trace.Stopped.Reason != reason.CircuitOpen.Reason() || tr.RetriesLeft() != 3 {
				t.Fatalf("probe %d: stopped by %v, %d retries left of 3", probe, trace.Stopped, tr.RetriesLeft())
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestAnOpenCircuitIsTheReasonBeforeAnEmptyBudget(t *testing.T) {
	for _, pool := range []func(*http.Request) string{nil, func(*http.Request) string { return "search" }} {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			conf := quick
			conf.Breaker = breaker.Config{Minimum: 2, OpenFor: time.Minute}
			c, tr := serve(t, conf, transport.Options{Budget: retry.Limits{Start: 1}, Pool: pool}, script(&at, 500))
			var trace transport.Trace
			start := time.Now()
			if _, _, err := send(t, c, http.MethodGet, nil, transport.WithTrace(t.Context(), &trace)); err != nil || len(at) != 2 || tr.RetriesLeft() != 0 {
				t.Fatalf("%v after %d attempts, %d retries left", err, len(at), tr.RetriesLeft())
			}
			if s := trace.Stopped; s == nil || s.Reason != reason.CircuitOpen.Reason() || s.RetryAt.Before(start.Add(time.Minute)) {
				t.Fatalf("in a pool %v: stopped by %+v, want the circuit until a minute has passed", pool != nil, s)
			}
		})
	}
}

func TestARetryThatADeadlineEndsCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		c, tr := serve(t, flat, transport.Options{Deadline: time.Now().Add(90 * time.Second)}, script(&at, 429))
		if status, _, err := get(t, c); status != 429 || err != nil || len(at) != 1 {
			t.Fatalf("got %d, %v after %d attempts", status, err, len(at))
		}
		if tr.RetriesLeft() != 8 {
			t.Fatalf("%d retries left of 8, none was sent", tr.RetriesLeft())
		}
	})
}

func TestWhatTheGateRefusesCostsNeitherRetryNorPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		left := 1
		conf := flat
		conf.MaxInFlight = 1 // a permit that is kept would hold up the next request
		o := transport.Options{Gate: func() error {
			if left--; left < 0 {
				return &reason.Refusal{Reason: reason.MaxRequests.Reason()}
			}
			return nil
		}}
		c, tr := serve(t, conf, o, script(&at, 500, 200))
		if status, _, err := get(t, c); status != 500 || err != nil || len(at) != 1 {
			t.Fatalf("got %d, %v after %d attempts", status, err, len(at))
		}
		if s := tr.Governor().Snapshot(); s.InFlight != 0 || tr.RetriesLeft() != 8 {
			t.Fatalf("%d permits are out, %d retries left of 8", s.InFlight, tr.RetriesLeft())
		}
		left = 1
		if status, _, err := get(t, c); status != 200 || err != nil {
			t.Fatalf("got %d, %v", status, err)
		}
	})
}

func TestRetriesThatWaitTogetherDoNotOverdrawTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sent := 0
		conf := quick
		conf.NoBreaker = true
		o := transport.Options{
			Budget:  retry.Limits{Start: 2},
			Backoff: retry.Backoff{Base: time.Nanosecond, Cap: time.Nanosecond},
		}
		c, tr := serve(t, conf, o, func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			sent++
			mu.Unlock()
			time.Sleep(time.Second) // so that all of them wait for their retry at once
			w.WriteHeader(http.StatusInternalServerError)
		})
		const requests = 5
		traces := make([]transport.Trace, requests)
		var wg sync.WaitGroup
		for i := range traces {
			wg.Go(func() {
				if status, _, err := send(t, c, http.MethodGet, nil, transport.WithTrace(t.Context(), &traces[i])); status != 500 || err != nil {
					t.Errorf("got %d, %v", status, err)
				}
			})
		}
		wg.Wait()
		for i, trace := range traces {
			if trace.Stopped == nil || trace.Stopped.Reason != reason.RetryBudget.Reason() {
				t.Errorf("request %d: stopped by %v", i, trace.Stopped)
			}
		}
		if sent != requests+2 || tr.RetriesLeft() != 0 || tr.Governor().Snapshot().InFlight != 0 {
			t.Errorf("%d attempts for %d requests and 2 retries, %d left, %d permits out",
				sent, requests, tr.RetriesLeft(), tr.Governor().Snapshot().InFlight)
		}
	})
}

func TestOnlyASuccessEarnsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		conf := quick
		conf.NoBreaker = true
		c, tr := serve(t, conf, transport.Options{Budget: retry.Limits{Start: 2, PerSuccess: 1000}},
			script(&at, 500, 404, 401, 503, 200))
		for i, want := range []int{2, 2, 2, 2, 3} {
			if _, _, err := send(t, c, http.MethodPost, nil, t.Context()); err != nil || len(at) != i+1 {
				t.Fatalf("%v after %d attempts", err, len(at))
			}
			if tr.RetriesLeft() != want {
				t.Fatalf("%d retries left after answer %d, want %d", tr.RetriesLeft(), i+1, want)
			}
		}
	})
}

func TestTheEventOfAnOpenedCircuitComesAfterTheAttemptThatOpenedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		observed, atOpening := 0, 0
		conf := quick
		conf.OnEvent = func(e event.Event) {
			if e.Type == event.Circuit && e.Circuit.State == "open" {
				atOpening = observed
			}
		}
		o := transport.Options{Observe: func(transport.Attempt) { observed++ }}
		c, _ := serve(t, conf, o, script(&at, 500))
		if _, _, err := get(t, c); err != nil {
			t.Fatal(err)
		}
		if atOpening != 5 || observed != 5 {
			t.Fatalf("the circuit opened after %d observed attempts, of %d; want 5 of 5", atOpening, observed)
		}
	})
}

func TestARefusalSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		var seen []transport.Attempt
		conf := flat
		conf.MaxWait = time.Minute
		o := transport.Options{Observe: func(a transport.Attempt) { seen = append(seen, a) }}
		c, _ := serve(t, conf, o, script(&at, 429))
		want := time.Now().Add(100 * time.Second).Round(0)
		var trace transport.Trace
		if _, _, err := send(t, c, http.MethodGet, nil, transport.WithTrace(t.Context(), &trace)); err != nil {
			t.Fatal(err)
		}
		if trace.Stopped == nil || !trace.Stopped.RetryAt.Equal(want) {
			t.Fatalf("the retry was stopped by %+v, want until %v", trace.Stopped, want)
		}
		if len(seen) != 1 || seen[0].RetryAfter != 100*time.Second {
			t.Fatalf("observed %+v", seen)
		}
		_, _, err := get(t, c)
		if r, ok := errors.AsType[*reason.Refusal](err); !ok || !r.RetryAt.Equal(want) {
			t.Fatalf("got %v, want a refusal until %v", err, want)
		}
	})
}

func TestAnAttemptIsAnnouncedWithWhatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		var sending, seen []transport.Attempt
		o := transport.Options{
			Sending: func(a transport.Attempt) {
				if len(at) != len(sending) {
					t.Errorf("announced attempt %d after %d were sent", len(sending)+1, len(at))
				}
				sending = append(sending, a)
			},
			Observe: func(a transport.Attempt) { seen = append(seen, a) },
		}
		c, _ := serve(t, flat, o, script(&at, 429, 200))
		if _, _, err := get(t, c); err != nil {
			t.Fatal(err)
		}
		cooldown := headway.Wait{Reason: reason.Cooldown, Bound: reason.BoundCooldown}
		if len(sending) != 2 || sending[0].Held != (headway.Wait{}) || sending[1].Held != cooldown || sending[1].Number != 2 {
			t.Fatalf("announced %+v", sending)
		}
		if len(seen) != 2 || seen[1].Held != cooldown || seen[1].Wait != sending[1].Wait || seen[1].Wait <= 0 {
			t.Fatalf("observed %+v", seen)
		}
	})
}
