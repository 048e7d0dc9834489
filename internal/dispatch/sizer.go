package dispatch

import "time"

// A Sizer finds how many rows a batch should have for it to take a target time.
// It is a plain value, not safe for concurrent use.
type Sizer struct {
	size, limit int
	target      time.Duration
	perRow      time.Duration // mean
}

// NewSizer starts at first rows, and never has more than limit. A target that is not positive
// keeps the size.
func NewSizer(first, limit int, target time.Duration) Sizer {
	limit = max(limit, 1)
	return Sizer{size: min(max(first, 1), limit), limit: limit, target: target}
}

// Size is how many rows the next batch should have.
func (s *Sizer) Size() int { return s.size }

// Observe tells how long a batch took that was served. The size at most doubles
// or halves at once, and grows only on what a batch of that size took: batches
// of the size before are evidence of that size alone.
func (s *Sizer) Observe(rows int, took time.Duration) {
	if s.target <= 0 || rows < 1 || rows*2 < s.size {
		return
	}
	each := max(took, 1) / time.Duration(rows)
	if s.perRow == 0 {
		s.perRow = each
	}
	s.perRow += (each - s.perRow) / 4
	ideal := s.limit
	if s.perRow > 0 {
		ideal = int(min(s.target/s.perRow, time.Duration(s.limit)))
	}
	if ideal > s.size && rows < s.size {
		return
	}
	s.size = max(min(ideal, s.size*2, s.limit), s.size/2, 1)
}

// TooLarge tells of a batch that the server refused for its size: no batch will
// have as many rows again.
func (s *Sizer) TooLarge(rows int) {
	s.limit = min(s.limit, max(rows/2, 1))
	s.size = min(s.size, s.limit)
}

// TooSlow tells of a batch that timed out: the size halves, once for all batches
// of that size.
func (s *Sizer) TooSlow(rows int) {
	if s.target > 0 && rows >= s.size && rows < s.size*2 {
		s.size = max(s.size/2, 1)
	}
}
