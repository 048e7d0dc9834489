package target

import (
	"errors"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"github.com/headway-go/headway/internal/httpauth"
)

// Auth is a credential and how it is sent. The zero value sends none.
type Auth struct {
	// Header is the header's name. Value is its value, the password of Username (basic), or
	// the token (bearer).
	Header   string
	Scheme   string // "Bearer" or "Basic", or empty
	Username string
	Value    Secret
	OAuth2   *OAuth2
}

// OAuth2 is how an access token is obtained with client credentials.
type OAuth2 struct {
	TokenURL     *url.URL
	ClientID     Secret
	ClientSecret Secret
	Scopes       []string
}

// Account identifies the credential of an identity, for a fleet: by the host and a secret
// text.
func (c *Config) Account(identity string) (host, secret string) {
	if c.HTTP != nil {
		host = c.HTTP.URL.Host
	} else {
		host = c.Dataverse.URL.Host
	}
	for _, id := range c.Identities {
		if id.Name != identity {
			continue
		}
		secret = id.Auth.Value.Reveal()
		if o := id.Auth.OAuth2; o != nil {
			secret = o.TokenURL.String() + "\n" + o.ClientID.Reveal() + "\n" + o.ClientSecret.Reveal() + "\n\n"
		}
	}
	return host, secret
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
		h.Require("name", "the name of a header, such as X-Api-Key")
		a = Auth{Header: textproto.CanonicalMIMEHeaderKey(h.headerName("name")), Value: h.secret("value")}
		h.Done()
	}
	if b := s.below("basic"); b.Section != nil {
		kinds++
		b.Require("username", "the name of a user")
		a = Auth{Header: "Authorization", Scheme: "Basic", Username: b.Value("username").Reveal(), Value: b.secret("password")}
		b.Done()
	}
	if o := s.below("oauth2"); o.Section != nil {
		kinds++
		o.Require("token_url", "a URL such as https://login.example.com/oauth/token")
		o.Require("client_id", "the client's id")
		a = Auth{Header: "Authorization", OAuth2: &OAuth2{
			TokenURL: o.url("token_url"), ClientID: o.Value("client_id"), ClientSecret: o.secret("client_secret"), Scopes: o.Texts("scopes"),
		}}
		o.Done()
	}
	s.Take("bearer")
	s.Done()
	if kinds != 1 {
		s.Node().Fail("has %d kinds of credential; want one of bearer, header, basic and oauth2", kinds)
	}
	return a
}

// secret reads a required reference to a secret.
func (s section) secret(key string) Secret {
	s.Require(key, "a reference such as ${CRM_TOKEN}")
	return s.Secret(key)
}

// credential adds one identity's credential to requests.
type credential struct {
	auth   Auth
	tokens *httpauth.Tokens // nil without OAuth2
}

func newCredential(a Auth, client *http.Client) *credential {
	c := &credential{auth: a}
	if o := a.OAuth2; o != nil {
		c.tokens = httpauth.New(&httpauth.OAuth2{
			TokenURL: o.TokenURL, Grant: httpauth.ClientCredentials, Scopes: o.Scopes,
			ClientID: o.ClientID, ClientSecret: o.ClientSecret,
		}, client)
	}
	return c
}

// set adds the credential to a request.
func (c *credential) set(req *http.Request) error {
	switch {
	case c.auth.Header == "":
	case c.tokens != nil:
		token, err := c.tokens.Token(req.Context())
		switch {
		case err == nil:
		case req.Context().Err() != nil:
			return req.Context().Err()
		default:
			return tokenError{err}
		}
		req.Header.Set(c.auth.Header, bearer+token)
	case c.auth.Scheme == "Basic":
		req.SetBasicAuth(c.auth.Username, c.auth.Value.Reveal())
	case c.auth.Scheme != "":
		req.Header.Set(c.auth.Header, c.auth.Scheme+" "+c.auth.Value.Reveal())
	default:
		req.Header.Set(c.auth.Header, c.auth.Value.Reveal())
	}
	return nil
}

const bearer = "Bearer "

// answered records whether the server accepted the credential of a request. It reports
// whether the request may succeed with a new token.
func (c *credential) answered(req *http.Request, status int) (again bool) {
	if c.tokens == nil {
		return false
	}
	token := strings.TrimPrefix(req.Header.Get(c.auth.Header), bearer)
	if status == http.StatusUnauthorized {
		return c.tokens.Refused(req.Context(), token)
	}
	c.tokens.Accepted(req.Context(), token)
	return false
}

// tokenError is the error of a token endpoint, without its response, which may contain the
// credential.
type tokenError struct{ err error }

func (e tokenError) Error() string { return "no access token from the token endpoint" }

func (e tokenError) Unwrap() error { return e.err }

// status returns the status of the token endpoint's response; 0 if there was none.
func (e tokenError) status() int {
	if r, ok := errors.AsType[*oauth2.RetrieveError](e.err); ok && r.Response != nil {
		return r.Response.StatusCode
	}
	return 0
}
