package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A load that is under way shows what bounds it; the last view of one that was
// killed is shown as such, and one that ended has its summary alone.
func TestBulkStatusShowsWhatBindsALoadUnderWay(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HEADWAY_BULK_DIR", "")
	var during, asJSON string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		look := time.NewTicker(10 * time.Millisecond)
		defer look.Stop()
		for !strings.Contains(during, "% latency") {
			select {
			case <-look.C:
			case <-t.Context().Done():
				return
			case <-r.Context().Done():
				return
			}
			_, during, _ = bulkOut(t, "status")
		}
		_, asJSON, _ = bulkOut(t, "status", "--json")
		_, _ = io.WriteString(w, "[{}]")
	}))
	t.Cleanup(s.Close)
	for name, text := range map[string]string{"rows.jsonl": "{}\n", "t.yaml": "target: t\nhttp: {url: \"" + s.URL + "\"}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := bulkOut(t, "run", "rows.jsonl", "-t", "t.yaml", "--quiet")
	if code != exitOK {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	if !strings.Contains(during, "running       yes") || !strings.Contains(during, "bound by") || !strings.Contains(during, "under way     1 batch") {
		t.Errorf("during the load:\n%s", during)
	}
	var shown []struct {
		Progress *struct {
			At       time.Time
			InFlight int            `json:"in_flight"`
			BoundBy  map[string]any `json:"bound_by"`
		}
	}
	if err := json.Unmarshal([]byte(asJSON), &shown); err != nil || len(shown) != 1 || shown[0].Progress == nil ||
		shown[0].Progress.InFlight != 1 || shown[0].Progress.BoundBy["latency"] == nil || shown[0].Progress.At.IsZero() {
		t.Errorf("during the load, %v: %s", err, asJSON)
	}

	folder := filepath.Join(".headway", "bulk", "rows.jsonl-to-t")
	if _, err := os.Stat(filepath.Join(folder, viewFile)); !os.IsNotExist(err) {
		t.Errorf("the view outlives its run: %v", err)
	}
	if _, after, _ := bulkOut(t, "status"); strings.Count(after, "bound by") != 1 || strings.Contains(after, "under way") {
		t.Errorf("after the load:\n%s", after)
	}

	// As a killed one leaves it.
	if err := os.Remove(filepath.Join(folder, outcomeFile)); err != nil {
		t.Fatal(err)
	}
	view := `{"at":"2026-01-02T03:04:05Z","in_flight":1,"bound_by":{"latency":{"ns":1000,"share":1}}}`
	if err := os.WriteFile(filepath.Join(folder, viewFile), []byte(view), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, killed, _ := bulkOut(t, "status"); !strings.Contains(killed, "100% latency, as of ") {
		t.Errorf("after a kill:\n%s", killed)
	}
	// What cannot be read is not shown.
	if err := os.WriteFile(filepath.Join(folder, viewFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text, _ := bulkOut(t, "status"); code != exitOK || strings.Contains(text, "bound by") {
		t.Errorf("exit %d with an empty view:\n%s", code, text)
	}
}
