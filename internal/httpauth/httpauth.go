// Package httpauth gets access tokens with OAuth2 and renews them: one for all
// requests of one credential, until it expires or is refused.
//
//	tokens := httpauth.New(&httpauth.OAuth2{TokenURL: u, Grant: httpauth.ClientCredentials, ...}, client)
//	token, err := tokens.Token(ctx)       // and send it
//	again := tokens.Refused(ctx, token)   // after a 401: is another token worth a try?
//
// A token that was refused is renewed once: the one that takes its place and is refused
// too, without having been accepted in between, stays, since then the credential is
// what the provider refuses. [Tokens.Keep] makes the refresh token that a provider
// rotates outlive the process.
//
// Who puts the token on a request, and what its caller says of an error, is not its
// business. Errors hold no part of a token or of the endpoint's answer's text, but for
// what *oauth2.RetrieveError has. Tokens are safe for concurrent use.
package httpauth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/disk"
)

// ClientCredentials and RefreshToken are the grants.
const (
	ClientCredentials = "client_credentials"
	RefreshToken      = "refresh_token"
)

// OAuth2 says how an access token is got and renewed.
type OAuth2 struct {
	TokenURL     *url.URL
	Grant        string
	ClientID     configfile.Secret
	ClientSecret configfile.Secret
	RefreshToken configfile.Secret
	TokenFile    string
	Scopes       []string
}

// Tokens holds the access token of an OAuth2 provider and renews it when it
// has expired or was refused. One goroutine asks for a token, the others wait.
type Tokens struct {
	config *OAuth2
	client *http.Client
	turn   chan struct{} // holds one value while token and refresh may be used

	token *oauth2.Token
	// unproven says that the token replaced one that was refused, and that the
	// provider has not accepted it yet.
	unproven bool
	refresh  string // changes when the provider rotates it
	// keep is where a rotated one is made durable; nil is nowhere. Unkept says
	// that refresh is newer than what is kept.
	keep   *tokenFile
	unkept bool
}

// New makes the tokens of one credential. The client should have a timeout; redirects
// are never followed, since they would carry the client's secret elsewhere.
func New(o *OAuth2, client *http.Client) *Tokens {
	t := &Tokens{config: o, turn: make(chan struct{}, 1), refresh: o.RefreshToken.Reveal()}
	t.turn <- struct{}{}
	t.Use(client)
	return t
}

// Use has another client ask, before the first token.
func (t *Tokens) Use(client *http.Client) {
	c := *client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.client = &c
}

// Keep has the refresh token that the provider rotates kept in a file, with mode 0600,
// before the first token. Processes that share the file take turns.
func (t *Tokens) Keep(path string, d disk.Disk) { t.keep = &tokenFile{path: path, disk: d} }

// Token gives a token that is valid now.
func (t *Tokens) Token(ctx context.Context) (string, error) {
	select {
	case <-t.turn:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { t.turn <- struct{}{} }()
	if t.token.Valid() {
		return t.token.AccessToken, nil
	}
	token, err := t.fetch(context.WithValue(ctx, oauth2.HTTPClient, t.client))
	if err != nil {
		return "", err
	}
	if strings.ContainsFunc(token.AccessToken, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return "", ErrText
	}
	t.token = token
	return token.AccessToken, nil
}

// ErrText is an access token that cannot be sent.
var ErrText = errors.New("the access token has characters that a header cannot hold")

// Refused takes a token that the provider did not accept, and reports whether
// another one may do better: then the next request gets a new one. One that was
// never accepted, and took the place of one that was refused, is kept: the
// provider refuses something else.
func (t *Tokens) Refused(ctx context.Context, token string) (renew bool) {
	select {
	case <-t.turn:
	case <-ctx.Done():
		return false
	}
	defer func() { t.turn <- struct{}{} }()
	if t.token == nil || t.token.AccessToken != token {
		return true // somebody has renewed it
	}
	if t.unproven {
		return false
	}
	t.token, t.unproven = nil, true
	return true
}

// Accepted says that the provider took the token.
func (t *Tokens) Accepted(ctx context.Context, token string) {
	select {
	case <-t.turn:
	case <-ctx.Done():
		return
	}
	if t.token != nil && t.token.AccessToken == token {
		t.unproven = false
	}
	t.turn <- struct{}{}
}

func (t *Tokens) fetch(ctx context.Context) (*oauth2.Token, error) {
	o := t.config
	if o.Grant == ClientCredentials {
		c := clientcredentials.Config{
			ClientID: o.ClientID.Reveal(), ClientSecret: o.ClientSecret.Reveal(),
			TokenURL: o.TokenURL.String(), Scopes: o.Scopes,
		}
		return c.Token(ctx)
	}
	c := oauth2.Config{
		ClientID: o.ClientID.Reveal(), ClientSecret: o.ClientSecret.Reveal(), Scopes: o.Scopes,
		Endpoint: oauth2.Endpoint{TokenURL: o.TokenURL.String()},
	}
	var token *oauth2.Token
	ask := func(ctx context.Context, refresh string) (rotated string, err error) {
		if t.unkept {
			refresh = t.refresh
		}
		if token, err = c.TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token(); err != nil {
			return "", err
		}
		if token.RefreshToken == "" {
			token.RefreshToken = refresh // the usual answer of one that does not rotate
		}
		t.refresh, t.unkept = token.RefreshToken, true
		return token.RefreshToken, nil
	}
	if t.keep == nil {
		_, err := ask(ctx, t.refresh)
		return token, err
	}
	if err := t.keep.renew(ctx, o.of(), o.RefreshToken.Reveal(), ask); err != nil {
		return nil, err
	}
	t.unkept = false
	return token, nil
}

// Secrets are the tokens in use.
func (t *Tokens) Secrets(ctx context.Context) []string {
	select {
	case <-t.turn:
	case <-ctx.Done():
		return nil
	}
	defer func() { t.turn <- struct{}{} }()
	all := []string{t.refresh}
	if t.token != nil {
		all = append(all, t.token.AccessToken)
	}
	return all
}
