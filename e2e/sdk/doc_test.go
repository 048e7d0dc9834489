// Package sdk_test has the official SDKs of OpenAI, Anthropic and Google as
// clients of "headway serve", with nothing but their base URL changed, in front
// of the simulated provider. Both are processes of the real binary. It is a
// module of its own, since the first build of the SDKs takes minutes and no
// program that imports Headway should carry them.
package sdk_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/quota"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Run(m, harness.Setup{MaxWait: time.Minute, Parallel: 4}))
}

// providerKey is what the proxy holds, clientKey what the SDKs have. The one must
// never be seen by a client, the other never by the provider.
const (
	providerKey = "canary-provider-4d1c8a"
	clientKey   = "hw_any"
)

// upstream starts the simulated provider, without limits unless flags say so.
func upstream(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	args := append([]string{
		"provider", "serve", "--data", "llm", "--listen", "127.0.0.1:0", "--ready-file", ready,
		"--rpm", "0", "--tpm", "0", "--rpd", "0", "--pace", "0",
	}, flags...)
	p := harness.Launch(t, dir, nil, args...)
	return awaitReady(t, p, ready)
}

// proxy is a running "headway serve".
type proxy struct {
	*harness.Process
	URL  string
	Log  *harness.Transcript
	Dir  string
	File string
}

// govern starts "headway serve" in front of a provider that speaks every
// language, under the names openai, azure, anthropic and gemini; more is YAML of
// each provider, indented by four.
func govern(t *testing.T, url, more string) proxy {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	fmt.Fprintf(&b, "listen: 127.0.0.1:0\nstate: state\nproviders:\n")
	for _, p := range []struct{ name, api string }{
		{"openai", "openai"}, {"azure", "azure-openai"}, {"anthropic", "anthropic"}, {"gemini", "gemini"},
	} {
		fmt.Fprintf(&b, "  %s:\n    api: %s\n    upstream: %s\n    key: {env: PROVIDER_KEY}\n", p.name, p.api, url)
		if p.name == "openai" {
			b.WriteString("    charge: openai\n")
		}
		b.WriteString(more)
	}
	p := proxy{Dir: dir, File: filepath.Join(dir, "headway.yaml")}
	harness.Write(t, p.File, b.String())
	ready := filepath.Join(dir, "ready")
	p.Process = harness.Launch(t, dir, []string{"PROVIDER_KEY=" + providerKey}, "serve", p.File, "--ready-file", ready)
	p.URL = awaitReady(t, p.Process, ready)
	t.Cleanup(func() {
		p.Signal(t, syscall.SIGTERM)
		o := p.Wait(t)
		if o.Code != 0 {
			t.Errorf("the proxy: %s", o)
		}
		for _, secret := range []string{providerKey, "tell me of the sea"} {
			if strings.Contains(o.Stdout+o.Stderr, secret) {
				t.Errorf("the proxy wrote %q: %s", secret, o)
			}
		}
	})
	return p
}

// awaitReady waits for a ready file and gives what it holds, a URL.
func awaitReady(t *testing.T, p *harness.Process, file string) (url string) {
	t.Helper()
	harness.Eventually(t, p.String()+" is ready", func() bool {
		select {
		case <-p.Ended():
			t.Fatalf("it ended: %s", p.Wait(t))
		default:
		}
		b, err := os.ReadFile(file)
		url = strings.TrimSpace(string(b))
		return err == nil && url != ""
	})
	return url
}

// stats are what the provider counted.
func stats(t *testing.T, url string) (s serve.Stats) {
	t.Helper()
	harness.Get(t, url+"/-/stats", &s)
	return s
}

// served is what the provider counted for the key that the proxy holds.
func served(t *testing.T, url string) serve.KeyCounts {
	t.Helper()
	s := stats(t, url)
	for key := range s.ByKey {
		if key != serve.KeyID(providerKey) {
			t.Errorf("the provider saw another key than the proxy's")
		}
	}
	return s.ByKey[serve.KeyID(providerKey)]
}

// used are the tokens that the proxy counted for a provider.
func (p proxy) used(t *testing.T, provider string) (input, output int64) {
	t.Helper()
	res, err := http.Get(p.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET /metrics: %d, %v", res.StatusCode, err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(name, "headway_tokens_total{") || !strings.Contains(name, `provider="`+provider+`"`) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch {
		case strings.Contains(name, `kind="input"`):
			input += int64(n)
		case strings.Contains(name, `kind="output"`):
			output += int64(n)
		}
	}
	return input, output
}

// accounted is what a provider's quota says that was used, once nothing is held.
func (p proxy) accounted(t *testing.T, provider string) quota.Snapshot {
	t.Helper()
	var s quota.Snapshot
	harness.Eventually(t, "no permit of "+provider+" is open", func() bool {
		res, err := http.Get(p.URL + "/v1/quota/snapshot?provider=" + provider)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		s = quota.Snapshot{}
		if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
			t.Fatalf("GET /v1/quota/snapshot: %d: %v", res.StatusCode, err)
		}
		return s.Statistics.Open == 0
	})
	return s
}

// The guide's program that imports an SDK compiles here, where the SDK is
// required; the root compiles the others.
func TestTheProgramOfTheGuideCompiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "llm.md"))
	if err != nil {
		t.Fatal(err)
	}
	compiled := 0
	for _, part := range strings.Split(string(text), "```go\n")[1:] {
		code, _, ok := strings.Cut(part, "```")
		if !ok {
			t.Fatal("a block of the guide does not end")
		}
		if !strings.Contains(code, "openai-go") {
			continue
		}
		compiled++
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, code)
		}
	}
	if compiled == 0 {
		t.Error("the guide has no program with an SDK")
	}
}
