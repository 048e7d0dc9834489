package control

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

const envelopeVersion = 1

// finding is a limit as it is stored.
type finding struct {
	Kind     string     `json:"kind"`
	Unit     int        `json:"unit,omitempty"`
	WindowMS int64      `json:"window_ms,omitempty"`
	Shape    shape      `json:"shape,omitempty"`
	Size     float64    `json:"size,omitempty"`
	Sizes    [3]float64 `json:"sizes,omitzero"`
	Margin   float64    `json:"margin,omitempty"`
	Low      float64    `json:"low,omitempty"`
	High     float64    `json:"high,omitempty"`
	Burst    float64    `json:"burst,omitempty"`
	Stretch  float64    `json:"stretch,omitempty"`
	Sureness float64    `json:"sureness,omitempty"`
	Hits     int        `json:"hits,omitempty"`
}

// findings are what a warm start needs to know.
type findings struct {
	Limits   []finding     `json:"limits,omitempty"`
	Patience float64       `json:"patience"`
	Pain     time.Duration `json:"pain_ns,omitempty"`
}

// State is the interval, never slower than the initial one, and the limits that
// are held. What headers told is not stored: the next response tells it again.
func (e *Envelope) State() State {
	f := findings{Patience: e.patience, Pain: e.block.pain}
	for i := range e.limits {
		l := &e.limits[i]
		x := finding{Kind: l.kind.String(), Unit: l.unit, Margin: l.margin, Sureness: l.sureness, Hits: l.hits}
		switch l.kind {
		case TokenBucket:
			p := &l.pacer
			x.Low, x.High, x.Burst, x.Stretch, x.Margin = p.low, p.high, p.size, p.stretch, p.margin
		case Concurrency:
			x.Size = l.size
		default:
			x.WindowMS, x.Shape, x.Size, x.Sizes = spans[l.span].Milliseconds(), l.shape, l.size, l.sizes
		}
		f.Limits = append(f.Limits, x)
	}
	data, err := json.Marshal(f)
	if err != nil { // no number here is infinite
		data = nil
	}
	return State{Law: e.Name(), Version: envelopeVersion, Interval: min(e.interval, e.params.Initial), Data: data}
}

// Restore starts from stored limits. They are as good as new: what was used of
// them is not known, and the first attempts still go at the initial interval. A
// rate is taken as no slower than that.
func (e *Envelope) Restore(s State) error {
	switch {
	case s.Law != e.Name():
		return fmt.Errorf("control: the state is of law %q, not %q", s.Law, e.Name())
	case s.Version != envelopeVersion:
		return fmt.Errorf("control: the state is of version %d, this binary knows %d", s.Version, envelopeVersion)
	case s.Interval <= 0:
		return fmt.Errorf("control: the stored interval is %v, must be positive", s.Interval)
	}
	var f findings
	if len(s.Data) > 0 {
		if err := json.Unmarshal(s.Data, &f); err != nil {
			return fmt.Errorf("control: the stored limits cannot be read: %w", err)
		}
	}
	if len(f.Limits) > maxLimits {
		return fmt.Errorf("control: %d limits are stored, must be at most %d", len(f.Limits), maxLimits)
	}
	var limits []limit
	for i, x := range f.Limits {
		l, err := x.limit(e.params)
		if err != nil {
			return fmt.Errorf("control: stored limit %d: %w", i, err)
		}
		limits = append(limits, l)
	}
	e.limits = limits
	for i := range limits {
		if limits[i].unit == 1 && e.units[1] == nil {
			e.units[1] = newUsage()
		}
	}
	e.patience = min(max(f.Patience, firstPatience), maxPatience)
	e.block.pain = min(max(f.Pain, 0), time.Hour)
	e.interval = min(max(s.Interval, e.params.Ceiling), e.params.Initial)
	e.speed = float64(e.interval)
	return nil
}

// limit checks a stored one.
func (x *finding) limit(p *Params) (limit, error) {
	l := limit{unit: x.Unit, margin: x.Margin, sureness: x.Sureness, hits: x.Hits}
	between := func(name string, v, low, high float64) error {
		if !(v >= low && v <= high) {
			return fmt.Errorf("%s is %v, must be from %v to %v", name, v, low, high)
		}
		return nil
	}
	const huge = 1e15
	var err error
	check := func(name string, v, low, high float64) {
		if err == nil {
			err = between(name, v, low, high)
		}
	}
	check("margin", x.Margin, 0, 0.5)
	check("sureness", x.Sureness, 0, 1)
	check("hits", float64(x.Hits), 0, math.MaxInt32)
	check("unit", float64(x.Unit), 0, 1)
	switch x.Kind {
	case TokenBucket.String():
		check("low", x.Low, slowestRate, 1e9)
		check("high", x.High, x.Low, 1e9)
		check("burst", x.Burst, 1, huge)
		check("stretch", x.Stretch, 1, huge)
		l.kind = TokenBucket
		low := max(x.Low, 1/p.Initial.Seconds())
		l.margin = 0
		l.pacer = pacer{low: low, high: max(low, x.High), size: x.Burst, burst: 1, stretch: x.Stretch, margin: x.Margin}
	case Concurrency.String():
		check("size", x.Size, 1, huge)
		l.kind, l.size = Concurrency, x.Size
	case SlidingWindow.String():
		check("size", x.Size, 1, huge)
		check("shape", float64(x.Shape), 0, float64(shapes-1))
		l.kind, l.shape, l.size, l.sizes, l.span = SlidingWindow, x.Shape, x.Size, x.Sizes, -1
		for i := range spans {
			if spans[i].Milliseconds() == x.WindowMS {
				l.span = i
			}
		}
		if err == nil && l.span < 0 {
			err = fmt.Errorf("window is %d ms, which is not one that is looked for", x.WindowMS)
		}
		for s := range shapes {
			check("size", x.Sizes[s], 0, huge)
			l.off[s] = 0.05
		}
		l.off[l.shape%shapes] = 0
		r := newRing(parts)
		l.fine = &r
	default:
		err = fmt.Errorf("kind is %q, must be one of token_bucket, sliding_window, concurrency", x.Kind)
	}
	return l, err
}

// Belief is the limit that binds: the slowest of those that are held or told.
func (e *Envelope) Belief() Belief {
	var b Belief
	slowest := 0.0
	for i := range e.limits {
		if v := e.limits[i].interval(e); v > slowest {
			slowest, b = v, e.limits[i].belief()
		}
	}
	for i := range e.told {
		if v := e.told[i].interval(); v > slowest {
			slowest, b = v, e.told[i].belief()
		}
	}
	return b
}

// belief of what headers tell is as good as they were.
func (t *told) belief() Belief {
	b := Belief{Kind: FixedWindow, Limit: t.quota, Window: t.window, Confidence: 1 / float64(1+t.doubts)}
	switch {
	case t.perCost:
		b.Kind = CostWindow
	case t.slides != nil:
		b.Kind, b.Window = SlidingWindow, t.slides.window()
	case t.refills:
		b.Kind = TokenBucket
		if t.window <= 0 && t.rate > 0 {
			b.Window = seconds(t.quota / t.rate)
		}
	}
	return b
}
