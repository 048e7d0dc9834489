package profile

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/configfile"
)

func request(method, target, body string, header ...string) *http.Request {
	req := httptest.NewRequest(method, target, nil)
	if body != "" {
		req, _ = http.NewRequest(method, target, bytes.NewReader([]byte(body)))
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func TestPathsFitTheirPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"/search/*", "/search/code", true},
		{"/search/*", "/search", false},
		{"/search/*", "/search/code/x", false},
		{"/search/**", "/search", true},
		{"/search/**", "/search/a/b", true},
		{"/search/**", "/searching", false},
		{"/**/comments", "/repos/a/b/comments", true},
		{"/**/comments", "/comments", true},
		{"/**/comments", "/comments/1", false},
		{"/**/issues/*/comments", "/repos/a/issues/7/comments", true},
		{"/api/chat.*", "/api/chat.postMessage", true},
		{"/api/chat.*", "/api/conversations.list", false},
		{"/v*/models/*:generateContent", "/v1beta/models/gemini:generateContent", true},
		{"/a", "/a/", true},
		{"/a", "/", false},
		{"/", "/", true},
		{"/**", "/", true},
		{"/*/b", "/a/b", true},
	} {
		m := Match{Paths: []string{c.pattern}}
		if got := m.Fits(&Request{Path: c.path}); got != c.want {
			t.Errorf("%s fits %s: %v, want %v", c.path, c.pattern, got, c.want)
		}
	}
}

func TestAMatchWantsAllThatItNames(t *testing.T) {
	m := Match{
		Paths: []string{"/items", "/things"}, Methods: []string{"POST"},
		Query: map[string]string{"kind": "a*"}, Header: map[string]string{"x-api": "2"}, Fields: map[string]string{"a.model": "m-*"},
	}
	const body = `{"a": {"model": "m-1"}}`
	for name, c := range map[string]struct {
		req  *http.Request
		want bool
	}{
		"all":     {request("POST", "/items?kind=ab", body, "X-Api", "2"), true},
		"path":    {request("POST", "/other?kind=ab", body, "X-Api", "2"), false},
		"method":  {request("PUT", "/items?kind=ab", body, "X-Api", "2"), false},
		"query":   {request("POST", "/items?kind=b", body, "X-Api", "2"), false},
		"none":    {request("POST", "/items", body, "X-Api", "2"), false},
		"header":  {request("POST", "/items?kind=ab", body, "X-Api", "3"), false},
		"field":   {request("POST", "/items?kind=ab", `{"a": {"model": "n"}}`, "X-Api", "2"), false},
		"no body": {request("POST", "/items?kind=ab", "", "X-Api", "2"), false},
	} {
		if got := m.Fits(RequestOf(c.req, "")); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestTheFirstPoolCounts(t *testing.T) {
	p := Pools{Base: "/api/v3", List: []Pool{
		{Name: "writes", Match: Match{Methods: []string{"POST"}, Paths: []string{"/things/**"}}},
		{Name: "tier", Match: Match{Paths: []string{"/methods/*"}}, Each: Each{Segment: -1}},
		{Match: Match{Paths: []string{"/chat"}}, Each: Each{Field: "model"}},
		{Name: "region", Each: Each{Query: "region"}},
		{Name: "team", Each: Each{Header: "X-Team"}},
		{Name: "rest", Match: Match{Paths: []string{"/rest"}}},
		{Name: "both", Match: Match{Paths: []string{"/both"}}, Each: Each{Header: "X-Org", Field: "model"}},
	}}
	for _, c := range []struct {
		req  *http.Request
		want string
	}{
		{request("POST", "/api/v3/things/1", ""), "writes"},
		{request("GET", "/api/v3/things/1", ""), ""},
		{request("GET", "/api/v3/methods/chat.list", ""), "tier:chat.list"},
		{request("POST", "/api/v3/chat", `{"model": "m-1"}`), "m-1"},
		{request("POST", "/api/v3/chat", `{`), ""},
		{request("GET", "/api/v3/x?region=eu", ""), "region:eu"},
		{request("GET", "/api/v3/x", "", "X-Team", "blue team"), "team:blue_team"},
		{request("GET", "/api/v3/rest", ""), "rest"},
		{request("GET", "/api/v3rest", ""), ""},
		{request("POST", "/api/v3/both", `{"model": "m"}`), "both:m"},
		{request("POST", "/api/v3/both", `{"model": "m"}`, "X-Org", "o"), "both:o,m"},
		{request("POST", "/api/v3/both", `{}`, "X-Org", "o"), ""},
	} {
		if got := p.Of(c.req); got != c.want {
			t.Errorf("%s %s is of %q, want %q", c.req.Method, c.req.URL, got, c.want)
		}
	}
	long := request("GET", "/x?region="+strings.Repeat("x", 500), "")
	if got := p.Of(long); len(got) > maxName {
		t.Errorf("a name of %d bytes", len(got))
	}
}

// TestABodyIsThereAfterItWasMatched: the request is sent with it.
func TestABodyIsThereAfterItWasMatched(t *testing.T) {
	p := Pools{List: []Pool{{Each: Each{Field: "model"}}}}
	req := request("POST", "/", `{"model": "m"}`)
	if got := p.Of(req); got != "m" {
		t.Fatal(got)
	}
	var sent bytes.Buffer
	if _, err := sent.ReadFrom(req.Body); err != nil || sent.String() != `{"model": "m"}` {
		t.Fatalf("%q, %v", sent.String(), err)
	}
}

// TestResponsesTeachThePoolsOfTheirRoutes, and what a route's attempts have in common.
func TestResponsesTeachThePoolsOfTheirRoutes(t *testing.T) {
	p := Pools{List: []Pool{
		{Each: Each{Response: "X-Resource"}},
		{Name: "rest", Match: Match{Paths: []string{"/rest/**"}}},
	}}
	learn := func(path, resource string) string {
		h := http.Header{}
		if resource != "" {
			h.Set("X-Resource", resource)
		}
		return p.Learn(RequestOf(request("GET", path, ""), ""), h)
	}
	of := func(path string) string { return p.Of(request("GET", path, "")) }
	if got := of("/rest/x"); got != "rest" {
		t.Fatalf("before any response: %q", got)
	}
	if got := learn("/rest/x", ""); got != "" {
		t.Fatalf("a response that says nothing: %q", got)
	}
	if got := learn("/rest/x/1", "core"); got != "core" {
		t.Fatal(got)
	}
	for path, want := range map[string]string{"/rest/x/2": "core", "/rest/y": "core", "/other": ""} {
		if got := of(path); got != want {
			t.Errorf("%s is of %q, want %q", path, got, want)
		}
	}
	learn("/rest/y", "search")
	for path, want := range map[string]string{"/rest/x/2": "core", "/rest/y/9": "search", "/rest/z": "rest"} {
		if got := of(path); got != want {
			t.Errorf("%s is of %q, want %q", path, got, want)
		}
	}
}

func TestPoolsAreReadFromAFile(t *testing.T) {
	read := func(src string) ([]Pool, error) {
		root, file := configfile.Parse("pools.yaml", []byte(src), configfile.Options{What: "pools", Want: "pools"})
		if root == nil {
			return nil, file.Err()
		}
		s := root.Section()
		all := ReadPools(s.List("pools"))
		s.Done()
		return all, file.Err()
	}
	got, err := read(`pools:
  - name: search
    match: {path: /search/**, method: [GET, HEAD], query: {type: code}, header: {X-Api: "2"}, field: {a.b: "*"}}
  - each: {segment: -1}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Pool{
		{Name: "search", Match: Match{
			Paths: []string{"/search/**"}, Methods: []string{"GET", "HEAD"},
			Query: map[string]string{"type": "code"}, Header: map[string]string{"X-Api": "2"}, Fields: map[string]string{"a.b": "*"},
		}},
		{Each: Each{Segment: -1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for src, problem := range map[string]string{
		"pools:\n  - name: a\n    match: {paths: /x}":            "pools.yaml:3:13: pools[0].match.paths: is not a field here",
		"pools:\n  - match: {path: /x}":                          "pools.yaml:2:5: pools[0].name: is missing; want a name, or each",
		"pools:\n  - name: a\n    match: {path: x}":              "pools[0].match.path: ",
		"pools:\n  - name: a\n    match: {method: get}":          "pools[0].match.method: ",
		"pools:\n  - name: a b":                                  "pools[0].name: ",
		"pools:\n  - each: {response: A, field: x}":              "pools[0].each: ",
		"pools:\n  - each: {}":                                   "pools[0].each: ",
		"pools:\n  - each: {segment: 0}":                         "pools[0].each: ",
		"pools:\n  - x":                                          "pools[0]: ",
		"pools:\n  - name: " + strings.Repeat("x", 90):           "pools[0].name: has 90 bytes",
		"pools:\n  - name: a\n    each: {responses: X-Resource}": "pools[0].each.responses: is not a field here",
	} {
		if _, err := read(src); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %s", src, err, problem)
		}
	}
}
