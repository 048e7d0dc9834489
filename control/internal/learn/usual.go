package learn

import (
	"slices"
	"time"
)

// usual are common lengths of windows.
var usual = [...]time.Duration{
	10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	15 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// maxUsual is the longest of them.
var maxUsual = usual[len(usual)-1]

// common are those that most windows have.
var common = [...]time.Duration{time.Minute, 15 * time.Minute, time.Hour}

// candidates are lengths that windows may well have.
type candidates struct {
	all   []time.Duration
	first int // how many of them the owner configured, or the provider publishes
}

// expect adds lengths of windows that the owner configured or the provider publishes.
func (l *Law) expect(lengths ...time.Duration) {
	first := slices.Clone(l.likely.configured())
	for _, u := range lengths {
		if u > 0 && !slices.Contains(first, u) {
			first = append(first, u)
		}
	}
	if len(first) > 0 {
		l.likely = &candidates{append(first, usual[:]...), len(first)}
	}
}

// configured returns the lengths that the owner configured or the provider publishes.
func (c *candidates) configured() []time.Duration {
	if c == nil {
		return nil
	}
	return c.all[:c.first:c.first]
}

// has reports whether a length is configured.
func (c *candidates) has(length time.Duration) bool {
	return slices.Contains(c.configured(), length)
}

// lengths returns all lengths, the configured ones first.
func (c *candidates) lengths() []time.Duration {
	if c == nil {
		return usual[:]
	}
	return c.all
}

// windowEnds is when a window of one length ends that was used up when a block began: one that
// began at the last release, one that begins with the clock, and one that the refused attempt
// began.
type windowEnds struct{ released, clock, refused time.Duration }

func (b *block) windowEnds(length, from, phase time.Duration) windowEnds {
	return windowEnds{from + length, begins(b.began, length, phase) + length, b.began + length}
}

func (e windowEnds) all() [3]time.Duration {
	return [...]time.Duration{e.released, e.refused, e.clock}
}

// begins returns when the last window of that length began, if one begins at phase before
// instant 0.
func begins(t, length, phase time.Duration) time.Duration { return t - (t+phase)%length }
