// Package transport paces the requests of any http.Client. It follows Retry-After, retries
// within a budget and with full jitter, and fails at once while the circuit breaker is open.
// Everything else passes through unchanged, refusals of the provider included.
//
//	client, err := transport.Client(transport.Config{Name: "acme", Ceiling: 100 * time.Millisecond})
//
// From the caller inward, an attempt passes retry, circuit breaker, rate limiter, timeout and
// then the base transport. Each attempt of a retried request is paced and counted.
//
// If all attempts of a request were refused or failed, the caller gets the provider's last
// response. Without a response it gets an error: a *[Refusal] if nothing was sent, otherwise
// the error of the base transport.
//
// Do not use it below a client that retries by itself: the retries would multiply. A Transport
// is safe for concurrent use.
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

// Options configure a transport, except for its pacing. The zero value suits an API client.
type Options struct {
	// Base sends the attempts. Default http.DefaultTransport.
	Base http.RoundTripper
	// Timeout bounds one attempt, its body included. Default 0: only the request's context
	// bounds it.
	Timeout time.Duration
	// Backoff is the wait between attempts of one request, and how many there
	// may be. Default: 5 attempts, full jitter from 200 ms to 20 s.
	Backoff Backoff
	// Budget bounds the retries of all requests together. A retry takes its token when it
	// gets its permit. Default: 8 tokens at first, a fifth of a token for each success, at
	// most 100.
	Budget Budget
	// Retryable reports whether a request may be sent more than once. It is called after a
	// failed attempt. Default: [Idempotent].
	Retryable func(*http.Request) bool
	// Hold is how long a request that the provider refuses for rate or load is held and
	// sent again when the governor allows. It counts from the start of the request and
	// includes waits for permits. With Hold, Backoff and Budget are not used and other
	// failures are not retried. A refusal whose wait would not end in time is returned at
	// once. Default 0: requests are not held.
	Hold time.Duration
	// Outage bounds Hold while the provider answers that it is overloaded (503 or 529) and
	// names no wait, as it also does when it is down. It counts from the first such answer
	// of a request; one with a wait, or a refusal for rate, ends it. Default 0: no such bound.
	Outage time.Duration
	// Deadline is the instant after which no attempt starts. A wait that would pass it is
	// refused; an attempt under way is not cut. Default: no deadline.
	Deadline time.Time
	// Waiting, when it ends, ends every wait for a permit and before a retry. The request is
	// then refused as interrupted; an attempt under way is not cut. [WithWaiting] sets it
	// for one request. Default: only the request's context ends its waits.
	Waiting context.Context
	// Cost estimates how many units, such as tokens, a request takes under a limit that
	// counts them. It is called for each attempt and must not read the body. Default: 1.
	Cost func(*http.Request) float64
	// Pool names the pool of requests, such as a group of endpoints, with which a request
	// shares limits. A refusal in one pool does not slow the others, unless the whole
	// account turns out to be limited. Pool is called for each attempt and must not read
	// the body. Names should be few and hold no content. Default: "", one limit for all.
	Pool func(*http.Request) string
	// Profile describes the limits that the provider publishes. It supplies pools and costs
	// where Pool and Cost do not, the limits to start with, and the meaning of responses.
	// See [Profile]. Default: no profile.
	Profile Profile
	// Gate is called when an attempt has its permit, just before it is sent. An error stops
	// the request without sending. It must not block.
	Gate func() error
	// Whole is the maximum size of a response body in bytes, and makes the body part of the
	// attempt: it is read to its end before the attempt is settled, so that a body that
	// breaks off counts as a failure and is retried. A larger body is [ErrTooLarge].
	// Default 0: bodies are streamed, and the response header settles the attempt.
	Whole int64
	// Classify can overrule the class of a response; with ok false it does not. body is a
	// bounded prefix. It is called for statuses of 400 and above, and with Whole for every
	// status, since some providers refuse with a 200.
	Classify func(status int, header http.Header, body []byte) (c Class, ok bool)
	// Sending is called for each attempt just before it is sent, with Number, Wait and Held
	// set. It must not block.
	Sending func(Attempt)
	// GaveUp is called for each attempt that waited for its permit or its backoff but was
	// not sent, with Number, Wait and Held set. Wait is the wait for the permit. It must
	// not block.
	GaveUp func(Attempt)
	// Observe is called for each attempt after its end and before its permit is settled, so
	// the governor's events come later. It must not block or keep a reference to anything
	// in the attempt.
	Observe func(Attempt)
}

// Attempt describes one attempt for [Options.Observe]. It holds no header, body or address.
type Attempt struct {
	// Number is 1 for the first attempt of a request.
	Number int
	// Class is how it ended; Status is 0 when there was no response.
	Class  Class
	Status int
	// Wait is the time from asking for a permit to getting it, Latency the time from then
	// to the response header, or to the end of the body with [Options.Whole].
	Wait, Latency time.Duration
	// Held says what it waited for; zero if it did not wait.
	Held headway.Wait
	// RetryAfter is the wait that the provider asked for; 0 for none.
	RetryAfter time.Duration
}

// Transport is an http.RoundTripper paced by a governor. Make one with [New].
type Transport struct {
	governor *headway.Governor
	o        Options
	plain    bool // http URLs go by HTTP/1 only

	mu     sync.Mutex
	budget retry.Budget
	begun  map[string]bool // pools that were given the published limits
}

// Client returns an http.Client that is governed by c, with the default options.
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

// New returns a transport paced by a governor. Several transports may share a governor.
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
	if o.Hold < 0 || o.Outage < 0 {
		return nil, fmt.Errorf("transport: hold is %v and outage %v, must not be negative", o.Hold, o.Outage)
	}
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.Retryable == nil {
		o.Retryable = Idempotent
	}
	t := &Transport{governor: g, o: o, plain: isPlain(o.Base), budget: retry.NewBudget(o.Budget)}
	if err := t.begin(""); err != nil {
		return nil, err
	}
	return t, nil
}

// Governor returns the governor of the transport.
func (t *Transport) Governor() *Governor { return t.governor }

// RetriesLeft returns the number of retries left in the budget.
func (t *Transport) RetriesLeft() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.budget.Left()
}

// RoundTrip sends req when the governor permits it, and retries it where that is allowed.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	trace := traceOf(req.Context())
	if t.o.Hold > 0 {
		waiting, done := t.holding(req.Context())
		defer done()
		req = req.WithContext(WithWaiting(req.Context(), waiting))
	}
	var last answer
	var down outage
	for n := 1; ; n++ {
		next, err := t.within(&down, req, n)
		if errors.Is(err, errSooner) {
			t.giveBack(req, &last)
			return nil, err
		}
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
			_ = last.res.Body.Close() // it is not returned
		}
		last = next
		trace.attempted(&last.signal)
		if !t.worth(req, &last, n) {
			return last.res, last.err
		}
		if sooner := soonerOf(req.Context()); sooner != nil && last.class.Throttle() && sooner() && (t.o.Hold > 0 || t.takeRetry()) {
			t.giveBack(req, &last)
			return nil, errSooner
		}
		if t.o.Hold > 0 {
			down.refused(time.Now(), &last.signal, t.o.Outage)
			continue // the governor has recorded the refusal and sets the wait
		}
		if err := t.noRetry(req); err != nil { // do not wait for a retry that cannot be sent
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

// worth reports whether a request may be retried after the outcome of attempt n.
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

// answer is the outcome of one attempt that was sent.
type answer struct {
	res    *http.Response
	err    error
	class  reason.Class
	signal signal.Signal // of the response; zero without one
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
		ask.Priority = 1 // it is older than requests that were not refused yet
	}
	permit, err := t.acquire(ctx, req, ask)
	if errors.Is(err, errSooner) {
		return answer{}, err
	}
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
	// Count the attempt before settling, since the event of settling includes it.
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

// admitted takes the retry token of an attempt that has its permit, asks the gate, and makes
// the request to send. On an error no token is taken. An attempt that the breaker refused or
// that gave up waiting does not get here, so it costs no token.
func (t *Transport) admitted(req *http.Request, n int) (*http.Request, context.CancelFunc, error) {
	if n > 1 && t.o.Hold == 0 && !t.takeRetry() { // other waiting retries took the last token
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

// acquire waits for a permit, but not past the deadline.
func (t *Transport) acquire(ctx context.Context, req *http.Request, ask headway.Request) (headway.Permit, error) {
	if !t.o.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, t.o.Deadline)
		defer cancel()
	}
	waiting := t.waiting(req.Context())
	if waiting == nil {
		return t.permit(ctx, ask)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if until, ok := waiting.Deadline(); ok && t.o.Hold > 0 { // refuse at once a wait that would not end in time
		var done context.CancelFunc
		ctx, done = context.WithDeadline(ctx, until)
		defer done()
	}
	defer context.AfterFunc(waiting, cancel)()
	permit, err := t.permit(ctx, ask)
	if err != nil && waiting.Err() != nil && req.Context().Err() == nil {
		err = &reason.Refusal{Reason: reason.Interrupted}
	}
	return permit, err
}

// read returns the signal of a response and what the profile adds to it. For a failure it
// reads the beginning of the body and puts it back.
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
		corrected := s // s itself stays off the heap
		said.Pool, said.Cost, said.Account = t.o.Profile.Read(now, req, pool, res.StatusCode, res.Header, head, &corrected)
		s = corrected
	}
	if t.o.Classify != nil && (failed || t.o.Whole > 0) {
		if c, ok := t.o.Classify(res.StatusCode, res.Header, head[:min(len(head), signal.MaxBody)]); ok {
			s.Class = c
		}
	}
	return s, s.Exhausted, said
}

// noRetry returns the reason why no retry can be sent; nil if one can. The token is taken
// later, with the permit; see admitted. An open circuit comes before an empty budget, since it
// closes by itself.
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

// sleep waits the backoff before retry n. A cooldown passes at the same time: the two waits
// are not added.
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

// Aliases, so that a program needs only this package to govern a client.
type (
	// Config configures the governor of a connection. Zero fields take the defaults.
	Config = headway.Config
	// Governor holds the rate of one connection. [Client] makes one from a [Config];
	// make one with [NewGovernor] for several transports.
	Governor = headway.Governor
	// Refusal is the error for a request that was not sent. It has the reason, and when to
	// try again. Match it with errors.As as *Refusal.
	Refusal = reason.Refusal
	// Class is how an attempt ended, as in [Attempt].
	Class = reason.Class
	// Backoff is the wait between attempts of one request, as in [Options].
	Backoff = retry.Backoff
	// Budget bounds the retries of all requests together, as in [Options].
	Budget = retry.Limits
)

// NewGovernor returns the governor of one connection.
func NewGovernor(c Config) (*Governor, error) { return headway.New(c) }
