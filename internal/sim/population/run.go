// Package population draws providers at random and runs a law on them, so that a
// law is judged by what it meets and not by scenarios that it has learned by heart.
//
// [Draw] makes one member, [Run] a population and its [Report]. Tune on one seed
// and report on others: the figures of a seed that was tuned on say nothing.
//
// # What is drawn
//
// A member is drawn for a [Family], which decides what it has for certain; each
// trouble of the other families comes with a chance of 4 %. All members draw their
// sizes alike: what the tightest limit sustains is log-uniform from 6 a minute to
// 100 a second, a window from 1 s to a day (every other one a round number, and none
// that holds more than 20,000 attempts), a burst is 1 to 5 times what the rate gives
// in a second, concurrency is 1 to 60. A median latency is 5 ms to 2 s, with a 99th
// percentile of 1.2 to 10 times that. A slow-down that is alone begins at 30 a second at
// most; a limit that strangers use holds ten attempts at least, so that not all of it is
// chance. Throttles are 429, 503 or 403, with a Retry-After
// in seconds, ms, as a date, exact, wrong, of another unit or none, and with limit
// headers or none. The owner's ceiling is above the limit nine times in ten.
//
// The families [Pools] and [Fleet] are drawn only on request, and take no turn with the
// others. A fleet has 2 to 16 members and a server that is a round trip of 0.1 to 50 ms away;
// in every other one the server is away, or cut off from some members, for up to two minutes.
// Beside its figures stand those of one process with the work of all. Pools are two to
// five pools, each with a limit of its own, and in every other member one of the
// account. What the limits of such a member sustain is that of all pools together.
//
// # The horizon
//
// A member lasts an hour, or four of its longest windows, or the time for 3000
// attempts at the rate that its tightest limit sustains, whichever is longest; pauses
// come on top. So the slowest limits are seen long enough, and no member has more than
// some 360,000 admissions.
//
// # The bound
//
// Beside a law stands the informed client of sim.Player.Informed, which knows everything
// of a member but the sizes of its limits, and has the best of twelve margins in
// hindsight. What a law lacks compared with it, the law could still win; what it lacks
// itself compared with 1 is the price of chance: arrivals that jitter, strangers that
// nobody sees. It is a client that can be built, not an upper bound: in a few members a
// law may be ahead of it.
//
// # Reproduction
//
// A member is what its scenario file says: [Member.File] written out and run alone,
// with the seed that its comment names, gives the same result. The same seed gives the
// same bytes, whatever runs side by side.
//
// Do not use it to learn how a law fares with one provider: write a scenario.
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

// Options is what is drawn and run.
type Options struct {
	// Seed decides everything. 0 is a seed like any other.
	Seed uint64
	// N is how many members; at least 1, at most MaxMembers.
	N int
	// Family draws members of one family alone; "" draws all.
	Family Family
	// Bound plays the informed client too, beside which a law's figures can be
	// judged; it takes longer than the law.
	Bound bool
	// Law is the control law by name; default control.DefaultLaw.
	Law string
	// Workers is how many members are run side by side; default the number of CPUs.
	Workers int
	// Progress is called after each member, with how many are done, by one
	// goroutine at a time; nil says nothing.
	Progress func(done int)
}

// MaxMembers is the largest population.
const MaxMembers = 100_000

// Outcome is how one member went.
type Outcome struct {
	Number int    `json:"number"`
	Family Family `json:"family"`
	// Seed is what the member's scenario was run with.
	Seed uint64 `json:"seed"`
	Figures
	// Bound is the informed client's, with the best of its margins; null where it
	// was not played.
	Bound *Figures `json:"bound"`
	// Margin is that best one.
	Margin *sim.Margin `json:"bound_margin"`
	// Alone is one process with the work of a fleet, and Overshoot by how much the fleet and
	// that process exceeded a limit in the worst of its windows; absent for other families.
	Alone     *Figures   `json:"alone,omitempty"`
	Overshoot *Overshoot `json:"overshoot,omitempty"`
}

// Overshoot is by how much attempts exceeded a limit, as a part of it.
type Overshoot struct {
	Fleet float64 `json:"fleet"`
	Alone float64 `json:"alone"`
}

// Figures are a client's in one member.
type Figures struct {
	// Goodput is what was admitted as a part of the clairvoyant client's, at most 1.
	Goodput   float64 `json:"goodput"`
	Admitted  int64   `json:"admitted"`
	Throttled int64   `json:"throttled"`
	// Per1000 is Throttled for each 1000 admitted, as if one had been where none was.
	Per1000 float64 `json:"throttled_per_1000"`
	// To90S is null when it never got there.
	To90S     *float64 `json:"time_to_90pct_s"`
	Jain      *float64 `json:"fairness_jain"`
	Suspended bool     `json:"suspended"`
	// Violations of the ceiling.
	Violations int64 `json:"ceiling_violations"`
	// Blocks of a penalty that began, and those in which there was another refusal.
	Blocks       int64 `json:"blocks"`
	BlocksPushed int64 `json:"blocks_pushed"`
}

// FiguresOf are those of a run; what has no value counts as nothing got.
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

// Run draws a population and runs a law on it. The same options give the same
// report, however many workers there are.
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

// member draws one and runs it.
func (o *Options) member(number int) (Outcome, error) {
	m, err := Draw(o.Seed, number, o.Family)
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

// alone notes how one process fared with the work of a fleet.
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

// Target is one that a law is held against.
type Target struct {
	Target string `json:"target"`
	// Figure is what was measured, for a person.
	Figure string `json:"figure"`
	Met    bool   `json:"met"`
}

// The targets, where the informed client was played and all families were drawn.
const (
	barGoodput       = 0.96 // of the informed client's, in the mean
	barFamilyGoodput = 0.90 // in each family
	barWorst         = 0.85 // of the worst twentieth
	barPer1000       = 3    // mean
	barMedian        = 1
	barPooled        = 1
	barQuiet         = 0.95
	barJain          = 0.95
	barUnpushed      = 0.9
)

// percent is a share in percent.
func percent(x *float64) string {
	if x == nil {
		return unknown
	}
	return decimals(100**x, 1) + " %"
}

// targets are nil where they cannot be judged.
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
