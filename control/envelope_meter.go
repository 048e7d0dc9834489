package control

import "time"

// spans are the window lengths that limits usually have. A limit with another
// one is held as a rate, or as the next longer window.
var spans = [...]time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 90 * time.Second, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
	30 * time.Minute, time.Hour, 3 * time.Hour, 24 * time.Hour,
}

// shape is how a window gives back what was used.
type shape uint8

const (
	sliding shape = iota // each unit comes back a window after it was used
	first                // all come back a window after the first was used
	aligned              // all come back at multiples of the window since the Unix epoch
	shapes
)

// A window is counted in cells; one that is held, in parts of them.
const cells, parts = 32, 128

// window counts what was used within one window length, in all three shapes.
type window struct {
	span time.Duration
	due  time.Duration // before this instant time changes nothing
	slid ring

	firstEnd  time.Duration
	firstUsed float64

	period      int64 // the number of the aligned window
	alignedUsed float64
}

func (w *window) cell() time.Duration { return w.span / cells }

// advance lets what has left the window go. The phase is the wall clock at
// instant 0, since the Unix epoch.
func (w *window) advance(now, phase time.Duration) {
	if now < w.due {
		return
	}
	w.slid.advance(now, w.cell())
	if now >= w.firstEnd {
		w.firstUsed = 0
	}
	if k := int64((now + phase) / w.span); k != w.period {
		w.period, w.alignedUsed = k, 0
	}
	w.due = min(time.Duration(w.slid.newest+1)*w.cell(), time.Duration(w.period+1)*w.span-phase)
	if now < w.firstEnd {
		w.due = min(w.due, w.firstEnd)
	}
}

// take counts units that were used at now.
func (w *window) take(now time.Duration, units float64) {
	w.slid.take(units)
	if now >= w.firstEnd {
		w.firstEnd = now + w.span
		w.due = min(w.due, w.firstEnd)
	}
	w.firstUsed += units
	w.alignedUsed += units
}

// giveBack corrects units that were counted at the instant sent; what has left
// the window since needs no correction.
func (w *window) giveBack(sent time.Duration, units float64, phase time.Duration) {
	w.slid.giveBack(sent, w.cell(), units)
	if sent >= w.firstEnd-w.span {
		w.firstUsed = max(0, w.firstUsed-units)
		if w.firstUsed == 0 {
			w.firstEnd = 0 // a window that nothing was admitted in has not begun
		}
	}
	if int64((sent+phase)/w.span) == w.period {
		w.alignedUsed = max(0, w.alignedUsed-units)
	}
}

// used is what counts against a limit of the shape.
func (w *window) used(s shape) float64 {
	switch s {
	case first:
		return w.firstUsed
	case aligned:
		return w.alignedUsed
	default:
		return w.slid.sum
	}
}

// doubt is by how much used may be too high.
func (w *window) doubt(s shape) float64 {
	if s == sliding {
		return w.slid.oldest()
	}
	return 0
}

// free is when at most room is in use, if nothing is sent until then.
func (w *window) free(s shape, room float64, now, phase time.Duration) time.Duration {
	if w.used(s) <= max(room, minRoom) {
		return now
	}
	if s == first {
		return w.firstEnd
	}
	if s == aligned {
		return time.Duration(w.period+1)*w.span - phase
	}
	return w.slid.free(now, w.cell(), room)
}
