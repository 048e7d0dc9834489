package target

import (
	"context"
	"errors"
	"net/http"
	"net/textproto"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// Auth is how a credential is sent. The zero value sends none.
type Auth struct {
	// Header is the header's name; Value its value, or the password of Username
	// (basic), or the token (bearer).
	Header   string
	Scheme   string // "Bearer" or "Basic", or empty
	Username string
	Value    Secret
	OAuth2   *OAuth2
}

// OAuth2 says how an access token is got, with client credentials.
type OAuth2 struct {
	TokenURL     string
	ClientID     string
	ClientSecret Secret
	Scopes       []string
}

// auth reads the one credential of a section.
func (s section) auth() (a Auth) {
	if s.Section == nil {
		return a
	}
	kinds := 0
	if s.Has("bearer") {
		kinds++
		a = Auth{Header: "Authorization", Scheme: "Bearer", Value: s.Secret("bearer")}
	}
	if h := s.below("header"); h.Section != nil {
		kinds++
		a = Auth{Header: textproto.CanonicalMIMEHeaderKey(h.headerName("name")), Value: h.secret("value")}
		h.Done()
	}
	if b := s.below("basic"); b.Section != nil {
		kinds++
		a = Auth{Header: "Authorization", Scheme: "Basic", Username: b.Value("username").Reveal(), Value: b.secret("password")}
		b.Done()
	}
	if o := s.below("oauth2"); o.Section != nil {
		kinds++
		a = Auth{Header: "Authorization", OAuth2: &OAuth2{
			ClientID: o.Value("client_id").Reveal(), ClientSecret: o.secret("client_secret"), Scopes: o.Texts("scopes"),
		}}
		if u := o.url("token_url"); u != nil {
			a.OAuth2.TokenURL = u.String()
		}
		o.Done()
	}
	s.Take("bearer")
	s.Done()
	if kinds != 1 {
		s.Node().Fail("has %d kinds of credential; want one of bearer, header, basic and oauth2", kinds)
	}
	return a
}

// secret is a reference that has to be there.
func (s section) secret(key string) Secret {
	s.Require(key, "a reference such as ${CRM_TOKEN}")
	return s.Secret(key)
}

// credential puts one identity's credential on requests.
type credential struct {
	auth   Auth
	client *http.Client
	turn   chan struct{} // holds a value while nobody asks for a token

	mu     sync.Mutex
	token  *oauth2.Token
	worked bool // the token was accepted
}

func newCredential(a Auth, client *http.Client) *credential {
	c := &credential{auth: a, client: client, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// set puts the credential on a request.
func (c *credential) set(req *http.Request) error {
	switch {
	case c.auth.Header == "":
	case c.auth.OAuth2 != nil:
		token, err := c.access(req.Context())
		if err != nil {
			return err
		}
		req.Header.Set(c.auth.Header, "Bearer "+token)
	case c.auth.Scheme == "Basic":
		req.SetBasicAuth(c.auth.Username, c.auth.Value.Reveal())
	case c.auth.Scheme != "":
		req.Header.Set(c.auth.Header, c.auth.Scheme+" "+c.auth.Value.Reveal())
	default:
		req.Header.Set(c.auth.Header, c.auth.Value.Reveal())
	}
	return nil
}

// access gives a token that is valid now; one goroutine asks, others wait.
func (c *credential) access(ctx context.Context) (string, error) {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { c.turn <- struct{}{} }()
	c.mu.Lock()
	have := c.token
	c.mu.Unlock()
	if have.Valid() {
		return have.AccessToken, nil
	}
	o := c.auth.OAuth2
	config := clientcredentials.Config{ClientID: o.ClientID, ClientSecret: o.ClientSecret.Reveal(), TokenURL: o.TokenURL, Scopes: o.Scopes}
	token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, c.client))
	if err != nil {
		return "", tokenError{err}
	}
	c.mu.Lock()
	c.token, c.worked = token, false
	c.mu.Unlock()
	return token.AccessToken, nil
}

// accepted notes that the server took what was sent as a credential.
func (c *credential) accepted(sent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != nil && "Bearer "+c.token.AccessToken == sent {
		c.worked = true
	}
}

// refused notes a 401, and reports whether another token may be taken: one that
// had worked has expired early, and one that is not the newest is no news. A new
// token that is refused says that the credential is.
func (c *credential) refused(sent string) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.auth.OAuth2 == nil:
		return false
	case c.token == nil || "Bearer "+c.token.AccessToken != sent:
		return true
	}
	again = c.worked
	c.token = nil
	return again
}

// tokenError is a token endpoint's refusal, without its answer: that may hold
// the credential.
type tokenError struct{ err error }

func (e tokenError) Error() string { return "no access token from the token endpoint" }

func (e tokenError) Unwrap() error { return e.err }

// status is that of the token endpoint's answer; 0 when there was none.
func (e tokenError) status() int {
	if r, ok := errors.AsType[*oauth2.RetrieveError](e.err); ok && r.Response != nil {
		return r.Response.StatusCode
	}
	return 0
}
