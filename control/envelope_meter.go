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

// cells is how many parts a window's use is counted in. A whole part stays in
// the count until all of it has left the window, so the count is never too low,
// and too high by at most one part.
const cells = 32

// window counts what was used within one window length, in all three shapes.
type window struct {
	span   time.Duration
	due    time.Duration // before this instant time changes nothing
	newest int64         // the number of the newest cell: instant / (span/cells)
	head   int           // its place
	count  [cells + 1]float32
	sum    float64

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
	if k := int64(now / w.cell()); k > w.newest {
		if k-w.newest > cells {
			w.count, w.sum = [cells + 1]float32{}, 0
		} else {
			for i := w.newest + 1; i <= k; i++ {
				w.sum -= float64(w.count[i%(cells+1)])
				w.count[i%(cells+1)] = 0
			}
		}
		w.newest, w.head = k, int(k%(cells+1))
	}
	if now >= w.firstEnd {
		w.firstUsed = 0
	}
	if k := int64((now + phase) / w.span); k != w.period {
		w.period, w.alignedUsed = k, 0
	}
	w.due = min(time.Duration(w.newest+1)*w.cell(), time.Duration(w.period+1)*w.span-phase)
	if now < w.firstEnd {
		w.due = min(w.due, w.firstEnd)
	}
}

// take counts units that were used at now.
func (w *window) take(now time.Duration, units float64) {
	w.count[w.head] += float32(units)
	w.sum += units
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
	if k := int64(sent / w.cell()); k >= 0 && k > w.newest-cells-1 && k <= w.newest {
		i := k % (cells + 1)
		taken := min(units, float64(w.count[i]))
		w.count[i] -= float32(taken)
		w.sum -= taken
	}
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
		return w.sum
	}
}

// doubt is by how much used may be too high: what the oldest cell holds.
func (w *window) doubt(s shape) float64 {
	if oldest := w.newest - cells; s == sliding && oldest >= 0 {
		return float64(w.count[oldest%(cells+1)])
	}
	return 0
}

// free is when at most room is in use, if nothing is sent until then. Room is at
// least next to nothing: what is larger than a limit goes when it is empty.
func (w *window) free(s shape, room float64, now, phase time.Duration) time.Duration {
	room = max(room, leastRoom)
	if w.used(s) <= room {
		return now
	}
	if s == first {
		return w.firstEnd
	}
	if s == aligned {
		return time.Duration(w.period+1)*w.span - phase
	}
	left := w.sum
	for i := max(0, w.newest-cells); i <= w.newest; i++ {
		if left -= float64(w.count[i%(cells+1)]); left <= room {
			return time.Duration(i+cells+1) * w.cell()
		}
	}
	return now + w.span
}

// leastRoom is more than what rounding leaves in an empty window.
const leastRoom = 0.01
