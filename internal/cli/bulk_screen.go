package cli

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-go/headway/bulk"
	rowsource "github.com/headway-go/headway/bulk/source"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/reason"
)

// loadScreen shows one load. Its methods are called by one goroutine at a time.
type loadScreen struct {
	*screen
	name, dir string
	input     *rowsource.Input
	begin     func() error // called once the folder is this process's

	begun  bool
	shown  time.Duration // when a line was shown last
	kept   bool          // a view is in the folder
	viewed time.Duration // since when
	recent speed
}

// look shows how the load stands.
func (l *loadScreen) look(p bulk.Progress) {
	if !l.begun {
		l.begun = true
		l.say("loading " + l.name + ", on record in " + l.dir)
		if err := l.begin(); err != nil {
			l.say("\"bulk resume\" will not know this load (" + err.Error() + "); \"bulk run\" with the same file, target and folder resumes it")
		}
	}
	l.recent.add(p.Elapsed, p.Acknowledged)
	l.keepView(p)
	// The last of all is the summary's.
	if l.quiet || p.Elapsed-l.shown < l.every()*9/10 {
		return
	}
	l.shown = p.Elapsed
	left, known := l.left(p)
	view := loadView(p)
	view.RecentRowsPerSecond = l.recent.perSecond()
	if known {
		view.LeftSeconds = new(left.Seconds())
	}
	l.progress(view, func(width int) []string {
		return loadBlock(l.name, p, view.RecentRowsPerSecond, leftText(left, known), width)
	})
}

// left is how long the rest will take at the recent speed.
func (l *loadScreen) left(p bulk.Progress) (left time.Duration, known bool) {
	rows, speed := p.Rows, l.recent.perSecond()
	if !p.InputRead {
		rows = l.input.Estimate(p.Rows, p.Offset)
	}
	settled := p.Acknowledged + p.Rejected + p.Uncertain
	if rows < p.Rows || speed <= 0 {
		return 0, false
	}
	seconds := float64(rows-settled) / speed
	if seconds > 1e9 {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

func leftText(left time.Duration, known bool) string {
	if !known {
		return "time left unknown"
	}
	return clock(left) + " left"
}

// speed is how fast rows were acknowledged recently.
type speed struct{ at []point }

type point struct {
	when time.Duration
	rows int64
}

// lately is the time that counts: long enough for several batches.
const lately = 20 * time.Second

func (s *speed) add(when time.Duration, rows int64) {
	s.at = append(s.at, point{when, rows})
	for len(s.at) > 2 && s.at[1].when <= when-lately {
		s.at = s.at[1:]
	}
}

func (s *speed) perSecond() float64 {
	if len(s.at) < 2 {
		return 0
	}
	first, last := s.at[0], s.at[len(s.at)-1]
	if last.when <= first.when {
		return 0
	}
	return float64(last.rows-first.rows) / (last.when - first.when).Seconds()
}

// conclude shows the summary, keeps it beside the journal and gives the exit.
func (l *loadScreen) conclude(sum bulk.Summary, err error) error {
	l.clear()
	pipe := l.input.Identity().Stream()
	if sum.Load == "" { // it did not begin
		if sum.Reason == reason.LeaseHeld && l.json {
			l.line("held", map[string]any{"dir": l.dir})
		}
		return exitOfLoad(sum, err, pipe)
	}
	view := summaryView(sum, l.dir, time.Now())
	if kept := keepJSON(filepath.Join(l.dir, outcomeFile), view); kept != nil {
		l.say("how the load ended could not be kept for \"bulk status\": " + kept.Error())
	} else {
		dropViews(l.dir)
	}
	if l.json {
		l.line("summary", view)
	} else {
		_, _ = io.WriteString(l.out, loadSummary(l.name, sum, err, l.dir, pipe))
	}
	return exitOfLoad(sum, err, pipe)
}

// viewFile holds how the load under way stands, for "bulk status".
const viewFile = "progress.json"

// viewEvery is the time between two of them.
const viewEvery = time.Second

// loadNow is a load as it stood at an instant.
type loadNow struct {
	At time.Time `json:"at"`
	progressJSON
}

// keepView replaces the view in the load's folder. It is not synced: a power cut
// costs the view alone. One that cannot be written is left out, since the load
// must not end for it.
func (l *loadScreen) keepView(p bulk.Progress) {
	if l.kept && p.Elapsed-l.viewed < viewEvery*9/10 {
		return
	}
	l.kept, l.viewed = true, p.Elapsed
	view := loadNow{At: time.Now().Round(time.Millisecond), progressJSON: loadView(p)}
	view.RecentRowsPerSecond = l.recent.perSecond()
	b, err := json.Marshal(view)
	if err != nil {
		return
	}
	_ = atomicfile.WriteUnsynced(disk.OS{}, filepath.Join(l.dir, viewFile), b)
}

// readView reads the view of a folder; nil when there is none that can be read.
func readView(dir string) *loadNow {
	b, err := os.ReadFile(filepath.Join(dir, viewFile))
	var view loadNow
	if err != nil || json.Unmarshal(b, &view) != nil || view.At.IsZero() {
		return nil
	}
	return &view
}

// dropViews removes the view of a run that is over.
func dropViews(dir string) {
	path := filepath.Join(dir, viewFile)
	_ = os.Remove(path)
	_ = os.Remove(atomicfile.Beside(path))
}

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
