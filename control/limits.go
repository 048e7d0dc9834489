package control

import "time"

// Limit is one limit that a law goes by.
type Limit struct {
	// Advertised says that responses name it, under Name; else the law found it.
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
