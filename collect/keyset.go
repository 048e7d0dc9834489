package collect

import (
	"context"
	"hash/maphash"
	"slices"
)

// keySet remembers keys approximately, in four bytes a key: it may take a key for
// one that it was given, about once in 100,000 times, and never misses one. The zero
// value is empty. Not safe for concurrent use.
type keySet struct {
	layers []layer
	seed   maphash.Seed
}

// layer is a Bloom filter.
type layer struct {
	bits []uint64 // a power of two
	room int      // how many keys more it is meant for
}

const (
	// firstLayer is how many keys the first layer is for; each has room for four
	// times as many as the one before.
	firstLayer = 4096
	// maxLayers bounds the memory to 6 MB. Beyond a million keys and a half the set
	// says "perhaps" more and more often.
	maxLayers = 5
	// bitsPerKey and probes are the size of a layer and how often it is looked into.
	bitsPerKey = 32
	probes     = 8
)

func (s *keySet) add(key string) {
	if s.layers == nil {
		s.seed = maphash.MakeSeed()
	}
	if n := len(s.layers); n == 0 || s.layers[n-1].room <= 0 && n < maxLayers {
		keys := firstLayer << (2 * n)
		s.layers = append(s.layers, layer{bits: make([]uint64, keys*bitsPerKey/64), room: keys})
	}
	l := &s.layers[len(s.layers)-1]
	l.room--
	hash := maphash.String(s.seed, key)
	for n := range uint64(probes) {
		i, bit := l.place(hash, n)
		l.bits[i] |= bit
	}
}

// place is where the n-th probe of a key looks.
func (l *layer) place(hash, n uint64) (i int, bit uint64) {
	at := hash + n*(hash>>32|1)
	return int(at >> 6 & uint64(len(l.bits)-1)), 1 << (at & 63)
}

// has is false for a key that was never added, and true for one that was.
func (s *keySet) has(key string) bool {
	if s.layers == nil {
		return false
	}
	hash := maphash.String(s.seed, key)
	return slices.ContainsFunc(s.layers, func(l layer) bool {
		for n := range uint64(probes) {
			if i, bit := l.place(hash, n); l.bits[i]&bit == 0 {
				return false
			}
		}
		return true
	})
}

// known reads what the store knows of items. Of a stream that had none when the
// run began it knows what this run committed, so it is asked for nothing else.
func (r *execution) known(ctx context.Context, stream string, items []string) (map[string]KnownItem, error) {
	if stored, ok := r.stored[stream]; ok {
		items = slices.DeleteFunc(items, func(key string) bool { return !stored.has(key) })
	}
	if len(items) == 0 {
		return nil, nil
	}
	return r.o.Store.Known(ctx, r.o.Connection, stream, items)
}
