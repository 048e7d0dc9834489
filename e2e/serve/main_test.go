//go:build unix

// Package serve_test runs "headway serve" as it is shipped, in front of a
// simulated provider: it is killed under load, reloaded, stopped and given bad
// configurations, and what it let through is held against what the provider saw.
package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/debian"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/longtest"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Run(m, harness.Setup{}))
}

// announced is the URL that a program wrote into its ready file.
func announced(t *testing.T, p *harness.Process, ready string) string {
	t.Helper()
	var url string
	harness.Eventually(t, p.String()+" is ready", func() bool {
		select {
		case <-p.Ended():
			t.Fatalf("%s ended: %s", p, p.Wait(t))
		default:
		}
		b, err := os.ReadFile(ready)
		url = strings.TrimSpace(string(b))
		return err == nil && url != ""
	})
	return url
}

// provider starts a simulated one without limits of its own.
func provider(t *testing.T, dir string) string {
	t.Helper()
	ready := filepath.Join(dir, "provider.url")
	p := harness.Launch(t, dir, nil, "provider", "serve", "--data", "llm", "--listen", "127.0.0.1:0", "--ready-file", ready,
		"--rpm", "0", "--tpm", "0", "--rpd", "0", "--pace", "0")
	return announced(t, p, ready)
}

// serve starts the daemon on a configuration in dir.
func serve(t *testing.T, dir string) (*harness.Process, string) {
	t.Helper()
	ready := filepath.Join(dir, "serve.url")
	if err := os.Remove(ready); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	p := harness.Launch(t, dir, []string{"KEY=" + harness.Token}, "serve", "headway.yaml", "--ready-file", ready)
	return p, announced(t, p, ready)
}

// call makes one call, and says how it was answered; 0 is not at all.
func call(ctx context.Context, url string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/openai/v1/chat/completions",
		strings.NewReader(`{"model":"gpt-4o-mini","messages":[{"role":"user","content":"say hello"}]}`))
	if err != nil {
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

func configuration(t *testing.T, dir, upstream, more string) {
	t.Helper()
	harness.Write(t, filepath.Join(dir, "headway.yaml"), fmt.Sprintf(`
listen: 127.0.0.1:0
state: state
providers:
  openai:
    api: openai
    upstream: %s
    key: {env: KEY}
    pacing: off
%s`, upstream, more))
}

func admitted(t *testing.T, upstream string) int64 {
	t.Helper()
	var stats struct{ Admitted int64 }
	harness.Get(t, upstream+"/-/stats", &stats)
	return stats.Admitted
}

func TestADailyBudgetIsNeverHandedOutTwice(t *testing.T) {
	const clients = 8
	kills := longtest.Size(4, 200)
	dailyCap := 100 * kills
	lease := dailyCap/64 + 1
	dir := t.TempDir()
	upstream := provider(t, dir)
	configuration(t, dir, upstream, fmt.Sprintf("    quota: {global: {max_daily_calls: %d}}\n", dailyCap))
	for round := range kills {
		p, url := serve(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		var done, answered atomic.Int64
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for ctx.Err() == nil {
					if call(ctx, url) == http.StatusOK {
						answered.Add(1)
					}
					done.Add(1)
				}
			})
		}
		harness.Eventually(t, "calls are made", func() bool { return answered.Load() >= int64(20+17*(round%4)) })
		p.Signal(t, syscall.SIGKILL)
		if o := p.Wait(t); !o.Killed {
			t.Fatalf("it was not killed: %s", o)
		}
		cancel()
		all.Wait()
	}
	before := admitted(t, upstream)
	if before == 0 || before >= int64(dailyCap) {
		t.Fatalf("the kills came too late or too early: %d of %d calls made", before, dailyCap)
	}
	p, url := serve(t, dir)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for call(t.Context(), url) == http.StatusOK {
			}
		})
	}
	all.Wait()
	if code := call(t.Context(), url); code != http.StatusTooManyRequests {
		t.Errorf("beyond the cap it answers %d", code)
	}
	got := admitted(t, upstream)
	if got > int64(dailyCap) {
		t.Errorf("the provider saw %d calls of a day of %d", got, dailyCap)
	}
	// A kill loses at most the rest of its lease, which is no more than a quarter of what
	// the process used, and what was being handed out.
	if least := int64(max(dailyCap-kills*(lease+clients), (dailyCap-kills*(clients+1))*4/5)); got < least {
		t.Errorf("the provider saw %d calls, want at least %d: the kills cost too much of the day", got, least)
	}
	t.Logf("%d kills: the provider saw %d calls of a day of %d, %d before the last start", kills, got, dailyCap, before)
	p.Signal(t, syscall.SIGTERM)
	if o := p.Wait(t); o.Code != 0 {
		t.Errorf("stop: %s", o)
	}
}

func TestReloadAndStop(t *testing.T) {
	dir := t.TempDir()
	upstream := provider(t, dir)
	configuration(t, dir, upstream, "    quota: {global: {max_daily_calls: 2}}\n")
	p, url := serve(t, dir)
	if code := call(t.Context(), url); code != 200 {
		t.Fatalf("%d: %s", code, p.Stderr.Text())
	}
	configuration(t, dir, upstream, "    quota: {global: {max_daily_calls: lots}}\n")
	p.Signal(t, syscall.SIGHUP)
	p.Await(t, &p.Stderr, `max_daily_calls: is \"lots\"`)
	if code := call(t.Context(), url); code != 200 {
		t.Errorf("after a bad reload: %d", code)
	}
	if code := call(t.Context(), url); code != 429 {
		t.Errorf("the old limit holds no more: %d", code)
	}
	configuration(t, dir, upstream, "    quota: {global: {max_daily_calls: 3}}\n")
	p.Signal(t, syscall.SIGHUP)
	p.Await(t, &p.Stderr, "configuration reloaded")
	if first, second := call(t.Context(), url), call(t.Context(), url); first != 200 || second != 429 {
		t.Errorf("after a good reload: %d, %d", first, second)
	}
	for _, c := range []struct{ args, want string }{
		{"rate", ""}, {"status", ""}, {"runs", "RUN"}, {"gaps list", "no gaps"}, {"quota snapshot", "global"},
		{"quota snapshot --provider openai --json", "dailyCallsRemaining\": 0"},
	} {
		args := append(strings.Fields(c.args), "--server", url)
		if o := harness.Launch(t, dir, nil, args...).Wait(t); o.Code != 0 || !strings.Contains(o.Stdout, c.want) {
			t.Errorf("%v: want %q: %s", args, c.want, o)
		}
		o := harness.Launch(t, dir, []string{"HEADWAY_SERVER=http://127.0.0.1:1"}, strings.Fields(c.args)...).Wait(t)
		if o.Code != harness.ExitRefused {
			t.Errorf("%v of a daemon that is not there: %s", c.args, o)
		}
	}
	if o := harness.Launch(t, dir, []string{"HEADWAY_SERVER=" + url}, "gaps", "retry", "1").Wait(t); o.Code != harness.ExitUsage {
		t.Errorf("a decision through a daemon: %s", o)
	}
	p.Signal(t, syscall.SIGTERM)
	o := p.Wait(t)
	if o.Code != 0 || !strings.Contains(o.Stdout, "OPENAI_BASE_URL="+url+"/openai/v1") {
		t.Errorf("stop: %s", o)
	}
	if _, err := os.Stat(filepath.Join(dir, "serve.url")); !os.IsNotExist(err) {
		t.Errorf("the ready file is left behind: %v", err)
	}
	if strings.Contains(o.Stdout+o.Stderr, harness.Token) {
		t.Error("the provider's key is printed")
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	configuration(t, dir, "http://127.0.0.1:1", "")
	first, url := serve(t, dir)
	harness.Write(t, filepath.Join(dir, "bad.yaml"), "providers: {x: {api: openai, key: {env: NOPE}}}\n")
	address := strings.TrimPrefix(url, "http://")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"serve", "--check"}, harness.ExitDrained, "GOES TO"},
		{[]string{"serve", "--check", "--upstream", "anthropic", "--rpm", "5"}, harness.ExitDrained, "ANTHROPIC_BASE_URL=http://127.0.0.1:8700/anthropic"},
		{[]string{"serve", "--check", "--upstream", "groq:openai=https://api.groq.com/openai"}, harness.ExitDrained, "OPENAI_BASE_URL=http://127.0.0.1:8700/groq/v1"},
		{[]string{"serve", "--check", "bad.yaml"}, harness.ExitUsage, "bad.yaml:1:35: providers.x.key: needs the environment variable NOPE, which is not set"},
		{[]string{"serve", "absent.yaml"}, harness.ExitUsage, "absent.yaml"},
		{[]string{"serve", "--check", "--listen", "0.0.0.0:80"}, harness.ExitUsage, "without keys"},
		{[]string{"serve", "--rpm", "5"}, harness.ExitUsage, "--rpm goes with --upstream only"},
		{[]string{"serve", "headway.yaml", "--upstream", "openai"}, harness.ExitUsage, "--upstream does not go with a file"},
		{[]string{"serve", "--upstream", "x:=http://h"}, harness.ExitUsage, "must be NAME, NAME=URL or NAME:API=URL"},
		{[]string{"serve"}, harness.ExitRefused, "another headway serve uses this state folder"},
		{[]string{"serve", "--state", "other", "--listen", address}, harness.ExitRefused, "cannot listen on " + address},
		{[]string{"key", "new"}, harness.ExitUsage, "id is missing"},
		{[]string{"key", "new", "--id", "a", "--admin", "--tenant", "t"}, harness.ExitUsage, "--admin does not go with"},
		{[]string{"key", "new", "--id", "a", "--admin"}, harness.ExitDrained, "admin_keys:\n- id: a\n  hash: sha256:"},
	} {
		o := harness.Launch(t, dir, []string{"KEY=k"}, c.args...).Wait(t)
		if o.Code != c.code || !strings.Contains(o.Stdout+o.Stderr, c.want) {
			t.Errorf("%s: want code %d and %q: %s", strings.Join(c.args, " "), c.code, c.want, o)
		}
	}
	first.Signal(t, syscall.SIGTERM)
	if o := first.Wait(t); o.Code != 0 {
		t.Errorf("stop: %s", o)
	}
}

// TestOffersOfHTTP2AreNoObstacle has curl offer h2c, as the JDK's HttpClient does
// by default, to the daemon as it is shipped.
func TestOffersOfHTTP2AreNoObstacle(t *testing.T) {
	dir := t.TempDir()
	configuration(t, dir, provider(t, dir), "")
	_, url := serve(t, dir)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"h2c": {[]string{"--http2"}, "200"},
		"websocket": {[]string{"-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13",
			"-H", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}, "501"},
	} {
		args := append([]string{"-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Content-Type: application/json",
			"-d", `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"say hello"}]}`}, c.args...)
		out, err := exec.CommandContext(t.Context(), debian.Require(t, "curl", "curl"), append(args, url+"/openai/v1/chat/completions")...).CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%s: %s, error %v, want %s", name, out, err, c.want)
		}
	}
}

// TestCheckRefusesKeysThatAreOfNoUse runs the command that people run before a
// reload.
func TestCheckRefusesKeysThatAreOfNoUse(t *testing.T) {
	dir := t.TempDir()
	_, hash := keys.Generate()
	for more, want := range map[string]string{
		"expires: 2020-01-31":  `headway.yaml: keys[0].expires: is 2020-01-31T00:00:00Z, which is past: the key "a" lets nobody in`,
		"providers: [nowhere]": `headway.yaml: keys[0].providers[0]: is "nowhere", which is not a provider here`,
		"providers: [openai]":  "",
		`providers: ["open*"]`: "",
		"expires: 2999-01-31":  "",
	} {
		configuration(t, dir, "http://127.0.0.1:1", "keys: [{id: a, hash: \""+hash+"\", "+more+"}]\n")
		o := harness.Launch(t, dir, []string{"KEY=" + harness.Token}, "serve", "--check", "headway.yaml").Wait(t)
		if (o.Code == 0) != (want == "") || !strings.Contains(o.Stderr, want) {
			t.Errorf("%s: %s", more, o)
		}
	}
}

// TestKeysAreIssuedAndRevokedWhileTheDaemonRuns goes through a key's life by the
// command line, a restart included.
func TestKeysAreIssuedAndRevokedWhileTheDaemonRuns(t *testing.T) {
	dir := t.TempDir()
	first, hash := keys.Generate()
	admin, adminHash := keys.Generate()
	configuration(t, dir, provider(t, dir), "keys: [{id: first, hash: \""+hash+"\"}]\nadmin_keys: [{id: ops, hash: \""+adminHash+"\"}]\n")
	p, url := serve(t, dir)
	key := func(args ...string) harness.Outcome {
		return harness.Launch(t, dir, []string{"HEADWAY_KEY=" + admin, "HEADWAY_SERVER=" + url}, append([]string{"key"}, args...)...).Wait(t)
	}
	status := func(secret string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/openai/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	o := key("new", "--id", "second", "--tenant", "t", "--model", "gpt-*", "--uploads", "--json")
	var made struct{ Secret, ID, Tenant string }
	if err := json.Unmarshal([]byte(o.Stdout), &made); err != nil || o.Code != 0 || made.ID != "second" || made.Tenant != "t" {
		t.Fatalf("%s, %v", o, err)
	}
	if a, b, c := status(first), status(made.Secret), status("hw_nothing"); a == 401 || b == 401 || c != 401 {
		t.Errorf("the configured key %d, the issued one %d, none %d", a, b, c)
	}
	if o := key("new", "--id", "second"); o.Code == 0 || !strings.Contains(o.Stderr, "there is a key of that id") {
		t.Errorf("twice: %s", o)
	}
	want := "first: (configured)\nsecond: tenant t models gpt-* uploads (issued)\n"
	if o := key("list"); o.Stdout != want {
		t.Errorf("the list: %s", o)
	}
	p.Signal(t, syscall.SIGTERM)
	p.Wait(t)
	if b, err := os.ReadFile(filepath.Join(dir, "state", "keys.json")); err != nil || strings.Contains(string(b), made.Secret) {
		t.Errorf("the file of keys: %s, %v", b, err)
	}
	_, url = serve(t, dir)
	if got := status(made.Secret); got == 401 {
		t.Errorf("after a restart: %d", got)
	}
	if o := key("revoke", "second"); o.Code != 0 {
		t.Errorf("revoke: %s", o)
	}
	if got := status(made.Secret); got != 401 {
		t.Errorf("after it was revoked: %d", got)
	}
	if o := key("revoke", "first"); o.Code == 0 || !strings.Contains(o.Stderr, "delete its lines and reload") {
		t.Errorf("revoking a configured key: %s", o)
	}
	if got := status(first); got == 401 {
		t.Errorf("the configured key: %d", got)
	}
}

// revocable is a provider with a bucket of its own for each key, 60 in three seconds, of
// which one may be revoked.
type revocable struct {
	mu      sync.Mutex
	tokens  map[string]float64
	filled  map[string]time.Time
	served  map[string]int
	revoked string
}

func (u *revocable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	u.mu.Lock()
	defer u.mu.Unlock()
	key, now := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), time.Now()
	if _, ok := u.tokens[key]; !ok {
		u.tokens[key], u.filled[key] = 5, now
	}
	u.tokens[key] = min(5, u.tokens[key]+20*now.Sub(u.filled[key]).Seconds())
	u.filled[key] = now
	w.Header().Set("Content-Type", "application/json")
	switch {
	case key == u.revoked:
		w.WriteHeader(http.StatusUnauthorized)
	case u.tokens[key] < 1:
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		u.tokens[key]--
		u.served[key]++
	}
	_, _ = io.WriteString(w, "{}")
}

func (u *revocable) counts() (a, b, c int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.served["sk-canary-a"], u.served["sk-canary-b"], u.served["sk-canary-c"]
}

func TestOfThreeKeysOneIsRevokedInTheMiddle(t *testing.T) {
	u := &revocable{tokens: map[string]float64{}, filled: map[string]time.Time{}, served: map[string]int{}}
	up := harness.Serve(t, u)
	dir := t.TempDir()
	harness.Write(t, filepath.Join(dir, "headway.yaml"), fmt.Sprintf(`
listen: 127.0.0.1:0
state: state
providers:
  openai:
    api: openai
    upstream: %s
    keys: ["${A}", {name: second, key: "${B}"}, "${C}"]
    max_wait: 1m
`, up.URL))
	ready := filepath.Join(dir, "serve.url")
	p := harness.Launch(t, dir, []string{"A=sk-canary-a", "B=sk-canary-b", "C=sk-canary-c"}, "serve", "headway.yaml", "--ready-file", ready)
	url := announced(t, p, ready)

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for range 9 {
		all.Go(func() {
			for ctx.Err() == nil {
				status := call(ctx, url)
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	harness.Eventually(t, "each key is used", func() bool {
		a, b, c := u.counts()
		return min(a, b, c) >= 20
	})
	u.mu.Lock()
	u.revoked = "sk-canary-b"
	u.mu.Unlock()
	a, before, c := u.counts()
	harness.Eventually(t, "the others go on", func() bool {
		a2, _, c2 := u.counts()
		return min(a2-a, c2-c) >= 20
	})
	cancel()
	all.Wait()
	delete(statuses, 0)
	if _, b, _ := u.counts(); b != before || statuses[200] == 0 || statuses[401] > 0 || len(statuses) > 2 || len(statuses) == 2 && statuses[429] == 0 {
		t.Errorf("answered %v; the revoked key was served %d calls", statuses, b-before)
	}

	var rates []struct {
		Connection     string
		SetAside       *time.Time `json:"set_aside"`
		SetAsideStatus int        `json:"set_aside_status"`
		Limits         []any
	}
	harness.Get(t, url+"/v1/rate", &rates)
	if len(rates) != 3 || rates[0].Connection != "openai/1" || rates[1].Connection != "openai/3" || rates[2].Connection != "openai/second" ||
		rates[2].SetAside == nil || rates[2].SetAsideStatus != 401 || rates[0].SetAside != nil || rates[1].SetAside != nil {
		t.Errorf("rates %+v", rates)
	}
	limits := harness.Launch(t, dir, nil, "limits", "--server", url).Wait(t)
	if limits.Code != 0 || !strings.Contains(limits.Stdout, "openai/second: set aside ") || !strings.Contains(limits.Stdout, "refused with 401") ||
		!strings.Contains(limits.Stdout, "openai/1: ") {
		t.Errorf("limits: %s", limits)
	}
	events, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/events?type=warning&since=oldest", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(events)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(said.String(), "key_set_aside") {
		n, err := res.Body.Read(buffer)
		said.Write(buffer[:n])
		if err != nil {
			t.Errorf("the event did not come: %v", err)
			break
		}
	}
	_ = res.Body.Close()
	if !strings.Contains(said.String(), "openai/second") {
		t.Errorf("event %s", &said)
	}
	p.Signal(t, syscall.SIGTERM)
	o := p.Wait(t)
	if strings.Count(o.Stderr, "provider_key=second") != 1 {
		t.Errorf("the log: %s", o.Stderr)
	}
	if spilled := o.Stderr + o.Stdout + said.String() + limits.Stdout; strings.Contains(spilled, "canary") {
		t.Error("a key is in what was said")
	}
}
