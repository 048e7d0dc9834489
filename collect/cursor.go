package collect

import (
	"errors"
	"net/http"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// cursorRepeats returns the stop for a list whose cursors repeat.
func (r *execution) cursorRepeats() *stop {
	return &stop{why: reason.CursorRepeats, err: &connector.Failure{
		Reason: reason.CursorRepeats, Method: http.MethodGet, Path: r.caller.route(),
		Err: errors.New("the list returned a next cursor that it had returned before, so its paging never ends; " +
			"everything up to there is kept; check paginate and its parameter"),
	}}
}

// cursorRefused reports whether the provider no longer accepts a cursor.
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

// advance moves the lane past a page. If the next cursor was seen before, it returns
// true and the lane stays at the page.
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

// ask returns the request for the lane's next page.
func (l *Lane) ask() connector.ListRequest {
	return connector.ListRequest{Stream: l.Stream, Cursor: l.Cursor, Since: l.Since}
}
