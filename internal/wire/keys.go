package wire

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

// Keys are several credentials of the same provider: which one a request goes by, and
// which are set aside. Make them with [NewKeys]. Safe for concurrent use.
type Keys struct {
	mu   sync.Mutex
	all  []key
	turn uint64 // counts picks
}

type key struct {
	name    string
	given   int       // requests under way
	turn    uint64    // of its newest pick
	aside   bool      // for good
	doubted time.Time // until then others are picked before it
}

// NewKeys makes them of unique names.
func NewKeys(names ...string) *Keys {
	k := &Keys{all: make([]key, len(names))}
	for i, name := range names {
		k.all[i].name = name
	}
	return k
}

// Pick gives the index of the key that a request goes by, -1 for none; the request has to
// give it back. It is the one that has room soonest by wait, which is called with the
// lock held and is given how many requests each key has; of several that do, the one with
// the fewest requests, then the one that was picked least recently. Where affinity is not
// empty, it is always the same one, as long as that is not set aside. Keys for which skip
// is true are left out.
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

// before reports whether key i, which has room after w, goes before key j.
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

// rankOf orders keys for a name; the highest is the one (rendezvous hashing).
func rankOf(affinity, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(affinity + "\x00" + name))
	x := h.Sum64() // mixed, since names differ in a letter
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>27
}

// Back says that a request is over.
func (k *Keys) Back(i int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all[i].given--
}

// SetAside has a key be picked no more, and reports whether this is news.
func (k *Keys) SetAside(i int) (news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	news = !k.all[i].aside
	k.all[i].aside = true
	return news
}

// Doubt has other keys be picked before one until an instant.
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

// Given counts the requests that a key has.
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
