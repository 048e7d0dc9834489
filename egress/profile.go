package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/wire"
)

// shares says with which calls this one shares limits.
type shares struct {
	as   *http.Request // the call as passed to the provider's profile; nil without one
	pool string
	cost float64

	refusedBy []int // indexes of the keys that refused the call
	refusals  []int // their statuses
}

// reported is what the provider's profile read from an answer.
type reported struct {
	report  []byte  // the beginning of a body below 400, if the profile reads it
	pool    string  // named by the answer
	took    float64 // 0 when the answer does not say
	account bool    // a refusal concerns the whole account
}

// match finds the call's pool: by the provider's profile, or by model.
func (c *call) match() {
	p := c.up.Profile
	if p == nil {
		c.pool = c.log.Model
		return
	}
	path := c.path()
	if path == "" {
		path = "/"
	}
	c.as = &http.Request{Method: c.r.Method, URL: &url.URL{Path: path, RawQuery: c.r.URL.RawQuery}, Header: c.r.Header}
	if c.whole && len(c.body) > 0 {
		c.as.Body = io.NopCloser(bytes.NewReader(c.body))
		c.as.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }
	}
	c.pool, c.cost = p.Attempt(c.as, "")
}

// maxProfiled bounds how much of a body a profile reads, in bytes.
const maxProfiled = 1 << 20

// profiles reports whether the provider's profile may read the call's body.
func (c *call) profiles() bool {
	return c.up.Profile != nil && 0 <= c.r.ContentLength && c.r.ContentLength <= min(c.up.MaxBody, maxProfiled) &&
		strings.Contains(c.r.Header.Get("Content-Type"), "json")
}

// preview reads the beginning of an answer, in which the provider's profile looks for the
// cost of the call.
func (a *attempt) preview(res *http.Response) {
	c := a.call
	if c.as != nil && res.StatusCode < http.StatusBadRequest && c.up.Profile.Reads(c.as, c.pool, res.StatusCode, res.Header) {
		res.Body = moving{res.Body, a.watch}
		a.report, _ = wire.Peek(res, maxProfiled)
	}
}

// moving is a body read before it is relayed. Its bytes count as activity for the watch.
type moving struct {
	io.ReadCloser
	watch *watch
}

func (m moving) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	m.watch.move()
	return n, err
}

// consult lets the provider's profile read the answer.
func (a *attempt) consult() {
	c := a.call
	if c.as == nil {
		return
	}
	body := a.head
	if a.report != nil {
		body = a.report
	}
	body = unzipped(a.header, body)
	a.pool, a.took, a.account = c.up.Profile.Read(a.answerAt, c.as, c.pool, a.status, a.header, body, &a.signal)
}

// unzipped decompresses the beginning of a body; nil when that fails.
func unzipped(header http.Header, body []byte) []byte {
	switch {
	case !encoded(header):
		return body
	case len(body) == 0 || !strings.EqualFold(strings.TrimSpace(header.Get("Content-Encoding")), "gzip"):
		return nil
	}
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	plain, _ := io.ReadAll(io.LimitReader(r, maxProfiled)) // a truncated body is decompressed as far as possible
	return plain
}

// begun are the pools that were given the limits of the provider's profile.
type begun struct {
	mu    sync.Mutex
	pools map[string]bool
}

// maxBegun bounds how many of them are remembered.
const maxBegun = 4096

// begin gives a pool the published limits at its first use.
func (k *credential) begin(u *upstream, pool string) error {
	if u.Profile == nil {
		return nil
	}
	k.begun.mu.Lock()
	known := k.begun.pools[pool]
	if !known {
		if k.begun.pools == nil || len(k.begun.pools) >= maxBegun {
			k.begun.pools = map[string]bool{}
		}
		k.begun.pools[pool] = true
	}
	k.begun.mu.Unlock()
	if known {
		return nil
	}
	return k.Pacing.Assume(pool, u.Profile.Limits(pool))
}

// asked is the request for a key's remaining limits, which is sent once.
type asked struct {
	once  sync.Once
	until time.Time     // the end of waits for the answer
	done  chan struct{} // closed when the request has ended
}

const (
	// askTime bounds the request for limits, askWait how long calls wait for its answer.
	askTime = 10 * time.Second
	askWait = time.Second
)

// ask requests a key's remaining limits from the provider before its first call, if the
// profile has such a request and it is free. The first calls wait for its answer, up to
// askWait.
func (k *credential) ask(ctx context.Context, c *call) {
	u := c.up
	if u.Profile == nil || u.Profile.Ask() == "" || k.Pacing == nil || k.Key == "" {
		return
	}
	k.asked.once.Do(func() {
		k.asked.until, k.asked.done = time.Now().Add(askWait), make(chan struct{})
		if !c.proxy.enter(nil) {
			close(k.asked.done)
			return
		}
		go func() {
			defer c.proxy.leave(nil)
			defer close(k.asked.done)
			if err := k.askFor(c.proxy.draining, u); err != nil {
				c.table.log.Info("a provider could not be asked for its remaining limits",
					slog.String("provider", u.Name), slog.String("provider_key", k.Name), slog.String("error", err.Error()))
			}
		}()
	})
	select {
	case <-k.asked.done:
		return
	default:
	}
	ctx, done := context.WithDeadline(ctx, k.asked.until)
	defer done()
	select {
	case <-k.asked.done:
	case <-ctx.Done():
	}
}

// askFor sends the request. The error holds no content of request or answer.
func (k *credential) askFor(ctx context.Context, u *upstream) error {
	ctx, done := context.WithTimeout(ctx, askTime)
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Description.Upstream.JoinPath(u.Profile.Ask()).String(), nil)
	if err != nil {
		return errAsked
	}
	req.Header.Set("User-Agent", "headway")
	u.Description.SetKey(req, k.Key)
	res, err := u.send.RoundTrip(req)
	if err != nil {
		return errAsked
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxProfiled))
	if err != nil {
		return errAsked
	}
	found := u.Profile.Asked(time.Now(), unzipped(res.Header, body))
	if len(found) == 0 {
		return errors.New("the answer has no limits")
	}
	for pool, limits := range found {
		k.Pacing.Advertise(pool, limits)
	}
	return nil
}

var errAsked = errors.New("no answer")
