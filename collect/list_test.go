package collect

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
)

// garbling is a connector whose first lists are not pages.
type garbling struct {
	connector.Connector
	bad   int
	asked int
}

func (g *garbling) List(context.Context, connector.Caller, connector.ListRequest) (connector.Page, error) {
	if g.asked++; g.asked <= g.bad {
		return connector.Page{}, &connector.Failure{Reason: reason.InvalidResponse, Status: 200, Class: reason.Failed}
	}
	return connector.Page{Next: "b"}, nil
}

func TestAListThatIsNotAPageIsAskedForAsOftenAsARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name     string
			bad      int
			stop     bool
			asked    int
			complete bool
		}{
			{"at once", 0, false, 1, true},
			{"the third time", 2, false, 3, true},
			{"never", 9, false, 3, false},
			{"once, and then the run is stopped", 9, true, 1, false},
		} {
			g := &garbling{bad: tt.bad}
			halt := make(chan struct{})
			r := &execution{o: Options{Connector: g, Retry: retry.Backoff{Attempts: 3}, Stop: halt}, started: time.Now()}
			r.live.started = r.started
			if tt.stop {
				close(halt)
			}
			page, err := r.list(t.Context(), connector.ListRequest{})
			if g.asked != tt.asked || (err == nil) != tt.complete || (page.Next == "b") != tt.complete {
				t.Errorf("%s: asked %d times, %+v, %v", tt.name, g.asked, page, err)
			}
		}
		halt := make(chan struct{})
		r := &execution{o: Options{Stop: halt}}
		r.live.started = time.Now()
		if began := time.Now(); !r.rest(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("a rest of a minute took %v", time.Since(began))
		}
		close(halt)
		if r.rest(t.Context(), time.Minute) {
			t.Error("a run that was stopped rests to the end")
		}
	})
}

func TestABadFirstPageIsTheConnectionsFault(t *testing.T) {
	bad := func(change func(*connector.Failure)) error {
		f := &connector.Failure{Reason: reason.InvalidResponse, Status: 200, Class: reason.Failed}
		change(f)
		return f
	}
	page := bad(func(*connector.Failure) {})
	for _, tt := range []struct {
		name   string
		lane   Lane
		err    error
		failed bool
		why    reason.Reason
	}{
		{"the very first page", Lane{Kind: Catchup}, page, true, reason.InvalidResponse},
		{"the second", Lane{Kind: Catchup, Pages: 1}, page, false, reason.InvalidResponse},
		{"the first of a walk once all was walked", Lane{Kind: Catchup, Done: true}, page, false, reason.InvalidResponse},
		{"the first of what changed", Lane{Kind: Steady}, page, false, reason.InvalidResponse},
		{"a page that is gone", Lane{Kind: Steady}, bad(func(f *connector.Failure) { f.Reason, f.Status = reason.NotFound, 404 }), true, reason.NotFound},
		{"a provider in trouble", Lane{Kind: Catchup}, bad(func(f *connector.Failure) { f.Reason, f.Status = reason.ServerError, 503 }), false, reason.ServerError},
	} {
		end := (&execution{}).unlisted(t.Context(), &tt.lane, tt.err)
		failure, cause := error(nil), tt.err
		if tt.failed {
			failure, cause = tt.err, nil
		}
		if end.why != tt.why || !errors.Is(end.err, failure) || !errors.Is(end.cause, cause) {
			t.Errorf("%s: %+v", tt.name, end)
		}
	}
}

func TestWhichPageIsAskedForAhead(t *testing.T) {
	of := func(sizes ...int) (p connector.Page) {
		for _, n := range sizes {
			p.Items = append(p.Items, connector.Item{Data: make([]byte, n)})
		}
		return p
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		name    string
		ctx     context.Context
		details string
		page    connector.Page
		last    bool
		want    bool
	}{
		{"the next of small pages", t.Context(), "", of(1, 1), false, true},
		{"the next of an empty page", t.Context(), "", of(), false, true},
		{"none after the last", t.Context(), "", of(1), true, false},
		{"none before the details", t.Context(), "messages", of(1), false, false},
		{"none once the run ended", ended, "", of(1), false, false},
		{"the next of a page that is large", t.Context(), "", of(4<<20, 4<<20), false, true},
		{"none beside one that is too large", t.Context(), "", of(4<<20, 4<<20, 1), false, false},
	} {
		if got := (&execution{}).mayAskAhead(tt.ctx, connector.Stream{DetailStream: tt.details}, tt.page, &Lane{Walking: !tt.last}); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
