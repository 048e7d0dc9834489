// Package control holds the laws: feedback rules that turn the outcomes of
// attempts into the interval of the next one.
//
// A law answers how fast; package pace answers when. A law never goes faster
// than the owner's ceiling, never speeds up on an error however quickly it
// came, and starts conservatively. Laws are registered by name ([New],
// [Names]); "aimd" is the baseline: additive decrease of the interval on
// success, multiplicative increase on a throttle. "cycle", the default, finds out what
// kind of limit it faces, holds just under it, and says what it believes.
//
// Laws are deterministic functions of what they were told, with instants
// passed in (durations since an origin that the caller fixes). They are not
// safe for concurrent use: the owner holds a lock. The verbs take
// constant time; they allocate when something is found out, not while it holds.
//
// Do not use a law for a limit that the provider declares exactly and that
// never changes: a fixed interval is simpler.
//
// Sources: D. Chiu, R. Jain, "Analysis of the increase and decrease algorithms
// for congestion avoidance in computer networks", 1989; RFC 5681.
//
// Stability: settling.
package control

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/reason"
)

// Law turns outcomes into the interval of the next attempt.
type Law interface {
	// Name is the name that the law is registered and stored under.
	Name() string
	// Interval is the sustained interval as the law sees it, the one that is
	// shown, stored and reported; never below the ceiling's.
	Interval() time.Duration
	// Spacing is the emission interval that pacing enforces: the interval itself,
	// or a shorter one when the law times attempts through Hold.
	Spacing() time.Duration
	// Hold is the earliest instant, as far as is known at now, at which the law
	// lets the next attempt of the given cost go; [Never] when that takes an
	// outcome first. It changes nothing that decides.
	Hold(now time.Duration, cost float64) time.Duration
	// Sent records an attempt at the instant of its admission. The cost is what
	// it is thought to take of a limit that does not count attempts but units; 1
	// where there is no such limit.
	Sent(now time.Duration, cost float64)
	// Observe records how an attempt ended and reports what that changed.
	Observe(o Observation) Change
	// Belief is what the law holds the provider's limit to be; its kind is
	// [Unknown] for a law that holds no belief, or none yet.
	Belief() Belief
	// State is what a warm start needs. Its interval is never slower than the
	// initial one: a run that ended deep in back-off must not poison the next.
	State() State
	// Restore starts from a stored state, clamped to the ceiling and the
	// initial interval. A state that cannot be read is an error and changes nothing.
	Restore(s State) error
}

// Observation is one settled attempt, as a law sees it.
type Observation struct {
	// Sent and Now are when the attempt was admitted and when it was settled.
	Sent, Now time.Duration
	// Class is how it ended.
	Class reason.Class
	// RetryAfter is the one-shot wait that the provider asked for; 0 when it named none.
	// It is honoured elsewhere, once, and is never a sustained interval.
	RetryAfter time.Duration
	// Estimate is the cost that was passed to Sent, Cost what the attempt really took.
	Estimate, Cost float64
	// Facts are the limits that the response advertised; they are not kept.
	Facts []Fact
	// Steady forbids speeding up on this outcome, as for recovery during a
	// source-pressure cooldown. A throttle still slows down.
	Steady bool
}

// Never is an instant that only an outcome can bring nearer.
const Never = time.Duration(math.MaxInt64)

// Change is what an observation did to the interval.
type Change uint8

// The changes.
const (
	// Held: the interval is as it was.
	Held Change = iota
	// SpeedUp: the interval became shorter.
	SpeedUp
	// BackOff: the interval became longer.
	BackOff
)

// String is the change's stable name.
func (c Change) String() string {
	switch c {
	case SpeedUp:
		return "speed_up"
	case BackOff:
		return "back_off"
	case Held:
		return "held"
	}
	return fmt.Sprintf("change(%d)", uint8(c))
}

// Params are the numbers that a law is made with. Zero fields take the defaults.
type Params struct {
	// Ceiling is the shortest interval ever allowed. Default 250 ms.
	Ceiling time.Duration
	// Initial is the interval before anything is known, at least the ceiling. Default 1 s.
	Initial time.Duration
	// Slowest bounds the interval from above. Default 10 min, at least Initial.
	Slowest time.Duration
	// Phase is the wall clock at instant 0, as the time since the Unix epoch. Law
	// "cycle" finds windows with it that begin on the clock. Default 0.
	Phase time.Duration
	// Windows are the lengths of windows that the owner has configured limits for, such as a
	// minute for 60 a minute; at most 24 h. When attempts are refused, law "cycle" first
	// takes the limit for one of such a length. Default: none.
	Windows []time.Duration
	// MaxRetryAfter bounds how much of a Retry-After law "cycle" observes. Pass the law the whole
	// value all the same: a number of days may be one of milliseconds. Default 24 h.
	MaxRetryAfter time.Duration
	// Step is what a success takes off the interval ("aimd"). Default 100 ms.
	Step time.Duration
	// Factor is what a throttle multiplies the rate by ("aimd"), in (0, 1). Default 0.5.
	Factor float64
}

// Defaults of [Params].
const (
	DefaultCeiling = 250 * time.Millisecond
	DefaultInitial = time.Second
	DefaultSlowest = 10 * time.Minute
	DefaultStep    = 100 * time.Millisecond
	DefaultFactor  = 0.5

	DefaultMaxRetryAfter = 24 * time.Hour
)

// Resolve fills in defaults, clamps the initial interval to the ceiling, and
// checks the rest; the error names field, value and bound.
func (p Params) Resolve() (Params, error) {
	p.Ceiling = cmp.Or(p.Ceiling, DefaultCeiling)
	p.Initial = cmp.Or(p.Initial, DefaultInitial)
	p.Step = cmp.Or(p.Step, DefaultStep)
	p.Factor = cmp.Or(p.Factor, DefaultFactor)
	p.Slowest = cmp.Or(p.Slowest, DefaultSlowest)
	p.MaxRetryAfter = cmp.Or(p.MaxRetryAfter, DefaultMaxRetryAfter)
	p.Initial = max(p.Initial, p.Ceiling)
	p.Slowest = max(p.Slowest, p.Initial)
	switch {
	case p.Ceiling < 0 || p.Ceiling > 24*time.Hour:
		return p, fmt.Errorf("control: ceiling is %v, must be from 1ns to 24h", p.Ceiling)
	case p.Initial > 24*time.Hour:
		return p, fmt.Errorf("control: initial is %v, must be at most 24h", p.Initial)
	case p.Slowest > 24*time.Hour:
		return p, fmt.Errorf("control: slowest is %v, must be at most 24h", p.Slowest)
	case p.Phase < 0:
		return p, fmt.Errorf("control: phase is %v, must not be negative", p.Phase)
	case slices.ContainsFunc(p.Windows, func(d time.Duration) bool { return d <= 0 || d > 24*time.Hour }):
		return p, fmt.Errorf("control: windows are %v, each must be above 0 and at most 24h", p.Windows)
	case p.MaxRetryAfter < 0:
		return p, fmt.Errorf("control: max Retry-After is %v, must not be negative", p.MaxRetryAfter)
	case p.Step < 0:
		return p, fmt.Errorf("control: step is %v, must not be negative", p.Step)
	case !(p.Factor > 0 && p.Factor < 1):
		return p, fmt.Errorf("control: factor is %v, must be between 0 and 1", p.Factor)
	}
	return p, nil
}

// DefaultLaw is the law that is used where none is named.
const DefaultLaw = "cycle"

var laws = map[string]func(*Params) Law{
	"aimd":  func(p *Params) Law { return &AIMD{params: p, interval: p.Initial} },
	"cycle": newCycle,
}

// Names lists the registered laws in alphabetical order.
func Names() []string {
	names := make([]string, 0, len(laws))
	for n := range laws {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Choices lists the registered laws for a message that refuses a name.
func Choices(name string) string {
	names := strings.Join(Names(), ", ")
	if name == "envelope" { // the default for a while
		return names + " (cycle has replaced envelope)"
	}
	return names
}

// New makes a law by name; "" is [DefaultLaw]. The parameters must have been
// resolved, and are shared: many connections may point to the same ones.
func New(name string, p *Params) (Law, error) {
	name = cmp.Or(name, DefaultLaw)
	make, ok := laws[name]
	if !ok {
		return nil, fmt.Errorf("control: law is %q, must be one of %s", name, Choices(name))
	}
	return make(p), nil
}

// State is what a law needs to go on where it stopped.
type State struct {
	// Law and Version say who can read it.
	Law     string
	Version int
	// Interval is the learned interval.
	Interval time.Duration
	// Data is the law's own state beyond the interval; nil for "aimd".
	Data []byte
}

// BurstHorizon is how far back idle credit is thought to reach.
const BurstHorizon = 3 * time.Hour

// StaleAfter is the greatest age at which a stored state is still used, this
// age included.
const StaleAfter = 2 * BurstHorizon

// Fresh reports whether a state recorded at recorded may be used at now, and
// if not, why. Both are wall-clock instants, as they cross processes.
func Fresh(recorded, now time.Time, staleAfter time.Duration) error {
	age := now.Sub(recorded)
	switch {
	case recorded.IsZero():
		return fmt.Errorf("control: the state has no date")
	case age < 0:
		return fmt.Errorf("control: the state is dated %v in the future", -age)
	case age > staleAfter:
		return fmt.Errorf("control: the state is %v old, at most %v is used", age, staleAfter)
	}
	return nil
}
