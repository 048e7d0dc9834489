package collect

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

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
func (r *run) contradicted(err error) *stop {
	return &stop{why: reason.InvalidResponse, err: &connector.Failure{
		Reason: reason.InvalidResponse, Method: http.MethodGet, Path: r.caller.route(), Err: err,
	}}
}
