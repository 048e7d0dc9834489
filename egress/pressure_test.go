package egress_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/agent"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/quota"
)

// TestARefusalTellsWhatAnApprovalTells: an agent that is refused learns of the
// pressure from the answer's header, and the quota's events say the same.
func TestARefusalTellsWhatAnApprovalTells(t *testing.T) {
	for name, c := range map[string]struct {
		limits    quota.Limits
		pressure  string
		scale     string // "" for any above 1
		events    []quota.EventType
		rateLimit bool
	}{
		"calls": {
			quota.Limits{CallsPerMinute: 1}, "throttle", "2",
			[]quota.EventType{quota.EventThrottle, quota.EventAdaptiveScale, quota.EventDenied, quota.EventBackoff}, true,
		},
		"a soft window": {
			quota.Limits{SoftTokenBudget: 112, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Deny}, "soft", "1",
			[]quota.EventType{quota.EventSoftPressure, quota.EventDenied, quota.EventBackoff}, true,
		},
		"a soft window that is passed": {
			quota.Limits{SoftTokenBudget: 28, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Deny}, "soft", "4",
			[]quota.EventType{quota.EventSoftPressure, quota.EventAdaptiveScale, quota.EventDenied, quota.EventBackoff}, true,
		},
		"the rest of the day, which is too little": {
			quota.Limits{MaxDailyTokens: 120}, "exhausted", "2",
			[]quota.EventType{quota.EventDenied, quota.EventBackoff}, true,
		},
		"the day": {
			quota.Limits{MaxDailyTokens: 112}, "exhausted", "2",
			[]quota.EventType{quota.EventExhausted, quota.EventAdaptiveScale, quota.EventDenied, quota.EventBackoff}, true,
		},
	} {
		bubble(t, name, func(t *testing.T) {
			var events []quota.EventType
			var backoff quota.Event
			up := &mirror{body: `{"usage":{"prompt_tokens":12,"completion_tokens":100,"total_tokens":112}}`, header: http.Header{"Content-Type": {"application/json"}}}
			x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) {
				config := generous()
				config.Global = c.limits
				l := newLedger(t, config)
				l.Subscribe(func(e quota.Event) {
					if events = append(events, e.Type); e.Type == quota.EventBackoff {
						backoff = e
					}
				})
				p.Approver, p.Pacing = l, nil
			})
			if res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", strings.Replace(chatBody("m", false), "200", "10", 1)); err != nil || res.StatusCode != 200 {
				t.Fatal(res, err, body)
			}
			res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil || res.StatusCode != http.StatusTooManyRequests {
				t.Fatal(res, err, body)
			}
			synctest.Wait()
			if got := res.Header.Get("X-Headway-Pressure"); got != c.pressure {
				t.Errorf("pressure %q, want %q", got, c.pressure)
			}
			scale := res.Header.Get("X-Headway-Scale")
			if want := c.scale; scale != want && (want != "1" || scale != "") {
				t.Errorf("scale %q, want %q", scale, want)
			}
			if policy := res.Header.Get("Ratelimit-Policy"); (policy != "") != c.rateLimit || res.Header.Get("Ratelimit") == "" {
				t.Errorf("RateLimit %q, policy %q", res.Header.Get("Ratelimit"), policy)
			}
			for _, e := range c.events {
				if !slices.Contains(events, e) {
					t.Errorf("no event %s in %v", e, events)
				}
			}
			if retry := res.Header.Get("Retry-After") != ""; retry != (backoff.RetryInMS > 0) {
				t.Errorf("the back-off is %+v, Retry-After %q", backoff, res.Header.Get("Retry-After"))
			}
			// An agent that reads only headers slows down.
			pacer, err := agent.New(agent.Config{Base: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if !pacer.ObserveHeader(0, res.Header.Get) || pacer.Hint(0) == 0 {
				t.Errorf("the agent learned nothing: hint %v", pacer.Hint(0).Names())
			}
			if c.pressure != "soft" && pacer.Interval(0) < 2*time.Second {
				t.Errorf("its interval is %v", pacer.Interval(0))
			}
		})
	}
}

// TestWhatOthersHoldOfTheDayIsNamed: a call for which calls under way hold the rest of
// the day is refused for now, with the field of the day's budget, not for good.
func TestWhatOthersHoldOfTheDayIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, release := make(chan struct{}), make(chan struct{})
		up, _ := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(entered)
			<-release
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"usage":{"prompt_tokens":5,"completion_tokens":5,"total_tokens":10}}`))
		}))
		x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) {
			config := generous()
			config.Global = quota.Limits{CallsPerMinute: 1_000_000, MaxDailyTokens: 300}
			p.Approver, p.Pacing = newLedger(t, config), nil
		})
		first := make(chan int)
		go func() {
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil {
				t.Error(err)
			}
			first <- res.StatusCode
		}()
		<-entered
		res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false), "X-Headway-Timeout: 100ms")
		if err != nil || res.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "RATE_GLOBAL_LIMIT_EXCEEDED") {
			t.Fatal(res, err, body)
		}
		if h := res.Header; h.Get("X-Headway-Pressure") != "throttle" || h.Get("X-Headway-Scale") != "2" {
			t.Errorf("pressure %q, scale %q", h.Get("X-Headway-Pressure"), h.Get("X-Headway-Scale"))
		}
		if h := res.Header; h.Get("Ratelimit") != `"daily-tokens";r=0;t=1` || h.Get("Ratelimit-Policy") != `"daily-tokens";q=300;w=86400;qu="tokens"` || h.Get("X-Should-Retry") != "true" {
			t.Errorf("RateLimit %q, policy %q, x-should-retry %q", h.Get("Ratelimit"), h.Get("Ratelimit-Policy"), h.Get("X-Should-Retry"))
		}
		if s := x.quota.Snapshot().Global; s.State != quota.Normal {
			t.Errorf("the state is %v", s.State)
		}
		close(release)
		if status := <-first; status != http.StatusOK {
			t.Error(status)
		}
	})
}

// TestRetryAfterCountsTheQueue: a refusal says when the call would be served,
// behind those who wait.
func TestRetryAfterCountsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRig(t, provider.OpenAI, &mirror{body: "{}"}, func(p *egress.Provider, _ *egress.Options) {
			config := generous()
			config.Global = quota.Limits{CallsPerMinute: 60, Burst: 1}
			p.Approver, p.Pacing = newLedger(t, config), nil
		})
		type refusal struct {
			at    time.Duration
			after string
		}
		refused := make(chan refusal, 100)
		began := time.Now()
		for range 60 {
			go func() {
				res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
				if err == nil && res.StatusCode == http.StatusTooManyRequests {
					refused <- refusal{time.Since(began), res.Header.Get("Retry-After")}
					return
				}
				refused <- refusal{}
			}()
		}
		n := 0
		for range 60 {
			r := <-refused
			if r.after == "" {
				continue
			}
			n++
			if after, err := time.ParseDuration(r.after + "s"); err != nil || r.at < time.Second && after < 15*time.Second {
				t.Errorf("at %v: Retry-After %q, when the queue is full for 15 s", r.at, r.after)
			}
		}
		if n < 40 {
			t.Errorf("%d were refused, want most of 60", n)
		}
	})
}

// TestAWaitForThePaceTellsOfPressure: a call that the provider's pace leaves no time
// for is refused with the same signs as one that the budget refuses.
func TestAWaitForThePaceTellsOfPressure(t *testing.T) {
	for name, c := range map[string]struct {
		api    provider.API
		path   string
		budget bool
		events []quota.EventType
	}{
		"with a budget":         {provider.OpenAI, "/p/v1/chat/completions", true, []quota.EventType{quota.EventThrottle, quota.EventAdaptiveScale, quota.EventDenied, quota.EventBackoff}},
		"without a budget":      {provider.OpenAI, "/p/v1/chat/completions", false, nil},
		"what costs no tokens":  {provider.OpenAI, "/p/v1/files", true, nil},
		"any API without words": {provider.HTTP, "/p/anything", false, nil},
	} {
		bubble(t, name, func(t *testing.T) {
			var events []quota.Event
			up := &mirror{status: http.StatusTooManyRequests, body: "{}", header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {"60"}}}
			x := newRig(t, c.api, up, func(p *egress.Provider, _ *egress.Options) {
				if !c.budget {
					p.Approver, p.Models = nil, nil
					return
				}
				l := newLedger(t, generous())
				l.Subscribe(func(e quota.Event) { events = append(events, e) })
				p.Approver = l
			})
			if res, body, err := x.ask(t, "POST", c.path, chatBody("m", false)); err != nil || res.StatusCode != http.StatusTooManyRequests {
				t.Fatal(res, err, body)
			}
			synctest.Wait()
			events = nil
			res, body, err := x.ask(t, "POST", c.path, chatBody("m", false))
			if err != nil || res.StatusCode != http.StatusTooManyRequests || len(up.got) != 1 {
				t.Fatal(res, err, body, len(up.got))
			}
			synctest.Wait()
			h := res.Header
			if h.Get("X-Headway-Pressure") != "throttle" || h.Get("X-Headway-Scale") != "2" {
				t.Errorf("pressure %q, scale %q, want throttle and 2", h.Get("X-Headway-Pressure"), h.Get("X-Headway-Scale"))
			}
			if h.Get("Retry-After") != "60" || h.Get("Ratelimit") != `"pace";r=0;t=60` || !strings.HasPrefix(h.Get("Ratelimit-Policy"), `"pace";q=`) {
				t.Errorf("Retry-After %q, RateLimit %q, policy %q", h.Get("Retry-After"), h.Get("Ratelimit"), h.Get("Ratelimit-Policy"))
			}
			var types []quota.EventType
			for _, e := range events {
				types = append(types, e.Type)
				if e.Type == quota.EventThrottle && (!e.Global || e.RetryInMS != 60_000) {
					t.Errorf("the episode is %+v, want that of the provider as a whole, for 60 s", e)
				}
			}
			for _, e := range c.events {
				if !slices.Contains(types, e) {
					t.Errorf("no event %s in %v", e, types)
				}
			}
			if c.events == nil {
				return
			}
			// One more refusal is the same episode, which ends by itself.
			if res, _, err := x.ask(t, "POST", c.path, chatBody("m", false)); err != nil || res.Header.Get("X-Headway-Scale") != "2" {
				t.Error(res, err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			count := map[quota.EventType]int{}
			for _, e := range events {
				count[e.Type]++
			}
			if count[quota.EventThrottle] != 1 || count[quota.EventResume] != 1 {
				t.Errorf("%d episodes began and %d ended, want one", count[quota.EventThrottle], count[quota.EventResume])
			}
			up.status, up.body, up.header = http.StatusOK, `{"usage":{"prompt_tokens":12,"completion_tokens":100,"total_tokens":112}}`, http.Header{"Content-Type": {"application/json"}}
			if res, body, err := x.ask(t, "POST", c.path, chatBody("m", false)); err != nil || res.StatusCode != http.StatusOK || res.Header.Get("X-Headway-Pressure") != "" {
				t.Error("after the episode:", res, err, body)
			}
		})
	}
}
