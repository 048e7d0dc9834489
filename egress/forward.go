package egress

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
	"github.com/headway-go/headway/signal"
)

// forward sends the call, and again where that is asked for and allowed.
func (x *exchange) forward() {
	request := x.estimate()
	x.inject()
	// Here the waiting begins, not while the body came.
	if until := time.Now().Add(x.up.MaxWait); until.Before(x.until) {
		x.until = until
	}
	var last *held
	for n := 0; ; n++ {
		last = x.try(request, n < x.up.Retries && x.whole, last)
		if last == nil {
			return
		}
		if last.disputed {
			x.restore()
			n--
			continue
		}
		if !x.sleep(n, last.wait) {
			x.give(last)
			return
		}
	}
}

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

// held is how an attempt ended that may be made again: an answer that was not
// passed on yet, or a refusal for none.
type held struct {
	wait time.Duration // before the next
	// disputed: it may be refused only because usage was asked for.
	disputed bool
	// An answer.
	res  *http.Response
	body []byte
	// None.
	ending  Ending
	refusal provider.Refusal
}

// give passes on what was held.
func (x *exchange) give(h *held) {
	if h.res == nil {
		x.told.Ending = h.ending
		x.refuse(h.refusal)
		return
	}
	h.res.ContentLength = int64(len(h.body))
	x.begun(h.res, nil, false)
	_, err := x.w.Write(h.body)
	x.told.Received += int64(len(h.body))
	if x.told.Ending = Complete; err != nil {
		x.told.Ending = ClientGone
	}
}

// try makes one attempt and passes its answer on. What it returns instead is to
// be tried again. Before is what was held of the attempt before: the client gets
// it when this one cannot be made.
func (x *exchange) try(request quota.Request, again bool, before *held) *held {
	a := x.begin(request)
	defer a.settle()
	if fault := a.acquire(); fault != nil {
		a.pressed(fault)
		if before != nil && fault.Status != statusClientGone {
			x.give(before)
		} else {
			x.refuse(*fault)
		}
		return nil
	}
	res, err := a.send()
	if err == nil && (res.StatusCode < http.StatusOK || res.StatusCode > 599) {
		_ = res.Body.Close()
		err = errNoAnswer
	}
	if err != nil {
		a.status = 0
		ending, fault := a.fail(err)
		if again && a.class == reason.Lost && fault.Retry {
			return &held{ending: ending, refusal: fault}
		}
		x.told.Ending = ending
		x.refuse(fault)
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	if again && signal.Classify(res.StatusCode).Throttle() || x.disputed(res.StatusCode) {
		if h := a.hold(res); h != nil {
			return h
		}
	}
	x.judge(res.StatusCode)
	a.pass(res, x.injected())
	return nil
}

// hold reads an answer that may be followed by another attempt. It is nil when
// it is not, and then the answer can still be passed on.
func (a *attempt) hold(res *http.Response) *held {
	body, err := io.ReadAll(io.LimitReader(res.Body, signal.MaxBody))
	rest := io.Reader(res.Body)
	if err != nil {
		rest = broken{err}
	}
	res.Body = joined{io.MultiReader(bytes.NewReader(body), rest), res.Body}
	if err == nil && len(body) < signal.MaxBody && a.x.disputed(res.StatusCode) {
		a.head = body
		return &held{res: res, body: body, disputed: true}
	}
	told := a.x.up.Description.Classify(a.answerAt, res.StatusCode, res.Header, body)
	if err != nil || len(body) == signal.MaxBody || told.Exhausted || !told.Class.Throttle() ||
		time.Now().Add(told.RetryAfter).After(a.x.until) {
		return nil
	}
	a.head = body
	return &held{res: res, body: body, wait: told.RetryAfter}
}

// broken gives an error that was met once more.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// joined reads from one and closes the other.
type joined struct {
	io.Reader
	io.Closer
}

// sleep waits before retry n: what the provider asked for, or the backoff, the
// longer of the two. False when there is no time for it.
func (x *exchange) sleep(n int, wait time.Duration) bool {
	asked := wait
	backoff, err := retry.Backoff{}.Resolve()
	if err == nil {
		wait = max(wait, backoff.Wait(n+1, rand.Uint64()))
	}
	if time.Now().Add(wait).After(x.until) {
		return false
	}
	by := reason.BoundBackoff
	if asked > 0 && wait == asked {
		by = reason.BoundCooldown
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	began := time.Now()
	defer func() {
		x.told.Wait += time.Since(began)
		x.waited(by, time.Since(began))
	}()
	select {
	case <-timer.C:
		return true
	case <-x.ctx.Done():
	case <-x.proxy.draining.Done():
	}
	return false
}

// outbound is the request as it goes upstream, with the attempt's span as parent
// if it has one.
func (x *exchange) outbound(ctx context.Context, span string) (*http.Request, error) {
	u, in := x.up, x.r
	to, err := target(u.Description.Upstream, x.rest, in.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	out := in.WithContext(ctx)
	out.URL, out.Host, out.RequestURI = to, to.Host, ""
	out.Header = make(http.Header, len(in.Header)+2)
	out.TransferEncoding, out.Trailer, out.Close = nil, nil, false
	out.Form, out.PostForm, out.MultipartForm = nil, nil, nil
	u.Description.Forward(out.Header, in.Header)
	if u.Key == "" {
		u.Description.PassKey(out.Header, in.Header)
	}
	x.withhold(out)
	if x.injected() {
		delete(out.Header, "Content-Encoding") // it was made of what the body holds
	}
	if span != "" {
		out.Header["Traceparent"] = []string{span}
	}
	if u.Key != "" {
		u.Description.SetKey(out, u.Key)
	}
	if _, ok := in.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // else net/http says its own
	}
	if x.asked.Metered && x.asked.Shape != usage.None || len(u.Description.Addresses) > 0 {
		out.Header["Accept-Encoding"] = identity
	} else if v, ok := in.Header["Accept-Encoding"]; ok {
		out.Header["Accept-Encoding"] = v
	}
	switch {
	case !x.whole:
		out.Body = uploaded{http.MaxBytesReader(nil, in.Body, u.MaxUpload), ctx, &x.upload}
		out.GetBody = nil
	case len(x.body) == 0:
		out.Body, out.ContentLength, out.GetBody = http.NoBody, 0, nil
	default:
		// With GetBody net/http may send it again by itself over a new connection,
		// when the old one ended before anything of it was looked at.
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(x.body)), int64(len(x.body))
		x.told.Sent += int64(len(x.body))
	}
	return out, nil
}

var identity = []string{"identity"}

// begun passes the header of an answer on.
func (x *exchange) begun(res *http.Response, a *attempt, changed bool) {
	u, h := x.up, x.w.Header()
	u.Description.Return(h, res.Header)
	x.readdress(h, res.Request.URL)
	if res.ContentLength >= 0 && !changed && res.StatusCode != http.StatusNoContent {
		h.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	if a != nil && a.approved || u.Pacing != nil {
		h.Set(headerWait, milliseconds(x.told.Wait))
	}
	if a != nil && a.approved {
		x.advise(h, a)
	}
	x.told.Status = res.StatusCode
	x.answered = true
	x.w.WriteHeader(res.StatusCode)
}

// advise tells an agent how it should go on.
func (x *exchange) advise(h http.Header, a *attempt) {
	scale(h, a.x.up.Approver.Factor(a.request))
	switch advice := a.decision.Advisory; {
	case advice&quota.AdviseThrottled != 0:
		h.Set(headerPressure, "throttle")
	case advice&(quota.AdviseSoft|quota.AdviseOverSoft) != 0:
		h.Set(headerPressure, "soft")
	}
}

// scale says by how much an agent should stretch its rhythm.
func scale(h http.Header, factor float64) {
	if factor != 1 {
		h.Set(headerScale, strconv.FormatFloat(factor, 'f', -1, 64))
	}
}

// backer is a quota that hears of clients that back off, and of refusals that are
// not its own.
type backer interface {
	Backoff(s quota.Scope, d quota.Decision)
	HoldBack(r quota.Request, wait time.Duration)
}

// unbudgeted is the factor for agents that are refused where no budget knows one.
const unbudgeted = 2

// pressed tells an agent that is refused how it should go on, as advise does for
// one that is not, and the quota that it backs off.
func (a *attempt) pressed(f *provider.Refusal) {
	x, h := a.x, a.x.w.Header()
	if f.Status != http.StatusTooManyRequests {
		return
	}
	d := quota.Decision{Reason: quota.Throttled, Code: quota.Code(f.Code), RetryIn: f.RetryIn}
	pressure, factor := "throttle", float64(unbudgeted)
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
		x.pace(f.RetryIn)
	}
	if x.asked.Metered && x.up.Approver != nil {
		if b, ok := x.up.Approver.(backer); ok {
			if a.heldBack {
				b.HoldBack(a.request, f.RetryIn)
			}
			b.Backoff(quota.Scope{Tenant: a.request.Tenant, Agent: a.request.Agent, Model: a.request.Model}, d)
		}
		factor = x.up.Approver.Factor(a.request)
	}
	scale(h, factor)
	h.Set(headerPressure, pressure)
}
