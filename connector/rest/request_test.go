package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

func TestCredentialsAreSentAsTheFileSays(t *testing.T) {
	for auth, want := range map[string]string{
		"auth: {bearer: ${TOKEN}}":                               "GET /v1/a Authorization=Bearer hunter2",
		"auth: {header: {name: x-api-key, value: ${TOKEN}}}":     "GET /v1/a X-Api-Key=hunter2",
		"auth: {query: {name: api key, value: ${TOKEN}}}":        "GET /v1/a?api+key=hunter2",
		"headers: {X-Tenant: ${TOKEN}, User-Agent: mine}":        "GET /v1/a User-Agent=mine X-Tenant=hunter2",
		"headers: {accept: application/vnd.x+json}, ceiling: 1s": "GET /v1/a Accept=application/vnd.x+json",
	} {
		call := answering(`{"items":[]}`)
		if _, err := list(t, connectWith(t, "provider: {base_url: https://h/v1/, "+auth+"}", ""), call); err != nil {
			t.Fatal(err)
		}
		got := call.sent.Method + " " + call.sent.URL.RequestURI()
		for _, name := range []string{"Accept", "Authorization", "User-Agent", "X-Api-Key", "X-Tenant"} {
			if v := call.sent.Header.Get(name); v != "" && v != "application/json" && v != userAgent {
				got += " " + name + "=" + v
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", auth, got, want)
		}
	}
}

func TestStreamHeadersComeAfterTheProviders(t *testing.T) {
	cfg := parse(t, `
connection: c
provider: {base_url: "https://h", headers: {X-A: provider, X-B: provider}}
streams: [{name: a, list: {path: /a, headers: {x-a: stream}}, records: .items, key: .id}]
`)
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	call := answering(`{"items":[]}`)
	if _, err := list(t, c, call); err != nil {
		t.Fatal(err)
	}
	if h := call.sent.Header; h.Get("X-A") != "stream" || h.Get("X-B") != "provider" {
		t.Errorf("got %v", h)
	}
}

const withDetail = "records: .items, key: .id, detail: {stream: d, path: '/a/{key}/full', query: {of: 'k-{key}'}, records: .parts, key: .n}"

func TestKeysAreEscapedInDetailRequests(t *testing.T) {
	var got []string
	s, call := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.RequestURI+" "+r.URL.Query().Get("of"))
		fmt.Fprint(w, `{"parts":[{"n":1},{"n":"x"}]}`)
	})
	c := connect(t, s.URL+"/v1%2fx", withDetail)
	for _, key := range []string{"7", "a/b", "a b?c#d&e=f", "é", "%2e", "...", ".", "..", "../..", strings.Repeat("k", 1024)} {
		records, err := c.Detail(t.Context(), call, "a", connector.Item{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		want := []connector.Record{{Key: "1", Data: []byte(`{"n":1}`)}, {Key: "x", Data: []byte(`{"n":"x"}`)}}
		if diff := cmp.Diff(want, records); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	want := []string{
		"/v1%2fx/a/7/full?of=k-7 k-7",
		"/v1%2fx/a/a%2Fb/full?of=k-a%2Fb k-a/b",
		"/v1%2fx/a/a%20b%3Fc%23d&e=f/full?of=k-a+b%3Fc%23d%26e%3Df k-a b?c#d&e=f",
		"/v1%2fx/a/%C3%A9/full?of=k-%C3%A9 k-é",
		"/v1%2fx/a/%252e/full?of=k-%252e k-%2e",
		"/v1%2fx/a/%2E%2E%2E/full?of=k-... k-...",
		"/v1%2fx/a/%2E/full?of=k-. k-.",
		"/v1%2fx/a/%2E%2E/full?of=k-.. k-..",
		"/v1%2fx/a/..%2F../full?of=k-..%2F.. k-../..",
		"/v1%2fx/a/" + strings.Repeat("k", 1024) + "/full?of=k-" + strings.Repeat("k", 1024) + " k-" + strings.Repeat("k", 1024),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDetailErrorsNameTheRouteAndNotTheKey(t *testing.T) {
	c := connect(t, "https://h/v1", withDetail)
	_, err := c.Detail(t.Context(), answering(`{"error":"no"}`), "a", connector.Item{Key: "secret-key"})
	want := "GET /v1/a/{key}/full: 200 invalid_response: stream d: records expression .parts gave null, want an array or objects; the response has the fields error"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestTheCallersErrorsComeThrough(t *testing.T) {
	s, call := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	c := connect(t, s.URL, withDetail)
	_, listErr := list(t, c, call)
	_, detailErr := c.Detail(t.Context(), call, "a", connector.Item{Key: "1"})
	for _, err := range []error{listErr, detailErr} {
		if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Status != http.StatusTeapot || f.Reason != reason.ClientError {
			t.Errorf("got %v", err)
		}
	}
}

func TestAnUnknownStreamIsAnError(t *testing.T) {
	c := connect(t, "https://h", "")
	if _, err := c.List(t.Context(), answering(""), connector.ListRequest{Stream: "x"}); err == nil || err.Error() != `rest: connection test has no stream "x"` {
		t.Errorf("got %v", err)
	}
	if _, err := c.Detail(t.Context(), answering(""), "a", connector.Item{Key: "1"}); err == nil || err.Error() != `rest: connection test has no stream "a" with a detail` {
		t.Errorf("got %v", err)
	}
}

func TestNewRefusesAConfigThatWasNotLoaded(t *testing.T) {
	for _, cfg := range []*Config{nil, {}, {Provider: parse(t, least).Provider, Streams: []Stream{{Name: "a"}}}} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "make ") {
			t.Errorf("got %v", err)
		}
	}
}

func TestProbeMakesOneRequest(t *testing.T) {
	s, call := serve(t, func(w http.ResponseWriter, _ *http.Request) { numbered(w, 0, 3, 9, `,"next":"n"`) })
	c := connect(t, s.URL, "records: .items, key: .id, paginate: {cursor: .next, param: c}")
	got, err := c.Probe(t.Context(), call)
	if err != nil || len(call.sent) != 1 || got.String() != "stream a: the first page has 3 records and a page after it" || got.ServerTime.IsZero() {
		t.Errorf("got %v, %v after %d requests", got, err, len(call.sent))
	}
}

// direct is a Caller that sends each request once.
type direct struct {
	client *http.Client
	sent   []*http.Request
}

func (d *direct) Do(_ context.Context, req *http.Request) (*connector.Response, error) {
	d.sent = append(d.sent, req)
	res, err := d.client.Do(req)
	if err != nil {
		return nil, &connector.Failure{Reason: reason.Unreachable, Class: reason.Lost, Method: req.Method, Path: req.URL.Path}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		why := reason.ClientError
		if res.StatusCode == http.StatusUnauthorized {
			why = reason.Unauthorized
		}
		return nil, &connector.Failure{Reason: why, Class: reason.Rejected, Status: res.StatusCode, Method: req.Method, Path: req.URL.Path}
	}
	return &connector.Response{Status: res.StatusCode, Header: res.Header, Body: body}, nil
}

// canned is a Caller that answers without a server.
type canned struct {
	connector.Response
	sent *http.Request
}

func (c *canned) Do(_ context.Context, req *http.Request) (*connector.Response, error) {
	c.sent = req
	res := c.Response
	if res.Status == 0 {
		res.Status = http.StatusOK
	}
	if res.Header == nil {
		res.Header = http.Header{"Content-Type": {"application/json"}}
	}
	return &res, nil
}

func answering(body string) *canned {
	return &canned{Response: connector.Response{Body: []byte(body)}}
}

// connect makes a connector of a connection with one stream a.
func connect(t testing.TB, base, stream string) *Connector {
	t.Helper()
	return connectWith(t, "provider: {base_url: \""+base+"\"}", stream)
}

func connectWith(t testing.TB, provider, stream string) *Connector {
	t.Helper()
	if stream == "" {
		stream = "records: .items, key: .id"
	}
	cfg := parse(t, "connection: test\n"+provider+"\nstreams:\n  - {name: a, list: {path: /a}, "+stream+"}\n")
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serve runs a provider for one test.
func serve(t *testing.T, h http.HandlerFunc) (*httptest.Server, *direct) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s, &direct{client: s.Client()}
}

// list asks for the first page.
func list(t testing.TB, c *Connector, call connector.Caller) (connector.Page, error) {
	t.Helper()
	return c.List(t.Context(), call, connector.ListRequest{Stream: "a"})
}

// walkAll collects all pages and gives the keys, pages split by a bar.
func walkAll(t *testing.T, c *Connector, call connector.Caller, since string) (string, error) {
	t.Helper()
	var pages []string
	cursor := ""
	for range 20 {
		page, err := c.List(t.Context(), call, connector.ListRequest{Stream: "a", Cursor: cursor, Since: since})
		if err != nil {
			return strings.Join(pages, "|"), err
		}
		keys := make([]string, len(page.Items))
		for i, item := range page.Items {
			keys[i] = item.Key
		}
		pages = append(pages, strings.Join(keys, " "))
		if cursor = page.Next; cursor == "" {
			return strings.Join(pages, "|"), nil
		}
	}
	t.Fatal("no end after 20 pages")
	return "", nil
}
