package control

import "time"

// parts is how finely a window that is held is counted.
const parts = 128

// fine counts one sliding window like [window] does, more finely.
type fine struct {
	newest int64
	count  [parts + 1]float32
	sum    float64
}

func (f *fine) advance(now, span time.Duration) {
	k := int64(now / (span / parts))
	if k <= f.newest {
		return
	}
	if k-f.newest > parts {
		f.count, f.sum = [parts + 1]float32{}, 0
	} else {
		for i := f.newest + 1; i <= k; i++ {
			f.sum -= float64(f.count[i%(parts+1)])
			f.count[i%(parts+1)] = 0
		}
	}
	f.newest = k
}

func (f *fine) take(units float64) {
	f.count[f.newest%(parts+1)] += float32(units)
	f.sum += units
}

func (f *fine) giveBack(sent, span time.Duration, units float64) {
	if k := int64(sent / (span / parts)); k >= 0 && k > f.newest-parts-1 && k <= f.newest {
		taken := min(units, float64(f.count[k%(parts+1)]))
		f.count[k%(parts+1)] -= float32(taken)
		f.sum -= taken
	}
}

// free is when at most room is in use, if nothing is sent until then.
func (f *fine) free(now, span time.Duration, room float64) time.Duration {
	room = max(room, leastRoom)
	if f.sum <= room {
		return now
	}
	left := f.sum
	for i := max(0, f.newest-parts); i <= f.newest; i++ {
		if left -= float64(f.count[i%(parts+1)]); left <= room {
			return time.Duration(i+parts+1) * (span / parts)
		}
	}
	return now + span
}

// copied is a fine count made of a coarse one: it may only be too high.
func (w *window) copied() *fine {
	f := &fine{newest: (w.newest+1)*parts/cells - 1}
	for k := max(0, w.newest-cells+1); k <= w.newest; k++ {
		i := (k+1)*parts/cells - 1
		f.count[i%(parts+1)] += w.count[k%(cells+1)]
		f.sum += float64(w.count[k%(cells+1)])
	}
	return f
}
