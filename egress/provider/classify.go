package provider

import (
	"maps"
	"net/http"
	"time"

	"github.com/headway-go/headway/signal"
)

// Classify reads what one response of the upstream tells: it is [signal.Read],
// after the upstream's own names of limit headers were put into those that it
// knows. now is the wall clock when the response came; the body of an error may be
// cut short.
//
// A payment that is required (402, as several that copy OpenAI's API answer) is a
// quota that is used up: no wait in place helps. Its class stays rejected, since
// it says nothing of the rate.
func (d *Description) Classify(now time.Time, status int, h http.Header, body []byte) signal.Signal {
	s := signal.Read(now, status, d.renamed(h), body)
	if status == http.StatusPaymentRequired && d.API != HTTP {
		s.Exhausted = true
	}
	return s
}

// renamed is h itself where nothing is to be renamed. A header that is there
// under the known name already stays.
func (d *Description) renamed(h http.Header) http.Header {
	out := h
	for from, to := range d.LimitHeaders {
		if len(h[from]) == 0 || len(h[to]) > 0 {
			continue
		}
		if len(out) == len(h) {
			out = maps.Clone(h)
		}
		out[to] = h[from]
	}
	return out
}
