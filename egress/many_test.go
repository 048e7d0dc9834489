package egress_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim/serve/llm"
)

func TestFiftyStreamsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, up := models(t, instant(""), llm.Options{Seed: 3, OutputTokens: 100, TokensPerSecond: 20})
		x := newRig(t, provider.OpenAI, up, nil)
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				body := fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":"question %d"}]}`, i)
				res, answer, err := x.ask(t, "POST", "/p/v1/chat/completions", body)
				if err != nil || res.StatusCode != 200 || !strings.HasSuffix(answer, "data: [DONE]\n\n") || strings.Contains(answer, "usage") {
					t.Errorf("stream %d: %v, %v, %s", i, res, err, answer)
				}
			})
		}
		synctest.Wait()
		if n := x.proxy.Status()[0].InFlight; n != 50 {
			t.Errorf("%d at once, want 50", n)
		}
		all.Wait()
		synctest.Wait()
		x.settled(t)
		if got, want := x.quota.total(), counted(sim); got != want {
			t.Errorf("charged %+v, the provider counted %+v", got, want)
		}
		if x.quota.flow == 0 {
			t.Error("nothing was charged while it flowed")
		}
		if got := x.proxy.Status()[0]; got.Tokens != counted(sim) || got.Calls != 50 || got.Attempts != 50 {
			t.Errorf("status %+v", got)
		}
	})
}

func TestHTTP2OnBothSides(t *testing.T) {
	upstream := httptest.NewUnstartedServer(answers())
	upstream.EnableHTTP2 = true
	upstream.StartTLS()
	defer upstream.Close()
	x := newRig(t, provider.OpenAI, upstream.Client().Transport, func(p *egress.Provider, _ *egress.Options) { p.Description.Upstream = mustURL(t, upstream.URL) })
	front := httptest.NewUnstartedServer(x.proxy)
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	for _, stream := range []bool{false, true} {
		res, err := front.Client().Post(front.URL+"/p/v1/chat/completions", "application/json", strings.NewReader(chatBody("m", stream)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.ProtoMajor != 2 || stream != strings.HasSuffix(string(body), "data: [DONE]\n\n") {
			t.Errorf("%s, error %v, body %s", res.Proto, err, body)
		}
	}
	if err := x.proxy.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if u := x.quota.total(); u.Input != 24 || u.Output != 180 {
		t.Errorf("charged %+v, want 24 and 180", u)
	}
	x.settled(t)
}

func TestStreamsAreFlushedAtOnce(t *testing.T) {
	bubble(t, "of no length", func(t *testing.T) { flushed(t, false) })
	bubble(t, "of a known length", func(t *testing.T) { flushed(t, true) })
}

func flushed(t *testing.T, length bool) {
	const text = "data: {\"choices\":[]}\n\n"
	step := make(chan struct{})
	up, _ := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		if length {
			w.Header().Set("Content-Length", strconv.Itoa(3*len(text)))
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for range 3 {
			<-step
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	x := newRig(t, provider.OpenAI, up, nil)
	res, err := x.do(t.Context(), t, "POST", "/p/v1/chat/completions", chatBody("m", true)) // the header comes before anything else
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	event := make([]byte, len(text))
	for range 3 {
		began := time.Now()
		step <- struct{}{}
		if _, err := io.ReadFull(res.Body, event); err != nil || time.Since(began) != 0 {
			t.Errorf("an event took %v, error %v", time.Since(began), err)
		}
	}
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) != 0 {
		t.Errorf("then came %q, %v", rest, err)
	}
	synctest.Wait()
	x.settled(t)
}

func TestEstimatesComeNearWhatIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, up := models(t, instant(""), llm.Options{OutputTokens: 20})
		x := newRig(t, provider.OpenAI, up, nil)
		const calls = 40
		for range calls {
			body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("incomprehensibilities ", 40) + `"}]}`
			if res, text, err := x.ask(t, "POST", "/p/v1/chat/completions", body); err != nil || res.StatusCode != 200 {
				t.Fatal(res, err, text)
			}
		}
		off := func(c egress.CallLog) int64 {
			return max(c.Estimated.Input-c.Used.Input, c.Used.Input-c.Estimated.Input)
		}
		first, last := x.calls[0], x.calls[calls-1]
		if off(first) < 5 || off(last) > 2 {
			t.Errorf("input: at first %d for %d, at last %d for %d", first.Estimated.Input, first.Used.Input, last.Estimated.Input, last.Used.Input)
		}
		if d := last.Estimated.Output - last.Used.Output; d < -2 || d > 20 || first.Estimated.Output < last.Estimated.Output {
			t.Errorf("output: at first %d, at last %d for %d", first.Estimated.Output, last.Estimated.Output, last.Used.Output)
		}
	})
}

// TestNoPermitIsLeftWhateverEndsTheCalls mixes endings: ends, cuts, errors,
// refusals, clients that leave at any time, and a drain in the middle.
func TestNoPermitIsLeftWhateverEndsTheCalls(t *testing.T) {
	type plan struct {
		chat, model string
		stream      bool
		start, stay time.Duration
	}
	rapid.Check(t, func(r *rapid.T) {
		plans := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) plan {
			return plan{
				chat:   rapid.SampledFrom(slices.Sorted(mapKeys(chats))).Draw(r, "api"),
				model:  rapid.SampledFrom([]string{"m", "m-thinking", "cut-after-2", "cut-after-0", "error-after-2", "overloaded", "throttled", "quota-exhausted"}).Draw(r, "model"),
				stream: rapid.Bool().Draw(r, "stream"),
				start:  time.Duration(rapid.IntRange(0, 5000).Draw(r, "start")) * time.Millisecond,
				stay:   time.Duration(rapid.IntRange(0, 20_000).Draw(r, "stay")) * time.Millisecond,
			}
		}), 1, 12).Draw(r, "plans")
		perMinute := rapid.IntRange(2, 600).Draw(r, "calls per minute")
		retries := rapid.IntRange(0, 2).Draw(r, "retries")
		drain := time.Duration(rapid.IntRange(0, 20_000).Draw(r, "drain")) * time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			_, up := models(t, instant("  limits: [{kind: concurrency, limit: 6}]\n"), llm.Options{OutputTokens: 60, TokensPerSecond: 20})
			x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, o *egress.Options) {
				c := generous()
				c.Global.CallsPerMinute, c.Global.Burst = int64(perMinute), 3
				p.Approver, p.Retries = newLedger(t, c), retries
				for name, chat := range chats {
					one := *p
					one.Name, one.Description = name, describe(t, chat.api)
					o.Providers = append(o.Providers, one)
				}
			})
			var all sync.WaitGroup
			for _, c := range plans {
				all.Go(func() {
					time.Sleep(c.start)
					ctx, cancel := context.WithTimeout(t.Context(), c.stay)
					defer cancel()
					path := "/" + c.chat + strings.TrimPrefix(chats[c.chat].path(c.model, c.stream), "/p")
					res, err := x.do(ctx, t, "POST", path, chats[c.chat].body(c.model, c.stream), "Anthropic-Version: 2023-06-01")
					if err == nil {
						_, _ = io.Copy(io.Discard, res.Body)
						_ = res.Body.Close()
					}
				})
			}
			time.Sleep(drain)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = x.proxy.Drain(ctx)
			all.Wait()
			synctest.Wait()
			x.settled(t)
			for _, c := range x.calls {
				if c.Ending == egress.Panicked || c.Status == 0 || c.Used.Output > 1000 {
					t.Errorf("the log is %+v", c)
				}
			}
		})
	})
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestSecretsAndContentStayWhereTheyBelong(t *testing.T) {
	r, secret := ring(t, keys.Key{ID: "a"})
	for _, model := range []string{"m", "cut-after-1", "throttled", "overloaded", "quota-exhausted", "error-after-1"} {
		for name, chat := range chats {
			bubble(t, name+" "+model, func(t *testing.T) {
				_, up := models(t, instant("  limits: [{kind: sliding_window, limit: 2, window: 1m}]\n"), llm.Options{})
				x := newRig(t, chat.api, up, func(p *egress.Provider, o *egress.Options) {
					o.Keys = r
					c := generous()
					c.Global.CallsPerMinute = 3
					p.Approver, p.MaxWait = newLedger(t, c), time.Second
				})
				var seen strings.Builder
				for i, key := range []string{secret["a"], secret["a"], secret["a"], secret["a"], "hw_wrong-canary-key"} {
					path := chat.path(model, i%2 == 0)
					if !strings.Contains(path, "?") {
						path += "?"
					}
					res, body, _ := x.ask(t, "POST", path+"&x=QUERY-CANARY", chat.body(model, i%2 == 0), "Authorization: Bearer "+key, "Anthropic-Version: 2023-06-01")
					if res != nil {
						fmt.Fprintln(&seen, res.Header, body)
					}
				}
				synctest.Wait()
				fmt.Fprintf(&seen, "%+v %+v %s", x.calls, x.proxy.Status(), x.log.text())
				for _, canary := range []string{providerKey, secret["a"], "hw_wrong-canary-key", "CANARY"} {
					if strings.Contains(seen.String(), canary) {
						t.Errorf("%q is in\n%s", canary, seen.String())
					}
				}
				if !strings.Contains(x.log.text(), "egress call") {
					t.Error("nothing was logged")
				}
			})
		}
	}
}

func TestThousandsOfSlowStreamsNeedLittleMemory(t *testing.T) {
	const most = 96 << 10 // two connections' buffers and six goroutines
	streams := longtest.Size(500, 4000)
	release := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer upstream.Close()
	x := newRig(t, provider.OpenAI, nil, func(p *egress.Provider, _ *egress.Options) { p.Description.Upstream = mustURL(t, upstream.URL) })
	// open begins so many streams and says what each needs.
	open := func(client *http.Client, base string) (bodies []io.ReadCloser, each int64) {
		before := heap()
		bodies = make([]io.ReadCloser, streams)
		var all sync.WaitGroup
		for worker := range 50 {
			all.Go(func() {
				for i := worker; i < streams; i += 50 {
					res, err := client.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(chatBody("m", true)))
					if err != nil {
						t.Error(err)
						return
					}
					bodies[i] = res.Body
				}
			})
		}
		all.Wait()
		return bodies, (heap() - before) / int64(streams)
	}
	direct, without := open(upstream.Client(), upstream.URL)
	proxied, with := open(x.client, "http://proxy/p")
	if n := x.proxy.Status()[0].InFlight; n != int64(streams) {
		t.Errorf("%d streams at once, want %d", n, streams)
	}
	t.Logf("a stream needs %d bytes without the proxy and %d with it", without, with)
	if with-without > most {
		t.Errorf("the proxy needs %d bytes a stream, want at most %d", with-without, most)
	}
	close(release)
	for _, body := range append(direct, proxied...) {
		if body != nil {
			_, _ = io.Copy(io.Discard, body)
			_ = body.Close()
		}
	}
	if err := x.proxy.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	x.settled(t)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
