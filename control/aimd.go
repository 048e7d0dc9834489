package control

import (
	"fmt"
	"time"
)

// AIMD is the baseline law: a success takes a constant step off the interval, a
// throttle multiplies it. It is kept plain so that other laws can be compared
// with it, known weaknesses included: an equal step of the interval is a
// growing step of the rate, so it oscillates when the limit is close to the
// ceiling; each throttle counts, also those of attempts that were in flight
// together; and after a deep back-off recovery takes hundreds of successes.
type AIMD struct {
	params   *Params
	interval time.Duration
}

// Name is "aimd".
func (l *AIMD) Name() string { return "aimd" }

// Interval is the current emission interval.
func (l *AIMD) Interval() time.Duration { return l.interval }

// Spacing is the interval: pacing alone times the attempts.
func (l *AIMD) Spacing() time.Duration { return l.interval }

// Hold never holds an attempt back.
func (*AIMD) Hold(now time.Duration, _ float64) time.Duration { return now }

// Sent teaches it nothing: it learns from outcomes.
func (*AIMD) Sent(time.Duration, float64) {}

// Belief is unknown: the law knows an interval and not what it comes from.
func (*AIMD) Belief() Belief { return Belief{} }

// Observe applies one outcome. Only a success shortens the interval; errors of
// any kind leave it alone.
func (l *AIMD) Observe(o Observation) Change {
	before := l.interval
	switch {
	case o.Class.Throttle():
		slower := float64(l.interval) / l.params.Factor
		l.interval = time.Duration(min(slower, float64(l.params.Slowest)))
	case o.Class.Success() && !o.Steady:
		l.interval = max(l.interval-l.params.Step, l.params.Ceiling)
	}
	switch {
	case l.interval < before:
		return SpeedUp
	case l.interval > before:
		return BackOff
	default:
		return Held
	}
}

const aimdVersion = 1

// State is the interval, never slower than the initial one.
func (l *AIMD) State() State {
	return State{Law: l.Name(), Version: aimdVersion, Interval: min(l.interval, l.params.Initial)}
}

// Restore takes the stored interval, clamped.
func (l *AIMD) Restore(s State) error {
	switch {
	case s.Law != l.Name():
		return fmt.Errorf("control: the state is of law %q, not %q", s.Law, l.Name())
	case s.Version != aimdVersion:
		return fmt.Errorf("control: the state is of version %d, this binary knows %d", s.Version, aimdVersion)
	case s.Interval <= 0:
		return fmt.Errorf("control: the stored interval is %v, must be positive", s.Interval)
	}
	l.interval = min(max(s.Interval, l.params.Ceiling), l.params.Initial)
	return nil
}
