package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/httpauth"
	"github.com/headway-go/headway/reason"
)

const userAgent = "headway (+https://github.com/headway-go/headway)"

// route returns a request's path for display, with {key} instead of the key.
func (c *Connector) route(r Request) string {
	return strings.TrimSuffix(c.config.Provider.BaseURL.Path, "/") + r.Path
}

// listURL returns the URL of a page.
func (c *Connector) listURL(s *Stream, cursor, since string) (*url.URL, error) {
	if k := s.Paginate.Kind; cursor != "" && (k == LinkPaging || k == NextURLPaging) {
		return c.origin.absolute(cursor)
	}
	q := values(s.List.Query, nil)
	if s.Incremental != nil && since != "" {
		q.Set(s.Incremental.Param, since)
	}
	if err := s.Paginate.place(q, cursor); err != nil {
		return nil, err
	}
	return c.url(s.List.Path, q)
}

// segment escapes a key as a path segment. It also escapes dots alone, which would change
// the path (RFC 3986, section 5.2.4).
func segment(key string) string {
	if strings.Trim(key, ".") == "" {
		return strings.ReplaceAll(key, ".", "%2E")
	}
	return url.PathEscape(key)
}

// detailURL returns the URL of a page of a record's detail.
func (c *Connector) detailURL(d *Detail, key, cursor string) (*url.URL, error) {
	if k := d.Paginate.Kind; cursor != "" && (k == LinkPaging || k == NextURLPaging) {
		return c.origin.absolute(cursor)
	}
	q := values(d.Request.Query, strings.NewReplacer("{key}", key))
	if err := d.Paginate.place(q, cursor); err != nil {
		return nil, err
	}
	return c.url(strings.ReplaceAll(d.Request.Path, "{key}", segment(key)), q)
}

func values(query map[string]Value, keys *strings.Replacer) url.Values {
	q := make(url.Values, len(query))
	for name, v := range query {
		s := v.Reveal()
		if keys != nil {
			s = keys.Replace(s)
		}
		q.Set(name, s)
	}
	return q
}

// url appends an escaped path to the base URL.
func (c *Connector) url(path string, q url.Values) (*url.URL, error) {
	u := *c.config.Provider.BaseURL
	escaped := strings.TrimSuffix(u.EscapedPath(), "/") + path
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawPath, u.RawQuery = plain, escaped, q.Encode()
	return &u, nil
}

// request creates a GET request with headers and credential. Its Pattern is the route,
// which has no key in it and may appear in errors.
func (c *Connector) request(ctx context.Context, u *url.URL, shape Request) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("the request's URL cannot be made")
	}
	req.Pattern = c.route(shape)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	for _, headers := range []map[string]Value{c.config.Provider.Headers, shape.Headers} {
		for name, v := range headers {
			req.Header.Set(name, v.Reveal())
		}
	}
	if auth := c.config.Provider.Auth; auth.Kind == OAuth2Auth {
		token, err := c.tokens.Token(ctx)
		if err != nil {
			return nil, auth.OAuth2.tokenFailure(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	} else {
		auth.sign(req)
	}
	return req, nil
}

// sign adds a static credential to a request.
func (a Auth) sign(req *http.Request) {
	switch a.Kind {
	case BearerAuth:
		req.Header.Set("Authorization", "Bearer "+a.Secret.Reveal())
	case HeaderAuth:
		req.Header.Set(a.Name, a.Secret.Reveal())
	case QueryAuth:
		// The raw query is kept, so that a next page's parameters keep their order.
		query := dropParam(req.URL.RawQuery, a.Name)
		if query != "" {
			query += "&"
		}
		req.URL.RawQuery = query + url.QueryEscape(a.Name) + "=" + url.QueryEscape(a.Secret.Reveal())
	case OAuth2Auth, NoAuth:
	}
}

// Keys returns the connection's credentials if it has several.
func (c *Connector) Keys() []connector.Key {
	var keys []connector.Key
	for _, k := range c.config.Provider.Keys {
		keys = append(keys, connector.Key{Name: k.Name, Sign: func(req *http.Request) error {
			k.Auth.sign(req)
			return nil
		}})
	}
	return keys
}

// MaxConcurrency bounds run.concurrency.
const MaxConcurrency = 1024

// Fields for [Config.Override].
const (
	FieldCeiling      = "provider.ceiling"
	FieldMaxRequests  = "run.max_requests"
	FieldMaxWallClock = "run.max_wall_clock"
	FieldCatchupPages = "run.catchup_pages"
	FieldConcurrency  = "run.concurrency"
)

// Override sets one of the fields above for a run, from a flag or the environment. text has
// the syntax and bounds of the file. An error says what is wrong and what is allowed; then
// the field is unchanged.
func (c *Config) Override(field, text string) error {
	f := configfile.NewFile("", configfile.Options{})
	b := builder{File: f}
	n := configfile.NewNode(f, field, text)
	if text == "" {
		return errors.New(n.Is())
	}
	changed := *c
	switch field {
	case FieldCeiling:
		changed.Provider.Ceiling = b.ceiling(n)
	case FieldMaxRequests:
		changed.Run.MaxRequests = b.maxRequests(n)
	case FieldMaxWallClock:
		changed.Run.MaxWallClock = b.maxWallClock(n)
	case FieldCatchupPages:
		changed.Run.CatchupPages = b.catchupPages(n)
	case FieldConcurrency:
		changed.Run.Concurrency = b.concurrency(n)
	default:
		return fmt.Errorf("no field %q may be set apart from the file", field)
	}
	if e, ok := errors.AsType[*ConfigError](f.Err()); ok {
		return errors.New(e.Problems[0].Message)
	}
	*c = changed
	return nil
}

// Bounds of values in the file and in overrides.

func (b builder) ceiling(n *node) time.Duration {
	return b.duration(n, 0, time.Millisecond, 24*time.Hour)
}

func (b builder) maxRequests(n *node) int64  { return b.positive(n, 0, 1<<53-1) }
func (b builder) catchupPages(n *node) int64 { return b.positive(n, 0, 1<<53-1) }

func (b builder) maxWallClock(n *node) time.Duration {
	return b.duration(n, 0, time.Second, 366*24*time.Hour)
}

func (b builder) concurrency(n *node) int { return int(b.positive(n, 0, MaxConcurrency)) }

// positive reads a count above 0.
func (b builder) positive(n *node, unset, limit int64) int64 {
	if v, err := strconv.ParseInt(b.text(n), 10, 64); err == nil && v < 1 {
		n.Want("a whole number of at least 1")
		return unset
	}
	return b.count(n, unset, limit)
}

// naming is the place where a file names a stream.
type naming struct {
	at      configfile.Place
	path    string // of the field
	written string
	stream  string
}

// CheckNames calls wrong for the name of each stream. wrong returns why the name is not
// allowed, or "". The error is a [*ConfigError] with a problem for each name that is not
// allowed.
func (c *Config) CheckNames(wrong func(stream string) string) error {
	f := configfile.NewFile(c.file, configfile.Options{})
	for _, n := range c.names {
		if text := wrong(n.stream); text != "" {
			f.Fail(n.at, n.path, "is %s, which cannot be a stream of this sink: %s; rename the stream", configfile.Quote(n.written), text)
		}
	}
	return f.Err()
}

// KeepTokens stores a rotated refresh token in a file with mode 0600, so that it outlives
// the process: in oauth2.token_file, or in a file beside the state file, named after the
// connection. Without this option a rotated token is kept in memory only.
func KeepTokens(state string) Option {
	return func(c *Connector) {
		if c.tokens == nil || c.config.Provider.Auth.OAuth2.Grant != httpauth.RefreshToken {
			return
		}
		path := cmp.Or(c.config.Provider.Auth.OAuth2.TokenFile, state+"."+c.config.Name+".oauth")
		c.tokens.Keep(path, disk.OS{})
	}
}

// Errors for a token URL whose scheme does not match its port.
var (
	errTokenTLS   = errors.New("the token endpoint speaks https here and not http: oauth2.token_url has the wrong scheme or port")
	errTokenPlain = errors.New("the token endpoint speaks http here and not https: oauth2.token_url has the wrong scheme or port")
)

var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// tokenFailure returns why there is no token. It leaves out the endpoint's response, which
// may contain the credential.
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
