package egress

import (
	"context"
	"errors"
	"net/http"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// settle settles both permits with the outcome of the attempt. Only the first call has an
// effect, so it can be deferred.
func (a *attempt) settle() {
	if a.settled {
		return
	}
	a.settled = true
	a.unpick()
	if a.tried {
		a.call.waited(reason.BoundLatency, time.Since(a.sentAt))
	}
	if a.watch != nil {
		a.watch.stop()
	}
	if a.unwatch != nil {
		a.unwatch()
	}
	a.cancel(nil)
	defer a.letGo()
	var report usage.Report
	if a.scanner != nil {
		report = a.scanner.Report()
	}
	a.conclude(&report)
	a.traced()
	a.leaveCircuit()
	if o, ok := a.call.up.Approver.(overrunner); ok && a.approved && a.class == reason.Throttled && !a.signal.Exhausted {
		o.Overrun(a.decision.Permit)
	}
	if c := a.call; a.class.Throttle() && !c.expectation {
		c.expectLate() // the control law needs the cost of what was refused
		a.late = c.rated()
	}
	a.used = a.use(&report)
	a.pay(a.used, report.Reported)
	if a.paced {
		a.permit.Settle(a.outcome())
	}
}

// letGo closes the request body. Closing waits for a read under way, so a deadline keeps a
// slow client from blocking it.
func (a *attempt) letGo() {
	if a.body == nil {
		return
	}
	if c := a.call; !c.whole && !c.upload.ended.Load() && !errors.Is(context.Cause(a.ctx), errStalled) {
		_ = c.rc.SetReadDeadline(time.Now().Add(bodyGrace))
	}
	_ = a.body.Close()
}

// overrunner is a quota that counts calls that the provider refused for their rate.
type overrunner interface{ Overrun(id quota.Permit) }

// conclude classifies the answer by its status and header, and by an error that a body with
// status 200 may hold.
func (a *attempt) conclude(report *usage.Report) {
	c := a.call
	if a.status > 0 {
		a.signal = c.up.Description.Classify(a.answerAt, a.status, a.header, a.head)
		a.consult()
		if a.class == reason.Unknown {
			a.class = a.signal.Class
		}
	}
	a.problem = report.Problem
	switch report.Problem {
	case usage.NoProblem:
	case usage.RateLimited:
		a.class = reason.Throttled
	case usage.Overloaded:
		a.class = reason.Overloaded
	case usage.QuotaSpent:
		a.class, a.signal.Exhausted = reason.Throttled, true
	default:
		if a.class == reason.OK {
			a.class = reason.Failed
		}
	}
	c.log.Class = a.class
	switch {
	case a.class.Throttle():
		c.log.Throttled++
		c.up.counters.throttles.Add(1)
		a.by.pushed.Add(1)
	case a.class == reason.Failed, a.class == reason.Lost:
		c.up.counters.failures.Add(1)
	}
	// Only with a configured key is it known whose account is out of quota.
	if a.signal.Exhausted && c.asked.Metered && c.up.owned() {
		a.by.spent.note(time.Now(), c.asked.Model, &a.signal)
	}
}

// use returns the tokens charged for the attempt: the usage reported by the provider, or else
// what was seen. An attempt that the provider refused used none.
func (a *attempt) use(report *usage.Report) quota.Usage {
	switch {
	case !a.sent.Load(), a.status >= http.StatusMultipleChoices:
		return quota.Usage{}
	case report.Reported:
		return report.Usage
	}
	used := report.Usage
	if used.Input == 0 {
		a.call.expectLate()
		used.Input = a.call.request.InputTokens
	}
	used.Output = max(used.Output, report.Flowed)
	return used
}

// pay settles the quota's permit, and updates the estimator with reported usage.
func (a *attempt) pay(used quota.Usage, reported bool) {
	c := a.call
	if reported {
		c.learn(used)
	}
	if a.sent.Load() {
		c.up.counters.use(used)
		c.log.Used.Input += used.Input
		c.log.Used.Cached += used.Cached
		c.log.Used.Output += used.Output
		c.log.Used.Reasoning += used.Reasoning
		c.log.Reported = reported
	}
	if !a.approved {
		return
	}
	if !a.sent.Load() {
		_, _ = c.up.Approver.Cancel(a.decision.Permit) // cannot fail: the permit is valid
		return
	}
	_, err := c.up.Approver.RecordUsage(a.decision.Permit, used)
	if _, nonsense := errors.AsType[*quota.FieldError](err); nonsense {
		// The reported usage is implausible: charge the estimate.
		_, err = c.up.Approver.RecordUsage(a.decision.Permit, quota.Usage{Input: a.request.InputTokens, Output: a.request.OutputTokens})
	}
	if err != nil {
		c.up.counters.unsettled.Add(1)
	}
}

// learn updates the estimator with the input tokens of the model, relative to the count, and
// its output tokens for one answer. Reported usage does not separate text from other input
// such as images, so a call with other input does not update the input estimate.
func (c *call) learn(used quota.Usage) {
	counted := quota.Usage{Input: c.raw}
	if c.asked.Extra > 0 {
		counted.Input = 0
	}
	used.Output /= c.asked.Choices
	if c.up.estimator.Learn(c.asked.Model, counted, used) && c.table.onEstimate != nil {
		c.table.onEstimate()
	}
}

// stale is the age at which the remaining limit in a response header is outdated, because
// other calls were sent meanwhile.
const stale = time.Second

// outcome returns what pacing learns from the attempt.
func (a *attempt) outcome() headway.Outcome {
	if !a.tried {
		return headway.Outcome{}
	}
	c := a.call
	o := headway.OutcomeOf(&a.signal)
	o.Class = a.class
	if a.problem == usage.OtherProblem {
		// The provider accepted the call and answered, even if the answer then failed.
		o.Class = reason.Rejected
	}
	if a.signal.Exhausted && o.Class.Throttle() {
		// A slower pace does not restore a used-up quota, and a wait of days for one model
		// must not hold up the others. It was recorded for that model.
		o.Class, o.RetryAfter = reason.Rejected, 0
	}
	if a.class == reason.OK {
		// In the provider's unit, as in its headers.
		o.Cost = float64(c.up.charge.Rated(a.used, a.request.MaxTokens))
	}
	if o.Class.Throttle() {
		o.Cost = a.late
	}
	if c.as != nil {
		o.Pool, o.Cost, o.Account = a.pool, a.took, a.account
	}
	if time.Since(a.answerAt) > stale {
		for i := range o.Facts {
			forget(&o.Facts[i])
		}
	}
	return o
}

// forget removes from a limit the values that change from call to call.
func forget(f *control.Fact) { f.Remaining, f.Reset = signal.Unknown, signal.Unknown }

// drainStep is the number of output tokens between two charges.
const drainStep = 32

// drain charges the output of a stream beyond its reservation.
func (a *attempt) drain() {
	if !a.approved || !a.call.asked.Stream {
		return
	}
	if n := a.scanner.Report().Flowed - a.drained; n >= drainStep {
		a.drained += n
		_ = a.call.up.Approver.Drain(a.decision.Permit, n) // an expired permit is counted when it is settled
	}
}

// leaveCircuit reports the outcome of the attempt to the breakers.
func (a *attempt) leaveCircuit() {
	if !a.passed {
		return
	}
	c := a.call
	whole, part := a.health()
	c.moved(c.up.circuits.settle(&c.up.Circuit, c.sinceOrigin(), a.passage, whole, part))
}

// moved publishes the state changes of breakers.
func (c *call) moved(m moves) {
	for _, one := range []struct {
		breaker.Transition
		of part
	}{{m.whole, part{}}, {m.part, c.part()}} {
		if !one.Moved() || c.table.onCircuit == nil {
			continue
		}
		e := event.Event{
			At: time.Now(), Type: event.Circuit, Connection: c.up.Name, Note: one.of.String(),
			Circuit: &event.Breaker{Previous: one.From.String(), State: one.To.String(), Trigger: one.Trigger.String()},
		}
		if one.To != breaker.Closed {
			e.Reason = reason.CircuitOpen.Reason()
		}
		c.table.onCircuit(e)
	}
}

// health returns what an attempt shows about the health of the whole provider and of the part
// that it used. Only faults of the provider count.
func (a *attempt) health() (whole, part breaker.Result) {
	if !a.tried {
		return breaker.Neutral, breaker.Neutral
	}
	switch {
	case a.sent.Load():
		whole = breaker.Success
	case a.class == reason.Lost:
		return breaker.Failure, breaker.Neutral
	}
	switch {
	case a.problem == usage.OtherProblem:
		// The provider accepted the call; the prompt may have caused the failure.
		return whole, breaker.Neutral
	case a.class == reason.OK, a.class == reason.Rejected:
		return whole, breaker.Success
	case a.class == reason.Overloaded, a.class == reason.Failed, a.class == reason.Lost:
		return whole, breaker.Failure
	}
	return whole, breaker.Neutral
}
