package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// AfterChange is how long throttles are put down to a change of the limits.
const AfterChange = 5 * time.Minute

// Ledger writes down a run as it happens and draws up its [Result]. [Run] keeps
// one; a client that is not ours, against the same model, can keep one too.
// Calls are in the order of their instants. For one goroutine.
type Ledger struct {
	s    *scenario.Scenario
	law  string
	seed uint64

	attempts, throttled int64
	clients             []int64         // admissions of each client
	admissions          []time.Duration // instants, in order
	waits               []time.Duration

	workSince time.Duration // since when there has been work and no admission
	longest   time.Duration

	sent       []time.Duration // the newest departure under each ceiling
	violations int64

	change      int // how many changes have been
	afterChange int64

	trace *course
}

// neverSent stands for no departure; any ceiling fits after it.
const neverSent = -provider.Never

// NewLedger makes the ledger of one run of a scenario.
func NewLedger(s *scenario.Scenario, law string, seed uint64) *Ledger {
	l := &Ledger{s: s, law: law, seed: seed, clients: make([]int64, s.Clients), sent: make([]time.Duration, s.Clients)}
	for i := range l.sent {
		l.sent[i] = neverSent
	}
	return l
}

// KeepTrace makes the result carry a [Trace]. Call it before anything else.
func (l *Ledger) KeepTrace() { l.trace = newCourse(l.s) }

// Pace says that from now on the attempts under a ceiling leave at an interval.
func (l *Ledger) Pace(now time.Duration, ceiling int, interval time.Duration) {
	if l.trace != nil {
		l.trace.pace(now, ceiling, interval)
	}
}

// Sent says that an attempt left. Ceilings count from 0: one a client, or a
// single one for a fleet.
func (l *Ledger) Sent(now time.Duration, ceiling int) {
	if now < l.sent[ceiling]+l.s.Owner.Ceiling {
		l.violations++
	}
	l.sent[ceiling] = now
}

// Arrived says how the provider answered an attempt of a client, from 0, for
// work that has been there since.
func (l *Ledger) Arrived(now time.Duration, client int, v provider.Verdict, since time.Duration) {
	l.attempts++
	switch {
	case v.Admitted:
		l.clients[client]++
		l.admissions = append(l.admissions, now)
		l.waits = append(l.waits, now-since)
		l.longest = max(l.longest, now-l.workSince)
		l.workSince = now
	case v.Throttled:
		l.throttled++
		if l.changed(now) {
			l.afterChange++
		}
		if l.trace != nil {
			l.trace.refuse(now)
		}
	}
}

// Idle says, at the start and right after an admission, when there is work
// next; leave it out where there is some already.
func (l *Ledger) Idle(until time.Duration) { l.workSince = until }

// changed reports whether a change of the limits was lately.
func (l *Ledger) changed(now time.Duration) bool {
	changes := l.s.Provider.Changes
	for l.change < len(changes) && changes[l.change].At <= now {
		l.change++
	}
	return l.change > 0 && now < changes[l.change-1].At+changes[l.change-1].Over+AfterChange
}

// Result draws up the figures. The model must have been advanced to the horizon.
func (l *Ledger) Result(oracle *Oracle, m *provider.Model) Result {
	admitted := int64(len(l.admissions))
	r := Result{
		Scenario: l.s.Name, Law: l.law, Seed: l.seed, HorizonS: seconds(l.s.Horizon),
		Attempts: l.attempts, Admitted: admitted, Throttled: l.throttled,
		LongestBlockS: seconds(max(l.longest, l.s.Horizon-l.workSince)),
		Suspended:     m.Suspended(), CeilingViolations: l.violations,
	}
	if w := l.s.Workload; w.Kind == scenario.Backlog && w.Rate != (scenario.Rate{}) {
		r.Notes = append(r.Notes, fmt.Sprintf("workload.rate %s is not used: a backlog always has work; for work that arrives at that rate set kind: open", w.Rate))
	}
	if admitted > 0 {
		r.ThrottledPer1000 = new(round(1000*float64(l.throttled)/float64(admitted), 3))
		slices.Sort(l.waits)
		r.WaitP50MS = new(millis(percentile(l.waits, 50)))
		r.WaitP99MS = new(millis(percentile(l.waits, 99)))
		if len(l.clients) > 1 {
			r.FairnessJain = new(round(jain(l.clients), 4))
		}
	}
	if best := len(oracle.Admissions); best > 0 {
		r.GoodputRatio = new(min(1, round(float64(admitted)/float64(best), 4)))
		if at, ok := caughtUp(l.admissions, oracle.Admissions, trailing(l.s, best), l.s.Horizon); ok {
			r.TimeTo90PctS = new(seconds(at))
		}
	}
	if n := len(l.s.Provider.Changes); n > 0 {
		r.ThrottlesPerChange = new(round(float64(l.afterChange)/float64(n), 3))
	}
	if l.s.Provider.Strangers != nil {
		r.StrangersHarm = new(max(0, m.Strangers().Throttled-oracle.StrangersThrottled))
	}
	if l.trace != nil {
		r.Trace = l.trace.drawUp(l, oracle)
	}
	return r
}
