package collect

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

// maxRefused is how many attempts in a row pressure may refuse before details stand back.
const maxRefused = 4

// standBack makes details stand back while the provider refuses them under pressure: the
// next attempt is then a page of the list, which is needed anyway and may be admitted.
// Details stand back for as long as they have been refused so far, and are tried again
// with the next page after that. If they are refused again at once, the time doubles.
// Details that are skipped become gaps, for recovery at the end of the run.
type standBack struct {
	mu      sync.Mutex
	refused int                // refusals in a row, each of an attempt sent after the refusal before
	newest  time.Time          // when the newest of them was refused
	why     reason.Reason      // the pressure of the newest refusal
	began   time.Time          // the first refusal since a detail was fetched; zero if there was none
	until   time.Time          // details stand back until then; zero if they have not since a detail was fetched
	give    context.CancelFunc // ends the waits of the details under way; nil if no list is left
	before  control.State      // the learned rate before began
	named   bool               // the connection names pools, or has several keys
	apart   map[string]bool    // the detail streams that have a limit of their own
}

// observe records the outcome of an attempt, for a detail or a list. learned returns the
// learned rate before the attempt.
func (s *standBack) observe(now time.Time, a transport.Attempt, learned func() control.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	why, pressed := a.Class.Pressure()
	switch {
	case a.Class.Success():
		if s.refused = 0; s.until.IsZero() {
			s.began = time.Time{}
		}
	case pressed && now.Add(-a.Latency).After(s.newest): // otherwise it was sent before the last refusal
		s.refused++
		s.newest, s.why = now, why.Reason()
		if s.began.IsZero() {
			s.began, s.before = now, learned()
		}
		if s.give != nil && (s.refused >= maxRefused || !s.until.IsZero()) {
			s.give()
		}
	}
}

// fetched records that a detail was fetched.
func (s *standBack) fetched() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.until = time.Time{}, time.Time{}
}

// stands reports whether details of a stream stand back at now, and whether they have a
// limit of their own.
func (s *standBack) stands(now time.Time, details string) (stands, apart bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until), s.apart[details]
}

// reason returns the pressure that made details stand back.
func (s *standBack) reason() reason.Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// stood reports whether details stood back and none was fetched since.
func (s *standBack) stood() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.until.IsZero()
}

// from makes the details of a stream stand back. apart reports that they turn out to have
// a limit of their own: they stood back before, the list succeeded since, and they were
// refused again. before is the learned rate before their refusals.
func (s *standBack) from(now time.Time, details string) (before control.State, apart bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	apart = !s.until.IsZero() && !s.named && !s.apart[details]
	s.until = now.Add(max(now.Sub(s.began), time.Second))
	if apart {
		if s.apart == nil {
			s.apart = map[string]bool{}
		}
		s.apart[details] = true
	}
	return s.before, apart
}

// goesFirst lets the list go first: it makes the details of a stream stand back. If they
// have a limit of their own, they get a pool for the rest of the run, so that their
// refusals do not slow the list.
func (r *execution) goesFirst(details string) {
	if before, apart := r.standBack.from(time.Now(), details); apart {
		r.governor.Part(details, before)
	}
	r.caller.begin()
}

type apartKey struct{}

// inPool returns a context that names the pool of a detail stream, if it has one.
func (r *execution) inPool(ctx context.Context, details string) context.Context {
	r.standBack.mu.Lock()
	defer r.standBack.mu.Unlock()
	if r.standBack.apart[details] {
		return context.WithValue(ctx, apartKey{}, details)
	}
	return ctx
}

// poolOf returns the pool of a request, "" for the account.
func (r *execution) poolOf(req *http.Request) string {
	if name := connector.PoolOf(req); name != "" {
		r.standBack.mu.Lock()
		defer r.standBack.mu.Unlock()
		r.standBack.named = true
		return name
	}
	name, _ := req.Context().Value(apartKey{}).(string)
	return name
}

// putOff returns why the details of a page are not requested now, or nil if they are.
// details is their stream; listLeft reports that more pages follow.
func (r *execution) putOff(details string, listLeft bool) *stop {
	if r.suspended != nil || !listLeft {
		return r.suspended
	}
	stands, apart := r.standBack.stands(time.Now(), details)
	if !stands && apart { // waiting for their own pool would delay the list
		stands = r.governor.RoomAt(details).Sub(r.governor.RoomAt("")) > time.Second
	}
	if !stands {
		return nil
	}
	return &stop{why: r.standBack.reason()}
}

type waitingKey struct{}

// mayStandBack returns a context for details which ends their waits when they have to
// stand back. Call over once none of them is in flight.
func (r *execution) mayStandBack(ctx context.Context) (within context.Context, over func()) {
	waiting := r.waiting
	if waiting == nil {
		waiting = context.Background()
	}
	waiting, cancel := context.WithCancel(waiting)
	s := &r.standBack
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give = cancel
	return transport.WithWaiting(context.WithValue(ctx, waitingKey{}, waiting), waiting), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.give = nil
		cancel()
	}
}

// standingBack reports whether the details with that context have to stand back.
func (r *execution) standingBack(ctx context.Context) bool {
	waiting, ok := ctx.Value(waitingKey{}).(context.Context)
	return ok && waiting.Err() != nil && (r.waiting == nil || r.waiting.Err() == nil)
}

// pressedInstead replaces the error of a detail whose wait was ended because details stand
// back: the reason is then the pressure, not the interruption.
func (s *standBack) pressedInstead(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refusal, ok := errors.AsType[*reason.Refusal](err); ok && refusal.Reason == reason.Interrupted {
		return &reason.Refusal{Reason: s.why}
	}
	if f, ok := errors.AsType[*connector.Failure](err); ok && f.Stopped == reason.Interrupted {
		f.Stopped = reason.None
	}
	return err
}

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
