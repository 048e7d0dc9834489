// Package httpauth gets OAuth2 access tokens and renews them. All requests of one
// credential use one token until it expires or is refused.
//
//	tokens := httpauth.New(&httpauth.OAuth2{TokenURL: u, Grant: httpauth.ClientCredentials, ...}, client)
//	token, err := tokens.Token(ctx)       // and send it
//	again := tokens.Refused(ctx, token)   // after a 401: is another token worth a try?
//
// A refused token is renewed once: if the new token is refused too before it was ever
// accepted, it is kept, since then the provider refuses the credential. [Tokens.Keep]
// stores refresh tokens that a provider rotates, so that they survive the process.
//
// The caller puts the token on the request and reports errors. Errors contain no part of
// a token or of the endpoint's answer, except for what *oauth2.RetrieveError has. Tokens
// are safe for concurrent use.
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

// OAuth2 says how to get and renew an access token.
type OAuth2 struct {
	TokenURL     *url.URL
	Grant        string
	ClientID     configfile.Secret
	ClientSecret configfile.Secret
	RefreshToken configfile.Secret
	TokenFile    string
	Scopes       []string
}

// Tokens holds the access token of an OAuth2 provider and renews it when it has expired
// or was refused. One goroutine requests a token, the others wait for it. Safe for
// concurrent use.
type Tokens struct {
	config *OAuth2
	client *http.Client
	turn   chan struct{} // holds one value while token and refresh may be used

	token *oauth2.Token
	// unproven says that the token replaced a refused one and was not accepted by the
	// provider yet.
	unproven bool
	refresh  string // changes when the provider rotates it
	// keep stores a rotated refresh token; nil means that it is not stored. unkept says
	// that refresh is newer than what is stored.
	keep   *tokenFile
	unkept bool
}

// New returns the tokens of one credential. The client should have a timeout. Redirects
// are never followed, since they would send the client's secret to another host.
func New(o *OAuth2, client *http.Client) *Tokens {
	t := &Tokens{config: o, turn: make(chan struct{}, 1), refresh: o.RefreshToken.Reveal()}
	t.turn <- struct{}{}
	t.Use(client)
	return t
}

// Use sets another client. Call it before the first token.
func (t *Tokens) Use(client *http.Client) {
	c := *client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.client = &c
}

// Keep stores the refresh token that the provider rotates in a file with mode 0600. Call
// it before the first token. Processes that share the file take turns.
func (t *Tokens) Keep(path string, d disk.Disk) { t.keep = &tokenFile{path: path, disk: d} }

// Token returns a valid token.
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

// ErrText is the error for an access token that cannot be sent.
var ErrText = errors.New("the access token has characters that a header cannot hold")

// Refused reports that the provider did not accept a token, and returns whether another
// token may work; then the next request gets a new one. If the refused token replaced a
// refused one and was never accepted itself, it is kept, because the provider refuses
// something else.
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

// Accepted reports that the provider accepted the token.
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

// Secrets returns the tokens in use.
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
