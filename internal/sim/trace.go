package sim

import (
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// Trace is the course of a run in steps of equal length.
type Trace struct {
	// Scenario is what was run; its changes and faults are drawn too.
	Scenario *scenario.Scenario
	Law      string
	Seed     uint64
	// Step is the length of each step, but the last one's ends at the horizon.
	Step  time.Duration
	Steps []Step
}

// Step is what happened in one step.
type Step struct {
	// Admitted and Throttled are the clients' attempts, Limit is what the
	// oracle was admitted.
	Admitted, Throttled, Limit int64
	// Pace is the rate at which the clients' intervals would have let them send,
	// summed over clients and averaged over the step, in attempts a second.
	Pace float64
}

// steps is how many steps a run is cut into, about: one for two pixels.
const steps = 400

// period is the longest window of the limits that is at most a tenth of the
// run; 0 when there is none.
func period(s *scenario.Scenario) (window time.Duration) {
	for _, l := range s.Provider.Limits {
		if l.Window <= s.Horizon/10 {
			window = max(window, l.Window)
		}
	}
	return window
}

// stepOf is the length of a step. A period is a whole number of steps, or a step a
// whole number of periods, so that means over a period are smooth.
func stepOf(s *scenario.Scenario) time.Duration {
	step := max(1, s.Horizon/steps)
	switch window := period(s); {
	case window >= step:
		return window / ((window + step/2) / step)
	case window > 0:
		return window * (step / window)
	}
	return step
}

// course gathers a trace.
type course struct {
	horizon, step time.Duration
	refused       []int64
	sent          []float64 // the integral of the pace over each step, in attempts
	rate          []float64 // of each ceiling, a second
	total         float64
	until         time.Duration // how far sent is
}

func newCourse(s *scenario.Scenario) *course {
	step := stepOf(s)
	n := int((s.Horizon + step/2) / step)
	return &course{
		horizon: s.Horizon, step: step,
		refused: make([]int64, n), sent: make([]float64, n), rate: make([]float64, s.Clients),
	}
}

func (c *course) place(at time.Duration) int { return min(int(at/c.step), len(c.sent)-1) }

// end is where a step ends.
func (c *course) end(i int) time.Duration {
	if i == len(c.sent)-1 {
		return c.horizon
	}
	return time.Duration(i+1) * c.step
}

func (c *course) refuse(now time.Duration) { c.refused[c.place(now)]++ }

func (c *course) pace(now time.Duration, ceiling int, interval time.Duration) {
	rate := float64(time.Second) / float64(interval)
	if rate == c.rate[ceiling] {
		return
	}
	c.fill(now)
	c.total += rate - c.rate[ceiling]
	c.rate[ceiling] = rate
}

// fill integrates the pace up to an instant.
func (c *course) fill(now time.Duration) {
	for now = min(now, c.horizon); c.until < now; {
		i := c.place(c.until)
		end := min(now, c.end(i))
		c.sent[i] += c.total * (end - c.until).Seconds()
		c.until = end
	}
}

func (c *course) drawUp(l *Ledger, oracle *Oracle) *Trace {
	c.fill(c.horizon)
	t := &Trace{Scenario: l.s, Law: l.law, Seed: l.seed, Step: c.step, Steps: make([]Step, len(c.sent))}
	for i := range t.Steps {
		length := c.end(i) - time.Duration(i)*c.step
		t.Steps[i] = Step{Throttled: c.refused[i], Pace: c.sent[i] / length.Seconds()}
	}
	for _, at := range l.admissions {
		t.Steps[c.place(at)].Admitted++
	}
	for _, at := range oracle.Admissions {
		t.Steps[c.place(at)].Limit++
	}
	return t
}
