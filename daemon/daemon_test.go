package daemon_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/quota/governor"
)

func TestACallGoesThroughWithTheProvidersKey(t *testing.T) {
	var got atomic.Value
	url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Authorization"))
		answers(w, r)
	})
	s := place(t)
	s.start(openai(url, "    quota: {global: {max_daily_calls: 100}}\n"))
	if status, _, body := s.call("client"); status != 200 || body != answer {
		t.Fatalf("%d %s", status, body)
	}
	if got.Load() != "Bearer "+providerKey {
		t.Errorf("the provider was shown %q", got.Load())
	}
	status, _, body := s.do(http.MethodGet, "/v1/quota/snapshot", "", "")
	if status != 200 || !strings.Contains(body, `"dailyCallsRemaining":99`) {
		t.Errorf("snapshot: %d %s", status, body)
	}
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": "", "/v1/rate": `"source":"proxy"`, "/v1/runs": "[]", "/v1/gaps": "[]", "/v1/connections": "[]", "/metrics": "headway_build_info{version=\"test\"} 1",
		"/": "OPENAI_BASE_URL=" + s.base + "/openai/v1",
	} {
		if status, _, body := s.do(http.MethodGet, path, "", ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, body := s.do(http.MethodGet, "/nowhere/v1", "", ""); status != 404 {
		t.Errorf("an unknown provider: %d %s", status, body)
	}
}

func TestTheDaysUseSurvivesARestart(t *testing.T) {
	url := upstream(t, answers)
	s := place(t)
	text := openai(url, "    quota: {global: {max_daily_calls: 3}}\n")
	s.start(text)
	for range 2 {
		if status, _, body := s.call(""); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	s.stop()
	s.start(text)
	if status, _, body := s.call(""); status != 200 {
		t.Fatalf("the third: %d %s", status, body)
	}
	if status, header, body := s.call(""); status != 429 || header.Get("Retry-After") == "" || !strings.Contains(body, "RATE_HARD_LIMIT") {
		t.Errorf("beyond the cap: %d %s", status, body)
	}
}

func TestASecondDaemonOnTheSameStateIsRefused(t *testing.T) {
	s := place(t)
	text := openai(upstream(t, answers), "")
	s.start(text)
	c, err := s.read(text)
	if err != nil {
		t.Fatal(err)
	}
	second, err := daemon.New(c, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); !errors.Is(err, daemon.ErrInUse) || !strings.Contains(err.Error(), c.State) {
		t.Errorf("error %v", err)
	}
	if err := second.Wait(); !errors.Is(err, daemon.ErrInUse) {
		t.Errorf("wait: %v", err)
	}
	if status, _, _ := s.call(""); status != 200 {
		t.Errorf("the first one suffered: %d", status)
	}
}

func TestAnAddressInUseIsNamedAndNothingIsHeld(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := place(t)
	c, err := s.read(openai(upstream(t, answers), "    quota: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	c.Listen = taken.Addr().String()
	start := func() error {
		d, err := daemon.New(c, daemon.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return errors.Join(d.Start(t.Context()), d.Stop(context.Background()))
	}
	if err := start(); !errors.Is(err, daemon.ErrListen) || !strings.Contains(err.Error(), c.Listen) {
		t.Errorf("error %v", err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Errorf("after the address is free: %v", err)
	}
}

func TestReloadIsWholeOrNothing(t *testing.T) {
	s := place(t)
	url := upstream(t, answers)
	s.start(openai(url, "    quota: {global: {max_daily_calls: 50}}\n"))
	if status, _, _ := s.call(""); status != 200 {
		t.Fatal(status)
	}
	reload := func(text string) error {
		t.Helper()
		c, err := s.read(text)
		if err != nil {
			return err
		}
		return s.daemon.Reload(c)
	}
	left := func() string {
		_, _, body := s.do(http.MethodGet, "/v1/quota/snapshot?provider=openai", "", "")
		_, after, _ := strings.Cut(body, `"global":`)
		_, after, _ = strings.Cut(after, `"dailyCallsRemaining":`)
		n, _, _ := strings.Cut(after, ",")
		return n
	}
	for what, c := range map[string]struct{ text, want string }{
		"broken":         {openai(url, "    quota: {global: {max_daily_calls: many}}\n"), "max_daily_calls: is \"many\""},
		"another folder": {openai(url, "") + "state: " + t.TempDir() + "\n", "state: is set twice, first at line "},
		"connections":    {openai(url, "") + "max_connections: 7\n", "max_connections is 7, was 4096, and cannot change while the daemon runs"},
		"format":         {openai(url, "") + "log: {format: json}\n", "log.format: json is true, was false"},
	} {
		if err := reload(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", what, err)
		}
		if got := left(); got != "49" {
			t.Errorf("%s: %q calls left, want 49", what, got)
		}
	}
	if err := reload(openai(url, "    quota: {global: {max_daily_calls: 80}}\n  second: {api: openai, upstream: "+url+", key: {env: KEY}}\n")); err != nil {
		t.Fatal(err)
	}
	if got := left(); got != "79" {
		t.Errorf("%q calls left, want 79: the use is carried over", got)
	}
	if status, _, body := s.do(http.MethodPost, "/second/v1/chat/completions", "", question); status != 200 {
		t.Errorf("the new provider: %d %s", status, body)
	}
	// Taken out and put back: the day's use is still there.
	if err := reload("providers:\n  second: {api: openai, upstream: " + url + ", key: {env: KEY}}\n"); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := s.call(""); status != 404 {
		t.Errorf("a provider that was taken out answers %d", status)
	}
	if err := reload(openai(url, "    quota: {global: {max_daily_calls: 80}}\n")); err != nil {
		t.Fatal(err)
	}
	if got := left(); got != "79" {
		t.Errorf("%q calls left after it came back, want 79", got)
	}
}

func TestReloadKeepsLearnedPacing(t *testing.T) {
	throttle := atomic.Bool{}
	s := place(t)
	url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if throttle.Load() {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answers(w, r)
	})
	text := func(ceiling string) string {
		return openai(url, "    pacing: {ceiling: "+ceiling+", initial: 40ms, law: aimd}\n")
	}
	interval := func() string {
		_, _, body := s.do(http.MethodGet, "/v1/rate", "", "")
		_, after, _ := strings.Cut(body, `"current_interval_ms":`)
		n, _, _ := strings.Cut(after, ",")
		return n
	}
	s.start(text("1ms"))
	throttle.Store(true)
	for range 3 {
		s.call("")
	}
	throttle.Store(false)
	before := interval()
	if before == "" || before == "40" {
		t.Fatalf("nothing was learned: interval %q", before)
	}
	c, err := s.read(text("1ms"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.daemon.Reload(c); err != nil {
		t.Fatal(err)
	}
	if got := interval(); got != before {
		t.Errorf("interval %s after a reload, was %s", got, before)
	}
	s.stop()
	s.start(text("1ms"))
	if !strings.Contains(s.log.String(), "learned rate restored") {
		t.Errorf("not warm after a restart:\n%s", s.log.String())
	}
}

func TestRatesThatCannotBeReadArePutAside(t *testing.T) {
	s := place(t)
	state := filepath.Join(s.dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"{", `{"version":9,"rates":{}}`, `{"version":1,"rates":{"openai":{"law":"aimd","version":1,"interval_ns":-5}}}`} {
		if err := os.WriteFile(filepath.Join(state, "rates.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.start(openai(upstream(t, answers), ""))
		if status, _, _ := s.call(""); status != 200 {
			t.Errorf("%s: %d", text, status)
		}
		s.stop()
	}
	aside, err := os.ReadFile(filepath.Join(state, "rates.json.unread"))
	if err != nil || !strings.Contains(string(aside), `"version":9`) {
		t.Errorf("put aside: %s, %v", aside, err)
	}
}

func TestAStateThatCannotBeReadIsNamed(t *testing.T) {
	s := place(t)
	state := filepath.Join(s.dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "quota-openai.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := s.read(openai(upstream(t, answers), "    quota: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(c, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "quota-openai.json: not a file of daily use") ||
		!strings.Contains(err.Error(), "move it away") {
		t.Errorf("error %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(state, "quota-openai.json")); err != nil || string(b) != "{" {
		t.Errorf("it was touched: %s, %v", b, err)
	}
}

func TestDrainEndsStreamsAndAnswersTheQueue(t *testing.T) {
	begun, finish := make(chan bool, 1), make(chan bool)
	url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		begun <- true
		select {
		case <-finish:
		case <-r.Context().Done():
		}
		answers(w, r)
	})
	s := place(t)
	s.start(openai(url, "    pacing: {max_in_flight: 1}\n    max_wait: 1m\n"))
	var all sync.WaitGroup
	codes := make([]int, 2)
	retry := ""
	all.Go(func() { codes[0], _, _ = s.call("") })
	<-begun
	all.Go(func() {
		var h http.Header
		codes[1], h, _ = s.call("")
		retry = h.Get("Retry-After")
	})
	eventually(t, "the second call waits", func() bool {
		_, _, body := s.do(http.MethodGet, "/v1/rate", "", "")
		return strings.Contains(body, `"waiting":1`)
	})
	stopped := make(chan error, 1)
	go func() { stopped <- s.daemon.Stop(context.Background()) }()
	eventually(t, "it is not ready", func() bool {
		status, _, _ := s.do(http.MethodGet, "/readyz", "", "")
		return status == http.StatusServiceUnavailable
	})
	if status, header, body := s.call(""); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("a new call: %d %s", status, body)
	}
	if status, _, _ := s.do(http.MethodPost, "/v1/quota/approve", "", `{"model":"m"}`); status != http.StatusServiceUnavailable {
		t.Errorf("a new approval: %d", status)
	}
	close(finish)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	all.Wait()
	if codes[0] != 200 || codes[1] != 503 || retry == "" {
		t.Errorf("the one under way got %d, the one that waited %d (retry after %q)", codes[0], codes[1], retry)
	}
}

func TestDrainIsBounded(t *testing.T) {
	begun := make(chan bool, 1)
	url := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is it known that the client is gone
		begun <- true
		<-r.Context().Done()
	})
	s := place(t)
	s.start("drain: 100ms\n" + openai(url, "    quota: {global: {max_daily_calls: 5}}\n"))
	var all sync.WaitGroup
	all.Go(func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/openai/v1/chat/completions", strings.NewReader(question))
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := s.client.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	})
	<-begun
	s.stop()
	all.Wait()
	if !strings.Contains(s.log.String(), "calls were cut") {
		t.Errorf("log:\n%s", s.log.String())
	}
}

func TestStopBeforeStartAndTwice(t *testing.T) {
	s := place(t)
	c, err := s.read(openai(upstream(t, answers), ""))
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(c, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Stop(t.Context()), d.Stop(t.Context()), d.Wait()); err != nil {
		t.Error(err)
	}
	if err := d.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "it is stopped, must be new") {
		t.Errorf("start after stop: %v", err)
	}
}

// A call that was paid for is answered whatever its model is called.
func TestAModelMayBeAnyBytes(t *testing.T) {
	s := place(t)
	s.start(openai(upstream(t, answers), ""))
	for _, model := range []string{"a\xffb", strings.Repeat("\u65e5", 43), "a\x7fb"} {
		if status, _, body := s.do("POST", "/openai/v1/chat/completions", "", `{"model":"`+model+`","messages":[]}`); status != 200 {
			t.Errorf("%q: %d %s", model, status, body)
		}
	}
	if strings.Contains(s.log.String(), "panic") {
		t.Errorf("it panicked:\n%s", s.log.String())
	}
}

// TestWhatCallsUseSurvivesAKill: a call that a kill cuts stays charged with its estimate.
// If estimates were far below the real use, part of the day's budget would be granted again
// after each kill.
func TestWhatCallsUseSurvivesAKill(t *testing.T) {
	const output, calls = 2000, 6
	reached, let := make(chan struct{}), make(chan struct{})
	var holds atomic.Bool
	url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if holds.Load() {
			close(reached)
			<-let
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.NewReplacer(`"completion_tokens":5`, `"completion_tokens":2000`, `:10}`, `:2005}`).Replace(answer))
	})
	text := openai(url, "    quota: {global: {max_daily_tokens: 1000000}}\n")
	first, second := place(t), place(t)
	first.start(text)
	for range calls {
		if status, _, body := first.call(""); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	was, is := filepath.Join(first.dir, "state"), filepath.Join(second.dir, "state")
	eventually(t, "what was learned is stored while it runs", func() bool {
		b, err := os.ReadFile(filepath.Join(was, "rates.json"))
		return err == nil && strings.Contains(string(b), `"estimates"`)
	})
	if err := os.Mkdir(is, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rates.json", "quota-openai.json"} { // as a kill leaves them
		b, err := os.ReadFile(filepath.Join(was, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(is, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	second.start(text)
	holds.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		second.call("")
	}()
	<-reached
	use, err := governor.ReadFile(filepath.Join(is, "quota-openai.json"))
	close(let)
	<-done
	if err != nil || len(use) == 0 {
		t.Fatal(use, err)
	}
	if held := use[0].Tokens - calls*(output+5); held < output/2 {
		t.Errorf("a call under way is stored as %d tokens, where the calls before it used %d", held, output)
	}
}
