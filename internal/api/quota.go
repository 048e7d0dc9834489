package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// ApproveRequest asks for approval of one call.
type ApproveRequest struct {
	quota.Request
	// Provider names the quota; see [Options].Quotas for the default.
	Provider string `json:"provider,omitempty"`
	// WaitMS bounds the wait for the approval in milliseconds, 0 to 86,400,000. The quota's
	// own bound (15 s by default) holds as well. Default 0: answer at once.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// Approval is the approval of one call.
type Approval struct {
	// Approved is always true; a refusal is a [Problem].
	Approved bool   `json:"approved"`
	Provider string `json:"provider"`
	// Permit is the token with which to settle the call.
	Permit string `json:"permit"`
	// Advisories are remarks: soft_pressure, soft_limit, throttled, clamped,
	// shared_scope.
	Advisories []string `json:"advisories"`
	// Utilization is the highest use of a soft budget of the call, as a fraction of the
	// budget; 0 without soft budgets.
	Utilization float64 `json:"utilization"`
	// Scale is the factor by which an agent should stretch its interval.
	Scale float64 `json:"scale"`
	// WaitedMS is how long the request waited, in milliseconds.
	WaitedMS int64 `json:"waited_ms"`
	// ExpiresInMS is the time left to settle the permit, in milliseconds. Then it expires.
	ExpiresInMS int64 `json:"expires_in_ms"`
}

// UsageRequest settles a permit with what the call used, or gives it back.
type UsageRequest struct {
	Permit string `json:"permit"`
	// InputTokens counts all input, CachedTokens the part read from the provider's cache.
	// Each is 0 to quota.MaxTokens.
	InputTokens  int64 `json:"input_tokens,omitempty"`
	CachedTokens int64 `json:"cached_tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens,omitempty"`
	// ReasoningTokens is the part of OutputTokens used for reasoning.
	ReasoningTokens int64 `json:"reasoning_tokens,omitempty"`
	// Cancel says that nothing was sent. The token counts must then be 0.
	Cancel bool `json:"cancel,omitempty"`
}

// Settled is the answer to a UsageRequest.
type Settled struct {
	// First is false if the permit had ended before. Then nothing changed.
	First bool `json:"first"`
}

// Forecast says when a budget runs out at the recent rate of use.
type Forecast struct {
	Scope     quota.Scope `json:"scope"`
	Budget    string      `json:"budget"`
	Remaining int64       `json:"remaining"`
	PerMinute int64       `json:"per_minute"`
	// RunsOutInMS is the time until the budget runs out, in milliseconds; null if it does
	// not.
	RunsOutInMS *int64 `json:"runs_out_in_ms"`
	EndsInMS    int64  `json:"ends_in_ms"`
	// Early is set if it runs out before the end of its window.
	Early bool `json:"early"`
}

// Patched is the answer to a change of configuration.
type Patched struct {
	Provider string `json:"provider"`
	// ConfigDigest is the digest of the configuration in force.
	ConfigDigest string `json:"configDigest"`
}

const maxWaitMS = 24 * 60 * 60 * 1000

// pick returns the named quota, if the caller may use it.
func (a *API) pick(name string, c Caller) (string, Quota, error) {
	all := a.quotas(c)
	choices := slices.Sorted(maps.Keys(all))
	if name == "" {
		if name = usual(choices); name == "" && len(choices) > 1 {
			p := badField("provider", "missing", "one of the choices, as there are several quotas")
			p.Choices = choices
			return "", nil, p
		}
	}
	if q := all[name]; q != nil {
		return name, q, nil
	}
	p := &Problem{Status: http.StatusNotFound, Title: "No such quota", Choices: choices, Field: "provider"}
	switch {
	case len(choices) == 0 && c.Role != "":
		p.Detail = "no quota is configured"
	case len(choices) == 0:
		p.Detail = "no quota is configured that this key may use"
	default:
		p.Detail = "provider names no quota, must be one of the choices"
	}
	return "", nil, p
}

// usual returns the name of the quota for requests that name none.
func usual(choices []string) string {
	switch {
	case slices.Contains(choices, DefaultQuota):
		return DefaultQuota
	case len(choices) == 1:
		return choices[0]
	}
	return ""
}

// quotas returns the quotas that a caller may use.
func (a *API) quotas(c Caller) map[string]Quota {
	all := map[string]Quota{}
	if a.o.Quotas == nil {
		return all
	}
	for name, q := range a.o.Quotas() {
		if c.may(name, "") {
			all[name] = q
		}
	}
	return all
}

func (c *Caller) may(provider, model string) bool {
	return c.Role != "" || c.May == nil || c.May(provider, model)
}

// bind applies the tenant, agent and priority of the caller to a request.
func (c *Caller) bind(q *quota.Request, provider string) error {
	if c.Role != "" {
		return nil
	}
	for _, part := range [...]struct {
		field, own string
		asked      *string
	}{{"tenant", c.Tenant, &q.Tenant}, {"agent", c.Agent, &q.Agent}} {
		if err := own(part.field, part.own, part.asked); err != nil {
			return err
		}
	}
	q.Priority = cmp.Or(q.Priority, c.Priority)
	q.Priority = min(q.Priority, max(c.Priority, c.PriorityMax))
	if !c.may(provider, q.Model) {
		return &Problem{Status: http.StatusForbidden, Title: "Not allowed", Detail: "the key may not use this model", Reason: reasonForbidden, Field: "model"}
	}
	return nil
}

// own fills in the tenant or agent of the key, and refuses another one.
func own(field, own string, asked *string) error {
	switch {
	case own == "":
	case *asked == "" || *asked == own:
		*asked = own
	default:
		return &Problem{Status: http.StatusForbidden, Title: "Not allowed", Detail: "the key is for another " + field, Reason: reasonForbidden, Field: field}
	}
	return nil
}

func (a *API) approve(w http.ResponseWriter, r *http.Request, c Caller) error {
	body, err := read(w, r, typeJSON)
	if err != nil {
		return err
	}
	var ask ApproveRequest
	if err := decode(body, &ask, "model", "expected_input_tokens", "expected_output_tokens", "cached_tokens", "max_tokens",
		"tenant", "agent", "priority", "reason", "provider", "wait_ms"); err != nil {
		return err
	}
	name, q, err := a.pick(ask.Provider, c)
	if err != nil {
		return err
	}
	if err := ask.Validate(); err != nil {
		return err
	}
	if ask.WaitMS < 0 || ask.WaitMS > maxWaitMS {
		return badField("wait_ms", fmt.Sprint(ask.WaitMS), fmt.Sprintf("from 0 to %d", maxWaitMS))
	}
	if err := c.bind(&ask.Request, name); err != nil {
		return err
	}
	began := time.Now()
	if ok, until := a.permits.reserve(began); !ok {
		return &Problem{
			Type: typePrefix + "permits_full", Title: "Too many open permits", Status: http.StatusServiceUnavailable,
			Detail: fmt.Sprintf("%d permits are open; settle or cancel those that ended", a.o.Permits), RetryInMS: untilMS(until),
		}
	}
	d, err := grant(r, q, ask)
	if err != nil {
		a.permits.release()
		return err
	}
	ttl := time.Duration(q.Config().PermitTTLMS) * time.Millisecond
	now := time.Now()
	h := &holding{provider: name, from: q, permit: d.Permit, owner: c.ID, until: now.Add(ttl)}
	answer := Approval{
		Approved: true, Provider: name, Permit: a.permits.put(h),
		Advisories: append([]string{}, d.Advisory.Names()...), Utilization: float64(d.Utilization) / 1000,
		Scale: q.Factor(ask.Request), WaitedMS: now.Sub(began).Milliseconds(), ExpiresInMS: ttl.Milliseconds(),
	}
	// A client that has gone can neither use nor settle the permit.
	if err := r.Context().Err(); err != nil || a.respond(w, answer) != nil {
		_, _ = q.Cancel(d.Permit) // valid and not used
		a.permits.end(h)
	}
	return nil
}

// Decide asks for calls that are made elsewhere and never settled, as gateways do that know
// a limit but no permit. It approves all of them or none, and settles each at once with the
// tokens that it expects. R is the request that brings them: its caller needs a key for calls,
// as for POST /v1/quota/approve, and the answers are the same. Provider names the quota; see
// [Options].Quotas for the default.
//
// The problem is nil if all were approved. Otherwise at is the index of the call that was
// refused or is invalid, and -1 if the request itself was. Safe for concurrent use.
func (a *API) Decide(r *http.Request, provider string, calls []quota.Request) (at int, p *Problem) {
	c, err := a.o.Authorize(r, data.role())
	if err != nil {
		return -1, a.unauthorized(nil, err, call)
	}
	if !call.allows(c) {
		return -1, notAllowed(call)
	}
	name, q, err := a.pick(provider, c)
	if err != nil {
		return -1, a.problem(r, err)
	}
	permits := make([]quota.Permit, 0, len(calls))
	for i := range calls {
		if err = calls[i].Validate(); err == nil {
			err = c.bind(&calls[i], name)
		}
		d := quota.Decision{}
		if err == nil {
			d, err = q.Approve(calls[i])
		}
		if err != nil {
			for _, taken := range permits {
				_, _ = q.Cancel(taken) // valid and not used
			}
			return i, a.problem(r, err)
		}
		permits = append(permits, d.Permit)
	}
	for i, taken := range permits {
		n := &calls[i]
		if _, err := q.RecordUsage(taken, quota.Usage{Input: n.InputTokens, Cached: n.CachedTokens, Output: n.OutputTokens}); err != nil {
			return i, a.problem(r, err)
		}
	}
	return -1, nil
}

// grant asks the quota, and waits if the request says so.
func grant(r *http.Request, q Quota, ask ApproveRequest) (quota.Decision, error) {
	if ask.WaitMS == 0 {
		return q.Approve(ask.Request)
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(ask.WaitMS)*time.Millisecond)
	defer cancel()
	d, err := q.ApproveWait(ctx, ask.Request)
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		// The wait is over and the client is still connected: ask once more, for the
		// reason of the refusal, or for capacity that has just become free.
		return q.Approve(ask.Request)
	}
	return d, err
}

func (a *API) usage(w http.ResponseWriter, r *http.Request, c Caller) error {
	body, err := read(w, r, typeJSON)
	if err != nil {
		return err
	}
	var ask UsageRequest
	if err := decode(body, &ask, "permit", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cancel"); err != nil {
		return err
	}
	used := quota.Usage{Input: ask.InputTokens, Cached: ask.CachedTokens, Output: ask.OutputTokens, Reasoning: ask.ReasoningTokens}
	for _, f := range [...]struct {
		name     string
		n, bound int64
	}{{"input_tokens", used.Input, quota.MaxTokens}, {"output_tokens", used.Output, quota.MaxTokens}, {"cached_tokens", used.Cached, used.Input}, {"reasoning_tokens", used.Reasoning, used.Output}} {
		if f.n < 0 || f.n > f.bound {
			return badField(f.name, fmt.Sprint(f.n), fmt.Sprintf("from 0 to %d", f.bound))
		}
	}
	if ask.Cancel && used != (quota.Usage{}) {
		return badField("cancel", "true beside tokens", "without tokens: what was sent is settled, not canceled")
	}
	h, err := a.permits.find(ask.Permit, c)
	if err != nil {
		return err
	}
	var answer Settled
	if ask.Cancel {
		answer.First, err = h.from.Cancel(h.permit)
	} else {
		answer.First, err = h.from.RecordUsage(h.permit, used)
	}
	if err != nil {
		return err
	}
	a.permits.end(h)
	_ = a.respond(w, answer) // settled even if the client does not get the answer
	return nil
}

func (a *API) snapshot(w http.ResponseWriter, r *http.Request, c Caller) error {
	name, q, err := a.pickAsked(ask(r, "provider"), c)
	if err != nil {
		return err
	}
	s := q.Snapshot()
	s.RecentEvents = slices.DeleteFunc(s.RecentEvents, func(e quota.Event) bool { return !c.sees(e.Scope) })
	maps.DeleteFunc(s.Models, func(model string, _ quota.ModelSnapshot) bool { return !c.may(name, model) })
	return a.send(w, s)
}

// sees reports whether a caller may see events of a scope.
func (c *Caller) sees(s quota.Scope) bool {
	return c.Role != "" || (c.Tenant == "" || s.Tenant == "" || s.Tenant == c.Tenant) && (c.Agent == "" || s.Agent == "" || s.Agent == c.Agent)
}

func (a *API) pickAsked(ask *query, c Caller) (string, Quota, error) {
	name := ask.text("provider")
	if ask.err != nil {
		return "", nil, ask.err
	}
	return a.pick(name, c)
}

func (a *API) forecast(w http.ResponseWriter, r *http.Request, c Caller) error {
	ask := ask(r, "provider", "tenant", "agent", "model")
	scope := quota.Scope{Tenant: ask.text("tenant"), Agent: ask.text("agent"), Model: ask.text("model")}
	name, q, err := a.pickAsked(ask, c)
	if err != nil {
		return err
	}
	switch {
	case !c.sees(scope):
		return &Problem{Status: http.StatusForbidden, Title: "Not allowed", Detail: "the key is for another tenant or agent", Reason: reasonForbidden}
	case scope.Model != "" && !c.may(name, scope.Model):
		return &Problem{Status: http.StatusForbidden, Title: "Not allowed", Detail: "the key may not use this model", Reason: reasonForbidden, Field: "model"}
	}
	list := []Forecast{}
	for _, f := range q.Forecast(scope) {
		one := Forecast{
			Scope: f.Scope, Budget: f.Budget, Remaining: f.Remaining, PerMinute: f.PerMinute,
			EndsInMS: ceilMS(f.EndsIn), Early: f.Early(),
		}
		if f.RunsOutIn != quota.Never {
			one.RunsOutInMS = new(ceilMS(f.RunsOutIn))
		}
		list = append(list, one)
	}
	return a.send(w, list)
}

func (a *API) statistics(w http.ResponseWriter, r *http.Request, c Caller) error {
	_, q, err := a.pickAsked(ask(r, "provider"), c)
	if err != nil {
		return err
	}
	return a.send(w, q.Statistics())
}

func (a *API) config(w http.ResponseWriter, r *http.Request, c Caller) error {
	_, q, err := a.pickAsked(ask(r, "provider"), c)
	if err != nil {
		return err
	}
	return a.send(w, q.Config())
}

func (a *API) patch(w http.ResponseWriter, r *http.Request, c Caller) error {
	name, q, err := a.pickAsked(ask(r, "provider"), c)
	if err != nil {
		return err
	}
	body, err := read(w, r, typePatch)
	if err != nil {
		return err
	}
	was := q.Config()
	before, err := was.Digest()
	if err != nil {
		return err
	}
	if _, err := was.Patched(body); err != nil {
		return err
	}
	var after string
	err = a.audit(r.Context(), c, audit.Entry{Action: "quota.override", Target: "quota " + name, Before: patched(was, body)}, func(context.Context) (map[string]any, error) {
		if err := q.UpdateConfig(body); err != nil {
			return nil, err
		}
		is := q.Config()
		if after, err = is.Digest(); err != nil {
			return nil, err
		}
		return patched(is, body), nil
	})
	if err != nil {
		return err
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "[RG][CONFIG] limits changed through the API", slog.String("provider", name),
		slog.String("key_id", c.ID), slog.String("digest_before", before), slog.String("config_digest", after))
	return a.send(w, Patched{Provider: name, ConfigDigest: after})
}

// patched returns the part of a configuration that a valid patch is about.
func patched(c quota.Config, patch []byte) map[string]any {
	var tree, change map[string]any
	raw, err := json.Marshal(c)
	if err == nil && json.Unmarshal(raw, &tree) == nil && json.Unmarshal(patch, &change) == nil {
		return picked(tree, change)
	}
	return nil
}

// Index is the answer to /v1.
type Index struct {
	// Version is the version of the program.
	Version string `json:"version"`
	// Quotas are the names of the quotas that the caller may use. Default is the quota for
	// requests without a provider; empty if they must name one.
	Quotas  []string `json:"quotas"`
	Default string   `json:"default"`
	// Role is what the caller's key may do: viewer, operator or admin; empty for a key for
	// calls.
	Role string `json:"role"`
}

func (a *API) index(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := ask(r).err; err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(a.quotas(c)))
	if names == nil {
		names = []string{}
	}
	return a.send(w, Index{Version: a.o.Version, Quotas: names, Default: usual(names), Role: string(c.Role)})
}

var _ Quota = (*governor.Governor)(nil)
