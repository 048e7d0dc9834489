package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/pipenet"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestTokenComesFirst(t *testing.T) {
	var log bytes.Buffer
	s := server(t, unlimited, serve.Options{Token: "s3cret", Log: &log})
	tests := []struct {
		name, header string
		status       int
	}{
		{"none", "", 401},
		{"another", "Bearer other", 401},
		{"a prefix", "Bearer s3cre", 401},
		{"another scheme", "Basic s3cret", 401},
		{"right", "Bearer s3cret", 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/conversations", nil)
			if tt.header != "" {
				r.Header.Set("Authorization", tt.header)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != tt.status {
				t.Errorf("status %d, want %d", w.Code, tt.status)
			}
			if tt.status == 401 && (w.Header().Get("WWW-Authenticate") != "Bearer" ||
				w.Header().Get("Content-Type") != "application/problem+json" || !json.Valid(w.Body.Bytes())) {
				t.Errorf("answer %v %s, want a problem in JSON", w.Header(), w.Body)
			}
		})
	}
	st := s.Stats()
	if st.Unauthorized != 4 || st.Admitted != 1 {
		t.Errorf("stats %+v, want 4 unauthorized and 1 admitted", st)
	}
	if strings.Contains(log.String(), "s3cret") || len(entries(t, &log)) != 1 {
		t.Error("the log holds the token, or what was not decided by the limiter")
	}
}

func TestThrottleSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := server(t, `
name: two
provider:
  latency: {p50: 100ms, uplink_p50: 10ms, uplink_p99: 10ms}
  limits: [{kind: sliding_window, limit: 2, window: 10s}]
  throttle: {retry_after: seconds, headers: openai}
`, serve.Options{Log: &log})
		c := client(t, s)
		began := time.Now()
		for i, want := range []struct {
			path   string
			status int
			retry  string
			left   string
			took   time.Duration
		}{
			{"/conversations?limit=1", 200, "", "1", 100 * time.Millisecond},
			{"/nowhere", 404, "", "0", 100 * time.Millisecond},
			{"/conversations/c000000", 429, "10", "0", 20 * time.Millisecond},
		} {
			at := time.Now()
			status, header := get(t, c, want.path, nil)
			if status != want.status || header.Get("Retry-After") != want.retry ||
				header.Get("X-RateLimit-Remaining-Requests") != want.left || time.Since(at) != want.took {
				t.Errorf("request %d: %d after %s, %v, want %d after %s", i, status, time.Since(at), header, want.status, want.took)
			}
		}
		// The first arrived 10ms in; so its place is free 10s after that.
		time.Sleep(10*time.Second - time.Since(began))
		if status, _ := get(t, c, "/conversations/c000000", nil); status != 200 {
			t.Errorf("status %d after the wait, want 200", status)
		}
		all := entries(t, &log)
		if len(all) != 4 {
			t.Fatalf("%d lines in the log, want 4", len(all))
		}
		e := all[2]
		if e.T != 210 || e.Admitted || e.Status != 429 || e.Limit != "sliding_window 2/10s" || *e.RetryAfterMS != 10_000 {
			t.Errorf("entry %+v, want the throttle at 210ms", e)
		}
		if !e.At.Equal(began.Add(210 * time.Millisecond)) {
			t.Errorf("entry at %s, want %s", e.At, began.Add(210*time.Millisecond))
		}
	})
}

func TestHealthAndStatsAreNeverLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server(t, `
name: outage
provider:
  limits: [{kind: fixed_window, limit: 1, window: 1h}]
  faults: [{at: 0s, for: 1h, kind: outage}]
`, serve.Options{Token: "x"})
		c := client(t, s)
		if status, _ := get(t, c, "/-/healthz", nil); status != 204 {
			t.Errorf("health is %d, want 204", status)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://provider/conversations", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer x")
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 503 {
			t.Errorf("during an outage: %d, want 503", res.StatusCode)
		}
		var st serve.Stats
		get(t, c, "/-/stats", &st)
		if st.Failed != 1 || st.ByLimit["outage"] != 1 || st.ByPath["GET /conversations"].Failed != 1 {
			t.Errorf("stats %+v, want one failure by the outage", st)
		}
		if status, _ := get(t, c, "/-/other", nil); status != 404 {
			t.Errorf("an unknown path of the server is %d, want 404", status)
		}
	})
}

func TestSlowFaultAndSuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server(t, `
name: slow
provider:
  latency: {p50: 100ms}
  limits: [{kind: fixed_window, limit: 1, window: 1h}]
  suspend: {throttles: 1, within: 1h}
  faults: [{at: 0s, for: 1h, kind: slow}]
`, serve.Options{})
		c := client(t, s)
		at := time.Now()
		get(t, c, "/conversations", nil)
		if took := time.Since(at); took != scenario.SlowFactor*100*time.Millisecond {
			t.Errorf("a slow answer took %s, want 1s", took)
		}
		for _, want := range []int{429, 403, 403} {
			if status, _ := get(t, c, "/conversations", nil); status != want {
				t.Errorf("status %d, want %d", status, want)
			}
		}
		if st := s.Stats(); !st.Suspended || st.ByLimit["suspended"] != 2 {
			t.Errorf("stats %+v, want a suspended account", st)
		}
	})
}

func TestClientThatGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := server(t, "name: far\nprovider: {latency: {p50: 10s, uplink_p50: 1s, uplink_p99: 1s}}\n", serve.Options{Log: &log})
		c := client(t, s)
		for _, timeout := range []time.Duration{500 * time.Millisecond, 5 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://provider/conversations", nil)
			if err != nil {
				t.Fatal(err)
			}
			if res, err := c.Do(req); err == nil {
				_ = res.Body.Close()
				t.Errorf("an answer came within %s", timeout)
			}
			cancel()
			synctest.Wait()
		}
		all := entries(t, &log)
		if len(all) != 1 || !all[0].Admitted || all[0].Status != 499 {
			t.Errorf("log %+v, want only the one that arrived, as 499", all)
		}
		if st := s.Stats(); st.Admitted != 1 {
			t.Errorf("%d admitted, want 1", st.Admitted)
		}
	})
}

func TestResetIsSeenByTheClient(t *testing.T) {
	var log bytes.Buffer
	s := server(t, `
name: reset
provider:
  latency: {p50: 0s}
  faults: [{at: 0s, for: 1h, kind: reset}]
`, serve.Options{Log: &log})
	hs := httptest.NewServer(s)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hs.URL+"/conversations", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := hs.Client().Do(req)
	if err == nil {
		_ = res.Body.Close()
		t.Fatalf("status %d, want a reset connection", res.StatusCode)
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("%v, want a reset connection", err)
	}
	hs.Close()
	if all := entries(t, &log); len(all) == 0 || all[0].Status != 0 || all[0].Limit != "reset" {
		t.Errorf("log %+v, want a reset", all)
	}
}

func TestLogAgreesWithClients(t *testing.T) {
	var log bytes.Buffer
	s := server(t, `
name: busy
provider:
  latency: {p50: 200us}
  limits: [{kind: token_bucket, rate: 1/min, burst: 20}, {kind: concurrency, limit: 3}]
  throttle: {retry_after: ms}
`, serve.Options{Log: &log})
	hs := httptest.NewServer(s)
	var mu sync.Mutex
	seen := make(map[int]int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hs.URL+"/conversations?limit=1", nil)
				if err != nil {
					t.Error(err)
					return
				}
				res, err := hs.Client().Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_ = res.Body.Close()
				mu.Lock()
				seen[res.StatusCode]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	hs.Close()
	logged := make(map[int]int)
	for _, e := range entries(t, &log) {
		logged[e.Status]++
		if e.Admitted != (e.Status == 200) || e.Admitted != (e.Limit == "") {
			t.Errorf("entry %+v contradicts itself", e)
		}
	}
	if seen[200]+seen[429] != 400 || seen[429] == 0 || seen[200] != logged[200] || seen[429] != logged[429] {
		t.Errorf("clients saw %v, the log says %v", seen, logged)
	}
	st := s.Stats()
	want := provider.Counts{Admitted: int64(seen[200]), Throttled: int64(seen[429])}
	if st.Counts != want || st.ByPath["GET /conversations"] != want {
		t.Errorf("stats %+v, want %+v", st, want)
	}
}

func TestDemo(t *testing.T) {
	if s := serve.Demo(); s.Name != "demo" || s.Provider.Limits[0].String() != "token_bucket 40/s burst 40" {
		t.Errorf("got %+v", s)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, opt := range []serve.Options{
		{Conversations: -1}, {Conversations: 100_001}, {Messages: -1}, {Messages: 1001}, {Updated: -1}, {Conversations: 5, Updated: 6},
	} {
		if _, err := serve.New(serve.Demo(), opt); err == nil {
			t.Errorf("%+v was accepted", opt)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestCloseTellsOfALostLog(t *testing.T) {
	s := server(t, unlimited, serve.Options{Log: brokenWriter{}})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/conversations", nil))
	if err := s.Close(); w.Code != 200 || err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("status %d, close says %v", w.Code, err)
	}
}

func TestReadLogStopsAtDamage(t *testing.T) {
	const line = `{"t_ms":1,"at":"2024-01-01T00:00:00Z","method":"GET","path":"/","status":200,"admitted":true}` + "\n"
	tests := []struct {
		name, log string
		good      int
		failed    bool
	}{
		{"empty", "", 0, false},
		{"whole", line + line, 2, false},
		{"cut", line + line[:20], 1, true},
		{"cut before the newline", line + strings.TrimSuffix(line, "\n"), 1, true},
		{"no JSON", line + "nonsense\n" + line, 1, true},
		{"too long", line + strings.Repeat("x", 1<<20), 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			good, failed := 0, false
			for _, err := range serve.ReadLog(strings.NewReader(tt.log)) {
				if err != nil {
					failed = true
				} else {
					good++
				}
			}
			if good != tt.good || failed != tt.failed {
				t.Errorf("%d entries, failed %v, want %d and %v", good, failed, tt.good, tt.failed)
			}
		})
	}
}

// client talks to a server over pipes; both end with the test, and its log is whole.
func client(t *testing.T, s *serve.Server) *http.Client {
	t.Helper()
	t.Cleanup(func() { // after the server's own end
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	transport, _ := pipenet.Serve(t, s)
	return &http.Client{Transport: transport}
}

// get asks through c and decodes a 200 into out.
func get(t *testing.T, c *http.Client, path string, out any) (status int, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://provider"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if out != nil && res.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, out); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return res.StatusCode, res.Header
}

// unlimited is a provider that answers at once.
const unlimited = "name: unlimited\nprovider: {latency: {p50: 0s}}\n"

func server(t testing.TB, src string, opt serve.Options) *serve.Server {
	t.Helper()
	cfg, err := scenario.Parse("test.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// entries reads a log back whole.
func entries(t testing.TB, log *bytes.Buffer) []serve.Entry {
	t.Helper()
	var all []serve.Entry
	for e, err := range serve.ReadLog(log) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func ExampleNew() {
	provider, err := serve.New(serve.Demo(), serve.Options{Conversations: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(provider)
	defer server.Close()
	res, err := http.Get(server.URL + "/conversations?limit=3")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	fmt.Println(res.StatusCode, provider.Stats().Admitted)
	// Output:
	// 200 1
}
