package egress

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
)

// estimate is what the quota is asked for.
func (x *exchange) estimate() quota.Request {
	r := quota.Request{
		Model: x.told.Budget, Tenant: x.told.Tenant, Agent: x.told.Agent, Priority: x.told.Priority,
		MaxTokens: min(max(x.asked.MaxTokens, 0), quota.MaxTokens),
	}
	if !x.asked.Metered || x.up.Approver == nil && x.up.Pacing == nil {
		return r // nobody asks
	}
	e := x.up.estimator
	if x.asked.Texts != nil {
		x.raw = e.Raw(x.asked.Model, x.asked.Texts)
	}
	in := e.Scale(x.asked.Model, x.raw) + max(x.asked.Extra, 0)
	r.InputTokens = min(max(in, 0), quota.MaxTokens)
	if x.asked.Shape != usage.OpenAIEmbeddings { // which have no output
		most := int64(quota.MaxTokens)
		if r.MaxTokens > 0 {
			most = r.MaxTokens
		}
		r.OutputTokens = min(e.Output(x.asked.Model, 0)*max(x.asked.Choices, 1), most)
	}
	x.told.Estimated = quota.Usage{Input: r.InputTokens, Output: r.OutputTokens}
	return r
}

// InjectUsage says whether streams of chat completions are asked to tell their
// usage (stream_options.include_usage) when the client does not ask for it.
type InjectUsage string

// The ways.
const (
	// InjectAuto asks, and asks a model no more that refuses to be asked, with 400
	// or 422: that call is sent again at once as the client made it.
	InjectAuto   InjectUsage = "auto"
	InjectAlways InjectUsage = "always"
	// InjectNever does not ask: streams that do not tell their usage are charged
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

// inject asks for usage where that is allowed.
func (x *exchange) inject() {
	if !x.asked.Stream || x.asked.Shape != usage.OpenAIChat || x.up.InjectUsage == InjectNever {
		return
	}
	takes, known := x.up.injection.of(x.asked.Model)
	auto := x.up.InjectUsage == InjectAuto
	if auto && known && !takes {
		return
	}
	body, changed := usage.Inject(x.plain)
	if !changed {
		return
	}
	x.original, x.body, x.usage = x.body, body, injectedSurely
	if auto && !known {
		x.usage = injectedOnTrial
	}
}

func (x *exchange) injected() bool { return x.usage == injectedSurely || x.usage == injectedOnTrial }

// disputed reports whether an answer may be a refusal to be asked for usage.
func (x *exchange) disputed(status int) bool {
	return x.usage == injectedOnTrial && (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity)
}

// restore makes the call what the client made it.
func (x *exchange) restore() {
	x.body, x.original, x.usage = x.original, nil, injectedNoMore
}

// judge remembers what an answer that was passed on says of the model.
func (x *exchange) judge(status int) {
	if status >= http.StatusMultipleChoices {
		return
	}
	at := x.began.Round(0).UTC()
	switch x.usage {
	case injectedNoMore:
		x.up.injection.note(x.asked.Model, false, at)
	case injectedOnTrial:
		x.up.injection.note(x.asked.Model, true, at)
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
		// A model costs one refused call to be learned anew.
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
// refused calls again. What is older than 30 days is learned anew.
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
