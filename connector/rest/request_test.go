package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/configfile"
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

// oauthConnector is a connector whose token endpoint and API are both base.
func oauthConnector(t *testing.T, base, more string) *Connector {
	t.Helper()
	return connectWith(t, "provider: {base_url: "+base+", auth: {oauth2: {token_url: "+base+"/token, client_id: me, "+more+"}}}", "")
}

func TestOAuth2FetchesAndRenewsTokens(t *testing.T) {
	for name, c := range map[string]struct {
		more, want string
	}{
		"client credentials": {"client_secret: ${TOKEN}, scopes: [read, list]", "client_credentials//read list client_credentials//read list "},
		"refresh token that rotates": {
			"client_secret: ${TOKEN}, refresh_token: ${CHAT_TOKEN}", "refresh_token/hunter2/ refresh_token/rotated-1/ ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			grants, tokens := "", 0
			s, call := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/token" {
					if id, secret, _ := r.BasicAuth(); id != "me" || secret != canary {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					grants += r.FormValue("grant_type") + "/" + r.FormValue("refresh_token") + "/" + r.FormValue("scope") + " "
					tokens++
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"access_token":"access-%d","token_type":"bearer","expires_in":3600,"refresh_token":"rotated-%d"}`, tokens, tokens)
					return
				}
				// The first token is withdrawn after its second use.
				if r.Header.Get("Authorization") != fmt.Sprintf("Bearer access-%d", tokens) || r.URL.Query().Get("p") == "withdrawn" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				fmt.Fprint(w, `{"items":[]}`)
			})
			conn := oauthConnector(t, s.URL, c.more)
			for range 2 {
				if _, err := list(t, conn, call); err != nil {
					t.Fatal(err)
				}
			}
			conn.streams["a"].List.Query = map[string]Value{"p": configfile.NewSecret("withdrawn", "withdrawn")}
			if _, err := list(t, conn, call); err == nil {
				t.Fatal("a withdrawn token was taken")
			}
			conn.streams["a"].List.Query = nil
			if _, err := list(t, conn, call); err != nil {
				t.Fatal(err)
			}
			if grants != c.want {
				t.Errorf("got %q, want %q", grants, c.want)
			}
		})
	}
}

func TestOAuth2AsksOnceForManyGoroutines(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			mu.Lock()
			asked++
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"access_token":"x","expires_in":3600}`)
			return
		}
		fmt.Fprint(w, `{"items":[]}`)
	})
	conn := oauthConnector(t, s.URL, "client_secret: ${TOKEN}")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := list(t, conn, &direct{client: s.Client()}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if asked != 1 {
		t.Errorf("the token endpoint was asked %d times, want once", asked)
	}
}

func TestOAuth2FailuresSayWhyAndShowNothing(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		class  reason.Class
		want   string
	}{
		"refused":            {400, `{"error":"invalid_grant","error_description":"hunter2"}`, reason.Rejected, "400 unauthorized: no access token from the token endpoint (invalid_grant)"},
		"refused in words":   {401, `hunter2 is wrong`, reason.Rejected, "401 unauthorized: no access token from the token endpoint"},
		"odd error code":     {400, `{"error":"hunter2 is wrong"}`, reason.Rejected, "400 unauthorized: no access token from the token endpoint"},
		"rate limited":       {429, ``, reason.Throttled, "429 rate_limited: no access token from the token endpoint"},
		"overloaded":         {503, ``, reason.Overloaded, "503 upstream_pressure: no access token from the token endpoint"},
		"failed":             {500, `hunter2`, reason.Failed, "500 server_error: no access token from the token endpoint"},
		"redirected":         {307, ``, reason.Failed, "307 invalid_response: no access token from the token endpoint"},
		"no token":           {200, `{"hunter2":1}`, reason.Failed, "invalid_response: the token endpoint's answer holds no access token"},
		"no JSON":            {200, `{hunter2`, reason.Failed, "invalid_response: the token endpoint's answer holds no access token"},
		"plain to TLS":       {400, `Client sent an HTTP request to an HTTPS server.`, reason.Rejected, "400 wrong_scheme: the token endpoint speaks https here and not http: oauth2.token_url has the wrong scheme or port"},
		"token with a break": {200, `{"access_token":"hunter2\nx"}`, reason.Failed, "invalid_response: the access token has characters that a header cannot hold"},
	} {
		t.Run(name, func(t *testing.T) {
			s, call := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/token" {
					t.Errorf("a request went to %s", r.URL.Path)
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			})
			_, err := list(t, oauthConnector(t, s.URL, "client_secret: ${TOKEN}"), call)
			f, ok := errors.AsType[*connector.Failure](err)
			if !ok || f.Class != c.class || err.Error() != "POST /token: "+c.want {
				t.Errorf("got  %v (%v)\nwant POST /token: %s (%v)", err, f.Class, c.want, c.class)
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
}

func TestOAuth2EndpointThatCannotBeReached(t *testing.T) {
	s, call := serve(t, nil)
	s.Close()
	_, err := list(t, oauthConnector(t, s.URL, "client_secret: ${TOKEN}"), call)
	if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Reason != reason.Unreachable || f.Class != reason.Lost {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = oauthConnector(t, s.URL, "client_secret: ${TOKEN}").List(ctx, call, connector.ListRequest{Stream: "a"})
	if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Reason != reason.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestOAuth2EndpointThatSpeaksNoTLS(t *testing.T) {
	s, call := serve(t, http.NotFound)
	conn := oauthConnector(t, s.URL, "client_secret: ${TOKEN}")
	conn.config.Provider.Auth.OAuth2.TokenURL.Scheme = "https"
	_, err := list(t, conn, call)
	if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Reason != reason.WrongScheme || !strings.Contains(err.Error(), "token_url has the wrong scheme") {
		t.Errorf("got %v", err)
	}
}

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestOAuth2TakesTheGivenClient(t *testing.T) {
	used := false
	client := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		used = true
		return nil, errors.New("refused by the test")
	})}
	cfg := parse(t, strings.Replace(least, "com\"", "com\", auth: {oauth2: {token_url: https://h/t, client_id: me, client_secret: ${TOKEN}}}", 1))
	c, err := New(cfg, TokenClient(client))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list(t, c, answering("")); err == nil || !used {
		t.Errorf("got %v, used %v", err, used)
	}
}

func TestOAuth2RenewsOnceWhenATokenWithoutAnEndIsRefused(t *testing.T) {
	tokens, refused, locked := 0, 0, false
	s, call := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			tokens++
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"access-%d"}`, tokens)
			return
		}
		if locked || r.Header.Get("Authorization") == "Bearer access-1" {
			refused++
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"items":[]}`)
	})
	conn := oauthConnector(t, s.URL, "client_secret: ${TOKEN}")
	if _, err := list(t, conn, call); err != nil || tokens != 2 || refused != 1 {
		t.Fatalf("got %v after %d tokens and %d refusals; want the request sent again with the second token", err, tokens, refused)
	}
	// A provider that refuses whatever token there is is not asked for ever more.
	locked = true
	for range 5 {
		if _, err := list(t, conn, call); err == nil {
			t.Fatal("a refused token was taken")
		}
	}
	if tokens != 3 {
		t.Errorf("%d tokens were asked for, want 3", tokens)
	}
}

func TestACursorThatEchoesARenewedTokenIsRefused(t *testing.T) {
	for name, echo := range map[string]string{
		"the access token":                 "access-token-2",
		"the refresh token that took over": "rotated-token-2",
		"the access token in base64":       "YWNjZXNzLXRva2VuLTI=",
	} {
		t.Run(name, func(t *testing.T) {
			tokens := 0
			s, call := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/token" {
					tokens++
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"access_token":"access-token-%d","token_type":"bearer","refresh_token":"rotated-token-%d"}`, tokens, tokens)
					return
				}
				if r.Header.Get("Authorization") != "Bearer access-token-2" { // the first is withdrawn at once
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				fmt.Fprintf(w, `{"items":[{"id":1}],"next":"c-%s"}`, echo)
			})
			conn := connectWith(t, "provider: {base_url: "+s.URL+", auth: {oauth2: {token_url: "+s.URL+"/token, client_id: me, refresh_token: ${CHAT_TOKEN}}}}",
				"records: .items, key: .id, paginate: {cursor: .next, param: c}")
			_, err := list(t, conn, call)
			if !errors.Is(err, errEcho) {
				t.Fatalf("got %v, want a refusal", err)
			}
			if strings.Contains(err.Error(), echo) {
				t.Errorf("the credential is in %v", err)
			}
		})
	}
}
