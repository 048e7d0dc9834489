// Package transport governs any http.Client: it paces every attempt, honours
// Retry-After once, retries what is worth it within a budget and with full
// jitter, and fails at once while the circuit is open. Everything else passes
// through unchanged, refusals of the provider included.
//
//	client, err := transport.Client(transport.Config{Name: "acme", Ceiling: 100 * time.Millisecond})
//
// From the caller inward an attempt passes: retry, circuit breaker, rate
// limiter, timeout, and then the base transport. Each attempt of a retried
// request is paced and counted by itself.
//
// A request whose attempts were refused or failed gives the provider's last
// response, if there was one; otherwise an error: a *[Refusal] when
// nothing was sent, the base transport's when nothing came back.
//
// Do not put it below a client that retries by itself with its own waits: the
// two would multiply. A Transport is safe for concurrent use.
//
// Stability: stable.
package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/internal/wire"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
	"github.com/headway-go/headway/signal"
)

// Options are the choices beside the pacing. The zero value is good for an API
// client.
type Options struct {
	// Base sends the attempts. Default http.DefaultTransport.
	Base http.RoundTripper
	// Timeout bounds one attempt, its body included. Default 0: none beside the
	// request's context.
	Timeout time.Duration
	// Backoff is the wait between attempts of one request, and how many there
	// may be. Default: 5 attempts, full jitter from 200 ms to 20 s.
	Backoff Backoff
	// Budget bounds the retries of all requests together. A retry is paid for when
	// it has its permit. Default: 8 at first, a fifth more for each success, at
	// most 100.
	Budget Budget
	// Retryable says whether a request may be sent more than once. It is asked when an
	// attempt has failed. Default: [Idempotent].
	Retryable func(*http.Request) bool
	// Hold is how long a request that the provider refuses, for rate or for load, is held
	// and sent again whenever the governor allows, from its beginning on, waits for permits
	// included. Backoff and Budget do not count then, and what failed otherwise is not sent
	// again. A refusal whose wait would not end in time is returned at once. Default 0:
	// nothing is held.
	Hold time.Duration
	// Deadline is the instant after which no attempt is begun: waits that would
	// pass it are refused, an attempt under way is never cut. Default: none.
	Deadline time.Time
	// Waiting ends every wait when it ends: for a permit, and before a retry. Such
	// a request is refused as interrupted; an attempt under way is not cut.
	// [WithWaiting] sets it for one request. Default: waits end with the request's
	// context.
	Waiting context.Context
	// Cost is how many units, such as tokens, a request is thought to take of a
	// limit that counts them. It is asked for each attempt and must not read the
	// body. Default: 1.
	Cost func(*http.Request) float64
	// Pool names what a request shares limits with, such as a group of endpoints: what
	// is refused in one pool slows no other, unless it is shown that the whole account is
	// limited. It is asked for each attempt and must not read the body. Names should be
	// few, and hold no content. Default: "", one limit for all.
	Pool func(*http.Request) string
	// Profile is what the provider publishes of its limits: it gives attempts their pools
	// and costs where Pool and Cost do not, says what responses mean, and limits to begin
	// with. See [Profile]. Default: none.
	Profile Profile
	// Gate is asked when an attempt has its permit and nothing but sending is
	// left to do; an error stops the request with nothing sent. It must not block.
	Gate func() error
	// Whole makes a response's body part of its attempt: it is read to its end,
	// at most this many bytes, before the attempt is settled, so that a body
	// that breaks off is a failure like any other, and retried. A longer body is
	// [ErrTooLarge]. Default 0: bodies are streamed, and the attempt is settled
	// when its header is there.
	Whole int64
	// Classify may overrule what a response stands for; ok false leaves it.
	// Body is a bounded prefix. It is called for statuses of 400 and more, and
	// under Whole for every status: some providers refuse with a 200.
	Classify func(status int, header http.Header, body []byte) (c Class, ok bool)
	// Sending is called for each attempt when nothing but sending is left to do: its
	// Number, Wait and Held are set. It must not block.
	Sending func(Attempt)
	// GaveUp is called for each attempt that does not go out, having waited for its
	// permit or for the backoff before it: its Number, Wait and Held are set; Wait
	// is that for the permit. It must not block.
	GaveUp func(Attempt)
	// Observe is called for each attempt, after it ended and before its permit is
	// settled, so that the events of the governor come after it. It must not block,
	// nor keep a reference to anything in the attempt.
	Observe func(Attempt)
}

// Attempt is one outbound request as [Options.Observe] sees it. It holds no
// header, body or address.
type Attempt struct {
	// Number is 1 for the first attempt of a request.
	Number int
	// Class is how it ended; Status is 0 when there was no response.
	Class  Class
	Status int
	// Wait is the time from asking for a permit to having it, Latency from then
	// to the response's header, or to its end under [Options.Whole].
	Wait, Latency time.Duration
	// Held is what it waited for; the zero value is for nothing.
	Held headway.Wait
	// RetryAfter is what the provider asked for; 0 when it did not say.
	RetryAfter time.Duration
}

// Transport is an http.RoundTripper under a governor.
type Transport struct {
	governor *headway.Governor
	o        Options

	mu     sync.Mutex
	budget retry.Budget
	begun  map[string]bool // the pools that began with what is published
}

// Client gives an http.Client that is governed by c, with the default options.
func Client(c Config) (*http.Client, error) {
	g, err := headway.New(c)
	if err != nil {
		return nil, err
	}
	t, err := New(g, Options{})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t}, nil
}

// New puts a transport under a governor. Several transports may share one.
func New(g *Governor, o Options) (*Transport, error) {
	var err error
	if o.Backoff, err = o.Backoff.Resolve(); err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	if o.Budget, err = o.Budget.Resolve(); err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("transport: timeout is %v, must not be negative", o.Timeout)
	}
	if o.Hold < 0 {
		return nil, fmt.Errorf("transport: hold is %v, must not be negative", o.Hold)
	}
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.Retryable == nil {
		o.Retryable = Idempotent
	}
	t := &Transport{governor: g, o: o, budget: retry.NewBudget(o.Budget)}
	if err := t.begin(""); err != nil {
		return nil, err
	}
	return t, nil
}

// Governor is the rate authority, for its snapshot.
func (t *Transport) Governor() *Governor { return t.governor }

// RetriesLeft is how many retries the budget still holds.
func (t *Transport) RetriesLeft() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.budget.Left()
}

// RoundTrip sends req, paced, and again where that is allowed.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	trace := traceOf(req.Context())
	if t.o.Hold > 0 {
		waiting, done := t.holding(req.Context())
		defer done()
		req = req.WithContext(WithWaiting(req.Context(), waiting))
	}
	var last answer
	for n := 1; ; n++ {
		next, err := t.attempt(req, n)
		if err != nil { // nothing was sent
			if n == 1 {
				closeBody(req)
				trace.stop(err)
				return nil, err
			}
			trace.stop(err)
			return last.res, last.err
		}
		if last.res != nil {
			_ = last.res.Body.Close() // nobody will see it
		}
		last = next
		trace.attempted(&last.signal)
		if !t.worth(req, &last, n) {
			return last.res, last.err
		}
		if t.o.Hold > 0 {
			continue // the governor knows of the refusal, and says when
		}
		if err := t.noRetry(req); err != nil { // there is no point in waiting for it
			trace.stop(err)
			return last.res, last.err
		}
		if why := t.sleep(req.Context(), n-1); why != reason.None {
			t.gaveUp(Attempt{Number: n + 1})
			trace.stop(&reason.Refusal{Reason: why, Err: req.Context().Err()})
			return last.res, last.err
		}
	}
}

// worth reports whether a request may be sent again after what came of attempt n.
func (t *Transport) worth(req *http.Request, last *answer, n int) bool {
	switch {
	case last.final || !last.class.Retryable():
		return false
	case t.o.Hold > 0 && !last.class.Throttle():
		return false
	case t.o.Hold == 0 && n >= t.o.Backoff.Attempts:
		return false
	}
	return t.o.Retryable(req) && (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil)
}

// answer is what came of one attempt that was sent.
type answer struct {
	res    *http.Response
	err    error
	class  reason.Class
	signal signal.Signal // what the response said; zero without one
	final  bool          // no retry can help
}

// attempt sends one attempt. The error is a refusal: nothing was sent.
func (t *Transport) attempt(req *http.Request, n int) (answer, error) {
	ctx := req.Context()
	asked := time.Now()
	ask, err := t.ask(req)
	if err != nil {
		return answer{}, err
	}
	if t.o.Hold > 0 && n > 1 {
		ask.Priority = 1 // it came before those that were not refused yet
	}
	permit, err := t.acquire(ctx, req, ask)
	if err != nil {
		t.gaveUp(Attempt{Number: n, Wait: time.Since(asked), Held: permit.Wait()})
		return answer{}, err
	}
	out, cancel, err := t.admitted(req, n)
	if err != nil {
		t.gaveUp(Attempt{Number: n, Wait: time.Since(asked), Held: permit.Wait()})
		permit.Cancel()
		return answer{}, err
	}
	sent := time.Now()
	a := Attempt{Number: n, Wait: sent.Sub(asked), Held: permit.Wait()}
	if t.o.Sending != nil {
		t.o.Sending(a)
	}
	res, err := t.o.Base.RoundTrip(out)
	if err == nil && t.o.Whole > 0 {
		err = swallow(res, t.o.Whole)
	}
	got := time.Now()

	a.Latency = got.Sub(sent)
	ans := answer{res: res, err: err}
	var said headway.Outcome
	if err != nil {
		if errors.Is(context.Cause(out.Context()), ErrResent) {
			err = ErrResent
			ans.err = err
		}
		cancel()
		ans.res = nil
		ans.class, ans.final = lost(ctx, err)
	} else {
		bound(res, cancel)
		ans.signal, ans.final, said = t.read(got, req, ask.Pool, res)
		ans.class = ans.signal.Class
		a.Status, a.RetryAfter = res.StatusCode, ans.signal.RetryAfter
	}
	a.Class = ans.class
	// Before the permit is settled: what that publishes counts this attempt.
	if t.o.Observe != nil {
		t.o.Observe(a)
	}
	o := headway.OutcomeOf(&ans.signal)
	o.Class, o.Steady = a.Class, isSteady(ctx)
	o.Cost, o.Pool, o.Account = said.Cost, said.Pool, said.Account
	permit.Settle(o)
	if a.Class.Success() {
		t.mu.Lock()
		t.budget.Success()
		t.mu.Unlock()
	}
	return ans, nil
}

func (t *Transport) gaveUp(a Attempt) {
	if t.o.GaveUp != nil {
		t.o.GaveUp(a)
	}
}

// admitted takes what an attempt that has its permit costs beside it, and makes
// the request that is sent. On an error nothing was taken: not by an attempt that
// the circuit refused or that waited in vain, which has no permit, nor by one
// that the gate refuses.
func (t *Transport) admitted(req *http.Request, n int) (*http.Request, context.CancelFunc, error) {
	if n > 1 && t.o.Hold == 0 && !t.takeRetry() { // others who waited as well were admitted first
		return nil, nil, &reason.Refusal{Reason: reason.RetryBudget.Reason()}
	}
	out, cancel, err := t.outbound(req, n)
	if err == nil && t.o.Gate != nil {
		if err = t.o.Gate(); err != nil {
			cancel()
		}
	}
	if err != nil && n > 1 && t.o.Hold == 0 {
		t.returnRetry()
	}
	return out, cancel, err
}

// acquire waits for the permit, but not past the deadline.
func (t *Transport) acquire(ctx context.Context, req *http.Request, ask headway.Request) (headway.Permit, error) {
	if !t.o.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, t.o.Deadline)
		defer cancel()
	}
	waiting := t.waiting(req.Context())
	if waiting == nil {
		return t.governor.AcquireFor(ctx, ask)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if until, ok := waiting.Deadline(); ok && t.o.Hold > 0 { // a wait that would not end in time is refused at once
		var done context.CancelFunc
		ctx, done = context.WithDeadline(ctx, until)
		defer done()
	}
	defer context.AfterFunc(waiting, cancel)()
	permit, err := t.governor.AcquireFor(ctx, ask)
	if err != nil && waiting.Err() != nil && req.Context().Err() == nil {
		err = &reason.Refusal{Reason: reason.Interrupted}
	}
	return permit, err
}

// outbound is the request as it is sent: a copy with a body of its own and the
// attempt's timeout.
func (t *Transport) outbound(req *http.Request, n int) (*http.Request, context.CancelFunc, error) {
	ctx, cancel := onFewConnections(req.Context())
	if t.o.Timeout > 0 {
		bounded, end := context.WithTimeout(ctx, t.o.Timeout)
		within := cancel
		ctx, cancel = bounded, func() {
			end()
			within()
		}
	}
	out := req.Clone(ctx)
	out.Trailer = req.Trailer // which the body's reader fills
	if n > 1 && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			cancel()
			return nil, nil, fmt.Errorf("transport: rewinding the body for attempt %d: %w", n, err)
		}
		out.Body = body
	}
	return out, cancel, nil
}

// read is the signal of a response, and what the profile knows beside it. Of a failure it
// takes the beginning of the body and puts it back.
func (t *Transport) read(now time.Time, req *http.Request, pool string, res *http.Response) (s signal.Signal, final bool, said headway.Outcome) {
	failed := res.StatusCode >= http.StatusBadRequest
	var head []byte
	switch {
	case !failed && t.o.Profile != nil && t.o.Profile.Reads(req, pool, res.StatusCode, res.Header):
		head, _ = wire.Peek(res, maxReport)
	case failed || t.o.Whole > 0 && t.o.Classify != nil:
		head, _ = wire.Peek(res, signal.MaxBody)
	}
	s = signal.Read(now, res.StatusCode, res.Header, head)
	if t.o.Profile != nil {
		said.Pool, said.Cost, said.Account = t.o.Profile.Read(now, req, pool, res.StatusCode, res.Header, head, &s)
	}
	if t.o.Classify != nil && (failed || t.o.Whole > 0) {
		if c, ok := t.o.Classify(res.StatusCode, res.Header, head[:min(len(head), signal.MaxBody)]); ok {
			s.Class = c
		}
	}
	return s, s.Exhausted, said
}

// noRetry says why no retry can be sent; nil when one may be. The token is taken
// later, with the permit: see admitted. An open circuit is the reason before an
// empty budget, since it ends by itself.
func (t *Transport) noRetry(req *http.Request) error {
	if t.RetriesLeft() > 0 {
		return nil
	}
	s := t.governor.Snapshot()
	circuit, retryAt := s.Circuit, s.RetryAt
	if t.o.Pool != nil {
		pool := t.o.Pool(req)
		for _, p := range s.Pools {
			if p.Name == pool {
				circuit, retryAt = p.Circuit, p.RetryAt
			}
		}
	}
	if circuit == breaker.Open.String() {
		return &reason.Refusal{Reason: reason.CircuitOpen.Reason(), Scope: s.Connection, RetryAt: retryAt}
	}
	return &reason.Refusal{Reason: reason.RetryBudget.Reason()}
}

func (t *Transport) takeRetry() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.budget.Take()
}

func (t *Transport) returnRetry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.budget.Return()
}

// sleep waits the backoff of retry n out. A cooldown runs meanwhile: the two
// waits are not added.
func (t *Transport) sleep(ctx context.Context, n int) (ended reason.Reason) {
	timer := time.NewTimer(t.o.Backoff.Wait(n, rand.Uint64()))
	defer timer.Stop()
	var interrupted <-chan struct{}
	if waiting := t.waiting(ctx); waiting != nil {
		interrupted = waiting.Done()
	}
	select {
	case <-timer.C:
		return reason.None
	case <-interrupted:
		return reason.Interrupted
	case <-ctx.Done():
		return reason.Canceled
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// Names for what a program hands in and gets back, so that it needs only this
// package to govern a client.
type (
	// Config is what a connection is governed by. Zero fields take the defaults.
	Config = headway.Config
	// Governor holds the rate of one connection. [Client] makes one from a [Config];
	// make one with [NewGovernor] for several transports.
	Governor = headway.Governor
	// Refusal is the error of a request that was not sent: why, and when to come back.
	// Match it with errors.As as *Refusal.
	Refusal = reason.Refusal
	// Class is how an attempt ended, as in [Attempt].
	Class = reason.Class
	// Backoff is the wait between attempts of one request, as in [Options].
	Backoff = retry.Backoff
	// Budget bounds the retries of all requests together, as in [Options].
	Budget = retry.Limits
)

// NewGovernor makes the governor of one connection.
func NewGovernor(c Config) (*Governor, error) { return headway.New(c) }
