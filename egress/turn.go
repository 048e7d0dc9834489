package egress

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// turns is who goes to the pacing next, of the calls that the quota has approved.
// It matters when the provider gives less than the quota: then the quota's own
// order would be lost in a line of those who came first. The greater priority goes
// first; then the tenant that was served least for its weight while others waited;
// then who came first.
type turns struct {
	mu      sync.Mutex
	taken   bool // somebody is at the pacing
	waiting []*turn
	served  map[string]float64 // by tenant, in shares of a minute by weight
	virtual float64            // what the tenant that went last had been served
}

// turn is one who waits.
type turn struct {
	priority int
	tenant   string
	share    float64 // what it takes, by weight
	granted  chan struct{}
}

// take waits until it is the caller's turn, which ends with pass. It is refused
// at once when those who are certain to go before leave no time, each taking about
// an interval.
func (t *turns) take(ctx context.Context, w *turn, interval func() time.Duration) error {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.serve(w)
		t.mu.Unlock()
		return nil
	}
	ahead, queued := 0, false
	for _, other := range t.waiting {
		if other.priority > w.priority || other.priority == w.priority && other.tenant == w.tenant {
			ahead++
		}
		queued = queued || other.tenant == w.tenant
	}
	if deadline, ok := ctx.Deadline(); ok && ahead > 0 {
		if at := time.Now().Add(time.Duration(ahead) * interval()); at.After(deadline) {
			at = time.Now().Add(t.ahead(w, interval))
			t.mu.Unlock()
			return &reason.Refusal{Reason: reason.Deadline, RetryAt: at.Round(0)}
		}
	}
	if !queued {
		t.enter(w.tenant)
	}
	w.granted = make(chan struct{})
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	at := slices.Index(t.waiting, w)
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
	refusal := &reason.Refusal{Reason: reason.Canceled, Err: ctx.Err()}
	if ctx.Err() == context.DeadlineExceeded {
		refusal.Reason = reason.Deadline
		if wait := t.ahead(w, interval); wait > 0 {
			refusal.RetryAt = time.Now().Add(wait).Round(0)
		}
	}
	t.mu.Unlock()
	if at < 0 { // it was granted meanwhile
		t.pass()
	}
	return refusal
}

// expected is how long those who wait would keep w waiting if it came now.
func (t *turns) expected(w *turn, interval func() time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ahead(w, interval)
}

// ahead is how long those take who would go before w if it came now: the greater
// priority, its own tenant's, and of other tenants those whose share comes before.
// t.mu must be held.
func (t *turns) ahead(w *turn, interval func() time.Duration) time.Duration {
	n := 0
	mine := max(t.served[w.tenant], t.virtual)
	for _, other := range t.waiting {
		if other.tenant == w.tenant && other != w && other.priority >= w.priority {
			mine += other.share
			n++
		}
	}
	theirs := map[string]float64{}
	for _, other := range t.waiting {
		if other.tenant == w.tenant {
			continue
		}
		if t.served[other.tenant]+theirs[other.tenant] <= mine && other.priority == w.priority || other.priority > w.priority {
			n++
		}
		if other.priority >= w.priority {
			theirs[other.tenant] += other.share
		}
	}
	return time.Duration(n) * interval()
}

// pass ends a turn.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		// Nobody waits, so that nobody was served at another's cost.
		t.taken, t.virtual = false, 0
		clear(t.served)
		return
	}
	next := 0
	for i, w := range t.waiting {
		best := t.waiting[next]
		if cmp.Or(cmp.Compare(best.priority, w.priority), cmp.Compare(t.served[w.tenant], t.served[best.tenant])) < 0 {
			next = i
		}
	}
	w := t.waiting[next]
	t.waiting = slices.Delete(t.waiting, next, next+1)
	t.serve(w)
	close(w.granted)
}

// enter lets a tenant begin where the others are: it saved nothing up.
func (t *turns) enter(tenant string) {
	if t.served == nil {
		t.served = map[string]float64{}
	}
	t.served[tenant] = max(t.served[tenant], t.virtual)
}

// serve counts a turn.
func (t *turns) serve(w *turn) {
	t.enter(w.tenant)
	t.virtual = max(t.virtual, t.served[w.tenant])
	t.served[w.tenant] += w.share
}

// turn is what an attempt takes of a minute, by its tenant's weight.
func (a *attempt) turn() *turn {
	w := &turn{priority: a.request.Priority, tenant: a.request.Tenant, share: 1}
	q, ok := a.call.up.Approver.(configured)
	if !ok {
		return w
	}
	c := q.Config()
	share := 0.0
	for _, l := range []quota.Limits{c.Global, c.Models[a.request.Model].Limits} {
		if l.CallsPerMinute > 0 {
			share = max(share, 1/float64(l.CallsPerMinute))
		}
		if l.TokensPerMinute > 0 {
			share = max(share, a.cost/float64(l.TokensPerMinute))
		}
	}
	if share > 0 {
		w.share = share
	}
	tenant, ok := c.Tenants[w.tenant]
	if !ok {
		tenant = c.TenantDefault
	}
	w.share /= float64(max(1, tenant.Weight))
	return w
}

// interval is about how long a turn takes.
func (u *upstream) interval() time.Duration {
	if r := u.Pacing.Snapshot().Rate; r != nil {
		return time.Duration(r.CurrentIntervalMS * float64(time.Millisecond))
	}
	return 0
}
