package control

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// bank holds every kind of limit that could explain a refusal which nothing
// held explains. The refusal gives each suspect its size: what was in use then.
// So each foretells when there is room again, and what happens weighs it:
//
//   - a refusal where it foretold room, or an admission beyond it, speaks against
//     it, by how far it was wrong (never to nothing: strangers use limits too);
//   - of the admissions since the last refusal the worst counts, once;
//   - of the canaries of one block the first says most: the block may be a
//     penalty that no limit foretells;
//   - a told wait speaks for those that foretold it.
//
// Meanwhile attempts go at the weighted median of the instants foretold: half
// of the weight would be wrong either way, so both outcomes teach.
type bank struct {
	began    time.Duration
	refusals int     // canaries included
	blocks   int     // canaries not
	through  float64 // admitted before the newest refusal
	windows  [2][len(spans)][shapes]suspect
	pool     pool
	flight   suspect
	list     [most]candidate // scratch
}

// suspect is one kind of limit at the size that explains the refusal.
type suspect struct {
	size   float64
	weight float64 // base, less what contradicts it since
	base   float64 // the weight as of the newest refusal
	worst  float64 // the least room at an attempt that was admitted since
	past   float64 // the least at an attempt before the mark, not settled yet
	least  float64 // the least since the mark
}

const (
	none = math.MaxFloat64
	most = 2*int(shapes)*len(spans) + grid + 1
	// strange is the floor under the likelihood of a refusal.
	strange = 1e-2
)

// candidate is when a suspect has room.
type candidate struct {
	at     time.Duration
	weight float64
}

// newBank opens an inquiry. The prior: a window ten times longer than all that
// was seen is a third as likely; seconds, minutes, quarters, hours and days are
// likelier; what was proven admitted before is not new and hardly refused now.
func newBank(e *Envelope, now time.Duration, o Observation, n, cost float64) *bank {
	b := &bank{began: now, refusals: 1}
	b.each(func(s *suspect) { *s = suspect{worst: none, past: none, least: none} })
	after := [2]float64{n, cost}
	for u, used := range e.units {
		if used == nil {
			continue
		}
		unit := unitsOf(u, o.Estimate)
		for i := range spans {
			for s := range shapes {
				size := used.windows[i].used(s) - after[u]
				if size <= 0 {
					continue
				}
				h := &b.windows[u][i][s]
				h.size = size
				h.weight = novelty(used.peaks[i][s], size, unit) * prior(spans[i], now-e.began)
			}
		}
	}
	b.suspectRates(e, now, n)
	b.flight.size = e.sent.others(o.Sent)
	if b.flight.size >= 1 {
		b.flight.weight = 0.6 * min(1, b.flight.size/5) * novelty(e.flight, b.flight.size, 1)
	}
	b.commit()
	return b
}

// prior is how likely a window is before anything is known.
func prior(span, seen time.Duration) float64 {
	p := 2 / float64(len(spans)*int(shapes))
	if seen < span {
		p *= math.Sqrt(seen.Seconds() / span.Seconds())
	}
	switch usual := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}; {
	case slices.Contains(usual, span):
		p *= 3
	case span == 15*time.Minute:
		p *= 2
	}
	return p
}

// novelty is how likely a refusal is at a use, given what was proven admitted.
func novelty(p peak, used, unit float64) float64 {
	return unlikely(float64(p.proven)-used, unit+0.003*float64(p.proven), 1e-3)
}

// suspectRates spreads the pool of buckets over three thousand times in rate,
// each with the burst that it must have had.
func (b *bank) suspectRates(e *Envelope, now time.Duration, n float64) {
	b.pool.at, b.pool.sync = now, now
	top := min(1e9/float64(e.params.Ceiling), 3e9/e.speed)
	for i := range b.pool.each {
		rate := top * math.Pow(3000, -float64(grid-1-i)/float64(grid-1))
		r := &b.pool.each[i]
		*r = rated{rate: rate, size: e.burst(rate, Never, n), room: -n, full: now, worst: none, past: none, least: none}
		r.weight = 1e-3
		for k := range spans {
			w, p := &e.units[0].windows[k], e.units[0].peaks[k][sliding]
			beyond := rate * spans[k].Seconds()
			if burst := w.slid.sum - n - beyond; burst > 0 && burst >= float64(p.proven)-beyond-0.5-0.003*burst {
				r.weight = 1
			}
		}
		r.weight *= 2 / float64(grid) * min(1, 30*rate/r.size) // more than half a minute saved up is rare
	}
}

// burst is what a bucket of a rate held when it was empty n attempts ago, by
// what was used in the windows up to a length.
func (e *Envelope) burst(rate float64, over time.Duration, n float64) float64 {
	size := 1.0
	for k := range spans {
		if spans[k] > max(over, 2*time.Second) {
			break
		}
		size = max(size, e.units[0].windows[k].slid.sum-n-rate*spans[k].Seconds())
	}
	return size
}

// unlikely is how likely something is that contradicts a suspect by gap units.
func unlikely(gap, tolerance, floor float64) float64 {
	if gap <= 0 {
		return 1
	}
	return max(floor, math.Exp(-gap/tolerance))
}

func (b *bank) each(f func(s *suspect)) {
	for u := range b.windows {
		for i := range b.windows[u] {
			for k := range b.windows[u][i] {
				f(&b.windows[u][i][k])
			}
		}
	}
	f(&b.flight)
}

func (b *bank) total() float64 {
	sum := b.pool.weight()
	b.each(func(s *suspect) { sum += s.weight })
	return sum
}

// commit makes the weights, scaled to a sum of one, what later contradictions
// start from. None falls to nothing.
func (b *bank) commit() {
	const least = 1e-9
	sum := b.total()
	if !(sum > 0) {
		sum = 1
	}
	b.each(func(s *suspect) {
		if s.size > 0 {
			s.weight = max(s.weight/sum, least)
		}
		s.base, s.worst = s.weight, none
	})
	for i := range b.pool.each {
		r := &b.pool.each[i]
		r.weight = max(r.weight/sum, least)
		r.base, r.worst = r.weight, none
	}
}

// turn ends a generation; forget drops what is not settled.
func (b *bank) turn() {
	b.each(func(s *suspect) { s.past, s.least = s.least, none })
	b.pool.turn()
}

func (b *bank) forget() {
	b.turn()
	b.turn()
}

// sent notes how much room each suspect foretold to an attempt.
func (b *bank) sent(e *Envelope, now time.Duration, cost float64) {
	b.pool.sent(now)
	for u, used := range e.units {
		if used == nil {
			continue
		}
		for i := range spans {
			for s := range shapes {
				h := &b.windows[u][i][s]
				h.least = min(h.least, h.size-used.windows[i].used(s)-unitsOf(u, cost))
			}
		}
	}
	b.flight.least = min(b.flight.least, b.flight.size-float64(e.flying)-1)
}

// certain: everything that was under way at the throttle is settled, so what a
// fixed window holds is known to the unit.
func (b *bank) certain(e *Envelope, now time.Duration) {
	for u, used := range e.units {
		if used == nil {
			continue
		}
		for i := range spans {
			w, h := &used.windows[i], &b.windows[u][i]
			if now < w.firstEnd && w.firstEnd-w.span < e.block.at && w.firstUsed < h[first].size {
				if h[sliding].size == h[first].size {
					h[sliding].size = max(1, w.firstUsed)
				}
				h[first].size = max(1, w.firstUsed)
			}
			if w.alignedUsed < h[aligned].size && w.period == int64((e.block.at+e.params.Phase)/w.span) {
				h[aligned].size = max(1, w.alignedUsed)
			}
		}
	}
}

// admitted weighs a generation that was admitted as a whole.
func (b *bank) admitted(e *Envelope) {
	for u, used := range e.units {
		if used == nil {
			continue
		}
		for i := range spans {
			for s := range shapes {
				h := &b.windows[u][i][s]
				unit := 1.0
				if u == 1 {
					unit += 0.005 * h.size
				}
				h.worst = min(h.worst, h.past)
				h.weight = h.base * unlikely(-h.worst-0.3*unit, 0.3*unit+used.windows[i].doubt(s), 1e-6)
			}
		}
	}
	b.pool.admitted()
	f := &b.flight
	f.worst = min(f.worst, f.past)
	f.weight = f.base * unlikely(-f.worst-0.5, 1.5, 1e-6)
	e.judge(e.clock)
}

// refused weighs a refusal, after which n attempts were sent that took cost.
func (b *bank) refused(e *Envelope, now time.Duration, o Observation, n, cost float64) {
	canary := e.block.canary
	floor := strange
	if canary {
		floor = 0.3
		if e.block.refused == 2 {
			floor = 0.1
		}
	}
	b.refusals++
	after := [2]float64{n, cost}
	for u, used := range e.units {
		if used == nil {
			continue
		}
		unit := unitsOf(u, o.Estimate)
		for i := range spans {
			for s := range shapes {
				h := &b.windows[u][i][s]
				room := h.size - used.windows[i].used(s) + after[u]
				h.weight *= unlikely(room-unit+0.5, 0.5*unit+0.01*h.size, floor)
				if canary {
					continue
				}
				if doubt := used.windows[i].doubt(s); room+doubt < 0 {
					h.weight *= unlikely(-room-doubt, 0.7*unit+0.01*h.size, strange)
				}
				if room > 0 && h.size > room+unit {
					h.size -= room
				}
			}
		}
	}
	b.refusedRates(now, canary, n, floor)
	b.flight.weight *= unlikely(b.flight.size-e.sent.others(o.Sent)-0.5, 0.7, floor)
	b.commit()
	if !canary {
		seen := b.pool.since - n
		b.through += seen
		b.blocks++
		b.pool.empty(now, n)
		b.pool.focus(seen)
	}
}

func (b *bank) refusedRates(now time.Duration, canary bool, n, floor float64) {
	b.pool.flow(now)
	passed := (now - b.pool.sync).Seconds()
	for i := range b.pool.each {
		r := &b.pool.each[i]
		switch {
		case !canary:
			r.weight *= b.pool.likelihood(r, n, floor)
		case 1/r.rate < 0.7*passed:
			r.weight *= floor
		}
	}
}

// told weighs what the provider says of when there is room again; it is rounded
// up to a second, mostly.
func (b *bank) told(e *Envelope, now, after time.Duration) {
	said := after.Seconds() - 0.5
	agree := func(seconds float64) float64 {
		return unlikely(math.Abs(seconds-said)-0.7, 0.5+0.02*after.Seconds(), 0.02)
	}
	for u, used := range e.units {
		if used == nil {
			continue
		}
		for i := range spans {
			for s := range shapes {
				h := &b.windows[u][i][s]
				unit := 1.0
				if u == 1 {
					unit = h.size / 1000
				}
				h.weight *= agree((used.windows[i].free(s, h.size-unit, now, e.params.Phase) - now).Seconds())
			}
		}
	}
	for i := range b.pool.each {
		b.pool.each[i].weight *= agree(1 / b.pool.each[i].rate)
	}
	if b.flight.size > 0 {
		b.flight.weight *= agree(e.latency / b.flight.size / 1e9)
	}
	b.commit()
}

// free is the weighted median of the instants at which there is room; where
// refusals have long consequences, nearly all have to agree.
func (b *bank) free(e *Envelope, now time.Duration, cost float64) time.Duration {
	share := 0.5
	if e.block.pain > painful {
		share = 0.9
	}
	return quantile(b.foretell(e, now, cost), share)
}

// between is the median of the instants from low to high, and from now on when
// it is about the first rung; Never when hardly any weight lies there.
func (b *bank) between(e *Envelope, now, low, high time.Duration) time.Duration {
	list := b.foretell(e, now, 1)
	some := list[:0]
	all, sum := 0.0, 0.0
	for _, c := range list {
		all += c.weight
		if c.at > high || c.at < low && e.block.rung > 0 {
			continue
		}
		c.at = max(c.at, low)
		some = append(some, c)
		sum += c.weight
	}
	if sum < 0.02*all {
		return Never
	}
	return quantile(some, 0.55)
}

// foretell lists when each suspect has room.
func (b *bank) foretell(e *Envelope, now time.Duration, cost float64) []candidate {
	list := b.list[:0]
	for u, used := range e.units {
		if used == nil {
			continue
		}
		for i := range spans {
			for s := range shapes {
				if h := &b.windows[u][i][s]; h.weight > 0 {
					at := used.windows[i].free(s, h.size-unitsOf(u, cost), now, e.params.Phase)
					list = append(list, candidate{at, h.weight})
				}
			}
		}
	}
	b.pool.flow(now)
	for i := range b.pool.each {
		r := &b.pool.each[i]
		at := now
		if r.room < 1 {
			at += time.Duration((1-r.room)/r.rate*1e9) + 1
		}
		list = append(list, candidate{at, r.weight})
	}
	if b.flight.weight > 0 {
		at := now
		if float64(e.flying)+1 > b.flight.size && e.flying > 0 {
			at = Never
		}
		list = append(list, candidate{at, b.flight.weight})
	}
	return list
}

// quantile is the instant by which a share of the weight has come.
func quantile(list []candidate, share float64) time.Duration {
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.at, b.at) })
	total := 0.0
	for i := range list {
		total += list[i].weight
	}
	sum := 0.0
	for i := range list {
		if sum += list[i].weight; sum >= share*total {
			return list[i].at
		}
	}
	return 0
}
