package collect

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// list asks for one page. An answer that arrived and is not a page, such as the
// HTML of a proxy or JSON that was cut short, is asked for again like a body
// that was cut: as often as one request may be sent, with the same backoff.
func (r *run) list(ctx context.Context, ask connector.ListRequest) (connector.Page, error) {
	backoff, err := r.o.Retry.Resolve()
	if err != nil {
		return connector.Page{}, err
	}
	for n := 1; ; n++ {
		page, err := r.o.Connector.List(ctx, r.caller, ask)
		if !garbled(err) || n >= backoff.Attempts || r.halted(ctx) != nil {
			return page, err
		}
		if !r.rest(ctx, backoff.Wait(n-1, rand.Uint64())) {
			return page, err
		}
	}
}

// rest waits; false says that the run is to end instead.
func (r *run) rest(ctx context.Context, wait time.Duration) bool {
	defer r.live.resting()()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.o.Stop:
	case <-ctx.Done():
	}
	return false
}

// garbled reports whether the provider answered with success, and with something
// that is not what was asked for.
func garbled(err error) bool {
	f, ok := errors.AsType[*connector.Failure](err)
	return ok && f.Reason == reason.InvalidResponse && f.Status/100 == 2 && f.Class.Retryable() && f.Stopped == reason.None
}

// unlisted is the end of a run whose list could not be read. A list that could be
// read before and gives no pages now is a provider in trouble: the cursor stands,
// and a later run goes on. On the very first page it is the connection that is
// wrong.
func (r *run) unlisted(ctx context.Context, l *Lane, err error) *stop {
	s := r.refusedFor(ctx, err)
	first := l.Kind == Catchup && !l.Done && l.Pages == 0
	if s.err != nil && garbled(err) && !first {
		return &stop{why: s.why, retryAt: s.retryAt, cause: s.err}
	}
	return s
}

// unfinished reports whether pages of the run's streams are left to walk.
func (r *run) unfinished(ctx context.Context) (bool, error) {
	state, err := r.o.Store.Load(ctx, r.o.Connection)
	if err != nil {
		return false, err
	}
	for _, s := range r.chosen() {
		if unwalked(state.Lanes, s.Name) {
			return true, nil
		}
	}
	return false, nil
}

// unwalked reports whether pages of a stream are left: its past was never walked
// to its end, or what changed since is being walked.
func unwalked(lanes []Lane, stream string) bool {
	return !lane(lanes, stream, Catchup).Done || lane(lanes, stream, Steady).Walking
}

// Unfinished reports whether pages are left to walk, as far as is on record. What
// is left of streams that the connection no longer has does not count.
func (c ConnectionStatus) Unfinished() bool {
	if len(c.Lanes) == 0 {
		return c.LastRun != nil // it has not come to the end of its first page
	}
	return slices.ContainsFunc(c.Lanes, func(l Lane) bool {
		gone := slices.ContainsFunc(c.Shapes, func(s StreamShape) bool { return s.Stream == l.Stream && s.Gone })
		return !gone && unwalked(c.Lanes, l.Stream)
	})
}
