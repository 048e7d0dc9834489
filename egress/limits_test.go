package egress_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

func TestCallsWaitInsteadOfBeingRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, up := models(t, instant("  limits: [{kind: sliding_window, limit: 60, window: 1m}]\n"), llm.Options{Seed: 1})
		x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) {
			c := generous()
			c.Global = quota.Limits{CallsPerMinute: 50, Burst: 5}
			p.Approver = newLedger(t, c)
		})
		began := time.Now()
		for i := range 10 {
			res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil || res.StatusCode != 200 {
				t.Fatalf("call %d: %v, %v, %s", i, res, err, body)
			}
			waited, err := strconv.Atoi(res.Header.Get("X-Headway-Wait-Ms"))
			if err != nil || (i < 5) != (waited < 100) {
				t.Errorf("call %d waited %q ms", i, res.Header.Get("X-Headway-Wait-Ms"))
			}
		}
		if d := time.Since(began); d < 5*1200*time.Millisecond || d > 7*time.Second {
			t.Errorf("10 calls took %v, want about 5 times 1.2 s", d)
		}
		synctest.Wait()
		x.settled(t)
		if n := sim.Stats().Throttled; n != 0 {
			t.Errorf("the provider refused %d", n)
		}
	})
}

// TestTheTimeOfABodyIsNoWait: a call whose body takes longer than max_wait to come is
// not refused for that where there is room; its own timeout counts from its beginning.
func TestTheTimeOfABodyIsNoWait(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		want   int
	}{
		"longer than max_wait":             {"X-Other: 1", http.StatusOK},
		"longer than the client's timeout": {"X-Headway-Timeout: 10s", http.StatusTooManyRequests},
	} {
		bubble(t, name, func(t *testing.T) {
			m := &mirror{body: `{"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, header: http.Header{"Content-Type": {"application/json"}}}
			x := newRig(t, provider.OpenAI, m, nil)
			from, to := io.Pipe()
			go func() {
				time.Sleep(egress.DefaultMaxWait + 5*time.Second)
				_, err := io.WriteString(to, chatBody("m", false))
				_ = to.CloseWithError(err)
			}()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://proxy/p/v1/chat/completions", from)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			name, value, _ := strings.Cut(c.header, ": ")
			r.Header.Set(name, value)
			res, err := x.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != c.want {
				t.Errorf("status %d, want %d", res.StatusCode, c.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		limits quota.Limits
		before int // calls that pass first
		tune   func(*egress.Provider)
		header []string
		status int
		code   string
		why    reason.Reason
		wait   time.Duration // Retry-After; 0 means none
		retry  string
		policy string
	}{
		"throttled beyond the wait": {
			quota.Limits{CallsPerMinute: 1}, 1, nil, nil,
			429, "RATE_GLOBAL_LIMIT_EXCEEDED", reason.Pacing, time.Minute, "true", `"calls";q=1;w=60`,
		},
		"throttled beyond the client's timeout": {
			quota.Limits{CallsPerMinute: 6, Burst: 1}, 1, nil, []string{"X-Headway-Timeout: 2s"},
			429, "RATE_GLOBAL_LIMIT_EXCEEDED", reason.Pacing, 10 * time.Second, "true", `"calls";q=6;w=60`,
		},
		"throttled beyond the SDK's timeout": {
			quota.Limits{CallsPerMinute: 6, Burst: 1}, 1, nil, []string{"X-Stainless-Timeout: 5"},
			429, "RATE_GLOBAL_LIMIT_EXCEEDED", reason.Pacing, 10 * time.Second, "true", `"calls";q=6;w=60`,
		},
		"the day is used up": {
			quota.Limits{MaxDailyCalls: 1}, 1, nil, nil,
			429, "RATE_HARD_LIMIT", reason.QuotaExhausted, 24 * time.Hour, "false", `"daily-calls";q=1;w=86400`,
		},
		"a soft window that is full": {
			quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Deny}, 1, nil, nil,
			429, "RATE_SOFT_LIMIT", reason.Pacing, time.Minute, "false", `"soft-tokens";q=100;w=60;qu="tokens"`,
		},
		"a model that is not configured": {
			quota.Limits{}, 0, func(p *egress.Provider) { p.Models = nil }, nil,
			404, "RATE_MODEL_NOT_CONFIGURED", reason.ClientError, 0, "false", "",
		},
		"a model that maps to none": {
			quota.Limits{}, 0, func(p *egress.Provider) { p.Models = func(string) string { return "" } }, nil,
			404, "RATE_MODEL_NOT_CONFIGURED", reason.ClientError, 0, "false", "",
		},
		"pacing beyond the wait": {
			quota.Limits{}, 1, func(p *egress.Provider) { p.Pacing = slow(t, time.Minute) }, nil,
			429, "RATE_THROTTLED", reason.Deadline, time.Minute, "true", `"pace";q=1;w=60`,
		},
		"a deadline that has passed": {
			quota.Limits{}, 0, nil, []string{"X-Headway-Deadline: 1999-01-01T00:00:00Z"},
			429, "RATE_THROTTLED", reason.Deadline, time.Second, "true", "",
		},
	} {
		bubble(t, name, func(t *testing.T) {
			m := &mirror{body: "{}"}
			x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, _ *egress.Options) {
				limits := generous()
				limits.Global = c.limits
				p.Approver = newLedger(t, limits)
				p.Pacing = nil
				if c.tune != nil {
					c.tune(p)
				}
			})
			for range c.before {
				if res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != 200 {
					t.Fatal(res, err, body)
				}
			}
			began := time.Now()
			res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false), c.header...)
			if err != nil || res.StatusCode != c.status || !strings.Contains(body, `"`+c.code+`"`) || !strings.Contains(body, `"error":{`) {
				t.Fatalf("status %v, error %v, body %s", res, err, body)
			}
			if time.Since(began) != 0 {
				t.Errorf("refused after %v, want at once", time.Since(began))
			}
			if s := res.Header.Get("Retry-After"); (c.wait == 0) != (s == "") {
				t.Errorf("Retry-After %q", s)
			} else if n, _ := strconv.Atoi(s); c.wait > 0 && (time.Duration(n)*time.Second-c.wait).Abs() > time.Second {
				t.Errorf("Retry-After %q, want about %v", s, c.wait)
			}
			if got := res.Header.Get("X-Should-Retry"); got != c.retry {
				t.Errorf("x-should-retry %q", got)
			}
			if got := res.Header.Get("Ratelimit-Policy"); got != c.policy {
				t.Errorf("RateLimit-Policy %s, want %s", got, c.policy)
			}
			if c.policy != "" {
				read := signal.Read(time.Now(), res.StatusCode, res.Header, nil)
				if len(read.Limits) != 1 || read.Limits[0].Remaining != 0 || (read.Limits[0].Reset-c.wait).Abs() > time.Second {
					t.Errorf("the fields read as %+v", read.Limits)
				}
			}
			synctest.Wait()
			x.settled(t)
			status := x.proxy.Status()[0]
			if status.Refused[c.code] != 1 || status.Calls != int64(c.before+1) || len(m.got) != c.before {
				t.Errorf("status %+v with %d sent", status, len(m.got))
			}
			if got := x.calls[c.before]; got.Reason != c.why || got.Code != c.code || got.Ending != egress.Refused {
				t.Errorf("the log is %+v", got)
			}
		})
	}
}

// slow is pacing with a long interval.
func slow(t testing.TB, interval time.Duration) *headway.Governor {
	t.Helper()
	g, err := headway.New(headway.Config{Name: "p", Ceiling: interval, Initial: interval, Tolerance: -1, JitterMax: -1, Law: "aimd"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestAThrottleOfTheProviderSlowsThePacingAndPassesUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, up := models(t, instant(""), llm.Options{})
		x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) { p.MaxWait = 100 * time.Millisecond })
		res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("throttled", false))
		if err != nil || res.StatusCode != 429 || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "rate_limit_exceeded") {
			t.Fatal(res, err, body)
		}
		res, body, err = x.ask(t, "POST", "/p/v1/chat/completions", chatBody("throttled", false))
		if err != nil || res.StatusCode != 429 || !strings.Contains(body, "RATE_THROTTLED") || x.quota.back != 0 {
			t.Errorf("within the provider's cooldown: %v, %v, %s; %d permits given back", res, err, body, x.quota.back)
		}
		if res, _, err = x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != 200 {
			t.Errorf("another model: %v, %v", res, err)
		}
		time.Sleep(time.Second)
		if res, _, err = x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != 200 {
			t.Errorf("after it: %v, %v", res, err)
		}
		synctest.Wait()
		x.settled(t)
	})
}

func TestASpentAccountIsNotAskedAgainForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, up := models(t, instant(""), llm.Options{})
		x := newRig(t, provider.OpenAI, up, nil)
		ask := func(model string) (int, string) {
			res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody(model, false))
			if err != nil {
				t.Fatal(err)
			}
			return res.StatusCode, body
		}
		for range 5 {
			if status, _ := ask("quota-exhausted"); status != 429 {
				t.Fatal(status)
			}
		}
		if n := sim.Stats().Admitted; n != 1 {
			t.Errorf("the provider was asked %d times, want once", n)
		}
		if status, body := ask("m"); status != 200 {
			t.Errorf("another model: %d, %s", status, body)
		}
		time.Sleep(time.Minute)
		if ask("quota-exhausted"); sim.Stats().Admitted != 3 {
			t.Errorf("after a minute it was not asked again")
		}
		synctest.Wait()
		x.settled(t)
	})
}

func TestRetries(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []int
		retries  int
		status   int
		sent     int
	}{
		"off":            {[]int{503, 200}, 0, 503, 1},
		"one helps":      {[]int{503, 200}, 1, 200, 2},
		"none is enough": {[]int{503, 429, 529}, 2, 529, 3},
		"not for a 500":  {[]int{500, 200}, 2, 500, 1},
		"not for money":  {[]int{402, 200}, 2, 402, 1},
	} {
		bubble(t, name, func(t *testing.T) {
			m := &mirror{body: "{}"}
			next := tripper(func(r *http.Request) (*http.Response, error) {
				m.status = c.statuses[len(m.got)]
				return m.RoundTrip(r)
			})
			x := newRig(t, provider.OpenAI, next, func(p *egress.Provider, _ *egress.Options) { p.Retries = c.retries })
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil || res.StatusCode != c.status || len(m.got) != c.sent {
				t.Fatalf("status %v, error %v, %d sent", res, err, len(m.got))
			}
			for i, body := range m.bodies {
				if body != chatBody("m", false) {
					t.Errorf("attempt %d sent %q", i+1, body)
				}
			}
			synctest.Wait()
			x.settled(t)
			if got := x.last(t); got.Attempts != c.sent || len(x.quota.used) != c.sent || got.Ending != egress.Complete {
				t.Errorf("%d permits for %d attempts, the log is %+v", len(x.quota.used), got.Attempts, got)
			}
		})
	}
}

// TestWhatIsNotSentAgain: a provider that takes its time, one whose quota is used up, and
// what the budget has no room for a second time. The client gets what the provider said.
func TestWhatIsNotSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		up     http.RoundTripper
		calls  int64 // a minute
		status int
		body   string
	}{
		"silence": {tripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), 1000, 504, "did not answer"},
		"a quota that is used up": {&mirror{status: 429, header: http.Header{"Content-Type": {"application/json"}}, body: `{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"theirs"}}`}, 1000, 429, "theirs"},
		"no time":                 {tripper(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }), 1000, 502, "ended without an answer"},
		"no room":                 {&mirror{status: 503, body: "theirs"}, 1, 503, "theirs"},
	} {
		bubble(t, name, func(t *testing.T) {
			x := newRig(t, provider.OpenAI, c.up, func(p *egress.Provider, _ *egress.Options) {
				config := generous()
				config.Global.CallsPerMinute = c.calls
				p.Approver, p.Retries, p.ResponseHeaderTimeout = newLedger(t, config), 3, time.Second
				p.Key = "" // of whose account nothing is remembered
				if name == "no time" {
					p.MaxWait = time.Nanosecond
				}
			})
			res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil || res.StatusCode != c.status || !strings.Contains(body, c.body) {
				t.Errorf("%v, %v: %s", res, err, body)
			}
			synctest.Wait()
			x.settled(t)
			if got := x.last(t); got.Attempts != 1 {
				t.Errorf("%d attempts", got.Attempts)
			}
		})
	}
}

// TestARetryAfterIsWaitedForOnce: by the pacing where there is one, among those who
// wait for it, so that a call that comes meanwhile goes after.
func TestARetryAfterIsWaitedForOnce(t *testing.T) {
	for name, paced := range map[string]bool{"paced": true, "not paced": false} {
		bubble(t, name, func(t *testing.T) {
			began := time.Now()
			var got []string
			next := tripper(func(r *http.Request) (*http.Response, error) {
				got = append(got, r.URL.RawQuery)
				m := &mirror{status: http.StatusOK, body: "{}"}
				if len(got) == 1 {
					m.status, m.header = http.StatusTooManyRequests, http.Header{"Retry-After": {"2"}}
				} else if len(got) == 2 && time.Since(began) != 2*time.Second {
					t.Errorf("sent again after %v, want 2s", time.Since(began))
				}
				return m.RoundTrip(r)
			})
			x := newRig(t, provider.OpenAI, next, func(p *egress.Provider, _ *egress.Options) {
				p.Retries, p.MaxWait = 1, time.Minute
				if p.Pacing = slow(t, 100*time.Millisecond); !paced {
					p.Pacing = nil
				}
			})
			var wg sync.WaitGroup
			wg.Go(func() {
				if res, _, err := x.ask(t, "POST", "/p/v1/chat/completions?first", chatBody("m", false)); err != nil || res.StatusCode != http.StatusOK {
					t.Errorf("%+v, %v", res, err)
				}
			})
			if paced {
				time.Sleep(time.Second)
				if _, _, err := x.ask(t, "POST", "/p/v1/chat/completions?second", chatBody("m", false)); err != nil {
					t.Error(err)
				}
			}
			wg.Wait()
			want := []string{"first", "first"}
			if paced {
				want = append(want, "second")
			}
			if !slices.Equal(got, want) {
				t.Errorf("upstream got %v, want %v", got, want)
			}
			synctest.Wait()
			x.settled(t)
			for _, c := range x.calls {
				if d := c.BoundBy[reason.BoundCooldown] + c.BoundBy[reason.BoundBackoff]; c.Model == "first" && (d != 2*time.Second || c.BoundBy[reason.BoundCooldown] < 1800*time.Millisecond) {
					t.Errorf("the call was bound by %v", c.BoundBy)
				}
			}
		})
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A call that comes after the end is refused, and nothing of it goes upstream.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	m := &mirror{body: "{}"}
	x := newRig(t, provider.OpenAI, m, nil)
	if err := x.proxy.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != 503 {
			t.Errorf("%v, %v", res, err)
		}
	}
	if len(m.got) != 0 {
		t.Errorf("%d requests were sent upstream", len(m.got))
	}
}

// A body that does not come does not hold up the end, and one whose client leaves is
// nobody's fault.
func TestABodyThatIsStillComing(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, x *rig, leave func()) error{
		"at the end": func(ctx context.Context, x *rig, _ func()) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := x.proxy.Drain(ctx); err == nil || !strings.Contains(err.Error(), "1 calls were cut, because they did not end in time; their") {
				return fmt.Errorf("drain: %w", err)
			}
			return nil
		},
		"the client leaves": func(_ context.Context, _ *rig, leave func()) error { leave(); return nil },
	} {
		bubble(t, name, func(t *testing.T) {
			x := newRig(t, provider.OpenAI, &mirror{}, nil)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			from, to := io.Pipe()
			go func() { _, _ = io.WriteString(to, `{"model":`) }()
			r, err := http.NewRequestWithContext(ctx, "POST", "http://proxy/p/v1/chat/completions", from)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan int)
			go func() {
				res, err := x.client.Do(r)
				if err != nil {
					ended <- 0
					return
				}
				_ = res.Body.Close()
				ended <- res.StatusCode
			}()
			synctest.Wait()
			if err := end(t.Context(), x, leave); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			_ = to.CloseWithError(io.ErrUnexpectedEOF) // net/http waits for it before it gives up
			got := <-ended
			synctest.Wait()
			c := x.last(t)
			if name == "at the end" && (got != 503 || c.Status != 503) || name != "at the end" && (c.Status != 499 || c.Reason != reason.Canceled) {
				t.Errorf("answered %d, the log is %+v", got, c)
			}
			x.settled(t)
		})
	}
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, up := models(t, instant(""), llm.Options{OutputTokens: 150, TokensPerSecond: 10})
		x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) {
			c := generous()
			c.Global = quota.Limits{CallsPerMinute: 6, Burst: 1}
			p.Approver = newLedger(t, c)
		})
		type end struct {
			status int
			err    error
			waited string
		}
		ends := make(chan end, 2)
		ask := func() {
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", true))
			if res == nil {
				ends <- end{0, err, ""}
				return
			}
			ends <- end{res.StatusCode, err, res.Header.Get("X-Headway-Wait-Ms")}
		}
		go ask() // streams for some 15 seconds
		synctest.Wait()
		go ask() // waits for its turn
		synctest.Wait()
		if s := x.proxy.Status()[0]; s.InFlight != 2 || s.Waiting != 1 {
			t.Fatalf("status %+v", s)
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := x.proxy.Drain(ctx)
		if err == nil || !strings.Contains(err.Error(), "1 calls were cut") {
			t.Errorf("drain gave %v", err)
		}
		if first := <-ends; first.status != 503 || first.err != nil || first.waited != "1000" {
			t.Errorf("who waited was answered %+v, want 503 after a second", first)
		}
		if second := <-ends; second.status != 200 || second.err == nil {
			t.Errorf("who streamed got %+v, want an answer that is cut", second)
		}
		if res, _, err := x.ask(t, "GET", "/p/v1/models", ""); err != nil || res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
			t.Errorf("a new call: %v, %v", res, err)
		}
		if err := x.proxy.Drain(t.Context()); err != nil {
			t.Errorf("draining again: %v", err)
		}
		synctest.Wait()
		x.settled(t)
	})
}

func TestReplaceLeavesThoseUnderWayAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, up := models(t, instant(""), llm.Options{OutputTokens: 50, TokensPerSecond: 10})
		x := newRig(t, provider.OpenAI, up, nil)
		done := make(chan int, 1)
		go func() {
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", true))
			if err != nil {
				t.Error(err)
			}
			done <- res.StatusCode
		}()
		synctest.Wait()
		bad := egress.Provider{Name: "No Name", Description: describe(t, provider.OpenAI)}
		if err := x.proxy.Replace(egress.Options{Providers: []egress.Provider{bad}}); err == nil || !strings.Contains(err.Error(), "name is") {
			t.Errorf("a bad configuration gave %v", err)
		}
		if n := len(x.proxy.Status()); n != 1 {
			t.Errorf("%d providers after a bad configuration", n)
		}
		next := egress.Provider{Name: "q", Description: describe(t, provider.OpenAI), Roundtripper: &mirror{}}
		if err := x.proxy.Replace(egress.Options{Providers: []egress.Provider{next}}); err != nil {
			t.Fatal(err)
		}
		if res, _, err := x.ask(t, "GET", "/q/v1/models", ""); err != nil || res.StatusCode != 200 {
			t.Errorf("the new provider: %v, %v", res, err)
		}
		if res, _, err := x.ask(t, "GET", "/p/v1/models", ""); err != nil || res.StatusCode != 404 {
			t.Errorf("the old provider: %v, %v", res, err)
		}
		if status := <-done; status != 200 {
			t.Errorf("the call under way ended with %d", status)
		}
		synctest.Wait()
		x.quota.balanced(t)
	})
}

func TestAnswersTellOfPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mirror{body: `{"usage":{"prompt_tokens":200,"completion_tokens":100,"total_tokens":300}}`, header: http.Header{"Content-Type": {"application/json"}}}
		x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, _ *egress.Options) {
			c := generous()
			c.Global.SoftTokenBudget, c.Global.SoftTokenWindowMS, c.Global.SoftPolicy = 1000, 60_000, quota.Advise
			p.Approver = newLedger(t, c)
		})
		for i := range 5 {
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil || res.StatusCode != 200 {
				t.Fatal(res, err)
			}
			want := ""
			if i > 2 { // 900 of 1,000 are used
				want = "soft"
			}
			if got := res.Header.Get("X-Headway-Pressure"); i != 2 && got != want {
				t.Errorf("call %d: pressure %q, want %q", i, got, want)
			}
			factor, err := strconv.ParseFloat(res.Header.Get("X-Headway-Scale"), 64)
			if i == 4 && (err != nil || factor <= 1) || i == 0 && err == nil {
				t.Errorf("call %d: scale %q", i, res.Header.Get("X-Headway-Scale"))
			}
		}
		synctest.Wait()
		x.settled(t)
	})
}

func TestAnUploadGoesOnBelowAnEarlyAnswer(t *testing.T) {
	up, _ := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusOK)
		_ = c.Flush()
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, strconv.FormatInt(n, 10))
		if err != nil {
			t.Error(err)
		}
	}))
	x := newRig(t, provider.HTTP, up, nil)
	for _, size := range []int{1 << 10, 100 << 10, 1 << 20} {
		for name, body := range map[string]io.Reader{
			"of a known length": strings.NewReader(strings.Repeat("x", size)), "in chunks": io.LimitReader(zeros{}, int64(size)),
		} {
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://proxy/p/upload", body)
			if err != nil {
				t.Fatal(err)
			}
			res, err := x.client.Do(r)
			if err != nil {
				t.Fatalf("%d bytes %s: %v", size, name, err)
			}
			text, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || res.StatusCode != 200 || string(text) != strconv.Itoa(size) {
				t.Errorf("%d bytes %s: %v, %v, %q arrived", size, name, res, err, text)
			}
		}
	}
}

// A Retry-After of ten years holds nobody up for longer than an hour.
func TestALieAboutTheWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mirror{status: http.StatusTooManyRequests, header: http.Header{"Retry-After": {"315360000"}}}
		x := newRig(t, provider.OpenAI, m, nil)
		if res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("%v, %v", res, err)
		}
		if s := x.pacing.Snapshot().Pools[0]; s.RetryAt.IsZero() || time.Until(s.RetryAt) > time.Hour {
			t.Errorf("the next call goes at %v, in %v", s.RetryAt, time.Until(s.RetryAt))
		}
		x.settled(t)
	})
}

// TestOneModelsRefusalsStopNoOther: m1 is refused for 40 s, m2 has no limit. Then both
// are refused for 40 s, which is the account's.
func TestOneModelsRefusalsStopNoOther(t *testing.T) {
	const workers, from, to = 3, 20 * time.Second, time.Minute
	run := func(t *testing.T, beside bool, refused func(model string, at time.Duration) bool) (ok, no map[string]int) {
		ok, no = map[string]int{}, map[string]int{}
		bubble(t, fmt.Sprint("beside ", beside), func(t *testing.T) {
			began := time.Now()
			var mu sync.Mutex
			next := tripper(func(r *http.Request) (*http.Response, error) {
				model := r.URL.RawQuery
				m := &mirror{status: http.StatusOK, body: "{}"}
				at := time.Since(began)
				if refused(model, at) {
					m.status = http.StatusTooManyRequests
				}
				if at >= from && at < to {
					mu.Lock()
					if m.status == http.StatusOK {
						ok[model]++
					} else {
						no[model]++
					}
					mu.Unlock()
				}
				time.Sleep(250 * time.Millisecond)
				return m.RoundTrip(r)
			})
			x := newRig(t, provider.OpenAI, next, func(p *egress.Provider, _ *egress.Options) {
				var err error
				if p.Pacing, err = headway.New(headway.Config{Name: "p", Passive: true, NoBreaker: true}); err != nil {
					t.Fatal(err)
				}
			})
			var wg sync.WaitGroup
			for _, model := range []string{"m1", "m2"} {
				if model == "m1" && !beside {
					continue
				}
				for range workers {
					wg.Go(func() {
						for time.Since(began) < to {
							res, _, err := x.ask(t, "POST", "/p/v1/chat/completions?"+model, chatBody(model, false))
							if err != nil {
								t.Error(err)
							} else if res.StatusCode != http.StatusOK {
								time.Sleep(time.Second)
							}
						}
					})
				}
			}
			wg.Wait()
		})
		return ok, no
	}
	onlyM1 := func(model string, at time.Duration) bool { return model == "m1" && at >= from && at < to }
	alone, _ := run(t, false, onlyM1)
	ok, no := run(t, true, onlyM1)
	if want := alone["m2"]; want == 0 || float64(ok["m2"]) < 0.98*float64(want) {
		t.Errorf("%d calls of m2 while m1 was refused, %d without m1", ok["m2"], want)
	}
	if no["m1"] > 12 {
		t.Errorf("m1 was refused %d times in 40 s", no["m1"])
	}
	_, no = run(t, true, func(_ string, at time.Duration) bool { return at >= from && at < to })
	// All that were under way, and then canaries.
	if n := no["m1"] + no["m2"]; n > 2*workers+12 {
		t.Errorf("%d refused in 40 s in which nobody was let through", n)
	}
}

// TestARefusalNamesThePaceOfItsModel: not that of the account, which nothing slowed.
func TestARefusalNamesThePaceOfItsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mirror{status: http.StatusTooManyRequests, header: http.Header{"Retry-After": {"60"}}}
		x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, _ *egress.Options) {
			var err error
			if p.Pacing, err = headway.New(headway.Config{Name: "p", Passive: true, NoBreaker: true, Law: "aimd", JitterMax: -1}); err != nil {
				t.Fatal(err)
			}
		})
		for i, want := range []string{"", `"pace";q=30;w=60`} { // aimd: 2 s after one refusal
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil || res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Ratelimit-Policy") != want {
				t.Errorf("call %d: %v, %v, policy %q, want %q", i, res, err, res.Header.Get("Ratelimit-Policy"), want)
			}
		}
	})
}

// searchable is a provider whose search has 30 calls a minute of its own beside 1,000 an
// hour for the rest, and 5,000 points an hour for queries, whose answers say what they took.
type searchable struct {
	mu     sync.Mutex
	until  map[string]time.Time // when the window of a resource ends
	used   map[string]int       // in it
	ok, no map[string]int
}

func (s *searchable) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(50 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, size, cost, window, m := "core", 1000, 1, time.Hour, &mirror{body: `{}`}
	switch {
	case strings.HasPrefix(r.URL.Path, "/search/"):
		resource, size, window = "search", 30, time.Minute
	case r.URL.Path == "/graphql":
		resource, size, cost = "graphql", 5000, 20
		m.body = `{"data": {"rateLimit": {"cost": 20}}}`
	}
	if now := time.Now(); !now.Before(s.until[resource]) {
		s.until[resource], s.used[resource] = now.Add(window), 0
	}
	left := size - s.used[resource]
	if m.status = http.StatusOK; left < cost {
		m.status, m.body = http.StatusForbidden, `{"message": "API rate limit exceeded"}`
		left = 0
		s.no[resource]++
	} else {
		s.used[resource] += cost
		left -= cost
		s.ok[resource]++
	}
	m.header = http.Header{
		"Content-Type": {"application/json"}, "X-Ratelimit-Limit": {strconv.Itoa(size)}, "X-Ratelimit-Remaining": {strconv.Itoa(left)},
		"X-Ratelimit-Reset": {strconv.FormatInt(s.until[resource].Unix(), 10)}, "X-Ratelimit-Resource": {resource},
	}
	return m.RoundTrip(r)
}

// TestAProfileGivesAPlainAPIItsPools: what search is refused or runs out of holds nothing
// else up, and each has its own limit, also where calls cost more than one of it.
func TestAProfileGivesAPlainAPIItsPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = time.Hour
		up := &searchable{until: map[string]time.Time{}, used: map[string]int{}, ok: map[string]int{}, no: map[string]int{}}
		x := newRig(t, provider.HTTP, up, func(p *egress.Provider, _ *egress.Options) {
			var err error
			if p.Profile, err = provider.FindProfile("github"); err != nil {
				t.Fatal(err)
			}
			if p.Pacing, err = headway.New(headway.Config{Name: "p", Passive: true, NoBreaker: true, MaxWait: time.Hour}); err != nil {
				t.Fatal(err)
			}
			p.Approver, p.MaxWait = nil, time.Hour
		})
		began := time.Now()
		var wg sync.WaitGroup
		for _, call := range [][3]string{{"GET", "/p/repos/a/b", ""}, {"GET", "/p/search/issues?q=a", ""}, {"POST", "/p/graphql", `{"query": "{a}"}`}} {
			for range 2 {
				wg.Go(func() {
					for time.Since(began) < span {
						if _, _, err := x.ask(t, call[0], call[1], call[2]); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
		for resource, want := range map[string]int{"search": 60 * 30 * 95 / 100, "graphql": 250 * 95 / 100, "core": 1000 * 95 / 100} {
			if up.ok[resource] < want || up.no[resource] > 1 {
				t.Errorf("%s: %d calls, want %d or more; %d refused, want at most one", resource, up.ok[resource], want, up.no[resource])
			}
		}
		var pools []string
		for _, p := range x.pacing.Snapshot().Pools {
			pools = append(pools, p.Name)
		}
		slices.Sort(pools)
		if want := []string{"core", "graphql", "search"}; !slices.Equal(pools, want) {
			t.Errorf("pools %q, want %q", pools, want)
		}
		x.settled(t)
	})
}
