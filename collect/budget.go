package collect

import (
	"sync/atomic"
	"time"

	"github.com/headway-go/headway/reason"
)

// budget holds a run to the owner's caps. They are looked at between attempts:
// one under way is never cut.
type budget struct {
	maxRequests int64
	deadline    time.Time // zero: none
	attempts    atomic.Int64
}

// take counts one attempt that is about to be sent, or says which cap forbids it.
func (b *budget) take() error {
	if b.maxRequests > 0 && b.attempts.Add(1) > b.maxRequests {
		b.attempts.Add(-1)
		return &reason.Refusal{Reason: reason.MaxRequests.Reason()}
	}
	if b.maxRequests == 0 {
		b.attempts.Add(1)
	}
	return nil
}

// spent says which cap is used up at now; ok is false while none is.
func (b *budget) spent(now time.Time) (c reason.Cap, ok bool) {
	switch {
	case b.maxRequests > 0 && b.attempts.Load() >= b.maxRequests:
		return reason.MaxRequests, true
	case !b.deadline.IsZero() && !now.Before(b.deadline):
		return reason.MaxWallClock, true
	}
	return 0, false
}
