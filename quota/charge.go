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
	// FloorMax: budgets by the minute and windows count the larger of max_tokens
	// and the input, whatever is generated. Daily caps and ledgers count what was
	// used, and at least max_tokens.
	FloorMax MaxTokensRule = "floor"
	// ReserveMax: output is reserved as max_tokens and settled as generated.
	ReserveMax MaxTokensRule = "reserve"
)

// Charge says what of a call counts against token budgets. The zero value
// counts all input and all output.
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
	// Output is what was generated, thinking included.
	Output int64 `json:"output"`
}

// Validate says which number is negative or too large.
func (u Usage) Validate() error {
	for _, f := range [...]struct {
		name     string
		n, bound int64
	}{{"input", u.Input, MaxTokens}, {"output", u.Output, MaxTokens}, {"cached", u.Cached, u.Input}} {
		if f.n < 0 || f.n > f.bound {
			return &FieldError{"usage." + f.name, fmt.Sprint(f.n), fmt.Sprintf("from 0 to %d", f.bound)}
		}
	}
	return nil
}

// amount is what a call counts, by kind of budget.
type amount [kinds]int64

// of is what the usage counts.
func (c *Charge) of(u Usage, maxTokens int64) amount {
	in, out := u.Input, u.Output
	if c.CachedDiscount != 0 {
		in -= u.Cached * c.CachedDiscount / 100
	}
	if c.OutputFree {
		out = 0
	}
	all := in + out
	if c.MaxTokens == FloorMax {
		all = max(all, maxTokens)
	}
	return amount{1, all, in, out}
}

// rated is what counts against budgets by the minute, where a counts against
// daily caps and ledgers.
func (c *Charge) rated(a amount, maxTokens int64) amount {
	if c.MaxTokens == FloorMax {
		a[tokens] = max(a[inputTokens], maxTokens)
	}
	return a
}

// final is what a call that used so much counts in the end. One that used nothing
// was refused: it counts as a call of no tokens, whatever it asked for.
func (c *Charge) final(u Usage, maxTokens int64) (charged, rated amount) {
	if u == (Usage{}) {
		return amount{calls: 1}, amount{calls: 1}
	}
	charged = c.of(u, maxTokens)
	return charged, c.rated(charged, maxTokens)
}

// Rated is how many tokens a call counts against a budget by the minute: one that
// is to be made, by what it is expected to use, or one that was made. MaxTokens is
// the request's own bound, 0 for none. It is what the provider is thought to count.
func (c Charge) Rated(u Usage, maxTokens int64, made bool) int64 {
	a := c.of(u, maxTokens)
	if !made {
		a = c.estimate(u, maxTokens)
	}
	return c.rated(a, maxTokens)[tokens]
}

// estimate is what to reserve before the call.
func (c *Charge) estimate(u Usage, maxTokens int64) amount {
	if c.MaxTokens == ReserveMax && maxTokens > 0 {
		u.Output = maxTokens
	}
	return c.of(u, maxTokens)
}
