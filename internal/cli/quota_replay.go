package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/quota"
)

// replay runs a timeline on the pure governor: what a shell does with a clock
// and a timer is done here in virtual time.
type replay struct {
	core    *quota.Governor
	now     time.Duration
	out     io.Writer // lines as they come; nil collects them for JSON
	permits map[string]quota.Permit
	waiting map[quota.Waiter]*step
	scopes  []quota.Scope
	known   map[quota.Scope]bool
	failed  error // of writing

	events  []quota.Event
	moves   []replayMove
	answers []replayAnswer
	lost    uint64
}

// replayMove is one change of state.
type replayMove struct {
	AtMS    float64     `json:"atMs"`
	Scope   quota.Scope `json:"scope"`
	From    quota.State `json:"from"`
	To      quota.State `json:"to"`
	Trigger string      `json:"trigger"`
}

// replayAnswer is what became of one call.
type replayAnswer struct {
	AtMS      float64      `json:"atMs"`
	ID        string       `json:"id,omitempty"`
	Model     string       `json:"model"`
	Approved  bool         `json:"approved"`
	Advisory  []string     `json:"advisory,omitempty"`
	Reason    quota.Reason `json:"reason,omitempty"`
	Code      quota.Code   `json:"code,omitempty"`
	RetryInMS *float64     `json:"retryInMs,omitempty"`
}

// replayResult is all of it, for --json.
type replayResult struct {
	Answers        []replayAnswer `json:"answers"`
	Events         []quota.Event  `json:"events"`
	Moves          []replayMove   `json:"moves"`
	Lost           uint64         `json:"lost"`
	Snapshot       quota.Snapshot `json:"snapshot"`
	TransitionHash string         `json:"transitionHash"`
}

func newReplay(core *quota.Governor) *replay {
	r := &replay{core: core, permits: map[string]quota.Permit{}, waiting: map[quota.Waiter]*step{}, known: map[quota.Scope]bool{}}
	r.saw(quota.Scope{})
	for model := range sortedKeys(core.Config().Models) {
		r.saw(quota.Scope{Model: model})
	}
	return r
}

// saw notes scopes for the table in the end, in the order of their appearance.
func (r *replay) saw(scopes ...quota.Scope) {
	for _, s := range scopes {
		if !r.known[s] {
			r.known[s] = true
			r.scopes = append(r.scopes, s)
		}
	}
}

// run plays the steps. The error begins with the step's line.
func (r *replay) run(actions []action, tail time.Duration) error {
	for _, a := range actions {
		r.until(a.at)
		if err := r.do(a.step); err != nil {
			return fmt.Errorf("%d: %w", a.line, err)
		}
		r.settle()
	}
	r.until(r.now + tail)
	return r.failed
}

// until lets happen what happens by itself up to an instant.
func (r *replay) until(end time.Duration) {
	for {
		at, ok := r.core.NextTransition(r.now)
		if !ok || at > end {
			break
		}
		// It may be early, so that time has to be pushed on.
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

// settle lets those go whose wait is over, and takes down what happened.
func (r *replay) settle() {
	for _, grant := range r.core.Grants(r.now, nil) {
		s := r.waiting[grant.Waiter]
		delete(r.waiting, grant.Waiter)
		r.answer(s, grant.Decision)
	}
	events, lost := r.core.TakeEvents(nil)
	r.lost += lost
	for _, e := range events {
		r.line(e.Instant, "%s%s", e, eventDetail(e))
	}
	moves, lost := r.core.TakeMoves(nil)
	r.lost += lost
	for _, m := range moves {
		r.line(m.Instant, "%s: %s > %s (%s)", m.Scope, m.From, m.To, m.Trigger)
	}
	if r.out != nil {
		return
	}
	r.events = append(r.events, events...)
	for _, m := range moves {
		r.moves = append(r.moves, replayMove{millis(m.Instant), m.Scope, m.From, m.To, m.Trigger.String()})
	}
}

func (r *replay) do(s *step) error {
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

// use does something with a call that was approved.
func (r *replay) use(s *step) (err error) {
	permit, ok := r.permits[s.ID]
	if !ok {
		return fmt.Errorf("there is no call %.40q before", s.ID)
	}
	if permit == (quota.Permit{}) {
		return nil // it was refused or waits: there is nothing to do it to
	}
	switch s.Do {
	case "record":
		_, err = r.core.RecordUsage(r.now, permit, quota.Usage{Input: s.Input, Cached: s.Cached, Output: s.Output})
	case "drain":
		err = r.core.Drain(r.now, permit, s.Output)
	case "cancel":
		_, err = r.core.Cancel(r.now, permit)
	}
	if d, ok := errors.AsType[*quota.Denial](err); ok { // it expired, or had ended: that is an outcome
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

// answer takes down what became of a call.
func (r *replay) answer(s *step, d quota.Decision) {
	if s.ID != "" {
		r.permits[s.ID] = d.Permit
	}
	r.saw(quota.Scope{Tenant: s.Tenant}, quota.Scope{Tenant: s.Tenant, Model: s.Model},
		quota.Scope{Tenant: s.Tenant, Agent: s.Agent}, quota.Scope{Tenant: s.Tenant, Agent: s.Agent, Model: s.Model})
	a := replayAnswer{
		AtMS: millis(r.now), ID: s.ID, Model: s.Model, Approved: d.Approved,
		Advisory: d.Advisory.Names(), Reason: d.Reason, Code: d.Code,
	}
	if !d.Approved && d.RetryIn != quota.Never {
		a.RetryInMS = new(millis(d.RetryIn))
	}
	switch {
	case r.out == nil:
		r.answers = append(r.answers, a)
	case s.ID == "": // the events tell enough
	case d.Approved:
		r.line(r.now, "call %s: approved%s", s.ID, strings.Join(append([]string{""}, a.Advisory...), ", "))
	case a.RetryInMS == nil:
		r.line(r.now, "call %s: refused, %s, waiting does not help", s.ID, d.Code)
	default:
		r.line(r.now, "call %s: refused, %s, retry in %v", s.ID, d.Code, d.RetryIn)
	}
}

func (r *replay) line(at time.Duration, format string, args ...any) {
	if r.out == nil || r.failed != nil {
		return
	}
	_, r.failed = fmt.Fprintf(r.out, "%-12v %s\n", at, fmt.Sprintf(format, args...))
}

// eventDetail is what an event says beyond its line.
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

func (r *replay) result() replayResult {
	return replayResult{
		Answers: orEmpty(r.answers), Events: orEmpty(r.events), Moves: orEmpty(r.moves), Lost: r.lost,
		Snapshot: r.core.Snapshot(r.now), TransitionHash: fmt.Sprintf("%x", r.core.LogHash()),
	}
}

// text is the end of the replay for a person.
func (r *replay) text() string {
	s := r.core.Statistics()
	lost := ""
	if r.lost > 0 {
		lost = fmt.Sprintf("lost         %s entries that did not fit into the event buffer\n", figure.Count(int64(r.lost)))
	}
	return fmt.Sprintf("\n%s\napproved     %s\ndenied       %s\n%stransitions  %s\nhash         %x\n",
		scopesText(r.core, r.scopes), figure.Count(s.Approved), figure.Count(s.Denied), lost, figure.Count(int64(s.Moves)), r.core.LogHash())
}
