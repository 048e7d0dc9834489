// Package rest implements a connector for an HTTP API with JSON bodies that is described by
// a YAML file. [Load] reads and checks a file, [New] returns its [connector.Connector], and
// [Describe] describes what a run would do.
//
// Write a connector.Connector in Go for an API whose pages need several requests each,
// whose bodies are not JSON, or whose lists need a method other than GET. The caller does
// pacing, retries, the limit on bodies and the refusal of redirects; a [Config] only holds
// the owner's settings for them.
//
// A Config does not change after it was loaded, and a [Connector] keeps only an OAuth2
// access token between calls. Both are safe for concurrent use. Apart from requests for
// OAuth2 tokens, all requests go through the caller. The package reads no clock; it uses
// the provider's Date header.
//
// Secrets are read when the file is loaded, and held as a [Value], which prints as written
// in the file. No error contains a value from the environment, a body, a header or the key
// of a record.
//
// Stability: stable.
package rest

import (
	"bytes"
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
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/httpauth"
	"github.com/headway-go/headway/reason"
)

// Connector runs a [Config]. Make one with [New]. Safe for concurrent use.
type Connector struct {
	config  *Config
	origin  origin
	streams map[string]*Stream
	tokens  *httpauth.Tokens // nil without OAuth2
}

var _ connector.Connector = (*Connector)(nil)

// Option configures a [Connector].
type Option func(*Connector)

// TokenClient sets the HTTP client for the OAuth2 token endpoint. It should have a timeout.
// The default, nil, is a client with the provider's timeout. Redirects are never followed,
// since they would send the client's secret to another server.
func TokenClient(client *http.Client) Option {
	return func(c *Connector) {
		if c.tokens != nil && client != nil {
			c.tokens.Use(client)
		}
	}
}

// New returns a connector for a config from [Load] or [Parse]. Another config is an error.
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
		c.tokens = httpauth.New((*httpauth.OAuth2)(o), &http.Client{Timeout: timeout})
	}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

// Streams returns the streams in the order of the file.
func (c *Connector) Streams() []connector.Stream {
	out := make([]connector.Stream, len(c.config.Streams))
	for i, s := range c.config.Streams {
		out[i] = connector.Stream{Name: s.Name, Key: s.Key.field(), Incremental: s.Incremental != nil, Shape: s.shape(c.config.Provider)}
		if s.Incremental != nil {
			out[i].Ascending, out[i].Inclusive, out[i].Lookback = s.Incremental.Ascending, s.Incremental.Inclusive, s.Incremental.Lookback
		}
		if s.Detail != nil {
			out[i].DetailStream, out[i].DetailKey = s.Detail.Stream, s.Detail.Key.field()
		}
	}
	return out
}

// List requests one page. It returns the errors of call, and a *connector.Failure with
// reason invalid_response for a page that cannot be read, or cursor_repeats if a page
// number or offset does not advance the list.
func (c *Connector) List(ctx context.Context, call connector.Caller, ask connector.ListRequest) (connector.Page, error) {
	if c.config.Provider.Sticky {
		ctx = connector.WithAffinity(ctx, ask.Stream)
	}
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
	if body == nil && ask.Cursor != "" && s.Paginate.promised() {
		return connector.Page{}, c.invalid(req, res, fmt.Errorf("stream %s: the page before named a next one, and it came without content", s.Name))
	}
	if body != nil {
		if found, err = (extraction{s.Name, s.Records, s.Key}).read(ctx, body); err != nil {
			return connector.Page{}, c.invalid(req, res, err)
		}
	}
	if page.Items, err = s.items(ctx, &found); err != nil {
		return connector.Page{}, c.invalid(req, res, err)
	}
	// No record of the very first page is usable, so the expression is wrong.
	if start := ask.Cursor == "" && ask.Since == ""; s.BadRecords == FailBadRecords || start && len(page.Items) == 0 {
		if err := found.first(s.Name); err != nil {
			return connector.Page{}, c.contradicted(req, res, err)
		}
	}
	page.Unread = found.unread()
	if page.Next, err = c.next(ctx, s.Paginate, s.Name, answer{
		request: req.URL, header: res.Header, body: body, cursor: ask.Cursor, found: found,
	}, req, res); err != nil {
		return connector.Page{}, err
	}
	if page.Asked = s.Paginate.asked(u); page.Next == "" {
		page.End = s.Paginate.end(body)
	}
	return page, nil
}

// items turns records into list entries. Records for which that fails become bad records.
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

// unread returns the bad records for the runtime, without their content.
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

// Detail requests all pages of one item's detail. Its errors are those of List; in routes
// they show {key} instead of the key.
func (c *Connector) Detail(ctx context.Context, call connector.Caller, stream string, item connector.Item) ([]connector.Record, error) {
	s, ok := c.streams[stream]
	if !ok || s.Detail == nil {
		return nil, fmt.Errorf("rest: connection %s has no stream %q with a detail", c.config.Name, stream)
	}
	d := s.Detail
	records := []connector.Record{}
	seen := map[string]int{}
	trail := connector.Trail{}
	var walked connector.Walked
	for cursor := ""; ; {
		page, next, err := c.detailPage(ctx, call, d, item.Key, cursor)
		if err != nil {
			return nil, err
		}
		for _, rec := range page.records {
			i, twice := seen[rec.Key]
			switch {
			case !twice:
				seen[rec.Key] = len(records)
				records = append(records, rec)
			case !bytes.Equal(records[i].Data, rec.Data):
				return nil, c.contradicted(page.req, page.res, fmt.Errorf("stream %s: key expression %s is not unique: two pages of one detail have records that differ and have the same key", d.Stream, d.Key))
			}
		}
		walked.AddPage(page.count, d.Paginate.asked(page.req.URL), next == "", page.end)
		if next == "" {
			if o, ok := call.(connector.DetailObserver); ok {
				o.DetailWalked(d.Stream, &walked)
			}
			return records, nil
		}
		if next == cursor || trail.Step(next) {
			f := c.contradicted(page.req, page.res, fmt.Errorf("stream %s: the detail gave a next cursor that it had given before, so its paging never ends; check detail.paginate", d.Stream))
			f.Reason = reason.CursorRepeats
			return nil, f
		}
		cursor = next
	}
}

// detailPage is one page of a detail.
type detailPage struct {
	req     *http.Request
	res     *connector.Response
	records []connector.Record
	count   int // records of the page, including repeated ones
	end     connector.End
}

func (c *Connector) detailPage(ctx context.Context, call connector.Caller, d *Detail, key, cursor string) (p detailPage, next string, err error) {
	u, err := c.detailURL(d, key, cursor)
	if err != nil {
		return p, "", c.unasked(d.Request, err)
	}
	var body *datum
	if p.req, p.res, body, err = c.ask(ctx, call, u, d.Request); err != nil {
		return p, "", err
	}
	if body == nil && cursor != "" && d.Paginate.promised() {
		return p, "", c.invalid(p.req, p.res, fmt.Errorf("stream %s: the page before named a next one, and it came without content", d.Stream))
	}
	var found entries
	if body != nil {
		found, err = (extraction{d.Stream, d.Records, d.Key}).read(ctx, body)
		if err == nil {
			err = found.first(d.Stream)
		}
		if err != nil {
			return p, "", c.invalid(p.req, p.res, err)
		}
	}
	p.count, p.end = found.count, d.Paginate.end(body)
	p.records = make([]connector.Record, len(found.read))
	for i, e := range found.read {
		p.records[i] = connector.Record{Key: e.key, Data: e.data}
	}
	next, err = c.next(ctx, d.Paginate, d.Stream, answer{
		request: p.req.URL, header: p.res.Header, body: body, cursor: cursor, found: found,
	}, p.req, p.res)
	return p, next, err
}

// next returns the cursor of the page after the answer's page.
func (c *Connector) next(ctx context.Context, p Paginate, stream string, a answer, req *http.Request, res *connector.Response) (string, error) {
	secret := ""
	auth := c.config.Provider.Auth
	if auth.Kind == QueryAuth {
		secret = auth.Name
	}
	next, err := p.next(ctx, c.origin, secret, a)
	if err == nil && next != "" {
		var renewed []string
		if c.tokens != nil {
			renewed = c.tokens.Secrets(ctx)
		}
		if auth.echoed(next, req, renewed) {
			err = errEcho
		}
		for _, k := range c.config.Provider.Keys {
			if k.Auth.echoed(next, req, nil) {
				err = errEcho
			}
		}
	}
	if err != nil {
		f := c.contradicted(req, res, fmt.Errorf("stream %s: %w", stream, err))
		if errors.Is(err, errSamePage) {
			f.Reason = reason.CursorRepeats
		}
		return "", f
	}
	return next, nil
}

// ask sends one request and decodes its body as JSON; nil means no content.
func (c *Connector) ask(ctx context.Context, call connector.Caller, u *url.URL, shape Request) (*http.Request, *connector.Response, *datum, error) {
	req, res, err := c.send(ctx, call, u, shape)
	if err != nil {
		return nil, nil, nil, err
	}
	body, err := readBody(res)
	if err != nil {
		return nil, nil, nil, c.invalid(req, res, err)
	}
	return req, res, body, nil
}

// send sends one request. If a token is refused, it is renewed once and the request is sent
// again.
func (c *Connector) send(ctx context.Context, call connector.Caller, u *url.URL, shape Request) (*http.Request, *connector.Response, error) {
	sent := 0
	ctx = connector.WithPool(ctx, shape.Pool)
	for {
		req, err := c.request(ctx, u, shape)
		if err != nil {
			if _, ok := errors.AsType[*connector.Failure](err); !ok {
				err = c.unasked(shape, err)
			}
			return nil, nil, err
		}
		res, err := call.Do(ctx, req)
		if c.tokens == nil {
			return req, res, err
		}
		token := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		f, failed := errors.AsType[*connector.Failure](err)
		if failed && f.Reason == reason.Unauthorized && c.tokens.Refused(ctx, token) && sent == 0 {
			sent = max(1, f.Attempts)
			continue
		}
		if failed {
			f.Attempts += sent
		} else if err == nil {
			c.tokens.Accepted(ctx, token)
		}
		return req, res, err
	}
}

// invalid returns the failure of an invalid response. It shows the route and not the key.
func (c *Connector) invalid(req *http.Request, res *connector.Response, err error) *connector.Failure {
	f := connector.Invalid(req, res, err)
	f.Path = req.Pattern
	return f
}

// contradicted returns the failure of a complete response that contradicts the connection's
// file. A retry would not help.
func (c *Connector) contradicted(req *http.Request, res *connector.Response, err error) *connector.Failure {
	f := c.invalid(req, res, err)
	f.Class = reason.Rejected
	return f
}

// unasked returns the failure of a request that could not be created.
func (c *Connector) unasked(shape Request, err error) *connector.Failure {
	return &connector.Failure{
		Reason: reason.InvalidResponse, Class: reason.Unknown,
		Method: http.MethodGet, Path: c.route(shape), Err: err,
	}
}

// serverTime returns the time in the Date header; zero if it is absent or invalid.
func serverTime(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}

// maxFingerprint is the maximum length of a fingerprint. Longer ones are replaced by their
// digest.
const maxFingerprint = 128

// fingerprint returns the value's text or JSON; "" for null, so that the whole record is
// used.
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

// AskLimits requests the provider's limits, by pool, if the profile says that this costs
// nothing; otherwise it returns nil. Its errors are those of List.
func (c *Connector) AskLimits(ctx context.Context, call connector.Caller) (map[string][]control.Fact, error) {
	p := c.config.Provider.Profile
	if p == nil || p.Ask() == "" {
		return nil, nil
	}
	_, res, err := c.send(ctx, call, c.config.Provider.BaseURL.JoinPath(p.Ask()), Request{Path: p.Ask()})
	if err != nil {
		return nil, err
	}
	return p.Asked(time.Now(), res.Body), nil
}

// Probed is the result of [Connector.Probe].
type Probed struct {
	Stream string `json:"stream"`
	// Records is the number of records on the first page.
	Records int `json:"records"`
	// More reports that there is another page.
	More bool `json:"more"`
	// ServerTime is the provider's time; zero if the response had no Date.
	ServerTime time.Time `json:"server_time,omitzero"`
	// Warnings are signs that the page is not read as the provider intends.
	Warnings []connector.Warning `json:"warnings,omitempty"`
}

// Probe requests the first page of the first stream, in one request. Its errors are those
// of [Connector.List].
func (c *Connector) Probe(ctx context.Context, call connector.Caller) (Probed, error) {
	s := &c.config.Streams[0]
	page, err := c.List(ctx, call, connector.ListRequest{Stream: s.Name})
	if err != nil {
		return Probed{}, err
	}
	var walked connector.Walked
	walked.Add(page)
	return Probed{
		Stream: s.Name, Records: len(page.Items), More: page.Next != "", ServerTime: page.ServerTime,
		Warnings: walked.Warnings(c.Streams()[0]),
	}, nil
}

// String returns one line for display.
func (p Probed) String() string {
	more := "and no page after it"
	if p.More {
		more = "and a page after it"
	}
	return fmt.Sprintf("stream %s: the first page has %s records %s", p.Stream, figure.Count(int64(p.Records)), more)
}
