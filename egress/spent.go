package egress

import (
	"sync"
	"time"

	"github.com/headway-go/headway/signal"
)

const (
	// spentFor is how long a model is not asked again when the provider said that
	// its long quota is used up, and not until when; spentMost is the longest
	// that it is believed. Money is paid in at any time, so it is asked again
	// every few minutes, not only when the month turns.
	spentFor  = time.Minute
	spentMost = 5 * time.Minute
	maxSpent  = 256
)

// spent remembers the models whose long quota the provider said is used up: a
// day's, or one of money. Some providers have one for each model and some one
// for all; by model is right for both, at the cost of one refused call a model.
type spent struct {
	mu     sync.Mutex
	models map[string]time.Time
}

// note takes a provider's answer that a long quota is used up.
func (s *spent) note(now time.Time, model string, told *signal.Signal) {
	wait := spentFor
	if told.HasRetryAfter {
		wait = min(told.RetryAfter, spentMost)
	}
	if wait <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.models == nil {
		s.models = map[string]time.Time{}
	}
	for name, until := range s.models {
		if !now.Before(until) {
			delete(s.models, name)
		}
	}
	if len(s.models) < maxSpent {
		s.models[model] = now.Add(wait)
	}
}

// left is how long a model is still not asked; 0 when it may be.
func (s *spent) left(now time.Time, model string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.models[model]
	if !ok {
		return 0
	}
	return max(0, until.Sub(now))
}
