package daemon_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/internal/keys"
)

func TestAdminAndDataKeysAreApart(t *testing.T) {
	data, dataHash := keys.Generate()
	admin, adminHash := keys.Generate()
	s := place(t)
	url := upstream(t, answers)
	viewer, viewerHash := keys.Generate()
	operator, operatorHash := keys.Generate()
	text := "keys: [{id: a, hash: \"" + dataHash + "\", tenant: t}, {id: screen, role: viewer, hash: \"" + viewerHash + "\"}, {id: shift, role: operator, hash: \"" + operatorHash + "\"}]\nadmin_keys: [{id: ops, hash: \"" + adminHash + "\"}]\n" + openai(url, "    quota: {global: {calls_per_minute: 6000}}\n")
	s.start(text)
	const patch = `{"global":{"callsPerMinute":5000}}`
	for _, c := range []struct {
		what, method, path, secret, body string
		want                             int
	}{
		{"call without a key", "POST", "/openai/v1/chat/completions", "", question, 401},
		{"call with another key", "POST", "/openai/v1/chat/completions", "hw_none", question, 401},
		{"call with the provider's own key", "POST", "/openai/v1/chat/completions", providerKey, question, 401},
		{"call with the admin key", "POST", "/openai/v1/chat/completions", admin, question, 401},
		{"call", "POST", "/openai/v1/chat/completions", data, question, 200},
		{"patch without a key", "PATCH", "/v1/quota/config", "", patch, 401},
		{"patch with a data key", "PATCH", "/v1/quota/config", data, patch, 403},
		{"patch", "PATCH", "/v1/quota/config", admin, patch, 200},
		{"approve without a key", "POST", "/v1/quota/approve", "", `{"model":"m"}`, 401},
		{"approve", "POST", "/v1/quota/approve", data, `{"model":"m"}`, 200},
		{"approve for another tenant", "POST", "/v1/quota/approve", data, `{"model":"m","tenant":"u"}`, 403},
		{"health", "GET", "/healthz", "", "", 200},
		{"rates with a data key", "GET", "/v1/rate", data, "", 403},
		{"call with a viewer's key", "POST", "/openai/v1/chat/completions", viewer, question, 401},
		{"approve with an operator's key", "POST", "/v1/quota/approve", operator, `{"model":"m"}`, 403},
		{"rates with a viewer's key", "GET", "/v1/rate", viewer, "", 200},
		{"patch with a viewer's key", "PATCH", "/v1/quota/config", viewer, patch, 403},
		{"patch with an operator's key", "PATCH", "/v1/quota/config", operator, patch, 200},
		{"keys with an operator's key", "GET", "/v1/keys", operator, "", 403},
		{"keys with the admin key", "GET", "/v1/keys", admin, "", 200},
	} {
		if status, _, body := s.do(c.method, c.path, c.secret, c.body); status != c.want {
			t.Errorf("%s: %d, want %d: %s", c.what, status, c.want, body)
		}
	}
	if _, _, page := s.do(http.MethodGet, "/", "", ""); strings.Contains(page, url) {
		t.Errorf("the start page shows an unauthenticated caller where it goes: %s", page)
	}
	blocked := false
	for range 30 {
		status, header, _ := s.do(http.MethodGet, "/v1/quota/snapshot", "hw_guess", "")
		blocked = blocked || status == http.StatusTooManyRequests && header.Get("Retry-After") != ""
	}
	if !blocked {
		t.Error("thirty bad keys in a row were all looked at")
	}
	if status, _, _ := s.do(http.MethodGet, "/v1/quota/snapshot", data, ""); status != 200 {
		t.Errorf("a good key from the same address: %d", status)
	}
	// Without its hash, a key is invalid from the next request on.
	other, otherHash := keys.Generate()
	c, err := s.read(strings.ReplaceAll(text, dataHash, otherHash))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.daemon.Reload(c); err != nil {
		t.Fatal(err)
	}
	if log := s.log.String(); !strings.Contains(log, `msg="configuration reloaded" providers=1 keys=1 admin_keys=1 view_keys=2`) {
		t.Errorf("the reload is logged as\n%s", log)
	}
	if status, _, _ := s.call(data); status != 401 && status != 429 {
		t.Errorf("the old key: %d", status)
	}
	if status, _, body := s.call(other); status != 200 {
		t.Errorf("the new key: %d %s", status, body)
	}
}

// Envoy asks by gRPC, with a key for calls, on the listener of all else.
func TestAGatewayAsksForCalls(t *testing.T) {
	s := place(t)
	data, dataHash := keys.Generate()
	s.start("keys: [{id: a, hash: \"" + dataHash + "\"}]\n" + openai(upstream(t, answers), "    quota: {global: {calls_per_minute: 1, burst: 2}}\n"))
	conn, err := grpc.NewClient(strings.TrimPrefix(s.base, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ask := func(key string) (rls.RateLimitResponse_Code, error) {
		out, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(
			metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key), &rls.RateLimitRequest{
				Domain: "openai", Descriptors: []*descriptor.RateLimitDescriptor{{Entries: []*descriptor.RateLimitDescriptor_Entry{{Key: "model", Value: "m"}}}},
			})
		return out.GetOverallCode(), err
	}
	if _, err := ask("hw_none"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("with another key: %v", err)
	}
	var got []rls.RateLimitResponse_Code
	for range 3 {
		code, err := ask(data)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, code)
	}
	if ok, over := rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT; !slices.Equal(got, []rls.RateLimitResponse_Code{ok, ok, over}) {
		t.Errorf("three calls of a burst of two: %v", got)
	}
	if status, _, body := s.do(http.MethodPost, "/v1/quota/approve", data, `{"model":"m"}`); status != http.StatusTooManyRequests {
		t.Errorf("the API after them: %d %s", status, body)
	}
}

func TestAnOpenDaemonIsNotForWebPages(t *testing.T) {
	s := place(t)
	s.start("hosts: [box.internal]\n" + openai(upstream(t, answers), ""))
	for _, c := range []struct {
		what, host, site string
		want             int
	}{
		{"by its address", "", "", 200},
		{"as localhost", "localhost:8700", "", 200},
		{"by a listed name", "box.internal:1", "", 200},
		{"by another name", "evil.example", "", 403},
		{"from another site's page", "", "cross-site", 403},
		{"from its own page", "", "same-origin", 200},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/openai/v1/chat/completions", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		r.Header.Set("Content-Type", "application/json")
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", c.what, resp.StatusCode, c.want)
		}
	}
}

func TestNoSecretAndNoContentIsLeftBehind(t *testing.T) {
	data, hash := keys.Generate()
	admin, adminHash := keys.Generate()
	s := place(t)
	fail := atomic.Bool{}
	url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if fail.Load() {
			http.Error(w, `{"error":{"message":"`+content+`","type":"server_error"}}`, http.StatusInternalServerError)
			return
		}
		answers(w, r)
	})
	s.start("log: {level: debug}\nkeys: [{id: a, hash: \"" + hash + "\"}]\nadmin_keys: [{id: o, hash: \"" + adminHash + "\"}]\n" +
		openai(url, "    quota: {log_level: debug, global: {max_daily_calls: 4}}\n"))
	for i := range 8 {
		fail.Store(i == 2)
		s.call(data)
	}
	s.call("canary-wrong-key")
	var said strings.Builder
	for _, path := range []string{"/", "/v1", "/v1/rate", "/v1/quota/snapshot", "/v1/quota/config", "/v1/quota/statistics", "/readyz", "/healthz", "/metrics", "/v1/calls", "/v1/usage?by=key,model,tenant,agent"} {
		_, header, body := s.do(http.MethodGet, path, admin, "")
		said.WriteString(body)
		if err := header.Write(&said); err != nil {
			t.Fatal(err)
		}
	}
	c := s.daemon.Config()
	said.WriteString(daemon.Page(c, s.base))
	s.stop()
	said.WriteString(s.log.String() + s.files())
	for _, canary := range []string{providerKey, content, data, admin, "canary-wrong-key"} {
		if strings.Contains(said.String(), canary) {
			t.Errorf("%s is printed somewhere", canary)
		}
	}
	if !strings.Contains(s.log.String(), "egress call") || !strings.Contains(said.String(), "RATE_HARD_LIMIT") {
		t.Error("the log says nothing, so that this proves nothing")
	}
}

// until polls until the condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.NewTimer(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer end.Stop()
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestConnectionsAreCollectedOnTheirSchedules(t *testing.T) {
	url := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"items":[{"id":"1"},{"id":"2"}]}`)
	})
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	connection := func(name string) string {
		return fmt.Sprintf("connection: %s\nprovider: {base_url: %q, ceiling: 1ms, pacing: {initial: 1ms}}\nstreams:\n  - {name: things, list: {path: /}, records: .items, key: .id}\nsink: {jsonl: {dir: %q}}\n",
			name, url, filepath.Join(dir, "out-"+name))
	}
	write("chats", connection("chats"))
	s := place(t)
	text := fmt.Sprintf("collections: {dir: %q, schedule: \"@every 1h\"}\n", dir)
	s.start(text)
	reload := func(text string) error {
		c, err := s.read(text)
		if err != nil {
			t.Fatal(err)
		}
		return s.daemon.Reload(c)
	}
	ran := func(name string) bool {
		status, _, body := s.do(http.MethodGet, "/v1/runs?connection="+name, "", "")
		return status == 200 && strings.Contains(body, `"state":"drained"`)
	}
	until(t, "the run has drained", func() bool { return ran("chats") })
	for path, want := range map[string]string{
		"/v1/schedule": `"connection":"chats"`, "/v1/connections": `"things":2`, "/v1/rate": `"connection":"chats"`,
		"/metrics": `headway_collection_items{connection="chats",stream="things"} 2`, "/": "collections",
	} {
		if status, _, body := s.do(http.MethodGet, path, "", ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d, want %s in\n%s", path, status, want, body)
		}
	}
	// A broken file keeps everything as it was, and the error names it.
	write("broken", "connection: broken\n")
	write("more", connection("more"))
	err := reload(text)
	if err == nil || !strings.Contains(err.Error(), "broken.yaml") {
		t.Errorf("a reload with a broken file: %v", err)
	}
	if _, _, body := s.do(http.MethodGet, "/v1/schedule", "", ""); strings.Contains(body, `"more"`) || !strings.Contains(body, `"chats"`) {
		t.Errorf("after a refused reload: %s", body)
	}
	write("broken", connection("mended"))
	if err := reload(text); err != nil {
		t.Fatal(err)
	}
	until(t, "the new ones have run", func() bool { return ran("more") && ran("mended") })
	if err := reload("quota: {global: {calls_per_minute: 5}}\n"); err != nil {
		t.Fatal(err)
	}
	if _, _, body := s.do(http.MethodGet, "/v1/schedule", "", ""); strings.TrimSpace(body) != "[]" {
		t.Errorf("without collections: %s", body)
	}
	s.stop()
	// What was collected is known to the next one.
	s.start(text)
	if _, _, body := s.do(http.MethodGet, "/v1/connections", "", ""); !strings.Contains(body, `"chats"`) {
		t.Errorf("after a restart: %s", body)
	}
}

func TestTheConsoleIsForAdmins(t *testing.T) {
	data, dataHash := keys.Generate()
	admin, adminHash := keys.Generate()
	s := place(t)
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	text := openai(upstream(t, answers), "")
	guarded := "keys: [{id: a, hash: \"" + dataHash + "\"}]\nadmin_keys: [{id: ops, hash: \"" + adminHash + "\"}]\n" + text
	s.start(guarded)
	for _, key := range []string{"", data, admin} { // a page is opened with a session, not with a key
		if status, header, body := s.do(http.MethodGet, "/console/", key, ""); status != http.StatusSeeOther || header.Get("Location") != "/console/login" {
			t.Errorf("key %.6s: %d %s", key, status, body)
		}
	}
	if status, header, _ := s.do(http.MethodGet, "/console/static/app.css", "", ""); status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/css") {
		t.Errorf("style: %d %v", status, header)
	}
	c, err := s.read("console: false\n" + guarded)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.daemon.Reload(c); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/console/", "/console", "/console/login", "/console/static/app.css"} {
		if status, _, body := s.do(http.MethodGet, path, admin, ""); status == 200 || status == 303 {
			t.Errorf("%s is off: %d %s", path, status, body)
		}
	}
}

func TestAnOpenDaemonShowsItsConsoleAndStops(t *testing.T) {
	s := place(t)
	s.start(openai(upstream(t, answers), "    quota: {global: {max_daily_calls: 100}}\n"))
	s.call("")
	for path, want := range map[string]string{"/console/": "openai", "/console/connection?name=openai": "openai", "/console/quotas": "99"} {
		if status, _, body := s.do(http.MethodGet, path, "", ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	live, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/console/live?page=overview", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.client.Do(live)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	s.stop() // which ends the stream, instead of cutting it when the drain time is over
	if _, err := io.ReadAll(answer.Body); err != nil {
		t.Errorf("the live page was cut: %v", err)
	}
}

func TestCallsCostWhatTheOwnerSays(t *testing.T) {
	s := place(t)
	s.start("currency: USD\n" + openai(upstream(t, answers), "    prices: {\"*\": {input: 1000000, cached: 1000000, output: 2000}}\n"))
	if status, _, body := s.do(http.MethodPost, "/openai/v1/chat/completions", "", question); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	_, _, usage := s.do(http.MethodGet, "/v1/usage?by=provider", "", "")
	if !strings.Contains(usage, `"currency":"USD"`) || !strings.Contains(usage, `"unpriced_tokens":0`) {
		t.Errorf("usage %s", usage)
	}
}

func TestWebhooksAreSignedAndTriedAgain(t *testing.T) {
	s := place(t)
	type request struct{ body, signature string }
	got := make(chan request, 100)
	var asked atomic.Int32
	hook := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		got <- request{string(body), r.Header.Get("Headway-Signature")}
	})
	leads := upstream(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, hook, http.StatusTemporaryRedirect) })
	fails := upstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
	s.start("webhooks: [{url: '" + hook + "', secret: '${KEY}', types: ['rate:config']}, {url: '" + leads + "', secret: '${KEY}'}]\n" +
		openai(fails, "    quota: {global: {calls_per_minute: 6000}}\n"))
	if status, _, body := s.do(http.MethodPatch, "/v1/quota/config", "", `{"global":{"callsPerMinute":5000}}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	r := <-got
	at, sum, _ := strings.Cut(strings.TrimPrefix(r.signature, "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte(providerKey))
	_, _ = fmt.Fprintf(mac, "%s.%s", at, r.body)
	if hex.EncodeToString(mac.Sum(nil)) != sum {
		t.Errorf("signed %q", r.signature)
	}
	if !strings.Contains(r.body, `"type":"rate:config"`) || !strings.Contains(r.body, `"dropped":0`) || strings.Contains(r.body, providerKey) {
		t.Errorf("sent %s", r.body)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times: a redirect was followed", n)
	}
	if _, _, body := s.do(http.MethodGet, "/metrics", "", ""); !strings.Contains(body, `headway_webhook_events_dropped_total{webhook="0"} 0`) {
		t.Error("what a webhook did not get is not shown")
	}
}
