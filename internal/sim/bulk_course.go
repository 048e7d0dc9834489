package sim

import (
	"time"

	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// BulkTrace is the course of a bulk load.
type BulkTrace struct {
	// Scenario is what was run; its changes and faults are drawn too.
	Scenario *scenario.Scenario
	Law      string
	Seed     uint64
	// End is when the load was over.
	End   time.Duration
	Steps []BulkStep
	// Hints are what the answers recommended to all users together.
	Hints []BulkHintChange
}

// BulkHintChange is a recommendation and from when on it was given.
type BulkHintChange struct {
	At          time.Duration
	Parallelism int
}

// bulkCourse gathers a trace: levels that hold until the next, and what happened
// at instants.
type bulkCourse struct {
	flights, levels []levelAt
	loaded          []levelAt
	refused         []time.Duration
	hints           []BulkHintChange
	looked          time.Duration
}

type levelAt struct {
	at    time.Duration
	level int
}

// fly tells of a batch that departs (1) or is back (-1).
func (c *bulkCourse) fly(now time.Duration, by int) {
	level := by
	if n := len(c.flights); n > 0 {
		level += c.flights[n-1].level
	}
	c.flights = append(c.flights, levelAt{now, level})
}

func (c *bulkCourse) load(now time.Duration, rows int) {
	c.loaded = append(c.loaded, levelAt{now, rows})
}

func (c *bulkCourse) refuse(now time.Duration) { c.refused = append(c.refused, now) }

// look notes what the laws allow, ten times a second at most, and what the
// answers recommend.
func (c *bulkCourse) look(now time.Duration, core *dispatch.Core, hint int) {
	if len(c.hints) == 0 && hint > 0 || len(c.hints) > 0 && c.hints[len(c.hints)-1].Parallelism != hint {
		c.hints = append(c.hints, BulkHintChange{now, hint})
	}
	if len(c.levels) > 0 && now-c.looked < 100*time.Millisecond {
		return
	}
	c.looked = now
	level := 0
	for _, i := range core.Identities(now) {
		level += i.Law.Current
	}
	if n := len(c.levels); n == 0 || c.levels[n-1].level != level {
		c.levels = append(c.levels, levelAt{now, level})
	}
}

// most is the most batches that were in flight.
func (c *bulkCourse) most() (most int) {
	for _, f := range c.flights {
		most = max(most, f.level)
	}
	return most
}

// steps cuts the course until its end into n steps of equal length.
func (c *bulkCourse) steps(end time.Duration, n int) []BulkStep {
	if end <= 0 {
		return []BulkStep{}
	}
	n = int(min(time.Duration(n), end))
	steps := make([]BulkStep, n)
	border := func(i int) time.Duration { return end / time.Duration(n) * time.Duration(i) }
	place := func(at time.Duration) int { return min(int(at/max(1, end/time.Duration(n))), n-1) }
	last := func(i int) time.Duration {
		if i == n-1 {
			return end
		}
		return border(i + 1)
	}
	spread := func(levels []levelAt, add func(*BulkStep, float64)) {
		for k, l := range levels {
			to := end
			if k+1 < len(levels) {
				to = levels[k+1].at
			}
			for at := l.at; at < to; {
				i := place(at)
				stop := min(to, last(i))
				add(&steps[i], float64(l.level)*(stop-at).Seconds()/(last(i)-border(i)).Seconds())
				at = stop
			}
		}
	}
	spread(c.levels, func(s *BulkStep, x float64) { s.Level += x })
	spread(c.flights, func(s *BulkStep, x float64) { s.InFlight += x })
	for _, l := range c.loaded {
		steps[place(l.at)].RowsPerS += float64(l.level)
	}
	for _, at := range c.refused {
		steps[place(at)].Throttled++
	}
	for i := range steps {
		s := &steps[i]
		s.ToS = seconds(last(i))
		s.Level, s.InFlight = round(s.Level, 2), round(s.InFlight, 2)
		s.RowsPerS = round(s.RowsPerS/(last(i)-border(i)).Seconds(), 2)
	}
	return steps
}
