package cli

import (
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/reason"
)

// progressJSON is a load at an instant, for programs.
type progressJSON struct {
	bulk.Totals
	ElapsedSeconds      float64        `json:"elapsed_s"`
	RowsPerSecond       float64        `json:"rows_per_second"`
	RecentRowsPerSecond float64        `json:"recent_rows_per_second,omitempty"`
	LeftSeconds         *float64       `json:"left_s,omitempty"`
	InFlight            int            `json:"in_flight"`
	BatchRows           int            `json:"batch_rows"`
	Waiting             reason.Reason  `json:"waiting,omitempty"`
	BoundBy             reason.Bounds  `json:"bound_by,omitzero"`
	Counts              bulk.Counts    `json:"counts"`
	Identities          []identityJSON `json:"identities"`
}

// identityJSON is one identity; its times are seconds before now.
type identityJSON struct {
	Name              string        `json:"name"`
	Level             int           `json:"level"`
	Ceiling           int           `json:"ceiling"`
	InFlight          int           `json:"in_flight"`
	Throttles         int64         `json:"throttles"`
	ThrottledSecsAgo  *float64      `json:"throttled_s_ago,omitempty"`
	Circuit           string        `json:"circuit"`
	RetryAfterSeconds float64       `json:"retry_after_s,omitempty"`
	Stopped           reason.Reason `json:"stopped,omitempty"`
}

// summaryJSON is what a run came to.
type summaryJSON struct {
	progressJSON
	Load          string        `json:"load"`
	Dir           string        `json:"dir"`
	State         bulk.State    `json:"state"`
	Reason        reason.Reason `json:"reason"`
	Cause         string        `json:"cause,omitempty"`
	Ended         time.Time     `json:"ended"`
	RetryAt       time.Time     `json:"retry_at,omitzero"`
	RejectsFile   string        `json:"rejects_file,omitempty"`
	UncertainFile string        `json:"uncertain_file,omitempty"`
}

func loadView(p bulk.Progress) progressJSON {
	v := progressJSON{
		Totals: p.Totals, ElapsedSeconds: p.Elapsed.Seconds(), RowsPerSecond: p.RowsPerSecond,
		InFlight: p.InFlight, BatchRows: p.BatchRows, Waiting: p.Waiting, BoundBy: p.BoundBy, Counts: p.Counts,
		Identities: []identityJSON{},
	}
	for _, id := range p.Identities {
		one := identityJSON{
			Name: id.Name, Level: id.Law.Current, Ceiling: min(id.Law.Max, id.Law.Ceiling), InFlight: id.InFlight,
			Throttles: id.Law.TotalThrottles, Circuit: id.Circuit.String(), Stopped: id.Stopped,
			RetryAfterSeconds: max(id.RetryAt-p.Elapsed, 0).Seconds(),
		}
		if one.Throttles > 0 {
			one.ThrottledSecsAgo = new((p.Elapsed - id.Law.LastThrottle).Seconds())
		}
		v.Identities = append(v.Identities, one)
	}
	return v
}

func summaryView(s bulk.Summary, dir string, now time.Time) summaryJSON {
	return summaryJSON{
		progressJSON: loadView(s.Progress), Load: s.Load, Dir: dir, State: s.State, Reason: s.Reason, Cause: s.Cause,
		Ended: now.Round(time.Millisecond), RetryAt: s.RetryAt, RejectsFile: s.RejectsFile, UncertainFile: s.UncertainFile,
	}
}
