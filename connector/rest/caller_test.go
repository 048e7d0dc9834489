package rest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

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
