package arena

import (
	"fmt"
	"math"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// timeRate is a limiter that is told a part of the right rate.
func timeRate(name string, part float64) Rival {
	return Rival{
		Name: name, Origin: Cheat, Module: "golang.org/x/time",
		Configuration: fmt.Sprintf("`rate.NewLimiter` with %g of the rate that the scenario's limits sustain at its start, less the strangers' and divided among the clients, burst 1; refused work is sent again in its turn. No law is told this number", part),
		New: func(s *scenario.Scenario, wire http.RoundTripper) Sender {
			right := part * RightRate(s)
			if !s.Fleet {
				right /= float64(s.Clients)
			}
			return &rateSender{limiter: rate.NewLimiter(rate.Limit(right), 1), wire: wire}
		},
	}
}

type rateSender struct {
	limiter *rate.Limiter
	wire    http.RoundTripper
}

// Send waits for its turn.
func (r *rateSender) Send(req *http.Request) (*http.Response, error) {
	if err := r.limiter.Wait(req.Context()); err != nil {
		return nil, err
	}
	return r.wire.RoundTrip(req)
}

// RightRate is the rate that a scenario's limits sustain before any change, in
// attempts a second for all clients together: that of the tightest limit, less
// what strangers take, and no faster than the owner's ceiling.
func RightRate(s *scenario.Scenario) float64 {
	busy := busyTime(s.Provider.Latency)
	right := math.Inf(1)
	for _, l := range s.Provider.Limits {
		per, ok := l.PerSecond()
		switch {
		case ok:
		case l.Kind == scenario.CostWindow:
			per = l.Units / s.Workload.Cost.Mean / l.Window.Seconds()
		case l.Kind == scenario.BusyTime:
			per = float64(l.Busy) / busy / l.Window.Seconds()
		case l.Kind == scenario.Concurrency:
			per = float64(l.Count) / (busy / float64(time.Second))
		}
		right = min(right, per)
	}
	if s.Provider.Strangers != nil {
		right -= s.Provider.Strangers.Rate.PerSecond()
	}
	ceiling := 1 / s.Owner.Ceiling.Seconds()
	if !s.Fleet {
		ceiling *= float64(s.Clients)
	}
	return max(min(right, ceiling), 1e-6)
}

// busyTime is how long the provider works on a request on average, in
// nanoseconds.
func busyTime(l scenario.Latency) float64 {
	return max(1, mean(l.P50, l.P99)-2*mean(l.UplinkP50, l.UplinkP99))
}

// mean is that of a lognormal distribution.
func mean(p50, p99 time.Duration) float64 {
	const z99 = 2.3263478740408408
	if p99 <= p50 {
		return float64(p50)
	}
	sigma := math.Log(float64(p99)/float64(p50)) / z99
	return float64(p50) * math.Exp(sigma*sigma/2)
}
