package headway

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
)

// Connections keeps one [Governor] per key, all with the same configuration. A governor
// is made when its key is first used. What happens to one governor never slows another.
// Safe for concurrent use.
type Connections[K comparable] struct {
	set    *settings
	prefix string // of the names
	jitter uint64 // seed of the jitter
	seed   maphash.Seed
	shards [64]shard[K]
}

type shard[K comparable] struct {
	mu sync.RWMutex
	of map[K]*Governor
}

// NewConnections returns an empty set. Config.Fleet must be nil. Config.Name is put
// before each key in refusals and events, so a key must not be a credential.
func NewConnections[K comparable](c Config) (*Connections[K], error) {
	if c.Fleet != nil {
		return nil, errors.New("headway: a fleet serves one connection: make its governor with New")
	}
	s, err := resolve(c)
	if err != nil {
		return nil, err
	}
	prefix := c.Name
	if prefix != "" {
		prefix += "/"
	}
	return &Connections[K]{set: s, prefix: prefix, jitter: c.Seed, seed: maphash.MakeSeed()}, nil
}

// For returns the governor of a key, making it if needed.
func (c *Connections[K]) For(key K) *Governor {
	h := maphash.Comparable(c.seed, key)
	s := &c.shards[h%uint64(len(c.shards))]
	s.mu.RLock()
	g := s.of[key]
	s.mu.RUnlock()
	if g != nil {
		return g
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g = s.of[key]; g != nil {
		return g
	}
	if s.of == nil {
		s.of = make(map[K]*Governor)
	}
	g = newGovernor(c.set, c.prefix+fmt.Sprint(key), c.jitter^h)
	s.of[key] = g
	return g
}

// Forget removes a key's governor and reports whether there was one. Callers that hold
// the governor can go on using it; the next For makes a new one.
func (c *Connections[K]) Forget(key K) bool {
	s := &c.shards[maphash.Comparable(c.seed, key)%uint64(len(c.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.of[key]
	delete(s.of, key)
	return ok
}

// Len returns the number of governors.
func (c *Connections[K]) Len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.of)
		s.mu.RUnlock()
	}
	return n
}
