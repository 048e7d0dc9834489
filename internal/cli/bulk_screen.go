package cli

import (
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-go/headway/bulk"
	rowsource "github.com/headway-go/headway/bulk/source"
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

// every is how often progress is shown.
func (l *loadScreen) every() time.Duration {
	if l.width != nil && !l.json {
		return repaint
	}
	return plainLine
}

// progress shows how the load stands.
func (l *loadScreen) progress(p bulk.Progress) {
	if !l.begun {
		l.begun = true
		l.say("loading " + l.name + ", on record in " + l.dir)
		if err := l.begin(); err != nil {
			l.say("\"bulk resume\" will not know this load (" + err.Error() + "); \"bulk run\" with the same file, target and folder goes on with it")
		}
	}
	l.recent.add(p.Elapsed, p.Acknowledged)
	l.keepView(p)
	// The last of all is the summary's.
	if l.quiet || p.Elapsed-l.shown < l.every()*9/10 {
		return
	}
	l.shown = p.Elapsed
	switch left, known := l.left(p); {
	case l.json:
		view := loadView(p)
		view.RecentRowsPerSecond = l.recent.perSecond()
		if known {
			view.LeftSeconds = new(left.Seconds())
		}
		l.line("progress", view)
	case l.width != nil:
		l.paint(loadBlock(l.name, p, l.recent.perSecond(), leftText(left, known), l.width()))
	default:
		lines := loadBlock(l.name, p, l.recent.perSecond(), leftText(left, known), 0)
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		l.mu.Lock()
		_, _ = io.WriteString(l.err, strings.Join(lines, "; ")+"\n")
		l.mu.Unlock()
	}
}

// left is how long the rest will take at the speed of late.
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

// speed is how fast rows were acknowledged of late.
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
	l.mu.Lock()
	l.erase()
	l.mu.Unlock()
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
