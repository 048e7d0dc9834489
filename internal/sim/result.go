// Package sim answers how a control law would fare against a provider, without
// a provider: it runs the production state machine, [pacing.Core], against
// the model in package sim/provider, in virtual time, and compares what it got
// with what a clairvoyant client would have had ([NewOracle]).
//
// [Run] is one scenario under one law, [Compare] many under several,
// [WriteTable] and [WriteSVG] show them. A [Ledger] draws up the same figures
// for clients of any other make, as long as they talk to the same model.
//
// # One run
//
// Each client has a Core of its own, seeded from the run's seed and its place,
// with the scenario's ceiling, initial interval and bound in flight, and with
// the defaults for the rest: the circuit breaker is in place, as in production.
// With `fleet: true` there is one Core for all of them, as if they were one process: it
// paces the sum, its bound in flight is the sum of theirs, and they take turns. With
// `fleet: {trip: 2ms}` they are members of a fleet: the same cores that run in production,
// of members and server, exchange messages that take half of trip each, and faults of the
// link keep them from it. The result then has the figures of one process beside. A client asks when it has
// something to send, again at the instant that a refusal named, and again after
// every outcome, since that may have changed the answer; it has one question
// pending at most. Work that was refused or met a fault goes back to the head of
// the line; work that was rejected (a suspended account) is dropped, as in
// production.
//
// An attempt reaches the provider after its uplink time. A refusal is back
// after twice that, an admission after its whole latency. Only what reaches the
// provider before the horizon counts, for the client and the oracle alike.
//
// # Bulk loads
//
// [RunBulk], [CompareBulk], [WriteBulkTable] and [WriteBulkSVG] do the same for
// scenarios whose workload is bulk: a number of rows is loaded in batches by
// bulk/dispatch, the core that a real load runs. Each user has a model of the
// provider of its own, since the limits are a user's. What is compared there is
// how many batches are in flight, so the laws are others, "fixed:N" among them,
// and the yardstick is the best of those instead of an oracle.
//
// How long a batch takes is decided when it reaches the provider, from its rows
// and from what is worked on already. Its execution time is charged then.
//
// # Time and chance
//
// Instants are durations since the scenario's start. Nothing here reads a
// clock, sleeps or starts a goroutine. Everything random comes from the seed,
// events of one instant happen in the order in which they were planned, and no
// map is walked: the same scenario, law and seed give the same bytes.
//
// Do not use it to predict a provider whose limits you do not know: it answers
// for the model only. A run is for one goroutine; runs may go side by side.
package sim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/sim/fit"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// Result is what came of a run. Its JSON has these fields in this order; what
// is unknown, or has no meaning for the scenario, is null and never 0.
type Result struct {
	// Scenario, Law and Seed are what was run.
	Scenario string `json:"scenario"`
	Law      string `json:"law"`
	Seed     uint64 `json:"seed"`
	// HorizonS is how long it lasted, in seconds.
	HorizonS float64 `json:"horizon_s"`
	// Attempts reached the provider before the horizon. They are the sum of
	// Admitted, Throttled and those that met a fault or a suspension.
	Attempts int64 `json:"attempts"`
	// Admitted were served.
	Admitted int64 `json:"admitted"`
	// Throttled were refused by a limit or by the block of a penalty. An
	// outage, a reset and a suspension are not throttles.
	Throttled int64 `json:"throttled"`
	// ThrottledPer1000 is Throttled for each 1000 admitted; null when none was
	// admitted.
	ThrottledPer1000 *float64 `json:"throttled_per_1000"`
	// GoodputRatio is Admitted as a part of what the [Oracle] is admitted, at
	// most 1; null when the oracle gets nothing.
	GoodputRatio *float64 `json:"goodput_ratio"`
	// TimeTo90PctS is the first whole second at which the clients were admitted,
	// over the trailing window, at least 90 % of what the oracle was over the
	// same window; null when that never happened. The window is 10 s, or the
	// longest window of the limits, or the time in which the oracle is admitted
	// 20 on average, whichever is longest; it begins no earlier than the run. A
	// window in which the oracle gets nothing says nothing.
	TimeTo90PctS *float64 `json:"time_to_90pct_s"`
	// LongestBlockS is the longest time in which no client was admitted though
	// one of them had work, in seconds: from the last admission, the arrival of
	// work after idling or the start, until the next admission or the horizon.
	LongestBlockS float64 `json:"longest_block_s"`
	// WaitP50MS and WaitP99MS are percentiles, by nearest rank, of how long work
	// waited until the provider admitted it, in milliseconds: from its arrival
	// (open), or from when it was next in line (backlog), over all its attempts;
	// null when nothing was admitted.
	WaitP50MS *float64 `json:"wait_p50_ms"`
	WaitP99MS *float64 `json:"wait_p99_ms"`
	// Suspended is whether the provider suspended the account: the run has failed.
	Suspended bool `json:"suspended"`
	// ThrottlesPerChange is the mean number of throttles in the 5 minutes after
	// a change of the limits (of one that takes a time: during it and in the 5
	// minutes after), or until the next change when that is sooner;
	// null without changes.
	ThrottlesPerChange *float64 `json:"throttles_per_change"`
	// StrangersHarm is how many more strangers were refused than if the clients
	// had not been there, at least 0; null without strangers.
	StrangersHarm *int64 `json:"strangers_harm"`
	// CeilingViolations counts attempts that left less than the ceiling after
	// the one before, under the same ceiling. The ledger counts them itself,
	// from the instants alone.
	CeilingViolations int64 `json:"ceiling_violations"`
	// FairnessJain is Jain's index of the clients' admissions, from 1/n to 1;
	// null for a single client and when nothing was admitted.
	FairnessJain *float64 `json:"fairness_jain"`
	// Belief is what the law of the first client, or of the fleet, holds the
	// limit to be at the end; null for a law that holds no belief.
	Belief *Belief `json:"belief"`

	// Fleet has what is particular to a fleet with a link; absent otherwise.
	Fleet *FleetResult `json:"fleet,omitempty"`

	// Pools are the figures of each pool, in the order of the scenario.
	Pools []PoolResult `json:"pools,omitempty"`

	// Notes say what of the scenario had no effect, in a sentence each.
	Notes []string `json:"notes,omitempty"`

	// Blocks is how many blocks of a penalty began, and BlocksPushed in how many of
	// those another attempt was refused.
	Blocks       int64 `json:"-"`
	BlocksPushed int64 `json:"-"`
	// Trace is the course of the run; nil unless it was asked for.
	Trace *Trace `json:"-"`
}

// PoolResult is what came of the attempts of one pool.
type PoolResult struct {
	Name      string `json:"name"`
	Admitted  int64  `json:"admitted"`
	Throttled int64  `json:"throttled"`
	// GoodputRatio is Admitted as a part of what the [Oracle] is admitted in the pool, at
	// most 1; null when it gets nothing.
	GoodputRatio *float64 `json:"goodput_ratio"`
}

// Belief is what a law thinks that it faces.
type Belief struct {
	// Kind is the kind of limit, in the words of scenario.Kind.
	Kind string `json:"kind"`
	// Limit is its size, in attempts a window; 0 when it is not known.
	Limit float64 `json:"limit"`
	// WindowS is the length of its window in seconds; 0 for a limit without one.
	WindowS float64 `json:"window_s"`
	// Confidence is from 0 to 1.
	Confidence float64 `json:"confidence"`
}

// JSON is the result as indented JSON with a newline at its end: the same bytes
// for the same result.
func (r *Result) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// Compare runs every scenario under every law with one seed: the results are in
// the order of the scenarios, and within a scenario in that of the laws. The
// oracle is asked once a scenario. The first error ends it.
func Compare(scenarios []*scenario.Scenario, laws []string, seed uint64) ([]Result, error) {
	results := make([]Result, 0, len(scenarios)*len(laws))
	for _, s := range scenarios {
		p, err := NewPlayer(s, seed)
		if err != nil {
			return nil, err
		}
		for _, law := range laws {
			r, err := p.Run(law)
			if err != nil {
				return nil, err
			}
			results = append(results, r)
		}
	}
	return results, nil
}

// percentile is by nearest rank, of instants in order; p is from 1 to 100.
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// jain is the fairness index of R. Jain, D. Chiu and W. Hawe (1984): 1 when all
// get the same, 1/n when one gets everything. Something must have been got.
func jain(shares []int64) float64 {
	sum, squares := 0.0, 0.0
	for _, n := range shares {
		x := float64(n)
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// trailing is the window over which rates are compared: long enough for the
// longest window of the limits, and for 20 of the oracle's admissions.
func trailing(s *scenario.Scenario, best int) time.Duration {
	return min(s.Horizon, max(10*time.Second, maxWindow(s), time.Duration(20*float64(s.Horizon)/float64(best))))
}

func maxWindow(s *scenario.Scenario) (window time.Duration) {
	for _, l := range s.Provider.EachLimit {
		window = max(window, l.Window)
	}
	return window
}

// caughtUp is the first whole second at which the client was admitted at least
// 90 % of what the oracle was, which was something, over the trailing window.
func caughtUp(client, oracle []time.Duration, window, horizon time.Duration) (at time.Duration, ok bool) {
	var c, o span
	for at = time.Second; at <= horizon; at += time.Second {
		got, best := c.count(client, at-window, at), o.count(oracle, at-window, at)
		if best > 0 && 10*got >= 9*best {
			return at, true
		}
	}
	return 0, false
}

// span counts the instants of a stretch that only moves forward.
type span struct{ from, to int }

// count is how many of the instants are in [from, to).
func (s *span) count(instants []time.Duration, from, to time.Duration) int {
	for s.to < len(instants) && instants[s.to] < to {
		s.to++
	}
	for s.from < s.to && instants[s.from] < from {
		s.from++
	}
	return s.to - s.from
}

// round keeps some decimals, so that results can be read.
func round(x float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Round(x*scale) / scale
}

func seconds(d time.Duration) float64 { return round(d.Seconds(), 3) }

func millis(d time.Duration) float64 { return round(float64(d)/float64(time.Millisecond), 3) }

// unknown stands in a table for what has no value: never 0.
const unknown = "-"

// texts is how many of the first columns are aligned to the left.
const texts = 2

// column is one figure of a table.
type column[R any] struct {
	name string
	cell func(*R) string
}

// columns are the figures of the table.
var columns = []column[Result]{
	{"scenario", func(r *Result) string { return r.Scenario }},
	{"law", func(r *Result) string { return r.Law }},
	{"goodput", func(r *Result) string { return known(r.GoodputRatio, 3, "") }},
	{"thr/1000", func(r *Result) string { return known(r.ThrottledPer1000, 2, "") }},
	{"admitted", func(r *Result) string { return strconv.FormatInt(r.Admitted, 10) }},
	{"throttled", func(r *Result) string { return strconv.FormatInt(r.Throttled, 10) }},
	{"to 90 %", func(r *Result) string { return known(r.TimeTo90PctS, 0, " s") }},
	{"block", func(r *Result) string { return known(&r.LongestBlockS, 1, " s") }},
	{"wait p50", func(r *Result) string { return known(r.WaitP50MS, 0, " ms") }},
	{"wait p99", func(r *Result) string { return known(r.WaitP99MS, 0, " ms") }},
	{"thr/change", func(r *Result) string { return known(r.ThrottlesPerChange, 1, "") }},
	{"harm", func(r *Result) string {
		if r.StrangersHarm == nil {
			return unknown
		}
		return strconv.FormatInt(*r.StrangersHarm, 10)
	}},
	{"jain", func(r *Result) string { return known(r.FairnessJain, 3, "") }},
	{"failed", func(r *Result) string {
		switch {
		case r.CeilingViolations > 0:
			return strconv.FormatInt(r.CeilingViolations, 10) + " over the ceiling"
		case r.Suspended:
			return "suspended"
		}
		return "no"
	}},
}

func known(x *float64, decimals int, unit string) string {
	if x == nil {
		return unknown
	}
	return strconv.FormatFloat(*x, 'f', decimals, 64) + unit
}

// bulkColumns are the figures of the table of bulk loads.
var bulkColumns = []column[BulkResult]{
	{"scenario", func(r *BulkResult) string { return r.Scenario }},
	{"law", func(r *BulkResult) string { return r.Law }},
	{"rows/s", func(r *BulkResult) string { return known(&r.RowsPerS, 1, "") }},
	{"elapsed", func(r *BulkResult) string { return known(&r.ElapsedS, 0, " s") }},
	{"batches", func(r *BulkResult) string { return strconv.FormatInt(r.Batches, 10) }},
	{"throttled", func(r *BulkResult) string { return strconv.FormatInt(r.Throttled, 10) }},
	{"thr/1000", func(r *BulkResult) string { return known(r.ThrottledPer1000, 2, "") }},
	{"mean", func(r *BulkResult) string { return known(&r.ParallelismMean, 2, "") }},
	{"max", func(r *BulkResult) string { return strconv.Itoa(r.ParallelismMax) }},
	{"retry-after", func(r *BulkResult) string { return known(&r.RetryAfterS, 0, " s") }},
	{"longest", func(r *BulkResult) string { return known(&r.LongestRetryAfterS, 0, " s") }},
	{"owed", func(r *BulkResult) string { return strconv.FormatInt(r.Owed, 10) }},
	{"ended", func(r *BulkResult) string { return r.Ended() }},
}

// WriteTable writes the results for a person: a line each, in aligned columns, and below it
// what is particular to fleets with a link.
func WriteTable(w io.Writer, results []Result) error {
	err := writeTable(w, columns, results)
	for i := range results {
		if r := &results[i]; err == nil && r.Fleet != nil {
			_, err = io.WriteString(w, r.fleetText())
		}
	}
	return err
}

// fleetText says what is particular to a fleet.
func (r *Result) fleetText() string {
	f, percent := r.Fleet, func(x *float64) string {
		if x == nil {
			return unknown
		}
		return known(new(100**x), 2, " %")
	}
	return fmt.Sprintf("%s, %s: %d members, %s messages/s, overshoot %s; one process alone: goodput %s, %s refused per 1000, overshoot %s\n",
		r.Scenario, r.Law, f.Members, known(&f.MessagesPerS, 0, ""), percent(f.Overshoot),
		known(f.Alone.GoodputRatio, 3, ""), known(f.Alone.ThrottledPer1000, 2, ""), percent(f.Alone.Overshoot))
}

// WriteBulkTable is [WriteTable] for bulk loads: mean and max are of the batches
// in flight, retry-after is the sum and longest the longest of the waits.
func WriteBulkTable(w io.Writer, results []BulkResult) error {
	return writeTable(w, bulkColumns, results)
}

func writeTable[R any](w io.Writer, columns []column[R], results []R) error {
	rows := make([][]string, len(results)+1)
	widths := make([]int, len(columns))
	for i, c := range columns {
		rows[0] = append(rows[0], c.name)
		for r := range results {
			rows[r+1] = append(rows[r+1], c.cell(&results[r]))
		}
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case i == len(row)-1:
				b.WriteString("  " + cell)
			case i < texts:
				b.WriteString(cell + pad + "  ")
			default:
				b.WriteString(pad + cell)
				if i < len(row)-2 {
					b.WriteString("  ")
				}
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Options say how a scenario is run.
type Options struct {
	// Law is the control law by name, one of control.Names. Default
	// control.DefaultLaw.
	Law string
	// Seed decides everything that is left to chance. 0 is a seed like any other.
	Seed uint64
	// Trace keeps what a plot needs, in [Result.Trace].
	Trace bool
	// MaxAttempts bounds the run, and its oracle, where that is less than the constant of
	// that name; 0 is the constant.
	MaxAttempts int
	// Stop ends the run, and its oracle, with its error as soon as it has one. It is called
	// again and again; nil never ends it.
	Stop func() error
	// OnAttempt is called with each attempt that reaches the provider, in the order in
	// which they do; nil is not.
	OnAttempt func(fit.Attempt)
}

// Player runs one scenario with one seed under any number of laws. It asks the oracle
// only once.
type Player struct {
	s      *scenario.Scenario
	seed   uint64
	oracle *Oracle
}

// NewPlayer asks the oracle. The scenario must come from scenario.Parse.
func NewPlayer(s *scenario.Scenario, seed uint64) (*Player, error) {
	oracle, err := NewOracle(s, seed)
	if err != nil {
		return nil, err
	}
	return &Player{s: s, seed: seed, oracle: oracle}, nil
}

// Oracle is what the clairvoyant client is admitted.
func (p *Player) Oracle() *Oracle { return p.oracle }

// Run is [Run] under a law, with the player's seed.
func (p *Player) Run(law string) (Result, error) {
	return run(p.s, Options{Law: law, Seed: p.seed}, p.oracle)
}

// Run plays a scenario, which must come from scenario.Parse or scenario.Load.
// It is an error when the law is unknown, when the scenario cannot be modelled
// and when it takes more than [MaxAttempts].
func Run(s *scenario.Scenario, o Options) (Result, error) {
	oracle, err := newOracle(s, o.Seed, bounds{o.MaxAttempts, o.Stop})
	if err != nil {
		return Result{}, err
	}
	return run(s, o, oracle)
}

func run(s *scenario.Scenario, o Options, oracle *Oracle) (Result, error) {
	o.Law = cmp.Or(o.Law, control.DefaultLaw)
	ledger := NewLedger(s, o.Law, o.Seed)
	if o.Trace {
		ledger.KeepTrace()
	}
	e, err := newEngine(s, o.Law, o.Seed, ledger)
	if err != nil {
		return Result{}, err
	}
	e.onAttempt, e.bounds = o.OnAttempt, bounds{o.MaxAttempts, o.Stop}
	if err := e.run(); err != nil {
		return Result{}, err
	}
	r := ledger.Result(oracle, e.model)
	if e.hub != nil {
		if r.Fleet, err = e.hub.result(o, oracle); err != nil {
			return Result{}, err
		}
	}
	r.Blocks, r.BlocksPushed = e.model.Blocks()
	if b := e.belief(); b.Kind != control.Unknown {
		r.Belief = &Belief{Kind: b.Kind.String(), Limit: round(b.Limit, 4), WindowS: seconds(b.Window), Confidence: round(b.Confidence, 4)}
	}
	return r, nil
}

// belief is what the law of the first line believes; unknown if it has no belief.
func (e *engine) belief() control.Belief {
	if g, ok := e.lines[0].pacer.(*governed); ok {
		return g.Belief()
	}
	return control.Belief{}
}

var errNoScenario = errors.New("sim: no scenario")
