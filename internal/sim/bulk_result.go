package sim

import (
	"encoding/json"
	"time"

	"github.com/headway-go/headway/reason"
)

// BulkResult is what came of a bulk load. Its JSON has these fields in this
// order; what is unknown is null.
type BulkResult struct {
	// Scenario, Law and Seed are what was run.
	Scenario string `json:"scenario"`
	Law      string `json:"law"`
	Seed     uint64 `json:"seed"`
	// HorizonS is the longest that it may last, in seconds.
	HorizonS float64 `json:"horizon_s"`
	// Rows are those of the input. Each is Acknowledged, Rejected by the server,
	// or Owed: neither, when the load ended, be it that the horizon came, that the
	// load gave up, or that it put off a batch that had failed too often.
	Rows         int64 `json:"rows"`
	Acknowledged int64 `json:"acknowledged"`
	Rejected     int64 `json:"rejected"`
	Owed         int64 `json:"owed"`
	// Stopped is why the load gave up before its end; null when it did not.
	Stopped *string `json:"stopped"`
	// ElapsedS is how long the load took, in seconds, and RowsPerS the rows
	// acknowledged in each.
	ElapsedS float64 `json:"elapsed_s"`
	RowsPerS float64 `json:"rows_per_s"`
	// Batches were sent, and BatchRowsMean is how many rows those had that were
	// served; null when none was.
	Batches       int64    `json:"batches"`
	BatchRowsMean *float64 `json:"batch_rows_mean"`
	// Throttled batches were refused by a limit or by the block of a penalty; an
	// outage is not a throttle. ThrottledPer1000 is for each 1000 batches served, null
	// when none was.
	Throttled        int64    `json:"throttled"`
	ThrottledPer1000 *float64 `json:"throttled_per_1000"`
	// ParallelismMean is how many batches were in flight on average over the
	// load, and ParallelismMax how many at most, of all users together.
	ParallelismMean float64 `json:"parallelism_mean"`
	ParallelismMax  int     `json:"parallelism_max"`
	// RetryAfterS is how long the users waited because they were told to, summed
	// over them, and LongestRetryAfterS the longest wait that was asked for.
	RetryAfterS        float64 `json:"retry_after_s"`
	LongestRetryAfterS float64 `json:"longest_retry_after_s"`
	// Users are the figures of each identity.
	Users []BulkUser `json:"users"`
	// Course is how the load went, in at most 60 steps of equal length.
	Course []BulkStep `json:"course"`

	// Trace is the same in finer steps; nil unless it was asked for.
	Trace *BulkTrace `json:"-"`
}

// BulkUser is how one identity fared.
type BulkUser struct {
	// Rows were acknowledged to it; Batches were sent, Throttled of them refused.
	Rows      int64 `json:"rows"`
	Batches   int64 `json:"batches"`
	Throttled int64 `json:"throttled"`
	// ParallelismMean and ParallelismMax are of its batches in flight.
	ParallelismMean float64 `json:"parallelism_mean"`
	ParallelismMax  int     `json:"parallelism_max"`
	// RetryAfterS is how long it waited as told, and LongestRetryAfterS the
	// longest wait that it was asked for.
	RetryAfterS        float64 `json:"retry_after_s"`
	LongestRetryAfterS float64 `json:"longest_retry_after_s"`
}

// BulkStep is what happened in one step, over all users.
type BulkStep struct {
	// ToS is where the step ends, in seconds.
	ToS float64 `json:"to_s"`
	// Level is how many batches the laws allowed in flight, and InFlight how many
	// were, both on average over the step.
	Level    float64 `json:"level"`
	InFlight float64 `json:"in_flight"`
	// RowsPerS were acknowledged and Throttled batches refused.
	RowsPerS  float64 `json:"rows_per_s"`
	Throttled int64   `json:"throttled"`
}

// Ended says how the load ended, in a word or two: "whole", "put off", "horizon",
// or the reason for which it gave up.
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

// JSON is the result as indented JSON with a newline at its end: the same bytes
// for the same result.
func (r *BulkResult) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// courseSteps and traceSteps are into how many steps a load is cut.
const (
	courseSteps = 60
	traceSteps  = 400
)

// result draws up the figures once the load is over.
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
