package sqlite

// Bound lowers how many bytes of records may wait for a commit.
func (s *Sink) Bound(n int) { s.slice.Max = n }
