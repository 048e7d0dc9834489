package daemon_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
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
