package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headway-go/headway/collect"
)

// account is a connection to a server of a test's own, with its state and sink.
type account struct {
	t   *testing.T
	dir string
	url string
	// auth is a further field of the provider.
	auth string
}

// connectTo writes a connection file with one stream docs; stream is the rest of
// its fields, more is what follows the streams.
func connectTo(t *testing.T, h http.HandlerFunc, stream, more string) account {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	a := account{t: t, dir: t.TempDir(), url: s.URL}
	a.write(stream, more)
	return a
}

func (a account) write(stream, more string) {
	a.t.Helper()
	file := fmt.Sprintf(`connection: acme
provider: {base_url: %q, ceiling: 1ms, pacing: {initial: 1ms, jitter: 0s}, retry: {base: 1ms, cap: 2ms, attempts: 3}, %s}
streams:
  - {name: docs, list: {path: /docs}, records: .items, key: .id, %s}
%s
sink: {jsonl: {dir: %q}}
`, a.url, a.auth, stream, more, filepath.Join(a.dir, "out"))
	if err := os.WriteFile(filepath.Join(a.dir, "acme.yaml"), []byte(file), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a account) collect(args ...string) (code int, out, errs string) {
	a.t.Helper()
	return headway(a.t, append([]string{"collect", filepath.Join(a.dir, "acme.yaml"), "--quiet", "--state", filepath.Join(a.dir, "state.db")}, args...)...)
}

// lines counts a stream's records.
func (a account) lines(stream string) int {
	a.t.Helper()
	b, err := os.ReadFile(filepath.Join(a.dir, "out", stream+".jsonl"))
	if err != nil && !os.IsNotExist(err) {
		a.t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

func (a account) gaps(status string) []collect.Gap {
	a.t.Helper()
	code, out, errs := headway(a.t, "gaps", "list", "--status", status, "--json", "--state", filepath.Join(a.dir, "state.db"))
	var gaps []collect.Gap
	if err := json.Unmarshal([]byte(out), &gaps); code != 0 || err != nil {
		a.t.Fatalf("exit %d, %v: %s", code, err, errs)
	}
	return gaps
}

// twelve is a list of twelve on one page, whose record at the place given is as written.
func twelve(at int, record string) string {
	var items []string
	for i := 1; i <= 12; i++ {
		if i == at {
			items = append(items, record)
			continue
		}
		items = append(items, fmt.Sprintf(`{"id":"d%02d","at":"2024-01-%02dT00:00:00Z"}`, i, i))
	}
	return `{"items":[` + strings.Join(items, ",") + `]}`
}

func TestOneBadRecordOfTwelveIsQuarantinedAndTheRestArrives(t *testing.T) {
	for name, c := range map[string]struct{ record, stream, problem string }{
		"no key":               {`{"id":null,"name":"hunter2"}`, "", "page 1, record 7: key expression .id gave null, want a text or a whole number"},
		"a repeated key":       {`{"id":"d02","name":"hunter2"}`, "", "page 1, record 7: key expression .id is not unique: it gave the key of record 2 of the same page, which differs"},
		"a key that is long":   {`{"id":"` + strings.Repeat("x", 1025) + `"}`, "", "page 1, record 7: key expression .id gave a text of 1025 bytes, at most 1024 are a key"},
		"a record of no table": {`"hunter2"`, "", "page 1, record 7: key expression .id failed: expected an object but got: string"},
		"a bad watermark":      {`{"id":"d07","at":{"hunter2":1}}`, "incremental: {cursor: .at, param: since}", "page 1, record 7: incremental expression .at gave an object, want a text, a number or null"},
	} {
		t.Run(name, func(t *testing.T) {
			body := twelve(7, c.record)
			a := connectTo(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }, c.stream, "")
			for range 3 { // the gap stays one
				if code, out, errs := a.collect(); !strings.Contains(out, "acme: incomplete") {
					t.Fatalf("exit %d: %s%s", code, out, errs)
				}
				gaps := a.gaps("terminal")
				if len(gaps) != 1 || gaps[0].LastError != c.problem || gaps[0].Stream != "docs" || strings.Contains(gaps[0].Key, "hunter2") {
					t.Fatalf("got %+v; want one gap with %s", gaps, c.problem)
				}
			}
			if n := a.lines("docs"); n != 11 {
				t.Errorf("%d records arrived, want 11", n)
			}
			// Released it is quarantined again, and not owed for ever.
			if code, _, errs := headway(t, "gaps", "release", "--all", "--state", filepath.Join(a.dir, "state.db")); code != 0 {
				t.Fatal(errs)
			}
			if _, out, _ := a.collect(); !strings.Contains(out, "acme: incomplete") || len(a.gaps("terminal")) != 1 {
				t.Errorf("after its release: %s", out)
			}
			if c.stream == "" { // a walk over the whole list sees that the record is well now
				body = twelve(0, "")
				if _, out, _ := a.collect(); len(a.gaps("terminal")) != 0 || a.lines("docs") != 12 {
					t.Errorf("mended: %d gaps, %d records, %s", len(a.gaps("terminal")), a.lines("docs"), out)
				}
			}
		})
	}
}

func TestBadRecordsFailByChoiceAndWhereThereAreNoOthers(t *testing.T) {
	for name, c := range map[string]struct{ body, stream, want string }{
		"by choice":           {twelve(7, `{"id":null}`), "bad_records: fail", "key expression .id gave null, want a text or a whole number, for record 7 of 12"},
		"all of a first page": {`{"items":[{"uid":1},{"uid":2}]}`, "", "key expression .id gave null, want a text or a whole number, for record 1 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			a := connectTo(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.body)) }, c.stream, "")
			code, out, errs := a.collect()
			if code != exitRefused || !strings.Contains(out+errs, c.want) || len(a.gaps("all")) != 0 {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
		})
	}
}

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

func TestARevokedKeyOfThreeIsSetAside(t *testing.T) {
	secrets := map[string]string{"KEY_ONE": "sesame-one-1", "KEY_TWO": "sesame-two-2", "KEY_THREE": "sesame-three-3"}
	for name, secret := range secrets {
		t.Setenv(name, secret)
	}
	var mu sync.Mutex
	asked, by := 0, map[string]map[string]bool{}
	a := connectTo(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		secret := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if secret == secrets["KEY_TWO"] && asked > 12 || secret == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if id, ok := strings.CutPrefix(r.URL.Path, "/docs/"); ok {
			fmt.Fprintf(w, `{"items":[{"id":%q}]}`, id)
			return
		}
		page := r.URL.Query().Get("cursor")
		if by["list"] == nil {
			by["list"] = map[string]bool{}
		}
		by["list"][secret] = true
		next := map[string]string{"": "2", "2": "3", "3": "4", "4": ""}[page]
		var items []string
		for i := range 10 {
			items = append(items, fmt.Sprintf(`{"id":"%s-%d"}`, page, i))
		}
		fmt.Fprintf(w, `{"items":[%s],"next":%q}`, strings.Join(items, ","), next)
	}, "", "")
	a.auth = `keys: [{name: first, bearer: "${KEY_ONE}"}, {bearer: "${KEY_TWO}"}, {name: third, bearer: "${KEY_THREE}"}], sticky: true`
	a.write(`paginate: {cursor: .next, param: cursor}, detail: {stream: texts, path: "/docs/{key}", records: .items, key: .id}`, "")
	code, out, errs := a.collect("--json")
	if code != 0 || a.lines("docs") != 40 || a.lines("texts") != 40 {
		t.Errorf("exit code %d, %d docs, %d texts: %s\n%s", code, a.lines("docs"), a.lines("texts"), errs, out)
	}
	if !strings.Contains(out, `"note":"key_set_aside"`) || !strings.Contains(out, `"stream":"2"`) {
		t.Errorf("no event of the key:\n%s", out)
	}
	_, status, _ := headway(t, "status", "--state", filepath.Join(a.dir, "state.db"))
	if !strings.Contains(status, "key 2 was refused with status 401") {
		t.Errorf("the status does not say so:\n%s", status)
	}
	_, checked, complaints := headway(t, "check", filepath.Join(a.dir, "acme.yaml"))
	if !strings.Contains(checked+complaints, "list only keys that their owner may use together") {
		t.Errorf("the check does not say so:\n%s%s", checked, complaints)
	}
	for _, secret := range secrets {
		if strings.Contains(out+errs+status+checked+complaints, secret) {
			t.Errorf("a secret is in the output")
		}
	}
	if len(by["list"]) > 2 { // the list's key, and the one after it if that was revoked
		t.Errorf("the list was asked for by %d keys", len(by["list"]))
	}
	a.auth = `auth: {bearer: "${KEY_ONE}"}, keys: [{bearer: "${KEY_ONE}"}, {name: "1", bearer: "${KEY_ONE}"}, {name: x}]`
	a.write("", "")
	_, checked, complaints = headway(t, "check", filepath.Join(a.dir, "acme.yaml"))
	for _, want := range []string{"exactly one of bearer, header and query"} {
		if !strings.Contains(checked+complaints, want) {
			t.Errorf("no %q in\n%s%s", want, checked, complaints)
		}
	}
}

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

// figures are numbers in what a command says, and uneven those of its lines that differ from
// run to run.
var (
	figures = regexp.MustCompile(`([0-9][0-9,.]*(ms|s|m)?)+`)
	uneven  = regexp.MustCompile(`(?m)^  (bound by|run |rate|attempts) .*$`)
)

// TestTheGuideToCollectingRunsAsItStands runs the commands of "Your API in ten minutes" in
// their order, and compares what they say with what the guide shows, but for figures. The
// curl of the guide is a request, and what it answers is compared too.
func TestTheGuideToCollectingRunsAsItStands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "collect.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	t.Setenv("CHAT_TOKEN", "secret")
	var provider *served
	var said string
	commands := 0
	for _, block := range regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		switch kind, code := block[1], block[2]; kind {
		case "yaml":
			code = strings.ReplaceAll(code, "http://127.0.0.1:8080", provider.url)
			if err := os.WriteFile("chats.yaml", []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			// The guide's example of a mistake.
			if err := os.WriteFile("wrong.yaml", []byte(strings.Replace(code, "key: .id", "key: .uid", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			for line := range strings.Lines(code) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
				args := strings.Fields(line)
				switch {
				case strings.HasPrefix(line, "headway provider serve "):
					args = strings.Fields(strings.NewReplacer("--conversations 210", "--conversations 110", "127.0.0.1:8080", "127.0.0.1:0").Replace(line))
					provider = provide(t, args[3:]...)
				case strings.HasPrefix(line, "curl "):
					_, query, _ := strings.Cut(strings.Trim(args[len(args)-1], `"`), ":8080")
					_, said = provider.get(t, query, "secret")
				case len(args) > 0 && args[0] == "headway":
					commands++
					for i := range args { // as a shell does
						args[i] = strings.ReplaceAll(strings.Trim(args[i], `"`), "http://127.0.0.1:8080", provider.url)
					}
					code, out, errs := headway(t, args[1:]...)
					if said = out + errs; code != exitOK {
						t.Fatalf("%s: exit %d\n%s", line, code, said)
					}
				}
			}
		case "text":
			if strings.HasPrefix(code, "headway: ") {
				code, out, errs := headway(t, "check", "wrong.yaml", "--probe")
				if code != exitRefused {
					t.Errorf("a wrong key: exit %d", code)
				}
				said = out + errs
			}
			same := func(text string) string { return figures.ReplaceAllString(uneven.ReplaceAllString(text, ""), "#") }
			for line := range strings.Lines(same(code)) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), "…")
				if line = strings.TrimSuffix(line, `{"id":"c#",`); strings.HasPrefix(line, `"}`) {
					continue
				}
				if !strings.Contains(same(said), strings.TrimSpace(line)) {
					t.Errorf("the guide shows %q, of which it says:\n%s", line, said)
				}
			}
		}
	}
	if commands < 5 || provider == nil {
		t.Errorf("%d commands were run", commands)
	}
}

// TestInitWritesAFileThatCollects: of a list that is paged in one way or another, the file has
// all records collected.
func TestInitWritesAFileThatCollects(t *testing.T) {
	const total, size = 7, 3
	record := func(i int) string {
		return fmt.Sprintf(`{"id": %d, "group": "a", "updated_at": "2026-01-01T00:00:0%dZ"}`, i, i)
	}
	// serve answers with the records from a number on, in a form.
	serve := func(form func(w http.ResponseWriter, r *http.Request, records string, next int)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			from, _ := strconv.Atoi(cmp.Or(q.Get("cursor"), q.Get("pageToken"), q.Get("offset"), q.Get("from")))
			if n, err := strconv.Atoi(q.Get("page")); err == nil {
				from = (n - 1) * size
			}
			var some []string
			for i := from; i < min(from+size, total); i++ {
				some = append(some, record(i))
			}
			next := from + size
			if next >= total {
				next = 0
			}
			form(w, r, "["+strings.Join(some, ",")+"]", next)
		}
	}
	for name, tt := range map[string]struct {
		query string
		form  func(w http.ResponseWriter, r *http.Request, records string, next int)
		want  string // in the file
	}{
		"cursor": {"?limit=3", func(w http.ResponseWriter, _ *http.Request, records string, next int) {
			_, _ = fmt.Fprintf(w, `{"items": %s, "next_cursor": %q}`, records, strings.TrimPrefix(strconv.Itoa(next), "0"))
		}, "paginate: {cursor: .next_cursor, param: cursor}"},
		"camel case in an object": {"", func(w http.ResponseWriter, _ *http.Request, records string, next int) {
			_, _ = fmt.Fprintf(w, `{"data-set": {"all": %s}, "meta": {"nextPageToken": %q}}`, records, strings.TrimPrefix(strconv.Itoa(next), "0"))
		}, "paginate: {cursor: .meta.nextPageToken, param: pageToken}"},
		"URL": {"", func(w http.ResponseWriter, r *http.Request, records string, next int) {
			at := ""
			if next > 0 {
				at = fmt.Sprintf("http://%s/v1/things?from=%d", r.Host, next)
			}
			_, _ = fmt.Fprintf(w, `{"results": %s, "next": %q, "previous": "http://x"}`, records, at)
		}, "paginate: {next_url: .next}"},
		"Link": {"", func(w http.ResponseWriter, r *http.Request, records string, next int) {
			if next > 0 {
				w.Header().Set("Link", fmt.Sprintf(`<http://%s/v1/things?from=%d>; rel="next"`, r.Host, next))
			}
			_, _ = io.WriteString(w, records)
		}, "paginate: {link: true}"},
		"page": {"?page=1&sort=id", func(w http.ResponseWriter, _ *http.Request, records string, _ int) {
			_, _ = io.WriteString(w, records)
		}, "paginate: {page: {param: page, start: 1}}"},
		"offset": {"?limit=3&offset=0", func(w http.ResponseWriter, _ *http.Request, records string, _ int) {
			_, _ = io.WriteString(w, records)
		}, "paginate: {offset: {param: offset, limit_param: limit, limit: 3}}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("THINGS_TOKEN", "canary-token")
			answer := serve(tt.form)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer canary-token" || r.URL.Path != "/v1/things" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				answer(w, r)
			}))
			defer server.Close()
			code, out, errs := headway(t, "init", server.URL+"/v1/things"+tt.query, "--bearer", "THINGS_TOKEN", "--name", "things")
			file, _ := os.ReadFile("things.yaml")
			if code != exitOK || !strings.Contains(string(file), tt.want) || strings.Contains(out+errs+string(file), "canary") || strings.Contains(out, "warning") {
				t.Fatalf("exit %d, %s%s\n%s", code, out, errs, file)
			}
			quick := strings.Replace(string(file), "provider:\n", "provider:\n  ceiling: 1ms\n  pacing: {initial: 1ms}\n", 1)
			if err := os.WriteFile("things.yaml", []byte(quick), 0o600); err != nil {
				t.Fatal(err)
			}
			if code, out, errs := headway(t, "collect", "things.yaml"); code != exitOK || !strings.Contains(out, fmt.Sprintf("%d records", total)) {
				t.Errorf("exit %d, %s%s\n%s", code, out, errs, file)
			}
			if code, _, errs := headway(t, "init", server.URL+"/v1/things", "--bearer", "THINGS_TOKEN", "--name", "things"); code != exitUsage || !strings.Contains(errs, "is there already") {
				t.Errorf("over a file that is there: exit %d, %s", code, errs)
			}
		})
	}
}

// TestInitSaysWhatItCannotTell: no file is written where the answer is of no use, and a guess that
// is wrong is said to be.
func TestInitSaysWhatItCannotTell(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		answer string
		status int
		args   []string
		code   int
		want   string
	}{
		{"<html>", 200, nil, exitRefused, "is not JSON"},
		{`{"a": 1}`, 200, nil, exitRefused, "no list of objects"},
		{`[]`, 200, nil, exitRefused, "no list of objects"},
		{`[{"a": 1}, {"a": 1}]`, 200, nil, exitRefused, "no field identifies each of the 2 records"},
		{`[{"id": 1.5}, {"id": 2}]`, 200, nil, exitRefused, "no field identifies"},
		{"", 401, nil, exitRefused, "--bearer VARIABLE"},
		{"", 302, nil, exitRefused, "to another address"},
		{"", 500, nil, exitRefused, "500"},
		{"[]", 200, []string{"--bearer", "NO_SUCH_VARIABLE"}, exitUsage, "NO_SUCH_VARIABLE is not set"},
		{"[]", 200, []string{"--header", "X-Key"}, exitUsage, "NAME=VARIABLE"},
		{"[]", 200, []string{"--name", "a b"}, exitUsage, "--name"},
		{`{"items": [{"id": "x\"\n: #"}], "nextMark": "c"}`, 200, []string{"--name", "odd"}, exitOK, "the same page came again: correct its name"},
		{`{"a: {b}": [{"user id": 5}]}`, 200, []string{"--name", "names"}, exitOK, `.["a: {b}"]`},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.answer)
		}))
		code, out, errs := headway(t, append([]string{"init", server.URL + "/things"}, tt.args...)...)
		if code != tt.code || !strings.Contains(out+errs, tt.want) {
			t.Errorf("%s: exit %d, %s%s, want %d and %s", tt.answer, code, out, errs, tt.code, tt.want)
		}
		files, _ := filepath.Glob("*.yaml")
		if (len(files) > 0) != (code == exitOK) {
			t.Errorf("%s: it wrote %v", tt.answer, files)
		}
		for _, f := range files {
			_ = os.Remove(f)
		}
		server.Close()
	}
	for _, at := range []string{"things", "ftp://host/x", "https://user:word@host/x", "https://host/x#y", "\u202e"} {
		if code, _, errs := headway(t, "init", at); code != exitUsage || strings.Contains(errs, "\u202e") {
			t.Errorf("%s: exit %d, %s", at, code, errs)
		}
	}
	if code, _, errs := headway(t, "init", "http://127.0.0.1:1/x"); code != exitDeferred {
		t.Errorf("nobody there: exit %d, %s", code, errs)
	}
}
