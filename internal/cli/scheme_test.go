package cli

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// alerting answers like a TLS server that met something else: with an alert.
func alerting(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte("\x15\x03\x01\x00\x02\x02\x16"))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// A base URL with the scheme that the provider does not speak there is the
// connection file's mistake, and never one of the provider's.
func TestBaseURLWithTheWrongSchemeIsAConfigurationError(t *testing.T) {
	const speaksTLS, speaksPlain = "the provider speaks https here and not http", "the provider speaks http here and not https"
	page := func(text string) func(*testing.T) string {
		return func(t *testing.T) string {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, text)
			}))
			t.Cleanup(s.Close)
			return s.URL
		}
	}
	for name, tt := range map[string]struct {
		url  func(*testing.T) string
		says string
	}{
		"http to Go": {func(t *testing.T) string {
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.StartTLS()
			t.Cleanup(s.Close)
			return "http" + strings.TrimPrefix(s.URL, "https")
		}, speaksTLS},
		"http to nginx": {page("<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>\r\n<body>\r\n" +
			"<center><h1>400 Bad Request</h1></center>\r\n<center>The plain HTTP request was sent to HTTPS port</center>\r\n</body>\r\n</html>\r\n"), speaksTLS},
		"http to Apache": {page("<p>Your browser sent a request that this server could not understand.<br />\n" +
			"Reason: You're speaking plain HTTP to an SSL-enabled server port.<br /></p>"), speaksTLS},
		"http to an alert": {func(t *testing.T) string { return "http://" + alerting(t) }, speaksTLS},
		"https to Go": {func(t *testing.T) string {
			s := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			return "https" + strings.TrimPrefix(s.URL, "http")
		}, speaksPlain},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "c.yaml")
			text := fmt.Sprintf("connection: acme\nprovider: {base_url: %q, ceiling: 1ms, retry: {base: 1ms, cap: 2ms}}\n"+
				"streams:\n  - {name: docs, list: {path: /docs}, records: .items, key: .id}\nsink: {jsonl: {dir: %q}}\n", tt.url(t), filepath.Join(dir, "out"))
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			state := filepath.Join(dir, "state.db")
			code, out, errs := headway(t, "check", file, "--probe", "--state", state)
			if all := out + errs; code != exitUsage || !strings.Contains(all, tt.says) || !strings.Contains(all, "base_url") {
				t.Errorf("check --probe: exit %d, want %d and %q of base_url:\n%s", code, exitUsage, tt.says, all)
			}
			code, out, errs = headway(t, "collect", file, "--quiet", "--state", state)
			all := out + errs
			if code != exitUsage || !strings.Contains(all, tt.says) || !strings.Contains(all, "base_url") || !strings.Contains(all, "attempts   1 (") {
				t.Errorf("collect: exit %d, want %d after one attempt, and %q of base_url:\n%s", code, exitUsage, tt.says, all)
			}
			if _, out, _ = headway(t, "status", "--state", state); !strings.Contains(out, "wrong_scheme") {
				t.Errorf("status does not say why:\n%s", out)
			}
		})
	}
}

// What a provider says of one request says nothing about its port.
func TestA400ThatOnlyMentionsHTTPSIsNoWrongScheme(t *testing.T) {
	dir := t.TempDir()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error": "callback must be https"}`)
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(dir, "c.yaml")
	text := fmt.Sprintf("connection: acme\nprovider: {base_url: %q, ceiling: 1ms}\nstreams:\n  - {name: docs, list: {path: /docs}, records: .items, key: .id}\nsink: {jsonl: {dir: %q}}\n", s.URL, filepath.Join(dir, "out"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := headway(t, "collect", file, "--quiet", "--state", filepath.Join(dir, "state.db")); code != exitRefused {
		t.Errorf("exit %d, want %d:\n%s%s", code, exitRefused, out, errs)
	}
}
