package control

import (
	"math"
	"time"
)

// How sure an inquiry has to be. The longer it is quiet, the less it takes: a
// wrong finding is found out by the next refusal.
const (
	sureOfWindow, minOfWindow = 0.7, 0.35
	sureOfRate, minOfRate     = 0.9, 0.5
	quietRate                 = 300 // attempts
	// A small window is found only after attempts that it let through.
	minSeen, minSize = 5, 50
	// After so many blocks and refusals none of the suspects is it.
	hopelessBlocks, hopelessRefusals = 3, 6
)

// judge ends an inquiry that has found enough.
func (e *Envelope) judge(now time.Duration) {
	b := e.bank
	if b == nil {
		return
	}
	total, rates := b.total(), b.pool.weight()
	found, weight := b.window()
	need := max(minOfWindow, sureOfWindow-0.1*b.pool.since/max(1, found.size))
	if b.flight.weight > max(weight, rates) && b.flight.size >= 1 {
		weight, found = b.flight.weight, limit{kind: Concurrency, size: b.flight.size}
		need = max(minOfWindow, sureOfWindow-0.1*b.pool.since/found.size)
	}
	if rates > weight {
		weight, found = rates, limit{kind: TokenBucket, pacer: b.pool.pacer()}
		need = max(minOfRate, sureOfRate-b.pool.since/quietRate)
	}
	if b.through+b.pool.since < minSeen && found.size < e.unit(found.unit)*minSize {
		return // a few attempts and a refusal may be anything, and a wrong day is long
	}
	collapsed := total < 1e-4
	hopeless := b.blocks >= hopelessBlocks && b.refusals >= hopelessRefusals && found.kind != TokenBucket
	if collapsed || hopeless && weight < need*total {
		// None of them: hold to what went through.
		rate := max(1, b.pool.since+b.through) / max((now-b.began).Seconds(), 1)
		found = limit{kind: TokenBucket, pacer: pacer{low: 0.8 * rate, high: 1.5 * rate, size: 1, burst: 1, sync: now, stretch: firstStretch}}
	} else if weight < need*total {
		return
	}
	found.sureness = min(1, weight/max(total, 1e-9))
	e.adopt(found)
	e.bank = nil
}

// window is the heaviest window, with the weight of its three shapes together.
func (b *bank) window() (found limit, weight float64) {
	for u := range b.windows {
		for i := range b.windows[u] {
			w := &b.windows[u][i]
			family, heaviest := 0.0, sliding
			for s := range shapes {
				family += w[s].weight
				if w[s].weight > w[heaviest].weight {
					heaviest = s
				}
			}
			if family <= weight {
				continue
			}
			// A sliding window is never faster than a fixed one of its size.
			if math.Abs(w[sliding].size-w[heaviest].size) <= 0.02*w[heaviest].size {
				heaviest = sliding
			} else if w[heaviest].weight < 0.7*family {
				weight = 0
				continue
			}
			weight = family
			found = limit{kind: SlidingWindow, unit: u, span: i, shape: heaviest, size: w[heaviest].size}
			for s := range shapes {
				found.sizes[s], found.off[s] = w[s].size, 0.05
			}
			found.off[sliding] = 0
		}
	}
	return found, weight
}

// pacer holds the middle of what the pool has left.
func (p *pool) pacer() pacer {
	return pacer{
		low: p.each[p.quantile(0.2)].rate, high: p.each[p.quantile(0.8)].rate,
		size: p.each[p.quantile(0.5)].size, burst: 1,
		sync: p.sync, since: p.since, stretch: firstStretch,
	}
}

// adopt holds what was found, in the place of what is of the same kind.
func (e *Envelope) adopt(l limit) {
	e.untested = 0
	if l.kind == TokenBucket {
		e.careful(&l.pacer)
	}
	if l.kind == SlidingWindow {
		l.fine = e.units[l.unit].windows[l.span].slid.finer(parts)
	}
	for i := range e.limits {
		o := &e.limits[i]
		if o.kind != l.kind || o.unit != l.unit || o.span != l.span {
			continue
		}
		if l.fine != nil {
			// The same window at another size: others use it too.
			l.margin = min(maxMargin, max(o.margin, math.Abs(o.size-l.size)/o.size/2))
		}
		*o = l
		return
	}
	if len(e.limits) == maxLimits {
		e.limits = append(e.limits[:0], e.limits[1:]...)
	}
	e.limits = append(e.limits, l)
}

// careful slows a rate down where a refusal has long consequences.
func (e *Envelope) careful(p *pacer) {
	b := &e.block
	if b.pain == 0 && b.held > painful && b.held.Seconds() > 4/p.low {
		b.pain = b.longest
	}
	if b.pain > painful {
		p.stretch *= 5
		if e.ramped > 0 {
			p.low, p.high = 0.7*e.ramped, 1.3*e.ramped
		}
	}
}
