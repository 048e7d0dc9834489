package api

import (
	"net/http"

	"github.com/headway-go/headway/quota"
)

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
