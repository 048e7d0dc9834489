package governor

import (
	"slices"
	"time"

	"github.com/headway-go/headway/quota"
)

// Reserve makes a reservation for a request that waits in another queue, such as that of
// a headway.Governor, so that it waits in one queue for all that it needs. Until the
// reservation ends, by is woken when budgets may have capacity. The error is that of
// [Governor.Approve], if no wait helps.
func (g *Governor) Reserve(r quota.Request, by quota.Waker) (quota.Reservation, error) {
	g.mu.Lock()
	g.ask(&r, false)
	now := g.now()
	if g.closed {
		g.mu.Unlock()
		return nil, closed()
	}
	place, d := g.core.Join(now, r)
	at := g.at(now)
	if place != nil {
		g.expect(by)
	}
	g.settled(now)
	g.mu.Unlock()
	g.tell()
	if place == nil {
		return nil, d.Refusal(at)
	}
	return &reservation{g: g, place: place, by: by, asked: now}, nil
}

// reservation is a place in the core. All mutable fields are guarded by g.mu.
type reservation struct {
	g     *Governor
	place *quota.Place
	by    quota.Waker
	asked time.Duration

	stage      stage
	decision   quota.Decision
	generation uint64 // what the store has to cover before the permit is used
}

// stage is the stage of a reservation: it waits until Reserve has succeeded.
type stage uint8

const (
	waits stage = iota
	holds
	over // the permit was handed out or given back, or there was none
)

func (r *reservation) Tenant() string { name, _ := r.tenant(); return name }
func (r *reservation) Weight() int    { _, weight := r.tenant(); return int(weight) }

func (r *reservation) tenant() (string, int64) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	return r.place.Tenant()
}

func (r *reservation) Keys() []uint32       { return locked(r.g, r.place.Keys) }
func (r *reservation) Cost() time.Duration  { return locked(r.g, r.place.Cost) }
func (r *reservation) Whole() time.Duration { return locked(r.g, r.g.core.Whole) }
func (r *reservation) Load(key uint32) int64 {
	return locked(r.g, func() int64 { return r.place.Load(key) })
}

func (r *reservation) Serves(key uint32, load int64) time.Duration {
	return locked(r.g, func() time.Duration { return r.g.core.Serves(r.g.now(), r.place, key, load) })
}

// locked reads from the core with the lock held.
func locked[T any](g *Governor, read func() T) T {
	g.mu.Lock()
	defer g.mu.Unlock()
	return read()
}

func (r *reservation) Reserve() (retryIn time.Duration, blocked uint32, err error) {
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || r.stage == over {
		return 0, 0, closed()
	}
	now := g.now()
	d, blocked := g.core.Take(now, r.place)
	generation := g.settled(now)
	g.tellLater()
	switch {
	case d.Approved:
		r.stage, r.decision, r.generation = holds, d, generation
		return 0, 0, nil
	case d.Final:
		r.end()
		return 0, 0, d.Refusal(g.at(now))
	}
	return d.RetryIn, blocked, nil
}

func (r *reservation) Back() {
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.stage != holds {
		return
	}
	now := g.now()
	g.core.Back(now, r.place, r.decision.Permit)
	r.stage, r.decision = waits, quota.Decision{}
	g.settled(now)
	g.tellLater()
}

func (r *reservation) Confirm() error {
	g := r.g
	g.mu.Lock()
	if r.stage != holds {
		g.mu.Unlock()
		return closed()
	}
	r.end()
	at := g.at(g.now())
	d, generation := r.decision, r.generation
	g.mu.Unlock()
	_, err := g.handOut(r.asked, at, d, generation)
	return err
}

func (r *reservation) Refuse(wait time.Duration) error {
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.stage != waits {
		return closed()
	}
	r.end()
	now := g.now()
	d := g.core.Refuse(now, r.place, wait)
	g.settled(now)
	g.tellLater()
	return d.Refusal(g.at(now))
}

func (r *reservation) Decision() quota.Decision { return r.decision }

func (r *reservation) Leave() {
	r.g.mu.Lock()
	left := r.stage == over
	r.g.mu.Unlock()
	if left {
		return
	}
	r.g.change(func(now time.Duration) {
		switch r.stage {
		case waits:
			r.g.core.Leave(now, r.place)
		case holds:
			_, _ = r.g.core.Cancel(now, r.decision.Permit) // cannot fail: the permit was not handed out
		case over:
			return
		}
		r.end()
	})
}

// end ends the reservation, with the lock held.
func (r *reservation) end() {
	r.stage = over
	g := r.g
	i := slices.IndexFunc(g.wakers, func(w waker) bool { return w.by == r.by })
	if g.wakers[i].n--; g.wakers[i].n == 0 {
		g.wakers = slices.Delete(g.wakers, i, i+1)
	}
}

// waker is woken when budgets may have capacity, as long as it has reservations.
type waker struct {
	by quota.Waker
	n  int
}

// expect counts one more reservation of by, with the lock held.
func (g *Governor) expect(by quota.Waker) {
	i := slices.IndexFunc(g.wakers, func(w waker) bool { return w.by == by })
	if i < 0 {
		g.wakers = append(g.wakers, waker{by: by})
		i = len(g.wakers) - 1
	}
	g.wakers[i].n++
}

// awaking are the wakers to wake once the lock is released, usually one.
type awaking struct {
	first quota.Waker
	rest  []waker
}

// waking returns the wakers to wake because there may be capacity, with the lock held.
func (g *Governor) waking() (w awaking) {
	if len(g.wakers) > 0 {
		w.first = g.wakers[0].by
		w.rest = slices.Clone(g.wakers[1:])
	}
	return w
}

func (w awaking) all() {
	if w.first != nil {
		w.first.Wake()
	}
	for _, one := range w.rest {
		one.by.Wake()
	}
}

// tellLater is tell for callers that hold this lock or another one.
func (g *Governor) tellLater() {
	if g.core.HasEvents() && !g.telling {
		go g.tell()
	}
}
