package provider

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// The random streams that are derived from one seed. Clients have four each, from
// streamClients on.
const (
	streamStrangers = 1
	streamOverload  = 2
	streamClients   = 1 << 16
	streamEstimates = 1 << 32 // one for each client
)

// z99 is the standard normal distribution's 99th percentile.
const z99 = 2.3263478740408408

// Sampler draws the random quantities of one client: latency, cost and the estimate of it, the
// arrivals of open work and the execution time of batches. The same scenario, seed and client
// give the same numbers. Each of them has its own stream, so that drawing more of one does not
// change the others. It is not safe for concurrent use.
type Sampler struct {
	uplink, total          lognormal
	cost, wrong            lognormal
	gap                    float64 // mean nanoseconds between bursts of arrivals; 0 if there are none
	burst, left            int     // the size of a burst, and the rest of the current one
	latency, costs, arrive rand.PCG
	estimates              rand.PCG

	overhead, perRow time.Duration
	factor           lognormal
	executions       rand.PCG
}

// NewSampler returns the sampler of a client, counted from 0.
func NewSampler(s *scenario.Scenario, seed uint64, client int) *Sampler {
	stream := streamClients + 4*uint64(client)
	l, c := s.Provider.Latency, s.Workload.Cost
	p := &Sampler{
		uplink:  percentiles(l.UplinkP50, l.UplinkP99),
		total:   percentiles(l.P50, l.P99),
		cost:    lognormal{median: c.Mean, sigma: c.Spread},
		latency: *rand.NewPCG(seed, stream),
		costs:   *rand.NewPCG(seed, stream+1),
		arrive:  *rand.NewPCG(seed, stream+2),

		wrong:     lognormal{median: c.Estimate * math.Exp(-c.Error*c.Error/2), sigma: c.Error},
		estimates: *rand.NewPCG(seed, streamEstimates+uint64(client)),
	}
	if c.Spread > 0 {
		p.cost.median = c.Mean * math.Exp(-c.Spread*c.Spread/2) // so that the mean is Mean
	}
	if b := s.Provider.Batch; b != nil {
		p.overhead, p.perRow = b.Overhead, b.PerRow
		p.factor = lognormal{median: 1, sigma: b.Spread}
		p.executions = *rand.NewPCG(seed, stream+3)
	}
	if s.Workload.Kind == scenario.Open {
		p.burst = max(1, s.Workload.Burst)
		p.gap = float64(p.burst) * float64(time.Second) / s.Workload.Rate.PerSecond()
	}
	return p
}

// Latency draws the latencies of one attempt: the uplink, after which it reaches the
// limiter, and the total, after which an admitted one returns. A refused one returns after
// twice the uplink, and the total is never shorter than that. The provider is busy with an
// admitted one for total - 2*uplink.
func (p *Sampler) Latency() (uplink, total time.Duration) {
	uplink = time.Duration(p.uplink.draw(&p.latency))
	total = time.Duration(p.total.draw(&p.latency))
	return uplink, max(total, 2*uplink)
}

// Execution draws the execution time of a batch of rows while no other batch is executed; 0
// in a scenario without batches.
func (p *Sampler) Execution(rows int) time.Duration {
	mean := float64(p.overhead) + float64(p.perRow)*float64(rows)
	return time.Duration(min(mean*p.factor.draw(&p.executions), float64(scenario.MaxHorizon)))
}

// Cost draws one attempt's cost in units, above 0.
func (p *Sampler) Cost() float64 { return p.cost.draw(&p.costs) }

// Estimate draws what the client expects an attempt to cost that costs so much.
func (p *Sampler) Estimate(cost float64) float64 { return cost * p.wrong.draw(&p.estimates) }

// Gap draws the time until the next open work arrives, 0 within a burst; [Never] for a
// backlog.
func (p *Sampler) Gap() time.Duration {
	if p.gap == 0 {
		return Never
	}
	if p.left > 0 {
		p.left--
		return 0
	}
	p.left = p.burst - 1
	return max(1, time.Duration(min(exponential(&p.arrive)*p.gap, float64(scenario.MaxHorizon))))
}

// Slowed returns a latency multiplied by [Verdict.Slow].
func Slowed(latency time.Duration, slow float64) time.Duration {
	return time.Duration(stretch(int64(latency), slow))
}

// lognormal is a distribution; it is constant if sigma is 0.
type lognormal struct{ median, sigma float64 }

func percentiles(p50, p99 time.Duration) lognormal {
	if p99 <= p50 {
		return lognormal{median: float64(p50)}
	}
	return lognormal{median: float64(p50), sigma: math.Log(float64(p99)/float64(p50)) / z99}
}

// draw always takes two numbers from the stream, so that a constant distribution does not
// change later draws.
func (l lognormal) draw(rng *rand.PCG) float64 {
	if l.sigma == 0 {
		_, _ = rng.Uint64(), rng.Uint64()
		return l.median
	}
	// Box-Muller: simple and exact enough.
	radius := math.Sqrt(2 * exponential(rng))
	z := radius * math.Cos(2*math.Pi*uniform(rng))
	return l.median * math.Exp(l.sigma*z)
}

// uniform returns a number in [0, 1).
func uniform(rng *rand.PCG) float64 { return float64(rng.Uint64()>>11) / (1 << 53) }

// exponential returns a number from the exponential distribution with mean 1.
func exponential(rng *rand.PCG) float64 { return -math.Log(1 - uniform(rng)) }
