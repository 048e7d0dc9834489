package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// twoLanes is a provider whose list has a past of four pages. It answers what
// was asked for.
func twoLanes(t *testing.T) (asked func() []string) {
	t.Helper()
	var (
		mu   sync.Mutex
		seen []string
	)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.URL.RawQuery)
		w.Header().Set("Date", "Fri, 02 Jan 2026 00:00:00 GMT")
		q := r.URL.Query()
		if q.Has("since") {
			_, _ = fmt.Fprint(w, `{"items": [{"id": "new", "at": "2026-01-01T00:00:00Z"}], "next": null}`)
			return
		}
		page := 1
		if c := q.Get("cursor"); c != "" {
			_, _ = fmt.Sscan(c, &page)
		}
		next := "null"
		if page < 4 {
			next = fmt.Sprintf(`"%d"`, page+1)
		}
		_, _ = fmt.Fprintf(w, `{"items": [{"id": "p%d", "at": "2025-01-0%dT00:00:00Z"}], "next": %s}`, page, page, next)
	}))
	t.Cleanup(s.Close)
	t.Chdir(t.TempDir())
	t.Setenv("HEADWAY_STATE", "")
	file := fmt.Sprintf(`
connection: lanes
provider: {base_url: %q, ceiling: 1ms, pacing: {initial: 1ms}}
streams:
  - name: docs
    list: {path: /docs}
    records: .items
    key: .id
    paginate: {cursor: .next, param: cursor}
    incremental: {cursor: .at, param: since}
run: {schedule: "@every 1h", catchup_schedule: "0 2 * * *"}
`, s.URL)
	if err := os.WriteFile("c.yaml", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		all := seen
		seen = nil
		return all
	}
}

func TestOneLaneLeavesTheOtherWhereItIs(t *testing.T) {
	asked := twoLanes(t)
	if code, out, _ := headway(t, "check", "c.yaml"); code != exitOK || !strings.Contains(out, "@every 1h; the past apart from it: 0 2 * * *") {
		t.Errorf("check: exit %d:\n%s", code, out)
	}
	if code, _, errs := headway(t, "collect", "c.yaml", "--lane", "past"); code != exitUsage || !strings.Contains(errs, `--lane is "past", must be steady or catchup`) {
		t.Errorf("an unknown lane: exit %d: %s", code, errs)
	}
	run := func(requests int, says []string, args ...string) {
		t.Helper()
		code, out, errs := headway(t, append([]string{"collect", "c.yaml"}, args...)...)
		if seen := asked(); code != exitOK || len(seen) != requests {
			t.Fatalf("%v: exit %d and requests %q, want %d: %s%s", args, code, seen, requests, errs, out)
		}
		for _, want := range says {
			if !strings.Contains(out, want) {
				t.Errorf("%v does not say %q:\n%s", args, want, out)
			}
		}
	}
	// The first page of the past says when now is; the rest of it waits.
	run(2, []string{"lane       what changes (steady) only", "more pages follow"}, "--lane", "steady")
	run(1, []string{"more pages follow"}, "--lane", "steady")
	if n := rows(t, "docs"); n != 2 {
		t.Errorf("%d records, want one of the past and one that changed", n)
	}
	run(3, []string{"lane       the past (catchup) only", "owed       nothing"}, "--lane", "catchup")
	run(0, nil, "--lane", "catchup")
	run(1, []string{"owed       nothing"}, "--lane", "steady")
	if n := rows(t, "docs"); n != 5 {
		t.Errorf("%d records, want all 5", n)
	}
	if _, out, _ := headway(t, "status"); !strings.Contains(out, "synced") {
		t.Errorf("status:\n%s", out)
	}
}
