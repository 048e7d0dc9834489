package daemon_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// until waits for what only asking can tell.
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
