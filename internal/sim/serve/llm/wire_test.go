package llm_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/headway-go/headway/internal/pipenet"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instant is a provider that answers at once, with the limits and other entries
// of a scenario's section.
func instant(section string) string {
	return "name: test\nprovider:\n  latency: {p50: 0s}\n  throttle: {retry_after: exact}\n" + section
}

// provider serves language models.
func provider(t testing.TB, src string, opt llm.Options, server serve.Options) *serve.Server {
	t.Helper()
	api, err := llm.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := scenario.Parse("test.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	server.APIs = append(server.APIs, api)
	s, err := serve.New(cfg, server)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask makes one request without a network. Header fields are "Name: value".
func ask(t testing.TB, h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(t, method, path, body, header...))
	return w
}

func request(t testing.TB, method, path, body string, header ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for _, field := range header {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Set(name, value)
	}
	return r
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

// client talks to a server over pipes; both end with the test.
func client(t *testing.T, s *serve.Server) *http.Client {
	t.Helper()
	w := pipenet.New()
	hs := &http.Server{Handler: s}
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(w) }()
	transport := &http.Transport{DialContext: w.Dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := hs.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return &http.Client{Transport: transport}
}

// post sends a body to http://provider and leaves the answer open.
func post(ctx context.Context, t testing.TB, c *http.Client, url, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer key")
	r.Header.Set("X-Goog-Api-Key", "key")
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// finish reads an answer to its end.
func finish(t testing.TB, res *http.Response) (body string, err error) {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if e := res.Body.Close(); e != nil {
		t.Error(e)
	}
	return string(b), err
}

// fetch asks and reads the answer to its end.
func fetch(t testing.TB, c *http.Client, url, body string) (answer string, err error) {
	t.Helper()
	res := post(t.Context(), t, c, url, body)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}
