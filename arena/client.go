package arena

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// client is one process of a scenario: what it has to send. The wire's mutex
// guards it.
type client struct {
	wire    *wire
	index   int
	sampler *provider.Sampler
	open    bool
	back    []*work // refused: goes first
	queue   []*work // open: what has arrived
	arrived *sync.Cond
	next    time.Duration // open: the next arrival
	pending int           // arrived or taken, neither admitted nor dropped
}

func newClient(w *wire, seed uint64, i int) *client {
	c := &client{wire: w, index: i, sampler: provider.NewSampler(w.s, seed, i), open: w.s.Workload.Kind == scenario.Open}
	c.arrived = sync.NewCond(&w.mu)
	if c.open {
		c.next = w.s.Workload.Awake(c.sampler.Gap())
	}
	return c
}

// arrivals queues the work of an open workload as it arrives, until the run is over.
func (c *client) arrivals() {
	for {
		c.wire.mu.Lock()
		at := c.next
		over := c.wire.over || at >= c.wire.s.Horizon
		c.wire.mu.Unlock()
		if over {
			return
		}
		time.Sleep(at - c.wire.now())
		c.wire.mu.Lock()
		c.queue = append(c.queue, &work{client: c, since: at, cost: c.sampler.Cost()})
		c.pending++
		c.next = c.wire.s.Workload.Awake(at + c.sampler.Gap())
		c.arrived.Signal()
		c.wire.mu.Unlock()
	}
}

// take waits for the next work; nil when the run is over.
func (c *client) take() *work {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	for !c.wire.over && c.wire.now() < c.wire.s.Horizon {
		var from *[]*work
		switch {
		case len(c.back) > 0:
			from = &c.back
		case len(c.queue) > 0:
			from = &c.queue
		case !c.open:
			if now := c.wire.now(); c.awake(now) > now {
				c.pause(c.awake(now) - now)
				continue
			}
			c.pending++
			return &work{client: c, since: c.wire.now(), cost: c.sampler.Cost()}
		default:
			c.arrived.Wait()
			continue
		}
		k := (*from)[0]
		*from = (*from)[1:]
		return k
	}
	return nil
}

// awake is the earliest instant outside the pauses of the workload.
func (c *client) awake(now time.Duration) time.Duration {
	return c.wire.s.Workload.Awake(now)
}

// pause gives the wire's mutex back and waits, at most until the horizon.
func (c *client) pause(d time.Duration) {
	d = min(d, c.wire.s.Horizon-c.wire.now())
	c.wire.mu.Unlock()
	defer c.wire.mu.Lock()
	time.Sleep(d)
}

// settle puts work back that was not admitted.
func (c *client) settle(k *work) {
	if k.last.Admitted {
		return
	}
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.back = append(c.back, k)
	c.arrived.Signal()
}

// labour is one worker. There are as many as attempts may be in flight.
func (c *client) labour(ctx context.Context, sender Sender) {
	for {
		k := c.take()
		if k == nil {
			return
		}
		before := c.wire.now()
		resp, err := sender.Send(c.wire.request.Clone(context.WithValue(ctx, workKey{}, k)))
		if err == nil {
			_ = resp.Body.Close()
		}
		c.settle(k)
		if c.wire.now() == before && ctx.Err() == nil {
			c.spin(before)
		}
	}
}

// spin charges for an attempt that took no time.
func (c *client) spin(now time.Duration) {
	time.Sleep(Spin)
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	if c.wire.over {
		return
	}
	c.wire.spins++
	c.wire.refuse(now)
}

func retryable() Rival {
	return Rival{
		Name: "retryablehttp", Origin: OwnCode, Module: "github.com/hashicorp/go-retryablehttp",
		Configuration: "`NewClient` with its defaults: 4 retries, backoff from 1 s to 30 s, honours Retry-After; no pacing",
		New: func(_ *scenario.Scenario, wire http.RoundTripper) Sender {
			c := retryablehttp.NewClient()
			c.Logger = nil
			c.HTTPClient = &http.Client{Transport: wire}
			return retryableSender{c}
		},
	}
}

type retryableSender struct{ client *retryablehttp.Client }

// Send wraps the request as the library wants it.
func (r retryableSender) Send(req *http.Request) (*http.Response, error) {
	wrapped, err := retryablehttp.FromRequest(req)
	if err != nil {
		return nil, err
	}
	return r.client.Do(wrapped)
}

// turns lets requests start one after another, a gap apart. The gap is asked for just
// before each start, so that a change takes effect at once.
type turns struct {
	turn chan struct{}
	last time.Time
}

func newTurns() *turns { return &turns{turn: make(chan struct{}, 1)} }

// await waits for the request's turn.
func (p *turns) await(req *http.Request, gap func() time.Duration) error {
	select {
	case p.turn <- struct{}{}:
	case <-req.Context().Done():
		return req.Context().Err()
	}
	defer func() { <-p.turn }()
	if !p.last.IsZero() {
		if err := wait(req, time.Until(p.last.Add(gap()))); err != nil {
			return err
		}
	}
	p.last = time.Now()
	return nil
}

// wait sleeps, unless the request is cancelled.
func wait(req *http.Request, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}
