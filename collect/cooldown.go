package collect

import (
	"time"

	"github.com/headway-go/headway/reason"
)

// The cooldown after a run that the provider's pressure ended: its first length, how
// often it is doubled at most, which gives 5 h 20 min, and the number of such runs in a
// row after which it needs attention.
const (
	cooldownBase      = 5 * time.Minute
	cooldownDoublings = 6
	cooldownCycles    = 12
)

// Cooldown is a connection's source-pressure cooldown: after a run that the provider's
// pressure ended, gaps caused by pressure wait before they are tried again. All other
// work continues.
type Cooldown struct {
	// Cycles counts consecutive runs that pressure ended without progress.
	Cycles int `json:"cycles"`
	// Until is when the cooldown ends; zero if there is none.
	Until time.Time `json:"until,omitzero"`
	// NeedsAttention reports that an operator should look: pressure has ended 12 runs in
	// a row without progress, or gaps are in quarantine.
	NeedsAttention bool `json:"needs_attention"`
}

// after returns the cooldown after a run that ended for why. progress reports whether the
// run collected or recovered anything. A run that drained ends the cooldown. A cap, an
// interruption or a failure leaves it unchanged.
func (c Cooldown) after(why reason.Reason, progress bool, now time.Time) Cooldown {
	if why == reason.Drained || why == reason.Quarantined {
		return Cooldown{}
	}
	if _, ok := reason.AsPressure(why); !ok {
		return c
	}
	if progress {
		c.Cycles = 0
	} else {
		c.Cycles++
	}
	c.NeedsAttention = c.Cycles >= cooldownCycles
	c.Until = now.Add(cooldownBase << min(c.Cycles, cooldownDoublings))
	return c
}

// holds reports whether the cooldown is in effect.
func (c Cooldown) holds(now time.Time) bool { return now.Before(c.Until) }
