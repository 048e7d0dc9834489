package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// typed is what a command wrote; ready is closed when a line is whole.
type typed struct {
	mu    sync.Mutex
	text  bytes.Buffer
	once  sync.Once
	ready chan struct{}
}

func (w *typed) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if bytes.Contains(b, []byte("\n")) {
		defer w.once.Do(func() { close(w.ready) })
	}
	return w.text.Write(b)
}

func (w *typed) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func TestConsoleServesAStateFolder(t *testing.T) {
	path := owing(t)
	for state, want := range map[string]string{path: "owed", filepath.Join(t.TempDir(), "none.db"): "Nothing is connected yet"} {
		ctx, stop := context.WithCancel(t.Context())
		out := &typed{ready: make(chan struct{})}
		var errs bytes.Buffer
		code := make(chan int, 1)
		go func() {
			code <- run(ctx, []string{"console", "--state", state}, stdio{in: strings.NewReader(""), out: out, err: &errs})
		}()
		select {
		case <-out.ready:
		case got := <-code:
			t.Fatalf("exit %d: %s", got, &errs)
		}
		_, url, _ := strings.Cut(strings.TrimSpace(out.String()), " at ")
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK || !strings.Contains(strings.ToLower(string(body)), strings.ToLower(want)) {
			t.Errorf("%s: %d %s", state, answer.StatusCode, body)
		}
		request.Host = "moved.example"
		if answer, err = client.Do(request); err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("under another name: %d", answer.StatusCode)
		}
		stop()
		if got := <-code; got != exitOK {
			t.Errorf("exit %d: %s", got, &errs)
		}
	}
	if code, _, errs := headway(t, "console", "--listen", "0.0.0.0:0"); code != exitUsage || !strings.Contains(errs, "loopback") {
		t.Errorf("for other machines: exit %d %s", code, errs)
	}
}
