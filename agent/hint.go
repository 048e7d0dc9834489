package agent

// Hint is a set of ways to need less.
type Hint uint8

const (
	// ShrinkPlanningDepth: plan fewer steps ahead, so that a decision takes
	// fewer calls. Under soft pressure, and while throttled.
	ShrinkPlanningDepth Hint = 1 << iota
	// CompressContext: send less context, so that a call takes fewer tokens.
	// Under soft pressure.
	CompressContext
)

// Names are the stable names of the hints in the set: shrink_planning_depth,
// compress_context. It is nil for none.
func (h Hint) Names() []string {
	var names []string
	if h&ShrinkPlanningDepth != 0 {
		names = append(names, "shrink_planning_depth")
	}
	if h&CompressContext != 0 {
		names = append(names, "compress_context")
	}
	return names
}
