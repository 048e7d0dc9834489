package egress_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// usual is an answer with usage.
const usual = `{"usage":{"prompt_tokens":12,"completion_tokens":100,"total_tokens":112,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":7}}}`

// TestTheLogOfACallIsWhole: field by field, and as a line, and in the totals.
func TestTheLogOfACallIsWhole(t *testing.T) {
	used := quota.Usage{Input: 12, Cached: 5, Output: 100, Reasoning: 7}
	for name, c := range map[string]struct {
		status int
		body   string
		want   egress.CallLog
		total  egress.ProviderStatus
		line   string
	}{
		"answered": {
			200, usual,
			egress.CallLog{Status: 200, Ending: egress.Complete, Class: reason.OK, Attempts: 1, Received: int64(len(usual)), Used: used, Reported: true},
			egress.ProviderStatus{Calls: 1, Attempts: 1, Refused: map[string]int64{}, Tokens: used},
			`level=DEBUG msg="egress call" provider=p model=gpt-4 key=a tenant=t agent=g status=200 ending=complete class=ok reason=none code="" attempts=1 wait=0s header=0s whole=0s input_tokens=12 output_tokens=100 cached_tokens=5 reasoning_tokens=7 reported=true`,
		},
		"throttled": {
			429, "{}",
			egress.CallLog{Status: 429, Ending: egress.Complete, Class: reason.Throttled, Attempts: 1, Throttled: 1, Received: 2},
			egress.ProviderStatus{Calls: 1, Attempts: 1, Throttles: 1, Refused: map[string]int64{}},
			`status=429 ending=complete class=throttled`,
		},
		"failed": {
			500, "{}",
			egress.CallLog{Status: 500, Ending: egress.Complete, Class: reason.Failed, Attempts: 1, Received: 2},
			egress.ProviderStatus{Calls: 1, Attempts: 1, Failures: 1, Refused: map[string]int64{}},
			`status=500 ending=complete class=failed`,
		},
	} {
		bubble(t, name, func(t *testing.T) {
			r, secret := ring(t, keys.Key{ID: "a", Tenant: "t"})
			m := &mirror{status: c.status, body: c.body, header: http.Header{"Content-Type": {"application/json"}}}
			x := newRig(t, provider.OpenAI, m, func(_ *egress.Provider, o *egress.Options) { o.Keys = r })
			began := time.Now()
			if _, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("gpt-4", false), "Authorization: Bearer "+secret["a"], "X-Headway-Agent: g"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want := c.want
			want.Began, want.Provider, want.Method, want.Model, want.Budget = began, "p", "POST", "gpt-4", "others"
			want.KeyID, want.Tenant, want.Agent, want.Law, want.Metered = "a", "t", "g", "aimd", true
			want.Sent, want.Estimated = int64(len(chatBody("gpt-4", false))), quota.Usage{Input: 15, Output: 200}
			if diff := cmp.Diff(want, x.last(t), cmpopts.IgnoreFields(egress.CallLog{}, "Estimated")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if e := x.last(t).Estimated; e.Input < 5 || e.Input > 50 || e.Output <= 0 || e.Output > 200 {
				t.Errorf("estimated %+v", e)
			}
			c.total.Name, c.total.API = "p", "openai"
			if diff := cmp.Diff(c.total, x.proxy.Status()[0], cmpopts.IgnoreFields(egress.ProviderStatus{}, "Pacing", "Limits"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("totals (-want +got):\n%s", diff)
			}
			if !strings.Contains(x.log.text(), c.line) {
				t.Errorf("no %s in %s", c.line, x.log.text())
			}
			x.settled(t)
		})
	}
}

// TestAClientThatGoesWhileItWaitsLeavesNothing: no place in a queue, no refusal that is
// counted, no pressure.
func TestAClientThatGoesWhileItWaitsLeavesNothing(t *testing.T) {
	for name, tune := range map[string]func(*egress.Provider){
		"for both":   func(p *egress.Provider) { p.Pacing = slow(t, time.Minute) },
		"for quota":  func(p *egress.Provider) { p.Pacing = nil },
		"for pacing": func(p *egress.Provider) { p.Approver, p.Models, p.Pacing = nil, nil, slow(t, time.Minute) },
	} {
		bubble(t, name, func(t *testing.T) {
			up := &mirror{body: "{}"}
			x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) {
				c := generous()
				c.Global = quota.Limits{CallsPerMinute: 1}
				p.Approver, p.MaxWait = newLedger(t, c), time.Hour
				tune(p)
			})
			if res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != 200 {
				t.Fatal(res, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if res, err := x.do(ctx, t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err == nil {
					_ = res.Body.Close()
					t.Error("an answer")
				}
			})
			time.Sleep(time.Second)
			if s := x.proxy.Status()[0]; s.Waiting != 1 || s.InFlight != 1 {
				t.Errorf("%d wait, %d are in flight", s.Waiting, s.InFlight)
			}
			cancel()
			wg.Wait()
			synctest.Wait()
			if n := x.quota.Snapshot().Statistics.Waiting; n != 0 {
				t.Errorf("%d wait at the quota", n)
			}
			if s := x.proxy.Status()[0]; len(s.Refused) != 0 || s.Calls != 2 || s.Attempts != 1 {
				t.Errorf("status %+v", s)
			}
			got := x.calls[1]
			if got.Status != 499 || got.Ending != egress.ClientGone || got.Reason != reason.Canceled || got.Class != reason.Unknown || got.Wait != time.Second || got.BoundBy.Total() != time.Second {
				t.Errorf("the log is %+v", got)
			}
			x.settled(t)
		})
	}
}

// TestABodyWithoutALengthIsPassedOnAsItComes: whatever it is.
func TestABodyWithoutALengthIsPassedOnAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := make(chan struct{})
		up, _ := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 2 {
				_, _ = io.WriteString(w, "part")
				_ = http.NewResponseController(w).Flush()
				<-step
			}
		}))
		x := newRig(t, provider.HTTP, up, nil)
		res, err := x.do(t.Context(), t, "GET", "/p/log", "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		part := make([]byte, len("part"))
		for range 2 {
			if _, err := io.ReadFull(res.Body, part); err != nil { // or it waits for ever
				t.Fatal(err)
			}
			step <- struct{}{}
		}
	})
}

// TestAPlainAPIIsSentAgainWhereItsBodyIsKnown: what may be sent again is read first, as
// far as the bound of bodies goes; what has no length is not.
func TestAPlainAPIIsSentAgainWhereItsBodyIsKnown(t *testing.T) {
	const most = 1 << 10
	for name, c := range map[string]struct {
		size, retries int
		announced     bool
		status, sent  int
	}{
		"a small body":           {10, 1, true, 200, 2},
		"one as large as it may": {most, 1, true, 200, 2},
		"one that is larger":     {most + 1, 1, true, 503, 1},
		"one without a length":   {10, 1, false, 503, 1},
		"without retries":        {10, 0, true, 503, 1},
	} {
		bubble(t, name, func(t *testing.T) {
			m := &mirror{body: "{}"}
			x := newRig(t, provider.HTTP, tripper(func(r *http.Request) (*http.Response, error) {
				m.status = []int{503, 200}[len(m.got)]
				return m.RoundTrip(r)
			}), func(p *egress.Provider, _ *egress.Options) { p.Retries, p.MaxBody = c.retries, most })
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/p/rows", io.LimitReader(zeros{}, int64(c.size)))
			if c.announced {
				r.ContentLength = int64(c.size)
			}
			w := httptest.NewRecorder()
			x.proxy.ServeHTTP(w, r)
			if w.Code != c.status || len(m.got) != c.sent {
				t.Errorf("status %d after %d attempts, want %d after %d", w.Code, len(m.got), c.status, c.sent)
			}
			for _, body := range m.bodies {
				if len(body) != c.size {
					t.Errorf("%d bytes were sent", len(body))
				}
			}
			if got := x.last(t); got.Sent != int64(c.size*c.sent) {
				t.Errorf("the log has %d bytes sent", got.Sent)
			}
			x.settled(t)
		})
	}
}

// TestWhatIsSentAgainTeachesThePacing: also the wait that only the body asks for.
func TestWhatIsSentAgainTeachesThePacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := &mirror{header: http.Header{"Content-Type": {"application/json"}}}
		x := newRig(t, provider.Gemini, tripper(func(r *http.Request) (*http.Response, error) {
			m.status, m.body = 200, "{}"
			if len(m.got) == 0 {
				m.status, m.body = 429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"8s"}]}}`
			}
			return m.RoundTrip(r)
		}), func(p *egress.Provider, _ *egress.Options) { p.Retries, p.MaxWait = 1, time.Minute })
		chat := chats["gemini"]
		res, body, err := x.ask(t, "POST", chat.path("m", false), chat.body("m", false))
		if err != nil || res.StatusCode != 200 || time.Since(began) != 8*time.Second {
			t.Errorf("%v, %v after %v: %s", res, err, time.Since(began), body)
		}
		synctest.Wait()
		x.settled(t)
	})
}

// TestKeysChangeForCallsToCome: nothing else does.
func TestKeysChangeForCallsToCome(t *testing.T) {
	x := newRig(t, provider.OpenAI, &mirror{body: "{}"}, nil)
	one, first := ring(t, keys.Key{ID: "a"})
	two, second := ring(t, keys.Key{ID: "b"})
	status := func(key string) int {
		res, _, err := x.ask(t, "GET", "/p/v1/models", "", "Authorization: Bearer "+key)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	for _, c := range []struct {
		ring                *egress.Keys
		none, first, second int
	}{{nil, 200, 200, 200}, {one, 401, 200, 401}, {two, 401, 401, 200}, {nil, 200, 200, 200}} {
		x.proxy.SetKeys(c.ring)
		if got := [3]int{status("none"), status(first["a"]), status(second["b"])}; got != [3]int{c.none, c.first, c.second} {
			t.Errorf("%v, want %v", got, c)
		}
	}
}

// TestProvidersShareATransportUnlessTheyDiffer: one that differs keeps its own over a
// reload that does not change it.
func TestProvidersShareATransportUnlessTheyDiffer(t *testing.T) {
	var dials atomic.Int64
	d := upstream(t, empty, func(state http.ConnState) {
		if state == http.StateNew {
			dials.Add(1)
		}
	})
	of := func(tune func(*egress.Provider)) egress.Options {
		p := egress.Provider{Name: "p", Description: d}
		tune(&p)
		return egress.Options{Providers: []egress.Provider{p}}
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS13}
	plain := func(*egress.Provider) {}
	own := func(p *egress.Provider) { p.DialTimeout = time.Second }
	for name, c := range map[string]struct {
		first, second func(*egress.Provider)
		dials         int64
	}{
		"the same":                {plain, plain, 1},
		"its own":                 {own, own, 1},
		"its own TLS":             {func(p *egress.Provider) { p.TLS = trust }, func(p *egress.Provider) { p.TLS = trust }, 1},
		"another TLS":             {func(p *egress.Provider) { p.TLS = trust }, func(p *egress.Provider) { p.TLS = trust.Clone() }, 2},
		"from all's to its own":   {plain, own, 2},
		"another dial timeout":    {own, func(p *egress.Provider) { p.DialTimeout = 2 * time.Second }, 2},
		"another TLS timeout too": {own, func(p *egress.Provider) { p.DialTimeout, p.TLSTimeout = time.Second, time.Second }, 2},
	} {
		proxy, err := egress.New(of(c.first))
		if err != nil {
			t.Fatal(err)
		}
		dials.Store(0)
		for range 2 {
			w := httptest.NewRecorder()
			proxy.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/p/x", nil))
			if w.Code != 200 {
				t.Fatalf("%s: %d %s", name, w.Code, w.Body)
			}
			if err := proxy.Replace(of(c.second)); err != nil {
				t.Fatal(err)
			}
		}
		if n := dials.Load(); n != c.dials {
			t.Errorf("%s: %d connections, want %d", name, n, c.dials)
		}
		if err := proxy.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// upstream starts a server, whose connections it reports, and describes it as a provider.
func upstream(t *testing.T, h http.HandlerFunc, moved func(state http.ConnState)) provider.Description {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) { moved(state) }
	s.Start()
	t.Cleanup(s.Close)
	d, err := provider.New(provider.Settings{API: provider.HTTP, Upstream: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// closed has a value for each connection that was closed, and what reports them to it.
func closed() (ended chan struct{}, moved func(http.ConnState)) {
	ended = make(chan struct{}, 8)
	return ended, func(state http.ConnState) {
		if state == http.StateClosed {
			ended <- struct{}{}
		}
	}
}

// empty answers with an empty object.
func empty(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }

// TestConnectionsThatNobodyNeedsEnd: those of a transport that a reload replaced, and all
// with the proxy.
func TestConnectionsThatNobodyNeedsEnd(t *testing.T) {
	ended, moved := closed()
	d := upstream(t, empty, moved)
	with := func(dial time.Duration) egress.Options {
		return egress.Options{Providers: []egress.Provider{{Name: "p", Description: d, DialTimeout: dial}}}
	}
	proxy, err := egress.New(with(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	call := func() {
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/p/x", nil))
		if w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	call()
	if err := proxy.Replace(with(0)); err != nil {
		t.Fatal(err)
	}
	<-ended
	call()
	if err := proxy.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// TestWhatAnAnswerKeeps on its way: its length, its trailer, and its bytes where they are
// compressed; and a status is a success below 300.
func TestWhatAnAnswerKeeps(t *testing.T) {
	large := strings.Repeat("x", 8<<10)
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			w.Header().Set("Content-Length", strconv.Itoa(len(large)))
			_, _ = io.WriteString(w, large)
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(large)))
			_, _ = io.WriteString(w, large)
		case "/trailer":
			w.Header().Set("Trailer", "X-Checksum")
			_, _ = io.WriteString(w, large)
			w.Header().Set("X-Checksum", "7")
		}
	})
	up, _ := serveOn(t, upstream)
	x := newRig(t, provider.HTTP, up, nil)
	for path, check := range map[string]func(*http.Response) bool{
		"/p/large":   func(r *http.Response) bool { return r.ContentLength == int64(len(large)) },
		"/p/json":    func(r *http.Response) bool { return r.ContentLength == int64(len(large)) },
		"/p/trailer": func(r *http.Response) bool { return r.Trailer.Get("X-Checksum") == "7" },
	} {
		res, err := x.do(t.Context(), t, "GET", path, "")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(body) != large || !check(res) {
			t.Errorf("%s: %v, %d bytes of %d, trailer %v", path, err, len(body), res.ContentLength, res.Trailer)
		}
	}
	for method, status := range map[string]int{"HEAD": 200, "DELETE": 204} {
		m := &mirror{status: status, header: http.Header{"Content-Length": {"0"}}}
		res, _, err := newRig(t, provider.HTTP, m, nil).ask(t, method, "/p/x", "")
		if got := strings.Join(res.Header["Content-Length"], ","); err != nil || got != map[int]string{200: "0"}[status] {
			t.Errorf("%s: a length of %q, %v", method, got, err)
		}
	}
	const packed = `{"results_url":"http://upstream/v1/messages/batches/b/results"}`
	m := &mirror{header: http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, body: packed}
	if _, text, err := newRig(t, provider.Anthropic, m, nil).ask(t, "GET", "/p/v1/messages/batches/b", ""); err != nil || text != packed {
		t.Errorf("a compressed answer became %s, %v", text, err)
	}
	for status, reported := range map[int]bool{299: true, 300: false} {
		m := &mirror{status: status, header: http.Header{"Content-Type": {"application/json"}}, body: `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`}
		x := newRig(t, provider.OpenAI, m, nil)
		if _, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || x.last(t).Reported != reported {
			t.Errorf("status %d: %v, reported %v", status, err, x.last(t).Reported)
		}
	}
}

// TestWhatARequestKeeps: what it accepts, and that a body without a length which was empty for none.
func TestWhatARequestKeeps(t *testing.T) {
	m := &mirror{body: "{}"}
	x := newRig(t, provider.OpenAI, m, nil)
	if _, _, err := x.ask(t, "GET", "/p/v1/models", "", "Accept-Encoding: br"); err != nil || m.got[0].Header.Get("Accept-Encoding") != "br" {
		t.Errorf("%v: upstream was asked for %q", err, m.got[0].Header.Get("Accept-Encoding"))
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://proxy/p/v1/files/f/cancel", io.MultiReader(strings.NewReader("")))
	if err != nil {
		t.Fatal(err)
	}
	res, err := x.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got := m.got[1]; got.ContentLength != 0 || got.Body != http.NoBody {
		t.Errorf("upstream got a body of %d bytes, which was none", got.ContentLength)
	}
}

// TestABadRequestThatSpeaksOfTheAccount is read like any other refusal.
func TestABadRequestThatSpeaksOfTheAccount(t *testing.T) {
	m := &mirror{status: 400, header: http.Header{"Content-Type": {"application/json"}}, body: `{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"x"}}`}
	x := newRig(t, provider.OpenAI, m, nil)
	if _, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil {
		t.Fatal(err)
	}
	if c := x.last(t); c.Class != reason.Throttled || c.Throttled != 1 {
		t.Errorf("the log is %+v", c)
	}
}

// simple is a quota with the least that one needs.
type simple struct {
	*ledger
	no bool
}

// Config and Reserve hide those of the ledger, by another shape.
func (simple) Config()  {}
func (simple) Reserve() {}

// Overrun and HoldBack too.
func (simple) Overrun()  {}
func (simple) HoldBack() {}

func (s simple) ApproveWait(ctx context.Context, r quota.Request) (quota.Decision, error) {
	if s.no {
		return quota.Decision{Reason: quota.Throttled, Code: quota.CodeThrottled, RetryIn: time.Minute}, nil
	}
	return s.ledger.ApproveWait(ctx, r)
}

// TestAQuotaNeedsNoMoreThanItsInterface: without limits to show and places in a queue.
func TestAQuotaNeedsNoMoreThanItsInterface(t *testing.T) {
	for name, paced := range map[string]bool{"paced": true, "not paced": false} {
		bubble(t, name, func(t *testing.T) {
			var q *simple
			m := &mirror{body: usual, header: http.Header{"Content-Type": {"application/json"}}}
			x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, _ *egress.Options) {
				q = &simple{ledger: newLedger(t, generous())}
				if p.Approver = q; !paced {
					p.Pacing = nil
				}
			})
			x.quota = q.ledger
			if res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != 200 || x.quota.total() != (quota.Usage{Input: 12, Cached: 5, Output: 100}) {
				t.Fatal(res, err, body, x.quota.total())
			}
			m.status = 429
			if res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("throttled", false)); err != nil || res.StatusCode != 429 {
				t.Fatal(res, err, body)
			}
			q.no, m.status = true, 0
			res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil || res.StatusCode != 429 || len(m.got) != 2 || !strings.Contains(body, "RATE_THROTTLED") || res.Header.Get("Retry-After") != "60" || res.Header.Get("Ratelimit") != "" {
				t.Error(res, err, body, len(m.got))
			}
			x.settled(t)
		})
	}
}

// TestAnAnswerThatIsNoStreamStaysAsItIs: though a stream was asked for its usage.
func TestAnAnswerThatIsNoStreamStaysAsItIs(t *testing.T) {
	text := `{"choices":[],"usage":{"prompt_tokens":1}}` + "\n\n"
	m := &mirror{body: text, header: http.Header{"Content-Type": {"application/json"}}}
	x := newRig(t, provider.OpenAI, m, nil)
	res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", true))
	if err != nil || body != text || !strings.Contains(m.bodies[0], "include_usage") || res.Header.Get("Content-Length") == "" {
		t.Errorf("%v, %v, %q", res, err, body)
	}
}

// TestWhatCannotBeTriedInTimeIsGivenAtOnce: the provider's answer, not one of ours after
// a wait in vain.
func TestWhatCannotBeTriedInTimeIsGivenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mirror{status: 429, body: `{"error":{"message":"theirs"}}`, header: http.Header{"Retry-After": {"60"}}}
		x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, _ *egress.Options) { p.Retries = 3 })
		began := time.Now()
		res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
		if err != nil || res.StatusCode != 429 || !strings.Contains(body, "theirs") || len(m.got) != 1 || time.Since(began) != 0 {
			t.Errorf("%v, %v after %v and %d attempts: %s", res, err, time.Since(began), len(m.got), body)
		}
		x.settled(t)
	})
}

// TestMethodsThatAreNotKnown: a plain API may have its own.
func TestMethodsThatAreNotKnown(t *testing.T) {
	for api, want := range map[provider.API]int{provider.HTTP: 200, provider.OpenAI: 405} {
		x := newRig(t, api, &mirror{body: "{}"}, nil)
		if res, _, err := x.ask(t, "PURGE", "/p/cache", ""); err != nil || res.StatusCode != want {
			t.Errorf("%s: %v, %v", api, res, err)
		}
		if res, _, err := x.ask(t, "TRACE", "/p/cache", ""); err != nil || res.StatusCode != 405 {
			t.Errorf("%s: %v, %v", api, res, err)
		}
	}
}

// TestAQuotaThatStandsAloneIsWaitedForFirst: its wait and the pacing's are counted apart and
// do not overlap, and the limits of both are shown.
func TestAQuotaThatStandsAloneIsWaitedForFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := generous()
		config.Global = quota.Limits{CallsPerMinute: 60, Burst: 1}
		var q simple
		m := &mirror{body: usual, header: http.Header{"Content-Type": {"application/json"}}}
		x := newRig(t, provider.OpenAI, late{m, 2 * time.Second}, func(p *egress.Provider, _ *egress.Options) {
			q = simple{ledger: newLedger(t, config)}
			p.Approver, p.Pacing = q, slow(t, 3*time.Second)
		})
		x.quota = q.ledger
		for range 2 {
			go func() { _, _, _ = x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)) }()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		c := x.calls[1]
		if c.Wait != 3*time.Second || c.Header != 2*time.Second || c.BoundBy[reason.BoundCeiling] != 3*time.Second || c.BoundBy[reason.BoundLatency] != 2*time.Second || c.BoundBy.Total() != c.Whole {
			t.Errorf("the log is %+v", c)
		}
		x.settled(t)
	})
	x := newRig(t, provider.OpenAI, &mirror{}, nil)
	want := budgets(t, x)
	if got := x.proxy.Status()[0].Limits; len(got) < len(want) || !cmp.Equal(got[:len(want)], want) {
		t.Errorf("the limits are %+v, want first %+v", got, want)
	}
}

// TestBudgetsSayHowMuchOfThemIsUsed, and when there is room.
func TestBudgetsSayHowMuchOfThemIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := generous()
		config.Global = quota.Limits{CallsPerMinute: 60, Burst: 2}
		config.Models = map[string]quota.Model{"others": {Limits: quota.Limits{MaxDailyCalls: 2}}}
		m := &mirror{body: usual, header: http.Header{"Content-Type": {"application/json"}}}
		x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, _ *egress.Options) { p.Approver, p.Pacing = newLedger(t, config), nil })
		for range 2 {
			if res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != 200 {
				t.Fatal(res, err)
			}
		}
		want := []event.Limit{
			{Kind: "token_bucket", Size: 60, WindowS: 60, Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1, Used: new(2.0), RoomAt: time.Now().Add(time.Second).Round(0)},
			{Kind: "fixed_window", Size: 2, WindowS: 86_400, Unit: event.UnitRequests, Pool: "others", Provenance: event.Owner, Confidence: 1, Used: new(2.0), RoomAt: time.Now().Add(24 * time.Hour).Round(0)},
		}
		if d := cmp.Diff(want, x.proxy.Status()[0].Limits); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		x.settled(t)
	})
}

// budgets are those of a rig as they are made.
func budgets(t *testing.T, x *rig) []event.Limit {
	t.Helper()
	global := x.quota.Config().Global
	return []event.Limit{
		{Kind: "token_bucket", Size: float64(global.CallsPerMinute), WindowS: 60, Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1, Used: new(0.0)},
		{Kind: "token_bucket", Size: float64(global.TokensPerMinute), WindowS: 60, Unit: event.UnitTokens, Provenance: event.Owner, Confidence: 1, Used: new(0.0)},
	}
}

// TestATransportOfTheOwnersIsLeftAlone by a reload that no longer uses it.
func TestATransportOfTheOwnersIsLeftAlone(t *testing.T) {
	dials := 0
	up, l := serveOn(t, answers())
	up.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials++
		return l.Dial(ctx, network, address)
	}
	x := newRig(t, provider.OpenAI, up, nil)
	call := func(by http.RoundTripper) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://upstream/v1/chat/completions", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := by.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	call(up)
	if err := x.proxy.Replace(egress.Options{Providers: []egress.Provider{{Name: "p", Description: describe(t, provider.OpenAI), Roundtripper: &mirror{}}}}); err != nil {
		t.Fatal(err)
	}
	if call(up); dials != 1 {
		t.Errorf("%d connections, want that the first is kept", dials)
	}
}

// TestConnectionsOfFormerCallsEndWithTheProxy, though no provider has used their
// transport since a reload.
func TestConnectionsOfFormerCallsEndWithTheProxy(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	ended, moved := closed()
	d := upstream(t, func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-release
	}, moved)
	proxy, err := egress.New(egress.Options{Providers: []egress.Provider{{Name: "p", Description: d}}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		proxy.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/p/x", nil))
	})
	<-entered
	if err := proxy.Replace(egress.Options{}); err != nil {
		t.Fatal(err)
	}
	close(release)
	wg.Wait()
	if err := proxy.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
}
