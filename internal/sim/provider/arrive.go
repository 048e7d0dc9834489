package provider

import (
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// Arrive decides on an attempt that reaches the limiter at now. client is the index of the
// client in the scenario; clients are counted separately and otherwise equal. cost is in
// units. busy is how long the provider works on it, before Slow; it is at least zero
// ([Sampler.Latency] draws it).
func (m *Model) Arrive(now time.Duration, client int, cost float64, busy time.Duration) Verdict {
	return m.ArriveIn(now, client, 0, cost, busy)
}

// ArriveIn is like [Model.Arrive] for an attempt of a pool, counted from 1, to which the
// pool's limits apply in addition to the account's; 0 means no pool.
func (m *Model) ArriveIn(now time.Duration, client, pool int, cost float64, busy time.Duration) Verdict {
	m.advance(now)
	v := m.decide(demand{cost: milli(cost), busy: int64(max(0, busy)), pool: pool})
	m.counts.Add(v)
	if client >= 0 && client < len(m.clients) {
		m.clients[client].Add(v)
	}
	return v
}

// Add counts a verdict.
func (c *Counts) Add(v Verdict) {
	switch {
	case v.Admitted:
		c.Admitted++
	case v.Throttled:
		c.Throttled++
	default:
		c.Failed++
	}
}

// decide is like Arrive for the credential's own attempts, at m.now.
func (m *Model) decide(d demand) Verdict {
	if m.suspended {
		return Verdict{Suspended: true, Status: 403, Slow: 1, Index: -1}
	}
	v, ok := m.faults()
	if !ok {
		return v
	}
	v.Slow *= m.arrived()
	d.held = stretch(d.busy, v.Slow)
	if m.now < m.block.until {
		v.Limit = Blocked
		m.reject(d)
		if !m.block.met {
			m.block.met = true
			m.block.pushed++
		}
		if !m.cfg.Provider.Penalty.Fixed {
			m.punish()
		}
	} else if at, i := m.worst(d); at > m.now {
		v.Limit, v.Index = m.limits[i].name, m.limits[i].index
		m.reject(d)
		if m.cfg.Provider.Penalty != nil {
			m.block.started++
			m.block.met = false
		}
		m.punish()
	} else {
		m.take(d)
		v.Admitted, v.Status = true, 200
		return v
	}
	v.Throttled, v.Status = true, m.cfg.Provider.Throttle.Status
	m.retryAfter(&v, d)
	m.countThrottle()
	return v
}

// stretch multiplies nanoseconds and saturates.
func stretch(busy int64, factor float64) int64 {
	if factor == 1 { // exact without slowness
		return busy
	}
	return int64(min(float64(busy)*factor, float64(scenario.MaxHorizon)))
}

// faults returns the effect of current faults; ok means that the attempt goes on to the
// limits.
func (m *Model) faults() (v Verdict, ok bool) {
	v = Verdict{Slow: 1, Index: -1}
	for _, f := range m.cfg.Provider.Faults {
		if !f.Covers(m.now) {
			continue
		}
		switch f.Kind {
		case scenario.Outage:
			v.Status = 503
			return v, false
		case scenario.Reset:
			v.Reset = true
			return v, false
		case scenario.Overload:
			if uniform(&m.overload) < f.Share {
				v.Overloaded, v.Status = true, 503
				return v, false
			}
		case scenario.Slow:
			v.Slow *= scenario.SlowFactor
		}
	}
	return v, true
}

// arrived counts an arrival at every knee and returns the slow-down.
func (m *Model) arrived() float64 {
	slow := 1.0
	for i := range m.knees {
		k := &m.knees[i]
		if at, ok := k.recent.newest(k.limit); ok && at > m.now-time.Second {
			slow *= k.factor
		}
		k.recent.add(m.now)
	}
	return slow
}

func (k *knee) scale(factor float64) { k.limit = max(1, int(k.rate*factor)) }

// worst returns the limit that frees last, and when.
func (m *Model) worst(d demand) (at time.Duration, index int) {
	at = m.now
	for i := range m.limits {
		if !m.limits[i].bears(d) {
			continue
		}
		if t := m.limits[i].free(m.now, d); t > at {
			at, index = t, i
		}
	}
	return at, index
}

// bears reports whether the limit applies to the demand.
func (l *limit) bears(d demand) bool { return l.pool == 0 || l.pool == d.pool }

func (m *Model) take(d demand) {
	for i := range m.limits {
		if m.limits[i].bears(d) {
			m.limits[i].take(m.now, d)
		}
	}
}

func (m *Model) reject(d demand) {
	if !m.cfg.Provider.Throttle.CountsRejected {
		return
	}
	for i := range m.limits {
		if m.limits[i].bears(d) {
			m.limits[i].reject(m.now, d)
		}
	}
}

// punish starts or lengthens the block after a refusal at m.now.
func (m *Model) punish() {
	p := m.cfg.Provider.Penalty
	if p == nil {
		return
	}
	b := &m.block
	if b.length == 0 || m.now-b.until >= p.Forgive && m.now >= b.until {
		b.length = p.Base
	} else {
		b.length = time.Duration(min(float64(b.length)*p.Factor, float64(p.Max)))
	}
	b.until = m.now + b.length
}

func (m *Model) countThrottle() {
	sus := m.cfg.Provider.Suspend
	if sus == nil {
		return
	}
	m.throttles.add(m.now)
	if first, full := m.throttles.newest(sus.Throttles); full && first > m.now-sus.Within {
		m.suspended = true
	}
}

// retryAfter sets the advertised wait of a throttle, in the scenario's style.
func (m *Model) retryAfter(v *Verdict, d demand) {
	said := m.cfg.Provider.Throttle
	style := said.RetryAfter
	if style == scenario.RetryNone {
		return
	}
	at, _ := m.worst(d)
	wait := max(at, m.block.until) - m.now
	if said.RetryAfterConstant > 0 {
		wait = said.RetryAfterConstant
	}
	if said.RetryAfterFactor > 0 {
		wait = time.Duration(stretch(int64(wait), said.RetryAfterFactor))
	}
	switch style {
	case scenario.RetrySeconds:
		wait = ceil(wait, time.Second)
	case scenario.RetryMillis:
		wait = ceil(wait, time.Millisecond)
	case scenario.RetryDate:
		// The date is a whole second of the wall clock, not of the scenario.
		within := time.Duration(m.start.Nanosecond()) + m.now%time.Second
		wait = ceil(wait+within, time.Second) - within
	case scenario.RetryExact, scenario.RetryNone:
	}
	v.RetryAfter, v.HasRetryAfter = wait, true
}

// ceil rounds d up to a multiple of unit.
func ceil(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit * unit }
