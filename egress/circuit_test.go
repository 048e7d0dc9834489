package egress_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// unwell is an upstream parts of which fail.
func unwell(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	stream := func(lines ...string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, l := range lines {
			_, _ = io.WriteString(w, "data: "+l+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
	switch {
	case strings.Contains(string(body), `"slow"`):
		stream(`{"choices":[{"delta":{"content":"a"}}]}`)
		<-r.Context().Done()
	case strings.Contains(string(body), `"erring"`):
		stream(`{"choices":[{"delta":{"content":"a"}}]}`, `{"error":{"message":"no","type":"server_error","code":"server_error"}}`)
	case strings.Contains(r.URL.Path, "/fails"), strings.Contains(string(body), `"failing"`) && strings.HasSuffix(r.URL.Path, "/chat/completions"):
		w.WriteHeader(http.StatusInternalServerError)
	default:
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	}
}

// shaped is a rig whose pacing is that of the default law, as the daemon has it.
func shaped(t *testing.T, tune func(*egress.Provider, *egress.Options)) *rig {
	t.Helper()
	up, _ := serveOn(t, http.HandlerFunc(unwell))
	return newRig(t, provider.OpenAI, up, func(p *egress.Provider, o *egress.Options) {
		var err error
		p.Pacing, err = headway.New(headway.Config{Name: "p", Ceiling: time.Microsecond, Initial: time.Microsecond, JitterMax: -1, NoBreaker: true, PermitTimeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		p.CallTimeout = 2 * time.Second
		if tune != nil {
			tune(p, o)
		}
	})
}

// raw sends bytes over a connection of their own and gives the answer's status.
func (x *rig) raw(t *testing.T, text string) int {
	t.Helper()
	c, err := x.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "proxy:80")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	go func(c net.Conn) { _, _ = io.WriteString(c, text) }(c)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}

func TestWhatTheProviderDidNotDoOpensNoCircuit(t *testing.T) {
	const times = 24
	for name, c := range map[string]struct {
		fault func(t *testing.T, x *rig) int
		want  int
	}{
		"malformed uploads": {func(t *testing.T, x *rig) int {
			return x.raw(t, "POST /p/v1/files HTTP/1.1\r\nHost: proxy\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
		}, 400},
		"malformed bodies that are read first": {func(t *testing.T, x *rig) int {
			return x.raw(t, "POST /p/v1/chat/completions HTTP/1.1\r\nHost: proxy\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
		}, 400},
		"bodies that break off": {func(t *testing.T, x *rig) int {
			return x.raw(t, "POST /p/v1/chat/completions HTTP/1.1\r\nHost: proxy\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel\r\n0\r\n\r\n")
		}, 400},
		"streams cut by the owner's timeout": {func(t *testing.T, x *rig) int {
			res, _, _ := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("slow", true))
			return res.StatusCode
		}, 200},
		"streams with an error": {func(t *testing.T, x *rig) int {
			res, _, _ := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("erring", true))
			return res.StatusCode
		}, 200},
	} {
		bubble(t, name, func(t *testing.T) {
			x := shaped(t, nil)
			for range times {
				if got := c.fault(t, x); got != c.want {
					t.Fatalf("status %d, want %d", got, c.want)
				}
			}
			began := time.Now()
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
			if err != nil || res.StatusCode != 200 || time.Since(began) > 100*time.Millisecond {
				t.Errorf("a good call: %v, error %v, after %v", res, err, time.Since(began))
			}
			if s := x.proxy.Status()[0]; len(s.Circuits) != 0 {
				t.Errorf("circuits %+v", s.Circuits)
			}
			synctest.Wait()
			x.settled(t)
			if got := x.calls[0].Reason; c.want == 400 && got != reason.ClientError {
				t.Errorf("the reason is %v", got)
			}
		})
	}
}

func TestOnePartThatFailsStopsNoOther(t *testing.T) {
	ask := func(t *testing.T, x *rig, path, model string) int {
		t.Helper()
		res, _, err := x.ask(t, "POST", path, chatBody(model, false))
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	const chat = "/p/v1/chat/completions"
	for name, c := range map[string]struct {
		path, model string
		want        egress.CircuitStatus
	}{
		"one path":  {"/p/v1/fails/by-9", "m", egress.CircuitStatus{Model: "m", Path: "/v1/fails/*", State: "open"}},
		"one model": {chat, "failing", egress.CircuitStatus{Model: "failing", Path: "/v1/chat/completions", State: "open"}},
	} {
		bubble(t, name, func(t *testing.T) {
			var mu sync.Mutex
			var events []event.Event
			x := shaped(t, func(_ *egress.Provider, o *egress.Options) {
				o.OnCircuit = func(e event.Event) {
					mu.Lock()
					defer mu.Unlock()
					events = append(events, e)
				}
			})
			got := map[int]int{}
			for range 24 {
				got[ask(t, x, c.path, c.model)]++
			}
			if got[500] != 5 || got[503] != 19 {
				t.Errorf("answers %v, want 5 of the provider's and the rest refused here", got)
			}
			began := time.Now()
			for _, good := range [][2]string{{chat, "m"}, {"/p/v1/embeddings", "m"}, {"/p/v1/other", c.model}} {
				if status := ask(t, x, good[0], good[1]); status != 200 || time.Since(began) > 100*time.Millisecond {
					t.Errorf("%v: %d after %v", good, status, time.Since(began))
				}
			}
			s := x.proxy.Status()[0].Circuits
			if len(s) == 1 {
				if at := time.Until(s[0].RetryAt); at <= 59*time.Second || at > time.Minute {
					t.Errorf("it is tried again in %v", at)
				}
				s[0].RetryAt = time.Time{}
			}
			if len(s) != 1 || s[0] != c.want {
				t.Errorf("circuits %+v, want %+v", s, c.want)
			}
			time.Sleep(time.Minute)
			if status := ask(t, x, c.path, c.model); status != 500 {
				t.Errorf("the probe was answered with %d", status)
			}
			if status := ask(t, x, c.path, c.model); status != 503 {
				t.Errorf("after the probe: %d", status)
			}
			mu.Lock()
			defer mu.Unlock()
			var moves []string
			for _, e := range events {
				moves = append(moves, e.Connection+" "+e.Circuit.State+": "+e.Note)
				if e.Reason != reason.CircuitOpen.Reason() || e.Circuit.Trigger == "" {
					t.Errorf("reason %v, trigger %q", e.Reason, e.Circuit.Trigger)
				}
			}
			note := ": " + c.want.Model + " at " + c.want.Path
			if want := fmt.Sprint([]string{"p open" + note, "p half_open" + note, "p open" + note}); fmt.Sprint(moves) != want {
				t.Errorf("events %v, want %v", moves, want)
			}
			synctest.Wait()
			x.settled(t)
		})
	}
}

func TestAProviderThatCannotBeReachedIsLeftAloneAsAWhole(t *testing.T) {
	bubble(t, "dial", func(t *testing.T) {
		var slow atomic.Bool
		down := true
		up, l := serveOn(t, http.HandlerFunc(unwell))
		dials := 0
		up.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; down {
				return nil, &net.OpError{Op: "dial", Err: io.ErrUnexpectedEOF}
			}
			if slow.Load() {
				time.Sleep(time.Second)
			}
			return l.Dial(ctx, network, address)
		}
		x := newRig(t, provider.OpenAI, up, nil)
		for i := range 8 {
			model := fmt.Sprint("m", i)
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody(model, false))
			if want := map[bool]int{true: 502, false: 503}[i < 5]; err != nil || res.StatusCode != want {
				t.Errorf("call %d: %v, error %v", i, res, err)
			}
		}
		if s := x.proxy.Status()[0].Circuits; dials != 5 || len(s) != 1 || s[0].Model+s[0].Path != "" || s[0].State != "open" {
			t.Errorf("%d dials, circuits %+v", dials, s)
		}
		res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
		if err != nil || res.Header.Get("Retry-After") != "60" || res.Header.Get("X-Should-Retry") != "true" {
			t.Errorf("while it is open: %v, error %v", res, err)
		}
		down = false
		time.Sleep(time.Minute)
		// One finds out whether it is there again; others come back in a second.
		slow.Store(true)
		var wg sync.WaitGroup
		wg.Go(func() {
			if res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != 200 {
				t.Errorf("the probe: %v, error %v", res, err)
			}
		})
		synctest.Wait()
		res, _, err = x.ask(t, "POST", "/p/v1/chat/completions", chatBody("other", false))
		if err != nil || res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || res.Header.Get("X-Should-Retry") != "true" {
			t.Errorf("beside the probe: %v, error %v", res, err)
		}
		wg.Wait()
		slow.Store(false)
		for range 2 {
			if res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false)); err != nil || res.StatusCode != 200 {
				t.Errorf("after a minute: %v, error %v", res, err)
			}
		}
		if s := x.proxy.Status()[0].Circuits; len(s) != 0 {
			t.Errorf("circuits %+v", s)
		}
	})
}

func TestCircuitsAreConfigurableAndBounded(t *testing.T) {
	bubble(t, "off", func(t *testing.T) {
		x := shaped(t, func(p *egress.Provider, _ *egress.Options) { p.Circuit.Off = true })
		for range 24 {
			if res, _, err := x.ask(t, "POST", "/p/v1/fails", "{}"); err != nil || res.StatusCode != 500 {
				t.Fatalf("%v, error %v", res, err)
			}
		}
	})
	bubble(t, "shape", func(t *testing.T) {
		x := shaped(t, func(p *egress.Provider, _ *egress.Options) {
			p.Circuit = egress.Circuit{Config: breaker.Config{Window: 2, OpenFor: 5 * time.Second}, Max: 3}
		})
		status := func(path string) int {
			res, _, err := x.ask(t, "POST", path, "{}")
			if err != nil {
				t.Fatal(err)
			}
			return res.StatusCode
		}
		for i := range 6 { // three are open: of the others nothing is kept
			for range 3 {
				status(fmt.Sprintf("/p/v1/fails/%c", 'a'+i))
			}
		}
		if n := len(x.proxy.Status()[0].Circuits); n != 3 {
			t.Errorf("%d circuits, want 3", n)
		}
		if status("/p/v1/fails/a") != 503 || status("/p/v1/fails/f") != 500 {
			t.Error("the first is not open, or the last is")
		}
		time.Sleep(5 * time.Second)
		if got := status("/p/v1/fails/a"); got != 500 {
			t.Errorf("after 5 s: %d", got)
		}
	})
	bubble(t, "the closed one that was used least recently is forgotten", func(t *testing.T) {
		x := shaped(t, func(p *egress.Provider, _ *egress.Options) {
			p.Circuit = egress.Circuit{Config: breaker.Config{Window: 2}, Max: 2}
		})
		status := func(path string) int {
			res, _, err := x.ask(t, "POST", path, "{}")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			return res.StatusCode
		}
		status("/p/v1/fails/a")
		status("/p/v1/fails/b")
		status("/p/v1/fails/c") // a is forgotten
		status("/p/v1/fails/b")
		if b, a := status("/p/v1/fails/b"), status("/p/v1/fails/a"); b != 503 || a != 500 {
			t.Errorf("b %d, a %d, want that b is open and a forgotten", b, a)
		}
		if a := status("/p/v1/fails/a"); a != 500 {
			t.Errorf("a %d: its first failure was not forgotten", a)
		}
	})
	for _, n := range []int{1, 1 << 16} {
		if _, err := egress.New(egress.Options{Providers: []egress.Provider{{Name: "p", Description: describe(t, provider.OpenAI), Circuit: egress.Circuit{Max: n}}}}); err != nil {
			t.Errorf("%d circuits: %v", n, err)
		}
	}
	for _, c := range []egress.Circuit{{Max: -1}, {Max: 1 << 17}, {Config: breaker.Config{Window: 65}}} {
		_, err := egress.New(egress.Options{Providers: []egress.Provider{{Name: "p", Description: describe(t, provider.OpenAI), Circuit: c}}})
		if err == nil || !strings.Contains(err.Error(), `provider "p": circuit: `) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
