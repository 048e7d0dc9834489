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

// estimated is what a call is expected to use, and how its usage becomes known.
type estimated struct {
	request     quota.Request // of each attempt
	expectation bool          // the request says what the call will use
	raw         int64         // input as the tokenizer has it, before what was learned
	usage       injected
	original    []byte // the body before usage was asked for in it
}

// estimate works out what to ask of the quota, and asks a stream to report its usage.
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

// counted reports whether it makes a difference what the call costs: it has a budget, or
// the provider has shown that it has limits. Counting the tokens of a prompt would take
// longer than all else that is done for the call.
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

// expect works out what the call will use, as far as that can be known before.
func (c *call) expect() {
	r, e := &c.request, c.up.estimator
	if c.asked.Texts != nil {
		c.raw = e.Raw(c.asked.Model, c.asked.Texts)
	}
	r.InputTokens = min(e.Scale(c.asked.Model, c.raw)+c.asked.Extra, quota.MaxTokens)
	if c.asked.Shape != usage.OpenAIEmbeddings { // which have no output
		bound := int64(quota.MaxTokens)
		if r.MaxTokens > 0 {
			bound = r.MaxTokens
		}
		r.OutputTokens = min(e.Output(c.asked.Model, 0)*c.asked.Choices, bound)
	}
	c.log.Estimated = quota.Usage{Input: r.InputTokens, Output: r.OutputTokens}
	c.expectation = true
}

// expectLate works out what the call was to use, where that made no difference before.
func (c *call) expectLate() {
	if c.asked.Metered && c.up.paced() && !c.expectation {
		c.expect()
	}
}

// inject asks for usage where that is allowed.
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

// disputed reports whether an answer may be a refusal to be asked for usage.
func (c *call) disputed(status int) bool {
	return c.usage == injectedOnTrial && (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity)
}

// restore makes the call what the client made it.
func (c *call) restore() {
	c.body, c.original, c.usage = c.original, nil, injectedNoMore
}

// judge remembers what an answer that was passed on says of the model.
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

// injected says whether a call's body asks for usage though the client's did not.
type injected int

const (
	notInjected     injected = iota
	injectedSurely           // the model takes it, or the configuration insists
	injectedOnTrial          // nobody knows whether the model takes it
	injectedNoMore           // it was refused, and the body is the client's again
)

// InjectUsage says whether streams of chat completions are asked for their
// usage (stream_options.include_usage) when the client does not ask for it.
type InjectUsage string

// The ways.
const (
	// InjectAuto asks, and asks a model no more that refuses to be asked, with 400
	// or 422: that call is sent again at once as the client made it.
	InjectAuto   InjectUsage = "auto"
	InjectAlways InjectUsage = "always"
	// InjectNever does not ask: streams that do not report their usage are charged
	// what was seen of them.
	InjectNever InjectUsage = "never"
)

const (
	// maxInjected bounds the models that are remembered, maxInjectedName the bytes of
	// one's name.
	maxInjected, maxInjectedName = 1024, 256
	// unaskedFor is how old the refusal of a model may be to be taken over from a former
	// process: what a provider refused then, it may have learned since.
	unaskedFor = 30 * 24 * time.Hour
)

// injection remembers which models can be asked for usage.
type injection struct {
	mu      sync.Mutex
	takes   map[string]bool
	refused map[string]time.Time // since when, those that do not take it
}

// of is what is known of a model.
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
		// A model costs one refused call to be learned again.
		j.takes, j.refused = map[string]bool{}, map[string]time.Time{}
	}
	j.takes[model] = takes
	if delete(j.refused, model); !takes {
		j.refused[model] = at
	}
}

// Unasked are, by provider, the models whose streams are not asked for their usage,
// because they refused that, and since when. It is what [Proxy.RestoreUnasked] takes.
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

// RestoreUnasked takes over what a former proxy had learned, so that it costs no
// refused calls again. What is older than 30 days is learned again.
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

// budgets are the limits that a quota sets for all calls of a provider, and for its
// models. Those of tenants and agents are the quota's own to show.
func budgets(c *quota.Config) (all []event.Limit) {
	all = limitsOf(c.Global, "", nil)
	for _, model := range slices.Sorted(maps.Keys(c.Models)) {
		all = limitsOf(c.Models[model].Limits, model, all)
	}
	return all
}

// limitsOf appends limits of a quota's pool.
func limitsOf(l quota.Limits, pool string, to []event.Limit) []event.Limit {
	add := func(kind control.Kind, size, windowS float64, unit string) {
		if size > 0 && windowS > 0 {
			to = append(to, event.Limit{
				Kind: kind.String(), Size: size, WindowS: windowS, Unit: unit, Pool: pool, Provenance: event.Owner, Confidence: 1,
			})
		}
	}
	const minute, day = 60, 86_400
	calls := float64(l.CallsPerMinute)
	if l.RefillPerSecond > 0 {
		calls = l.RefillPerSecond * minute
	}
	add(control.TokenBucket, calls, minute, event.UnitRequests)
	add(control.TokenBucket, float64(l.TokensPerMinute), minute, event.UnitTokens)
	add(control.TokenBucket, float64(l.InputTokensPerMinute), minute, event.UnitInputTokens)
	add(control.TokenBucket, float64(l.OutputTokensPerMinute), minute, event.UnitOutputTokens)
	add(control.SlidingWindow, float64(l.SoftTokenBudget), float64(l.SoftTokenWindowMS)/1000, event.UnitTokens)
	add(control.FixedWindow, float64(l.MaxDailyCalls), day, event.UnitRequests)
	add(control.FixedWindow, float64(l.MaxDailyTokens), day, event.UnitTokens)
	return to
}
