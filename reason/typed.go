package reason

// Pressure is a reason that the provider gave, directly or through state drawn
// from its signals. It has its own type so that a [Cap] can never stand for it.
type Pressure Reason

// The provider's reasons.
const (
	// RateLimited: refused for rate or quota of the moment (429 and kin).
	RateLimited = Pressure(rateLimited)
	// UpstreamPressure: the provider is overloaded (503, 529, slow under load).
	UpstreamPressure = Pressure(upstreamPressure)
	// CircuitOpen: too many recent attempts failed; attempts fail at once.
	CircuitOpen = Pressure(circuitOpen)
)

// Reason is the same word in the whole set.
func (p Pressure) Reason() Reason { return Reason(p) }

// String is the stable name.
func (p Pressure) String() string { return Reason(p).String() }

// AsPressure narrows r; ok is false when r is not the provider's.
func AsPressure(r Reason) (p Pressure, ok bool) {
	if r.Kind() != KindPressure {
		return 0, false
	}
	return Pressure(r), true
}

// Cap is a bound that the owner set on a run. Reaching one is a planned defer,
// never a failure, and never arms a cooldown.
type Cap Reason

// The owner's bounds.
const (
	// MaxRequests: the run may not send more attempts.
	MaxRequests = Cap(maxRequests)
	// MaxWallClock: the run may not take longer.
	MaxWallClock = Cap(maxWallClock)
	// RetryBudget: the run may not retry more.
	RetryBudget = Cap(retryBudget)
	// MaxCatchup: the run may not walk more of the past.
	MaxCatchup = Cap(maxCatchup)
)

// Reason is the same word in the whole set.
func (c Cap) Reason() Reason { return Reason(c) }

// String is the stable name.
func (c Cap) String() string { return Reason(c).String() }

// AsCap narrows r; ok is false when r is not the owner's.
func AsCap(r Reason) (c Cap, ok bool) {
	if r.Kind() != KindCap {
		return 0, false
	}
	return Cap(r), true
}
