package fit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// Scenario returns a scenario file with the limits, latencies and refusals of the trace,
// and a backlog as its workload. Comments at the top say how well it explains the trace.
func (r *Result) Scenario(name string) []byte {
	s := &scenario.Scenario{
		Name: name, Clients: 1,
		Description: fmt.Sprintf("Fitted to %d attempts, %d of them refused.", r.Attempts, r.Refused),
		Horizon:     min(max(time.Minute, (time.Duration(r.SpanS*float64(time.Second))+time.Minute-1).Truncate(time.Minute)), scenario.MaxHorizon),
	}
	s.Provider.Throttle = r.throttle()
	s.Provider.Latency = r.latency()
	for _, l := range r.Limits {
		if l.Pool == "" {
			s.Provider.Limits = append(s.Provider.Limits, l.Limit)
		}
	}
	s.Provider.Pools = r.pools()
	// Ten times as fast as the admitted rate, so that the limits take effect.
	every := time.Duration(r.SpanS / float64(10*max(1, r.Admitted)) * float64(time.Second))
	s.Owner.Ceiling = min(max(time.Millisecond, every.Truncate(time.Millisecond)), scenario.DefaultCeiling)
	s.Owner.Initial = scenario.DefaultInitial
	s.Workload = scenario.Workload{Kind: scenario.Backlog, MaxInFlight: r.places(), Cost: scenario.Cost{Mean: scenario.DefaultCostMean, Estimate: 1}}
	return append([]byte(r.comment()), scenario.Format(s)...)
}

// comment returns the result as comment lines.
func (r *Result) comment() string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(r.String(), "\n"), "\n") {
		b.WriteString(strings.TrimSuffix("# "+line, " ") + "\n")
	}
	return b.String()
}

// String returns the result as text for people.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d attempts in %s: %d let through, %d refused, %d unclear.\n",
		r.Attempts, time.Duration(r.SpanS*1e9).Round(time.Millisecond), r.Admitted, r.Refused, r.Unclear)
	if len(r.Limits) == 0 {
		b.WriteString("No limit explains the refusals.\n")
		return b.String()
	}
	for _, l := range r.Limits {
		b.WriteString(l.Text)
		if l.Pool != "" {
			fmt.Fprintf(&b, ", of pool %s", l.Pool)
		}
		if l.CountsRejected {
			b.WriteString(", which refused attempts use up too")
		}
		fmt.Fprintf(&b, ": confidence %.2f\n", l.Confidence)
		if l.MostPerMin > 0 {
			fmt.Fprintf(&b, "Any rate from %.4g to %.4g a minute explains the trace as well: attempts at other speeds would tell.\n",
				l.LeastPerMin, l.MostPerMin)
		}
		if l.QueuePerMin > 0 {
			fmt.Fprintf(&b, "The more were under way, the longer each took: attempts wait for a rate of %.4g a minute, whose queue has %g places.\n",
				l.QueuePerMin, l.Size)
		}
	}
	fmt.Fprintf(&b, "It would have refused %d of those let through, and let through %d of those refused.\n", r.WouldRefuse, r.WouldAdmit)
	for _, l := range r.Others {
		fmt.Fprintf(&b, "Instead %s: confidence %.2f, would have refused %d and let through %d.\n", l.Text, l.Confidence, l.WouldRefuse, l.WouldAdmit)
	}
	return b.String()
}

// pools returns the pools of the trace with their shares of the attempts, if any limit is a
// pool's.
func (r *Result) pools() []scenario.Pool {
	if !slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.Pool != "" }) {
		return nil
	}
	sent := map[string]int{}
	for i := range r.attempts {
		sent[cmp.Or(r.attempts[i].Pool, unpooled)]++
	}
	var all []scenario.Pool
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		p := scenario.Pool{Name: name, Share: max(1e-6, math.Round(1e3*float64(sent[name])/float64(len(r.attempts)))/1e3)}
		for _, l := range r.Limits {
			if l.Pool == name {
				p.Limits = append(p.Limits, l.Limit)
			}
		}
		all = append(all, p)
	}
	return all
}

// unpooled is the pool of attempts without one, in a trace with pools.
const unpooled = "others"

// throttle returns the form of refusals.
func (r *Result) throttle() scenario.Throttle {
	t := scenario.Throttle{Status: scenario.DefaultStatus, RetryAfter: scenario.RetryNone, Headers: scenario.HeadersNone, CountsRejected: r.counted}
	statuses, with, whole := map[int]int{}, 0, true
	for i := range r.attempts {
		a := &r.attempts[i]
		if a.Fate != Refused {
			continue
		}
		if a.Status >= 400 && a.Status <= 599 {
			statuses[a.Status]++
		}
		if a.RetryAfter > 0 {
			with++
			whole = whole && a.RetryAfter%time.Second == 0
		}
	}
	most := 0
	for _, status := range slices.Sorted(maps.Keys(statuses)) {
		if statuses[status] > most {
			t.Status, most = status, statuses[status]
		}
	}
	switch {
	case 2*with < r.Refused:
	case whole:
		t.RetryAfter = scenario.RetrySeconds
	default:
		t.RetryAfter = scenario.RetryMillis
	}
	return t
}

// latency returns the latencies of the attempts; the uplink is half of a refusal's time.
func (r *Result) latency() scenario.Latency {
	var whole, half []time.Duration
	for i := range r.attempts {
		switch a := &r.attempts[i]; a.Fate {
		case Admitted:
			whole = append(whole, a.Answered-a.Sent)
		case Refused:
			half = append(half, (a.Answered-a.Sent)/2)
		case Unclear:
		}
	}
	percentiles := func(of []time.Duration) (p50, p99 time.Duration) {
		slices.Sort(of)
		at := func(p int) time.Duration {
			return min(max(of[(len(of)*p+99)/100-1].Round(10*time.Microsecond), 10*time.Microsecond), scenario.MaxLatency)
		}
		return at(50), at(99)
	}
	var l scenario.Latency
	l.P50, l.P99 = percentiles(whole)
	l.UplinkP50, l.UplinkP99 = percentiles(half)
	l.UplinkP50 = min(l.UplinkP50, l.P50)
	l.UplinkP99 = max(l.UplinkP99, l.UplinkP50)
	return l
}

// places returns the number of attempts that were in flight at once, at least 4 and twice
// what a concurrency limit allows.
func (r *Result) places() int {
	type edge struct {
		at time.Duration
		by int
	}
	var edges []edge
	for i := range r.attempts {
		edges = append(edges, edge{r.attempts[i].Sent, 1}, edge{r.attempts[i].Answered, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now, most := 0, 4
	for _, e := range edges {
		now += e.by
		most = max(most, now)
	}
	for _, l := range r.Limits {
		if l.Kind == scenario.Concurrency {
			most = max(most, 2*l.Count)
		}
	}
	return most
}
