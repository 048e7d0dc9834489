package arena

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"sort"
	"sync"
	"syscall"
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

// errOver is what an attempt gets after the end of the run.
var errOver = errors.New("arena: the run is over")

// work is one thing to be sent, from its arrival until it is admitted.
type work struct {
	client *client
	since  time.Duration
	cost   float64
	total  time.Duration    // the whole latency, drawn at the first try
	last   provider.Verdict // of the newest try
}

type workKey struct{}

// wire is the provider behind an http.RoundTripper, and the ledger of the run.
// Its mutex is never held across a wait.
type wire struct {
	s       *scenario.Scenario
	most    int // refusals at which the run is cut
	began   time.Time
	request *http.Request
	end     context.CancelFunc

	mu      sync.Mutex
	model   *provider.Model
	ledger  *sim.Ledger
	clients []*client
	refused int // also counts spins
	spins   int
	over    bool
	cut     time.Duration // when the run was cut; 0 when it was not
	fields  []provider.Field
}

func newWire(s *scenario.Scenario, seed uint64, most int, ledger *sim.Ledger) (*wire, error) {
	w := &wire{s: s, most: most, began: time.Now(), ledger: ledger}
	model, err := provider.NewAt(s, seed, w.began)
	if err != nil {
		return nil, err
	}
	w.model = model
	w.request = &http.Request{
		Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "provider.invalid", Path: "/"}, Host: "provider.invalid",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
	}
	for i := range s.Clients {
		w.clients = append(w.clients, newClient(w, seed, i))
	}
	return w, nil
}

// now is the instant since the run began.
func (w *wire) now() time.Duration { return time.Since(w.began) }

// RoundTrip carries one attempt. The request's context holds its work.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	k, ok := req.Context().Value(workKey{}).(*work)
	if !ok {
		return nil, errors.New("arena: a request without its work: the rival has made one of its own")
	}
	uplink, total, err := w.depart(k)
	if err != nil {
		return nil, err
	}
	time.Sleep(uplink)
	resp, back, err := w.arrive(req, k, uplink, total)
	time.Sleep(back)
	return resp, err
}

// depart notes that an attempt leaves and draws its times. How long the work
// itself takes is drawn once, as the simulator does.
func (w *wire) depart(k *work) (uplink, total time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if w.over || now >= w.s.Horizon {
		return 0, 0, errOver
	}
	uplink, total = k.client.sampler.Latency()
	if k.total == 0 {
		k.total = total
	}
	ceiling := k.client.index
	if w.s.Fleet {
		ceiling = 0
	}
	w.ledger.Sent(now, ceiling)
	return uplink, max(k.total, 2*uplink), nil
}

// arrive is the provider's side: the answer, and how long it takes to be back.
func (w *wire) arrive(req *http.Request, k *work, uplink, total time.Duration) (*http.Response, time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if w.over || now >= w.s.Horizon {
		return nil, 0, errOver
	}
	v := w.model.Arrive(now, k.client.index, k.cost, total-2*uplink)
	k.last = v
	if v.Admitted {
		k.client.pending--
	}
	w.ledger.Arrived(now, k.client.index, v, k.since)
	back := uplink
	switch {
	case v.Admitted:
		back = provider.Slowed(total, v.Slow) - uplink
		w.ledger.Idle(w.idleUntil(now))
	case v.Suspended:
		w.finish() // there is nothing more to be had
	default:
		w.refuse(now)
	}
	if v.Reset {
		return nil, back, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	w.fields = w.model.Fields(v, w.fields[:0])
	header := make(http.Header, len(w.fields))
	for _, f := range w.fields {
		header[textproto.CanonicalMIMEHeaderKey(f.Name)] = []string{f.Value}
	}
	return &http.Response{
		StatusCode: v.Status, Status: http.StatusText(v.Status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: http.NoBody, Request: req,
	}, back, nil
}

// refuse counts towards the cut.
func (w *wire) refuse(now time.Duration) {
	if w.refused++; w.refused >= w.most && !w.over {
		w.cut = max(now, 1)
		w.finish()
	}
}

// finish ends the run.
func (w *wire) finish() {
	w.over = true
	w.end()
	for _, c := range w.clients {
		c.arrived.Broadcast()
	}
}

// idleUntil is when there is work that was not admitted yet.
func (w *wire) idleUntil(now time.Duration) time.Duration {
	at := provider.Never
	for _, c := range w.clients {
		switch {
		case c.pending > 0:
			return now
		case c.open:
			at = min(at, c.next)
		default:
			at = min(at, c.awake(now))
		}
	}
	return at
}
