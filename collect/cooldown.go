package collect

import (
	"time"

	"github.com/headway-go/headway/reason"
)

// The cooldown after a run that the provider's pressure ended: its first length, how
// often that is doubled, which gives 5 h 20 min, and after how many such runs in a row
// a person should look.
const (
	cooldownBase      = 5 * time.Minute
	cooldownDoublings = 6
	cooldownCycles    = 12
)

// Cooldown is a connection's source-pressure cooldown: after a run that the
// provider's pressure ended, gaps that pressure caused wait before they are
// tried again. Everything else goes on.
type Cooldown struct {
	// Cycles counts the runs in a row that pressure ended without progress.
	Cycles int `json:"cycles"`
	// Until is when the cooldown ends; zero when there is none.
	Until time.Time `json:"until,omitzero"`
	// NeedsAttention says that this went on for so long that a person should look.
	NeedsAttention bool `json:"needs_attention"`
}

// after is the cooldown once a run ended for why. Progress is whether it
// recovered or collected anything. A cap, an interruption and a failure say
// nothing of the provider's pressure and leave it as it is; a run that drained
// ends it.
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

// holds reports whether the cooldown is on.
func (c Cooldown) holds(now time.Time) bool { return now.Before(c.Until) }
