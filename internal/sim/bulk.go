package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// MaxBatches bounds a bulk run: a load that takes more is an error.
const MaxBatches = 2_000_000

// The laws of bulk workloads, beside "fixed:N" for N places. All of them send
// through the same dispatcher: batches of the same target time, the same
// Retry-After gate and breaker.
const (
	// BulkParallel obeys the server's hint and the execution time that the
	// scenario's first busy_time limit allows: what a bulk load does that is
	// configured with the documented limit. The default.
	BulkParallel = "parallel"
	// BulkTold is the same without configuration: it knows the hint from the first
	// answer on, and the execution time from the first refusal that names it.
	BulkTold = "told"
	// BulkAIMD only adds while batches succeed and halves on a throttle, up to 52:
	// it knows neither hint nor execution time.
	BulkAIMD = "aimd"
	// BulkHint is the server's recommendation as it is, whatever happens, from the
	// start: as a client that reads it when it signs in. 52 where there is none.
	BulkHint = "hint"
)

const bulkFixed = "fixed:"

// BulkLaws are the laws of bulk workloads that have no number: all but "fixed:N".
func BulkLaws() []string { return []string{BulkParallel, BulkTold, BulkAIMD, BulkHint} }

// BulkLaw says whether a law can move a bulk workload; the error names those
// that can.
func BulkLaw(law string) error {
	if n, fixed := strings.CutPrefix(law, bulkFixed); fixed {
		if places, err := strconv.Atoi(n); err != nil || places < 1 || places > scenario.MaxPlaces {
			return fmt.Errorf("sim: law %q: %q must be a whole number from 1 to %d", law, n, scenario.MaxPlaces)
		}
		return nil
	}
	if slices.Contains(BulkLaws(), law) {
		return nil
	}
	return fmt.Errorf("sim: law is %q, must be one of %s, %sN for a bulk workload", law, strings.Join(BulkLaws(), ", "), bulkFixed)
}

// Bulk reports whether a scenario's workload is bulk: then it is for [RunBulk],
// otherwise for [Run].
func Bulk(s *scenario.Scenario) bool { return s != nil && s.Workload.Kind == scenario.Bulk }

// RunBulk loads the rows of a scenario whose workload is bulk. The options' Law
// is "" for [BulkParallel], one of [BulkLaws], or "fixed:N" for N batches in
// flight of each user. It is an error when the law or the workload is another,
// when N is above the workload's max_in_flight and when the load takes more
// than [MaxBatches].
func RunBulk(s *scenario.Scenario, o Options) (BulkResult, error) {
	switch {
	case s == nil:
		return BulkResult{}, errNoScenario
	case !Bulk(s):
		return BulkResult{}, fmt.Errorf("sim: scenario %s has the workload %s, which is not bulk", s.Name, s.Workload.Kind)
	case o.Law == "":
		o.Law = BulkParallel
	}
	p, sees, err := bulkParams(s, o)
	if err != nil {
		return BulkResult{}, err
	}
	e, err := newBulkEngine(s, o.Seed, &p, sees)
	if err != nil {
		return BulkResult{}, err
	}
	if err := e.run(); err != nil {
		return BulkResult{}, fmt.Errorf("sim: scenario %s, law %s: %w", s.Name, o.Law, err)
	}
	return e.result(o), nil
}

// CompareBulk runs every bulk scenario under every law with one seed, as
// [Compare] does for the other workloads.
func CompareBulk(scenarios []*scenario.Scenario, laws []string, seed uint64) ([]BulkResult, error) {
	results := make([]BulkResult, 0, len(scenarios)*len(laws))
	for _, s := range scenarios {
		for _, law := range laws {
			r, err := RunBulk(s, Options{Law: law, Seed: seed})
			if err != nil {
				return nil, err
			}
			results = append(results, r)
		}
	}
	return results, nil
}

// heldRows bounds the rows that a run holds, far above what a load of any sense
// has in flight.
const heldRows = 2 << 20

// bulkParams are the numbers of a load under a law, and whether it sees what
// the server recommends.
func bulkParams(s *scenario.Scenario, o Options) (p dispatch.Params, sees bool, err error) {
	if err := BulkLaw(o.Law); err != nil {
		return p, false, err
	}
	places := s.Workload.MaxInFlight
	law := control.ParallelismParams{Max: min(control.DefaultMaxParallelism, places), Ceiling: places}
	switch o.Law {
	case BulkParallel:
		sees = true
		for _, l := range s.Provider.Limits {
			if l.Kind == scenario.BusyTime {
				law.BusyBudget, law.BusyWindow = l.Busy, l.Window
				break
			}
		}
	case BulkTold:
		sees = true
	case BulkHint:
		sees, law.Disabled = true, true
		if hint := s.Provider.Hint; hint > 0 {
			law.Max = min(hint, places)
		}
	case BulkAIMD:
	default:
		n, err := strconv.Atoi(strings.TrimPrefix(o.Law, bulkFixed))
		if err != nil || n > places {
			return p, false, fmt.Errorf("sim: law %q: %d places are above the workload's max_in_flight of %d", o.Law, n, places)
		}
		law.Disabled, law.Max = true, n
	}
	batch := s.Provider.Batch
	p = dispatch.Params{
		Law: law, Hinted: sees && s.Provider.Hint > 0, BatchRows: batch.MaxRows, Resend: dispatch.ResendAny, Seed: mix(o.Seed, 0),
		WindowRows: min(max(dispatch.DefaultWindowRows, s.Workload.Users*places*batch.MaxRows), heldRows),
	}
	p, err = p.Resolve()
	return p, sees, err
}
