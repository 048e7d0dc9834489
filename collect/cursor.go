package collect

import (
	"errors"
	"net/http"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// cursorRepeats is the end of a run whose list runs in a circle.
func (r *execution) cursorRepeats() *stop {
	return &stop{why: reason.CursorRepeats, err: &connector.Failure{
		Reason: reason.CursorRepeats, Method: http.MethodGet, Path: r.caller.route(),
		Err: errors.New("the list gave a next cursor that it had given before, so its paging never ends; " +
			"everything up to there is kept; check paginate and its parameter"),
	}}
}

// cursorRefused reports whether the provider no longer knows a cursor.
func cursorRefused(err error) bool {
	f, ok := errors.AsType[*connector.Failure](err)
	if !ok {
		return false
	}
	switch f.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// begin sets the lane to the first page of a walk.
func (l *Lane) begin() {
	*l = Lane{Stream: l.Stream, Kind: l.Kind, Walking: true, Done: l.Done, Since: l.Since, Watermark: l.Watermark}
}

// advance moves the lane past a page. It reports a cursor that repeats; the
// lane then stays at the page, with the cursor that led to it.
func (l *Lane) advance(p connector.Page) (repeats bool) {
	if l.Pages == 0 {
		l.Start = p.ServerTime
	}
	for _, it := range p.Items {
		l.High = higher(l.High, it.Watermark)
	}
	if p.Next != "" && (p.Next == l.Cursor || l.Trail.Step(p.Next)) {
		return true
	}
	l.Pages++
	l.Cursor = p.Next
	if p.Next == "" {
		*l = Lane{
			Stream: l.Stream, Kind: l.Kind, Done: true, Pages: l.Pages,
			Watermark: higher(l.Watermark, settled(l.High, l.Start)),
		}
	}
	return false
}

// ask is the request for the page that the lane stands at.
func (l *Lane) ask() connector.ListRequest {
	return connector.ListRequest{Stream: l.Stream, Cursor: l.Cursor, Since: l.Since}
}
