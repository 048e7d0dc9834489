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

// higher is the later of two watermarks. Watermarks are the provider's own
// values: instants in RFC 3339, numbers, or text that sorts. Two of the same
// kind are compared as that kind, others as text.
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

// lower is the earlier of two watermarks by the same rule. None is before all.
func lower(a, b string) string {
	if precedes(b, a) {
		return b
	}
	return a
}

// precedes reports whether a is earlier than b, and not the same.
func precedes(a, b string) bool { return a != b && higher(a, b) == b }

// settled is the watermark to list changes after, once a walk that began at
// start (by the provider's clock) is complete: the highest one seen, but none
// from after the start. An item that changed while the walk was under way may
// have been passed already; a watermark past it would hide that change for ever.
// Since clocks and watermarks often count in seconds, and a list may leave out
// the very watermark that it is asked for, the second of the start counts as
// after it.
func settled(high string, start time.Time) string {
	t, _ := instant(high) // the zero time where it is not a point in time
	if start.IsZero() || t.Before(start.Truncate(time.Second)) {
		return high
	}
	return like(high, before(start))
}

// before is a second before a walk's start.
func before(start time.Time) time.Time {
	if start.IsZero() {
		return start
	}
	return start.Truncate(time.Second).Add(-time.Second)
}

// like writes a point in time the way the sample writes one; empty when the
// sample is not a point in time.
func like(sample string, at time.Time) string {
	if _, ok := instant(sample); !ok || at.IsZero() {
		return ""
	}
	if _, number := epoch(sample); number != nil {
		return strconv.FormatInt(number(at), 10)
	}
	return at.UTC().Format(time.RFC3339)
}

// earlier is a watermark moved back by d, written the way it was; ok is false
// for one that is not a point in time. What the way of writing leaves out, such as
// the time of a day, is rounded down.
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

// instant reads a watermark that is a point in time: RFC 3339, or seconds or
// milliseconds since the epoch within this century.
func instant(w string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, w); err == nil {
		return t, true
	}
	t, number := epoch(w)
	return t, number != nil
}

// epoch reads seconds or milliseconds since 1970. Number writes a point in time the
// same way; it is nil for anything but an instant of this century.
func epoch(w string) (t time.Time, number func(time.Time) int64) {
	const begin, end = 946684800, 4102444800 // 2000 and 2100
	n, _ := strconv.ParseInt(w, 10, 64)      // out of range where it is not a number
	switch {
	case n >= begin && n < end:
		return time.Unix(n, 0), time.Time.Unix
	case n >= 1000*begin && n < 1000*end:
		return time.UnixMilli(n), time.Time.UnixMilli
	}
	return time.Time{}, nil
}

var errNotInclusive = errors.New("the list is declared inclusive, and asked for what changed since a watermark it left out an item " +
	"of that very watermark; nothing is lost; remove inclusive from incremental")

var errTimeless = errors.New("incremental has a lookback, and no cursor on a page is a point in time that is understood " +
	"(RFC 3339, a date, seconds or milliseconds since 1970); nothing is lost; remove lookback from incremental")

// timeless reports whether items have watermarks, none of them a point in time.
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

// contradiction says where a page contradicts what is declared of its list. High is
// the highest watermark of the pages before. A page may begin below it, since what
// arrives late moves the pages; it may not lie below it as a whole.
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
			return fmt.Errorf("the list is declared to be in ascending order, and item %d of a page has a lower watermark "+
				"than one before it; nothing is lost; remove order from incremental", i+1)
		}
		top = higher(top, it.Watermark)
	}
	if top != "" && precedes(top, high) {
		return errors.New("the list is declared to be in ascending order, and a page has lower watermarks than the pages before it; " +
			"nothing is lost; remove order from incremental")
	}
	return nil
}

// contradicted is the end of a run whose list is not as it was declared.
func (r *execution) contradicted(err error) *stop {
	return &stop{why: reason.InvalidResponse, err: &connector.Failure{
		Reason: reason.InvalidResponse, Method: http.MethodGet, Path: r.caller.route(), Err: err,
	}}
}
