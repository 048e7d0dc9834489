package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// A record that appears on the list with an older time than records before it is
// found by looking back, and what is found again there is not collected again.
func TestALookbackTakesLateRecordsOnce(t *testing.T) {
	for _, tt := range []struct {
		lookback string
		found    bool
		asked    string // since of the second run
	}{
		{"", false, "2024-05-02T12:00:00Z"},
		{", lookback: 30m", true, "2024-05-02T11:30:00Z"},
	} {
		t.Run(tt.lookback, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("HEADWAY_STATE", "")
			t.Setenv("HEADWAY_SERVER", "")
			times := map[string]string{"a": "2024-05-01T00:00:00Z", "b": "2024-05-02T11:45:00Z", "c": "2024-05-02T12:00:00Z"}
			asked, details := "", map[string]int{}
			var mu sync.Mutex // of the three above
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if id, ok := strings.CutPrefix(r.URL.Path, "/docs/"); ok {
					details[id]++
					_, _ = fmt.Fprintf(w, `{"messages": [{"id": "m", "at": %q}]}`, times[id])
					return
				}
				if since := r.URL.Query().Get("since"); since != "" {
					asked = since
				}
				items := []any{}
				for id, at := range times {
					if at > r.URL.Query().Get("since") {
						items = append(items, map[string]string{"id": id, "updated_at": at})
					}
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
			}))
			t.Cleanup(server.Close)
			file := "connection: late\nprovider: {base_url: " + server.URL + ", ceiling: 1ms, pacing: {initial: 1ms}}\n" +
				"streams:\n  - name: docs\n    list: {path: /docs}\n    records: .items\n    key: .id\n" +
				"    incremental: {cursor: .updated_at, param: since" + tt.lookback + "}\n" + detail
			if err := os.WriteFile("c.yaml", []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.found {
				checks(t, "looking back 30m")
			}
			collects(t, exitOK)
			seen := func() map[string]int {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(details)
			}
			if details := seen(); len(details) != 3 || rows(t, "docs") != 3 {
				t.Fatalf("%v details, %d docs; want three of each", details, rows(t, "docs"))
			}
			mu.Lock()
			times["late"] = "2024-05-02T11:50:00Z" // appears now
			mu.Unlock()
			for range 3 {
				collects(t, exitOK)
			}
			mu.Lock()
			if asked != tt.asked {
				t.Errorf("asked for changes since %s, want %s", asked, tt.asked)
			}
			mu.Unlock()
			want := map[string]int{"a": 1, "b": 1, "c": 1}
			if tt.found {
				want["late"] = 1
			}
			if details := seen(); fmt.Sprint(details) != fmt.Sprint(want) || rows(t, "docs") != len(want) || rows(t, "messages") != len(want) {
				t.Errorf("details asked for %v, %d docs, %d messages; want %v and one each", details, rows(t, "docs"), rows(t, "messages"), want)
			}
			// Changed within the lookback: once more, and then no more.
			mu.Lock()
			times["b"] = "2024-05-02T11:55:00Z"
			mu.Unlock()
			for range 2 {
				collects(t, exitOK)
			}
			if details := seen(); tt.found && (details["b"] != 2 || rows(t, "docs") != len(want)+1) {
				t.Errorf("b changed: asked for %d times in all, %d docs", details["b"], rows(t, "docs"))
			}
		})
	}
}

func TestALookbackNeedsTimes(t *testing.T) {
	s := newSite(t)
	s.write(t, "", "", streamYAML{more: "    incremental: {cursor: .slug, param: since, lookback: 1h}\n"})
	code, out, errs := headway(t, "collect", "c.yaml")
	if want := "no cursor on a page is a point in time"; code == exitOK || !strings.Contains(errs+out, want) {
		t.Errorf("exit %d, want an error that says %q:\n%s%s", code, want, errs, out)
	}
	if n := rows(t, "docs"); n != 0 {
		t.Errorf("%d records", n)
	}
}
