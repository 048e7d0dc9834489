package quota_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/quota"
)

// row is one call at an instant, and all that came of it: the answer, then what moved,
// then what was said, each after a semicolon. Moves and events that are of an earlier
// instant say which.
type row struct {
	at   time.Duration
	do   call
	want string
}

type call func(p *play, at time.Duration) string

// play is a governor that a table of rows drives.
type play struct {
	g       *quota.Governor
	permits []quota.Permit // in the order in which they were given
}

// runs plays the rows and compares all their results.
func runs(t *testing.T, c quota.Config, rows []row) {
	t.Helper()
	p := &play{g: governor(t, c)}
	var got, want []string
	for i, r := range rows {
		answer := r.do(p, r.at)
		got = append(got, fmt.Sprintf("%d. %v: %s", i, r.at, strings.TrimPrefix(strings.Join(append([]string{answer}, p.news(r.at)...), "; "), "; ")))
		want = append(want, fmt.Sprintf("%d. %v: %s", i, r.at, r.want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// news takes moves and events. A refusal is in the answer already.
func (p *play) news(now time.Duration) (all []string) {
	when := func(at time.Duration) string {
		if at == now {
			return ""
		}
		return fmt.Sprint("@", at)
	}
	moves, _ := p.g.TakeMoves(nil)
	for _, m := range moves {
		all = append(all, fmt.Sprintf("%s %v>%v %v%s", m.Scope, m.From, m.To, m.Trigger, when(m.Instant)))
	}
	events, _ := p.g.TakeEvents(nil)
	for _, e := range events {
		_, kind, _ := strings.Cut(string(e.Type), ":")
		s := e.Scope.String() + " " + kind
		switch e.Type {
		case quota.EventDenied:
			continue
		case quota.EventThrottle, quota.EventBackoff:
			s += fmt.Sprintf(" %dms", e.RetryInMS)
		case quota.EventSoftPressure:
			s += fmt.Sprintf(" %v of %dms", e.Utilization, e.WindowMS)
			if e.Forecast {
				s += " foreseen"
			}
		case quota.EventExhausted:
			s += " " + e.CapType
		case quota.EventAdaptiveScale:
			s = fmt.Sprintf("%s x%v", e.Scope, e.Factor)
		case quota.EventResume, quota.EventConfig, quota.EventFleet: // the name says it all
		}
		all = append(all, s+when(e.Instant))
	}
	return all
}

// answer is a decision in words.
func answer(d quota.Decision) string {
	if !d.Approved && d.Code == "" { // it waits
		return fmt.Sprintf("waits %v", d.RetryIn)
	}
	if d.Approved {
		s := "approved"
		if d.Utilization > 0 {
			s += fmt.Sprintf(" %d/1000", d.Utilization)
		}
		for _, name := range d.Advisory.Names() {
			s += " " + name
		}
		return s
	}
	s := fmt.Sprintf("%s %s by %s, %v", d.Reason, strings.TrimPrefix(string(d.Code), "RATE_"), d.Scope, d.RetryIn)
	if d.RetryIn == quota.Never {
		s = strings.TrimSuffix(s, fmt.Sprint(d.RetryIn)) + "never"
	}
	if d.Held {
		s += ", held"
	}
	if d.Final {
		s += ", final"
	}
	return s
}

// asks is Approve.
func asks(r quota.Request) call {
	return func(p *play, at time.Duration) string {
		d := p.g.Approve(at, r)
		if d.Approved {
			p.permits = append(p.permits, d.Permit)
		}
		return answer(d)
	}
}

// uses is Approve and then RecordUsage of the same.
func uses(tokens int64) call {
	return func(p *play, at time.Duration) string {
		d := p.g.Approve(at, ask(tokens))
		if d.Approved {
			if first, err := p.g.RecordUsage(at, d.Permit, quota.Usage{Input: tokens}); !first || err != nil {
				return fmt.Sprint(first, err)
			}
		}
		return answer(d)
	}
}

// ends says how the end of a permit went.
func ends(first bool, err error) string {
	switch d, ok := errors.AsType[*quota.Denial](err); {
	case err != nil && first:
		return "ends with " + err.Error()
	case ok:
		return string(d.Code)
	case err != nil:
		return err.Error()
	}
	return map[bool]string{true: "ends", false: "had ended"}[first]
}

// settles is RecordUsage of the permit of that number, from 0.
func settles(n int, u quota.Usage) call {
	return func(p *play, at time.Duration) string { return ends(p.g.RecordUsage(at, p.permits[n], u)) }
}

func cancels(n int) call {
	return func(p *play, at time.Duration) string { return ends(p.g.Cancel(at, p.permits[n])) }
}

func drains(n int, tokens int64) call {
	return func(p *play, at time.Duration) string {
		if err := p.g.Drain(at, p.permits[n], tokens); err != nil {
			return ends(false, err)
		}
		return "flows"
	}
}

// enqueues is Enqueue until a deadline.
func enqueues(r quota.Request, deadline time.Duration) call {
	return func(p *play, at time.Duration) string {
		id, d := p.g.Enqueue(at, r, deadline)
		if (id == 0) != (d.Code != "") {
			return fmt.Sprint(id, d)
		}
		return answer(d)
	}
}

// grants is Grants: each waiter by its number, from 1.
func grants(p *play, at time.Duration) string {
	all := []string{}
	for _, grant := range p.g.Grants(at, nil) {
		if grant.Approved {
			p.permits = append(p.permits, grant.Permit)
		}
		all = append(all, fmt.Sprintf("%d %s", grant.Waiter, answer(grant.Decision)))
	}
	return strings.Join(all, " & ")
}

// passes lets time pass.
func passes(p *play, at time.Duration) string { p.g.Advance(at); return "" }

// next says when something may happen by itself.
func next(p *play, at time.Duration) string {
	due, ok := p.g.NextTransition(at)
	return fmt.Sprint(due, " ", ok)
}

// replaces swaps the configuration.
func replaces(c quota.Config) call {
	return func(p *play, at time.Duration) string {
		c.LoadZone = time.LoadLocation
		if err := p.g.Replace(at, c); err != nil {
			return err.Error()
		}
		return "replaced"
	}
}

// left is what remains of each budget of a scope.
func left(s quota.Scope) call {
	return func(p *play, at time.Duration) string {
		all := []string{}
		for _, f := range p.g.Forecast(at, s) {
			all = append(all, fmt.Sprint(f.Budget, " ", f.Remaining))
		}
		return strings.Join(all, ", ")
	}
}

// ledger is what a scope has granted, used, refunded and holds, and the calls and tokens
// of the last minute.
func ledger(s quota.Scope) call {
	return func(p *play, at time.Duration) string {
		m, ok := p.g.Inspect(at, s)
		if !ok {
			return "unknown"
		}
		l := m.Ledger
		return fmt.Sprintf("granted %d, used %d, refunded %d, held %d, cached %d, reasoning %d, approved %d, denied %d, lately %d calls, %d tokens",
			l.Granted, l.Used, l.Refunded, l.Held, l.Cached, l.Reasoning, l.Approved, l.Denied, m.Window.Calls, m.Window.Tokens)
	}
}

// stands is the state of a scope and its factor.
func stands(s quota.Scope) call {
	return func(p *play, at time.Duration) string {
		m, _ := p.g.Inspect(at, s)
		return fmt.Sprintf("%v x%v", m.State, m.Factor)
	}
}
