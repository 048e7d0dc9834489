package pacing

import (
	"slices"
	"strings"

	"github.com/headway-go/headway/control"
)

// maxHeard is how many advertised limits are remembered: more than any provider has.
const maxHeard = 8

// hear remembers the limits that responses advertised, whatever the law makes of them.
func (c *Core) hear(facts []control.Fact) {
	for i := range facts {
		f := &facts[i]
		at := slices.IndexFunc(c.heard, func(h control.Fact) bool {
			return h.Name == f.Name && h.PerCost == f.PerCost && h.InFlight == f.InFlight
		})
		switch {
		case at < 0 && len(c.heard) == maxHeard:
			continue
		case at < 0:
			c.heard = append(c.heard, *f)
			at = len(c.heard) - 1
			c.heard[at].Name = strings.Clone(f.Name) // of a whole header
		}
		h := &c.heard[at]
		h.Refills = f.Refills
		if f.Quota >= 0 {
			h.Quota = f.Quota
		}
		if f.Window > 0 {
			h.Window = f.Window
		}
	}
}

// Limits appends what is known of the provider's limits: those that the law found,
// and those that responses advertised.
func (c *Core) Limits(to []control.Limit) []control.Limit {
	if law, ok := c.law.(control.Limiter); ok {
		to = law.Limits(to)
	} else if b := c.law.Belief(); b.Kind != control.Unknown {
		to = append(to, control.Limit{Kind: b.Kind, PerCost: b.Kind == control.CostWindow, Size: b.Limit, Window: b.Window, Confidence: b.Confidence})
	}
	for _, f := range c.heard {
		l := control.Limit{
			Advertised: true, Name: f.Name, Kind: control.FixedWindow, PerCost: f.PerCost,
			Size: max(0, f.Quota), Window: max(0, f.Window), Confidence: 1,
		}
		switch {
		case f.InFlight:
			l.Kind, l.Window = control.Concurrency, 0
		case f.Refills:
			l.Kind = control.TokenBucket
		}
		known := func(k control.Limit) bool {
			return k.Advertised && k.Name == l.Name && k.PerCost == l.PerCost && (k.Kind == control.Concurrency) == f.InFlight
		}
		if !slices.ContainsFunc(to, known) {
			to = append(to, l)
		}
	}
	return to
}

// MaxInFlight bounds the attempts under way at once; 0 is no bound.
func (c *Core) MaxInFlight() int { return c.set.maxInFlight }
