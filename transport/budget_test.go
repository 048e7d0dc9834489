package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

// keyed is a provider with a limit of 60 a minute for each key, which may be revoked: a bucket,
// or a sliding window that asks for a wait.
type keyed struct {
	mu       sync.Mutex
	window   bool
	tokens   map[string]float64
	last     map[string]time.Time
	admitted map[string][]time.Time // in the window
	revoked  string
	counts   map[string]int // admitted, by key
	refused  map[string]int
	lists    map[string]map[string]int
}

// room returns how long the window of a key has no room.
func (k *keyed) room(name string, now time.Time) time.Duration {
	in := k.admitted[name]
	for len(in) > 0 && now.Sub(in[0]) >= time.Minute {
		in = in[1:]
	}
	if k.admitted[name] = in; len(in) < 60 {
		return 0
	}
	return in[0].Add(time.Minute).Sub(now)
}

func (k *keyed) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(50 * time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	name, now := req.Header.Get("Authorization"), time.Now()
	status, header := http.StatusOK, http.Header{}
	if _, known := k.tokens[name]; !known {
		k.tokens[name] = 5
	} else {
		k.tokens[name] = min(5, k.tokens[name]+now.Sub(k.last[name]).Seconds())
	}
	k.last[name] = now
	switch {
	case name == k.revoked:
		status = http.StatusUnauthorized
	case k.window && k.room(name, now) > 0:
		status = http.StatusTooManyRequests
		header.Set("Retry-After", strconv.Itoa(int(k.room(name, now).Seconds())+1))
		k.refused[name]++
	case !k.window && k.tokens[name] < 1:
		status = http.StatusTooManyRequests
	default:
		k.tokens[name]--
		k.admitted[name] = append(k.admitted[name], now)
		k.counts[name]++
		if list := req.URL.Path; list != "/" {
			if k.lists[list] == nil {
				k.lists[list] = map[string]int{}
			}
			k.lists[list][name]++
		}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
}

// revoke has the provider refuse a key from now on.
func (k *keyed) revoke(name string) {
	k.mu.Lock()
	k.revoked = name
	k.mu.Unlock()
}

func newKeyed(t *testing.T) (*keyed, *transport.Keys) {
	t.Helper()
	k := &keyed{tokens: map[string]float64{}, last: map[string]time.Time{}, admitted: map[string][]time.Time{}, counts: map[string]int{}, refused: map[string]int{}, lists: map[string]map[string]int{}}
	var keys []transport.Key
	for _, name := range []string{"a", "b", "c"} {
		g, err := transport.NewGovernor(transport.Config{Name: name, Ceiling: 20 * time.Millisecond, Initial: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, transport.Key{Name: name, Governor: g, Sign: func(req *http.Request) error {
			req.Header.Set("Authorization", name)
			return nil
		}})
	}
	all, err := transport.NewKeys(keys, transport.Options{Base: k})
	if err != nil {
		t.Fatal(err)
	}
	return k, all
}

// askFor keeps six callers busy for a time, and gives how many requests ended otherwise
// than with 200 or, when all retries were refused too, 429.
func askFor(all *transport.Keys, d time.Duration) (failed int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	end := time.Now().Add(d)
	for range 6 {
		wg.Go(func() {
			for time.Now().Before(end) {
				req, _ := http.NewRequest(http.MethodGet, "http://provider.test/", nil)
				res, err := all.RoundTrip(req)
				if err != nil || res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

func (k *keyed) sum() (n int) {
	for _, c := range k.counts {
		n += c
	}
	return n
}

func TestThreeKeysReachTheSumOfTheirLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, all := newKeyed(t)
		failed := askFor(all, time.Hour)
		if perMin := float64(k.sum()) / 60; perMin < 0.95*180 || failed > 0 {
			t.Errorf("%.1f a minute, want 0.95 of 180; %d failed; %v", perMin, failed, k.counts)
		} else {
			t.Logf("%.1f a minute of 180, by key %v", perMin, k.counts)
		}
	})
}

// TestAPageWaitsForNoKeyWhileAnotherHasRoom, as a collection does it: a list that one key has to
// ask for, and after each page its details, by any key, before the next one.
func TestAPageWaitsForNoKeyWhileAnotherHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, all := newKeyed(t)
		k.window = true
		ask := func(ctx context.Context) {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://provider.test/", nil)
			if res, err := all.RoundTrip(req); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("%v, %v", res, err)
			}
		}
		const minutes = 30
		for began := time.Now(); time.Since(began) < minutes*time.Minute; {
			ask(transport.WithAffinity(t.Context(), "items"))
			var details sync.WaitGroup
			for range 4 {
				details.Go(func() {
					for range 5 {
						ask(t.Context())
					}
				})
			}
			details.Wait()
		}
		if perMin := float64(k.sum()) / minutes; perMin < 0.95*180 {
			t.Errorf("%.1f a minute, want 0.95 of 180; %v, refused %v", perMin, k.counts, k.refused)
		} else {
			t.Logf("%.1f a minute of 180; %v, refused %v", perMin, k.counts, k.refused)
		}
	})
}

func TestARevokedKeyIsSetAsideAndTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, all := newKeyed(t)
		var aside []string
		all.SetAside = func(name string, status int) {
			if status == http.StatusUnauthorized {
				aside = append(aside, name)
			}
		}
		failed := askFor(all, 10*time.Minute)
		k.revoke("b")
		before := k.counts["b"]
		failed += askFor(all, 20*time.Minute)
		if failed > 0 || !slices.Equal(aside, []string{"b"}) || !slices.Equal(all.Aside(), aside) {
			t.Errorf("%d failed, set aside %v, %v", failed, aside, all.Aside())
		}
		if k.counts["b"] != before || float64(k.counts["a"]+k.counts["c"]) < 0.93*30*120 {
			t.Errorf("%v", k.counts)
		}
	})
}

func TestWhatAllKeysAreRefusedIsNotAboutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := newKeyed(t)
		all.SetAside = func(name string, _ int) { t.Errorf("%s was set aside", name) }
		req, _ := http.NewRequest(http.MethodGet, "http://provider.test/", nil)
		closed, err := transport.NewKeys(nil, transport.Options{})
		if err == nil {
			t.Errorf("%v without keys", closed)
		}
		if res, err := all.RoundTrip(req); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("%v, %v", res, err)
		}
	})
}

func TestACursorSticksToItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, all := newKeyed(t)
		used := map[string]bool{}
		for _, list := range []string{"/one", "/two", "/three", "/four", "/five", "/six", "/seven", "/eight"} {
			for range 5 {
				req, _ := http.NewRequestWithContext(transport.WithAffinity(context.Background(), list), http.MethodGet, "http://provider.test"+list, nil)
				if _, err := all.RoundTrip(req); err != nil {
					t.Fatal(err)
				}
			}
			if len(k.lists[list]) != 1 {
				t.Errorf("%s was asked for by %v", list, k.lists[list])
			}
			for name := range k.lists[list] {
				used[name] = true
			}
		}
		if len(used) < 2 {
			t.Errorf("all lists go by %v", used)
		}
	})
}

// A refused request is held for as long as there is time, whatever attempts and budget say;
// what failed otherwise, or cannot be sent again, is passed on.
func TestAHeldRequestIsSentUntilItIsServed(t *testing.T) {
	many := []int{429, 503, 429, 503, 429, 503, 429, 503, 429, 503, 429, 200} // more than attempts and budget have
	for _, tt := range []struct {
		name     string
		method   string
		hold     time.Duration
		outage   time.Duration
		statuses []int
		status   int
		attempts int
		took     time.Duration
	}{
		{"held to its end", http.MethodGet, time.Hour, 0, many, 200, len(many), 600 * time.Second},
		{"no time for the next", http.MethodGet, 90 * time.Second, 0, []int{429}, 429, 1, 0},
		{"time for one more", http.MethodGet, 150 * time.Second, 0, []int{429}, 429, 2, 100 * time.Second},
		{"not a refusal", http.MethodGet, time.Hour, 0, []int{500}, 500, 1, 0},
		{"down", http.MethodGet, time.Hour, time.Minute, []int{503}, 503, 36, 34 * time.Second}, // the interval doubles from 1 ns on
		{"down, and back", http.MethodGet, time.Hour, time.Minute, []int{503, 503, 200}, 200, 3, 0},
		{"a refusal for rate is no outage", http.MethodGet, time.Hour, time.Minute, []int{503, 429, 503, 429, 200}, 200, 5, 200 * time.Second},
		{"not to be sent twice", http.MethodPost, time.Hour, 0, []int{429}, 429, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				conf := headway.Config{Ceiling: time.Nanosecond, Initial: time.Nanosecond, Tolerance: -1, MaxWait: time.Hour, NoBreaker: true}
				c, tr := serve(t, conf, transport.Options{Hold: tt.hold, Outage: tt.outage}, script(&at, tt.statuses...))
				began := time.Now()
				status, _, err := send(t, c, tt.method, nil, t.Context())
				if status != tt.status || err != nil || len(at) != tt.attempts {
					t.Errorf("%d, %v after %d attempts, want %d after %d", status, err, len(at), tt.status, tt.attempts)
				}
				if took := time.Since(began).Round(time.Second); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				if tr.RetriesLeft() < 8 {
					t.Errorf("%d retries left, the budget is for others", tr.RetriesLeft())
				}
			})
		})
	}
}
