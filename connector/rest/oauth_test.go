package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/reason"
)

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
