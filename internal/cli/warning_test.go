package cli

import (
	"encoding/json"
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

// The site's list has no next page and a field updated_at.
func TestAListThatIsNotReadAsItsProviderMeansIt(t *testing.T) {
	const (
		unmatched = "    paginate: {cursor: .next, param: cursor}\n"
		null      = "    incremental: {cursor: .changed_at, param: since}\n"
	)
	for name, tt := range map[string]struct {
		stream streamYAML
		kind   string
		says   string
		again  bool // each run says so, not the first alone
	}{
		"paging that never matches": {streamYAML{more: unmatched}, "paging_unmatched", "stream docs: the paging expression found nothing in the first page (5 records)", false},
		"incremental that is null":  {streamYAML{more: null}, "incremental_null", "stream docs: the incremental expression gave null for every record (5)", true},
		"a full last page":          {streamYAML{path: "/docs, query: {limit: \"5\"}"}, "full_last_page", "stream docs: the list ended on a full page (5 records)", true},
		"nothing":                   {streamYAML{more: incremental}, "", "warning:", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.write(t, "", "", tt.stream)
			once := func(n int, text string) {
				t.Helper()
				if tt.kind == "" {
					n = 0
				}
				if got := strings.Count(text, tt.says); got != n {
					t.Errorf("%q stands %d times, want %d, in:\n%s", tt.says, got, n, text)
				}
			}
			code, out, errs := headway(t, "check", "c.yaml", "--probe")
			if code != exitOK {
				t.Fatalf("check: exit %d: %s", code, errs)
			}
			once(1, out)
			if code, out, _ = headway(t, "check", "c.yaml", "--probe", "--json"); code != exitOK || strings.Contains(out, `"kind": "`+tt.kind+`"`) != (tt.kind != "") {
				t.Errorf("check --json: exit %d, want a warning of kind %q in\n%s", code, tt.kind, out)
			}
			once(2, collects(t, exitOK)) // at once, and in the summary
			again := 0
			if tt.again {
				again = 2
			}
			once(again, collects(t, exitOK))

			code, out, errs = headway(t, "collect", "c.yaml", "--fresh", "--json")
			if code != exitOK {
				t.Fatalf("collect --json: exit %d: %s", code, errs)
			}
			events, summaries := 0, 0
			for line := range strings.Lines(out) {
				var l struct {
					Event   struct{ Type, Note, Stream string }
					Summary struct {
						Warnings []struct{ Kind, Stream string }
					}
				}
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				if l.Event.Type == "warning" && l.Event.Note == tt.kind && l.Event.Stream == "docs" {
					events++
				}
				for _, w := range l.Summary.Warnings {
					if w.Kind == tt.kind && w.Stream == "docs" {
						summaries++
					}
				}
			}
			want := 1
			if tt.kind == "" {
				want = 0
			}
			if events != want || summaries != want {
				t.Errorf("%d events and %d warnings in the summary, want %d each:\n%s", events, summaries, want, out)
			}
		})
	}
}

// The details of the site have one message each and name no next page.
func TestDetailsThatAreNotReadToTheirEnd(t *testing.T) {
	paged := func(paginate string) streamYAML {
		return streamYAML{more: "    detail: {stream: messages, path: \"/docs/{key}\", records: .messages, key: .id" + paginate + "}\n"}
	}
	for name, tt := range map[string]struct {
		stream streamYAML
		kind   string
		says   string
	}{
		"paging that never matches": {paged(", paginate: {cursor: .next, param: cursor}"), "detail_paging_unmatched",
			"stream messages: the paging expression found nothing in any detail (5), and each was taken for one page; if there are more, look at detail.paginate"},
		"no paging": {paged(""), "", "stream messages:"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.write(t, "", "", tt.stream)
			want := 2 // at the end of the run, and in the summary
			if tt.kind == "" {
				want = 0
			}
			if all := collects(t, exitOK); strings.Count(all, tt.says) != want {
				t.Errorf("%q stands %d times, want %d, in:\n%s", tt.says, strings.Count(all, tt.says), want, all)
			}
			if tt.kind != "" {
				_, out, _ := headway(t, "collect", "c.yaml", "--fresh", "--json")
				if strings.Count(out, `"kind":"`+tt.kind+`"`) != 1 || strings.Count(out, `"note":"`+tt.kind+`"`) != 1 {
					t.Errorf("want one event and one warning %s in:\n%s", tt.kind, out)
				}
			}
			s.update()
			if all := collects(t, exitOK); strings.Contains(all, "stream messages:") {
				t.Errorf("what changed later is warned of:\n%s", all)
			}
		})
	}
}

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

func TestCheckSaysWhoCanReadASecret(t *testing.T) {
	t.Chdir(t.TempDir())
	file := `connection: acme
provider: {base_url: "https://h", auth: {oauth2: {token_url: "https://h/token", client_id: me, refresh_token: "${file:token}"}}}
streams: [{name: docs, list: {path: /docs}, records: .items, key: .id, paginate: {cursor: .next, param: cursor}}]
`
	if err := os.WriteFile("c.yaml", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("token", []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	const open = `every user of this machine can read file "token"; chmod 600 it`
	for _, mode := range []os.FileMode{0o600, 0o644} {
		if err := os.Chmod("token", mode); err != nil {
			t.Fatal(err)
		}
		code, out, errs := headway(t, "check", "c.yaml")
		if code != exitOK || strings.Contains(out, open) != (mode == 0o644) {
			t.Errorf("mode %o: exit %d\n%s%s", mode, code, out, errs)
		}
		// A token that the provider replaces is kept beside the state.
		if strings.Contains(out, "for the run only") || strings.Contains(out, "hunter2") {
			t.Errorf("check says\n%s", out)
		}
	}
}
