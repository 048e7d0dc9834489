package collect

import (
	"context"

	"github.com/headway-go/headway/connector"
)

// ahead is a page that is asked for while the one before is stored. Only one is
// under way at a time, and what it gives is looked at when that is committed.
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

// askAhead asks for the page at l.
func (r *run) askAhead(ctx context.Context, l *Lane) *ahead {
	ctx, cancel := context.WithCancel(ctx)
	a := &ahead{cancel: cancel, wanted: r.live.asksAhead(), done: make(chan struct{})}
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
// stored: there is one, nothing ends the run first, no detail comes between, and
// the two do not take much memory.
func (r *run) mayAskAhead(ctx context.Context, s connector.Stream, page connector.Page, next *Lane) bool {
	if !next.Walking || s.DetailStream != "" || r.halted(ctx) != nil {
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

// ask is the request for the page that the lane stands at.
func (l *Lane) ask() connector.ListRequest {
	return connector.ListRequest{Stream: l.Stream, Cursor: l.Cursor, Since: l.Since}
}
