package serve_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/headway-go/headway/internal/pipenet"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

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
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
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
