package arena

import (
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// slots bounds the requests in flight; the bound may change while others wait. Virtual
// time goes on during a wait on its condition.
type slots struct {
	sync.Mutex
	freed         *sync.Cond
	limit         float64
	used, waiting int
}

func newSlots(limit float64) *slots {
	s := &slots{limit: limit}
	s.freed = sync.NewCond(s)
	return s
}

// places is how many may be in flight.
func (s *slots) places() int { return max(1, int(s.limit)) }

// enter waits for a slot; s is locked.
func (s *slots) enter() {
	for s.used >= s.places() {
		s.waiting++
		s.freed.Wait()
		s.waiting--
	}
	s.used++
}

// leave frees a slot, and wakes as many waiters as there is room for; s is locked.
func (s *slots) leave() {
	s.used--
	for range min(s.waiting, s.places()-s.used) {
		s.freed.Signal()
	}
}

// admitted reports whether a client that looks only at the status was served.
func admitted(resp *http.Response, err error) bool {
	return err == nil && resp.StatusCode == http.StatusOK
}

// autoThrottle is Scrapy's extension, after its documentation ("AutoThrottle
// extension", "Throttling algorithm") at the default settings.
func autoThrottle() Rival {
	return Rival{
		Name: "scrapy-autothrottle", Origin: Described,
		Configuration: "After Scrapy's documentation, its defaults: first delay 5 s, longest 60 s, target concurrency 1, 8 in flight, delays spread by a half either way. The delay moves half way to the latency of each answer; an answer that is no 200 may not shorten it",
		New: func(_ *scenario.Scenario, wire http.RoundTripper) Sender {
			return &throttler{slots: newSlots(8), turns: newTurns(), wire: wire, delay: 5 * time.Second, rng: rand.New(rand.NewPCG(1, 1))}
		},
	}
}

type throttler struct {
	*slots
	turns *turns
	wire  http.RoundTripper
	delay time.Duration
	rng   *rand.Rand
}

// Send waits for a slot and for the delay since the request before.
func (a *throttler) Send(req *http.Request) (*http.Response, error) {
	a.Lock()
	a.enter()
	a.Unlock()
	defer func() {
		a.Lock()
		defer a.Unlock()
		a.leave()
	}()
	if err := a.turns.await(req, a.gap); err != nil {
		return nil, err
	}
	sent := time.Now()
	resp, err := a.wire.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	a.Lock()
	defer a.Unlock()
	target := time.Since(sent) // for a target concurrency of 1
	delay := min(max(target, (a.delay+target)/2), time.Minute)
	if admitted(resp, err) || delay > a.delay {
		a.delay = delay
	}
	return resp, nil
}

// gap is the delay, spread by a half either way.
func (a *throttler) gap() time.Duration {
	a.Lock()
	defer a.Unlock()
	return time.Duration(float64(a.delay) * (0.5 + a.rng.Float64()))
}

// inFlight is a law that bounds what is in flight by the latencies it sees.
type inFlight struct {
	*slots
	wire http.RoundTripper
	// update gives the next limit after an answer: its round trip time, how
	// many were in flight when it was sent, whether it was a drop.
	update func(limit float64, rtt time.Duration, used int, dropped bool) float64
}

// Send waits for a slot and learns from the answer.
func (l *inFlight) Send(req *http.Request) (*http.Response, error) {
	l.Lock()
	l.enter()
	used, sent := l.used, time.Now()
	l.Unlock()
	resp, err := l.wire.RoundTrip(req)
	l.Lock()
	defer l.Unlock()
	l.limit = l.update(l.limit, max(1, time.Since(sent)), used, !admitted(resp, err))
	l.leave()
	return resp, err
}

// vegas is VegasLimit of Netflix's concurrency-limits, after its source's
// documentation and the paper of L. Brakmo and L. Peterson (1995).
func vegas() Rival {
	return Rival{
		Name: "vegas", Origin: Described,
		Configuration: "After the documents of Netflix's concurrency-limits, its defaults: 20 in flight at first, to 1000; alpha 3 log10 of the limit, beta 6 log10, steps of log10; the shortest round trip is measured again every 30 limits' worth of answers. A refusal is a drop",
		New: func(_ *scenario.Scenario, wire http.RoundTripper) Sender {
			var shortest time.Duration
			probe := 0
			return &inFlight{slots: newSlots(20), wire: wire, update: func(limit float64, rtt time.Duration, used int, dropped bool) float64 {
				step := max(1, math.Log10(max(1, limit)))
				if probe++; float64(probe) >= 30*limit {
					probe, shortest = 0, rtt
					return limit
				}
				if shortest == 0 || rtt < shortest {
					shortest = rtt
					return limit
				}
				queue := math.Ceil(limit * (1 - float64(shortest)/float64(rtt)))
				switch {
				case dropped:
					limit -= step
				case 2*float64(used) < limit:
				case queue <= step:
					limit += 6 * step
				case queue < 3*step:
					limit += step
				case queue > 6*step:
					limit -= step
				}
				return min(max(1, limit), 1000)
			}}
		},
	}
}

// gradient2 is Gradient2Limit of the same library. It does not look at drops.
func gradient2() Rival {
	return Rival{
		Name: "gradient2", Origin: Described,
		Configuration: "After the documents of Netflix's concurrency-limits, its defaults: 20 in flight at first and at least, to 200; queue 4, smoothing 0.2, tolerance 1.5, long window 600. It judges by latency alone: a refusal is a fast answer",
		New: func(_ *scenario.Scenario, wire http.RoundTripper) Sender {
			long, n := 0.0, 0.0
			return &inFlight{slots: newSlots(20), wire: wire, update: func(limit float64, rtt time.Duration, used int, _ bool) float64 {
				short := float64(rtt)
				if n++; n <= 10 {
					long += (short - long) / n
				} else {
					long += (short - long) * 2 / (600 + 1)
				}
				if long/short > 2 {
					long *= 0.95
				}
				if float64(used) < limit/2 {
					return limit
				}
				gradient := max(0.5, min(1, 1.5*long/short))
				limit = 0.8*limit + 0.2*(limit*gradient+4)
				return min(max(20, limit), 200)
			}}
		},
	}
}

// adaptiveBucket is ATB of arXiv 2510.04516, as far as it could be had.
func adaptiveBucket() Rival {
	return Rival{
		Name: "atb", Origin: Described,
		Configuration: "ATB of arXiv 2510.04516 (B. Farkiani, F. Liu, P. Crowley, 2025) as INFERRED from its abstract and a review, which is all that could be had: each client has a token bucket whose rate it adapts to what it infers of congestion from refusals alone, as congestion control does. The constants are ours: it starts at the owner's initial interval, adds 0.5/s a second while admitted, halves once for the refusals of one round, keeps from 1/min to the ceiling, burst 1. The paper's own may do better",
		New: func(s *scenario.Scenario, wire http.RoundTripper) Sender {
			return &bucket{turns: newTurns(), wire: wire, rate: 1 / s.Owner.Initial.Seconds(), most: 1 / s.Owner.Ceiling.Seconds()}
		},
	}
}

type bucket struct {
	mu         sync.Mutex
	turns      *turns
	wire       http.RoundTripper
	rate, most float64 // a second
	cut        time.Time
}

// Send waits for a token and adapts the rate to the answer.
func (b *bucket) Send(req *http.Request) (*http.Response, error) {
	if err := b.turns.await(req, b.gap); err != nil {
		return nil, err
	}
	sent := time.Now()
	resp, err := b.wire.RoundTrip(req)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case admitted(resp, err):
		b.rate = min(b.most, b.rate+0.5/b.rate)
	case sent.After(b.cut): // the first refusal since the rate was cut
		b.rate, b.cut = max(1.0/60, b.rate/2), time.Now()
	}
	return resp, err
}

// gap is the time until the bucket has another token.
func (b *bucket) gap() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Duration(float64(time.Second) / b.rate)
}
