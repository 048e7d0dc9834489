package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/daemon/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Canaries: none may be seen outside of the request that it belongs to.
const (
	providerKey = "canary-provider-8c1d"
	content     = "canary-content-77ab"
)

// transcript is a log that may be read while it is written.
type transcript struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// site is a daemon at work in front of a provider.
type site struct {
	t      *testing.T
	dir    string
	base   string
	log    transcript
	daemon *daemon.Daemon
	client *http.Client
	env    map[string]string // beside KEY
}

const answer = `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` + content + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":5,"total_tokens":10}}`

// answers is a provider that answers every call at once.
func answers(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}

// upstream serves a provider for the test's time.
func upstream(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// read is the configuration of a text, with %s for a free address and the state.
func (s *site) read(text string) (config.Config, error) {
	text = "listen: 127.0.0.1:0\nstate: " + filepath.Join(s.dir, "state") + "\n" + text
	return config.Read("headway.yaml", []byte(text), func(key string) string {
		if key == "KEY" {
			return providerKey
		}
		return s.env[key]
	})
}

func place(t *testing.T) *site {
	s := &site{t: t, dir: t.TempDir(), client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// start starts a daemon, which is stopped when the test ends.
func (s *site) start(text string) {
	s.t.Helper()
	c, err := s.read(text)
	if err != nil {
		s.t.Fatal(err)
	}
	s.daemon, err = daemon.New(c, daemon.Options{Log: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Version: "test"})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.daemon.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.base = "http://" + s.daemon.Address().String()
	s.t.Cleanup(s.stop)
}

func (s *site) stop() {
	s.t.Helper()
	if err := s.daemon.Stop(context.Background()); err != nil {
		s.t.Error(err)
	}
}

func openai(url, more string) string {
	return "providers:\n  openai:\n    api: openai\n    upstream: " + url + "\n    key: {env: KEY}\n" + more
}

const question = `{"model":"m","messages":[{"role":"user","content":"` + content + `"}]}`

// call makes a call of the provider.
func (s *site) call(secret string) (status int, header http.Header, body string) {
	s.t.Helper()
	return s.do(http.MethodPost, "/openai/v1/chat/completions", secret, question)
}

func (s *site) do(method, path, secret, body string) (status int, header http.Header, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		s.t.Error(err)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// eventually waits for something that only looking can tell.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatal("never: " + what)
		}
	}
}

// files is everything in the site's folder, as one text.
func (s *site) files() string {
	s.t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s: %s\n", path, b)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all.String()
}
