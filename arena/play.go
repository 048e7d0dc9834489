package arena

import (
	"context"
	"net/http"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// Spin is what a rival is charged when it waits for no time or fails without
// sending: in real life its loop would take about that long.
const Spin = time.Microsecond

// Most is how many refusals a run may have: then it is cut, and its figures are
// those up to that instant.
const Most = 100_000

// Sender is one rival at work, shared by the workers of a client.
type Sender interface {
	// Send carries a piece of work as far as the rival goes: its waits, its
	// retries. What it brings back is closed; what counts is what the provider saw.
	Send(*http.Request) (*http.Response, error)
}

// Entry is the outcome of one run.
type Entry struct {
	sim.Result
	// Cut is when the run was cut, for being refused too often; 0 when it was not.
	// Then HorizonS and all figures are those of the time until then.
	Cut time.Duration
	// Spins counts attempts that failed in no time, without being sent.
	Spins int
	// Counts is what the provider counted.
	Counts provider.Counts
}

// Play runs a rival through a scenario. The oracle must be that of the scenario
// and the seed. Call it outside of a bubble.
func Play(t *testing.T, s *scenario.Scenario, seed uint64, r Rival, oracle *sim.Oracle, most int) Entry {
	t.Helper()
	var e Entry
	synctest.Test(t, func(t *testing.T) {
		own := *s // its horizon is shortened when the run is cut
		ledger := sim.NewLedger(&own, r.Name, seed)
		w, err := newWire(s, seed, most, ledger)
		if err != nil {
			t.Fatal(err)
		}
		w.run(t.Context(), r)

		end, best := s.Horizon, oracle
		if w.cut > 0 {
			end, own.Horizon = w.cut, w.cut
			n := sort.Search(len(oracle.Admissions), func(i int) bool { return oracle.Admissions[i] > end })
			best = &sim.Oracle{Admissions: oracle.Admissions[:n]}
		}
		w.model.Advance(end)
		e = Entry{Result: ledger.Result(best, w.model), Cut: w.cut, Spins: w.spins, Counts: w.model.Counts()}
		if w.cut > 0 {
			e.StrangersHarm = nil // the oracle's figure is that of the whole run
		}
	})
	return e
}

// run lets the rival's workers work until the run is over.
func (w *wire) run(ctx context.Context, r Rival) {
	// Not a deadline: some rivals give up early when they see one coming.
	ctx, w.end = context.WithCancel(ctx)
	defer w.end()
	w.ledger.Idle(w.idleUntil(0))

	var workers sync.WaitGroup
	var shared Sender
	for _, c := range w.clients {
		sender := shared
		if sender == nil {
			sender = r.New(w.s, w)
		}
		if w.s.Fleet {
			shared = sender
		}
		if c.open {
			workers.Go(c.arrivals)
		}
		for range w.s.Workload.MaxInFlight {
			workers.Go(func() { c.labour(ctx, sender) })
		}
	}
	// The end may come sooner: nobody waits for this one.
	timer := time.AfterFunc(w.s.Horizon, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.finish()
	})
	workers.Wait()
	timer.Stop()
}

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
