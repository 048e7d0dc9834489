package quota

import "fmt"

// Request asks for one call.
type Request struct {
	// Model is a key of the configuration's models.
	Model string `json:"model"`
	// InputTokens and OutputTokens are what the call is expected to use;
	// CachedTokens is the part of the input expected from the provider's cache;
	// MaxTokens is the request's own bound on its output. 0 to [MaxTokens] each.
	InputTokens  int64 `json:"expected_input_tokens"`
	OutputTokens int64 `json:"expected_output_tokens,omitempty"`
	CachedTokens int64 `json:"cached_tokens,omitempty"`
	MaxTokens    int64 `json:"max_tokens,omitempty"`
	// Tenant and Agent say for whom, at most 256 bytes each. Without them only
	// the global limits and the model's count.
	Tenant string `json:"tenant,omitempty"`
	Agent  string `json:"agent,omitempty"`
	// Priority: among those who wait, a greater one goes first.
	Priority int `json:"priority,omitempty"`
	// Reason is the caller's own note; it decides nothing.
	Reason string `json:"reason,omitempty"`
}

// Validate says which number is out of its bound.
func (r *Request) Validate() error {
	for _, f := range [...]struct {
		name     string
		n, bound int64
	}{
		{"expected_input_tokens", r.InputTokens, MaxTokens},
		{"expected_output_tokens", r.OutputTokens, MaxTokens},
		{"cached_tokens", r.CachedTokens, r.InputTokens},
		{"max_tokens", r.MaxTokens, MaxTokens},
	} {
		if f.n < 0 || f.n > f.bound {
			return &FieldError{f.name, fmt.Sprint(f.n), fmt.Sprintf("from 0 to %d", f.bound)}
		}
	}
	for _, f := range [...]struct{ field, name string }{{"model", r.Model}, {"tenant", r.Tenant}, {"agent", r.Agent}} {
		if len(f.name) > maxName {
			return &FieldError{f.field, fmt.Sprintf("a name of %d bytes", len(f.name)), fmt.Sprintf("at most %d bytes", maxName)}
		}
	}
	return nil
}

// valid is Validate for the hot path.
func (r *Request) valid() bool {
	return uint64(r.InputTokens) <= MaxTokens && uint64(r.OutputTokens) <= MaxTokens &&
		uint64(r.MaxTokens) <= MaxTokens && uint64(r.CachedTokens) <= uint64(r.InputTokens) &&
		len(r.Model) <= maxName && len(r.Tenant) <= maxName && len(r.Agent) <= maxName
}

// expected is the estimate as a usage.
func (r *Request) expected() Usage {
	return Usage{Input: r.InputTokens, Cached: r.CachedTokens, Output: r.OutputTokens}
}

// claim is a request that found its path: what it would take from each scope.
type claim struct {
	route    *route
	charged  amount // as it is: from daily caps, windows and ledgers
	rated    amount // as the provider counts: by the minute
	taken    amount // from buckets: what is rated, but no more than a full one holds
	windowed int64  // from soft windows: what is charged, but no more than an empty one holds
	max      int64  // max_tokens of the request
	input    Usage  // the expected input, cached or not
}

func (r *Request) claim(on *route, c *claim) {
	u := r.expected()
	c.route, c.charged, c.max = on, u.real(), r.MaxTokens
	c.rated = on.rule.rated(u, r.MaxTokens)
	c.input = Usage{Input: u.Input, Cached: u.Cached}
	c.clamp()
}

// clamp cuts the claim to what the budgets on its path hold at most.
func (c *claim) clamp() {
	for k := range c.taken {
		c.taken[k] = min(c.rated[k], c.route.clamp[k])
	}
	c.windowed = min(c.charged[tokens], c.route.window)
}

func (c *claim) clamped() bool { return c.taken != c.rated || c.windowed != c.charged[tokens] }
