// Package replay runs a timeline of calls against budgets of calls and tokens in virtual
// time, for "headway quota simulate".
package replay

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/quota"
)

// run runs a timeline on the pure governor, with virtual time in place of the shell's clock
// and timer.
type run struct {
	core    *quota.Governor
	now     time.Duration
	out     io.Writer // receives lines at once; nil collects them
	permits map[string]quota.Permit
	waiting map[quota.Waiter]*step
	known   map[quota.Scope]bool
	failed  error // of writing
	result  Result
}

// Move is a change of state.
type Move struct {
	AtMS    float64     `json:"atMs"`
	Scope   quota.Scope `json:"scope"`
	From    quota.State `json:"from"`
	To      quota.State `json:"to"`
	Trigger string      `json:"trigger"`
}

// Answer is the result of one call.
type Answer struct {
	AtMS      float64      `json:"atMs"`
	ID        string       `json:"id,omitempty"`
	Model     string       `json:"model"`
	Approved  bool         `json:"approved"`
	Advisory  []string     `json:"advisory,omitempty"`
	Reason    quota.Reason `json:"reason,omitempty"`
	Code      quota.Code   `json:"code,omitempty"`
	RetryInMS *float64     `json:"retryInMs,omitempty"`
}

// Result is the result of a timeline. Its lists are never nil.
type Result struct {
	Answers        []Answer       `json:"answers"`
	Events         []quota.Event  `json:"events"`
	Moves          []Move         `json:"moves"`
	Lost           uint64         `json:"lost"`
	Snapshot       quota.Snapshot `json:"snapshot"`
	TransitionHash string         `json:"transitionHash"`

	Scopes []quota.Scope `json:"-"` // in the order in which they appeared
}

// Run runs the timeline on core, and continues for tail after its last step. If out is not
// nil, each event, move and answer is written to it as a line when it happens; otherwise
// they are in the result. The error begins with the line of its step, or is a write error.
func Run(core *quota.Governor, t Timeline, tail time.Duration, out io.Writer) (Result, error) {
	r := &run{
		core: core, out: out,
		permits: map[string]quota.Permit{}, waiting: map[quota.Waiter]*step{}, known: map[quota.Scope]bool{},
		result: Result{Answers: []Answer{}, Events: []quota.Event{}, Moves: []Move{}},
	}
	r.saw(quota.Scope{})
	for _, model := range slices.Sorted(maps.Keys(core.Config().Models)) {
		r.saw(quota.Scope{Model: model})
	}
	for _, a := range t.actions {
		r.until(a.at)
		if err := r.do(a.step); err != nil {
			return r.result, fmt.Errorf("%d: %w", a.line, err)
		}
		r.settle()
	}
	r.until(r.now + tail)
	r.result.Snapshot, r.result.TransitionHash = core.Snapshot(r.now), fmt.Sprintf("%x", core.LogHash())
	return r.result, r.failed
}

// saw records scopes for the final table, in the order of their appearance.
func (r *run) saw(scopes ...quota.Scope) {
	for _, s := range scopes {
		if !r.known[s] {
			r.known[s] = true
			r.result.Scopes = append(r.result.Scopes, s)
		}
	}
}

// until advances virtual time to an instant and handles everything that is due.
func (r *run) until(end time.Duration) {
	for {
		at, ok := r.core.NextTransition(r.now)
		if !ok || at > end {
			break
		}
		// The instant may be early, so advance by at least 1 ns.
		r.now = min(max(at, r.now+1), end)
		r.core.Advance(r.now)
		r.settle()
		if r.now == end {
			break
		}
	}
	r.now = end
	r.core.Advance(end)
	r.settle()
}

// settle ends finished waits, and records events, moves and answers.
func (r *run) settle() {
	for _, grant := range r.core.Grants(r.now, nil) {
		s := r.waiting[grant.Waiter]
		delete(r.waiting, grant.Waiter)
		r.answer(s, grant.Decision)
	}
	events, lost := r.core.TakeEvents(nil)
	r.result.Lost += lost
	for _, e := range events {
		r.line(e.Instant, "%s%s", e, eventDetail(e))
	}
	moves, lost := r.core.TakeMoves(nil)
	r.result.Lost += lost
	for _, m := range moves {
		r.line(m.Instant, "%s: %s > %s (%s)", m.Scope, m.From, m.To, m.Trigger)
	}
	if r.out != nil {
		return
	}
	r.result.Events = append(r.result.Events, events...)
	for _, m := range moves {
		r.result.Moves = append(r.result.Moves, Move{millis(m.Instant), m.Scope, m.From, m.To, m.Trigger.String()})
	}
}

func (r *run) do(s *step) error {
	switch s.Do {
	case "approve":
		r.answer(s, r.core.Approve(r.now, s.request()))
	case "wait":
		id, d := r.core.Enqueue(r.now, s.request(), r.now+s.within)
		if id == 0 {
			r.answer(s, d)
			return nil
		}
		r.waiting[id] = s
		if s.ID != "" {
			r.permits[s.ID] = quota.Permit{}
		}
	case "config":
		return r.core.UpdateConfig(r.now, s.patch)
	default:
		return r.use(s)
	}
	return nil
}

// use performs the step's action on an approved call.
func (r *run) use(s *step) (err error) {
	permit, ok := r.permits[s.ID]
	if !ok {
		return fmt.Errorf("there is no call %.40q before", s.ID)
	}
	if permit == (quota.Permit{}) {
		return nil // the call was refused or still waits
	}
	switch s.Do {
	case "record":
		_, err = r.core.RecordUsage(r.now, permit, quota.Usage{Input: s.Input, Cached: s.Cached, Output: s.Output})
	case "drain":
		err = r.core.Drain(r.now, permit, s.Output)
	case "cancel":
		_, err = r.core.Cancel(r.now, permit)
	}
	if d, ok := errors.AsType[*quota.Denial](err); ok { // an expired or ended call is a result, not an error
		r.line(r.now, "call %s: cannot %s, %s", s.ID, s.Do, d.Code)
		return nil
	}
	return err
}

func (s *step) request() quota.Request {
	return quota.Request{
		Model: s.Model, InputTokens: s.Input, OutputTokens: s.Output, CachedTokens: s.Cached, MaxTokens: s.Max,
		Tenant: s.Tenant, Agent: s.Agent, Priority: s.Priority,
	}
}

// answer records the outcome of a call.
func (r *run) answer(s *step, d quota.Decision) {
	if s.ID != "" {
		r.permits[s.ID] = d.Permit
	}
	r.saw(quota.Scope{Tenant: s.Tenant}, quota.Scope{Tenant: s.Tenant, Model: s.Model},
		quota.Scope{Tenant: s.Tenant, Agent: s.Agent}, quota.Scope{Tenant: s.Tenant, Agent: s.Agent, Model: s.Model})
	a := Answer{
		AtMS: millis(r.now), ID: s.ID, Model: s.Model, Approved: d.Approved,
		Advisory: d.Advisory.Names(), Reason: d.Reason, Code: d.Code,
	}
	if !d.Approved && d.RetryIn != quota.Never {
		a.RetryInMS = new(millis(d.RetryIn))
	}
	switch {
	case r.out == nil:
		r.result.Answers = append(r.result.Answers, a)
	case s.ID == "": // the events say enough
	case d.Approved:
		r.line(r.now, "call %s: approved%s", s.ID, strings.Join(append([]string{""}, a.Advisory...), ", "))
	case a.RetryInMS == nil:
		r.line(r.now, "call %s: refused, %s, waiting does not help", s.ID, d.Code)
	default:
		r.line(r.now, "call %s: refused, %s, retry in %v", s.ID, d.Code, d.RetryIn)
	}
}

func (r *run) line(at time.Duration, format string, args ...any) {
	if r.out == nil || r.failed != nil {
		return
	}
	_, r.failed = fmt.Fprintf(r.out, "%-12v %s\n", at, fmt.Sprintf(format, args...))
}

// eventDetail returns the details of an event, for its line.
func eventDetail(e quota.Event) string {
	s := ""
	if e.CapType != "" {
		s += ", " + e.CapType
	}
	if e.Utilization > 0 {
		s += fmt.Sprintf(", %.0f%% used", math.Floor(e.Utilization*100))
	}
	if e.Forecast {
		s += ", by forecast"
	}
	if e.Factor > 0 {
		s += fmt.Sprintf(", factor %g", e.Factor)
	}
	if e.RetryInMS > 0 {
		s += fmt.Sprintf(", retry in %v", time.Duration(e.RetryInMS)*time.Millisecond)
	}
	if e.Count > 1 {
		s += fmt.Sprintf(", %d times", e.Count)
	}
	return s
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }
