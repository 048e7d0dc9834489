package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/pipenet"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

func TestAClientThatGoesAwayCancelsUpstreamAtOnce(t *testing.T) {
	for name, chunks := range map[string]int{"before the first byte": 0, "while streaming": 5} {
		for api, chat := range chats {
			bubble(t, api+" "+name, func(t *testing.T) {
				sim, up := models(t, instant(""), llm.Options{Seed: 7, OutputTokens: 150, TokensPerSecond: 10})
				x := newRig(t, chat.api, up, nil)
				ctx, cancel := context.WithCancel(t.Context())
				stream := chunks > 0
				go func() {
					// A plain answer takes its whole time before the header.
					time.Sleep(2 * time.Second)
					cancel()
				}()
				res, err := x.do(ctx, t, "POST", chat.path("sim", stream), chat.body("sim", stream), "Anthropic-Version: 2023-06-01")
				if stream {
					if err != nil {
						t.Fatal(err)
					}
					_, err = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("error %v, want that of the client's going away", err)
				}
				left := time.Now()
				synctest.Wait()
				x.settled(t)
				if n := sim.Stats().InFlight; n != 0 || time.Since(left) != 0 {
					t.Errorf("%d calls are under way upstream after %v", n, time.Since(left))
				}
				c := x.last(t)
				if c.Ending != egress.ClientGone || c.Reason != reason.Canceled || c.Reported {
					t.Errorf("the log is %+v", c)
				}
				used, want := x.quota.total(), counted(sim)
				if used.Input < want.Input/2 || used.Input > want.Input*2 {
					t.Errorf("input %d, the provider counted %d", used.Input, want.Input)
				}
				if stream && (want.Output == 0 || used.Output < want.Output/2 || used.Output > want.Output*2) {
					t.Errorf("output %d, the provider counted %d", used.Output, want.Output)
				}
				if !stream && (c.Status != 499 || c.Class != reason.Unknown || used.Output != 0) {
					t.Errorf("class %v, output %d, want nothing learned and nothing seen", c.Class, used.Output)
				}
			})
		}
	}
}

// speaks is an upstream that does what a test asks for with each connection, after it
// has read a request.
func speaks(t *testing.T, say func(net.Conn)) http.RoundTripper {
	t.Helper()
	w := pipenet.New()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := w.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				say(c)
			}()
		}
	}()
	up := &http.Transport{DialContext: w.Dial, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10}
	t.Cleanup(func() {
		up.CloseIdleConnections()
		_ = w.Close()
		<-done
	})
	return up
}

// says is one that always says the same and hangs up.
func says(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

func TestUpstreamsThatMisbehave(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	hang := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, text)
			_, _ = io.Copy(io.Discard, c) // until the other side closes
		}
	}
	for name, c := range map[string]struct {
		up     func(net.Conn)
		status int
		broken bool
		ending egress.Ending
		class  reason.Class
		why    reason.Reason
		free   bool // no tokens are charged
	}{
		"garbage":               {says("SSH-2.0-OpenSSH_9.9\r\n\r\n"), 502, false, egress.Unreachable, reason.Lost, reason.Unreachable, false},
		"nothing":               {says(""), 502, false, egress.Unreachable, reason.Lost, reason.Unreachable, false},
		"a status of zero":      {says("HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n"), 502, false, egress.Unreachable, reason.Lost, reason.Unreachable, false},
		"a header of 1 MB":      {says(ok + "X: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), 502, false, egress.Unreachable, reason.Lost, reason.Unreachable, false},
		"silence":               {hang(""), 504, false, egress.TimedOut, reason.Failed, reason.Timeout, false},
		"silence in the body":   {hang(ok + "Content-Length: 100\r\n\r\n{"), 200, true, egress.TimedOut, reason.Failed, reason.Timeout, false},
		"a body that is short":  {says(ok + "Content-Length: 100\r\n\r\n{"), 200, true, egress.BrokenOff, reason.Failed, reason.InvalidResponse, false},
		"an invalid chunk":      {says(ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), 200, true, egress.BrokenOff, reason.Failed, reason.InvalidResponse, false},
		"a body of another API": {says(ok + "Content-Length: 5\r\n\r\n<htm>"), 200, false, egress.Complete, reason.OK, reason.None, false},
		"a status above all":    {says("HTTP/1.1 600 What\r\nContent-Length: 0\r\n\r\n"), 502, false, egress.Unreachable, reason.Lost, reason.Unreachable, false},
		"one of a lost client":  {says("HTTP/1.1 499 Gone\r\nContent-Length: 2\r\n\r\n{}"), 499, false, egress.Complete, reason.Rejected, reason.None, true},
		"another protocol":      {says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), 502, false, egress.Unreachable, reason.Lost, reason.Unreachable, false},
		"unauthorized":          {says("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"), 401, false, egress.Complete, reason.Rejected, reason.None, true},
		"anthropic's 529":       {says("HTTP/1.1 529 Overloaded\r\nContent-Length: 2\r\n\r\n{}"), 529, false, egress.Complete, reason.Overloaded, reason.None, true},
	} {
		bubble(t, name, func(t *testing.T) {
			x := newRig(t, chats["openai"].api, speaks(t, c.up), func(p *egress.Provider, o *egress.Options) {
				p.IdleTimeout = 5 * time.Minute
				o.NewSpan = func(string) string { return "span" }
			})
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if res == nil {
				t.Fatal(err)
			}
			if res.StatusCode != c.status || (err != nil) != c.broken {
				t.Fatalf("status %d, error %v", res.StatusCode, err)
			}
			synctest.Wait()
			x.settled(t)
			got := x.last(t)
			if got.Ending != c.ending || got.Class != c.class || got.Reason != c.why || got.Status != c.status {
				t.Errorf("the log is %+v", got)
			}
			answered := c.status
			if answered == 502 || answered == 504 { // which are ours
				answered = 0
			}
			if len(got.Traced) != 1 || got.Traced[0].Status != answered {
				t.Errorf("the attempts are %+v, want one of status %d", got.Traced, answered)
			}
			used := x.quota.total()
			if len(x.quota.used) != 1 || c.free != (used == quota.Usage{}) {
				t.Errorf("%d permits were settled with %+v", len(x.quota.used), used)
			}
		})
	}
}

func TestAnEndlessDripEndsWithTheCall(t *testing.T) {
	bubble(t, "drip", func(t *testing.T) {
		up := speaks(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
			for {
				if _, err := io.WriteString(c, ":\n"); err != nil {
					return
				}
				time.Sleep(time.Minute)
			}
		})
		x := newRig(t, chats["openai"].api, up, nil)
		began := time.Now()
		res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", true))
		if res == nil || err == nil || time.Since(began) != egress.DefaultCallTimeout {
			t.Errorf("it ended with %v after %v, want an error after %v", err, time.Since(began), egress.DefaultCallTimeout)
		}
		synctest.Wait()
		x.settled(t)
		if c := x.last(t); c.Ending != egress.TimedOut || c.Reason != reason.Timeout {
			t.Errorf("the log is %+v", c)
		}
		time.Sleep(time.Minute) // the upstream notices
	})
}

func TestAClientThatDoesNotReadIsLetGo(t *testing.T) {
	bubble(t, "stalled", func(t *testing.T) {
		up := speaks(t, says("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+strings.Repeat("data: {}\n\n", 100_000)))
		x := newRig(t, chats["openai"].api, up, func(p *egress.Provider, _ *egress.Options) { p.IdleTimeout = 5 * time.Minute })
		res, err := x.do(t.Context(), t, "POST", "/p/v1/chat/completions", chatBody("m", true))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		time.Sleep(5*time.Minute - time.Second)
		if s := x.proxy.Status()[0]; s.InFlight != 1 {
			t.Fatalf("%d in flight while it may still read", s.InFlight)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		x.settled(t)
		if c := x.last(t); c.Ending != egress.ClientGone || c.Class != reason.OK || c.Reason != reason.Canceled {
			t.Errorf("the log is %+v, want that the client is to blame", c)
		}
	})
}

func TestAConnectionThatIsNeverMadeCostsNothing(t *testing.T) {
	for name, up := range map[string]http.RoundTripper{
		"refused": &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused by CANARY")}
		}},
		"unknown host": &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			x := newRig(t, chats["openai"].api, up, nil)
			res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil || res.StatusCode != 502 || strings.Contains(body, "CANARY") {
				t.Fatalf("status %v, error %v, body %s", res, err, body)
			}
			synctest.Wait()
			x.settled(t)
			if x.quota.back != 1 || len(x.quota.used) != 0 {
				t.Errorf("%d permits were given back, %d settled", x.quota.back, len(x.quota.used))
			}
			if c := x.last(t); c.Class != reason.Lost || c.Ending != egress.Unreachable {
				t.Errorf("the log is %+v", c)
			}
		})
	}
}

func TestAnsweredCallsAreChargedWhatTheProviderCounted(t *testing.T) {
	for name, chat := range chats {
		for _, stream := range []bool{false, true} {
			kind := map[bool]string{false: " plain", true: " stream"}[stream]
			bubble(t, name+kind, func(t *testing.T) {
				sim, up := models(t, instant(""), llm.Options{Seed: 7})
				x := newRig(t, chat.api, up, nil)
				want := direct(t, up, strings.TrimPrefix(chat.path("sim-thinking", stream), "/p"), chat.body("sim-thinking", stream))
				res, body, err := x.ask(t, "POST", chat.path("sim-thinking", stream), chat.body("sim-thinking", stream), "Anthropic-Version: 2023-06-01")
				if err != nil || res.StatusCode != 200 {
					t.Fatalf("status %v, error %v, body %s", res, err, body)
				}
				synctest.Wait()
				x.settled(t)
				if got, want := x.quota.total(), counted(sim); got != want || want.Output == 0 {
					t.Errorf("charged %+v, the provider counted %+v", got, want)
				}
				c := x.last(t)
				if !c.Reported || c.Ending != egress.Complete || c.Class != reason.OK || c.Attempts != 1 || c.Model != "sim-thinking" || c.Streamed != stream {
					t.Errorf("the log is %+v", c)
				}
				if diff := cmp.Diff(want, body); diff != "" {
					t.Errorf("not what the provider answers by itself: %s", diff)
				}
			})
		}
	}
}

func TestEndsOfACall(t *testing.T) {
	for name, c := range map[string]struct {
		model    string
		stream   bool
		status   int
		broken   bool // the client sees the answer break off
		ending   egress.Ending
		class    reason.Class
		reported bool
		none     bool // no tokens are charged
	}{
		"cut in a stream":       {"cut-after-3", true, 200, true, egress.BrokenOff, reason.Failed, false, false},
		"cut in a plain answer": {"cut-after-3", false, 200, true, egress.BrokenOff, reason.Failed, false, false},
		"error in a stream":     {"error-after-3", true, 200, false, egress.Complete, reason.Overloaded, false, false},
		"throttled":             {"throttled", true, 429, false, egress.Complete, reason.Throttled, false, true},
		"overloaded":            {"overloaded", false, 503, false, egress.Complete, reason.Overloaded, false, true},
		"spent":                 {"quota-exhausted", false, 429, false, egress.Complete, reason.Throttled, false, true},
	} {
		bubble(t, name, func(t *testing.T) {
			sim, up := models(t, instant(""), llm.Options{Seed: 7})
			x := newRig(t, chats["openai"].api, up, nil)
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody(c.model, c.stream))
			if res.StatusCode != c.status || (err != nil) != c.broken {
				t.Fatalf("status %d, error %v", res.StatusCode, err)
			}
			synctest.Wait()
			x.settled(t)
			got := x.last(t)
			if got.Ending != c.ending || got.Class != c.class || got.Reported != c.reported {
				t.Errorf("the log is %+v", got)
			}
			used := x.quota.total()
			if c.none && used != (quota.Usage{}) {
				t.Errorf("charged %+v for what was refused", used)
			}
			if len(x.quota.used) != 1 || x.quota.back != 0 {
				t.Errorf("%d permits settled, %d given back: what is refused is a call too", len(x.quota.used), x.quota.back)
			}
			if c.none {
				return
			}
			// What broke off is charged by what was seen: 3 chunks of 4 tokens, the input
			// as estimated.
			want := counted(sim)
			if used.Input < want.Input/2 || used.Input > want.Input*2 {
				t.Errorf("input %d, the provider counted %d", used.Input, want.Input)
			}
			if c.stream && (used.Output < want.Output/2 || used.Output > want.Output*2) {
				t.Errorf("output %d, the provider counted %d", used.Output, want.Output)
			}
		})
	}
}

// stuck is a writer that fails once it has taken some bytes, as that of a client that
// has gone does.
type stuck struct {
	*httptest.ResponseRecorder
	left int
}

func (s *stuck) Write(p []byte) (int, error) {
	if s.left -= len(p); s.left < 0 {
		return 0, errors.New("the client has gone")
	}
	return s.ResponseRecorder.Write(p)
}

// TestAClientThatGoesAtTheVeryEnd: what was held back of an answer finds nobody.
func TestAClientThatGoesAtTheVeryEnd(t *testing.T) {
	const event, part = "data: {\"choices\":[]}\n\n", `data: {"cho`
	const body, address = `{"id":"b",`, `"results_url": `
	for name, c := range map[string]struct {
		api              provider.API
		path, ask, kind  string
		passed, heldBack string
	}{
		"an event":   {provider.OpenAI, "/p/v1/chat/completions", chatBody("m", true), "text/event-stream", event, part},
		"an address": {provider.Anthropic, "/p/v1/messages/batches/b", "", "application/json", body, address},
	} {
		for left, want := range map[int]egress.Ending{len(c.passed): egress.ClientGone, len(c.passed + c.heldBack): egress.Complete} {
			m := &mirror{body: c.passed + c.heldBack, header: http.Header{"Content-Type": {c.kind}}}
			x := newRig(t, c.api, m, nil)
			r := httptest.NewRequestWithContext(t.Context(), map[bool]string{true: "GET", false: "POST"}[c.ask == ""], c.path, strings.NewReader(c.ask))
			w := &stuck{httptest.NewRecorder(), left}
			func() {
				defer func() {
					if got := recover(); (got == http.ErrAbortHandler) != (want != egress.Complete) { //nolint:errorlint // what net/http looks for
						t.Errorf("%s: the handler ended with %v", name, got)
					}
				}()
				x.proxy.ServeHTTP(w, r)
			}()
			if got := x.last(t); got.Ending != want || w.Body.String() != (c.passed + c.heldBack)[:left] {
				t.Errorf("%s: %q has passed, ending %s, want %s", name, w.Body, got.Ending, want)
			}
			x.settled(t)
		}
	}
}

// TestABrokenUploadEndsAnEarlyAnswer as the client's doing, be it malformed or stalled.
func TestABrokenUploadEndsAnEarlyAnswer(t *testing.T) {
	for name, rest := range map[string]string{"malformed": "zz\r\n", "stalled": ""} {
		bubble(t, name, func(t *testing.T) {
			up, _ := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c := http.NewResponseController(w)
				if err := c.EnableFullDuplex(); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(w, "early")
				_ = c.Flush()
				_, _ = io.Copy(io.Discard, r.Body)
				panic(http.ErrAbortHandler)
			}))
			x := newRig(t, provider.HTTP, up, func(p *egress.Provider, _ *egress.Options) { p.IdleTimeout = time.Minute })
			conn, err := x.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "proxy")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			go func() {
				_, _ = io.WriteString(conn, "POST /p/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
				time.Sleep(time.Second)
				_, _ = io.WriteString(conn, rest)
			}()
			_, _ = io.Copy(io.Discard, conn)
			synctest.Wait()
			if c := x.last(t); c.Ending != egress.ClientGone || c.Reason != reason.ClientError || c.Status != 200 {
				t.Errorf("the log is %+v", c)
			}
			if s := x.proxy.Status()[0]; s.Failures != 0 || len(s.Circuits) != 0 {
				t.Errorf("the status is %+v", s)
			}
			x.settled(t)
		})
	}
}

// TestSilenceAfterAnUploadIsTheProviders: once all of it has come nobody waits for the client.
func TestSilenceAfterAnUploadIsTheProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, _ := serveOn(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}))
		x := newRig(t, provider.HTTP, up, func(p *egress.Provider, _ *egress.Options) { p.ResponseHeaderTimeout = time.Minute })
		res, _, err := x.ask(t, "POST", "/p/x", strings.Repeat("x", 1<<20))
		if err != nil || res.StatusCode != 504 {
			t.Errorf("%v, %v", res, err)
		}
		if c := x.last(t); c.Ending != egress.TimedOut || c.Class != reason.Failed || c.BoundBy[reason.BoundLatency] != time.Minute {
			t.Errorf("the log is %+v", c)
		}
	})
}

// TestAProviderThatIsNotTrusted is not asked again: that does not help.
func TestAProviderThatIsNotTrusted(t *testing.T) {
	sent := 0
	x := newRig(t, provider.OpenAI, tripper(func(*http.Request) (*http.Response, error) {
		sent++
		return nil, &tls.CertificateVerificationError{Err: errors.New("CANARY")}
	}), func(p *egress.Provider, _ *egress.Options) { p.Retries = 3 })
	res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
	if err != nil || res.StatusCode != 502 || sent != 1 || res.Header.Get("X-Should-Retry") != "false" || !strings.Contains(body, "No secure connection") || strings.Contains(body, "CANARY") {
		t.Errorf("%v, %v after %d attempts: %s", res, err, sent, body)
	}
	if c := x.last(t); c.Reason != reason.TLS {
		t.Errorf("the log is %+v", c)
	}
}

// TestCallsThatDoNotEndWhenTheyAreCut: the end does not wait for them for ever.
func TestCallsThatDoNotEndWhenTheyAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		x := newRig(t, provider.OpenAI, tripper(func(*http.Request) (*http.Response, error) {
			<-release
			return nil, errors.New("at last")
		}), nil)
		go func() { _, _, _ = x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := x.proxy.Drain(ctx)
		if err == nil || !strings.Contains(err.Error(), "1 calls were cut, and not all ended within 5s") || time.Since(began) != 6*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(release)
		synctest.Wait()
	})
}

// TestAClientThatDoesNotReadIsCutWithTheRest: who is stuck in a write to it gets free.
func TestAClientThatDoesNotReadIsCutWithTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := speaks(t, says("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+strings.Repeat("data: {}\n\n", 100_000)))
		x := newRig(t, provider.OpenAI, up, nil)
		res, err := x.do(t.Context(), t, "POST", "/p/v1/chat/completions", chatBody("m", true))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err = x.proxy.Drain(ctx)
		if err == nil || !strings.Contains(err.Error(), "1 calls were cut, because they did not end in time; their permits are settled") || time.Since(began) > 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		synctest.Wait()
		x.settled(t)
		if c := x.last(t); c.Ending != egress.Cut || c.Reason != reason.Closed {
			t.Errorf("the log is %+v", c)
		}
	})
}

// TestWhatIsLeftOfABodyIsNoRequest: after an answer that came before the body's end the
// connection ends, whatever the client sends on it.
func TestWhatIsLeftOfABodyIsNoRequest(t *testing.T) {
	const smuggled = "GET /p/smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
	for name, rest := range map[string]string{
		"malformed":         "zz\r\n" + smuggled,
		"the end":           "0\r\n\r\n" + smuggled,
		"more than is read": strings.Repeat("10000\r\n"+strings.Repeat("x", 1<<16)+"\r\n", 5) + "0\r\n\r\n" + smuggled,
	} {
		t.Run(name, func(t *testing.T) {
			var paths []string
			up, _ := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				paths = append(paths, r.URL.Path)
				c := http.NewResponseController(w)
				if err := c.EnableFullDuplex(); err != nil {
					t.Error(err)
				}
				w.WriteHeader(http.StatusUnauthorized)
				_ = c.Flush()
			}))
			x := newRig(t, provider.HTTP, up, nil)
			conn, err := x.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "proxy")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, "POST /p/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"); err != nil {
				t.Fatal(err)
			}
			first := make([]byte, len("HTTP/1.1 401 "))
			if _, err := io.ReadFull(conn, first); err != nil || string(first) != "HTTP/1.1 401 " {
				t.Fatalf("%q, %v", first, err)
			}
			go func() { _, _ = io.WriteString(conn, rest) }()
			text, _ := io.ReadAll(conn)
			if strings.Contains(string(text), "HTTP/1.1 ") || len(paths) != 1 {
				t.Errorf("upstream got %q, then came %s", paths, text)
			}
		})
	}
}
