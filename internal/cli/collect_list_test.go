package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headway-go/headway/collect"
)

// paged serves three pages of two records under /docs; before may answer first.
func paged(before func(w http.ResponseWriter, r *http.Request) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if before(w, r) {
			return
		}
		page, next := r.URL.Query().Get("c"), "null"
		if page == "" {
			page = "1"
		}
		if n := page[0]; n < '3' {
			next = fmt.Sprintf("%q", string(n+1))
		}
		_, _ = fmt.Fprintf(w, `{"items":[{"id":"%[1]s-a"},{"id":"%[1]s-b"}],"next":%[2]s}`, page, next)
	}
}

const cursorPaging = "paginate: {cursor: .next, param: c}"

func TestABadAnswerToAListIsAskedForAgain(t *testing.T) {
	for name, bad := range map[string]func(w http.ResponseWriter){
		"HTML":        func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>please wait</html>")) },
		"cut JSON":    func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"items":[{"id":`)) },
		"no records":  func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"error":"busy"}`)) },
		"nothing":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		"empty, 200":  func(http.ResponseWriter) {},
		"wrong first": func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) },
	} {
		t.Run(name, func(t *testing.T) {
			var left atomic.Int32
			at := "2"
			if name == "wrong first" {
				at = ""
			}
			a := connectTo(t, paged(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("c") != at || left.Add(-1) < 0 {
					return false
				}
				bad(w)
				return true
			}), cursorPaging, "")
			left.Store(1)
			if code, out, errs := a.collect(); code != exitOK || a.lines("docs") != 6 {
				t.Fatalf("exit %d with %d records of 6: %s%s", code, a.lines("docs"), out, errs)
			}
		})
	}
}

func TestAListThatStaysBadDefersTheRunAndSaysThatPagesFollow(t *testing.T) {
	var down atomic.Bool
	a := connectTo(t, paged(func(w http.ResponseWriter, r *http.Request) bool {
		if !down.Load() || r.URL.Query().Get("c") != "2" {
			return false
		}
		_, _ = w.Write([]byte("<html>please wait</html>"))
		return true
	}), cursorPaging, "")
	down.Store(true)
	code, out, errs := a.collect()
	if code != exitDeferred || !strings.Contains(out, "more pages follow") || !strings.Contains(out, "expected JSON") || a.lines("docs") != 2 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	down.Store(false)
	if code, out, errs := a.collect(); code != exitOK || a.lines("docs") != 6 {
		t.Fatalf("exit %d with %d records of 6: %s%s", code, a.lines("docs"), out, errs)
	}
}

func TestAFirstPageThatIsNoneIsTheConnectionsFault(t *testing.T) {
	a := connectTo(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>log in</html>")) }, cursorPaging, "")
	code, out, errs := a.collect()
	if code != exitRefused || !strings.Contains(out, "is base_url right?") {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
}

func TestADetailOfSeveralPagesIsFollowedToItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		paginate string
		page     func(r *http.Request, w http.ResponseWriter) // one page of at most two messages of five
	}{
		"cursor":   {"{cursor: .next, param: c}", detailBy("c", `,"next":"%d"`, "")},
		"next_url": {"{next_url: .next}", detailBy("c", `,"next":"/docs/%[2]s?c=%[1]d"`, "")},
		"link":     {"{link: true}", detailBy("c", "", "</docs/%[2]s?c=%[1]d>; rel=next")},
		"page":     {"{page: {param: p, start: 0}}", detailBy("p", "", "")},
		"offset":   {"{offset: {param: o, limit_param: n, limit: 2}}", detailBy("o", "", "")},
	} {
		t.Run(name, func(t *testing.T) {
			a := connectTo(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/docs" {
					_, _ = w.Write([]byte(`{"items":[{"id":"x"},{"id":".."}]}`))
					return
				}
				c.page(r, w)
			}, "detail: {stream: messages, path: '/docs/{key}', records: .messages, key: .id, paginate: "+c.paginate+"}", "")
			if code, out, errs := a.collect(); code != exitOK || a.lines("messages") != 10 {
				t.Fatalf("exit %d with %d records of 10: %s%s", code, a.lines("messages"), out, errs)
			}
		})
	}
}

// detailBy answers for five messages, two a page; the parameter counts pages, or
// messages when it is o.
func detailBy(param, next, link string) func(r *http.Request, w http.ResponseWriter) {
	return func(r *http.Request, w http.ResponseWriter) {
		n := 0
		_, _ = fmt.Sscan(r.URL.Query().Get(param), &n)
		from := n * 2
		if param == "o" {
			from = n
		}
		var messages []string
		for i := from; i < min(from+2, 5); i++ {
			messages = append(messages, fmt.Sprintf(`{"id":%d}`, i))
		}
		more := ""
		key := strings.TrimPrefix(r.URL.EscapedPath(), "/docs/")
		if from+2 < 5 && next != "" {
			more = strings.TrimSuffix(fmt.Sprintf(next+"%[2]s", n+1, key), key)
		}
		if from+2 < 5 && link != "" {
			w.Header().Set("Link", fmt.Sprintf(link, n+1, key))
		}
		_, _ = fmt.Fprintf(w, `{"messages":[%s]%s}`, strings.Join(messages, ","), more)
	}
}

func TestADetailThatRunsInACircleIsAGap(t *testing.T) {
	a := connectTo(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/docs" {
			_, _ = w.Write([]byte(`{"items":[{"id":"x"}]}`))
			return
		}
		_, _ = fmt.Fprintf(w, `{"messages":[],"next":%q}`, map[string]string{"": "b", "b": "c", "c": "b"}[r.URL.Query().Get("c")])
	}, "detail: {stream: messages, path: '/docs/{key}', records: .messages, key: .id, paginate: {cursor: .next, param: c}}", "")
	_, out, errs := a.collect()
	if gaps := a.gaps("all"); len(gaps) != 1 || gaps[0].Reason.String() != "cursor_repeats" {
		t.Fatalf("got %+v: %s%s", gaps, out, errs)
	}
}

func TestAQuotaDefersTheRun(t *testing.T) {
	for name, status := range map[string]int{"403": 403} {
		t.Run(name, func(t *testing.T) {
			a := connectTo(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = w.Write([]byte(`{"error":"daily_limit"}`))
			}, cursorPaging, fmt.Sprintf("errors: [{status: %d, body: '.error == \"daily_limit\"', as: quota}]", status))
			code, out, errs := a.collect()
			if code != exitDeferred || !strings.Contains(out, "quota_exhausted") {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
			if code, out, errs := headway(t, "check", "--probe", a.dir+"/acme.yaml"); code != exitDeferred {
				t.Errorf("probe: exit %d: %s%s", code, out, errs)
			}
		})
	}
}

func TestACursorThatEchoesTheCredentialIsRefused(t *testing.T) {
	t.Setenv("ACME_TOKEN", "hunter2-hunter2")
	a := connectTo(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"items":[{"id":1}],"next":"c-%s"}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}, cursorPaging, "")
	a.auth = "auth: {bearer: '${ACME_TOKEN}'}"
	a.write(cursorPaging, "")
	code, out, errs := a.collect()
	if code != exitRefused || !strings.Contains(out, "cursor holds the credential") || strings.Contains(out+errs, "hunter2") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

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

func TestCollectsTheNamedStreamsOnly(t *testing.T) {
	s := newSite(t)
	users := streamYAML{name: "users", path: "/v2/docs"}
	s.write(t, "", "", streamYAML{more: detail}, users)
	for _, tt := range []struct{ name, says string }{
		{"nobody", `no stream "nobody" in this connection, which has docs, users`},
		{"messages", `stream "messages" is collected with docs`},
		{"", `no stream ""`},
	} {
		code, out, errs := headway(t, "collect", "c.yaml", "--stream", "users", "--stream", tt.name)
		if code != exitUsage || !strings.Contains(errs, tt.says) || out != "" {
			t.Errorf("--stream %q: exit %d, want %d and %q: %s%s", tt.name, code, exitUsage, tt.says, errs, out)
		}
	}
	if code, _, errs := headway(t, "collect", "c.yaml", "--stream", "docs", "--fresh"); code != exitUsage || !strings.Contains(errs, "--fresh does not go with --stream") {
		t.Errorf("with --fresh: exit %d: %s", code, errs)
	}
	if n := s.asked(""); n != 0 {
		t.Fatalf("%d requests were sent for command lines that are wrong", n)
	}

	code, out, errs := headway(t, "collect", "c.yaml", "--stream", "users")
	if code != exitOK || !strings.Contains(out, "nothing is left to do for what was asked for") || !strings.Contains(out, `users only; "headway status" shows the rest`) {
		t.Fatalf("exit %d: %s%s", code, errs, out)
	}
	if rows(t, "users") != siteDocs || rows(t, "docs")+rows(t, "messages") != 0 || s.asked("/docs") != 0 {
		t.Error("other streams were collected as well")
	}

	// Details that are owed are those of other runs.
	s.fail = true
	collects(t, exitDeferred)
	s.fail = false
	if code, _, errs := headway(t, "gaps", "retry", "--connection", "site"); code != exitOK {
		t.Fatalf("gaps retry: exit %d: %s", code, errs)
	}
	s.asked("")
	if code, out, errs = headway(t, "collect", "c.yaml", "--stream", "users", "--json"); code != exitOK {
		t.Fatalf("exit %d: %s%s", code, errs, out)
	}
	var last struct{ Summary collect.Summary }
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if sum := last.Summary; !slices.Equal(sum.Streams, []string{"users"}) || len(sum.Owed) != 0 || sum.State != collect.RunDrained {
		t.Errorf("the summary is %+v", sum)
	}
	if n := s.asked("/docs"); n != 0 {
		t.Errorf("%d requests for the other stream", n)
	}
	if code, out, errs = headway(t, "collect", "c.yaml", "--stream", "docs", "--stream", "users"); code != exitOK || rows(t, "messages") != siteDocs {
		t.Errorf("both: exit %d, %d messages: %s%s", code, rows(t, "messages"), errs, out)
	}
}

func TestCompletesTheNamesOfStreams(t *testing.T) {
	s := newSite(t)
	s.write(t, "", "", streamYAML{more: detail}, streamYAML{name: "users"})
	code, out, errs := headway(t, "__complete", "collect", "c.yaml", "--stream", "")
	if code != exitOK || !strings.HasPrefix(out, "docs\nusers\n") {
		t.Errorf("exit %d, completions %q: %s", code, out, errs)
	}
}
