package api

import "sync"

// seats are the open streams of events, and whose they are. The zero value is
// ready. Safe for concurrent use.
type seats struct {
	mu     sync.Mutex
	all    int
	guests int            // of those, who are not admins
	taken  map[string]int // by each guest
}

// take gives a caller a seat, of as many as limit, if there is one for it: one guest cannot
// keep the others out, nor all guests the admins.
func (s *seats) take(c Caller, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= limit {
		return false
	}
	if !c.Admin {
		if s.taken[c.ID] >= (limit+3)/4 || s.guests >= limit-limit/8 {
			return false
		}
		if s.taken == nil {
			s.taken = map[string]int{}
		}
		s.taken[c.ID]++
		s.guests++
	}
	s.all++
	return true
}

// leave gives a seat back that the same caller took.
func (s *seats) leave(c Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if c.Admin {
		return
	}
	s.guests--
	if s.taken[c.ID]--; s.taken[c.ID] == 0 {
		delete(s.taken, c.ID)
	}
}
