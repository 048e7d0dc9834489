// Package client calls the API of a running daemon. The command line uses it for status,
// rates, runs, gaps, usage, keys, quotas and "headway top"; the console uses it for its pages.
//
// A [Client] is safe for concurrent use. A call ends with its context or after
// [Options].Timeout. A stream of events has no timeout; it ends when nothing arrives for
// three heartbeats of the daemon. The size of answers is bounded, and redirects are not
// followed, so that the key is sent to no other server.
package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

const (
	// DefaultTimeout bounds one call.
	DefaultTimeout = 30 * time.Second
	// MaxAnswer is the maximum size of a response, in bytes.
	MaxAnswer = 32 << 20
)

// Options configure a client.
type Options struct {
	// Server is the daemon's address: "http://127.0.0.1:8700". A path in it is a prefix of
	// all paths.
	Server string
	// Key is a Headway key of the daemon; with "" none is sent.
	Key string
	// Insecure allows a key to go over plain HTTP to another machine.
	Insecure bool
	// Timeout bounds one call. Default [DefaultTimeout].
	Timeout time.Duration
	// Transport sends the requests. Default [http.DefaultTransport].
	Transport http.RoundTripper
}

// Client calls one daemon. Make one with [New].
type Client struct {
	base    *url.URL
	key     string
	timeout time.Duration
	http    *http.Client
}

// New returns a client, without calling the daemon. The error says what is wrong with the
// options, and never contains the key.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.Server)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https":
		return nil, errors.New("client: server is not an address, must be like http://127.0.0.1:8700")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("client: server has more than scheme, host and path; a key is given apart")
	case o.Timeout < 0:
		return nil, fmt.Errorf("client: timeout is %v, must be above 0, or 0 for %v", o.Timeout, DefaultTimeout)
	case strings.ContainsFunc(o.Key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("client: key has a character that no key has, as a space or line break at its end")
	case o.Key != "" && base.Scheme == "http" && !loopback(base.Hostname()) && !o.Insecure:
		return nil, fmt.Errorf("client: the key would go to %s unencrypted; use https, or allow it", base.Host)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	return &Client{
		base: base, key: o.Key, timeout: cmp.Or(o.Timeout, DefaultTimeout),
		http: &http.Client{
			Transport:     o.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Index returns the daemon's version and quotas.
func (c *Client) Index(ctx context.Context) (v api.Index, err error) {
	return v, c.get(ctx, &v, nil, "v1")
}

// Snapshot returns the state of a quota; provider "" means the default quota.
func (c *Client) Snapshot(ctx context.Context, provider string) (v quota.Snapshot, err error) {
	return v, c.get(ctx, &v, of("provider", provider), "v1", "quota", "snapshot")
}

// Forecast returns when the budgets of a scope run out.
func (c *Client) Forecast(ctx context.Context, provider string, s quota.Scope) (v []Forecast, err error) {
	return v, c.get(ctx, &v, of("provider", provider, "tenant", s.Tenant, "agent", s.Agent, "model", s.Model), "v1", "quota", "forecast")
}

// Statistics returns the totals of a quota.
func (c *Client) Statistics(ctx context.Context, provider string) (v governor.Statistics, err error) {
	return v, c.get(ctx, &v, of("provider", provider), "v1", "quota", "statistics")
}

// Config returns the current configuration of a quota.
func (c *Client) Config(ctx context.Context, provider string) (v quota.Config, err error) {
	return v, c.get(ctx, &v, of("provider", provider), "v1", "quota", "config")
}

// PatchConfig applies a JSON merge patch (RFC 7396) to the configuration of a quota. If it
// is refused, nothing changes, and the *Problem names the fields.
func (c *Client) PatchConfig(ctx context.Context, provider string, patch []byte) (v api.Patched, err error) {
	_, err = c.call(ctx, &v, http.MethodPatch, c.url(of("provider", provider), "v1", "quota", "config"), patch)
	return v, err
}

// Keys returns the Headway keys of the daemon, without their secrets.
func (c *Client) Keys(ctx context.Context) (v []api.IssuedKey, err error) {
	return v, c.get(ctx, &v, nil, "v1", "keys")
}

// IssueKey creates a key, which is valid at once. Its secret is returned only here.
func (c *Client) IssueKey(ctx context.Context, k api.KeyRequest) (v api.NewKey, err error) {
	body, err := json.Marshal(k)
	if err != nil {
		return v, fmt.Errorf("client: %w", err)
	}
	_, err = c.call(ctx, &v, http.MethodPost, c.url(nil, "v1", "keys"), body)
	return v, err
}

// RevokeKey makes an issued key invalid at once.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	_, err := c.call(ctx, nil, http.MethodDelete, c.url(nil, "v1", "keys", id), nil)
	return err
}

// Rate returns the rate of a connection, or of all for "".
func (c *Client) Rate(ctx context.Context, connection string) ([]Rate, error) {
	return list[Rate](ctx, c, 0, of("connection", connection), "v1", "rate")
}

// Connections returns the stored status of a connection, or of all for "".
func (c *Client) Connections(ctx context.Context, connection string) ([]collect.ConnectionStatus, error) {
	return list[collect.ConnectionStatus](ctx, c, 0, of("connection", connection), "v1", "connections")
}

// Schedule returns the schedule of each connection.
func (c *Client) Schedule(ctx context.Context) (v []schedule.Status, err error) {
	return v, c.get(ctx, &v, nil, "v1", "schedule")
}

// Fleet returns the credentials that processes share through the daemon, with their members.
func (c *Client) Fleet(ctx context.Context) (v []Credential, err error) {
	return v, c.get(ctx, &v, nil, "v1", "fleet")
}

// Runs returns at most limit runs of a connection, or of all for "", the newest first; 0
// means as many as the daemon lists.
func (c *Client) Runs(ctx context.Context, connection string, limit int) ([]collect.Run, error) {
	return list[collect.Run](ctx, c, limit, of("connection", connection), "v1", "runs")
}

// Run returns a run with its trace.
func (c *Client) Run(ctx context.Context, id string) (v api.Trace, err error) {
	return v, c.get(ctx, &v, nil, "v1", "runs", id)
}

// Gaps returns at most f.Limit gaps that a filter selects, the oldest first; 0 means no
// bound. An empty status selects all, as in a store.
func (c *Client) Gaps(ctx context.Context, f collect.GapFilter) ([]collect.Gap, error) {
	q := of("connection", f.Connection, "stream", f.Stream, "status", cmp.Or(string(f.Status), "all"))
	if f.Reason != 0 {
		q.Set("reason", f.Reason.String())
	}
	if f.AfterID > 0 {
		q.Set("after", strconv.FormatInt(f.AfterID, 10))
	}
	return list[collect.Gap](ctx, c, f.Limit, q, "v1", "gaps")
}

// Gap returns one gap.
func (c *Client) Gap(ctx context.Context, id int64) (v collect.Gap, err error) {
	return v, c.get(ctx, &v, nil, "v1", "gaps", strconv.FormatInt(id, 10))
}

// list reads pages until the last one, or until there are limit entries.
func list[T any](ctx context.Context, c *Client, limit int, q url.Values, path ...string) ([]T, error) {
	all := []T{}
	for {
		size := api.MaxPage
		if limit > 0 {
			size = min(size, limit-len(all))
		}
		q.Set("limit", strconv.Itoa(size))
		var page []T
		h, err := c.call(ctx, &page, http.MethodGet, c.url(q, path...), nil)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		next, ok := following(h.Get("Link"))
		if !ok || len(page) == 0 || limit > 0 && len(all) >= limit {
			return all, nil
		}
		q = next
	}
}

// following returns the query of the next page. The rest of the link is not used.
func following(link string) (url.Values, bool) {
	target, found := strings.CutPrefix(link, "<")
	target, rel, ok := strings.Cut(target, ">")
	if !found || !ok || !strings.Contains(rel, `rel="next"`) {
		return nil, false
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, false
	}
	return u.Query(), true
}

// of returns a query from pairs of name and value. Empty values are left out.
func of(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

func (c *Client) url(q url.Values, path ...string) *url.URL {
	u := *c.base
	escaped := make([]string, len(path))
	for i, part := range path {
		escaped[i] = url.PathEscape(part) // a name may contain a slash
	}
	u.RawPath = u.EscapedPath() + "/" + strings.Join(escaped, "/")
	u.Path += "/" + strings.Join(path, "/")
	u.RawQuery = q.Encode()
	return &u
}

func (c *Client) get(ctx context.Context, into any, q url.Values, path ...string) error {
	_, err := c.call(ctx, into, http.MethodGet, c.url(q, path...), nil)
	return err
}

// call sends one request and decodes the response.
func (c *Client) call(ctx context.Context, into any, method string, at *url.URL, body []byte) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	res, err := c.send(ctx, method, at, body, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("client: %s %s: the answer broke off: %w", method, at.Path, err)
	case len(raw) > MaxAnswer:
		return nil, fmt.Errorf("client: %s %s: the answer is larger than %d bytes", method, at.Path, MaxAnswer)
	}
	if res.StatusCode == http.StatusNoContent {
		return res.Header, nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("client: %s %s: the answer is not what a daemon of this version gives: %w", method, at.Path, err)
	}
	return res.Header, nil
}

// send returns the response of a success, or the problem as an error.
func (c *Client) send(ctx context.Context, method string, at *url.URL, body []byte, more http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	maps.Copy(r.Header, more)
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	switch method {
	case http.MethodPost:
		r.Header.Set("Content-Type", "application/json")
	case http.MethodPatch:
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := c.http.Do(r)
	if err != nil {
		// The error of net/http contains the address with its query, which is left out
		// here.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("client: %s %s of the daemon at %s: %w", method, at.Path, c.base.Host, err)
	}
	if res.StatusCode == http.StatusOK || res.StatusCode == http.StatusNoContent {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	return nil, problem(res)
}

// maxProblem bounds the size of an error's response.
const maxProblem = 64 << 10

// problem returns the error in a response. A response that is not a problem of the daemon,
// such as a proxy's, is described by its status.
func problem(res *http.Response) error {
	p := &Problem{}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if media != "application/problem+json" || err != nil || json.Unmarshal(raw, p) != nil {
		p = &Problem{Detail: "the answer is not that of a daemon"}
	}
	p.Title = cmp.Or(p.Title, http.StatusText(res.StatusCode), "unknown status")
	p.Status = res.StatusCode
	return p
}

// Names for types of the API, for packages that show what it returns.
type (
	// Forecast says when a budget runs out.
	Forecast = api.Forecast
	// Rate is the rate of a connection, and its state if it is live.
	Rate = api.Rate
	// Credential is a credential that processes share.
	Credential = fleet.Credential
	// Problem is an error of the daemon; match it with errors.As as *Problem.
	Problem = api.Problem
	// Call is a proxied call that has ended, without its content.
	Call = calls.Call
	// Usage is the usage of a group of calls.
	Usage = calls.Usage
	// Series is what a connection did over an hour or a day, and Figures its numbers; NaN
	// means unknown.
	Series  = samples.Series
	Figures = samples.Figures
	// Spark is the rate of a connection over the last hour, in few steps.
	Spark = samples.Spark
	// Change is an entry of the audit log.
	Change = audit.Entry
	// GapChange is a request to change gaps.
	GapChange = api.GapChange
	// SimulatorMenu is what a daemon can simulate, and SimulatorPick selects a scenario.
	SimulatorMenu = api.SimulatorMenu
	SimulatorPick = api.SimulatorPick
	// Simulation is a request to run a scenario under laws, and Simulated its result.
	Simulation   = api.Simulation
	Simulated    = api.Simulated
	SimulatedLaw = api.SimulatedLaw
)

// The spans of a [Series].
const (
	Hour = samples.Hour // In steps of 10 s.
	Day  = samples.Day  // In steps of 5 min.
)

// Filter selects events. Empty fields select all.
type Filter struct {
	// Since is the id of the entry to continue after; [events.Oldest] starts with the oldest that
	// is kept. Empty starts with the next event.
	Since string
	// Types, Connections and Providers select events with these values.
	Types, Connections, Providers []string
}

const (
	// maxLine is the maximum length of a line of a stream, in bytes.
	maxLine = 1 << 20
	// silence is the maximum time without data in a stream: three heartbeats.
	silence = 45 * time.Second
)

// errSilent reports that a stream was silent for too long.
var errSilent = errors.New("nothing was heard for too long")

// Events yields events until the loop ends or the stream does. The last value is always an
// error, of the context or the stream. To continue, range again with the ID of the last
// entry as Filter.Since: missed entries come first, or an entry of type [events.Dropped] if they
// are lost.
func (c *Client) Events(ctx context.Context, f Filter) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		if err := c.follow(ctx, f, func(e events.Entry) bool { return yield(e, nil) }); err != nil {
			yield(events.Entry{}, err)
		}
	}
}

// follow reads one stream. It returns nil if the loop has ended.
func (c *Client) follow(ctx context.Context, f Filter, yield func(events.Entry) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	q := of("since", f.Since)
	q["type"], q["connection"], q["provider"] = f.Types, f.Connections, f.Providers
	at := c.url(q, "v1", "events")
	failed := func(err error) error {
		if why := context.Cause(ctx); why != nil {
			err = why
		}
		return fmt.Errorf("client: events of the daemon at %s: %w", c.base.Host, err)
	}
	res, err := c.send(ctx, http.MethodGet, at, nil, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		if ctx.Err() != nil {
			return failed(err)
		}
		return err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		watch.Reset(silence)
		// The daemon writes each event as one line of data that includes id and type. A
		// truncated line is not JSON.
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var e events.Entry
		if err := json.Unmarshal(data, &e); err != nil {
			return failed(fmt.Errorf("an event is not what a daemon of this version gives: %w", err))
		}
		if !yield(e) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return failed(err)
	}
	return failed(io.ErrUnexpectedEOF)
}
