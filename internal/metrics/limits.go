package metrics

import (
	"math"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-go/headway/event"
)

var (
	limitSize  = describe("headway_connection_limit", "A limit, in units a window or in requests under way; no sample while its size is unknown.", "connection", "kind", "unit", "window_seconds", "pool", "provenance")
	limitTrust = describe("headway_connection_limit_confidence", "How sure a limit is, from 0 to 1; 1 for one that the owner set.", "connection", "kind", "unit", "window_seconds", "pool", "provenance")
)

// labels tell the limits of one connection apart.
type labels struct {
	kind, unit, window, pool string
	provenance               event.Provenance
}

// limits are those of one connection: of several with the same labels the tightest.
func limits(ch chan<- prometheus.Metric, connection string, all []event.Limit) {
	tightest := make(map[labels]event.Limit, len(all))
	for _, l := range all {
		of := labels{l.Kind, l.Unit, strconv.FormatFloat(math.Round(l.WindowS), 'f', -1, 64), l.Pool, l.Provenance}
		if was, ok := tightest[of]; !ok || was.Size == 0 || l.Size > 0 && l.Size < was.Size {
			tightest[of] = l
		}
	}
	for of, l := range tightest {
		values := []string{connection, of.kind, of.unit, of.window, of.pool, string(of.provenance)}
		if l.Size > 0 {
			ch <- gauge(limitSize, l.Size, values...)
		}
		ch <- gauge(limitTrust, l.Confidence, values...)
	}
}
