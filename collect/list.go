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
func (r *execution) list(ctx context.Context, ask connector.ListRequest) (connector.Page, error) {
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
func (r *execution) rest(ctx context.Context, wait time.Duration) bool {
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
func (r *execution) unlisted(ctx context.Context, l *Lane, err error) *stop {
	s := r.refusedFor(ctx, err)
	first := l.Kind == Catchup && !l.Done && l.Pages == 0
	if garbled(err) && !first {
		return &stop{why: s.why, retryAt: s.retryAt, cause: s.err}
	}
	return s
}

// unfinished reports whether pages of the run's streams are left to walk.
func (r *execution) unfinished(ctx context.Context) (bool, error) {
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

// ahead is a page that is asked for while the one before is stored, or while the last
// details of that are under way. Only one is under way at a time, and what it gives is
// looked at when the one before is committed.
type ahead struct {
	cancel context.CancelFunc
	wanted func() // ends the time in which nothing waits for it
	done   chan struct{}
	page   connector.Page
	err    error
}

// maxAhead is the size of the largest page, in bytes of its records, beside which
// the next one is held.
const maxAhead = 8 << 20

// askAhead asks for the page at l. Alone says that no other response is waited for
// meanwhile.
func (r *execution) askAhead(ctx context.Context, l *Lane, alone bool) *ahead {
	ctx, cancel := context.WithCancel(ctx)
	a := &ahead{cancel: cancel, wanted: func() {}, done: make(chan struct{})}
	if alone {
		a.wanted = r.live.asksAhead()
	}
	ask := l.ask()
	go func() {
		defer close(a.done)
		a.page, a.err = r.list(ctx, ask)
		for i := range a.page.Items { // beside the commit of the page before
			a.page.Items[i].Fingerprint = fingerprint(a.page.Items[i])
		}
	}()
	return a
}

// mayAskAhead reports whether the page at next may be asked for before page is
// stored: there is one, nothing ends the run first, and the two do not take much memory.
func (r *execution) mayAskAhead(ctx context.Context, page connector.Page, next *Lane) bool {
	if !next.Walking || r.halted(ctx) != nil {
		return false
	}
	size := 0
	for i := range page.Items {
		size += len(page.Items[i].Data)
	}
	return size <= maxAhead
}

// take waits for the page.
func (a *ahead) take() (connector.Page, error) {
	a.wanted()
	<-a.done
	a.cancel()
	return a.page, a.err
}

// drop ends the request for a page that nobody will take.
func (a *ahead) drop() {
	a.wanted()
	a.cancel()
	<-a.done
}
