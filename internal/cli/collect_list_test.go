package cli

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
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
