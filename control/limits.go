package control

import "time"

// Limit is one limit that a law goes by.
type Limit struct {
	// Advertised says that responses told of it, under Name; else the law found it.
	Advertised bool
	Name       string
	// Kind is the kind of limit, never [CostWindow]; PerCost says what it counts.
	Kind    Kind
	PerCost bool
	// Size is as in [Belief]; 0 is unknown.
	Size float64
	// Window is its length of time; 0 for a limit without one, or when it is unknown.
	Window time.Duration
	// Confidence is from 0, a guess, to 1.
	Confidence float64
}

// Limiter is a law that shows all limits that it goes by, not only the one that binds.
type Limiter interface {
	// Limits appends them.
	Limits(to []Limit) []Limit
}

// Limits appends the limits that the law found and those that responses told of.
func (e *Envelope) Limits(to []Limit) []Limit {
	for i := range e.limits {
		l := &e.limits[i]
		b := l.belief()
		if b.Kind == CostWindow {
			if b.Kind = SlidingWindow; l.shape != sliding {
				b.Kind = FixedWindow
			}
		}
		to = append(to, Limit{Kind: b.Kind, PerCost: l.unit == 1, Size: b.Limit, Window: b.Window, Confidence: b.Confidence})
	}
	for i := range e.told {
		t := &e.told[i]
		if t.at < 0 {
			continue
		}
		b := t.belief()
		if b.Kind == CostWindow {
			b.Kind = FixedWindow
			if t.refills {
				b.Kind = TokenBucket
			}
		}
		to = append(to, Limit{
			Advertised: true, Name: t.name, Kind: b.Kind, PerCost: t.perCost,
			Size: max(0, b.Limit), Window: max(0, b.Window), Confidence: b.Confidence,
		})
	}
	return to
}
