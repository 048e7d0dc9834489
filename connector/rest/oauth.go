package rest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// tokens holds the access token of an OAuth2 provider and renews it when it
// has expired or was refused. One goroutine asks for a token, the others wait.
type tokens struct {
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

func newTokens(o *OAuth2, client *http.Client) *tokens {
	c := *client
	// A redirect would carry the client's secret elsewhere.
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t := &tokens{config: o, client: &c, turn: make(chan struct{}, 1), refresh: o.RefreshToken.Reveal()}
	t.turn <- struct{}{}
	return t
}

// get gives a token that is valid now.
func (t *tokens) get(ctx context.Context) (string, error) {
	select {
	case <-t.turn:
	case <-ctx.Done():
		return "", t.failure(ctx.Err())
	}
	defer func() { t.turn <- struct{}{} }()
	if t.token.Valid() {
		return t.token.AccessToken, nil
	}
	token, err := t.fetch(context.WithValue(ctx, oauth2.HTTPClient, t.client))
	if err != nil {
		return "", t.failure(err)
	}
	if !headerText(token.AccessToken) {
		return "", t.failure(errTokenText)
	}
	t.token = token
	return token.AccessToken, nil
}

var errTokenText = errors.New("the access token has characters that a header cannot hold")

// refused takes a token that the provider did not accept, and reports whether
// another one may do better: then the next request gets a new one. One that was
// never accepted, and took the place of one that was refused, is kept: the
// provider refuses something else.
func (t *tokens) refused(ctx context.Context, token string) (renew bool) {
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

// accepted says that the provider took the token.
func (t *tokens) accepted(ctx context.Context, token string) {
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

func (t *tokens) fetch(ctx context.Context) (*oauth2.Token, error) {
	o := t.config
	if o.Grant == "client_credentials" {
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

// secrets are the tokens in use.
func (t *tokens) secrets(ctx context.Context) []string {
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

// A token URL with the scheme that its port does not speak.
var (
	errTokenTLS   = errors.New("the token endpoint speaks https here and not http: oauth2.token_url has the wrong scheme or port")
	errTokenPlain = errors.New("the token endpoint speaks http here and not https: oauth2.token_url has the wrong scheme or port")
)

var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// failure says why there is no token, without the endpoint's answer: that may
// hold the credential.
func (t *tokens) failure(err error) error {
	f := &connector.Failure{
		Reason: reason.InvalidResponse, Class: reason.Failed, Method: http.MethodPost,
		Path: t.config.TokenURL.Path, Attempts: 1,
		Err: errors.New("the token endpoint's answer holds no access token"),
	}
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		if e.Response != nil {
			f.Status = e.Response.StatusCode
		}
		detail := ""
		if errorCode.MatchString(e.ErrorCode) {
			detail = " (" + e.ErrorCode + ")"
		}
		switch {
		case t.config.TokenURL.Scheme == "http" && connector.SpeaksTLS(f.Status, e.Body):
			f.Reason, f.Class, f.Err = reason.WrongScheme, reason.Rejected, errTokenTLS
			return f
		case f.Status == http.StatusTooManyRequests:
			f.Reason, f.Class = reason.RateLimited.Reason(), reason.Throttled
		case f.Status == http.StatusServiceUnavailable:
			f.Reason, f.Class = reason.UpstreamPressure.Reason(), reason.Overloaded
		case f.Status >= 500 || f.Status == http.StatusRequestTimeout:
			f.Reason = reason.ServerError
		case f.Status >= 400 || e.ErrorCode != "":
			f.Reason, f.Class = reason.Unauthorized, reason.Rejected
		}
		f.Err = fmt.Errorf("no access token from the token endpoint%s", detail)
		if cut, ok := errors.AsType[*errCutOff](err); ok {
			f.Err = fmt.Errorf("%w: %w", f.Err, cut)
		}
		return f
	}
	if e, ok := errors.AsType[*errKeep](err); ok {
		f.Reason, f.Class, f.Attempts, f.Err = reason.Internal, reason.Unknown, 0, e
		return f
	}
	switch netErr, isNet := errors.AsType[net.Error](err); {
	case errors.Is(err, context.Canceled):
		f.Reason, f.Class, f.Attempts, f.Err = reason.Canceled, reason.Unknown, 0, context.Canceled
	case errors.Is(err, http.ErrSchemeMismatch):
		f.Reason, f.Class, f.Err = reason.WrongScheme, reason.Rejected, errTokenPlain
	case isNet && netErr.Timeout():
		f.Reason, f.Class, f.Err = reason.Timeout, reason.Lost, errors.New("the token endpoint did not answer in time")
	case isNet:
		f.Reason, f.Class, f.Err = reason.Unreachable, reason.Lost, errors.New("the token endpoint cannot be reached")
	case errors.Is(err, errTokenText):
		f.Err = errTokenText
	}
	return f
}
