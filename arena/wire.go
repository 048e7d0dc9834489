package arena

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

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
