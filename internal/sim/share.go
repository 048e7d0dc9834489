package sim

import (
	"math"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// share is what an informed client takes for its part of one limit: the limit as
// it is now, less a margin and the strangers' mean, divided by the clients. What
// it has used is booked when it may reach the provider at the latest, and held
// against when it may at the earliest.
type share struct {
	limit   scenario.Limit
	pool    int // its pool, from 1; 0 is the account
	margin  Margin
	clients float64
	index   float64 // which of the clients
	crowd   float64 // strangers a second
	cost    float64 // mean units an attempt
	served  float64 // mean seconds of work, of an admitted attempt
	transit float64 // the mean part of an attempt's time that is spent on the way

	known bool

	// A bucket is kept as the instant at which it is full; all times are arrivals.
	full, every time.Duration
	burst       float64
	// A window is kept as what was used.
	used    float64
	size    float64
	window  time.Duration
	entries []usage
	head    int
	ended   time.Duration // a fixed window: when the present one is over
	spilled float64       // and what may arrive in the next one
	aligned bool
}

type usage struct {
	at     time.Duration
	amount float64
}

// least is the smallest part of a client's even share that strangers and margin leave.
const least = 0.05

// bears says whether an attempt of the pool meets the limit.
func (h *share) bears(pool int) bool { return h.pool == 0 || h.pool == pool }

// set brings the numbers up to a factor of the limits' changes.
func (h *share) set(factor float64) {
	l := &h.limit
	part := func(whole, strangers float64) float64 {
		return max(least*whole*factor, whole*factor*(1-h.margin.Part)-strangers) / h.clients
	}
	switch l.Kind {
	case scenario.TokenBucket:
		h.every = time.Duration(float64(time.Second) / part(l.Rate.PerSecond(), h.crowd))
		h.burst = max(1, math.Floor(float64(l.Burst)*factor*(1-h.margin.Part)/h.clients))
	case scenario.Slowdown:
		h.fit(part(l.Knee.PerSecond(), h.crowd), time.Second)
	case scenario.FixedWindow, scenario.SlidingWindow:
		h.fit(part(float64(l.Count), h.crowd*l.Window.Seconds()), l.Window)
		h.aligned = l.Kind == scenario.FixedWindow && h.window == l.Window && l.Align == scenario.AlignEpoch
	case scenario.CostWindow:
		h.size, h.window = part(l.Units, h.crowd*h.cost*l.Window.Seconds()), l.Window
	case scenario.BusyTime:
		h.size, h.window = part(l.Busy.Seconds(), h.crowd*h.served*l.Window.Seconds()), l.Window
	case scenario.Concurrency:
		// What is on the way does not count at the provider. Whole places are dealt
		// out to the clients in turn.
		whole := float64(l.Count)*factor*(1-h.margin.Part) - h.crowd*h.served
		whole *= 1 + (1-h.margin.Guard)*h.transit/(1-h.transit)
		h.size = max(1, math.Floor((math.Floor(whole)+h.clients-1-h.index)/h.clients))
	}
}

// fit makes a window of whole attempts: one that holds few of a client's is as
// much longer as it has to be rounded up.
func (h *share) fit(size float64, window time.Duration) {
	h.size, h.window = math.Floor(size), window
	if size < 20 {
		h.size = math.Ceil(size)
		h.window = time.Duration(float64(window) * h.size / size)
	}
}

// rate is how many attempts a second the share sustains.
func (h *share) rate() float64 {
	switch h.limit.Kind {
	case scenario.TokenBucket:
		return float64(time.Second) / float64(h.every)
	case scenario.Concurrency:
		return h.size / h.served
	case scenario.CostWindow:
		return h.size / h.cost / h.window.Seconds()
	case scenario.BusyTime:
		return h.size / h.served / h.window.Seconds()
	case scenario.FixedWindow, scenario.SlidingWindow, scenario.Slowdown:
	}
	return h.size / h.window.Seconds()
}

// amount is what an attempt takes.
func (h *share) amount(cost float64) float64 {
	switch h.limit.Kind {
	case scenario.CostWindow:
		return min(cost, h.size)
	case scenario.BusyTime:
		return min(h.served, h.size)
	case scenario.TokenBucket, scenario.FixedWindow, scenario.SlidingWindow, scenario.Concurrency, scenario.Slowdown:
	}
	return 1
}

// free is the earliest arrival, at or after at, that the share has room for.
func (h *share) free(at time.Duration, cost float64, inFlight int) time.Duration {
	switch h.limit.Kind {
	case scenario.TokenBucket:
		return max(at, h.full-time.Duration((h.burst-1)*float64(h.every)))
	case scenario.Concurrency:
		if float64(inFlight) >= h.size {
			return pacing.Forever
		}
		return at
	case scenario.FixedWindow:
		if h.window == h.limit.Window {
			return h.freeFixed(at)
		}
	case scenario.SlidingWindow, scenario.CostWindow, scenario.BusyTime, scenario.Slowdown:
	}
	h.expire(at)
	over := h.used + h.amount(cost) - h.size
	for i := h.head; over > 1e-9 && i < len(h.entries); i++ {
		at = max(at, h.entries[i].at+h.window)
		over -= h.entries[i].amount
	}
	return at
}

// freeFixed waits for the end of a window that is full.
func (h *share) freeFixed(at time.Duration) time.Duration {
	if at >= h.ended || h.used < h.size {
		return at
	}
	return h.ended
}

// take books an attempt that reaches the provider from early to late.
func (h *share) take(early, late time.Duration, cost float64) {
	switch {
	case h.limit.Kind == scenario.TokenBucket:
		h.full = max(h.full, late) + h.every
	case h.limit.Kind == scenario.Concurrency:
	case h.limit.Kind == scenario.FixedWindow && h.window == h.limit.Window:
		if early >= h.ended {
			h.used, h.spilled = h.spilled, 0
			h.ended = late + h.window
			if h.aligned {
				h.ended = early - early%h.window + h.window
			}
		}
		h.used++
		if late >= h.ended {
			h.spilled++
		}
	default:
		h.book(late, h.amount(cost))
	}
}

// correct books what an attempt took beyond what was thought.
func (h *share) correct(now time.Duration, amount float64) { h.book(now, amount) }

func (h *share) book(at time.Duration, amount float64) {
	if n := len(h.entries); n > h.head {
		at = max(at, h.entries[n-1].at)
	}
	h.used += amount
	h.entries = append(h.entries, usage{at, amount})
}

func (h *share) expire(at time.Duration) {
	for h.head < len(h.entries) && h.entries[h.head].at+h.window <= at {
		h.used -= h.entries[h.head].amount
		h.head++
	}
	if h.head*2 > len(h.entries) && h.head > 64 {
		h.entries = append(h.entries[:0], h.entries[h.head:]...)
		h.head = 0
	}
	if h.head == len(h.entries) {
		h.used = 0 // no rest of rounding
	}
}

// refused says that the limit was used up when an attempt arrived.
func (h *share) refused(at time.Duration) {
	switch h.limit.Kind {
	case scenario.TokenBucket:
		h.full = max(h.full, at+time.Duration(h.burst*float64(h.every)))
	case scenario.FixedWindow:
		if h.window == h.limit.Window && at < h.ended {
			h.used = max(h.used, h.size)
		}
	case scenario.SlidingWindow, scenario.CostWindow, scenario.BusyTime, scenario.Concurrency, scenario.Slowdown:
	}
}

// newShares are a client's shares of the limits.
func newShares(s *scenario.Scenario, margin Margin, client int) []share {
	p := &s.Provider
	up := lognormalMean(p.Latency.UplinkP50, p.Latency.UplinkP99)
	total := max(lognormalMean(p.Latency.P50, p.Latency.P99), 2*up)
	var shares []share
	for pool, l := range p.EachLimit {
		h := share{
			pool: pool, limit: l, margin: margin, clients: float64(s.Clients), index: float64(client),
			cost: s.Workload.Cost.Mean, served: max(1e-6, total-2*up), transit: min(0.9, 2*up/max(total, 1e-9)),
		}
		if p.Strangers != nil {
			h.crowd = p.Strangers.Rate.PerSecond()
		}
		h.set(1)
		shares = append(shares, h)
	}
	return shares
}

// lognormalMean is in seconds.
func lognormalMean(p50, p99 time.Duration) float64 {
	if p99 <= p50 || p50 <= 0 {
		return p50.Seconds()
	}
	sigma := math.Log(float64(p99)/float64(p50)) / 2.3263478740408408
	return p50.Seconds() * math.Exp(sigma*sigma/2)
}

// arrivals is when an attempt that leaves at 0 arrives, at the earliest and at the
// latest, under a margin: the median for both without a guard, the first and the
// last hundredth with a whole one.
func arrivals(l scenario.Latency, guard float64) (early, late time.Duration) {
	if l.UplinkP50 <= 0 {
		return 0, 0
	}
	ratio := math.Pow(float64(max(l.UplinkP99, l.UplinkP50))/float64(l.UplinkP50), guard)
	mid := float64(l.UplinkP50)
	return time.Duration(mid / ratio), min(provider.Never/4, time.Duration(mid*ratio))
}
