// Package fit finds a provider's limits from the attempts that it admitted and refused:
// [Parse] reads a recorded trace, [Fit] finds the limits that explain it, and
// [Result.Scenario] writes a scenario with them.
//
// # How
//
// Each kind of limit is tried with many rates or windows. For each of them the amount in
// use is computed at every arrival; the size of the limit is the amount that best
// separates refused attempts from admitted ones. How much of the trace stays unexplained
// is measured in nats: the entropy of the attempts' fates, given on which side of the
// limit each attempt was. A limit is accepted if it explains more than its own
// parameters cost. Then the next one is looked for in what is still unexplained, for the
// account or for one pool.
//
// Limits that had no effect on the trace are not found, nor are limits on cost and
// execution time, nor other users. For a provider that blocks for a time after a refusal,
// the closest limit is found; [Result.WouldAdmit] shows the difference.
//
// The package is pure: no clock, no I/O. The same trace gives the same result.
package fit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// ErrNoRefusal is the error of [Fit] for a trace that shows no limit.
var ErrNoRefusal = errors.New("nothing was refused, so nothing shows where a limit is")

// ErrAllRefused is the error of [Fit] for a trace without an admitted attempt.
var ErrAllRefused = errors.New("everything was refused, so nothing shows what a limit lets through")

// Bounds of the search.
const (
	maxLimits = 4
	maxPools  = 32
)

// Result has the limits that were found.
type Result struct {
	// Attempts is the number of attempts in the trace, the sum of the next three.
	Attempts int `json:"attempts"`
	Admitted int `json:"admitted"`
	Refused  int `json:"refused"`
	// Unclear counts attempts that met an outage or had no response. They are ignored.
	Unclear int `json:"unclear"`
	// SpanS is the time from the first to the last, in seconds.
	SpanS float64 `json:"span_s"`
	// Limits are the limits that were found, the one that explains most first.
	Limits []Limit `json:"limits"`
	// WouldRefuse is how many of Admitted these limits would have refused, and WouldAdmit
	// how many of Refused they would have admitted.
	WouldRefuse int `json:"would_refuse"`
	WouldAdmit  int `json:"would_admit"`
	// Others are the best limits of other kinds, each as a replacement for the first.
	Others []Limit `json:"others"`

	counted  bool // refused attempts use up the limits
	attempts []Attempt
}

// Limit is a limit that was found.
type Limit struct {
	scenario.Limit `json:"-"`
	// Kind is its kind, as in scenario files, and Text its full description.
	Kind scenario.Kind `json:"kind"`
	Text string        `json:"text"`
	// Size is the number of attempts that it allows in a window or at once, or a bucket's
	// burst.
	Size float64 `json:"size"`
	// WindowS is the length of its window in seconds; 0 if it has none.
	WindowS float64 `json:"window_s,omitzero"`
	// RatePerMin is the rate that it sustains; 0 if it has none.
	RatePerMin float64 `json:"rate_per_min,omitzero"`
	// LeastPerMin and MostPerMin bound the rates that explain the trace equally well; 0 if
	// they are within a twentieth of RatePerMin, or it has none.
	LeastPerMin float64 `json:"least_per_min,omitzero"`
	MostPerMin  float64 `json:"most_per_min,omitzero"`
	// QueuePerMin is the rate at which attempts under way were answered one after the other,
	// if they waited for each other: a rate limit that refuses only what its queue has no
	// place for looks like one on concurrency. 0 if they did not.
	QueuePerMin float64 `json:"queue_per_min,omitzero"`
	// Pool is its pool; empty for the account.
	Pool string `json:"pool,omitempty"`
	// CountsRejected reports that refused attempts count against it too.
	CountsRejected bool `json:"counts_rejected,omitzero"`
	// Confidence is from 0 to 1. It depends on how much better the limit explains the trace
	// than the next kind does, how often the limit was met, how much is explained at all,
	// and how exact the rate is.
	Confidence float64 `json:"confidence"`
	// WouldRefuse and WouldAdmit are as in Result, for this limit and its attempts alone.
	WouldRefuse int `json:"would_refuse"`
	WouldAdmit  int `json:"would_admit"`
}

// Fit finds the limits that explain a trace.
func Fit(attempts []Attempt) (*Result, error) {
	r := &Result{Attempts: len(attempts), attempts: attempts, Limits: []Limit{}, Others: []Limit{}}
	for i := range attempts {
		switch attempts[i].Fate {
		case Admitted:
			r.Admitted++
		case Refused:
			r.Refused++
		case Unclear:
			r.Unclear++
		}
	}
	switch {
	case r.Refused == 0:
		return nil, ErrNoRefusal
	case r.Admitted == 0:
		return nil, ErrAllRefused
	}
	m := new(mind)
	m.points, m.jitter = pointsOf(attempts)
	r.SpanS = math.Round((m.points[len(m.points)-1].at-m.points[0].at).Seconds()*1e3) / 1e3
	m.look()
	full := make([]bool, len(m.points))
	for i := range m.held {
		h := &m.held[i]
		h.mark(m.points, full)
		r.Limits = append(r.Limits, m.limit(h, h.found))
		r.counted = r.counted || h.counted
	}
	r.WouldRefuse, r.WouldAdmit = mistakes(m.points, nil, full)
	if len(m.held) > 0 {
		for _, f := range m.held[0].others {
			if !math.IsInf(f.above, 1) {
				r.Others = append(r.Others, m.limit(&m.held[0], f))
			}
		}
	}
	return r, nil
}

// pointsOf returns the attempts as the limiter saw them, in its order. If the trace does
// not have arrival times, a refused attempt is assumed to have arrived half way between
// request and response; for the others, half of the refusals' mean time is used.
//
// jitter is the distance of most refused attempts' uplink times from the median.
func pointsOf(attempts []Attempt) (points []point, jitter time.Duration) {
	var half []time.Duration
	for i := range attempts {
		if a := &attempts[i]; a.Fate == Refused {
			half = append(half, (a.Answered-a.Sent)/2)
		}
	}
	way := middle(half)
	jitter = minJitter
	if n := len(half); n > 0 {
		jitter = max(jitter, half[n*9/10]-way, way-half[n/10])
	}
	points = make([]point, 0, len(attempts))
	for i := range attempts {
		a := &attempts[i]
		if a.Fate == Unclear {
			continue
		}
		p := point{pool: a.Pool, refused: a.Fate == Refused}
		to := (a.Answered - a.Sent) / 2
		if !p.refused {
			to = min(to, way)
		}
		p.at = a.Sent + to
		if a.Arrived > 0 {
			p.at = a.Arrived
		}
		p.end = max(p.at, a.Answered-to)
		points = append(points, p)
	}
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	return points, jitter
}

// minJitter is the jitter of clocks and limiters that count whole milliseconds.
const minJitter = 2 * time.Millisecond

// middle returns the median; 0 of nothing.
func middle(of []time.Duration) time.Duration {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)/2]
}

// mind is the current explanation of a trace.
type mind struct {
	points []point
	jitter time.Duration
	held   []held
}

// held is a limit that is part of the explanation.
type held struct {
	found
	pool   string
	mine   []bool
	others []found // of other kinds, the best first
}

// look adds limits as long as each explains enough.
func (m *mind) look() {
	before := m.open()
	least := max(6, 0.05*before)
	for len(m.held) < maxLimits {
		next, ok := m.next()
		if !ok || before-next.cost < least {
			break
		}
		m.held = append(m.held, next)
		before = next.open
		// The earlier limits were fitted to explain everything. Fit them again to what this
		// one does not explain.
		for i := 0; i < len(m.held)-1; i++ {
			if again, ok := m.without(i).within(m.held[i].pool); ok && again.open < before {
				m.held[i], before = again, again.open
			}
		}
	}
}

// open returns what no limit explains yet.
func (m *mind) open() float64 {
	return newScope(m.points, make([]bool, len(m.points)), m.marked(), 0).none()
}

func (m *mind) marked() []bool {
	full := make([]bool, len(m.points))
	for i := range m.held {
		m.held[i].mark(m.points, full)
	}
	return full
}

// without returns the mind without one limit.
func (m *mind) without(i int) *mind {
	return &mind{points: m.points, jitter: m.jitter, held: slices.Delete(slices.Clone(m.held), i, i+1)}
}

// next returns the limit that explains most of the rest, of the account or a pool.
func (m *mind) next() (best held, ok bool) {
	for _, pool := range m.pools() {
		if h, found := m.within(pool); found && (!ok || h.cost < best.cost) {
			best, ok = h, true
		}
	}
	return best, ok
}

// pools lists the account, as "", and the pools with refusals if there are several pools.
func (m *mind) pools() []string {
	refused, all := map[string]bool{}, map[string]bool{}
	for i := range m.points {
		p := &m.points[i]
		all[p.pool] = true
		if p.refused && p.pool != "" {
			refused[p.pool] = true
		}
	}
	names := []string{""}
	if len(all) < 2 {
		return names
	}
	for name := range refused {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[:min(len(names), maxPools+1)]
}

// within finds the best limit of a pool; "" is the account.
func (m *mind) within(pool string) (h held, ok bool) {
	h = held{pool: pool, mine: make([]bool, len(m.points))}
	for i := range m.points {
		h.mine[i] = pool == "" || m.points[i].pool == pool
	}
	all := newScope(m.points, h.mine, m.marked(), m.jitter).kinds()
	h.found = all[0]
	for _, f := range all[1:] {
		if f.kind != h.kind && !slices.ContainsFunc(h.others, func(o found) bool { return o.kind == f.kind }) {
			h.others = append(h.others, f)
		}
	}
	return h, !math.IsInf(h.above, 1)
}

// mark marks the attempts that the limit would have refused.
func (h *held) mark(points []point, full []bool) {
	var only []point
	for i := range points {
		if h.mine[i] {
			only = append(only, points[i])
		}
	}
	used, k := h.usage(only, nil), 0
	for i := range points {
		if h.mine[i] {
			full[i] = full[i] || used[k] > h.above
			k++
		}
	}
}

// mistakes counts the admitted attempts that are marked, and the refused ones that are not.
func mistakes(points []point, mine, full []bool) (wouldRefuse, wouldAdmit int) {
	for i := range points {
		switch {
		case mine != nil && !mine[i]:
		case full[i] && !points[i].refused:
			wouldRefuse++
		case !full[i] && points[i].refused:
			wouldAdmit++
		}
	}
	return wouldRefuse, wouldAdmit
}

// limit returns a rule of a pool as a limit.
func (m *mind) limit(h *held, f found) Limit {
	one := held{found: f, mine: h.mine}
	full := make([]bool, len(m.points))
	one.mark(m.points, full)
	l := Limit{Limit: f.limit(), Kind: f.kind, Pool: h.pool, CountsRejected: f.counted, WindowS: f.window.Seconds()}
	l.WouldRefuse, l.WouldAdmit = mistakes(m.points, h.mine, full)
	l.Text, l.Size = l.String(), float64(max(l.Count, l.Burst))
	if perSecond, ok := l.PerSecond(); ok {
		l.RatePerMin = math.Round(perSecond*60*1e6) / 1e6
		if f.slowest < perSecond/exact || f.quickest > perSecond*exact {
			l.LeastPerMin, l.MostPerMin = math.Round(f.slowest*60*1e3)/1e3, math.Round(f.quickest*60*1e3)/1e3
		}
	}
	if f.kind == scenario.Concurrency {
		l.QueuePerMin = math.Round(m.queue(h, l.Size)*60*1e3) / 1e3
	}
	l.Confidence = m.confidence(h, f)
	return l
}

// queue returns the rate, in attempts a second, of a queue with places for size attempts.
// Attempts that find it nearly full take several times as long there as those that find it
// nearly empty: as long as the attempts before them. It returns 0 if they do not.
func (m *mind) queue(h *held, size float64) float64 {
	const few, many, longer = 5, 20, 3
	var mine []point
	for i := range m.points {
		if h.mine[i] {
			mine = append(mine, m.points[i])
		}
	}
	before := make([]float64, len(mine))
	underWay(mine, before)
	var short, long, each []time.Duration
	for i := range mine {
		if mine[i].refused {
			continue
		}
		took := mine[i].end - mine[i].at
		switch {
		case before[i] < size/3:
			short = append(short, took)
		case before[i] >= size*2/3:
			long, each = append(long, took), append(each, took/time.Duration(before[i]+1))
		}
	}
	if len(short) < few || len(long) < many || middle(long) <= longer*middle(short) {
		return 0
	}
	return 1 / middle(each).Seconds()
}

// exact is the ratio up to which rates that explain the trace equally well are not
// reported.
const exact = 1.05

// confidence is the product of four factors: the share of the trace that is explained, the
// likelihood of this kind among all kinds, how often the limit was met (a half for once,
// more for each further time), and how exact the rate is. Consecutive refusals count little
// more than one.
func (m *mind) confidence(h *held, f found) float64 {
	all, blocks, refused := tally{}, 0, 0
	before := false
	for i := range m.points {
		p := &m.points[i]
		all.add(p.refused)
		if !h.mine[i] {
			continue
		}
		if p.refused {
			refused++
			if !before {
				blocks++
			}
		}
		before = p.refused
	}
	each := math.Sqrt(max(1, float64(refused)/float64(max(1, blocks))))
	sum := 0.0
	for _, o := range append(slices.Clone(h.others), h.found) {
		sum += math.Exp((f.cost - o.cost) / each)
	}
	explained := 1 - m.open()/all.surprise()
	sharp := 1.0
	if f.slowest > 0 {
		sharp = min(1, exact*exact*f.slowest/f.quickest)
	}
	return math.Round(1e3*math.Sqrt(max(0, explained))/sum*(1-math.Pow(0.5, float64(blocks)))*sharp) / 1e3
}

// limit returns the rule with the size at its cut.
func (f *found) limit() scenario.Limit {
	l := scenario.Limit{Kind: f.kind, Align: f.align, Window: f.window}
	if f.kind == scenario.TokenBucket {
		l.Rate = rateOf(f.rate)
		l.Burst = int(f.burst)
		return l
	}
	l.Count = max(1, between(math.Floor(f.low)+1, f.high))
	return l
}

// between returns the roundest whole number in a range, or the one next to it.
func between(low, high float64) int {
	low, high = math.Ceil(low), math.Floor(high)
	if low >= high {
		return int(math.Round((low + high) / 2))
	}
	x, _ := shortest(low, high)
	return int(math.Round(x))
}

// rateOf returns a rate in the unit in which it is shortest.
func rateOf(perSecond float64) scenario.Rate {
	best, digits := "", math.MaxInt
	for _, u := range []struct {
		name string
		per  float64
	}{{"s", 1}, {"min", 60}, {"h", 3600}} {
		x, n := shortest(perSecond*u.per*(1-1e-5), perSecond*u.per*(1+1e-5))
		if n < digits {
			best, digits = fmt.Sprintf("%.6f", x), n
			for best[len(best)-1] == '0' {
				best = best[:len(best)-1]
			}
			if best[len(best)-1] == '.' {
				best = best[:len(best)-1]
			}
			best += "/" + u.name
		}
	}
	r, err := scenario.ParseRate(best)
	if err != nil {
		return scenario.Rate{Count: perSecond, Per: time.Second}
	}
	return r
}
