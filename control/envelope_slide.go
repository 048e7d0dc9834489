package control

import "time"

// slide is a limit that headers tell of like of a bucket, by what is left and by
// when all of it is back, and that was found to be a sliding window: what was used
// comes back a window later, not bit by bit. Only what was sent, and when, says
// when there is room.
type slide struct {
	part   time.Duration // of the window
	own    *ring         // what was sent
	others float64       // what others have in use
}

const (
	// A bucket of which so many times as much is used takes as many times as long.
	// What is left is told in round figures, by some: small steps say nothing.
	deeper, minStep = 2, 0.1
	// Resets are told in whole seconds, by some: shorter ones say nothing.
	minReset = 5 * time.Second
	// What was sent later may arrive sooner, by about so much.
	slideGuard = 250 * time.Millisecond
	// What attempts will cost is known up to this part of the limit.
	costDoubt = 0.005
	// A response that took longer than this part of the window tells of others no
	// more: too much has come back since.
	late = 20
)

// discern tells a sliding window from a bucket. When little of a bucket is in use
// it is soon full again; a window has its whole length to go after each attempt.
func (t *told) discern(e *Envelope, now time.Duration, f *Fact) {
	used := t.quota - t.left
	if !t.refills || used <= 0 {
		return
	}
	if f.Reset < minReset && t.slides == nil {
		t.vague, t.grows = false, true // a window would have its length to go
		return
	}
	if s := t.slides; s != nil && now-t.at < s.window()/late {
		s.advance(now)
		s.others = max(0, used-(s.own.sum-t.spent)-s.doubt(now-t.at)*t.quota)
	}
	span, usual := nearest(f.Reset)
	t.vague = usual && !t.grows && t.slides == nil
	switch {
	case f.Reset < minReset:
	case t.least == 0 || used <= t.least:
		t.least, t.whole = used, f.Reset
	case used < deeper*t.least || used-t.least < minStep*t.quota:
	case square(f.Reset.Seconds()/t.whole.Seconds()) > used/t.least:
		t.slides, t.vague, t.grows = nil, false, true
	case t.slides == nil && usual && e.units[t.unit()] != nil:
		w := &e.units[t.unit()].windows[span]
		t.slides = &slide{part: spans[span] / parts, own: w.slid.finer(parts)}
	}
}

func square(x float64) float64 { return x * x }

// nearest is the window that a told length is meant to be: a little of it has
// passed on the way.
func nearest(told time.Duration) (span int, ok bool) {
	for i, s := range spans {
		if told <= s+s/50 && told >= s-s/10 {
			return i, true
		}
	}
	return 0, false
}

func (s *slide) window() time.Duration { return s.part * parts }

// doubt is what part of the limit may have come back while a response was on its way.
func (s *slide) doubt(took time.Duration) float64 {
	return 2*float64(took)/float64(s.window()) + 1./parts
}

func (s *slide) advance(now time.Duration) { s.own.advance(now, s.part) }

// free is when at most room is in use.
func (s *slide) free(now time.Duration, room float64) time.Duration {
	s.advance(now - slideGuard)
	return max(now, s.own.free(now-slideGuard, s.part, room-s.others)+slideGuard)
}

// correct brings what an attempt was counted for to what it took.
func (s *slide) correct(now, sent time.Duration, more float64) {
	s.advance(now - slideGuard)
	if more < 0 {
		s.own.giveBack(sent, s.part, -more)
		return
	}
	s.own.take(more)
}
