package rest

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// numbered writes records from..to-1 of a list of total, with more fields.
func numbered(w http.ResponseWriter, from, to, total int, more string) {
	var items []string
	for i := from; i < min(to, total); i++ {
		items = append(items, fmt.Sprintf(`{"id":%d}`, i))
	}
	fmt.Fprintf(w, `{"items":[%s]%s}`, strings.Join(items, ","), more)
}

func number(r *http.Request, name string, unset int) int {
	if s := r.URL.Query().Get(name); s != "" {
		v, err := strconv.Atoi(s)
		if err != nil {
			return -1
		}
		return v
	}
	return unset
}

func TestEachKindOfPagingWalksToTheEnd(t *testing.T) {
	type seen = func(w http.ResponseWriter, r *http.Request, base string)
	for name, c := range map[string]struct {
		paginate string
		serve    seen
		want     string
	}{
		"none": {"", func(w http.ResponseWriter, _ *http.Request, _ string) { numbered(w, 0, 2, 5, "") }, "0 1"},
		"cursor": {"paginate: {cursor: .next, param: after}", func(w http.ResponseWriter, r *http.Request, _ string) {
			next, more := map[string]string{"": "a&b=c", "a&b=c": "é", "é": ""}, map[string]int{"": 0, "a&b=c": 2, "é": 4}
			at := r.URL.Query().Get("after")
			numbered(w, more[at], more[at]+2, 5, fmt.Sprintf(`,"next":%q`, next[at]))
		}, "0 1|2 3|4"},
		"cursor that is a number, then null": {"paginate: {cursor: .next, param: after}", func(w http.ResponseWriter, r *http.Request, _ string) {
			at, next := number(r, "after", 0), "9007199254740993"
			if at != 0 {
				next = "null"
			}
			numbered(w, at, at+2, 2, `,"next":`+next)
		}, "0 1|"},
		"cursor by jq": {"paginate: {cursor: 'if .more then .items[-1].id else null end', param: after}", func(w http.ResponseWriter, r *http.Request, _ string) {
			at := number(r, "after", -1) + 1
			numbered(w, at, at+2, 5, fmt.Sprintf(`,"more":%t`, at+2 < 5))
		}, "0 1|2 3|4"},
		"link": {"paginate: {link: true}", func(w http.ResponseWriter, r *http.Request, base string) {
			at := number(r, "at", 0)
			w.Header().Add("Link", `<`+base+`/a?at=0>; rel="first"`)
			if at+2 < 5 {
				w.Header().Add("Link", fmt.Sprintf(`<%s/a?at=9>; rel=last, <%s/a?at=%d&x=%%2f>; title="a, b; rel=\"no\""; rel="foo NEXT"`, base, base, at+2))
			}
			numbered(w, at, at+2, 5, "")
		}, "0 1|2 3|4"},
		"next URL, relative and absolute": {"paginate: {next_url: .links.next}", func(w http.ResponseWriter, r *http.Request, base string) {
			switch at := number(r, "at", 0); at {
			case 0:
				numbered(w, 0, 2, 5, `,"links":{"next":"?at=2"}`)
			case 2:
				numbered(w, 2, 4, 5, `,"links":{"next":"`+base+`/a?at=4"}`)
			default:
				numbered(w, 4, 6, 5, `,"links":{}`)
			}
		}, "0 1|2 3|4"},
		"page": {"paginate: {page: {param: page, size_param: n, size: 2}}", func(w http.ResponseWriter, r *http.Request, _ string) {
			at := (number(r, "page", 0) - 1) * number(r, "n", 0)
			numbered(w, at, at+2, 5, "")
		}, "0 1|2 3|4|"},
		"page from zero": {"paginate: {page: {param: page, start: 0}}", func(w http.ResponseWriter, r *http.Request, _ string) {
			at := number(r, "page", -1) * 3
			numbered(w, at, at+3, 3, "")
		}, "0 1 2|"},
		"offset, of a provider that gives less than asked for": {"paginate: {offset: {param: skip, limit_param: take, limit: 100}}", func(w http.ResponseWriter, r *http.Request, _ string) {
			if number(r, "take", 0) != 100 {
				t.Error("no limit was sent")
			}
			at := number(r, "skip", -1)
			numbered(w, at, at+3, 7, "")
		}, "0 1 2|3 4 5|6|"},
	} {
		t.Run(name, func(t *testing.T) {
			base := ""
			s, call := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/a" {
					t.Errorf("asked for %s", r.URL)
				}
				c.serve(w, r, base)
			})
			base = s.URL + "/v1"
			got, err := walkAll(t, connect(t, base, "records: .items, key: .id, "+c.paginate), call, "")
			if err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestAListThatDoesNotMoveIsAnError(t *testing.T) {
	for _, paginate := range []string{"page: {param: pgae}", "offset: {param: skip, limit_param: take, limit: 2}"} {
		s, call := serve(t, func(w http.ResponseWriter, _ *http.Request) { numbered(w, 0, 2, 5, "") })
		got, err := walkAll(t, connect(t, s.URL, "records: .items, key: .id, paginate: {"+paginate+"}"), call, "")
		f, ok := errors.AsType[*connector.Failure](err)
		if !ok || f.Reason != reason.CursorRepeats || got != "0 1" {
			t.Errorf("%s: got %q, %v; want cursor_repeats after one page", paginate, got, err)
		}
	}
}

func TestIncrementalSendsSinceOnLaterWalksOnly(t *testing.T) {
	var queries []string
	s, call := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.RawQuery)
		fmt.Fprint(w, `{"items":[{"id":"x","at":"2024-05-01T00:00:00+00:00"},{"id":"y","at":1714521600123456789},{"id":"z","at":null}],"next":"n"}`)
	})
	c := connect(t, s.URL, "records: .items, key: .id, paginate: {cursor: .next, param: cursor}, incremental: {cursor: .at, param: updated_after}")
	for _, ask := range []connector.ListRequest{{Stream: "a"}, {Stream: "a", Since: "2024-05-01T00:00:00+00:00"}, {Stream: "a", Since: "5", Cursor: "n"}} {
		page, err := c.List(t.Context(), call, ask)
		if err != nil {
			t.Fatal(err)
		}
		if got := []string{page.Items[0].Watermark, page.Items[1].Watermark, page.Items[2].Watermark}; strings.Join(got, ",") != "2024-05-01T00:00:00+00:00,1714521600123456789," {
			t.Errorf("watermarks are %q", got)
		}
	}
	want := []string{"", "updated_after=2024-05-01T00%3A00%3A00%2B00%3A00", "cursor=n&updated_after=5"}
	if strings.Join(queries, " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", queries, want)
	}
}

func TestNextPagesElsewhereAreRefused(t *testing.T) {
	const base = "https://api.example.com/v1"
	for next, want := range map[string]string{
		"https://api.example.com/v2/x?b=2&a=1": "/v2/x?b=2&a=1",
		"http://API.example.com/v1/a?p=2":      "/v1/a?p=2",
		"https://api.example.com:443/v1/a?p=2": "/v1/a?p=2",
		"/v1/a?p=%2F#frag":                     "/v1/a?p=%2F",
		"?p=2":                                 "/v1/a?p=2",
		"b/c":                                  "/v1/b/c",
		"//api.example.com":                    "/",
		"?p=2&key=hunter2&KEY=hunter2&k%65y=hunter2&keyring=1": "/v1/a?p=2&keyring=1",
		"https://evil.example.com/v1/a":                        "another host",
		"https://api.example.com.evil.com/":                    "another host",
		"https://api.example.com:8443/v1/a":                    "another host",
		"https://me:pw@api.example.com/v1/a":                   "another host",
		"https://api.example.com@evil.com/":                    "another host",
		"//evil.com/a":                                         "another host",
		`/\evil.com/a`:                                         `/%5Cevil.com/a`,
		"ftp://api.example.com/":                               "cannot be read",
		"javascript:alert(1)":                                  "cannot be read",
		"https://[::1":                                         "cannot be read",
		"?p=" + strings.Repeat("x", maxCursor):                 "cannot be read",
	} {
		c := connectWith(t, "provider: {base_url: "+base+", auth: {query: {name: key, value: \"${TOKEN}\"}}}", "records: .items, key: .id, paginate: {link: true}")
		call := answering(`{"items":[]}`)
		call.Header = http.Header{"Link": {"<" + next + `>; rel="next"`}}
		page, err := list(t, c, call)
		if strings.HasPrefix(want, "/") {
			if err != nil || page.Next != want {
				t.Errorf("%s gave %q, %v; want %q", next, page.Next, err, want)
				continue
			}
			if _, err := c.List(t.Context(), call, connector.ListRequest{Stream: "a", Cursor: page.Next}); err != nil {
				t.Fatal(err)
			}
			if got := call.sent.URL; got.Host != "api.example.com" || got.Scheme != "https" || got.Query().Get("key") != canary || strings.Count(got.RawQuery, canary) != 1 {
				t.Errorf("%s was followed to %s://%s?%s", next, got.Scheme, got.Host, got.RawQuery)
			}
			continue
		}
		f, ok := errors.AsType[*connector.Failure](err)
		if !ok || f.Reason != reason.InvalidResponse || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "evil") {
			t.Errorf("%s gave %q, %v; want an error with %q", next, page.Next, err, want)
		}
	}
}

func TestAStoredCursorNeverNamesAHost(t *testing.T) {
	c := connect(t, "https://api.example.com/v1", "records: .items, key: .id, paginate: {next_url: .next}")
	for _, cursor := range []string{"https://evil.com/a", "evil", "@evil.com/", ":8080/", "/%zz", "/a#b"} {
		call := answering(`{"items":[]}`)
		if _, err := c.List(t.Context(), call, connector.ListRequest{Stream: "a", Cursor: cursor}); err == nil || call.sent != nil {
			t.Errorf("cursor %q was followed", cursor)
		}
	}
	call := answering(`{"items":[]}`)
	if _, err := c.List(t.Context(), call, connector.ListRequest{Stream: "a", Cursor: "//evil.com/a"}); err != nil || call.sent.URL.Host != "api.example.com" {
		t.Errorf("cursor //evil.com/a led to %v, %v", call.sent, err)
	}
}

func TestACursorOfAnotherKindIsAnError(t *testing.T) {
	for _, paginate := range []string{"", ", paginate: {page: {param: p}}", ", paginate: {offset: {param: o, limit_param: l, limit: 5}}", ", paginate: {link: true}"} {
		c := connect(t, "https://h", "records: .items, key: .id"+paginate)
		_, err := c.List(t.Context(), answering(`{"items":[]}`), connector.ListRequest{Stream: "a", Cursor: "opaque"})
		if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Attempts != 0 {
			t.Errorf("%s: got %v", paginate, err)
		}
	}
}

func TestPagingExpressionsThatGiveNoCursorAreErrors(t *testing.T) {
	for body, want := range map[string]string{
		`{"items":[],"next":{"a":1}}`:                                    "paging expression .next gave an object, want a text or null",
		`{"items":[],"next":true}`:                                       "paging expression .next gave a boolean",
		`{"items":[],"next":"` + strings.Repeat("x", maxCursor+1) + `"}`: "gave a text of 16385 bytes, at most 16384 are a cursor",
	} {
		c := connect(t, "https://h", "records: .items, key: .id, paginate: {cursor: .next, param: p}")
		if _, err := list(t, c, answering(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestLinkHeaders(t *testing.T) {
	for header, want := range map[string]string{
		``:                                    "",
		`<u>; rel=next`:                       "u",
		`<u>;rel="next"`:                      "u",
		`<u> ; REL = "prev next"`:             "u",
		`<a>; rel=prev, <b>; rel=next`:        "b",
		`<a,b;c>; rel=next`:                   "a,b;c",
		`<u>; crossorigin; rel=next`:          "u",
		`<u>; rel=prev; rel=next`:             "",
		`<u>; rel="nextish"`:                  "",
		`<u>; title="<x>; rel=next"`:          "",
		`,, <u>; rel=next ,`:                  "u",
		`<>; rel=next`:                        "",
		`<u>; title="open; rel=next`:          "error",
		`<u>; title="end\`:                    "error",
		`u; rel=next`:                         "error",
		`<u`:                                  "error",
		`<u> rel=next`:                        "error",
		`>; rel=next`:                         "error",
		`<u>; rel=next` + "\x00" + `, <v>; x`: "",
	} {
		got, err := nextLink(http.Header{"Link": {header}})
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q gave %q, want %q", header, got, want)
		}
	}
}
