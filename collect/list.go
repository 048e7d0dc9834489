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

// list requests one page. A successful response that is not a page, such as HTML from a
// proxy or truncated JSON, is retried like a failed attempt, with the same backoff and
// limit.
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

// rest waits. It returns false if the run must end instead.
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

// garbled reports whether the response had a success status and an unreadable body.
func garbled(err error) bool {
	f, ok := errors.AsType[*connector.Failure](err)
	return ok && f.Reason == reason.InvalidResponse && f.Status/100 == 2 && f.Class.Retryable() && f.Stopped == reason.None
}

// unlisted returns the stop for a list that could not be read. An unreadable first page
// means that the connection is wrong, and the run fails. On a later page the provider
// has a temporary problem: the run is deferred, and a later one continues at the cursor.
func (r *execution) unlisted(ctx context.Context, l *Lane, err error) *stop {
	s := r.refusedFor(ctx, err)
	first := l.Kind == Catchup && !l.Done && l.Pages == 0
	if garbled(err) && !first {
		return &stop{why: s.why, retryAt: s.retryAt, cause: s.err}
	}
	return s
}

// unfinished reports whether any stream of the run has pages left.
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

// unwalked reports whether a stream has pages left: its catch-up is not done, or a
// steady walk is under way.
func unwalked(lanes []Lane, stream string) bool {
	return !lane(lanes, stream, Catchup).Done || lane(lanes, stream, Steady).Walking
}

// Unfinished reports whether any stream has pages left, according to the stored state.
// Streams that the connection no longer has do not count.
func (c ConnectionStatus) Unfinished() bool {
	if len(c.Lanes) == 0 {
		return c.LastRun != nil // the first page was never committed
	}
	return slices.ContainsFunc(c.Lanes, func(l Lane) bool {
		gone := slices.ContainsFunc(c.Shapes, func(s StreamShape) bool { return s.Stream == l.Stream && s.Gone })
		return !gone && unwalked(c.Lanes, l.Stream)
	})
}

// ahead is a page that is requested early: while the page before is stored, or while
// its last details are in flight. At most one such request is in flight.
type ahead struct {
	cancel context.CancelFunc
	wanted func() // called when the run begins to wait for the page
	done   chan struct{}
	page   connector.Page
	err    error
}

// maxAhead is the maximum size of a page, in bytes of its records, for which the next
// one is requested early. It bounds memory.
const maxAhead = 8 << 20

// askAhead requests the page at l. alone reports that no other request is in flight
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
		for i := range a.page.Items { // concurrently with the commit of the page before
			a.page.Items[i].Fingerprint = fingerprint(a.page.Items[i])
		}
	}()
	return a
}

// mayAskAhead reports whether the page at next may be requested before page is stored:
// it exists, the run is not about to stop, and page is small enough.
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

// take waits for the page and returns it.
func (a *ahead) take() (connector.Page, error) {
	a.wanted()
	<-a.done
	a.cancel()
	return a.page, a.err
}

// drop cancels the request and waits for its end.
func (a *ahead) drop() {
	a.wanted()
	a.cancel()
	<-a.done
}
