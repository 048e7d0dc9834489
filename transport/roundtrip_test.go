package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
	"github.com/headway-go/headway/signal"
	"github.com/headway-go/headway/transport"
)

// base is a provider without a network.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(r *http.Request) (*http.Response, error) { return b(r) }

// answers gives a response for each status in turn; the last one stays.
func answers(sent *int, statuses ...int) base {
	return func(*http.Request) (*http.Response, error) {
		status := statuses[min(*sent, len(statuses)-1)]
		*sent++
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("body"))}, nil
	}
}

func over(t *testing.T, c headway.Config, o transport.Options) *transport.Transport {
	t.Helper()
	c.JitterMax = -1
	if c.Law == "" {
		c.Law = "aimd"
	}
	g, err := headway.New(c)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := transport.New(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func request(t *testing.T, ctx context.Context, method string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://api.test/", body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// own is a context that the standard library does not know: whatever is derived
// from it and never ended leaves a goroutine behind, at which the bubble fails.
type own struct {
	context.Context
	done chan struct{}
}

func (o own) Done() <-chan struct{} { return o.done }

func TestNoAttemptLeavesAnythingBehind(t *testing.T) {
	broken := errors.New("broken")
	fine := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("body"))}, nil
	}
	for _, tt := range []struct {
		name string
		o    transport.Options
		err  error
		body func() (io.ReadCloser, error) // for the second attempt
	}{
		{name: "a success", o: transport.Options{Base: base(fine)}},
		{name: "a success in time", o: transport.Options{Base: base(fine), Timeout: time.Hour}},
		{name: "a whole body", o: transport.Options{Base: base(fine), Whole: 100}},
		{name: "a body that is too long", o: transport.Options{Base: base(fine), Whole: 1}, err: transport.ErrTooLarge},
		{name: "waits that may end", o: transport.Options{Base: base(fine), Waiting: context.Background()}},
		{name: "a deadline", o: transport.Options{Base: base(fine), Deadline: time.Now().Add(time.Hour)}},
		{name: "a failure", err: broken, o: transport.Options{
			Base: base(func(*http.Request) (*http.Response, error) { return nil, broken }),
		}},
		{name: "a gate", err: broken, o: transport.Options{Base: base(fine), Gate: func() error { return broken }}},
		{name: "a body that is not to be had again", err: io.ErrClosedPipe, body: func() (io.ReadCloser, error) { return nil, broken }, o: transport.Options{
			Base: base(func(*http.Request) (*http.Response, error) { return nil, io.ErrClosedPipe }),
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if !tt.o.Deadline.IsZero() {
					tt.o.Deadline = time.Now().Add(time.Hour)
				}
				tr := over(t, quick, tt.o)
				req := request(t, own{t.Context(), make(chan struct{})}, http.MethodPut, strings.NewReader("x"))
				if tt.body != nil {
					req.GetBody = tt.body
				}
				res, err := tr.RoundTrip(req)
				if !errors.Is(err, tt.err) || err != nil && res != nil {
					t.Fatalf("got %v, %v, want %v", res, err, tt.err)
				}
				if err == nil {
					_ = res.Body.Close()
				}
				if in := tr.Governor().Snapshot().InFlight; in != 0 {
					t.Errorf("%d permits are out", in)
				}
			})
		})
	}
}

func TestAnAttemptThatIsSentAgainAndAgainSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := over(t, quick, transport.Options{Backoff: retry.Backoff{Attempts: 1}, Base: base(func(r *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(r.Context())
			for r.Context().Err() == nil {
				trace.GotConn(httptrace.GotConnInfo{})
			}
			return nil, r.Context().Err()
		})})
		if _, err := tr.RoundTrip(request(t, t.Context(), http.MethodGet, nil)); !errors.Is(err, transport.ErrResent) {
			t.Errorf("got %v", err)
		}
	})
}

// idle is a body that is never to be read.
type idle struct{ t *testing.T }

func (b idle) Read([]byte) (int, error) { b.t.Error("the body was read"); return 0, io.EOF }
func (b idle) Close() error             { return nil }

func TestWhichAnswersAreClassifiedAndWithWhat(t *testing.T) {
	for _, tt := range []struct {
		status int
		whole  int64
		want   []int // bytes of the body at each call
	}{
		{status: 200}, {status: 399},
		{status: 400, want: []int{signal.MaxBody}},
		{status: 404, want: []int{signal.MaxBody}},
		{status: 200, whole: 1 << 20, want: []int{signal.MaxBody}},
		{status: 400, whole: 1 << 20, want: []int{signal.MaxBody}},
		{status: 200, whole: 1, want: []int{1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []int
			tr := over(t, quick, transport.Options{
				Whole: tt.whole, Backoff: retry.Backoff{Attempts: 1},
				Classify: func(status int, _ http.Header, body []byte) (reason.Class, bool) {
					got = append(got, len(body))
					return 0, false
				},
				Base: base(func(*http.Request) (*http.Response, error) {
					res := &http.Response{StatusCode: tt.status, Header: http.Header{}, Body: idle{t}}
					if tt.want != nil {
						size := signal.MaxBody + 10
						if tt.whole > 0 {
							size = min(size, int(tt.whole))
						}
						res.Body = io.NopCloser(bytes.NewReader(make([]byte, size)))
					}
					return res, nil
				}),
			})
			if _, err := tr.RoundTrip(request(t, t.Context(), http.MethodGet, nil)); err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("a %d, whole %d: classified with bodies of %v, want %v; %v", tt.status, tt.whole, got, tt.want, err)
			}
		})
	}
}

func TestTheBoundOfAWholeBodyMayBeOneByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent int
		tr := over(t, quick, transport.Options{Whole: 1, Base: answers(&sent, 200)})
		if _, err := tr.RoundTrip(request(t, t.Context(), http.MethodGet, nil)); !errors.Is(err, transport.ErrTooLarge) || sent != 1 {
			t.Errorf("got %v after %d attempts", err, sent)
		}
	})
}

func TestAnAttemptsShortestTimeIsATimeToo(t *testing.T) {
	for _, timeout := range []time.Duration{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			tr := over(t, quick, transport.Options{Timeout: timeout, Base: base(func(r *http.Request) (*http.Response, error) {
				if _, bounded := r.Context().Deadline(); bounded != (timeout > 0) {
					t.Errorf("timeout %v: bounded %v", timeout, bounded)
				}
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
			})})
			if _, err := tr.RoundTrip(request(t, t.Context(), http.MethodGet, nil)); err != nil {
				t.Error(err)
			}
		})
	}
}

// kept is a body that says how often it was closed.
type kept struct {
	io.Reader
	closed *int
}

func (k kept) Close() error { *k.closed++; return nil }

func TestEachAttemptHasTheWholeBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []string
		tr := over(t, quick, transport.Options{Base: base(func(r *http.Request) (*http.Response, error) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			bodies = append(bodies, string(b))
			return &http.Response{StatusCode: 500, Header: http.Header{}, Body: http.NoBody}, nil
		}), Backoff: retry.Backoff{Attempts: 3}})
		req, made := request(t, t.Context(), http.MethodPut, strings.NewReader("payload")), 0
		again := req.GetBody
		req.GetBody = func() (io.ReadCloser, error) { made++; return again() }
		if _, err := tr.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		if want := []string{"payload", "payload", "payload"}; !slices.Equal(bodies, want) || made != 2 {
			t.Errorf("sent %q, with %d bodies made again", bodies, made)
		}
	})
}

func TestARequestThatIsNotSentIsClosedAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, sent := 0, 0
		full := &reason.Refusal{Reason: reason.MaxRequests.Reason()}
		tr := over(t, quick, transport.Options{Base: answers(&sent, 200), Gate: func() error { return full }, Budget: retry.Limits{Start: 2}})
		var trace transport.Trace
		req := request(t, transport.WithTrace(t.Context(), &trace), http.MethodPut, kept{strings.NewReader("x"), &closed})
		if _, err := tr.RoundTrip(req); !errors.Is(err, full) || closed != 1 || sent != 0 {
			t.Errorf("got %v; closed %d times, %d sent", err, closed, sent)
		}
		if trace.Stopped != full || trace.Attempts != 0 || tr.RetriesLeft() != 2 {
			t.Errorf("trace %+v, %d retries left of 2", trace, tr.RetriesLeft())
		}
	})
}

func TestWhatMayBeSentTwice(t *testing.T) {
	for _, tt := range []struct {
		name, header string
		body         io.Reader
		method       string
		attempts     int
	}{
		{"a GET", "", nil, http.MethodGet, 2},
		{"a PUT with a body of nothing", "", http.NoBody, http.MethodPut, 2},
		{"a PUT", "", strings.NewReader("x"), http.MethodPut, 2},
		{"a PUT of a stream", "", struct{ io.Reader }{strings.NewReader("x")}, http.MethodPut, 1},
		{"a POST", "", nil, http.MethodPost, 1},
		{"a POST with a key", "Idempotency-Key", nil, http.MethodPost, 2},
		{"a POST with the older key", "X-Idempotency-Key", nil, http.MethodPost, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			var sent int
			tr := over(t, quick, transport.Options{Backoff: retry.Backoff{Attempts: 2}, Base: answers(&sent, 500)})
			req := request(t, t.Context(), tt.method, tt.body)
			if tt.body == http.NoBody {
				req.Body, req.GetBody = http.NoBody, nil // as a server hands requests on
			}
			if tt.header != "" {
				req.Header.Set(tt.header, "k")
			}
			if _, err := tr.RoundTrip(req); err != nil || sent != tt.attempts {
				t.Errorf("%s: %d attempts, %v, want %d", tt.name, sent, err, tt.attempts)
			}
		})
	}
}

func TestATraceHasTheLastAnswersSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trace transport.Trace
		sent := 0
		tr := over(t, quick, transport.Options{Base: answers(&sent, 500, 404)})
		if _, err := tr.RoundTrip(request(t, transport.WithTrace(t.Context(), &trace), http.MethodGet, nil)); err != nil {
			t.Fatal(err)
		}
		if trace.Signal.Class != reason.Rejected || trace.Attempts != 2 || trace.Stopped != nil {
			t.Errorf("trace %+v", trace)
		}
	})
}

func TestSteadySuccessesSpeedNothingUp(t *testing.T) {
	interval := func(t *testing.T, ctx context.Context) (ms float64) {
		sent := 0
		tr := over(t, headway.Config{Ceiling: time.Millisecond, Initial: time.Second, Tolerance: -1}, transport.Options{Base: answers(&sent, 200)})
		for range 10 {
			if _, err := tr.RoundTrip(request(t, ctx, http.MethodGet, nil)); err != nil {
				t.Fatal(err)
			}
		}
		return tr.Governor().Snapshot().Rate.CurrentIntervalMS
	}
	synctest.Test(t, func(t *testing.T) {
		if got := interval(t, transport.WithSteady(t.Context())); got != 1000 {
			t.Errorf("steady: %v ms", got)
		}
		if got := interval(t, t.Context()); got >= 1000 {
			t.Errorf("not steady: %v ms", got)
		}
	})
}

func TestTheFirstRetryWaitsAtMostTheBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 60 {
			var at []time.Time
			tr := over(t, quick, transport.Options{
				Backoff: retry.Backoff{Base: time.Minute, Cap: time.Hour, Attempts: 2},
				Base: base(func(*http.Request) (*http.Response, error) {
					at = append(at, time.Now())
					return &http.Response{StatusCode: 500, Header: http.Header{}, Body: http.NoBody}, nil
				}),
			})
			if _, err := tr.RoundTrip(request(t, t.Context(), http.MethodGet, nil)); err != nil || len(at) != 2 {
				t.Fatalf("%d attempts, %v", len(at), err)
			}
			if wait := at[1].Sub(at[0]); wait > time.Minute+10*time.Millisecond {
				t.Fatalf("the first retry came after %v, want at most a minute", wait)
			}
		}
	})
}

func TestNothingWaitsForARetryThatIsNotPaidFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		tr := over(t, quick, transport.Options{
			Backoff: retry.Backoff{Base: time.Hour, Cap: time.Hour}, Budget: retry.Limits{Start: 1},
			Base: base(func(*http.Request) (*http.Response, error) {
				last = time.Now()
				return &http.Response{StatusCode: 500, Header: http.Header{}, Body: http.NoBody}, nil
			}),
		})
		var trace transport.Trace
		if _, err := tr.RoundTrip(request(t, transport.WithTrace(t.Context(), &trace), http.MethodGet, nil)); err != nil {
			t.Fatal(err)
		}
		if trace.Attempts != 2 || !time.Now().Equal(last) {
			t.Errorf("%d attempts, and %v more of waiting", trace.Attempts, time.Since(last))
		}
	})
}

func TestWhatGaveUpIsAnnouncedWithItsWait(t *testing.T) {
	long := headway.Config{Ceiling: 2 * time.Minute, Initial: 2 * time.Minute, MaxWait: time.Hour, Tolerance: -1}
	for _, tt := range []struct {
		name     string
		conf     headway.Config
		statuses []int
		o        transport.Options
		requests int // the last one gives up
		stopped  reason.Reason
		want     transport.Attempt
		context  bool // the request's context ends
		waiting  bool // the waiting ends
		own      bool // the request's own waiting ends
	}{
		{
			name: "for a permit, with a waiting of its own", conf: long, statuses: []int{200}, requests: 2, stopped: reason.Interrupted, own: true,
			want: transport.Attempt{Number: 1, Wait: time.Minute, Held: headway.Wait{Reason: reason.Pacing, Bound: reason.BoundCeiling}},
		},
		{
			name: "for the backoff, with a waiting of its own", conf: quick, statuses: []int{500}, requests: 1, stopped: reason.Interrupted, own: true,
			o:    transport.Options{Backoff: retry.Backoff{Base: 1 << 60, Cap: 1 << 60}},
			want: transport.Attempt{Number: 2},
		},
		{
			name: "for a permit", conf: long, statuses: []int{200}, requests: 2, stopped: reason.Interrupted, waiting: true,
			want: transport.Attempt{Number: 1, Wait: time.Minute, Held: headway.Wait{Reason: reason.Pacing, Bound: reason.BoundCeiling}},
		},
		{
			name: "for a permit, and the caller left", conf: long, statuses: []int{200}, requests: 2, stopped: reason.Canceled, context: true,
			want: transport.Attempt{Number: 1, Wait: time.Minute, Held: headway.Wait{Reason: reason.Pacing, Bound: reason.BoundCeiling}},
		},
		{
			name: "for a permit, and both ended", conf: long, statuses: []int{200}, requests: 2, stopped: reason.Canceled, context: true, waiting: true,
			want: transport.Attempt{Number: 1, Wait: time.Minute, Held: headway.Wait{Reason: reason.Pacing, Bound: reason.BoundCeiling}},
		},
		{
			name: "for the backoff", conf: quick, statuses: []int{500}, requests: 1, stopped: reason.Interrupted, waiting: true,
			o:    transport.Options{Backoff: retry.Backoff{Base: 1 << 60, Cap: 1 << 60}},
			want: transport.Attempt{Number: 2},
		},
		{
			name: "for the backoff, and the caller left", conf: quick, statuses: []int{500}, requests: 1, stopped: reason.Canceled, context: true,
			o:    transport.Options{Backoff: retry.Backoff{Base: 1 << 60, Cap: 1 << 60}},
			want: transport.Attempt{Number: 2},
		},
		{
			name: "for the gate", conf: quick, statuses: []int{200}, requests: 1, stopped: reason.MaxRequests.Reason(),
			o:    transport.Options{Gate: func() error { return &reason.Refusal{Reason: reason.MaxRequests.Reason()} }},
			want: transport.Attempt{Number: 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ending, end := context.WithCancel(t.Context())
				defer end()
				defer time.AfterFunc(time.Minute, end).Stop()
				var gave []transport.Attempt
				sent := 0
				o := tt.o
				o.Base, o.GaveUp = answers(&sent, tt.statuses...), func(a transport.Attempt) { gave = append(gave, a) }
				ctx := t.Context()
				o.Waiting = ctx
				if tt.context {
					ctx = ending
				}
				if tt.waiting {
					o.Waiting = ending
				}
				if tt.own { // the transport's own goes on
					ctx = transport.WithWaiting(ctx, ending)
				}
				tr := over(t, tt.conf, o)
				var trace transport.Trace
				for n := range tt.requests {
					trace = transport.Trace{}
					res, err := tr.RoundTrip(request(t, transport.WithTrace(ctx, &trace), http.MethodGet, nil))
					if n+1 < tt.requests && err != nil || err == nil && res == nil {
						t.Fatalf("request %d: %v, %v", n, res, err)
					}
				}
				if trace.Stopped == nil || trace.Stopped.Reason != tt.stopped {
					t.Errorf("stopped by %+v, want %v", trace.Stopped, tt.stopped)
				}
				if tt.context && !errors.Is(trace.Stopped.Err, context.Canceled) {
					t.Errorf("stopped by %+v, want a canceled context as its cause", trace.Stopped)
				}
				if len(gave) != 1 || fmt.Sprint(gave[0]) != fmt.Sprint(tt.want) {
					t.Errorf("gave up %+v, want %+v", gave, tt.want)
				}
			})
		})
	}
}
