package egress

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// elsewhere is the API whose error form is used for calls without a provider.
var elsewhere = provider.Description{API: provider.HTTP}

// drainedFor is the Retry-After while draining, after which another proxy may be running.
const drainedFor = time.Second

// noRetry, as RetryIn of a refusal, says that a retry does not help.
const noRetry = -1

// refuse answers in the form of the provider's errors, unless the client has gone.
func (c *call) refuse(f provider.Refusal) {
	if c.log.Ending == Panicked {
		c.log.Ending = Refused
	}
	c.log.Status, c.log.Code, c.log.Reason = f.Status, f.Code, f.Reason
	code := f.Code
	if code == "" {
		code = f.Reason.String()
	}
	if f.Status == statusClientGone {
		c.log.Ending = ClientGone
		return
	}
	if c.up != nil && c.log.Ending == Refused {
		c.up.counters.refuse(code)
	}
	if c.log.Wait > 0 {
		c.w.Header().Set(headerWait, milliseconds(c.log.Wait))
	}
	if c.up == nil {
		elsewhere.Refuse(c.w, f)
		return
	}
	c.up.markFleet(c.w.Header())
	c.up.Description.Refuse(c.w, f)
}

func invalid(message string) *provider.Refusal {
	return &provider.Refusal{Status: http.StatusBadRequest, Reason: reason.ClientError, RetryIn: noRetry, Message: message}
}

func forbidden(message string) *provider.Refusal {
	return &provider.Refusal{Status: http.StatusForbidden, Reason: reason.Forbidden, RetryIn: noRetry, Message: message}
}

func oversized(limit int64) *provider.Refusal {
	return &provider.Refusal{
		Status: http.StatusRequestEntityTooLarge, Reason: reason.ClientError, RetryIn: noRetry,
		Message: fmt.Sprintf("The body is larger than %d bytes.", limit),
	}
}

// incomplete refuses a call whose body the client did not send completely.
func incomplete(status int) provider.Refusal {
	f := provider.Refusal{Status: status, Reason: reason.Timeout, RetryIn: noRetry, Message: "The body did not come whole in time."}
	if status == http.StatusBadRequest {
		f.Reason, f.Message = reason.ClientError, "The body is malformed, or broke off."
	}
	return f
}

func unconfigured() *provider.Refusal {
	return &provider.Refusal{
		Status: http.StatusNotFound, Code: string(quota.CodeModelNotConfigured), Reason: reason.ClientError, RetryIn: noRetry,
		Message: "The model is not configured here.",
	}
}

func drained() provider.Refusal {
	return provider.Refusal{
		Status: http.StatusServiceUnavailable, Reason: reason.Closed, RetryIn: drainedFor, Retry: true,
		Message: "The proxy is shutting down.",
	}
}

// budget converts a quota's refusal to an HTTP answer.
func budget(d *quota.Denial) provider.Refusal {
	f := provider.Refusal{
		Status: http.StatusTooManyRequests, Code: string(d.Code), Reason: reason.Pacing, RetryIn: d.RetryIn, Retry: true,
	}
	if d.RetryIn == quota.Never {
		f.RetryIn, f.Retry = noRetry, false
	}
	switch d.Code {
	case quota.CodeHardLimit:
		f.Reason, f.Retry = reason.QuotaExhausted, false
		f.Message = "The budget of the day is used up for " + d.Scope.String() + ", or too little of it is left for this call."
	case quota.CodeSoftLimit:
		f.Message = "The window of tokens is full for " + d.Scope.String() + "."
	case quota.CodeModelNotConfigured:
		return *unconfigured()
	case quota.CodeInvalidConfig, quota.CodeApprovalConflict:
		f.Status, f.Reason, f.RetryIn, f.Retry = http.StatusBadRequest, reason.ClientError, noRetry, false
		f.Message = "The call is out of the bounds of what a quota can count."
	case quota.CodeThrottled, quota.CodeGlobalLimit:
		f.Message = "No room in time within the limits for " + d.Scope.String() + "."
	}
	return f
}

// milliseconds converts a duration to milliseconds, rounded up.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// backer is a quota that counts agents that back off, also after refusals that were not its
// own.
type backer interface {
	Backoff(s quota.Scope, d quota.Decision)
	HoldBack(r quota.Request, wait time.Duration)
}

// refusedScale is the minimum factor for agents whose calls are refused for lack of capacity.
const refusedScale = 2

// pressed sets the header fields that say by how much a refused agent should slow down, like
// advise for other calls, and lets the quota count the refusal.
func (a *attempt) pressed(f *provider.Refusal) {
	c, h := a.call, a.call.w.Header()
	if f.Status != http.StatusTooManyRequests {
		return
	}
	d := quota.Decision{Reason: quota.Throttled, Code: quota.Code(f.Code), RetryIn: f.RetryIn}
	pressure, factor := "throttle", float64(refusedScale)
	switch {
	case f.Reason == reason.QuotaExhausted:
		d.Reason, pressure = quota.HardLimit, "exhausted"
	case d.Code == quota.CodeSoftLimit:
		d.Reason, pressure = quota.SoftLimit, "soft"
	}
	if f.RetryIn < 0 {
		d.RetryIn = quota.Never
	}
	if a.heldBack {
		c.pace(f.RetryIn)
	}
	if c.asked.Metered && c.up.Approver != nil {
		if b, ok := c.up.Approver.(backer); ok {
			if a.heldBack {
				b.HoldBack(a.request, f.RetryIn)
			}
			b.Backoff(quota.Scope{Tenant: a.request.Tenant, Agent: a.request.Agent, Model: a.request.Model}, d)
		}
		if factor = c.up.Approver.Factor(a.request); pressure != "soft" && c.scales() {
			factor = max(factor, refusedScale) // even if no budget is in that state
		}
	}
	scale(h, factor)
	h.Set(headerPressure, pressure)
}

// scales reports whether the quota stretches the interval of agents.
func (c *call) scales() bool {
	q, ok := c.up.Approver.(configured)
	return !ok || !q.Config().AdaptiveScalingOff
}

// limits adds the RateLimit fields of the budgets that refused. A refusal does not say which
// budget of a scope it was, so all of that kind report 0 remaining, as the next call would
// find.
func (c *call) limits(d *quota.Denial) {
	q, ok := c.up.Approver.(configured)
	if !ok {
		return
	}
	config := q.Config()
	var policy, left strings.Builder
	why, of := d.Reason, scoped(&config, d.Scope)
	if d.Held && of.MaxDailyTokens > 0 {
		why, of = quota.HardLimit, quota.Limits{MaxDailyTokens: of.MaxDailyTokens} // for the moment
	}
	for _, p := range policies(of, why) {
		if policy.Len() > 0 {
			policy.WriteString(", ")
			left.WriteString(", ")
		}
		fmt.Fprintf(&policy, "%q;q=%d;w=%d", p.name, p.quota, p.seconds)
		if p.unit != "" {
			fmt.Fprintf(&policy, ";qu=%q", p.unit)
		}
		fmt.Fprintf(&left, "%q;r=0", p.name)
		if d.RetryIn != quota.Never {
			fmt.Fprintf(&left, ";t=%d", int64((d.RetryIn+time.Second-1)/time.Second))
		}
	}
	if policy.Len() > 0 {
		c.w.Header().Set("Ratelimit-Policy", policy.String())
		c.w.Header().Set("Ratelimit", left.String())
	}
}

// pace adds the RateLimit fields of the pacing: its current rate per minute, if known.
func (c *call) pace(retryIn time.Duration) {
	h := c.w.Header()
	h.Set("Ratelimit", fmt.Sprintf(`"pace";r=0;t=%d`, (retryIn+time.Second-1)/time.Second))
	if interval := c.up.interval(c.pool); interval > 0 {
		window := max(time.Minute, interval)
		h.Set("Ratelimit-Policy", fmt.Sprintf(`"pace";q=%d;w=%d`, window/interval, (window+time.Second-1)/time.Second))
	}
}

// policy is one budget in terms of the RateLimit fields.
type policy struct {
	name           string
	quota, seconds int64
	unit           string
}

// policies returns the budgets that refuse for a given reason.
func policies(l quota.Limits, why quota.Reason) (all []policy) {
	add := func(p policy) {
		if p.quota > 0 && p.seconds > 0 {
			all = append(all, p)
		}
	}
	const minute, day = 60, 86_400
	switch why {
	case quota.Throttled:
		add(policy{"calls", l.CallsPerMinute, minute, ""})
		add(policy{"tokens", l.TokensPerMinute, minute, "tokens"})
		add(policy{"input-tokens", l.InputTokensPerMinute, minute, "tokens"})
		add(policy{"output-tokens", l.OutputTokensPerMinute, minute, "tokens"})
	case quota.SoftLimit:
		add(policy{"soft-tokens", l.SoftTokenBudget, (l.SoftTokenWindowMS + 999) / 1000, "tokens"})
	case quota.HardLimit:
		add(policy{"daily-calls", l.MaxDailyCalls, day, ""})
		add(policy{"daily-tokens", l.MaxDailyTokens, day, "tokens"})
	}
	return all
}

// scoped returns the limits of a scope.
func scoped(c *quota.Config, s quota.Scope) quota.Limits {
	if s.Tenant == "" {
		if s.Model == "" {
			return c.Global
		}
		return c.Models[s.Model].Limits
	}
	tenant, ok := c.Tenants[s.Tenant]
	if !ok {
		tenant = c.TenantDefault
	}
	limits, models := tenant.Limits, tenant.Models
	if s.Agent != "" {
		agent, ok := tenant.Agents[s.Agent]
		if !ok {
			agent = tenant.AgentDefault
		}
		limits, models = agent.Limits, agent.Models
	}
	if s.Model != "" {
		return models[s.Model]
	}
	return limits
}
