package daemon_test

import (
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/keys"
)

// sends sends bytes over a connection of their own and gives all that came back.
func (s *site) sends(text string) string {
	s.t.Helper()
	c, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(all)
}

func TestBrokenUploadsOpenNoCircuitAndAFailingPathStopsNoOther(t *testing.T) {
	s := place(t)
	s.start(openai(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/fails") {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		answers(w, r)
	}), ""))
	for range 24 {
		got := s.sends("POST /openai/v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n" +
			"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\nzz\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Fatalf("a malformed upload: %.200s", got)
		}
	}
	if status, _, body := s.call(""); status != 200 {
		t.Errorf("after malformed uploads: %d %s", status, body)
	}
	got := map[int]int{}
	for range 24 {
		status, _, _ := s.do(http.MethodPost, "/openai/v1/fails", "", "{}")
		got[status]++
	}
	if fmt.Sprint(got) != "map[500:5 503:19]" {
		t.Errorf("a path that fails: %v", got)
	}
	if status, _, body := s.call(""); status != 200 {
		t.Errorf("beside a path that fails: %d %s", status, body)
	}
	for path, want := range map[string]string{
		"/v1/rate": `"circuits":[{"path":"/v1/fails","state":"open","retry_at":"`, "/metrics": `headway_circuits_open{provider="openai"} 1`,
	} {
		if _, _, body := s.do(http.MethodGet, path, "", ""); !strings.Contains(body, want) {
			t.Errorf("%s does not say %s:\n%s", path, want, body)
		}
	}
}

func TestPagesOfConfiguredOriginsMayCall(t *testing.T) {
	s := place(t)
	secret, hash := keys.Generate()
	s.start(openai(upstream(t, answers), "") + "keys: [{id: a, hash: \"" + hash + "\"}]\ncors: {origins: [\"https://app.example\"]}\n")
	ask := func(method, origin string, header ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.base+"/openai/v1/chat/completions", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res
	}
	const app = "https://app.example"
	res := ask(http.MethodOptions, app, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type,x-stainless-lang")
	if h := res.Header; res.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != app || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") ||
		h.Get("Access-Control-Allow-Headers") != "authorization,content-type,x-stainless-lang" || h.Get("Access-Control-Max-Age") != "600" {
		t.Errorf("preflight: %d %v", res.StatusCode, h)
	}
	res = ask(http.MethodPost, app, "Authorization", "Bearer "+secret, "Content-Type", "application/json")
	if h := res.Header; res.StatusCode != 200 || h.Get("Access-Control-Allow-Origin") != app || h.Get("Vary") != "Origin" {
		t.Errorf("a call: %d %v", res.StatusCode, h)
	}
	if res = ask(http.MethodPost, app, "Content-Type", "application/json"); res.StatusCode != 401 || res.Header.Get("Access-Control-Allow-Origin") != app {
		t.Errorf("without a key: %d %v, want a refusal that the page can read", res.StatusCode, res.Header)
	}
	for _, origin := range []string{"https://evil.example", "null"} {
		res = ask(http.MethodOptions, origin, "Access-Control-Request-Method", "POST")
		if res.StatusCode == 204 || res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %v", origin, res.StatusCode, res.Header)
		}
	}
}

func TestPagesMayCallAnOpenDaemonOnlyFromConfiguredOrigins(t *testing.T) {
	s := place(t)
	s.start(openai(upstream(t, answers), "") + "cors: {origins: [\"https://app.example\"]}\n")
	for origin, want := range map[string]int{"https://app.example": 200, "https://evil.example": 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/openai/v1/chat/completions", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Content-Type", "application/json")
		res, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", origin, res.StatusCode, want)
		}
	}
}

func TestPagesOfConfiguredOriginsMayAskTheAPI(t *testing.T) {
	const app, approve, patch = "https://app.example", "POST /v1/quota/approve", "PATCH /v1/quota/config"
	data, dataHash := keys.Generate()
	admin, adminHash := keys.Generate()
	budget := "quota: {global: {calls_per_minute: 60}}\n"
	dataKey, adminKey := "keys: [{id: a, hash: \""+dataHash+"\"}]\n", "admin_keys: [{id: b, hash: \""+adminHash+"\"}]\n"
	listed, every := "cors: {origins: [\""+app+"\"]}\n", "cors: {origins: [\"*\"]}\n"
	for name, c := range map[string]struct {
		config, operation, origin, key string
		want                           int
	}{
		"a page with a key":                         {dataKey + listed, approve, app, data, 200},
		"a page without one":                        {dataKey + listed, approve, app, "", 401},
		"another page":                              {dataKey + listed, approve, "https://evil.example", data, 403},
		"any page":                                  {dataKey + every, approve, "https://some.example", data, 200},
		"without cors":                              {dataKey, approve, app, data, 403},
		"no keys":                                   {listed, approve, app, "", 200},
		"a page with an admin key":                  {dataKey + adminKey + listed, patch, app, admin, 200},
		"a page whose key is not an admin key":      {dataKey + adminKey + listed, patch, app, data, 403},
		"changes without admin keys, from a page":   {listed, patch, app, "", 403},
		"changes without admin keys, from a client": {listed, patch, "", "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			s := place(t)
			s.start(openai(upstream(t, answers), "") + budget + c.config)
			method, path, _ := strings.Cut(c.operation, " ")
			body, kind := `{"model":"other","expected_input_tokens":1}`, "application/json"
			if c.operation == patch {
				body, kind = `{"global":{"callsPerMinute":50}}`, "application/merge-patch+json"
			}
			r, err := http.NewRequestWithContext(t.Context(), method, s.base+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", kind)
			if c.key != "" {
				r.Header.Set("Authorization", "Bearer "+c.key)
			}
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
				r.Header.Set("Sec-Fetch-Site", "cross-site")
			}
			res, err := s.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != c.want {
				t.Errorf("%d %s, want %d", res.StatusCode, text, c.want)
			}
		})
	}
}

// TestAModelThatCannotBeAskedForUsageIsRememberedAcrossRestarts: a model that refuses
// include_usage costs one refused call, not one call for each restart.
func TestAModelThatCannotBeAskedForUsageIsRememberedAcrossRestarts(t *testing.T) {
	var got, asked atomic.Int64
	url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Add(1)
		if strings.Contains(string(body), "stream_options") {
			asked.Add(1)
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\ndata: [DONE]\n\n")
	})
	s := place(t)
	stream := func(wantGot, wantAsked int64) {
		t.Helper()
		status, _, body := s.do(http.MethodPost, "/openai/v1/chat/completions", "", strings.Replace(question, "{", `{"stream":true,`, 1))
		if status != 200 || got.Load() != wantGot || asked.Load() != wantAsked {
			t.Errorf("%d %s after %d requests, of which %d ask; want %d and %d", status, body, got.Load(), asked.Load(), wantGot, wantAsked)
		}
	}
	for name, pacing := range map[string]string{"paced": "", "not paced": "    pacing: off\n"} {
		s.dir = t.TempDir()
		got.Store(0)
		asked.Store(0)
		s.start(openai(url, pacing))
		stream(2, 1)
		stream(3, 1)
		s.stop()
		s.start(openai(url, pacing))
		stream(4, 1)
		s.stop()
		s.start(openai(url, pacing+"    inject_usage: always\n"))
		if status, _, _ := s.do(http.MethodPost, "/openai/v1/chat/completions", "", strings.Replace(question, "{", `{"stream":true,`, 1)); status != 422 {
			t.Errorf("%s, always: %d", name, status)
		}
		s.stop()
	}
}

func TestAnUpstreamWithItsOwnAuthorityAndClientCertificates(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Shown", fmt.Sprint(len(r.TLS.PeerCertificates)))
		answers(w, r)
	}))
	up.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	up.StartTLS()
	t.Cleanup(up.Close)
	s := place(t)
	ca := filepath.Join(s.dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	certify(t, s.dir, 7, time.Now().Add(time.Hour))
	cert, key := filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem")
	s.start(openai(up.URL, "    tls: {ca: "+ca+", cert: "+cert+", key: "+key+"}\n"))
	if status, header, body := s.call(""); status != 200 || header.Get("X-Shown") != "1" {
		t.Errorf("%d %v %s", status, header, body)
	}
	s.stop()
	s.start(openai(up.URL, ""))
	if status, _, body := s.call(""); status != 502 {
		t.Errorf("without them: %d %s", status, body)
	}
}

func TestACollectorGetsAHeaderWithASpaceAndTheProviderTheCallsSpan(t *testing.T) {
	got := make(chan string, 100)
	collector := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.HasSuffix(r.URL.Path, "/traces") {
			got <- r.Header.Get("Authorization") + "\n" + string(body)
		}
	})
	parents := make(chan string, 1)
	s := place(t)
	s.env = map[string]string{"TOKEN": "Bearer collectors-token"}
	s.start(openai(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		parents <- r.Header.Get("Traceparent")
		answers(w, r)
	}), "") + "metrics: {otlp: {endpoint: \"" + collector + "\", headers: {Authorization: {env: TOKEN}}}}\n")
	if status, _, body := s.call(""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	s.stop()
	parent := <-parents
	if len(parent) != 55 {
		t.Fatalf("the provider got %q", parent)
	}
	span, err := hex.DecodeString(parent[36:52])
	if err != nil {
		t.Fatal(err)
	}
	sent := <-got
	if !strings.HasPrefix(sent, "Bearer collectors-token\n") {
		t.Errorf("the collector was shown %q", sent[:min(len(sent), 40)])
	}
	if !strings.Contains(sent, string(span)) {
		t.Error("the span that was sent is not the one that the provider got")
	}
}

// TestCallsAreKeptWithoutTheirContent: calls are in the access log, in the API and in totals
// that survive a restart, without content. A reload makes the log file again.
func TestCallsAreKeptWithoutTheirContent(t *testing.T) {
	url := upstream(t, answers)
	s := place(t)
	access := filepath.Join(s.dir, "access.log")
	text := openai(url, "    quota: {global: {max_daily_calls: 2}}\n") + "log: {format: json, access: " + access + "}\n"
	lines := func() (all []map[string]any) {
		data, err := os.ReadFile(access)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), content) {
			t.Errorf("the content of a call is in %s", data)
		}
		for line := range strings.Lines(string(data)) {
			var one map[string]any
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			all = append(all, one)
		}
		return all
	}
	s.start(text)
	for range 3 {
		s.call("")
	}
	eventually(t, "the calls are over", func() bool { return len(lines()) == 3 })
	if first, last := lines()[0], lines()[2]; first["input_tokens"] != 5.0 || first["status"] != 200.0 || last["status"] != 429.0 || last["ending"] != "refused" {
		t.Errorf("%v %v", first, last)
	}
	status, _, body := s.do(http.MethodGet, "/v1/calls?limit=1", "", "")
	if status != 200 || !strings.Contains(body, `"status":429`) || strings.Contains(body, content) {
		t.Errorf("the latest call: %d %s", status, body)
	}
	const totals = `[{"provider":"openai","calls":3,"refused":1,"failed":0,"attempts":2,"throttled":0,"input_tokens":10,"cached_tokens":0,"output_tokens":10,"reasoning_tokens":0,"estimated":0,"cost":null,"unpriced_tokens":20}]`
	if _, _, body := s.do(http.MethodGet, "/v1/usage?by=provider", "", ""); strings.TrimSpace(body) != totals {
		t.Errorf("totals: %s", body)
	}
	if err := os.Rename(access, access+".1"); err != nil {
		t.Fatal(err)
	}
	c, err := s.read(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.daemon.Reload(c); err != nil {
		t.Fatal(err)
	}
	s.call("")
	eventually(t, "the call after the reload is over", func() bool { return len(lines()) == 1 })
	s.stop()
	s.start(text)
	if _, _, body := s.do(http.MethodGet, "/v1/usage", "", ""); !strings.HasPrefix(body, `[{"calls":4,"refused":2,`) {
		t.Errorf("totals after a restart: %s", body)
	}
	if _, _, body := s.do(http.MethodGet, "/v1/calls", "", ""); strings.TrimSpace(body) != "[]" {
		t.Errorf("calls of another process: %s", body)
	}
}
