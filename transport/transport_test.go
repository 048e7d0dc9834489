package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
	"github.com/headway-go/headway/transport"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// pipes is a listener whose connections are in memory, so that a server can run
// in a synctest bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve runs a real HTTP server in memory and gives a governed client for it.
func serve(t *testing.T, c headway.Config, o transport.Options, h http.HandlerFunc) (*http.Client, *transport.Transport) {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(p) })
	base := &http.Transport{DialContext: p.dial}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		_ = server.Close()
		wg.Wait()
	})
	c.JitterMax = -1
	if c.Law == "" {
		c.Law = "aimd" // its arithmetic is known
	}
	g, err := headway.New(c)
	if err != nil {
		t.Fatal(err)
	}
	o.Base = base
	tr, err := transport.New(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: tr}, tr
}

// script answers the n-th request with the n-th status; the last one stays.
func script(arrivals *[]time.Time, statuses ...int) http.HandlerFunc {
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
		*arrivals = append(*arrivals, time.Now())
		status := statuses[min(n, len(statuses)-1)]
		n++
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "100")
		}
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "%d %s", status, body)
	}
}

func get(t *testing.T, c *http.Client) (int, string, error) {
	t.Helper()
	return send(t, c, http.MethodGet, nil, t.Context())
}

func send(t *testing.T, c *http.Client, method string, body io.Reader, ctx context.Context) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://api.test/x?secret=canary", body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b), nil
}

var flat = headway.Config{Ceiling: time.Second, Initial: time.Second, Tolerance: -1}

func TestRetryAfterIsPaidOnceAndTheRequestSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		c, tr := serve(t, flat, transport.Options{}, script(&at, 429, 200))
		start := time.Now()
		if status, body, err := get(t, c); status != 200 || body != "200 " || err != nil {
			t.Fatalf("got %d %q %v", status, body, err)
		}
		for range 2 {
			if _, _, err := get(t, c); err != nil {
				t.Fatal(err)
			}
		}
		var gaps []time.Duration
		for _, a := range at {
			gaps = append(gaps, a.Sub(start))
			start = a
		}
		// The throttle doubled the interval once; the wait was paid once.
		want := []time.Duration{0, 100 * time.Second, 2 * time.Second, 1900 * time.Millisecond}
		for i := range want {
			if gaps[i] != want[i] {
				t.Fatalf("the provider saw gaps of %v, want %v", gaps, want)
			}
		}
		if tr.RetriesLeft() != 7 {
			t.Fatalf("%d retries left, one of 8 was used", tr.RetriesLeft())
		}
	})
}

// Of two requests under way the one has to wait a minute and the other, later,
// three seconds: nothing is sent within the minute.
func TestALaterShorterRetryAfterSendsNothingEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var late []time.Duration // when what follows the two arrives
		seen, start := 0, time.Now()
		c, _ := serve(t, headway.Config{Ceiling: time.Millisecond, Initial: time.Millisecond, Tolerance: -1}, transport.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			seen++
			n := seen
			if n > 2 {
				late = append(late, time.Since(start))
			}
			mu.Unlock()
			switch n {
			case 1:
				time.Sleep(time.Second)
				w.Header().Set("Retry-After", "60")
				w.WriteHeader(http.StatusTooManyRequests)
			case 2:
				time.Sleep(10 * time.Second)
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if status, _, err := get(t, c); status != http.StatusOK || err != nil {
					t.Errorf("got %d, %v", status, err)
				}
			})
		}
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(late) != 2 || slices.Min(late) < 61*time.Second {
			t.Errorf("the provider was asked again after %v, want two requests after 1m1s", late)
		}
	})
}

func TestWhatIsRetriedAndWhatIsNot(t *testing.T) {
	for _, tt := range []struct {
		status, attempts int
	}{
		{200, 1}, {204, 1}, {304, 1}, {400, 1}, {401, 1}, {403, 1}, {404, 1}, {409, 1},
		{408, 3}, {500, 3}, {502, 3}, {503, 3}, {504, 3},
	} {
		t.Run(fmt.Sprint(tt.status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				c, _ := serve(t, flat, transport.Options{Backoff: retry.Backoff{Attempts: 3}}, script(&at, tt.status))
				status, body, err := get(t, c)
				if err != nil || status != tt.status || len(at) != tt.attempts {
					t.Fatalf("got %d %v after %d attempts, want %d after %d", status, err, len(at), tt.status, tt.attempts)
				}
				if tt.status != 204 && tt.status != 304 && body != fmt.Sprintf("%d ", tt.status) {
					t.Fatalf("the last response came with body %q", body)
				}
			})
		})
	}
}

func TestABodyIsRewoundAndAPostIsNotRepeatedUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		c, _ := serve(t, flat, transport.Options{}, script(&at, 500, 200))
		if status, body, err := send(t, c, http.MethodPut, strings.NewReader("payload"), t.Context()); status != 200 || body != "200 payload" || err != nil {
			t.Fatalf("PUT: %d %q %v", status, body, err)
		}
		at = nil
		c, _ = serve(t, flat, transport.Options{}, script(&at, 500, 200))
		if status, _, _ := send(t, c, http.MethodPost, strings.NewReader("payload"), t.Context()); status != 500 || len(at) != 1 {
			t.Fatalf("POST: %d after %d attempts", status, len(at))
		}
		at = nil
		c, _ = serve(t, flat, transport.Options{Retryable: func(*http.Request) bool { return true }}, script(&at, 500, 200))
		if status, body, _ := send(t, c, http.MethodPost, strings.NewReader("payload"), t.Context()); status != 200 || body != "200 payload" {
			t.Fatalf("POST that the caller allows: %d %q", status, body)
		}
		at = nil
		c, _ = serve(t, flat, transport.Options{}, script(&at, 500, 200))
		once := struct{ io.Reader }{strings.NewReader("payload")} // no GetBody
		if status, _, _ := send(t, c, http.MethodPut, once, t.Context()); status != 500 || len(at) != 1 {
			t.Fatalf("a body that cannot be rewound: %d after %d attempts", status, len(at))
		}
	})
}

func TestAnEmptyRetryBudgetStopsRetriesAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		c, tr := serve(t, headway.Config{Ceiling: time.Millisecond, Initial: time.Millisecond, NoBreaker: true},
			transport.Options{Budget: retry.Limits{Start: 2}}, script(&at, 500))
		var trace transport.Trace
		status, _, err := send(t, c, http.MethodGet, nil, transport.WithTrace(t.Context(), &trace))
		if status != 500 || err != nil || len(at) != 3 || trace.Attempts != 3 {
			t.Fatalf("got %d %v after %d attempts (trace %d)", status, err, len(at), trace.Attempts)
		}
		if trace.Stopped == nil || trace.Stopped.Reason != reason.RetryBudget.Reason() || tr.RetriesLeft() != 0 {
			t.Fatalf("stopped by %v, %d left", trace.Stopped, tr.RetriesLeft())
		}
	})
}

func TestAnOpenCircuitFailsAtOnceAndSparesTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		c, tr := serve(t, headway.Config{Ceiling: time.Millisecond, Initial: time.Millisecond},
			transport.Options{Backoff: retry.Backoff{Attempts: 50}}, script(&at, 500))
		var trace transport.Trace
		status, _, err := send(t, c, http.MethodGet, nil, transport.WithTrace(t.Context(), &trace))
		if status != 500 || err != nil || len(at) != 5 || trace.Stopped.Reason != reason.CircuitOpen.Reason() {
			t.Fatalf("got %d %v after %d attempts, stopped by %v", status, err, len(at), trace.Stopped)
		}
		left, start := tr.RetriesLeft(), time.Now()
		_, _, err = get(t, c)
		r, ok := errors.AsType[*reason.Refusal](err)
		if !ok || r.Reason != reason.CircuitOpen.Reason() || time.Since(start) != 0 || len(at) != 5 || tr.RetriesLeft() != left {
			t.Fatalf("got %v after %v, %d attempts, %d retries left", err, time.Since(start), len(at), tr.RetriesLeft())
		}
	})
}

func TestALongRetryAfterGivesTheResponseBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		conf := flat
		conf.MaxWait = time.Minute
		c, _ := serve(t, conf, transport.Options{}, script(&at, 429))
		var trace transport.Trace
		status, body, err := send(t, c, http.MethodGet, nil, transport.WithTrace(t.Context(), &trace))
		if status != 429 || body != "429 " || err != nil || len(at) != 1 {
			t.Fatalf("got %d %q %v after %d attempts", status, body, err, len(at))
		}
		if trace.Stopped == nil || trace.Stopped.Reason != reason.RateLimited.Reason() || trace.Stopped.RetryAt.IsZero() {
			t.Fatalf("stopped by %+v", trace.Stopped)
		}
	})
}

func TestALostConnectionIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c, _ := serve(t, flat, transport.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			if n++; n == 1 {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, "fine")
		})
		if _, body, err := get(t, c); body != "fine" || err != nil || n != 2 {
			t.Fatalf("got %q %v after %d attempts", body, err, n)
		}
	})
}

func TestAnAttemptIsBoundedAndACanceledRequestTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []transport.Attempt
		o := transport.Options{
			Timeout: 10 * time.Second, Backoff: retry.Backoff{Attempts: 2},
			Observe: func(a transport.Attempt) { seen = append(seen, a) },
		}
		c, tr := serve(t, flat, o, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		_, _, err := get(t, c)
		if !errors.Is(err, context.DeadlineExceeded) || len(seen) != 2 || seen[0].Latency != 10*time.Second || seen[0].Class != reason.Lost {
			t.Fatalf("got %v after %+v", err, seen)
		}
		seen = nil
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, _, err := send(t, c, http.MethodGet, nil, ctx); err == nil || len(seen) != 1 || seen[0].Class != reason.Unknown {
			t.Fatalf("got %v after %+v", err, seen)
		}
		if s := tr.Governor().Snapshot(); s.InFlight != 0 {
			t.Fatalf("a permit leaked: %+v", s)
		}
	})
}

func TestTheGateStopsBeforeAnythingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		left := 2
		o := transport.Options{Gate: func() error {
			if left--; left < 0 {
				return &reason.Refusal{Reason: reason.MaxRequests.Reason()}
			}
			return nil
		}}
		c, _ := serve(t, flat, o, script(&at, 500))
		if status, _, err := get(t, c); status != 500 || err != nil || len(at) != 2 {
			t.Fatalf("got %d %v after %d attempts", status, err, len(at))
		}
		_, _, err := get(t, c)
		if r, ok := errors.AsType[*reason.Refusal](err); !ok || r.Reason != reason.MaxRequests.Reason() || len(at) != 2 {
			t.Fatalf("got %v after %d attempts", err, len(at))
		}
	})
}

func TestALargeErrorBodyComesThroughWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := bytes.Repeat([]byte("x"), 300_000)
		c, _ := serve(t, flat, transport.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(want)
		})
		if status, body, err := get(t, c); status != 400 || body != string(want) || err != nil {
			t.Fatalf("got %d, %d bytes, %v", status, len(body), err)
		}
	})
}

func TestClassifyOverrules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		o := transport.Options{
			Backoff: retry.Backoff{Attempts: 2},
			Classify: func(status int, _ http.Header, body []byte) (reason.Class, bool) {
				return reason.Throttled, status == 420 && bytes.HasPrefix(body, []byte("420"))
			},
		}
		c, tr := serve(t, flat, o, script(&at, 420))
		if status, _, _ := get(t, c); status != 420 || len(at) != 2 {
			t.Fatalf("got %d after %d attempts", status, len(at))
		}
		if s := tr.Governor().Snapshot(); s.Rate.LastBackoff == nil {
			t.Fatal("the throttle did not slow the pacing")
		}
	})
}

func TestABodyThatBreaksOffIsAFailureWhenItIsPartOfTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c, _ := serve(t, flat, transport.Options{Whole: 100}, func(w http.ResponseWriter, r *http.Request) {
			switch n++; n {
			case 1:
				w.Header().Set("Content-Length", "10")
				_, _ = io.WriteString(w, "half")
				panic(http.ErrAbortHandler)
			case 2:
				_, _ = io.WriteString(w, "whole")
			default:
				_, _ = w.Write(make([]byte, 101))
			}
		})
		if _, body, err := get(t, c); body != "whole" || err != nil || n != 2 {
			t.Fatalf("got %q %v after %d attempts", body, err, n)
		}
		if _, _, err := get(t, c); !errors.Is(err, transport.ErrTooLarge) || n != 3 {
			t.Fatalf("got %v after %d attempts", err, n)
		}
	})
}

func TestNoAttemptBeginsAfterTheDeadlineAndNoneIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		o := transport.Options{Deadline: time.Now().Add(90 * time.Second)}
		c, _ := serve(t, flat, o, func(w http.ResponseWriter, r *http.Request) {
			at = append(at, time.Now())
			time.Sleep(2 * time.Minute) // past the deadline
		})
		if status, _, err := get(t, c); status != 200 || err != nil {
			t.Fatalf("an attempt under way was cut: %d %v", status, err)
		}
		if _, _, err := get(t, c); !errors.Is(err, context.DeadlineExceeded) || len(at) != 1 {
			t.Fatalf("got %v after %d attempts", err, len(at))
		}
		c, _ = serve(t, flat, transport.Options{Deadline: time.Now().Add(90 * time.Second)}, script(&at, 429))
		var trace transport.Trace
		start := time.Now()
		if status, _, err := send(t, c, http.MethodGet, nil, transport.WithTrace(t.Context(), &trace)); status != 429 || err != nil || time.Since(start) > time.Second {
			t.Fatalf("a wait past the deadline: %d %v after %v", status, err, time.Since(start))
		}
		if trace.Stopped == nil || trace.Stopped.Reason != reason.Deadline {
			t.Fatalf("stopped by %v", trace.Stopped)
		}
	})
}

func TestARefusalInsideASuccessIsOverruledWhenTheBodyIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		o := transport.Options{
			Whole: 1000, Backoff: retry.Backoff{Attempts: 2},
			Classify: func(_ int, _ http.Header, body []byte) (reason.Class, bool) {
				return reason.Throttled, bytes.HasPrefix(body, []byte("200"))
			},
		}
		c, _ := serve(t, flat, o, script(&at, 200))
		if status, body, err := get(t, c); status != 200 || body != "200 " || err != nil || len(at) != 2 {
			t.Fatalf("got %d %q %v after %d attempts", status, body, err, len(at))
		}
	})
}

func TestOptionsNameFieldValueAndBound(t *testing.T) {
	g, _ := headway.New(headway.Config{})
	for _, tt := range []struct {
		o    transport.Options
		want string
	}{
		{transport.Options{Timeout: -1}, "timeout is -1ns"},
		{transport.Options{Backoff: retry.Backoff{Attempts: -1}}, "attempts is -1"},
		{transport.Options{Budget: retry.Limits{Start: -1}}, "start is -1"},
	} {
		if _, err := transport.New(g, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}

func TestTheCostIsAskedForEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		asked := 0
		cost := func(*http.Request) float64 { asked++; return 700 }
		c, _ := serve(t, flat, transport.Options{Cost: cost}, script(&at, 429, 200))
		if status, _, err := get(t, c); status != 200 || err != nil {
			t.Fatalf("got %d, %v", status, err)
		}
		if asked != len(at) || asked != 2 {
			t.Errorf("asked %d times for %d attempts, want 2", asked, len(at))
		}
	})
}

// BenchmarkBesideBareClient compares calls of a client whose transport starts passively
// with those of a bare one, in turn, over loopback: the ratio of calls per second.
func BenchmarkBesideBareClient(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<10))
	}))
	defer server.Close()
	for _, clients := range []int{1, 8, 64, 256} {
		b.Run(strconv.Itoa(clients), func(b *testing.B) {
			const calls = 20
			g, err := headway.New(headway.Config{Passive: true})
			if err != nil {
				b.Fatal(err)
			}
			governed, err := transport.New(g, transport.Options{
				Base: &http.Transport{MaxIdleConnsPerHost: 256},
			})
			if err != nil {
				b.Fatal(err)
			}
			sides := [2]*http.Client{{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}, {Transport: governed}}
			var ratios []float64
			for b.Loop() {
				var took [2]time.Duration
				first := len(ratios) % 2
				for _, i := range [2]int{first, 1 - first} {
					began := time.Now()
					var all sync.WaitGroup
					for range clients {
						all.Go(func() {
							for range calls {
								res, err := sides[i].Get(server.URL)
								if err != nil {
									b.Error(err)
									return
								}
								_, _ = io.Copy(io.Discard, res.Body)
								_ = res.Body.Close()
							}
						})
					}
					all.Wait()
					took[i] = time.Since(began)
				}
				ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
		})
	}
}
