package control

import (
	"math"
	"time"
)

// grid is how many rates a pool tells apart.
const grid = 24

// pool is a token bucket of which the rate is not known exactly: a grid of
// rates, each with the burst and the room that follow from it, and a weight.
type pool struct {
	at    time.Duration
	sync  time.Duration // the newest throttle: there was no room
	since float64       // sent since and not refused
	each  [grid]rated
}

type rated struct {
	rate   float64       // units a second
	size   float64       // burst
	full   time.Duration // when it was full last, or empty for certain
	room   float64
	weight float64 // base, less what contradicts it since
	base   float64 // the weight as of the newest throttle
	worst  float64 // the least room at an attempt that was admitted since
	least  float64 // the least room at an attempt since the mark
	past   float64 // and in the generation before
}

// step is the distance of two rates, in logarithms.
func (p *pool) step() float64 { return math.Log(p.each[1].rate / p.each[0].rate) }

// flow lets the buckets fill.
func (p *pool) flow(now time.Duration) {
	dt := max(0, (now - p.at).Seconds())
	p.at = max(now, p.at)
	for i := range p.each {
		r := &p.each[i]
		if r.room += r.rate * dt; r.room >= r.size {
			r.room, r.full = r.size, p.at
		}
	}
}

func (p *pool) sent(now time.Duration) {
	p.flow(now)
	p.since++
	for i := range p.each {
		r := &p.each[i]
		r.room--
		r.least = min(r.least, r.room)
	}
}

func (p *pool) gaveBack() {
	p.since--
	for i := range p.each {
		p.each[i].room++
	}
}

// turn ends a generation.
func (p *pool) turn() {
	for i := range p.each {
		p.each[i].past, p.each[i].least = p.each[i].least, none
	}
}

// tolerance is how far a room may be off: what the step of the grid has made of
// the time since the room was known.
func (p *pool) tolerance(r *rated) float64 {
	t := (p.at - r.full).Seconds()
	return 0.5 + p.step()/2*r.rate*t
}

// admitted weighs a generation that was admitted as a whole. The worst
// contradiction counts, once: those that follow it are no news.
func (p *pool) admitted() {
	for i := range p.each {
		r := &p.each[i]
		r.worst = min(r.worst, r.past)
		r.weight = r.base * unlikely(-r.worst-0.5, p.tolerance(r), 1e-6)
	}
}

// likelihood is that of a refusal, n units ago.
func (p *pool) likelihood(r *rated, n, floor float64) float64 {
	room := r.room + n
	tol := p.tolerance(r)
	return unlikely(room-0.7, tol, floor) * unlikely(-room-0.5, tol, strange)
}

func (p *pool) weight() float64 {
	sum := 0.0
	for i := range p.each {
		sum += p.each[i].weight
	}
	return sum
}

// quantile is the rate below which a part q of the weight lies, by its index.
func (p *pool) quantile(q float64) int {
	all := p.weight()
	sum := 0.0
	for i := range p.each {
		if sum += p.each[i].weight; sum >= q*all {
			return i
		}
	}
	return grid - 1
}

// mean is the middle of the weight and its spread, in logarithms.
func (p *pool) mean() (rate, spread float64) {
	all := p.weight()
	m, v := 0.0, 0.0
	for i := range p.each {
		m += p.each[i].weight / all * math.Log(p.each[i].rate)
	}
	for i := range p.each {
		d := math.Log(p.each[i].rate) - m
		v += p.each[i].weight / all * d * d
	}
	return math.Exp(m), math.Sqrt(v)
}

// empty: a refusal, n units ago, says that there was no room.
func (p *pool) empty(now time.Duration, n float64) {
	for i := range p.each {
		p.each[i].room = -n
		p.each[i].least, p.each[i].past, p.each[i].worst = none, none, none
		p.each[i].base, p.each[i].full = p.each[i].weight, now
	}
	p.sync, p.since = now, n
}

// regrid spreads the grid anew over low to high.
func (p *pool) regrid(low, high float64) {
	old := p.each
	step := math.Log(old[1].rate / old[0].rate)
	all := p.weight()
	t := (p.at - p.sync).Seconds()
	sum := 0.0
	for i := range p.each {
		r := &p.each[i]
		*r = rated{least: none, past: none, worst: none, full: p.sync}
		r.rate = low * math.Pow(high/low, float64(i)/(grid-1))
		x := math.Log(r.rate/old[0].rate) / step
		k := int(math.Floor(x))
		switch {
		case k < 0:
			o := old[0]
			r.size, r.room, r.weight = o.size, max(-1e6, o.room-(o.rate-r.rate)*t), 1e-3*all
		case k >= grid-1:
			o := old[grid-1]
			r.size = o.size
			r.room, r.weight = min(r.size, o.room+(r.rate-o.rate)*t), max(1e-3*all, o.weight*math.Exp(grid-1-x))
		default:
			f := x - float64(k)
			a, b := old[k], old[k+1]
			r.size = a.size + f*(b.size-a.size)
			r.room = a.room + f*(b.room-a.room)
			r.weight = math.Exp((1-f)*math.Log(a.weight+1e-12) + f*math.Log(b.weight+1e-12))
		}
		sum += r.weight
	}
	for i := range p.each {
		p.each[i].weight *= all / sum
		p.each[i].base = p.each[i].weight
	}
}

// focus puts the grid where the weight is.
func (p *pool) focus(seen float64) {
	m, sd := p.mean()
	sd = max(sd, p.step()/2)
	if width := max(3*sd, 4.5/max(1, seen), 0.004); width*2 < 0.6*p.step()*(grid-1) {
		p.regrid(m*math.Exp(-width), m*math.Exp(width))
	}
}
