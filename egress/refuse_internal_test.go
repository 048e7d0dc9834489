package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

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
	if got := limitsOf(quota.Limits{SoftTokenBudget: 90}, "", nil); got != nil {
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
	if diff := cmp.Diff(want, budgets(&c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// DialThrough has the proxy's own transport dial otherwise.
func DialThrough(p *Proxy, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	p.transport.DialContext = dial
	p.transport.Proxy = nil
}
