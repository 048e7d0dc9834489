package egress_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// strict is an upstream that refuses to be asked for usage.
type strict struct {
	status     int
	got, asked int
	refuse     map[string]bool // models; nil is all
	always     bool            // it refuses everything
}

func (s *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.got++
	if strings.Contains(string(body), "stream_options") {
		s.asked++
		if s.refuse == nil || s.refuse[word(string(body))] || s.always {
			w.WriteHeader(s.status)
			_, _ = io.WriteString(w, `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`)
			return
		}
	}
	if s.always {
		w.WriteHeader(s.status)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hello there\"}}]}\n\ndata: [DONE]\n\n")
}

// word is the model of a body.
func word(body string) string {
	_, rest, _ := strings.Cut(body, `"model":"`)
	model, _, _ := strings.Cut(rest, `"`)
	return model
}

func TestAskingForUsageInStreams(t *testing.T) {
	stream := func(t *testing.T, x *rig, model string) int {
		t.Helper()
		res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody(model, true))
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	for _, status := range []int{400, 422} {
		bubble(t, fmt.Sprint("refused with ", status), func(t *testing.T) {
			s := &strict{status: status, refuse: map[string]bool{"mistral": true, "other": true}}
			up, _ := serveOn(t, s)
			x := newRig(t, provider.OpenAI, up, nil)
			for i, c := range []struct {
				model      string
				got, asked int
			}{{"mistral", 2, 1}, {"mistral", 3, 1}, {"gpt", 4, 2}, {"gpt", 5, 3}, {"other", 7, 4}, {"other", 8, 4}, {"mistral", 9, 4}} {
				if status := stream(t, x, c.model); status != 200 || s.got != c.got || s.asked != c.asked {
					t.Errorf("call %d, %s: %d; %d requests, %d that ask, want %d and %d", i, c.model, status, s.got, s.asked, c.got, c.asked)
				}
			}
			synctest.Wait()
			x.settled(t)
		})
	}
	bubble(t, "what is refused anyway is not remembered", func(t *testing.T) {
		s := &strict{status: 400, always: true}
		up, _ := serveOn(t, s)
		x := newRig(t, provider.OpenAI, up, nil)
		for range 2 {
			if status := stream(t, x, "m"); status != 400 {
				t.Error(status)
			}
		}
		if s.got != 4 || s.asked != 2 {
			t.Errorf("%d requests, %d that ask", s.got, s.asked)
		}
		synctest.Wait()
		x.settled(t)
	})
	for inject, want := range map[egress.InjectUsage][3]int{egress.InjectNever: {200, 1, 0}, egress.InjectAlways: {422, 1, 1}, egress.InjectAuto: {200, 2, 1}} {
		t.Run(string(inject), func(t *testing.T) {
			s := &strict{status: 422}
			up, _ := serveOn(t, s)
			x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) { p.InjectUsage = inject })
			if got := [3]int{stream(t, x, "m"), s.got, s.asked}; got != want {
				t.Errorf("status, requests, those that ask: %v, want %v", got, want)
			}
		})
	}
	_, err := egress.New(egress.Options{Providers: []egress.Provider{{Name: "p", Description: describe(t, provider.OpenAI), InjectUsage: "maybe"}}})
	if err == nil || !strings.Contains(err.Error(), "auto, always or never") {
		t.Error(err)
	}
}

func packed(t *testing.T, body string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, body)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGzipBodiesAreReadAndPassedOn(t *testing.T) {
	m := &mirror{header: http.Header{"Content-Type": {"application/json"}}, body: `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`}
	r, secrets := ring(t, keys.Key{ID: "a", Models: []string{"m"}})
	x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, o *egress.Options) { o.Keys, p.MaxBody = r, 1<<20 })
	key := "Authorization: Bearer " + secrets["a"]
	body := packed(t, chatBody("m", false))
	res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", body, key, "Content-Encoding: gzip")
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	if m.bodies[0] != body || m.got[0].Header.Get("Content-Encoding") != "gzip" {
		t.Error("the body did not go upstream as it came")
	}
	if c := x.last(t); c.Model != "m" || !c.Metered || c.Estimated.Input < 5 {
		t.Errorf("the log is %+v", c)
	}
	res, _, err = x.ask(t, "POST", "/p/v1/chat/completions", packed(t, chatBody("m", true)), key, "Content-Encoding: GZIP")
	if err != nil || res.StatusCode != 200 || !strings.Contains(m.bodies[1], `"include_usage":true`) || m.got[1].Header.Get("Content-Encoding") != "" {
		t.Errorf("a stream that is asked for usage: %v, error %v, %q", res, err, m.bodies[1])
	}
	for name, c := range map[string]struct {
		body, encoding string
		want           int
	}{
		"another model":       {packed(t, chatBody("n", false)), "gzip", 403},
		"none":                {chatBody("m", false), "gzip", 415},
		"cut short":           {body[:len(body)-9], "gzip", 415},
		"brotli":              {body, "br", 415},
		"twice":               {packed(t, body), "gzip, gzip", 415},
		"a bomb":              {packed(t, `{"model":"m","a":"`+strings.Repeat("x", 2<<20)+`"}`), "gzip", 413},
		"no JSON within":      {packed(t, "hello"), "gzip", 400},
		"identity means none": {chatBody("m", false), "identity", 200},
	} {
		if res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", c.body, key, "Content-Encoding: "+c.encoding); err != nil || res.StatusCode != c.want {
			t.Errorf("%s: %v, error %v, want %d", name, res, err, c.want)
		}
	}
}

func TestTimeoutsAreTheOwners(t *testing.T) {
	slow := func(wait time.Duration) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-time.After(wait):
				_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
			case <-r.Context().Done():
			}
		})
	}
	for name, c := range map[string]struct {
		tune func(*egress.Provider)
		wait time.Duration
		want int
	}{
		"a call of 11 minutes":             {func(p *egress.Provider) { p.CallTimeout = 30 * time.Minute }, 11 * time.Minute, 200},
		"a call beyond its timeout":        {func(p *egress.Provider) { p.CallTimeout = 30 * time.Minute }, 31 * time.Minute, 504},
		"by default, nearly an hour":       {func(*egress.Provider) {}, 59 * time.Minute, 200},
		"a header that is awaited 3 s":     {func(p *egress.Provider) { p.ResponseHeaderTimeout = 3 * time.Second }, 4 * time.Second, 504},
		"a header that comes before 3 s":   {func(p *egress.Provider) { p.ResponseHeaderTimeout = 3 * time.Second }, 2 * time.Second, 200},
		"an idle timeout is of the answer": {func(p *egress.Provider) { p.IdleTimeout = time.Second }, 2 * time.Second, 200},
	} {
		bubble(t, name, func(t *testing.T) {
			up, _ := serveOn(t, slow(c.wait))
			x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) { c.tune(p) })
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil || res.StatusCode != c.want {
				t.Errorf("%v, error %v, want %d", res, err, c.want)
			}
			synctest.Wait()
			x.settled(t)
		})
	}
}

// drip is a body of n bytes, one every interval; then it goes on or waits.
type drip struct {
	n        int
	interval time.Duration
	forever  bool
}

func (d *drip) Read(p []byte) (int, error) {
	if d.n == 0 && d.forever {
		time.Sleep(24 * time.Hour)
	}
	if d.n == 0 {
		return 0, io.EOF
	}
	time.Sleep(d.interval)
	d.n--
	p[0] = 'x'
	return 1, nil
}

func TestUploadsThatTakeLongerThanTheHeaderPass(t *testing.T) {
	for name, c := range map[string]struct {
		body *drip
		want int
	}{
		"moving for 15 minutes":      {&drip{n: 90, interval: 10 * time.Second}, 200},
		"a client that stops within": {&drip{n: 3, interval: 10 * time.Second, forever: true}, 408},
	} {
		bubble(t, name, func(t *testing.T) {
			got := 0
			up, _ := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				all, _ := io.ReadAll(r.Body)
				got = len(all)
			}))
			x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) { p.ResponseHeaderTimeout = time.Minute })
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://proxy/p/v1/files", io.NopCloser(c.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/octet-stream")
			began := time.Now()
			res, err := x.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if took := time.Since(began); c.want == 408 && took > 92*time.Second {
				t.Errorf("answered after %v", took)
			}
			x.settled(t)
			if res.StatusCode != c.want || c.want == 200 && got != 90 {
				t.Errorf("status %d, %d bytes arrived", res.StatusCode, got)
			}
			if c := x.proxy.Status()[0]; len(c.Circuits) != 0 || c.Failures != 0 {
				t.Errorf("status %+v", c)
			}
			time.Sleep(25 * time.Hour)
			synctest.Wait()
		})
	}
}

func TestHeadersOfAMegabytePass(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	up, l := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Long", long) }))
	_ = up
	// The proxy's own transport, by way of a dialer for the pipes, is what a provider
	// without a Roundtripper has.
	p, err := egress.New(egress.Options{Providers: []egress.Provider{{Name: "p", Description: describe(t, provider.HTTP), Key: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	egress.DialThrough(p, l.Dial)
	front, _ := serveOn(t, p)
	front.MaxResponseHeaderBytes = 4 << 20
	res, err := (&http.Client{Transport: front}).Get("http://proxy/p/x")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 200 || len(res.Header.Get("X-Long")) != len(long) {
		t.Errorf("status %d, %d bytes", res.StatusCode, len(res.Header.Get("X-Long")))
	}
}

func TestKeysThatAreBoundToModelsMayUploadWhereTheyAreAllowed(t *testing.T) {
	m := &mirror{}
	r, secrets := ring(t, keys.Key{ID: "a", Models: []string{"m"}}, keys.Key{ID: "b", Models: []string{"m"}, Uploads: true})
	x := newRig(t, provider.OpenAI, m, func(_ *egress.Provider, o *egress.Options) { o.Keys = r })
	for _, c := range []struct {
		id, path, body string
		want           int
	}{
		{"a", "/p/v1/files", "file", 403}, {"b", "/p/v1/files", "file", 200}, {"b", "/p/v1/chat/completions", "{}", 403},
		{"b", "/p/v1/chat/completions", chatBody("n", false), 403}, {"b", "/p/v1/files", `{"model":"n"}`, 403},
		{"b", "/p/v1/uploads", `{"purpose":"batch"}`, 200}, {"b", "/p/v1/uploads/u/parts", "part", 200}, {"b", "/p/v1/uploads/u/complete", "{}", 200},
		{"b", "/p/upload/v1beta/files", `{"file":{}}`, 200}, {"b", "/p/openai/files?api-version=1", "file", 200},
		// These run a model, which the call does not name.
		{"b", "/p/v1/batches", `{"input_file_id":"f"}`, 403}, {"b", "/p/v1/threads/t/runs", `{"assistant_id":"a"}`, 403},
		{"b", "/p/v1/messages/batches", `{"requests":[]}`, 403}, {"b", "/p/v1/unknown", "{}", 403},
	} {
		res, _, err := x.ask(t, "POST", c.path, c.body, "Authorization: Bearer "+secrets[c.id])
		if err != nil || res.StatusCode != c.want {
			t.Errorf("%+v: %v, error %v", c, res, err)
		}
	}
}

// late is a provider that takes its time.
type late struct {
	http.RoundTripper
	takes time.Duration
}

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(l.takes)
	return l.RoundTripper.RoundTrip(r)
}

func TestCallsSayWhatBoundThem(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tune  func(t *testing.T, p *egress.Provider)
		rests time.Duration // for which the provider has asked
		calls int
		want  reason.Bound
	}{
		{"the owner's ceiling", func(t *testing.T, p *egress.Provider) { p.Pacing = slow(t, time.Second) }, 0, 20, reason.BoundCeiling},
		{"the owner's budget", func(t *testing.T, p *egress.Provider) {
			c := generous()
			c.Global = quota.Limits{CallsPerMinute: 12, Burst: 1}
			p.Approver = newLedger(t, c)
		}, 0, 3, reason.BoundCeiling},
		{"the provider's Retry-After", func(*testing.T, *egress.Provider) {}, time.Second, 1, reason.BoundCooldown},
		{"latency", func(_ *testing.T, p *egress.Provider) { p.Roundtripper = late{p.Roundtripper, 2 * time.Second} }, 0, 3, reason.BoundLatency},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, up := models(t, instant(""), llm.Options{})
				x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) {
					p.MaxWait = time.Minute
					tt.tune(t, p)
				})
				if tt.rests > 0 {
					permit, err := x.pacing.Acquire(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					permit.Settle(headway.Outcome{Class: reason.Throttled, RetryAfter: tt.rests})
				}
				var wg sync.WaitGroup
				for range tt.calls {
					wg.Go(func() {
						res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
						if err != nil || res.StatusCode != http.StatusOK {
							t.Errorf("%v, %v", res, err)
						}
					})
				}
				wg.Wait()
				synctest.Wait()
				var sum reason.Bounds
				for _, c := range x.calls {
					if got := c.BoundBy.Total(); got != c.Whole {
						t.Errorf("%v of %v is accounted for: %v", got, c.Whole, c.BoundBy)
					}
					for i, d := range c.BoundBy {
						sum[i] += d
					}
				}
				if shares := sum.Shares(); len(shares) == 0 || shares[0].Bound != tt.want || shares[0].Of < 0.9 {
					t.Errorf("the calls were bound by %v, want %v", sum, tt.want)
				}
				if got := x.proxy.Status()[0].BoundBy; got != sum {
					t.Errorf("the status says %v, the calls %v", got, sum)
				}
			})
		})
	}
}

// TestWhatIsKnownOfAModelIsNotTriedAgain: one that was asked once and answered is asked
// for good, so that what it then refuses is refused for another reason; only an answer
// says that it takes it.
func TestWhatIsKnownOfAModelIsNotTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []int // of the provider, one after the other
		got      []int // of the calls
	}{
		"it answered":            {[]int{200, 400, 200}, []int{200, 400, 200}},
		"it led elsewhere":       {[]int{300, 400, 200}, []int{300, 200}},
		"it took neither":        {[]int{422, 400, 422, 200, 200}, []int{400, 200, 200}},
		"its refusal was passed": {[]int{500, 422, 200, 200}, []int{500, 200, 200}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &mirror{body: "{}"}
			x := newRig(t, provider.OpenAI, tripper(func(r *http.Request) (*http.Response, error) {
				m.status = c.statuses[len(m.got)]
				return m.RoundTrip(r)
			}), nil)
			for i, want := range c.got {
				res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", true))
				if err != nil || res.StatusCode != want {
					t.Fatalf("call %d: %v, %v, want %d", i, res, err, want)
				}
			}
			if len(m.got) != len(c.statuses) {
				t.Errorf("%d requests upstream, want %d", len(m.got), len(c.statuses))
			}
			x.settled(t)
		})
	}
}

// TestAStreamThatWasAskedByTheClientKeepsItsUsage, and so does one of an error.
func TestAStreamThatWasAskedByTheClientKeepsItsUsage(t *testing.T) {
	const stream = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\n"
	asks := strings.Replace(chatBody("m", true), `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1)
	for name, c := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"the client asks":  {asks, 200, stream},
		"the proxy asks":   {chatBody("m", true), 200, ""},
		"it is an error's": {chatBody("m", true), 500, stream},
	} {
		m := &mirror{status: c.status, header: http.Header{"Content-Type": {"text/event-stream"}}, body: stream}
		x := newRig(t, provider.OpenAI, m, nil)
		if _, text, err := x.ask(t, "POST", "/p/v1/chat/completions", c.body); err != nil || text != c.want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// TestWhatACallIsExpectedToUse: no more output than it allows, whatever it asks for, and
// nothing where nobody wants to know.
func TestWhatACallIsExpectedToUse(t *testing.T) {
	body := func(more string) string {
		return `{"model":"m","messages":[{"role":"user","content":"hi"}]` + more + "}"
	}
	for name, c := range map[string]struct {
		more          string
		quota, pacing bool
		low, high     int64 // output
		status        int
	}{
		"without a bound":    {"", true, true, 2, 100_000, 200},
		"one token":          {`,"max_tokens":1`, true, true, 1, 1, 200},
		"a bound of nothing": {`,"max_tokens":0`, true, true, 2, 100_000, 200},
		"below nothing":      {`,"max_tokens":-5`, true, true, 2, 100_000, 200},
		"beyond measure":     {`,"max_tokens":900000000000000000`, true, true, 2, 100_000, 200},
		"many answers":       {`,"max_tokens":3,"n":4`, true, true, 12, 12, 200},
		"for pacing alone":   {`,"max_tokens":1`, false, true, 1, 1, 200},
		"for nobody":         {"", false, false, 0, 0, 200},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRig(t, provider.OpenAI, &mirror{body: "{}"}, func(p *egress.Provider, _ *egress.Options) {
				if !c.quota {
					p.Approver, p.Models = nil, nil
				}
				if !c.pacing {
					p.Pacing = nil
				}
			})
			res, text, err := x.ask(t, "POST", "/p/v1/chat/completions", body(c.more))
			if err != nil || res.StatusCode != c.status {
				t.Fatal(res, err, text)
			}
			if e := x.last(t).Estimated; e.Output < c.low || e.Output > c.high || (e.Input > 0) != (c.high > 0) {
				t.Errorf("estimated %+v", e)
			}
		})
	}
}

// TestTheOwnerHearsOfEstimatesThatMove: once what calls use is found to be another than
// was assumed, and not with every call.
func TestTheOwnerHearsOfEstimatesThatMove(t *testing.T) {
	heard := 0
	m := &mirror{body: `{"usage":{"prompt_tokens":20,"completion_tokens":5000}}`, header: http.Header{"Content-Type": {"application/json"}}}
	x := newRig(t, provider.OpenAI, m, func(_ *egress.Provider, o *egress.Options) { o.OnEstimate = func() { heard++ } })
	for range 50 {
		if res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
	}
	if heard == 0 || heard > 25 {
		t.Errorf("heard %d times", heard)
	}
}

// TestStreamsAreChargedAsTheyFlow: in steps, beyond the reservation, and no token twice.
func TestStreamsAreChargedAsTheyFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, _ := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 100 { // a token each
				_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Millisecond)
			}
			_, _ = io.WriteString(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":100,\"total_tokens\":112}}\n\ndata: [DONE]\n\n")
		}))
		x := newRig(t, provider.OpenAI, up, nil)
		if _, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", true)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !slices.Equal(x.quota.flows, []int64{32, 32, 32}) || x.quota.total().Output != 100 {
			t.Errorf("%d tokens flowed, %d were charged", x.quota.flows, x.quota.total().Output)
		}
	})
}

// TestACallThatNeverWasTheFirstWaitedForWhatTheFirstWaitsFor, not for the queue.
func TestACallThatNeverWasTheFirstWaitedForWhatTheFirstWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRig(t, provider.OpenAI, &mirror{body: "{}"}, func(p *egress.Provider, _ *egress.Options) {
			p.Pacing, p.MaxWait = slow(t, time.Minute), time.Hour
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 3 {
			of := t.Context()
			if i == 2 {
				of = ctx
			}
			wg.Go(func() {
				if res, err := x.do(of, t, "GET", "/p/v1/models", ""); err == nil {
					_ = res.Body.Close()
				}
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		cancel()
		wg.Wait()
		synctest.Wait()
		if c := x.calls[1]; c.Ending != egress.ClientGone || c.BoundBy[reason.BoundCeiling] != time.Second {
			t.Errorf("the log is %+v", c)
		}
	})
}
