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

// shares is what a call shares limits with.
type shares struct {
	as   *http.Request // the call as the provider's profile knows it; nil without one
	pool string
	cost float64

	refusedBy []int // of several keys, by their indexes
	refusals  []int // the statuses
}

// reported is what the provider's profile reads in an answer.
type reported struct {
	report  []byte  // of a body below 400, where the profile has a use for it
	pool    string  // that the answer names
	took    float64 // 0 when it is not said
	account bool    // a refusal is about the whole account
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

// maxProfiled is how much of a body a profile looks at, in bytes.
const maxProfiled = 1 << 20

// profiles reports whether the provider's profile may look into the call's body.
func (c *call) profiles() bool {
	return c.up.Profile != nil && 0 <= c.r.ContentLength && c.r.ContentLength <= min(c.up.MaxBody, maxProfiled) &&
		strings.Contains(c.r.Header.Get("Content-Type"), "json")
}

// preview reads the beginning of an answer in which the provider's profile looks for what
// the call took.
func (a *attempt) preview(res *http.Response) {
	c := a.call
	if c.as != nil && res.StatusCode < http.StatusBadRequest && c.up.Profile.Reads(c.as, c.pool, res.StatusCode, res.Header) {
		res.Body = moving{res.Body, a.watch}
		a.report, _ = wire.Peek(res, maxProfiled)
	}
}

// moving is a body that is read before it is relayed: what comes is no silence.
type moving struct {
	io.ReadCloser
	watch *watch
}

func (m moving) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	m.watch.move()
	return n, err
}

// consult has the provider's profile read the answer.
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

// unzipped is what the beginning of a body holds; nil when that cannot be read.
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
	plain, _ := io.ReadAll(io.LimitReader(r, maxProfiled)) // one that is cut short is looked at as far as it goes
	return plain
}

// begun are the pools that have begun with what the provider's profile publishes.
type begun struct {
	mu    sync.Mutex
	pools map[string]bool
}

// maxBegun is how many of them are remembered.
const maxBegun = 4096

// begin has a pool begin with what is published, when it is used first.
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

// asked is the question for what is left of a key's limits, which is put once.
type asked struct {
	once  sync.Once
	until time.Time     // calls wait for the answer no longer
	done  chan struct{} // closed when there is one, or will be none
}

const (
	// askTime bounds asking for limits, askWait how long calls wait for the answer.
	askTime = 10 * time.Second
	askWait = time.Second
)

// ask has a key begin with what the provider says is left of its limits, where the
// profile says that this can be asked for at no cost. The calls that come first wait for
// the answer, a little.
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
				c.table.log.Info("what is left of a provider's limits could not be asked for",
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

// askFor asks. The error holds nothing of what was sent or answered.
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
