package rest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// Connector runs a [Config]. Make one with [New]. Safe for concurrent use.
type Connector struct {
	config  *Config
	origin  origin
	streams map[string]*Stream
	tokens  *tokens // nil without OAuth2
}

var _ connector.Connector = (*Connector)(nil)

// Option changes how a [Connector] is made.
type Option func(*Connector)

// TokenClient sets the HTTP client that asks an OAuth2 token endpoint; it
// should have a timeout. nil is the default, a client of its own that gives up
// after the provider's timeout. Redirects
// are never followed, since they would carry the client's secret elsewhere.
func TokenClient(client *http.Client) Option {
	return func(c *Connector) {
		if c.tokens != nil && client != nil {
			c.tokens = newTokens(c.config.Provider.Auth.OAuth2, client)
		}
	}
}

// New makes a connector of a config that came from [Load] or [Parse]; any
// other is an error.
func New(cfg *Config, options ...Option) (*Connector, error) {
	if cfg == nil || cfg.Provider.BaseURL == nil || len(cfg.Streams) == 0 {
		return nil, errors.New("rest: the config has no base URL or no streams: make it with Load or Parse")
	}
	c := &Connector{config: cfg, origin: origin{base: cfg.Provider.BaseURL}, streams: map[string]*Stream{}}
	for i := range cfg.Streams {
		s := &cfg.Streams[i]
		if s.Records == nil || s.Key == nil || s.Detail != nil && (s.Detail.Records == nil || s.Detail.Key == nil) {
			return nil, fmt.Errorf("rest: stream %q has no records or key expression: make the config with Load or Parse", s.Name)
		}
		c.streams[s.Name] = s
	}
	if o := cfg.Provider.Auth.OAuth2; o != nil {
		timeout := cmp.Or(cfg.Provider.Timeout, DefaultTimeout)
		c.tokens = newTokens(o, &http.Client{Timeout: timeout})
	}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

// Streams lists the streams in the file's order.
func (c *Connector) Streams() []connector.Stream {
	out := make([]connector.Stream, len(c.config.Streams))
	for i, s := range c.config.Streams {
		out[i] = connector.Stream{Name: s.Name, Key: s.Key.field(), Incremental: s.Incremental != nil, Shape: s.shape(c.config.Provider.BaseURL)}
		if s.Incremental != nil {
			out[i].Ascending, out[i].Inclusive = s.Incremental.Ascending, s.Incremental.Inclusive
		}
		if s.Detail != nil {
			out[i].DetailStream, out[i].DetailKey = s.Detail.Stream, s.Detail.Key.field()
		}
	}
	return out
}

// List asks for one page. Its errors are those of call, and *connector.Failure
// with reason invalid_response for a page that cannot be read, cursor_repeats
// for a page number or offset that does not move the list.
func (c *Connector) List(ctx context.Context, call connector.Caller, ask connector.ListRequest) (connector.Page, error) {
	s, ok := c.streams[ask.Stream]
	if !ok {
		return connector.Page{}, fmt.Errorf("rest: connection %s has no stream %q", c.config.Name, ask.Stream)
	}
	u, err := c.listURL(s, ask.Cursor, ask.Since)
	if err != nil {
		return connector.Page{}, c.unasked(s.List, err)
	}
	req, res, body, err := c.ask(ctx, call, u, s.List)
	if err != nil {
		return connector.Page{}, err
	}
	page := connector.Page{ServerTime: serverTime(res.Header)}
	var found entries
	if body != nil {
		if found, err = (extraction{s.Name, s.Records, s.Key}).read(ctx, body); err != nil {
			return connector.Page{}, c.invalid(req, res, err)
		}
	}
	if page.Items, err = s.items(ctx, &found); err != nil {
		return connector.Page{}, c.invalid(req, res, err)
	}
	// Not one record of the very first page: then it is the expression that is wrong.
	if start := ask.Cursor == "" && ask.Since == ""; s.BadRecords == FailBadRecords || start && len(page.Items) == 0 {
		if err := found.first(s.Name); err != nil {
			return connector.Page{}, c.contradicted(req, res, err)
		}
	}
	page.Unread = found.unread()
	secret := ""
	if auth := c.config.Provider.Auth; auth.Kind == QueryAuth {
		secret = auth.Name
	}
	page.Next, err = s.Paginate.next(ctx, c.origin, secret, answer{
		request: req.URL, header: res.Header, body: body, cursor: ask.Cursor, found: found,
	})
	if err != nil {
		f := c.contradicted(req, res, fmt.Errorf("stream %s: %w", s.Name, err))
		if errors.Is(err, errSamePage) {
			f.Reason = reason.CursorRepeats
		}
		return connector.Page{}, f
	}
	return page, nil
}

// items makes list entries of records; those that cannot be any become bad ones.
// The error is that of ctx.
func (s *Stream) items(ctx context.Context, found *entries) ([]connector.Item, error) {
	items := make([]connector.Item, 0, len(found.read))
	for _, e := range found.read {
		item, err := s.item(ctx, e)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			found.reject(e.at, e.data, err)
			continue
		}
		items = append(items, item)
	}
	slices.SortStableFunc(found.bad, func(a, b badRecord) int { return a.at - b.at })
	return items, nil
}

func (s *Stream) item(ctx context.Context, e entry) (connector.Item, error) {
	item := connector.Item{Key: e.key, Data: e.data}
	if s.Incremental != nil {
		v, err := s.Incremental.Cursor.one(ctx, e.datum)
		if err == nil && v.kind() != kindNull {
			var ok bool
			if item.Watermark, ok = v.text(); !ok {
				err = fmt.Errorf("gave %s, want a text, a number or null,", article(v.kind()))
			}
		}
		if err != nil {
			return item, fmt.Errorf("incremental expression %s %w", s.Incremental.Cursor, err)
		}
	}
	if s.Fingerprint != nil {
		v, err := s.Fingerprint.one(ctx, e.datum)
		if err != nil {
			return item, fmt.Errorf("fingerprint expression %s %w", s.Fingerprint, err)
		}
		item.Fingerprint = fingerprint(v)
	}
	return item, nil
}

// unread is the bad records as the runtime takes them: what they hold stays here.
func (e *entries) unread() []connector.Unread {
	var out []connector.Unread
	for _, b := range e.bad {
		sum := sha256.Sum256(b.data)
		out = append(out, connector.Unread{
			Position: b.at, ID: hex.EncodeToString(sum[:8]), Problem: strings.TrimSuffix(b.err.Error(), ","),
		})
	}
	return out
}

// Detail asks for the detail of one item. Its errors are those of List; they
// name the route with {key} for the key.
func (c *Connector) Detail(ctx context.Context, call connector.Caller, stream string, item connector.Item) ([]connector.Record, error) {
	s, ok := c.streams[stream]
	if !ok || s.Detail == nil {
		return nil, fmt.Errorf("rest: connection %s has no stream %q with a detail", c.config.Name, stream)
	}
	d := s.Detail
	u, err := c.detailURL(d, item.Key)
	if err != nil {
		return nil, c.unasked(d.Request, err)
	}
	req, res, body, err := c.ask(ctx, call, u, d.Request)
	if err != nil || body == nil {
		return nil, err
	}
	found, err := (extraction{d.Stream, d.Records, d.Key}).read(ctx, body)
	if err == nil {
		err = found.first(d.Stream)
	}
	if err != nil {
		return nil, c.invalid(req, res, err)
	}
	records := make([]connector.Record, len(found.read))
	for i, e := range found.read {
		records[i] = connector.Record{Key: e.key, Data: e.data}
	}
	return records, nil
}

// ask sends one request and reads its body as JSON; nil is no content.
func (c *Connector) ask(ctx context.Context, call connector.Caller, u *url.URL, shape Request) (*http.Request, *connector.Response, *datum, error) {
	req, err := c.request(ctx, u, shape)
	if err != nil {
		if _, ok := errors.AsType[*connector.Failure](err); !ok {
			err = c.unasked(shape, err)
		}
		return nil, nil, nil, err
	}
	res, err := call.Do(ctx, req)
	if err != nil {
		if f, ok := errors.AsType[*connector.Failure](err); ok && c.tokens != nil && f.Reason == reason.Unauthorized {
			c.tokens.refused(ctx, strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
		}
		return nil, nil, nil, err
	}
	body, err := readBody(res)
	if err != nil {
		return nil, nil, nil, c.invalid(req, res, err)
	}
	return req, res, body, nil
}

// invalid is the failure of a response; it shows the route, never the key.
func (c *Connector) invalid(req *http.Request, res *connector.Response, err error) *connector.Failure {
	f := connector.Invalid(req, res, err)
	f.Path = req.Pattern
	return f
}

// contradicted is the failure of a response that is whole and still not what the
// connection's file says: asking again will not change that.
func (c *Connector) contradicted(req *http.Request, res *connector.Response, err error) *connector.Failure {
	f := c.invalid(req, res, err)
	f.Class = reason.Rejected
	return f
}

// unasked is the failure of a request that could not be made.
func (c *Connector) unasked(shape Request, err error) *connector.Failure {
	return &connector.Failure{
		Reason: reason.InvalidResponse, Class: reason.Unknown,
		Method: http.MethodGet, Path: c.route(shape), Err: err,
	}
}

// serverTime is the provider's clock; zero when it tells none that can be read.
func serverTime(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}

// maxFingerprint is how long a fingerprint may be before its digest takes its place.
const maxFingerprint = 128

// fingerprint is the value's text or JSON; empty for null, which leaves it to
// the whole record.
func fingerprint(v *datum) string {
	if v.kind() == kindNull {
		return ""
	}
	s, ok := v.text()
	if !ok {
		s = string(v.compact())
	}
	if len(s) > maxFingerprint {
		sum := sha256.Sum256([]byte(s))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return s
}
