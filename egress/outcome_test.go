package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/internal/wire"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// fresh is an attempt that was sent and answered just now.
func fresh(t *testing.T, send http.RoundTripper) *attempt {
	t.Helper()
	d, err := provider.New(provider.Settings{API: provider.OpenAI, Upstream: "http://upstream"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{Providers: []Provider{{Name: "p", Description: d, Key: "k", Roundtripper: send}}})
	if err != nil {
		t.Fatal(err)
	}
	up := p.table.Load().upstreams["p"]
	w := httptest.NewRecorder()
	c := &call{
		accepted:  accepted{proxy: p, table: p.table.Load(), up: up, w: w, rc: http.NewResponseController(w), rest: "/v1/x"},
		parsed:    parsed{whole: true, asked: provider.Call{Model: "m", Metered: true, Choices: 1}},
		estimated: estimated{request: quota.Request{Model: "m", InputTokens: 1}},
	}
	c.r = httptest.NewRequest("POST", "/p/v1/x", nil)
	c.ctx, c.cancel = context.WithCancelCause(t.Context())
	a := c.begin()
	a.tried, a.answerAt, a.status, a.header = true, time.Now(), 200, http.Header{}
	a.sent.Store(true)
	t.Cleanup(func() { c.cancel(nil) })
	return a
}

func TestWhatPacingLearnsOfAnAttempt(t *testing.T) {
	limits := http.Header{"X-Ratelimit-Limit-Requests": {"60"}, "X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"30s"}}
	for name, c := range map[string]struct {
		set   func(a *attempt)
		class reason.Class
		retry time.Duration
		cost  float64
		left  float64 // of the first fact; -2 is that there are no facts
	}{
		"nothing was sent": {func(a *attempt) { a.tried = false }, reason.Unknown, 0, 0, -2},
		"a success": {func(a *attempt) {
			a.class, a.used, a.signal = reason.OK, quota.Usage{Input: 30, Output: 12}, signal.Read(a.answerAt, 200, limits, nil)
		}, reason.OK, 0, 42, 0},
		"a success whose header is old": {func(a *attempt) {
			a.class, a.used, a.signal = reason.OK, quota.Usage{Input: 30, Output: 12}, signal.Read(a.answerAt, 200, limits, nil)
			a.answerAt = a.answerAt.Add(-stale - time.Millisecond)
		}, reason.OK, 0, 42, signal.Unknown},
		"a success whose header is just not old": {func(a *attempt) {
			a.class, a.signal = reason.OK, signal.Read(a.answerAt, 200, limits, nil)
			a.answerAt = a.answerAt.Add(-stale)
		}, reason.OK, 0, 0, 0},
		"a throttle": {func(a *attempt) {
			a.class, a.signal = reason.Throttled, signal.Signal{HasRetryAfter: true, RetryAfter: 7 * time.Second}
		}, reason.Throttled, 7 * time.Second, 0, -2},
		"one that asks for days, which the governor bounds": {func(a *attempt) {
			a.class, a.signal = reason.Throttled, signal.Signal{HasRetryAfter: true, RetryAfter: 48 * time.Hour}
		}, reason.Throttled, 48 * time.Hour, 0, -2},
		"a long quota that is used up": {func(a *attempt) {
			a.class, a.signal = reason.Throttled, signal.Signal{HasRetryAfter: true, RetryAfter: time.Minute, Exhausted: true}
		}, reason.Rejected, 0, 0, -2},
		"money that is used up": {func(a *attempt) {
			a.class, a.signal = reason.Rejected, signal.Signal{HasRetryAfter: true, RetryAfter: time.Minute, Exhausted: true}
		}, reason.Rejected, time.Minute, 0, -2},
		"an error within a stream": {func(a *attempt) { a.class, a.problem = reason.Failed, usage.OtherProblem }, reason.Rejected, 0, 0, -2},
		"a failure":                {func(a *attempt) { a.class = reason.Failed }, reason.Failed, 0, 0, -2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := fresh(t, http.DefaultTransport)
				c.set(a)
				o := a.outcome()
				if o.Class != c.class || o.RetryAfter != c.retry || o.Cost != c.cost {
					t.Errorf("outcome %+v", o)
				}
				left := -2.0
				if len(o.Facts) > 0 {
					left = float64(o.Facts[0].Remaining)
				}
				if left != c.left {
					t.Errorf("%v are left, want %v, in %+v", left, c.left, o.Facts)
				}
			})
		})
	}
}

func TestErrorsInsideAnAnswerAreWhatTheyWouldBeOutside(t *testing.T) {
	for problem, c := range map[string]struct {
		class               reason.Class
		exhausted           bool
		throttles, failures int64
	}{
		usage.NoProblem:    {reason.OK, false, 0, 0},
		usage.RateLimited:  {reason.Throttled, false, 1, 0},
		usage.Overloaded:   {reason.Overloaded, false, 1, 0},
		usage.QuotaSpent:   {reason.Throttled, true, 1, 0},
		usage.OtherProblem: {reason.Failed, false, 0, 1},
	} {
		a := fresh(t, http.DefaultTransport)
		a.conclude(&usage.Report{Problem: problem})
		u := a.call.up
		if a.class != c.class || a.call.log.Class != c.class || a.signal.Exhausted != c.exhausted || (u.credentials[0].spent.left(time.Now(), "m") > 0) != c.exhausted ||
			u.counters.throttles.Load() != c.throttles || u.counters.failures.Load() != c.failures {
			t.Errorf("%q: class %v, signal %+v, %d throttles, %d failures", problem, a.class, a.signal, u.counters.throttles.Load(), u.counters.failures.Load())
		}
	}
	a := fresh(t, http.DefaultTransport)
	a.class = reason.Throttled
	a.conclude(&usage.Report{Problem: usage.OtherProblem})
	if a.class != reason.Throttled {
		t.Errorf("class %v, want that it stays", a.class)
	}
}

// TestAnUpstreamThatEndsConnectionsIsAskedOnFewOfThem: net/http sends a request
// again by itself, for as long as the server says that it has not looked at it.
func TestAnUpstreamThatEndsConnectionsIsAskedOnFewOfThem(t *testing.T) {
	for opened, cut := range map[int]bool{wire.MaxConnections: false, wire.MaxConnections + 1: true} {
		var within error
		a := fresh(t, trip(func(r *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(r.Context())
			trace.GotConn(httptrace.GotConnInfo{Reused: true}) // one that was there does not count
			for range opened {
				trace.GotConn(httptrace.GotConnInfo{})
			}
			within = context.Cause(r.Context())
			return nil, io.ErrUnexpectedEOF
		}))
		if _, err := a.send(); err == nil || errors.Is(within, wire.ErrResent) != cut {
			t.Errorf("%d connections: %v, the attempt ended with %v", opened, err, within)
		}
		a.settle()
	}
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestABodyThatWasNotReadWholeIsSentOnce(t *testing.T) {
	for kind, want := range map[string]int{"application/octet-stream": 1, "application/json": 3} {
		synctest.Test(t, func(t *testing.T) {
			sent := 0
			a := fresh(t, trip(func(r *http.Request) (*http.Response, error) {
				sent++
				_, _ = io.Copy(io.Discard, r.Body)
				return &http.Response{StatusCode: 429, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			}))
			p := a.call.up.Provider
			p.Retries = 2
			if err := a.call.proxy.Replace(Options{Providers: []Provider{p}}); err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest("POST", "/p/v1/files", strings.NewReader("{}"))
			r.Header.Set("Content-Type", kind)
			w := httptest.NewRecorder()
			a.call.proxy.ServeHTTP(w, r)
			if w.Code != 429 || sent != want {
				t.Errorf("%s: status %d after %d attempts, want %d", kind, w.Code, sent, want)
			}
		})
	}
}

// A governor's budgets are waited for in the pacing's queue.
var (
	_ reserver       = (*governor.Governor)(nil)
	_ headway.Budget = quota.Reservation(nil)
)

// weighed is a quota with limits of all kinds.
type weighed struct {
	Approver
	config quota.Config
}

func (w weighed) Config() quota.Config { return w.config }

func TestACallHasItsTenantsShare(t *testing.T) {
	for name, c := range map[string]struct {
		config quota.Config
		want   int
	}{
		"no weight":        {quota.Config{}, 0},
		"a weight":         {quota.Config{Tenants: map[string]quota.Tenant{"a": {Weight: 5}}}, 5},
		"another's weight": {quota.Config{Tenants: map[string]quota.Tenant{"b": {Weight: 5}}}, 0},
		"by default":       {quota.Config{TenantDefault: quota.Tenant{Weight: 4}}, 4},
	} {
		a := fresh(t, http.DefaultTransport)
		a.call.up.Approver = weighed{config: c.config}
		a.request, a.cost = quota.Request{Model: "m", Tenant: "a", Priority: 3}, 10
		if got := a.share(); got != (headway.Request{Priority: 3, Flow: "a", Weight: c.want, Cost: 10}) {
			t.Errorf("%s: %+v, want a weight of %v", name, got, c.want)
		}
	}
}

func TestWatchTellsWhoWasWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			silence, whole time.Duration
			waits          func() bool
			want           error
		}{
			{time.Second, time.Minute, nil, errSilent},
			{time.Second, time.Minute, func() bool { return false }, errSilent},
			{time.Second, time.Minute, func() bool { return true }, errStalled},
			{time.Minute, time.Second, func() bool { return true }, errLong},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := newWatch(new(rounds), cancel, http.NewResponseController(httptest.NewRecorder()), c.silence, c.whole)
			w.uploads(c.waits)
			began := time.Now()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), c.want) || time.Since(began) != min(c.silence, c.whole) {
				t.Errorf("%+v: %v after %v", c, context.Cause(ctx), time.Since(began))
			}
			w.stop()
		}
	})
}
