package control

import "time"

// ring counts units over a sliding length of time, in parts of it. A whole part
// stays in the count until all of it has left, so the sum is never too low, and
// too high by at most what the oldest part holds.
type ring struct {
	newest int64     // the number of the newest part: instant / part
	head   int       // its place
	count  []float32 // one more than the parts
	sum    float64
}

func newRing(parts int) ring { return ring{count: make([]float32, parts+1)} }

func (r *ring) parts() int64 { return int64(len(r.count) - 1) }

func (r *ring) at(k int64) *float32 { return &r.count[k%int64(len(r.count))] }

// advance lets what has left the length of time go.
func (r *ring) advance(now, part time.Duration) {
	k := int64(now / part)
	if k <= r.newest {
		return
	}
	if k-r.newest > r.parts() {
		clear(r.count)
		r.sum = 0
	} else {
		for i := r.newest + 1; i <= k; i++ {
			r.sum -= float64(*r.at(i))
			*r.at(i) = 0
		}
	}
	r.newest, r.head = k, int(k%int64(len(r.count)))
}

func (r *ring) take(units float64) {
	r.count[r.head] += float32(units)
	r.sum += units
}

// giveBack corrects units that were counted at the instant sent; what has left
// since needs no correction.
func (r *ring) giveBack(sent, part time.Duration, units float64) {
	k := int64(sent / part)
	if k < 0 || k <= r.newest-r.parts()-1 || k > r.newest {
		return
	}
	taken := min(units, float64(*r.at(k)))
	*r.at(k) -= float32(taken)
	r.sum -= taken
}

// oldest is what the part holds that is about to leave.
func (r *ring) oldest() float64 {
	if k := r.newest - r.parts(); k >= 0 {
		return float64(*r.at(k))
	}
	return 0
}

// free is when at most room is in use, if nothing is sent until then. Room is at
// least next to nothing: what is larger than a limit goes when it is empty.
func (r *ring) free(now, part time.Duration, room float64) time.Duration {
	room = max(room, minRoom)
	if r.sum <= room {
		return now
	}
	left := r.sum
	for i := max(0, r.newest-r.parts()); i <= r.newest; i++ {
		if left -= float64(*r.at(i)); left <= room {
			return time.Duration(i+r.parts()+1) * part
		}
	}
	return now + time.Duration(r.parts())*part
}

// finer is a ring of more parts made of r, which may only be too high.
func (r *ring) finer(parts int) *ring {
	times := int64(parts) / r.parts()
	f := newRing(parts)
	f.newest = (r.newest+1)*times - 1
	f.head = int(f.newest % int64(len(f.count)))
	for k := max(0, r.newest-r.parts()+1); k <= r.newest; k++ {
		c := *r.at(k)
		*f.at((k+1)*times - 1) += c
		f.sum += float64(c)
	}
	return &f
}

// minRoom is more than what rounding leaves in an empty window.
const minRoom = 0.01
