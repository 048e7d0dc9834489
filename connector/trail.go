package connector

import "hash/fnv"

// Trail finds a cursor that repeats, whatever the length of the cycle, in
// constant space: Brent's algorithm over the hashes of the cursors. A cycle of
// n pages is found within 3n pages of its start; a page that names itself is
// found at once. The zero value is an empty trail.
//
// Source: R. P. Brent, "An improved Monte Carlo factorization algorithm", 1980.
type Trail struct {
	// Anchor is the hash that later cursors are compared with.
	Anchor uint64 `json:"anchor,omitempty"`
	// Steps counts cursors since the anchor was set; Limit is when it moves on.
	Steps uint64 `json:"steps,omitempty"`
	Limit uint64 `json:"limit,omitempty"`
}

// Step adds the next page's cursor and reports whether it was seen before.
func (t *Trail) Step(cursor string) (repeats bool) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(cursor))
	sum := h.Sum64()
	if t.Limit > 0 && sum == t.Anchor {
		return true
	}
	if t.Limit == 0 || t.Steps == t.Limit {
		t.Anchor, t.Steps = sum, 0
		t.Limit = max(1, t.Limit*2)
		return false
	}
	t.Steps++
	return false
}
