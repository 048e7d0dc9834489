package learn

import (
	"math"
	"slices"
	"time"
)

// lengths is the number of window lengths that are tried as an explanation of blocks. Each
// is longer than the one before by the same factor.
const lengths = 38

func lengthOf(i int) time.Duration {
	return time.Duration(float64(time.Second) * math.Pow(lengthStep, float64(i)))
}

// episode is the evidence of one block about windows of every length: the minimum and
// maximum size of a window that refused and released as this block did.
type episode struct {
	refused     time.Duration
	n, whole    float64 // attempts and seconds since the refusal before; 0 if there was none
	least, most [units][lengths]float32
}

// episodes are the newest episodes. They reveal windows that are too short for blocks to
// show directly: with the right length and unit, the same amount was in use at each
// refusal.
type episodes struct {
	ring  [6]episode
	n     int
	since time.Duration // when the first of them was refused
	last  time.Duration // when the newest one was refused
	sent  float64       // total until then
}

// add adds a block.
func (es *episodes) add(v view, b *block) {
	e := &es.ring[es.n%len(es.ring)]
	sent := v.h.until(attempts, b.began)
	e.refused = b.began
	e.n, e.whole = sent-es.sent, (b.began - es.last).Seconds()
	if es.n == 0 {
		es.since, e.n, e.whole = b.began, 0, 0
	}
	es.last, es.sent = b.began, sent
	es.n++
	a := v.amounts(b.cost)
	for u := range units {
		for i := range lengths {
			length := lengthOf(i)
			used := v.h.used(u, b.began, length)
			least := max(used, v.h.used(u, b.release, length))
			most := min(used, v.h.used(u, b.lastRefused, length)) + a[u]
			e.least[u][i], e.most[u][i] = float32(least), float32(most)
		}
	}
}

// window returns the window that explains the episodes, unless a rate explains them.
func (es *episodes) window(v view) (u unit, length time.Duration, size float64, ok bool) {
	known := es.ring[:min(es.n, len(es.ring))]
	if len(known) < minEpisodes || es.unlikeRate(len(known)) < minUnlikeRate || es.unlikeRate(minEpisodes-1) < minUnlikeRate {
		return 0, 0, 0, false
	}
	oldest := es.last
	for i := range known {
		oldest = min(oldest, known[i].refused)
	}
	best := likeWindow
	for x := range units {
		for i := range lengths {
			if lengthOf(i) > (es.last-oldest)/2 {
				break // the blocks hardly differ
			}
			n, off := sizeOf(known, x, i)
			if off < best && n > minFitted*v.mean[x] && n >= 0.97*v.h.peak(x, lengthOf(i), es.since) {
				best, u, length, size, ok = off, x, lengthOf(i), n, true
			}
		}
	}
	return u, length, size, ok
}

// unlikeRate measures how badly a single rate explains the newest episodes: with a bucket,
// each refusal would find it equally empty.
func (es *episodes) unlikeRate(newest int) float64 {
	n, whole, off := 0.0, 0.0, 0.0
	for i := 1; i <= newest; i++ {
		e := &es.ring[(es.n-i)%len(es.ring)]
		n, whole = n+e.n, whole+e.whole
	}
	for i := 1; i <= newest; i++ {
		e := &es.ring[(es.n-i)%len(es.ring)]
		off += max(0, math.Abs(e.n-n/whole*e.whole)-1)
	}
	return off / n
}

// sizeOf returns the size of a window that explains the episodes, and their relative
// disagreement.
func sizeOf(known []episode, u unit, i int) (size, off float64) {
	var mids [len(episodes{}.ring)]float64
	for j := range known {
		mids[j] = float64(known[j].least[u][i]+known[j].most[u][i]) / 2
	}
	slices.Sort(mids[:len(known)])
	size = mids[len(known)/2]
	if size <= 0 {
		return 0, 1
	}
	for j := range known {
		off += max(0, float64(known[j].least[u][i])-size, size-float64(known[j].most[u][i])) / size
	}
	return size, off / float64(len(known))
}
