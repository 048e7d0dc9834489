// Package llm puts any client of a language model under a quota: each call is approved
// before it is sent and settled with what it used.
//
// [Client] has one method, so that a call of any SDK can be wrapped ([Func]); [Governed]
// wraps a Client and is one itself. Two functions of the owner report what a call is
// expected to use and what it used: the package is independent of providers.
//
//   - A denied call never reaches the wrapped client. Its error is a
//     *reason.Refusal that wraps a *quota.Denial, and llm:backoff is recorded.
//   - A call that failed after it was sent counts as one call without tokens.
//   - A call that was never sent, because of [ErrNotSent] or a denial
//     by the wrapped client, is given back entirely.
//   - A panic of the wrapped client is settled like a failure and not recovered.
//
// It does not retry: if an SDK retries inside Complete, its calls are not approved, so
// turn its retries off. It does not stream: use a governor's Drain for that. Everything
// is safe for concurrent use if the client, the approver and the functions are.
//
// Stability: settling.
package llm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-go/headway/quota"
)

// Client makes one call of a model.
type Client[Req, Resp any] interface {
	Complete(ctx context.Context, req Req) (Resp, error)
}

// Func is an adapter that makes a function a Client.
type Func[Req, Resp any] func(ctx context.Context, req Req) (Resp, error)

// Complete calls the function.
func (f Func[Req, Resp]) Complete(ctx context.Context, req Req) (Resp, error) { return f(ctx, req) }

// ErrNotSent must be wrapped by a client's error if nothing was sent. The call is then
// given back as if it had never been approved.
var ErrNotSent = errors.New("llm: nothing was sent")

// Approver approves calls. A *governor.Governor is one that waits; [AtOnce] makes one
// that does not wait.
type Approver interface {
	// ApproveWait returns when the call may be made, or with an error that says why not.
	// For a denial the error is a *reason.Refusal that wraps a *quota.Denial, and the
	// decision is returned too.
	ApproveWait(ctx context.Context, r quota.Request) (quota.Decision, error)
	// RecordUsage settles a permit, Cancel gives it back.
	RecordUsage(id quota.Permit, actual quota.Usage) (first bool, err error)
	Cancel(id quota.Permit) (first bool, err error)
	// Backoff records that a client backs off instead of calling.
	Backoff(s quota.Scope, d quota.Decision)
}

// Config configures a [Governed]. All fields but OnFault are required.
type Config[Req, Resp any] struct {
	// Client is the wrapped client.
	Client Client[Req, Resp]
	// Approver is asked before each call.
	Approver Approver
	// Describe returns a request's model, expected usage, tenant and agent.
	Describe func(req Req) quota.Request
	// Usage returns what a call used, from its response. It is not called for failed
	// calls.
	Usage func(resp Resp) quota.Usage
	// OnFault, if set, is called for a call that could not be settled correctly: Usage
	// returned numbers out of bound (the estimate is charged then), or the permit had
	// expired. The result of the call is not affected.
	OnFault func(err error)
}

// Governed is a Client under a quota. Make one with [Govern].
type Governed[Req, Resp any] struct {
	config Config[Req, Resp]
}

// Govern puts a client under a quota. The error names the missing field.
func Govern[Req, Resp any](c Config[Req, Resp]) (*Governed[Req, Resp], error) {
	for _, f := range [...]struct {
		name    string
		missing bool
	}{
		{"Client", c.Client == nil}, {"Approver", c.Approver == nil}, {"Describe", c.Describe == nil}, {"Usage", c.Usage == nil},
	} {
		if f.missing {
			return nil, fmt.Errorf("llm: %s is nil: it is required", f.name)
		}
	}
	if c.OnFault == nil {
		c.OnFault = func(error) {}
	}
	return &Governed[Req, Resp]{c}, nil
}

// Complete gets the call approved, makes it and settles it. It returns the errors of the
// wrapped client and those of the approver: a *reason.Refusal that says when to come
// back, in which case nothing was sent.
func (g *Governed[Req, Resp]) Complete(ctx context.Context, req Req) (Resp, error) {
	var none Resp
	r := g.config.Describe(req)
	d, err := g.config.Approver.ApproveWait(ctx, r)
	if err == nil && !d.Approved {
		err = d.Refusal(time.Now())
	}
	if err != nil {
		if denied(err) {
			g.config.Approver.Backoff(quota.Scope{Tenant: r.Tenant, Agent: r.Agent, Model: r.Model}, d)
		}
		return none, err
	}
	if ctx.Err() != nil { // while it waited
		g.end(g.config.Approver.Cancel(d.Permit))
		return none, context.Cause(ctx)
	}
	return g.send(ctx, req, r, d.Permit)
}

// send makes an approved call and ends its permit, however the call ends.
func (g *Governed[Req, Resp]) send(ctx context.Context, req Req, r quota.Request, permit quota.Permit) (resp Resp, err error) {
	estimate := quota.Usage{Input: r.InputTokens, Cached: r.CachedTokens, Output: r.OutputTokens}
	var used quota.Usage // by a call that failed or panicked: no tokens
	defer func() {
		if errors.Is(err, ErrNotSent) || denied(err) {
			g.end(g.config.Approver.Cancel(permit))
			return
		}
		_, fault := g.config.Approver.RecordUsage(permit, used)
		g.end(false, fault)
		if _, nonsense := errors.AsType[*quota.FieldError](fault); nonsense {
			g.end(g.config.Approver.RecordUsage(permit, estimate))
		}
	}()
	resp, err = g.config.Client.Complete(ctx, req)
	if err == nil {
		used = estimate // should Usage panic
		used = g.config.Usage(resp)
	}
	return resp, err
}

// end reports a fault at the end of a permit.
func (g *Governed[Req, Resp]) end(_ bool, err error) {
	if err != nil {
		g.config.OnFault(err)
	}
}

// denied reports whether a quota refused the call, here or in the wrapped client.
func denied(err error) bool {
	_, ok := errors.AsType[*quota.Denial](err)
	return ok
}

// Asker is a governor that answers at once, such as a *governor.Governor.
type Asker interface {
	Approve(r quota.Request) (quota.Decision, error)
	RecordUsage(id quota.Permit, actual quota.Usage) (first bool, err error)
	Cancel(id quota.Permit) (first bool, err error)
	Backoff(s quota.Scope, d quota.Decision)
}

// AtOnce returns an Approver that refuses at once what cannot be approved at once.
func AtOnce(a Asker) Approver { return atOnce{a} }

type atOnce struct{ Asker }

func (a atOnce) ApproveWait(_ context.Context, r quota.Request) (quota.Decision, error) {
	return a.Approve(r)
}
