package collect

import (
	"time"

	"github.com/headway-go/headway/reason"
)

// The cooldown after a run that the provider's pressure ended: its first and
// longest length, and after how many such runs in a row a person should look.
const (
	pressureBase   = 5 * time.Minute
	pressureCap    = 6 * time.Hour
	pressureCycles = 12
)

// Pressure is a connection's source-pressure cooldown: after a run that the
// provider's pressure ended, gaps that pressure caused wait before they are
// tried again. Everything else goes on.
type Pressure struct {
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
func (p Pressure) after(why reason.Reason, progress bool, now time.Time) Pressure {
	if why == reason.Drained || why == reason.Quarantined {
		return Pressure{}
	}
	if _, ok := reason.AsPressure(why); !ok {
		return p
	}
	if progress {
		p.Cycles = 0
	} else {
		p.Cycles++
	}
	p.NeedsAttention = p.Cycles >= pressureCycles
	p.Until = now.Add(min(pressureBase<<min(p.Cycles, 6), pressureCap))
	return p
}

// holds reports whether the cooldown is on.
func (p Pressure) holds(now time.Time) bool { return now.Before(p.Until) }
