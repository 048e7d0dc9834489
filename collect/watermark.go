package collect

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// higher returns the later of two watermarks. Watermarks are the provider's own values:
// times in RFC 3339, numbers, or text that sorts. Two of the same kind are compared as
// that kind, others as text. An empty one is lower than any other.
func higher(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	if ta, ok := instant(a); ok {
		if tb, ok := instant(b); ok {
			if tb.After(ta) {
				return b
			}
			return a
		}
	}
	if na, err := strconv.ParseInt(a, 10, 64); err == nil {
		if nb, err := strconv.ParseInt(b, 10, 64); err == nil {
			if nb > na {
				return b
			}
			return a
		}
	}
	if b > a {
		return b
	}
	return a
}

// lower returns the earlier of two watermarks by the same rules.
func lower(a, b string) string {
	if precedes(b, a) {
		return b
	}
	return a
}

// precedes reports whether a is earlier than b.
func precedes(a, b string) bool { return a != b && higher(a, b) == b }

// settled returns the watermark after which the next walk lists changes, once a walk that
// began at start (by the provider's clock) is complete: the highest one seen, but none
// after start. An item may have changed during the walk after its page was read, and a
// later watermark would hide that change forever. Clocks and watermarks often count in
// seconds, and a list may exclude the watermark itself, so the result is before the
// second of start.
func settled(high string, start time.Time) string {
	t, _ := instant(high) // the zero time if it is not a point in time
	if start.IsZero() || t.Before(start.Truncate(time.Second)) {
		return high
	}
	return like(high, before(start))
}

// before returns the second before start, or the zero time if start is zero.
func before(start time.Time) time.Time {
	if start.IsZero() {
		return start
	}
	return start.Truncate(time.Second).Add(-time.Second)
}

// like formats a time in the format of the sample. It returns "" if the sample is not a
// point in time.
func like(sample string, at time.Time) string {
	if _, ok := instant(sample); !ok || at.IsZero() {
		return ""
	}
	if _, number := epoch(sample); number != nil {
		return strconv.FormatInt(number(at), 10)
	}
	return at.UTC().Format(time.RFC3339)
}

// earlier returns a watermark moved back by d, in the same format and rounded down to the
// precision of that format. ok is false if w is not a point in time.
func earlier(w string, d time.Duration) (moved string, ok bool) {
	if at, ok := instant(w); ok {
		return like(w, at.Add(-d)), true
	}
	for _, layout := range []string{time.DateOnly, time.DateTime, "2006-01-02T15:04:05"} {
		if at, err := time.Parse(layout, w); err == nil {
			return at.Add(-d).Format(layout), true
		}
	}
	return "", false
}

// instant parses a watermark that is a point in time: RFC 3339, or seconds or milliseconds
// since 1970 within this century.
func instant(w string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, w); err == nil {
		return t, true
	}
	t, number := epoch(w)
	return t, number != nil
}

// epoch parses seconds or milliseconds since 1970. number converts a time to the same
// unit; it is nil if w is not a time of this century.
func epoch(w string) (t time.Time, number func(time.Time) int64) {
	const begin, end = 946684800, 4102444800 // 2000 and 2100
	n, _ := strconv.ParseInt(w, 10, 64)      // out of range if w is not a number
	switch {
	case n >= begin && n < end:
		return time.Unix(n, 0), time.Time.Unix
	case n >= 1000*begin && n < 1000*end:
		return time.UnixMilli(n), time.Time.UnixMilli
	}
	return time.Time{}, nil
}

var errNotInclusive = errors.New("the list is declared inclusive, but a request for changes since a watermark left out an item " +
	"with that watermark; nothing is lost; remove inclusive from incremental")

var errTimeless = errors.New("incremental has a lookback, but no cursor on a page is a point in time " +
	"(RFC 3339, a date, seconds or milliseconds since 1970); nothing is lost; remove lookback from incremental")

// timeless reports whether items have watermarks and none of them is a point in time.
func timeless(items []connector.Item) bool {
	some := false
	for _, it := range items {
		if _, ok := earlier(it.Watermark, 0); ok {
			return false
		}
		some = some || it.Watermark != ""
	}
	return some
}

// contradiction returns an error if a page contradicts the declared order of its list.
// high is the highest watermark of earlier pages. A page may begin below it, since new
// items shift the pages, but it must not lie below it entirely.
func contradiction(s connector.Stream, high string, items []connector.Item) error {
	if s.Lookback > 0 && timeless(items) {
		return errTimeless
	}
	if !s.Ascending {
		return nil
	}
	top := ""
	for i, it := range items {
		if it.Watermark != "" && precedes(it.Watermark, top) {
			return fmt.Errorf("the list is declared to be in ascending order, but item %d of a page has a lower watermark "+
				"than an item before it; nothing is lost; remove order from incremental", i+1)
		}
		top = higher(top, it.Watermark)
	}
	if top != "" && precedes(top, high) {
		return errors.New("the list is declared to be in ascending order, but a page has lower watermarks than the pages before it; " +
			"nothing is lost; remove order from incremental")
	}
	return nil
}

// contradicted returns the stop for a list that contradicts its declaration.
func (r *execution) contradicted(err error) *stop {
	return &stop{why: reason.InvalidResponse, err: &connector.Failure{
		Reason: reason.InvalidResponse, Method: http.MethodGet, Path: r.caller.route(), Err: err,
	}}
}

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
