package wire

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

// Keys picks one of several credentials of one provider for each request, and records
// which are set aside. Make one with [NewKeys]. Safe for concurrent use.
type Keys struct {
	mu   sync.Mutex
	all  []key
	turn uint64 // counts picks
}

type key struct {
	name    string
	given   int       // requests in flight
	turn    uint64    // of its last pick
	aside   bool      // for good
	doubted time.Time // until then others are picked before it
}

// NewKeys returns keys with unique names.
func NewKeys(names ...string) *Keys {
	k := &Keys{all: make([]key, len(names))}
	for i, name := range names {
		k.all[i].name = name
	}
	return k
}

// Pick returns the index of the key for a request, -1 if there is none. The request must
// call Back with it. Pick returns the key with the shortest wait; of several, the one
// with the fewest requests, then the least recently picked. wait is called with the lock
// held and with the number of requests that the key has. If affinity is not empty, the
// same affinity always gets the same key, unless that key is set aside. Keys for which
// skip returns true are left out.
func (k *Keys) Pick(now time.Time, affinity string, skip func(i int) bool, wait func(i, given int) time.Duration) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	best := -1
	var soonest time.Duration
	var rank uint64
	for i := range k.all {
		one := &k.all[i]
		if one.aside || skip(i) {
			continue
		}
		if affinity != "" {
			if r := rankOf(affinity, one.name); best < 0 || r > rank {
				best, rank = i, r
			}
			continue
		}
		w := wait(i, one.given)
		if best < 0 || k.before(now, i, best, w, soonest) {
			best, soonest = i, w
		}
	}
	if best >= 0 {
		k.turn++
		k.all[best].given++
		k.all[best].turn = k.turn
	}
	return best
}

// before reports whether key i, with wait w, goes before key j, with wait v.
func (k *Keys) before(now time.Time, i, j int, w, v time.Duration) bool {
	a, b := &k.all[i], &k.all[j]
	if p, q := now.Before(a.doubted), now.Before(b.doubted); p != q {
		return q
	}
	switch {
	case w != v:
		return w < v
	case a.given != b.given:
		return a.given < b.given
	}
	return a.turn < b.turn
}

// rankOf ranks keys for a name; the key with the highest rank is used (rendezvous
// hashing).
func rankOf(affinity, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(affinity + "\x00" + name))
	x := h.Sum64() // mixed, since names differ in a letter
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>27
}

// Back reports that a request is over.
func (k *Keys) Back(i int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all[i].given--
}

// SetAside excludes a key from picks, and reports whether it was not excluded before.
func (k *Keys) SetAside(i int) (news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	news = !k.all[i].aside
	k.all[i].aside = true
	return news
}

// Doubt makes other keys be preferred to one until an instant.
func (k *Keys) Doubt(i int, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all[i].doubted = until
}

// Aside reports whether a key is set aside.
func (k *Keys) Aside(i int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[i].aside
}

// Given returns the number of requests that use a key.
func (k *Keys) Given(i int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[i].given
}

// Left reports whether there is a key beside those that are set aside and those given.
func (k *Keys) Left(but []int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.all {
		if !k.all[i].aside && !slices.Contains(but, i) {
			return true
		}
	}
	return false
}
