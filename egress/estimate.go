package egress

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
)

// estimated is the expected usage of a call, and how its real usage is found.
type estimated struct {
	request     quota.Request // of each attempt
	expectation bool          // the request says what the call will use
	raw         int64         // input tokens by the tokenizer, before the learned correction
	usage       injected
	original    []byte // the body before usage was asked for in it
}

// estimate estimates what the call will use, and makes a stream report its usage.
func (c *call) estimate() {
	c.request = quota.Request{
		Model: c.log.Budget, Tenant: c.log.Tenant, Agent: c.log.Agent, Priority: c.log.Priority,
		MaxTokens: c.asked.MaxTokens,
	}
	if c.asked.Metered && c.counted() {
		c.expect()
	}
	c.inject()
}

// counted reports whether an estimate is needed: the provider has a budget, or is known to
// have limits. Otherwise it is skipped, since counting the tokens of a prompt takes longer
// than everything else in a call.
func (c *call) counted() bool {
	if c.up.Approver != nil || !c.up.paced() {
		return c.up.Approver != nil
	}
	for _, k := range c.up.credentials {
		if !k.Pacing.Unlimited(c.pool) {
			return true
		}
	}
	return false
}

// expect estimates what the call will use.
func (c *call) expect() {
	r, e := &c.request, c.up.estimator
	if c.asked.Texts != nil {
		c.raw = e.Raw(c.asked.Model, c.asked.Texts)
	}
	r.InputTokens = min(e.Scale(c.asked.Model, c.raw)+c.asked.Extra, quota.MaxTokens)
	if c.asked.Shape != usage.OpenAIEmbeddings { // embeddings have no output
		bound := int64(quota.MaxTokens)
		if r.MaxTokens > 0 {
			bound = r.MaxTokens
		}
		r.OutputTokens = min(e.Output(c.asked.Model, 0)*c.asked.Choices, bound)
	}
	c.log.Estimated = quota.Usage{Input: r.InputTokens, Output: r.OutputTokens}
	c.expectation = true
}

// expectLate makes the estimate after the call, where it was skipped before.
func (c *call) expectLate() {
	if c.asked.Metered && c.up.paced() && !c.expectation {
		c.expect()
	}
}

// inject asks a stream to report its usage, where that is allowed.
func (c *call) inject() {
	if !c.asked.Stream || c.asked.Shape != usage.OpenAIChat || c.up.InjectUsage == InjectNever {
		return
	}
	takes, known := c.up.injection.of(c.asked.Model)
	auto := c.up.InjectUsage == InjectAuto
	if auto && known && !takes {
		return
	}
	body, changed := usage.Inject(c.plain)
	if !changed {
		return
	}
	c.original, c.body, c.usage = c.body, body, injectedSurely
	if auto && !known {
		c.usage = injectedOnTrial
	}
}

func (c *call) injected() bool { return c.usage == injectedSurely || c.usage == injectedOnTrial }

// disputed reports whether an answer may refuse the call because it asks for usage.
func (c *call) disputed(status int) bool {
	return c.usage == injectedOnTrial && (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity)
}

// restore restores the body that the client sent.
func (c *call) restore() {
	c.body, c.original, c.usage = c.original, nil, injectedNoMore
}

// judge records from an answer whether the model accepts requests for usage.
func (c *call) judge(status int) {
	if status >= http.StatusMultipleChoices {
		return
	}
	at := c.began.UTC()
	switch c.usage {
	case injectedNoMore:
		c.up.injection.note(c.asked.Model, false, at)
	case injectedOnTrial:
		c.up.injection.note(c.asked.Model, true, at)
	case notInjected, injectedSurely:
	}
}

// injected says whether the proxy added a request for usage to the body.
type injected int

const (
	notInjected     injected = iota
	injectedSurely           // the model accepts it, or the configuration says always
	injectedOnTrial          // it is unknown whether the model accepts it
	injectedNoMore           // it was refused, and the client's body is restored
)

// InjectUsage says whether streams of chat completions are asked for their
// usage (stream_options.include_usage) when the client does not ask for it.
type InjectUsage string

// The ways.
const (
	// InjectAuto asks until a model refuses that with status 400 or 422. The refused call
	// is sent again at once as the client made it, and the model is not asked again.
	InjectAuto   InjectUsage = "auto"
	InjectAlways InjectUsage = "always"
	// InjectNever does not ask. Streams that do not report their usage are charged for
	// the output that was seen.
	InjectNever InjectUsage = "never"
)

const (
	// maxInjected bounds the number of models remembered, maxInjectedName the length of
	// a name in bytes.
	maxInjected, maxInjectedName = 1024, 256
	// unaskedFor is the maximum age of a refusal restored from an earlier process. The
	// provider may support usage by now.
	unaskedFor = 30 * 24 * time.Hour
)

// injection records which models accept requests for usage.
type injection struct {
	mu      sync.Mutex
	takes   map[string]bool
	refused map[string]time.Time // models that refuse it, and since when
}

// of returns what is known about a model.
func (j *injection) of(model string) (takes, known bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	takes, known = j.takes[model]
	return takes, known
}

func (j *injection) note(model string, takes bool, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if was, known := j.takes[model]; known && was == takes || len(model) > maxInjectedName {
		return
	}
	if j.takes == nil || len(j.takes) >= maxInjected {
		// Forgetting a model costs one refused call.
		j.takes, j.refused = map[string]bool{}, map[string]time.Time{}
	}
	j.takes[model] = takes
	if delete(j.refused, model); !takes {
		j.refused[model] = at
	}
}

// Unasked returns, by provider, the models that refuse requests for the usage of streams, and
// since when. [Proxy.RestoreUnasked] takes it.
func (p *Proxy) Unasked() map[string]map[string]time.Time {
	all := map[string]map[string]time.Time{}
	for _, u := range p.table.Load().order {
		j := &u.injection
		j.mu.Lock()
		if len(j.refused) > 0 {
			all[u.Name] = maps.Clone(j.refused)
		}
		j.mu.Unlock()
	}
	return all
}

// RestoreUnasked restores what [Proxy.Unasked] of an earlier proxy returned, which saves
// refused calls. Entries older than 30 days are dropped.
func (p *Proxy) RestoreUnasked(now time.Time, all map[string]map[string]time.Time) {
	for name, models := range all {
		u := p.table.Load().upstreams[name]
		if u == nil {
			continue
		}
		for model, at := range models {
			if now.Sub(at) < unaskedFor {
				u.injection.note(model, false, at)
			}
		}
	}
}

// budgets returns the limits of a quota for all calls of a provider and for its models,
// without those for tenants and agents. If the quota tells how much is used, they say so.
func budgets(c *quota.Config, by configured) (all []event.Limit) {
	uses := func(string) []quota.Forecast { return nil }
	if f, ok := by.(forecaster); ok {
		uses = func(model string) []quota.Forecast { return f.Forecast(quota.Scope{Model: model}) }
	}
	all = limitsOf(c.Global, "", uses(""), nil)
	for _, model := range slices.Sorted(maps.Keys(c.Models)) {
		all = limitsOf(c.Models[model].Limits, model, uses(model), all)
	}
	return all
}

// limitsOf appends limits of a quota's pool.
func limitsOf(l quota.Limits, pool string, uses []quota.Forecast, to []event.Limit) []event.Limit {
	now := time.Now()
	add := func(budget string, kind control.Kind, size, windowS float64, unit string) {
		if size <= 0 || windowS <= 0 {
			return
		}
		one := event.Limit{
			Kind: kind.String(), Size: size, WindowS: windowS, Unit: unit, Pool: pool, Provenance: event.Owner, Confidence: 1,
		}
		for _, u := range uses {
			if u.Budget == budget {
				one.Used = new(float64(u.Size - u.Remaining))
				if u.RoomIn > 0 && u.RoomIn != quota.Never {
					one.RoomAt = now.Add(u.RoomIn).Round(0)
				}
			}
		}
		to = append(to, one)
	}
	const minute, day = 60, 86_400
	calls := float64(l.CallsPerMinute)
	if l.RefillPerSecond > 0 {
		calls = l.RefillPerSecond * minute
	}
	add("calls", control.TokenBucket, calls, minute, event.UnitRequests)
	add("tokens", control.TokenBucket, float64(l.TokensPerMinute), minute, event.UnitTokens)
	add("inputTokens", control.TokenBucket, float64(l.InputTokensPerMinute), minute, event.UnitInputTokens)
	add("outputTokens", control.TokenBucket, float64(l.OutputTokensPerMinute), minute, event.UnitOutputTokens)
	add("softTokens", control.SlidingWindow, float64(l.SoftTokenBudget), float64(l.SoftTokenWindowMS)/1000, event.UnitTokens)
	add(quota.DailyCalls, control.FixedWindow, float64(l.MaxDailyCalls), day, event.UnitRequests)
	add(quota.DailyTokens, control.FixedWindow, float64(l.MaxDailyTokens), day, event.UnitTokens)
	return to
}
