// Package population draws random providers and runs a law on them, so that a law is judged
// by more than the scenarios for which it was tuned.
//
// [Draw] draws one member, and [Run] runs a population and returns its [Report]. Tune on
// one seed and report on others: figures for a seed used in tuning mean nothing.
//
// # What is drawn
//
// A member is drawn for a [Family], which determines one property; each trouble of other
// families has a chance of 4 %. The sizes are drawn the same way for all members: the
// tightest limit sustains a log-uniform rate from 6 a minute to 100 a second, a window is
// from 1 s to a day (every other one is round, and none holds more than 20,000 attempts), a
// burst is 1 to 5 times the attempts of a second, and concurrency is 1 to 60. The median
// latency is 5 ms to 2 s, with a 99th percentile of 1.2 to 10 times that. A slow-down as
// the only limit starts at 30 a second at most. A limit that strangers use holds at least
// ten attempts, so that not everything is chance. Throttles are 429, 503 or 403, with a
// Retry-After in seconds, ms, as a date, exact, wrong, in another unit or none, and with or
// without limit headers. The owner's ceiling is above the limit nine times in ten.
//
// The families [Pools] and [Fleet] are drawn only on request. A fleet has 2 to 16 members
// and a server with a round trip of 0.1 to 50 ms. For every other member the server is
// away, or cut off from some clients, for up to two minutes. The report also has the
// figures of one process with all the work. Pools are two to five pools, each with a limit
// of its own, and for every other member a limit of the account. The sustained rate of such
// a member is that of all pools together.
//
// # The horizon
//
// A member lasts an hour, four of its longest windows, or the time for 3000 attempts at the
// rate that its tightest limit sustains, whichever is longest; pauses are added. So the
// slowest limits are observed long enough, and no member has more than about 360,000
// admissions.
//
// # The bound
//
// A law is compared with the informed client of sim.Player.Informed, which knows everything
// about a member but the sizes of its limits, and has the best of twelve margins in
// hindsight. The difference between them is what the law could still gain; the difference
// between the informed client and 1 is the cost of chance: arrivals that jitter, and
// strangers. The informed client is not an upper bound: for a few members a law may be
// better.
//
// # Reproduction
//
// A member is exactly its scenario file: [Member.File], run alone with the seed in its
// comment, gives the same result. The same seed gives the same bytes, whatever the number
// of workers.
//
// To see how a law performs with one provider, write a scenario.
package population

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/sim"
)

// Options select what is drawn and run.
type Options struct {
	// Seed determines everything. 0 is a seed like any other.
	Seed uint64
	// N is the number of members, from 1 to MaxMembers.
	N int
	// Family draws members of one family only; "" draws all.
	Family Family
	// Bound also runs the informed client, for comparison. It takes longer than the law.
	Bound bool
	// Law is the name of the control law; default control.DefaultLaw.
	Law string
	// Passive starts each client without pacing, until the provider first refuses an attempt
	// or advertises a limit.
	Passive bool
	// Workers is the number of members that run concurrently; default the number of CPUs.
	Workers int
	// Progress, if not nil, is called after each member with the number of finished ones,
	// by one goroutine at a time.
	Progress func(done int)
}

// MaxMembers is the size of the largest population.
const MaxMembers = 100_000

// Outcome is the result of one member.
type Outcome struct {
	Number int    `json:"number"`
	Family Family `json:"family"`
	// Seed is the seed with which the member's scenario was run.
	Seed uint64 `json:"seed"`
	Figures
	// Bound has the informed client's figures with its best margin; null if it was not run.
	Bound *Figures `json:"bound"`
	// Margin is that margin.
	Margin *sim.Margin `json:"bound_margin"`
	// Alone has the figures of one process with the work of a fleet, and Overshoot how much
	// the fleet and that process exceeded a limit in the worst of its windows; absent for
	// other families.
	Alone     *Figures   `json:"alone,omitempty"`
	Overshoot *Overshoot `json:"overshoot,omitempty"`
}

// Overshoot is the excess over a limit, as a part of it.
type Overshoot struct {
	Fleet float64 `json:"fleet"`
	Alone float64 `json:"alone"`
}

// Figures are a client's figures for one member.
type Figures struct {
	// Goodput is the admissions as a part of the clairvoyant client's, at most 1.
	Goodput   float64 `json:"goodput"`
	Admitted  int64   `json:"admitted"`
	Throttled int64   `json:"throttled"`
	// Per1000 is Throttled per 1000 admitted, computed with at least one admitted.
	Per1000 float64 `json:"throttled_per_1000"`
	// To90S is null if it was never reached.
	To90S     *float64 `json:"time_to_90pct_s"`
	Jain      *float64 `json:"fairness_jain"`
	Suspended bool     `json:"suspended"`
	// Violations counts violations of the ceiling.
	Violations int64 `json:"ceiling_violations"`
	// Blocks counts blocks of a penalty, and Pushed those with another refusal.
	Blocks       int64 `json:"blocks"`
	BlocksPushed int64 `json:"blocks_pushed"`
}

// FiguresOf returns the figures of a run. A figure without a value counts as the worst.
func FiguresOf(r *sim.Result) Figures {
	f := Figures{
		Admitted: r.Admitted, Throttled: r.Throttled,
		Per1000: 1000 * float64(r.Throttled) / float64(max(1, r.Admitted)),
		To90S:   r.TimeTo90PctS, Jain: r.FairnessJain, Suspended: r.Suspended, Violations: r.CeilingViolations,
		Blocks: r.Blocks, BlocksPushed: r.BlocksPushed,
	}
	if r.GoodputRatio != nil {
		f.Goodput = *r.GoodputRatio
	}
	return f
}

// Run draws a population and runs a law on it. The same options give the same report,
// whatever the number of workers.
func Run(o Options) (*Report, error) {
	if o.N < 1 || o.N > MaxMembers {
		return nil, fmt.Errorf("population: %d members, must be from 1 to %d", o.N, MaxMembers)
	}
	o.Law = cmp.Or(o.Law, control.DefaultLaw)
	if o.Workers < 1 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	outcomes, errs := make([]Outcome, o.N), make([]error, o.N)
	var (
		next  atomic.Int64
		wait  sync.WaitGroup
		mu    sync.Mutex
		count int
	)
	for range min(o.Workers, o.N) {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= o.N {
					return
				}
				outcomes[i], errs[i] = o.member(i)
				mu.Lock()
				if count++; o.Progress != nil {
					o.Progress(count)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return Sum(o, outcomes), nil
}

// Draw draws one member, with the start that the options say.
func (o *Options) Draw(number int) (Member, error) {
	m, err := Draw(o.Seed, number, o.Family)
	if err == nil && o.Passive {
		m.Scenario.Owner.Passive = true
	}
	return m, err
}

// member draws and runs one member.
func (o *Options) member(number int) (Outcome, error) {
	m, err := o.Draw(number)
	if err != nil {
		return Outcome{}, err
	}
	player, err := sim.NewPlayer(m.Scenario, m.Seed)
	if err != nil {
		return Outcome{}, err
	}
	r, err := player.Run(o.Law)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Number: number, Family: m.Family, Seed: m.Seed, Figures: FiguresOf(&r)}
	if f := r.Fleet; f != nil {
		out.alone(f)
	}
	if o.Bound {
		b, margin, err := player.Informed()
		if err != nil {
			return Outcome{}, err
		}
		out.Bound, out.Margin = new(FiguresOf(&b)), &margin
	}
	return out, nil
}

// alone records the result of one process with the work of a fleet.
func (m *Outcome) alone(f *sim.FleetResult) {
	m.Alone = &Figures{
		Admitted: f.Alone.Admitted, Throttled: f.Alone.Throttled,
		Per1000: 1000 * float64(f.Alone.Throttled) / float64(max(1, f.Alone.Admitted)), To90S: f.Alone.TimeTo90PctS,
	}
	if f.Alone.GoodputRatio != nil {
		m.Alone.Goodput = *f.Alone.GoodputRatio
	}
	if f.Overshoot != nil && f.Alone.Overshoot != nil {
		m.Overshoot = &Overshoot{Fleet: *f.Overshoot, Alone: *f.Alone.Overshoot}
	}
}

// Target is a target for laws.
type Target struct {
	Target string `json:"target"`
	// Figure is the measured figure, as text.
	Figure string `json:"figure"`
	Met    bool   `json:"met"`
}

// The targets, if the informed client was run on all families.
const (
	barGoodput       = 0.96 // of the informed client's mean
	barFamilyGoodput = 0.90 // in each family
	barWorst         = 0.85 // of the worst twentieth
	barPer1000       = 3    // mean
	barMedian        = 1
	barPooled        = 1
	barQuiet         = 0.95
	barJain          = 0.95
	barUnpushed      = 0.9
)

// percent formats a share in percent.
func percent(x *float64) string {
	if x == nil {
		return unknown
	}
	return decimals(100**x, 1) + " %"
}

// targets returns nil if they cannot be judged.
func (r *Report) targets() []Target {
	if r.All.Bound == nil || r.Family != "" {
		return nil
	}
	law, bound := &r.All.Law, r.All.Bound
	var ts []Target
	add := func(met bool, target, figure string, args ...any) {
		ts = append(ts, Target{target, fmt.Sprintf(figure, args...), met})
	}
	against := func(bar float64, what string, got, of float64) {
		add(got >= bar*of, fmt.Sprintf("%s >= %.2f of the bound's", what, bar), "%.3f of %.3f, %.3f", got, of, got/of)
	}
	against(barGoodput, "mean goodput", law.Goodput, bound.Goodput)
	var lowest *Group
	for i := range r.Families {
		g := &r.Families[i]
		if lowest == nil || g.Law.Goodput*lowest.Bound.Goodput < lowest.Law.Goodput*g.Bound.Goodput {
			lowest = g
		}
	}
	against(barFamilyGoodput, "mean goodput of each family", lowest.Law.Goodput, lowest.Bound.Goodput)
	ts[len(ts)-1].Figure += " in " + string(lowest.Family)
	against(barWorst, "worst twentieth's goodput", law.WorstTwentieth, bound.WorstTwentieth)
	add(law.Per1000 <= barPer1000, fmt.Sprintf("mean refusals per 1000 <= %d", barPer1000), "%.2f, the bound's %.2f", law.Per1000, bound.Per1000)
	add(law.Per1000Median <= barMedian, fmt.Sprintf("median refusals per 1000 <= %d", barMedian), "%.2f, the bound's %.2f", law.Per1000Median, bound.Per1000Median)
	add(law.Per1000Pooled <= barPooled, fmt.Sprintf("pooled refusals per 1000 <= %d", barPooled), "%.2f, the bound's %.2f", law.Per1000Pooled, bound.Per1000Pooled)
	add(law.Quiet >= barQuiet, fmt.Sprintf("members with at most %d per 1000 or %d refusals >= %.0f %%", quietPer1000, quietInAll, 100*barQuiet),
		"%.1f %%, the bound's %.1f %%", 100*law.Quiet, 100*bound.Quiet)
	add(law.Suspended == 0, "no suspension", "%d", law.Suspended)
	add(law.Violations == 0, "no violation of the ceiling", "%d", law.Violations)
	for i := range r.Families {
		switch g := &r.Families[i]; {
		case g.Family == ClientsApart && g.Law.Jain != nil:
			add(*g.Law.Jain >= barJain, fmt.Sprintf("clients apart: Jain >= %.2f", barJain), "%.3f, the bound's %s", *g.Law.Jain, known(g.Bound.Jain, 3, ""))
		case g.Family == Ban && g.Law.Unpushed != nil:
			add(*g.Law.Unpushed >= barUnpushed, fmt.Sprintf("bans without a second refusal before their end >= %.0f %%", 100*barUnpushed),
				"%.1f %%, the bound's %s", 100**g.Law.Unpushed, percent(g.Bound.Unpushed))
		}
	}
	return ts
}
