package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"

	"golang.org/x/oauth2"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/httpauth"
	"github.com/headway-go/headway/reason"
)

// KeepTokens has the refresh token that a provider rotates kept in a file, so
// that it outlives the process: oauth2.token_file, or else one beside the state
// file that is given, with the connection's name. Its mode is 0600. Without this
// option a rotated token lives in memory.
func KeepTokens(state string) Option {
	return func(c *Connector) {
		if c.tokens == nil || c.config.Provider.Auth.OAuth2.Grant != httpauth.RefreshToken {
			return
		}
		path := cmp.Or(c.config.Provider.Auth.OAuth2.TokenFile, state+"."+c.config.Name+".oauth")
		c.tokens.Keep(path, disk.OS{})
	}
}

// A token URL with the scheme that its port does not speak.
var (
	errTokenTLS   = errors.New("the token endpoint speaks https here and not http: oauth2.token_url has the wrong scheme or port")
	errTokenPlain = errors.New("the token endpoint speaks http here and not https: oauth2.token_url has the wrong scheme or port")
)

var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// tokenFailure says why there is no token, without the endpoint's answer: that may
// hold the credential.
func (o *OAuth2) tokenFailure(err error) error {
	f := &connector.Failure{
		Reason: reason.InvalidResponse, Class: reason.Failed, Method: http.MethodPost,
		Path: o.TokenURL.Path, Attempts: 1,
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
		case o.TokenURL.Scheme == "http" && connector.SpeaksTLS(f.Status, e.Body):
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
		if cut, ok := errors.AsType[*httpauth.CutOffError](err); ok {
			f.Err = fmt.Errorf("%w: %w", f.Err, cut)
		}
		return f
	}
	if e, ok := errors.AsType[*httpauth.KeepError](err); ok {
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
	case errors.Is(err, httpauth.ErrText):
		f.Err = httpauth.ErrText
	}
	return f
}
