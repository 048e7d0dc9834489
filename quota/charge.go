package quota

import "fmt"

// MaxTokens is the most tokens that one call may be said to cost: a bound
// against nonsense, far above any model's context.
const MaxTokens = 1_000_000_000

// MaxTokensRule says what a request's max_tokens does to its charge.
type MaxTokensRule string

// The rules.
const (
	// IgnoreMax: it is not charged; output counts as expected, then as generated.
	IgnoreMax MaxTokensRule = ""
	// FloorMax: the larger of max_tokens and the input counts, whatever is generated.
	FloorMax MaxTokensRule = "floor"
	// ReserveMax: input and max_tokens count, and stay counted when less is
	// generated.
	ReserveMax MaxTokensRule = "reserve"
)

// Charge says what of a call a provider counts: against tokens_per_minute and
// input_tokens_per_minute. The zero value counts all input and all output.
// Everything else, which is daily caps, soft windows, budgets of output tokens,
// ledgers and reports, counts the input and output that were used, by any rule.
type Charge struct {
	// MaxTokens says what max_tokens does. Default [IgnoreMax].
	MaxTokens MaxTokensRule `json:"maxTokens,omitempty"`
	// CachedDiscount is how much less a cached input token counts, in percent:
	// 0 (default) counts it in full, 100 not at all.
	CachedDiscount int64 `json:"cachedDiscount,omitempty"`
	// OutputFree: output does not count at all.
	OutputFree bool `json:"outputFree,omitempty"`
}

// StandardCharges are rules under the names of the APIs that document them. A
// configuration may use these names, and add or replace rules of its own.
func StandardCharges() map[string]Charge {
	return map[string]Charge{
		"total":     {},
		"openai":    {MaxTokens: FloorMax},
		"azure":     {MaxTokens: ReserveMax},
		"anthropic": {CachedDiscount: 100},
		"gemini":    {OutputFree: true},
	}
}

// Usage is what a call used, in tokens, each from 0 to [MaxTokens].
type Usage struct {
	// Input is all input, cached or not.
	Input int64 `json:"input"`
	// Cached is the part of Input that was read from the provider's cache.
	Cached int64 `json:"cached,omitempty"`
	// Output is what was generated, reasoning included.
	Output int64 `json:"output"`
	// Reasoning is the part of Output that the model thought and did not say.
	Reasoning int64 `json:"reasoning,omitempty"`
}

// Validate says which number is negative or too large.
func (u Usage) Validate() error {
	for _, f := range [...]struct {
		name     string
		n, bound int64
	}{{"input", u.Input, MaxTokens}, {"output", u.Output, MaxTokens}, {"cached", u.Cached, u.Input}, {"reasoning", u.Reasoning, u.Output}} {
		if f.n < 0 || f.n > f.bound {
			return &FieldError{"usage." + f.name, fmt.Sprint(f.n), fmt.Sprintf("from 0 to %d", f.bound)}
		}
	}
	return nil
}

// valid is Validate for the hot path.
func (u Usage) valid() bool {
	return uint64(u.Input) <= MaxTokens && uint64(u.Output) <= MaxTokens &&
		uint64(u.Cached) <= uint64(u.Input) && uint64(u.Reasoning) <= uint64(u.Output)
}

// amount is what a call counts, by kind of budget.
type amount [kinds]int64

// real is what the usage is, whatever a provider counts.
func (u Usage) real() amount { return amount{1, u.Input + u.Output, u.Input, u.Output} }

// rated is what the usage counts against budgets by the minute.
func (c *Charge) rated(u Usage, maxTokens int64) amount {
	in, out := u.Input, u.Output
	if c.CachedDiscount != 0 {
		in -= u.Cached * c.CachedDiscount / 100
	}
	if c.OutputFree {
		out = 0
	}
	all := in + out
	switch c.MaxTokens {
	case FloorMax:
		all = max(in, maxTokens)
	case ReserveMax:
		all = in + max(out, maxTokens)
	case IgnoreMax:
	}
	return amount{1, all, in, u.Output}
}

// final is what a call that used so much counts in the end, when it reserved so
// much by the minute. One that used nothing was refused: it counts as a call of no
// tokens, whatever it asked for.
func (c *Charge) final(u Usage, maxTokens int64, reserved *amount) (charged, rated amount) {
	if u == (Usage{}) {
		return amount{calls: 1}, amount{calls: 1}
	}
	charged, rated = u.real(), c.rated(u, maxTokens)
	if c.MaxTokens == ReserveMax {
		rated[tokens] = max(rated[tokens], reserved[tokens])
	}
	return charged, rated
}

// Rated is how many tokens of a usage, expected or made, a provider is thought to
// count against a budget by the minute. MaxTokens is the request's own bound on its
// output, 0 for none.
func (c Charge) Rated(u Usage, maxTokens int64) int64 { return c.rated(u, maxTokens)[tokens] }
