package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/event"
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

// TestWhyNoPermitWasGiven: each reason has its status, its words, and a time to come back.
func TestWhyNoPermitWasGiven(t *testing.T) {
	const (
		late    = "The call cannot be served in time."
		ours    = "The proxy cannot keep its budgets at the moment."
		failed  = "The provider failed too often recently; it is left alone for a moment."
		cooling = "The provider asked to be left alone for longer than the call can wait."
	)
	synctest.Test(t, func(t *testing.T) {
		soon := time.Now().Add(30 * time.Second)
		for name, c := range map[string]struct {
			err     error
			status  int
			code    string
			why     reason.Reason
			retryIn time.Duration
			message string
		}{
			"no time":         {&reason.Refusal{Reason: reason.Deadline, RetryAt: soon}, 429, "RATE_THROTTLED", reason.Deadline, 30 * time.Second, late},
			"nobody knows":    {&reason.Refusal{Reason: reason.Deadline}, 429, "RATE_THROTTLED", reason.Deadline, time.Second, late},
			"in the past":     {&reason.Refusal{Reason: reason.Deadline, RetryAt: time.Now().Add(-time.Hour)}, 429, "RATE_THROTTLED", reason.Deadline, 0, late},
			"a Retry-After":   {&reason.Refusal{Reason: reason.RateLimited.Reason(), RetryAt: soon}, 429, "RATE_THROTTLED", reason.RateLimited.Reason(), 30 * time.Second, cooling},
			"pressure":        {&reason.Refusal{Reason: reason.UpstreamPressure.Reason(), RetryAt: soon}, 429, "RATE_THROTTLED", reason.UpstreamPressure.Reason(), 30 * time.Second, cooling},
			"a circuit":       {&reason.Refusal{Reason: reason.CircuitOpen.Reason(), RetryAt: soon}, 503, "", reason.CircuitOpen.Reason(), 30 * time.Second, failed},
			"a store":         {&reason.Refusal{Reason: reason.Internal}, 503, "", reason.Internal, time.Second, ours},
			"the end":         {&reason.Refusal{Reason: reason.Closed}, 503, "", reason.Closed, time.Second, ours},
			"any other error": {errors.New("what is this"), 503, "", reason.Internal, time.Second, ours},
		} {
			a := fresh(t, http.DefaultTransport)
			want := provider.Refusal{Status: c.status, Code: c.code, Reason: c.why, RetryIn: c.retryIn, Retry: true, Message: c.message}
			if diff := cmp.Diff(want, a.call.denied(c.err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
	a := fresh(t, http.DefaultTransport)
	a.call.proxy.drain()
	if diff := cmp.Diff(drained(), a.call.denied(errors.New("any"))); diff != "" {
		t.Errorf("while draining (-want +got):\n%s", diff)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	a.call.r = a.call.r.WithContext(gone)
	if diff := cmp.Diff(provider.Refusal{Status: 499, Reason: reason.Canceled}, a.call.denied(errors.New("any"))); diff != "" {
		t.Errorf("without a client (-want +got):\n%s", diff)
	}
}

func TestRateLimitFields(t *testing.T) {
	config := quota.Config{Global: quota.Limits{CallsPerMinute: 6, TokensPerMinute: 1000, MaxDailyTokens: 5000, MaxDailyCalls: 7}, Models: map[string]quota.Model{"n": {Limits: quota.Limits{CallsPerMinute: 9}}}}
	for name, c := range map[string]struct {
		d            quota.Denial
		policy, left string
	}{
		"by the minute": {
			quota.Denial{Reason: quota.Throttled, RetryIn: 1500 * time.Millisecond},
			`"calls";q=6;w=60, "tokens";q=1000;w=60;qu="tokens"`, `"calls";r=0;t=2, "tokens";r=0;t=2`,
		},
		"by the day": {
			quota.Denial{Reason: quota.HardLimit, RetryIn: time.Hour},
			`"daily-calls";q=7;w=86400, "daily-tokens";q=5000;w=86400;qu="tokens"`, `"daily-calls";r=0;t=3600, "daily-tokens";r=0;t=3600`,
		},
		"held by others":  {quota.Denial{Reason: quota.Throttled, Held: true, RetryIn: time.Second}, `"daily-tokens";q=5000;w=86400;qu="tokens"`, `"daily-tokens";r=0;t=1`},
		"for ever":        {quota.Denial{Reason: quota.HardLimit, Held: true, RetryIn: quota.Never}, `"daily-tokens";q=5000;w=86400;qu="tokens"`, `"daily-tokens";r=0`},
		"without a limit": {quota.Denial{Reason: quota.Throttled, Scope: quota.Scope{Model: "m"}}, "", ""},
		"held by others, without a day of its own": {
			quota.Denial{Reason: quota.Throttled, Held: true, Scope: quota.Scope{Model: "n"}, RetryIn: time.Second}, `"calls";q=9;w=60`, `"calls";r=0;t=1`,
		},
		"of another budget": {quota.Denial{Reason: quota.SoftLimit}, "", ""},
	} {
		a := fresh(t, http.DefaultTransport)
		a.call.up.Approver = weighed{config: config}
		a.call.limits(&c.d)
		h := a.call.w.Header()
		if h.Get("Ratelimit-Policy") != c.policy || h.Get("Ratelimit") != c.left || (c.policy == "") != (len(h) == 0) {
			t.Errorf("%s: %v, want policy %s and limit %s", name, h, c.policy, c.left)
		}
	}
}

func TestRequestsToAProxy(t *testing.T) {
	for name, c := range map[string]struct {
		tune func(*http.Request)
		want bool
	}{
		"a path":           {func(*http.Request) {}, false},
		"CONNECT":          {func(r *http.Request) { r.Method = http.MethodConnect }, true},
		"a scheme":         {func(r *http.Request) { r.URL.Scheme = "http" }, true},
		"a host":           {func(r *http.Request) { r.URL.Host = "elsewhere" }, true},
		"an opaque URL":    {func(r *http.Request) { r.URL.Opaque = "x" }, true},
		"a star":           {func(r *http.Request) { r.URL.Path = "*" }, true},
		"without anything": {func(r *http.Request) { r.URL.Path = "" }, true},
	} {
		r := httptest.NewRequest("GET", "/p/v1", nil)
		c.tune(r)
		if got := proxied(r); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for m, want := range map[string]string{"GET": "GET", "CONNECT": "CONNECT", "TRACE": "TRACE", "PURGE": "other", "get": "other", "": "other"} {
		if got := method(m); got != want {
			t.Errorf("%q is %s", m, got)
		}
	}
	upstream := &url.URL{Scheme: "https", Host: "h", Path: "/base"}
	for location, want := range map[string]string{
		"https://h/base": "/p", "https://h/base/x?a=b&key=k": "/p/x?a=b", "/base/y": "/p/y", "https://h/based": "", "https://h/": "",
		"http://h/base": "", "https://i/base": "", "https://u@h/base": "", "https://h:1/base": "", "%zz": "",
	} {
		if got := relocate(location, "p", upstream, upstream); got != want {
			t.Errorf("%s leads to %q, want %q", location, got, want)
		}
	}
}

func TestWhatTheQueueStoodFor(t *testing.T) {
	for by, want := range map[reason.Bound]reason.Bound{
		reason.BoundUnknown: reason.BoundQueue, reason.BoundJitter: reason.BoundQueue, reason.BoundCeiling: reason.BoundCeiling, reason.BoundCooldown: reason.BoundCooldown,
	} {
		if got := inQueue(headway.Wait{Bound: by}); got != want {
			t.Errorf("%v is %v, want %v", by, got, want)
		}
	}
}

// TestABodyThatWasReadCanBeSentTwice: net/http asks for it again where a connection
// ended before anything of it was looked at.
func TestABodyThatWasReadCanBeSentTwice(t *testing.T) {
	a := fresh(t, http.DefaultTransport)
	a.call.body = []byte("{}")
	out, err := a.call.outbound(t.Context(), "", "")
	if err != nil || out.ContentLength != 2 || a.call.log.Sent != 2 {
		t.Fatal(err, out.ContentLength, a.call.log.Sent)
	}
	for range 2 {
		b, err := out.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != "{}" {
			t.Errorf("%q, %v", got, err)
		}
	}
	a.call.body = nil
	if out, err = a.call.outbound(t.Context(), "", ""); err != nil || out.Body != http.NoBody || out.ContentLength != 0 || out.GetBody != nil {
		t.Errorf("without a body: %v, %d, %v", out.Body, out.ContentLength, err)
	}
}

// TestTheWholeCallIsBoundedWhateverMoves: a silence that is allowed does not lengthen it.
func TestTheWholeCallIsBoundedWhateverMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			header, silence, want time.Duration
			why                   error
		}{
			{8 * time.Second, 5 * time.Second, 10 * time.Second, errLong},
			{2 * time.Second, 5 * time.Second, 7 * time.Second, errSilent},
			{2 * time.Second, time.Minute, 10 * time.Second, errLong},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := newWatch(new(rounds), cancel, http.NewResponseController(httptest.NewRecorder()), time.Minute, 10*time.Second)
			time.Sleep(c.header)
			w.allow(c.silence)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), c.why) || time.Since(w.began) != c.want {
				t.Errorf("%+v: %v after %v", c, context.Cause(ctx), time.Since(w.began))
			}
			if w.enter() {
				t.Error("a write may begin that nobody would free")
			}
			w.allow(time.Second) // does not set a timer again
			w.stop()
		}
	})
}

func TestWhatIsLearnedOfCallsOutlivesAProxy(t *testing.T) {
	d, _ := provider.Builtin(provider.OpenAI)
	p, err := New(Options{Providers: []Provider{{Name: "a", Description: d}, {Name: "b", Description: d}}})
	if err != nil {
		t.Fatal(err)
	}
	learned := map[string]map[string]Estimates{"a": {"gpt": {Input: 1.25, Output: 700, Inputs: 3, Outputs: 15}}}
	p.RestoreEstimates(map[string]map[string]Estimates{"a": learned["a"], "gone": learned["a"]})
	if diff := cmp.Diff(learned, p.Estimates()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBudgetsAreLimitsOfTheOwner(t *testing.T) {
	c := quota.Config{
		Global: quota.Limits{CallsPerMinute: 60, MaxDailyTokens: 1000},
		Models: map[string]quota.Model{
			"b": {Limits: quota.Limits{RefillPerSecond: 2, TokensPerMinute: 500, SoftTokenBudget: 90, SoftTokenWindowMS: 1500}},
			"a": {Limits: quota.Limits{InputTokensPerMinute: 10, OutputTokensPerMinute: 20, MaxDailyCalls: 7}},
		},
	}
	if got := limitsOf(quota.Limits{SoftTokenBudget: 90}, "", nil, nil); got != nil {
		t.Errorf("a budget without a window is %v", got)
	}
	limit := func(kind string, size, windowS float64, unit, pool string) event.Limit {
		return event.Limit{Kind: kind, Size: size, WindowS: windowS, Unit: unit, Pool: pool, Provenance: event.Owner, Confidence: 1}
	}
	want := []event.Limit{
		limit("token_bucket", 60, 60, event.UnitRequests, ""),
		limit("fixed_window", 1000, 86_400, event.UnitTokens, ""),
		limit("token_bucket", 10, 60, event.UnitInputTokens, "a"),
		limit("token_bucket", 20, 60, event.UnitOutputTokens, "a"),
		limit("fixed_window", 7, 86_400, event.UnitRequests, "a"),
		limit("token_bucket", 120, 60, event.UnitRequests, "b"),
		limit("token_bucket", 500, 60, event.UnitTokens, "b"),
		limit("sliding_window", 90, 1.5, event.UnitTokens, "b"),
	}
	if diff := cmp.Diff(want, budgets(&c, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// DialThrough has the proxy's own transport dial otherwise.
func DialThrough(p *Proxy, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	p.transport.DialContext = dial
	p.transport.Proxy = nil
}
