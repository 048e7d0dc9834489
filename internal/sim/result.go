// Package sim simulates a control law against a provider. It runs the production state
// machine, [pacing.Core], against the model in package sim/provider in virtual time, and
// compares the result with a clairvoyant client's ([NewOracle]).
//
// [Run] runs one scenario under one law, [Compare] many under several, and [WriteTable] and
// [WriteSVG] show the results. A [Ledger] computes the same figures for other clients of
// the same model.
//
// # One run
//
// Each client has its own Core, seeded from the run's seed and its position, with the
// scenario's ceiling, initial interval and bound on attempts in flight. Everything else has
// its default, including the circuit breaker, as in production. With `fleet: true` all
// clients have one Core, as if they were one process: it paces the sum, its bound in flight
// is the sum of theirs, and they take turns. With `fleet: {trip: 2ms}` they are members of
// a fleet: the same cores as in production, of members and server, exchange messages that
// take half of trip each, and faults of the link interrupt them. The result then also has
// the figures of one process.
//
// A client asks when it has something to send, again at the instant that the answer named,
// and again after every outcome, which may have changed the answer; it has at most one
// pending question. Work that was refused or met a fault goes back to the head of the line;
// rejected work (of a suspended account) is dropped, as in production.
//
// An attempt reaches the provider after its uplink time. A refusal returns after twice
// that, an admission after its whole latency. Only attempts that reach the provider before
// the horizon count, for the client and the oracle alike.
//
// # Bulk loads
//
// [RunBulk], [CompareBulk], [WriteBulkTable] and [WriteBulkSVG] do the same for scenarios
// whose workload is bulk: rows are loaded in batches by internal/dispatch, the core of real
// loads. Each user has its own model of the provider, since the limits are per user. The
// laws control the number of batches in flight, so they are other laws, including
// "fixed:N", and results are compared with the best of those instead of an oracle.
//
// The duration of a batch is decided when it reaches the provider, from its rows and the
// batches in execution. Its execution time is charged then.
//
// # Time and chance
//
// Instants are durations since the scenario's start. Nothing here reads a clock, sleeps or
// starts a goroutine. All random numbers come from the seed, events at one instant happen
// in the order in which they were planned, and no map is iterated: the same scenario, law
// and seed give the same bytes.
//
// The results are about the model. Do not use them to predict a provider whose limits you
// do not know. A run must not be used concurrently; runs may be concurrent.
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

// Result is the result of a run. Its JSON has these fields in this order. A figure that is
// unknown, or meaningless for the scenario, is null and never 0.
type Result struct {
	// Scenario, Law and Seed identify the run.
	Scenario string `json:"scenario"`
	Law      string `json:"law"`
	Seed     uint64 `json:"seed"`
	// HorizonS is the duration, in seconds.
	HorizonS float64 `json:"horizon_s"`
	// Attempts counts attempts that reached the provider before the horizon: the Admitted,
	// the Throttled and those that met a fault or a suspension.
	Attempts int64 `json:"attempts"`
	// Admitted counts attempts that were served.
	Admitted int64 `json:"admitted"`
	// Throttled counts attempts refused by a limit or by the block of a penalty, but not by
	// an outage, a reset or a suspension.
	Throttled int64 `json:"throttled"`
	// ThrottledPer1000 is Throttled per 1000 admitted; null if none was admitted.
	ThrottledPer1000 *float64 `json:"throttled_per_1000"`
	// GoodputRatio is Admitted as a part of the [Oracle]'s admissions, at most 1; null if
	// the oracle has none.
	GoodputRatio *float64 `json:"goodput_ratio"`
	// TimeTo90PctS is the first whole second at which the clients' admissions in the
	// trailing window were at least 90 % of the oracle's in the same window; null if that
	// never happened. The window is 10 s, the longest window of the limits, or the mean
	// time of 20 oracle admissions, whichever is longest. It begins no earlier than the
	// run, and a window without oracle admissions does not count.
	TimeTo90PctS *float64 `json:"time_to_90pct_s"`
	// LongestBlockS is the longest time without an admission of a client that had work, in
	// seconds: from the last admission, the arrival of work after idling or the start,
	// until the next admission or the horizon.
	LongestBlockS float64 `json:"longest_block_s"`
	// WaitP50MS and WaitP99MS are percentiles, by nearest rank, of the time until work was
	// admitted, over all its attempts, in milliseconds: from its arrival (open), or from
	// when it was next in line (backlog); null if nothing was admitted.
	WaitP50MS *float64 `json:"wait_p50_ms"`
	WaitP99MS *float64 `json:"wait_p99_ms"`
	// Suspended reports whether the provider suspended the account, so that the run failed.
	Suspended bool `json:"suspended"`
	// ThrottlesPerChange is the mean number of throttles in the 5 minutes after a change of
	// the limits, or until the next change if that is sooner; for a gradual change also
	// during it; null if there are no changes.
	ThrottlesPerChange *float64 `json:"throttles_per_change"`
	// StrangersHarm is how many more strangers were refused than without the clients, at
	// least 0; null without strangers.
	StrangersHarm *int64 `json:"strangers_harm"`
	// CeilingViolations counts attempts that left earlier than the ceiling allowed after
	// the one before. The ledger counts them from the instants alone.
	CeilingViolations int64 `json:"ceiling_violations"`
	// FairnessJain is Jain's index of the clients' admissions, from 1/n to 1; null for a
	// single client or without admissions.
	FairnessJain *float64 `json:"fairness_jain"`
	// Belief is the estimate of the limit at the end, by the law of the first client or of
	// the fleet; null for a law without one.
	Belief *Belief `json:"belief"`

	// Fleet has figures of a fleet with a link; absent otherwise.
	Fleet *FleetResult `json:"fleet,omitempty"`

	// Pools are the results of each pool, in the order of the scenario.
	Pools []PoolResult `json:"pools,omitempty"`

	// Notes list settings of the scenario that had no effect, a sentence for each.
	Notes []string `json:"notes,omitempty"`

	// Blocks counts blocks of a penalty, and BlocksPushed those in which another attempt
	// was refused.
	Blocks       int64 `json:"-"`
	BlocksPushed int64 `json:"-"`
	// Trace is the course of the run; nil unless Options.Trace is set.
	Trace *Trace `json:"-"`
}

// PoolResult is the result of one pool.
type PoolResult struct {
	Name      string `json:"name"`
	Admitted  int64  `json:"admitted"`
	Throttled int64  `json:"throttled"`
	// GoodputRatio is Admitted as a part of the [Oracle]'s admissions in the pool, at most
	// 1; null if it has none.
	GoodputRatio *float64 `json:"goodput_ratio"`
}

// Belief is a law's estimate of the limit.
type Belief struct {
	// Kind is the kind of limit, as in scenario.Kind.
	Kind string `json:"kind"`
	// Limit is its size, in attempts per window; 0 if unknown.
	Limit float64 `json:"limit"`
	// WindowS is the length of its window in seconds; 0 for a limit without one.
	WindowS float64 `json:"window_s"`
	// Confidence is from 0 to 1.
	Confidence float64 `json:"confidence"`
}

// JSON returns the result as indented JSON with a final newline. The same result gives the
// same bytes.
func (r *Result) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// Compare runs every scenario under every law with one seed. The results are in the order
// of the scenarios and, for each, of the laws. The oracle runs once for each scenario.
// Compare stops at the first error.
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

// percentile returns a percentile by nearest rank of sorted durations; p is from 1 to 100.
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// jain is the fairness index of R. Jain, D. Chiu and W. Hawe (1984): 1 for equal shares,
// 1/n if one has everything. The sum must not be 0.
func jain(shares []int64) float64 {
	sum, squares := 0.0, 0.0
	for _, n := range shares {
		x := float64(n)
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// trailing returns the window over which rates are compared: at least the longest window of
// the limits, and the time of 20 of the oracle's admissions.
func trailing(s *scenario.Scenario, best int) time.Duration {
	return min(s.Horizon, max(10*time.Second, maxWindow(s), time.Duration(20*float64(s.Horizon)/float64(best))))
}

func maxWindow(s *scenario.Scenario) (window time.Duration) {
	for _, l := range s.Provider.EachLimit {
		window = max(window, l.Window)
	}
	return window
}

// caughtUp returns the first whole second at which the client had at least 90 % of the
// oracle's admissions, if there were any, in the trailing window.
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

// span counts the instants in a range that only moves forward.
type span struct{ from, to int }

// count returns the number of instants in [from, to).
func (s *span) count(instants []time.Duration, from, to time.Duration) int {
	for s.to < len(instants) && instants[s.to] < to {
		s.to++
	}
	for s.from < s.to && instants[s.from] < from {
		s.from++
	}
	return s.to - s.from
}

// round rounds to a number of decimals, for readable results.
func round(x float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Round(x*scale) / scale
}

func seconds(d time.Duration) float64 { return round(d.Seconds(), 3) }

func millis(d time.Duration) float64 { return round(float64(d)/float64(time.Millisecond), 3) }

// unknown is the text for a figure without a value: never 0.
const unknown = "-"

// texts is the number of left-aligned columns, which come first.
const texts = 2

// column is one figure of a table.
type column[R any] struct {
	name string
	cell func(*R) string
}

// columns are the columns of the table.
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

// bulkColumns are the columns of the table of bulk loads.
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

// WriteTable writes the results as a table for people, one line each, and after it the
// figures of fleets with a link.
func WriteTable(w io.Writer, results []Result) error {
	err := writeTable(w, columns, results)
	for i := range results {
		if r := &results[i]; err == nil && r.Fleet != nil {
			_, err = io.WriteString(w, r.fleetText())
		}
	}
	return err
}

// fleetText returns the figures of a fleet.
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

// WriteBulkTable is like [WriteTable] for bulk loads: mean and max are about batches in
// flight, retry-after is the sum of the waits and longest the longest one.
func WriteBulkTable(w io.Writer, results []BulkResult) error {
	return writeTable(w, bulkColumns, results)
}

func writeTable[R any](w io.Writer, columns []column[R], results []R) error {
	rows := make([][]string, len(results)+1)
	for _, c := range columns {
		rows[0] = append(rows[0], c.name)
		for r := range results {
			rows[r+1] = append(rows[r+1], c.cell(&results[r]))
		}
	}
	return Tabulate(w, rows, func(i int) bool { return i < texts || i == len(columns)-1 })
}

// Tabulate writes rows of cells as columns that are two spaces apart and aligned to the
// right, except where left returns true.
func Tabulate(w io.Writer, rows [][]string, left func(i int) bool) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case !left(i):
				row[i] = pad + cell
			case i < len(row)-1:
				row[i] = cell + pad
			}
		}
		b.WriteString(strings.Join(row, "  ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Options configure a run.
type Options struct {
	// Law is the name of the control law, one of control.Names. Default control.DefaultLaw.
	Law string
	// Seed determines all random numbers. 0 is a seed like any other.
	Seed uint64
	// Trace collects the data for a plot in [Result.Trace].
	Trace bool
	// MaxAttempts bounds the run and its oracle, if it is less than the constant
	// MaxAttempts; 0 means the constant.
	MaxAttempts int
	// Stop is called repeatedly and ends the run, and its oracle, with its error. nil never
	// ends it.
	Stop func() error
	// OnAttempt, if not nil, is called for each attempt that reaches the provider, in order
	// of arrival.
	OnAttempt func(fit.Attempt)
}

// Player runs one scenario with one seed under any number of laws. It runs the oracle only
// once.
type Player struct {
	s      *scenario.Scenario
	seed   uint64
	oracle *Oracle
}

// NewPlayer runs the oracle. The scenario must come from scenario.Parse.
func NewPlayer(s *scenario.Scenario, seed uint64) (*Player, error) {
	oracle, err := NewOracle(s, seed)
	if err != nil {
		return nil, err
	}
	return &Player{s: s, seed: seed, oracle: oracle}, nil
}

// Oracle returns the clairvoyant client's result.
func (p *Player) Oracle() *Oracle { return p.oracle }

// Run is like the function [Run] under a law, with the player's seed.
func (p *Player) Run(law string) (Result, error) {
	return run(p.s, Options{Law: law, Seed: p.seed}, p.oracle)
}

// Run runs a scenario, which must come from scenario.Parse or scenario.Load. It returns an
// error if the law is unknown, the scenario cannot be modelled, or the run needs more than
// [MaxAttempts].
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
