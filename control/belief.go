package control

import (
	"fmt"
	"time"
)

// Kind is a kind of limit.
type Kind uint8

// The kinds of limit that a law can believe in.
const (
	// Unknown: nothing is known.
	Unknown Kind = iota
	// TokenBucket: units come back one by one, a burst of them can be saved up.
	TokenBucket
	// FixedWindow: so many units until the window ends, then all come back.
	FixedWindow
	// SlidingWindow: so many units in any stretch of the window's length.
	SlidingWindow
	// Concurrency: so many attempts under way at once.
	Concurrency
	// CostWindow: a sliding or fixed window over what attempts cost, such as tokens.
	CostWindow
	// Slowdown: nothing is refused, but beyond a rate answers take longer.
	Slowdown
)

var kindNames = [...]string{"unknown", "token_bucket", "fixed_window", "sliding_window", "concurrency", "cost_window", "slowdown"}

// String is the kind's stable name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Belief is what a law holds the limit that binds it to be.
type Belief struct {
	// Kind is the kind of limit; Unknown when there is no belief.
	Kind Kind
	// Limit is its size: units a window, attempts under way, or for a bucket the
	// units that its Window brings back.
	Limit float64
	// Window is its length of time; 0 for a limit without one.
	Window time.Duration
	// Confidence is from 0, a guess, to 1.
	Confidence float64
}

// Fact is one limit that a response advertised, as of when it was settled.
type Fact struct {
	// Name distinguishes limits of one provider.
	Name string
	// PerCost says that it counts cost and not attempts.
	PerCost bool
	// InFlight says that it counts attempts under way.
	InFlight bool
	// Refills says that units come back one by one, not at a window's end.
	Refills bool
	// Took is how many units the attempt took of a limit that counts cost; 0 when that is
	// not said, and when it took all that it cost.
	Took float64
	// Quota and Remaining are in units; negative when unknown.
	Quota, Remaining float64
	// Window is the limit's length, Reset the time until it is whole again;
	// negative when unknown.
	Window, Reset time.Duration
	// Precise says that the response states Reset as a duration with a unit, such as "1s":
	// it is probably not rounded to seconds.
	Precise bool
}

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
	// Uses appends how much of each of them is in use at now, in the same order.
	Uses(now time.Duration, to []Use) []Use
}

// Use is how much of a limit is in use.
type Use struct {
	// Used is in the limit's unit; negative is unknown.
	Used float64
	// Free is the instant from which there is room for one more attempt, as far as this
	// limit is concerned: now or before if there is room, and negative if that is unknown.
	Free time.Duration
}
