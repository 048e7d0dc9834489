package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/reason"
)

// MaxBatches is the maximum number of batches of a bulk run. A load that needs more is an
// error.
const MaxBatches = 2_000_000

// The laws of bulk workloads, in addition to "fixed:N" for N batches in flight. All of them
// use the same dispatcher, with the same target time for batches, Retry-After gate and
// breaker.
const (
	// BulkParallel follows the server's hint and the execution time that the scenario's
	// first busy_time limit allows, like a load that is configured with the documented
	// limit. The default.
	BulkParallel = "parallel"
	// BulkAdvertised is the same without configuration: it learns the hint from the first
	// response, and the execution time from the first refusal that reports it.
	BulkAdvertised = "advertised"
	// BulkAIMD increases while batches succeed and halves on a throttle, up to 52. It
	// ignores hint and execution time.
	BulkAIMD = "aimd"
	// BulkHint uses the server's recommendation unchanged from the start, like a client
	// that reads it when it signs in. 52 if the server recommends nothing.
	BulkHint = "hint"
)

const (
	bulkFixed = "fixed:"
	bulkTold  = "told" // the former name of BulkAdvertised, which still works
)

// BulkLaws returns the laws of bulk workloads except "fixed:N".
func BulkLaws() []string { return []string{BulkParallel, BulkAdvertised, BulkAIMD, BulkHint} }

// BulkLaw returns an error if a law cannot be used for a bulk workload; the error lists
// those that can.
func BulkLaw(law string) error {
	if n, fixed := strings.CutPrefix(law, bulkFixed); fixed {
		if places, err := strconv.Atoi(n); err != nil || places < 1 || places > scenario.MaxPlaces {
			return fmt.Errorf("sim: law %q: %q must be a whole number from 1 to %d", law, n, scenario.MaxPlaces)
		}
		return nil
	}
	if slices.Contains(BulkLaws(), law) || law == bulkTold {
		return nil
	}
	return fmt.Errorf("sim: law is %q, must be one of %s, %sN for a bulk workload", law, strings.Join(BulkLaws(), ", "), bulkFixed)
}

// Bulk reports whether a scenario's workload is bulk. Such scenarios are run by [RunBulk],
// others by [Run].
func Bulk(s *scenario.Scenario) bool { return s != nil && s.Workload.Kind == scenario.Bulk }

// RunBulk loads the rows of a scenario whose workload is bulk. Law is "" for
// [BulkParallel], one of [BulkLaws], or "fixed:N" for N batches in flight of each user.
// RunBulk returns an error if law or workload is another one, if N is above the workload's
// max_in_flight, or if the load needs more than [MaxBatches].
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

// CompareBulk runs every bulk scenario under every law with one seed, like [Compare] for
// other workloads.
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

// heldRows bounds the rows that a run holds, far above what a reasonable load has in
// flight.
const heldRows = 2 << 20

// bulkParams returns the parameters of a load under a law, and whether it uses the server's
// recommendation.
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
	case BulkAdvertised, bulkTold:
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

// BulkResult is the result of a bulk load. Its JSON has these fields in this order; null
// means unknown.
type BulkResult struct {
	// Scenario, Law and Seed identify the run.
	Scenario string `json:"scenario"`
	Law      string `json:"law"`
	Seed     uint64 `json:"seed"`
	// HorizonS is the maximum duration, in seconds.
	HorizonS float64 `json:"horizon_s"`
	// Rows is the number of input rows. Each row is Acknowledged, Rejected by the server,
	// or Owed if the load ended first: at the horizon, because it gave up, or because it
	// put off a batch that failed too often.
	Rows         int64 `json:"rows"`
	Acknowledged int64 `json:"acknowledged"`
	Rejected     int64 `json:"rejected"`
	Owed         int64 `json:"owed"`
	// Stopped is why the load gave up before its end; null if it did not.
	Stopped *string `json:"stopped"`
	// ElapsedS is the duration of the load in seconds, and RowsPerS the number of
	// acknowledged rows per second.
	ElapsedS float64 `json:"elapsed_s"`
	RowsPerS float64 `json:"rows_per_s"`
	// Batches is the number of batches sent, and BatchRowsMean the mean number of rows of
	// served batches; null if none was served.
	Batches       int64    `json:"batches"`
	BatchRowsMean *float64 `json:"batch_rows_mean"`
	// Throttled is the number of batches refused by a limit or by the block of a penalty,
	// but not by an outage. ThrottledPer1000 is per 1000 served batches; null if none was
	// served.
	Throttled        int64    `json:"throttled"`
	ThrottledPer1000 *float64 `json:"throttled_per_1000"`
	// ParallelismMean and ParallelismMax are the mean and maximum number of batches in
	// flight, of all users together.
	ParallelismMean float64 `json:"parallelism_mean"`
	ParallelismMax  int     `json:"parallelism_max"`
	// RetryAfterS is the time that the users waited because of a Retry-After, summed over
	// them. LongestRetryAfterS is the longest requested wait.
	RetryAfterS        float64 `json:"retry_after_s"`
	LongestRetryAfterS float64 `json:"longest_retry_after_s"`
	// Users are the results of each identity.
	Users []BulkUser `json:"users"`
	// Course is the course of the load, in at most 60 steps of equal length.
	Course []BulkStep `json:"course"`

	// Trace is the same in finer steps; nil unless Options.Trace is set.
	Trace *BulkTrace `json:"-"`
}

// BulkUser is the result of one identity.
type BulkUser struct {
	// Rows is the number of its acknowledged rows, Batches of batches sent, and Throttled
	// of those refused.
	Rows      int64 `json:"rows"`
	Batches   int64 `json:"batches"`
	Throttled int64 `json:"throttled"`
	// ParallelismMean and ParallelismMax are about its batches in flight.
	ParallelismMean float64 `json:"parallelism_mean"`
	ParallelismMax  int     `json:"parallelism_max"`
	// RetryAfterS is how long it waited for a Retry-After, and LongestRetryAfterS its
	// longest requested wait.
	RetryAfterS        float64 `json:"retry_after_s"`
	LongestRetryAfterS float64 `json:"longest_retry_after_s"`
}

// BulkStep is what happened in one step, over all users.
type BulkStep struct {
	// ToS is the end of the step, in seconds.
	ToS float64 `json:"to_s"`
	// Level is the mean number of batches that the laws allowed in flight, and InFlight the
	// mean number of those that were.
	Level    float64 `json:"level"`
	InFlight float64 `json:"in_flight"`
	// RowsPerS is about acknowledged rows, and Throttled about refused batches.
	RowsPerS  float64 `json:"rows_per_s"`
	Throttled int64   `json:"throttled"`
}

// Ended says in a word or two how the load ended: "whole", "put off", "horizon", or the
// reason for giving up.
func (r *BulkResult) Ended() string {
	switch {
	case r.Stopped != nil:
		return *r.Stopped
	case r.Owed == 0:
		return "whole"
	case r.ElapsedS < r.HorizonS:
		return "put off"
	}
	return "horizon"
}

// JSON returns the result as indented JSON with a final newline. The same result gives the
// same bytes.
func (r *BulkResult) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// courseSteps and traceSteps are numbers of steps.
const (
	courseSteps = 60
	traceSteps  = 400
)

// result computes the result after the load has ended.
func (e *bulkEngine) result(o Options) BulkResult {
	c := e.core.Counts()
	r := BulkResult{
		Scenario: e.s.Name, Law: o.Law, Seed: o.Seed, HorizonS: seconds(e.s.Horizon),
		Rows: int64(e.s.Workload.Rows), Acknowledged: c.Acknowledged, Rejected: c.Rejected,
		ElapsedS: seconds(e.end), Batches: c.Sent,
		ParallelismMax: e.course.most(), Users: make([]BulkUser, len(e.users)),
	}
	r.Owed = r.Rows - r.Acknowledged - r.Rejected
	if s, ok := e.core.Stopped(); ok {
		why := s.Reason
		if why == reason.None {
			why = reason.Cooldown
		}
		r.Stopped = new(why.String())
	}
	for i := range e.users {
		r.Throttled += e.users[i].share.Throttled
	}
	if e.served > 0 {
		r.BatchRowsMean = new(round(float64(e.rows)/float64(e.served), 1))
		r.ThrottledPer1000 = new(round(1000*float64(r.Throttled)/float64(e.served), 3))
	}
	elapsed := max(e.end, 1).Seconds()
	r.RowsPerS = round(float64(c.Acknowledged)/elapsed, 3)
	area, waited := 0.0, time.Duration(0)
	for i := range e.users {
		u := &e.users[i]
		u.waited -= max(0, u.gate-e.end)
		u.share.ParallelismMean = round(u.area/elapsed, 3)
		u.share.RetryAfterS = seconds(u.waited)
		r.LongestRetryAfterS = max(r.LongestRetryAfterS, u.share.LongestRetryAfterS)
		area, waited = area+u.area, waited+u.waited
		r.Users[i] = u.share
	}
	r.ParallelismMean, r.RetryAfterS = round(area/elapsed, 3), seconds(waited)
	r.Course = e.course.steps(e.end, courseSteps)
	if o.Trace {
		r.Trace = &BulkTrace{
			Scenario: e.s, Law: o.Law, Seed: o.Seed, End: e.end,
			Steps: e.course.steps(e.end, traceSteps), Hints: e.course.hints,
		}
	}
	return r
}
