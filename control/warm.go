package control

import (
	"fmt"
	"time"
)

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
