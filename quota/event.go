package quota

import "time"

// EventType names what happened.
type EventType string

// The types of event.
const (
	// EventThrottle: an episode of throttle began. Emitted once per episode.
	EventThrottle EventType = "rate:throttle"
	// EventResume: the episode or the exhaustion is over. Emitted once.
	EventResume EventType = "rate:resume"
	// EventSoftPressure: the scope came under soft pressure.
	EventSoftPressure EventType = "rate:softPressure"
	// EventExhausted: the day's cap is used up. Emitted once a day.
	EventExhausted EventType = "llm:quota_exhausted"
	// EventAdaptiveScale: the scale factor changed.
	EventAdaptiveScale EventType = "rate:adaptiveScale"
	// EventDenied: a request was refused. Consecutive equal events that were not taken
	// yet are merged into one with a count.
	EventDenied EventType = "rate:denied"
	// EventBackoff: a client backs off instead of calling.
	EventBackoff EventType = "llm:backoff"
	// EventConfig: the configuration was replaced.
	EventConfig EventType = "rate:config"
	// EventFleet: the server of shared budgets is away, or back; Note says which.
	EventFleet EventType = "rate:fleet"
)

// Event is one thing that happened. Which fields are set depends on its type;
// Global is set when the scope is the global one.
type Event struct {
	// Seq counts events from 1.
	Seq uint64 `json:"seq"`
	// At is the wall-clock instant, Instant the same instant since the origin.
	At      time.Time     `json:"at"`
	Instant time.Duration `json:"-"`
	Type    EventType     `json:"type"`

	Scope
	Global bool `json:"global,omitempty"`

	// ScopeName is the scope as text, for exhaustion events.
	ScopeName string `json:"scope,omitempty"`
	Reason    Reason `json:"reason,omitempty"`
	Code      Code   `json:"code,omitempty"`
	// RetryInMS is rounded up to whole milliseconds; absent if no wait helps.
	RetryInMS int64 `json:"retryInMs,omitempty"`
	// Utilization is a fraction of the soft budget, or of the day's cap if a forecast for
	// the day raised the pressure; WindowMS is the length of that window.
	Utilization float64 `json:"utilization,omitempty"`
	WindowMS    int64   `json:"windowMs,omitempty"`
	// Forecast: the pressure was raised early.
	Forecast bool `json:"forecast,omitempty"`
	// CapType is "dailyTokens" or "dailyCalls".
	CapType string `json:"capType,omitempty"`
	// Factor is the new scale factor.
	Factor float64 `json:"factor,omitempty"`
	// Note is away or back.
	Note string `json:"note,omitempty"`
	// Digest is the digest of the new configuration.
	Digest string `json:"configDigest,omitempty"`
	// Count is how many equal events this one stands for, if more than one.
	Count int64 `json:"count,omitempty"`
}

// The types of cap.
const (
	DailyTokens = "dailyTokens"
	DailyCalls  = "dailyCalls"
)

// ring keeps the most recent values and drops the oldest.
type ring[T any] struct {
	kept  []T // circular once it is full
	first int
	total uint64 // values ever added
	taken uint64 // how many of total were taken or lost
	bound int
}

func (r *ring[T]) add(v T) {
	r.total++
	if len(r.kept) < r.bound {
		r.kept = append(r.kept, v)
		return
	}
	r.kept[r.first] = v
	r.first = (r.first + 1) % len(r.kept)
}

// newest returns the last value if it was not taken yet.
func (r *ring[T]) newest() *T {
	if r.total == r.taken {
		return nil
	}
	return &r.kept[(r.first+len(r.kept)-1)%len(r.kept)]
}

// all appends the kept values, oldest first.
func (r *ring[T]) all(dst []T) []T {
	dst = append(dst, r.kept[r.first:]...)
	return append(dst, r.kept[:r.first]...)
}

// take appends the values added since the last take that are still kept.
func (r *ring[T]) take(dst []T) (taken []T, lost uint64) {
	fresh := r.total - r.taken
	r.taken = r.total
	if kept := uint64(len(r.kept)); fresh > kept {
		fresh, lost = kept, fresh-kept
	}
	for i := range int(fresh) {
		dst = append(dst, r.kept[(r.first+len(r.kept)-int(fresh)+i)%len(r.kept)])
	}
	return dst, lost
}

// resize changes the bound and keeps the most recent values.
func (r *ring[T]) resize(bound int) {
	kept := r.all(nil)
	r.kept, r.first, r.bound = kept[max(0, len(kept)-bound):], 0, bound
}

// String returns the event in one line: its type, its scope and its reason.
func (e Event) String() string {
	s := string(e.Type) + " " + e.Scope.String()
	if e.Code != "" {
		s += " " + string(e.Code)
	} else if e.Reason != "" {
		s += " " + string(e.Reason)
	}
	return s
}
