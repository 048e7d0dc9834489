package sim_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/scenarios"
)

// dataverse returns the embedded bulk scenario whose name ends so.
func dataverse(t testing.TB, name string) *scenario.Scenario {
	t.Helper()
	all, err := scenarios.Bulk()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == "dataverse-bulk-"+name {
			return s
		}
	}
	t.Fatalf("there is no dataverse-bulk-%s", name)
	return nil
}

func load(t testing.TB, s *scenario.Scenario, law string, seed uint64) sim.BulkResult {
	t.Helper()
	r, err := sim.RunBulk(s, sim.Options{Law: law, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	accounted(t, r)
	return r
}

// accounted checks what holds for every load.
func accounted(t interface {
	Helper()
	Errorf(format string, args ...any)
}, r sim.BulkResult,
) {
	t.Helper()
	if r.Acknowledged+r.Rejected+r.Owed != r.Rows || r.Owed < 0 {
		t.Errorf("%s, %s, seed %d: %d acknowledged, %d rejected and %d owed of %d rows", r.Scenario, r.Law, r.Seed, r.Acknowledged, r.Rejected, r.Owed, r.Rows)
	}
	var rows, batches, throttled int64
	for _, u := range r.Users {
		rows, batches, throttled = rows+u.Rows, batches+u.Batches, throttled+u.Throttled
	}
	if rows != r.Acknowledged || batches != r.Batches || throttled != r.Throttled {
		t.Errorf("%s, %s, seed %d: the users have %d rows, %d batches and %d throttles of %d, %d and %d",
			r.Scenario, r.Law, r.Seed, rows, batches, throttled, r.Acknowledged, r.Batches, r.Throttled)
	}
	throttled = 0
	for _, s := range r.Course {
		throttled += s.Throttled
	}
	if throttled != r.Throttled {
		t.Errorf("%s, %s, seed %d: the course has %d throttles of %d", r.Scenario, r.Law, r.Seed, throttled, r.Throttled)
	}
}

func whole(t testing.TB, r sim.BulkResult) {
	t.Helper()
	if r.Acknowledged != r.Rows || r.Stopped != nil {
		t.Errorf("%s, %s, seed %d: %d of %d rows acknowledged", r.Scenario, r.Law, r.Seed, r.Acknowledged, r.Rows)
	}
}

// rowsOfTheLoad is the size of the load that scenarios/bulk.yaml models.
const rowsOfTheLoad = 72_493

func TestOneUserIsWithinFivePercentOfTheBestFixedParallelism(t *testing.T) {
	s := dataverse(t, "1user")
	if s.Workload.Rows != rowsOfTheLoad || s.Workload.Users != 1 {
		t.Fatalf("%d rows and %d users", s.Workload.Rows, s.Workload.Users)
	}
	for seed := range uint64(longtest.Size(1, 5)) {
		law := load(t, s, sim.BulkParallel, seed)
		whole(t, law)
		best, at := 0.0, 0
		for n := 1; n <= longtest.Size(12, 52); n++ {
			if r := load(t, s, fmt.Sprintf("fixed:%d", n), seed); r.RowsPerS > best {
				best, at = r.RowsPerS, n
			}
		}
		if at != 4 {
			t.Errorf("seed %d: the best of the fixed is %d places with %v rows/s, want the recommended 4", seed, at, best)
		}
		if law.RowsPerS < 0.95*best {
			t.Errorf("seed %d: the law loads %v rows/s, want 95 %% of the %v of %d places", seed, law.RowsPerS, best, at)
		}
		if law.Throttled != 0 {
			t.Errorf("seed %d: %d throttles", seed, law.Throttled)
		}
	}
}

func TestTwoUsersAreNearlyTwiceAsFastAsOne(t *testing.T) {
	for seed := range uint64(longtest.Size(2, 5)) {
		one, two := load(t, dataverse(t, "1user"), sim.BulkParallel, seed), load(t, dataverse(t, "2users"), sim.BulkParallel, seed)
		whole(t, two)
		if two.Rows != one.Rows || len(two.Users) != 2 {
			t.Fatalf("%d rows and %d users", two.Rows, len(two.Users))
		}
		if two.RowsPerS < 1.9*one.RowsPerS {
			t.Errorf("seed %d: two users load %v rows/s, want 1.9 times the %v of one", seed, two.RowsPerS, one.RowsPerS)
		}
		if two.Throttled != 0 || two.ParallelismMax > 8 {
			t.Errorf("seed %d: %d throttles and %d places, want none and at most 8", seed, two.Throttled, two.ParallelismMax)
		}
		for i, u := range two.Users {
			if share := float64(u.Rows) / float64(two.Rows); share < 0.45 || share > 0.55 {
				t.Errorf("seed %d: user %d has %.3f of the rows, want about half", seed, i, share)
			}
		}
	}
}

// The load has more than a thousand batches, and lasts for twenty windows of execution
// time.
func TestALongLoadIsThrottledLessThanOnceInAThousandBatches(t *testing.T) {
	s := dataverse(t, "1user")
	s.Workload.Rows = 1_000_000
	law, fixed := load(t, s, sim.BulkParallel, 1), load(t, s, "fixed:4", 1)
	whole(t, law)
	if law.Batches < 2000 || law.ThrottledPer1000 == nil || *law.ThrottledPer1000 > 1 {
		t.Errorf("%d throttles in %d batches, want at most 1 in 1000", law.Throttled, law.Batches)
	}
	if fixed.ThrottledPer1000 == nil || *fixed.ThrottledPer1000 <= 1 {
		t.Errorf("%d throttles in %d batches of 4 fixed places: then the window is not a test", fixed.Throttled, fixed.Batches)
	}
	if law.RowsPerS < 0.95*fixed.RowsPerS {
		t.Errorf("the law loads %v rows/s, want 95 %% of the %v of 4 fixed places", law.RowsPerS, fixed.RowsPerS)
	}
}

func TestPlainAIMDEndsInACascade(t *testing.T) {
	for _, name := range []string{"1user", "2users"} {
		law, plain := load(t, dataverse(t, name), sim.BulkParallel, 1), load(t, dataverse(t, name), sim.BulkAIMD, 1)
		whole(t, plain)
		if *plain.ThrottledPer1000 < 10 || *law.ThrottledPer1000 != 0 {
			t.Errorf("%s: %v and %v throttles in 1000 batches, want many and none", name, *plain.ThrottledPer1000, *law.ThrottledPer1000)
		}
		if plain.LongestRetryAfterS < 100 || plain.RetryAfterS < plain.ElapsedS/2 {
			t.Errorf("%s: waits of up to %v s and %v s in all of %v s, want long ones, most of the time",
				name, plain.LongestRetryAfterS, plain.RetryAfterS, plain.ElapsedS)
		}
		if plain.RowsPerS > law.RowsPerS/2 {
			t.Errorf("%s: %v rows/s, want less than half of the law's %v", name, plain.RowsPerS, law.RowsPerS)
		}
	}
}

func TestAHintThatDropsIsObeyedBeforeAnythingIsThrottled(t *testing.T) {
	s := dataverse(t, "hint-drop")
	r := load(t, s, sim.BulkParallel, 1)
	whole(t, r)
	if r.Throttled != 0 {
		t.Errorf("%d throttles", r.Throttled)
	}
	from, to := s.Provider.Changes[0].At.Seconds(), s.Provider.Changes[1].At.Seconds()
	// A response reports the drop: at the latest that of a batch which was under way when
	// it happened.
	const advertised = 25
	low, high := 0, 0
	for i, step := range r.Course[1:] {
		begin := r.Course[i].ToS
		switch {
		case begin > from+advertised && step.ToS < to:
			low++
			if step.Level != 2 || step.InFlight > 2 {
				t.Errorf("at %v s the level is %v with %v in flight, want 2", begin, step.Level, step.InFlight)
			}
		case step.ToS < from:
			high++
			if step.Level != 4 {
				t.Errorf("at %v s the level is %v, want 4", begin, step.Level)
			}
		}
	}
	if low < 10 || high < 5 {
		t.Fatalf("%d and %d steps were looked at", low, high)
	}
	if last := r.Course[len(r.Course)-2]; last.Level != 4 {
		t.Errorf("the level is %v at the end, want 4 again", last.Level)
	}
}

func TestWhatOthersSpendIsLearnedFromRefusals(t *testing.T) {
	s := dataverse(t, "strangers")
	s.Workload.Rows = 1_000_000
	law := load(t, s, sim.BulkParallel, 1)
	whole(t, law)
	if law.Throttled == 0 || *law.ThrottledPer1000 > 1.5 || law.LongestRetryAfterS > 15 {
		t.Errorf("%d throttles in %d batches and waits of up to %v s, want a few and short", law.Throttled, law.Batches, law.LongestRetryAfterS)
	}
	for n := 1; n <= 8; n++ {
		fixed := load(t, s, fmt.Sprintf("fixed:%d", n), 1)
		if fixed.RowsPerS > law.RowsPerS {
			t.Errorf("%d fixed places load %v rows/s, the law %v", n, fixed.RowsPerS, law.RowsPerS)
		}
		if n == 4 && fixed.Throttled < 10*law.Throttled {
			t.Errorf("%d throttles of 4 fixed places and %d of the law", fixed.Throttled, law.Throttled)
		}
	}
}

// bulk is a load of 100 rows in batches of ten, of 2 s each.
func bulk(t testing.TB, lines ...string) *scenario.Scenario {
	t.Helper()
	return parse(t, append([]string{"workload: {kind: bulk, rows: 100}", "provider:",
		"  latency: {p50: 0s}"}, lines...)...)
}

const tens = "  batch: {overhead: 1s, per_row: 100ms, max_rows: 10%s}"

func near(t *testing.T, name string, got, want, by float64) {
	t.Helper()
	if math.Abs(got-want) > by {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
}

func TestWhatCanBeWorkedOutByHand(t *testing.T) {
	plain := bulk(t, fmt.Sprintf(tens, ""))
	r := load(t, plain, "fixed:1", 1)
	near(t, "elapsed of one place", r.ElapsedS, 20, 1e-6)
	near(t, "rows/s of one place", r.RowsPerS, 5, 1e-6)
	near(t, "mean parallelism of one place", r.ParallelismMean, 1, 1e-6)
	if r.Batches != 10 || *r.BatchRowsMean != 10 || r.ParallelismMax != 1 || r.RetryAfterS != 0 {
		t.Errorf("%+v", r)
	}
	near(t, "elapsed of five places", load(t, plain, "fixed:5", 1).ElapsedS, 4, 1e-6)
	// The server has capacity for one batch: of two at once each takes twice as long, so
	// nothing is gained.
	crowd := bulk(t, fmt.Sprintf(tens, ", knee: 1"))
	near(t, "elapsed of two places on one server", load(t, crowd, "fixed:2", 1).ElapsedS, 20, 2)
	near(t, "elapsed of one place on one server", load(t, crowd, "fixed:1", 1).ElapsedS, 20, 1e-6)
	// Two users on servers of their own, and on one that they share.
	two := bulk(t, fmt.Sprintf(tens, ", knee: 1"))
	two.Workload.Users = 2
	near(t, "elapsed of two users", load(t, two, "fixed:1", 1).ElapsedS, 10, 1e-6)
	two = bulk(t, fmt.Sprintf(tens, ", shared_knee: 1"))
	two.Workload.Users = 2
	near(t, "elapsed of two users on one server", load(t, two, "fixed:1", 1).ElapsedS, 20, 2)
}

func TestTheWaitsThatWereAskedForAreAddedUp(t *testing.T) {
	// Four batches of 2 s fit into 10 s. The fifth is refused at 8 s with a Retry-After of
	// 2 s, when the first leaves the window, and so on.
	s := bulk(t, fmt.Sprintf(tens, ""), "  limits: [{kind: busy_time, limit: 8s, window: 10s}]", "  throttle: {retry_after: exact}")
	r := load(t, s, "fixed:1", 1)
	whole(t, r)
	if r.Throttled != 2 || r.Batches != 12 {
		t.Errorf("%d throttles in %d batches, want 2 in 12", r.Throttled, r.Batches)
	}
	near(t, "retry-after", r.RetryAfterS, 4, 1e-6)
	near(t, "longest retry-after", r.LongestRetryAfterS, 2, 1e-6)
	near(t, "elapsed", r.ElapsedS, 24, 1e-6)
	near(t, "mean parallelism", r.ParallelismMean, 20.0/24, 1e-3)
	// The law keeps the sum within the budget by itself.
	r = load(t, s, sim.BulkParallel, 1)
	whole(t, r)
	if r.Throttled != 0 {
		t.Errorf("%d throttles under the law, want none", r.Throttled)
	}
}

func TestWhatIsNotLoadedIsOwed(t *testing.T) {
	cut := bulk(t, fmt.Sprintf(tens, ""))
	cut.Horizon = 5 * time.Second
	if r := load(t, cut, "fixed:1", 1); r.Acknowledged != 20 || r.Owed != 80 || r.Stopped != nil || r.ElapsedS != 5 {
		t.Errorf("at the horizon: %+v", r)
	}
	banned := bulk(t, fmt.Sprintf(tens, ""), "  limits: [{kind: busy_time, limit: 8s, window: 10s}]", "  suspend: {throttles: 1, within: 1m}")
	if r := load(t, banned, "fixed:1", 1); r.Owed == 0 || r.Stopped == nil || *r.Stopped != "forbidden" {
		t.Errorf("suspended: %+v", r)
	}
	trouble := bulk(t, fmt.Sprintf(tens, ", spread: 0.3"),
		"  faults: [{at: 1s, for: 2s, kind: outage}, {at: 4s, for: 1s, kind: reset}, {at: 6s, for: 3s, kind: slow}]")
	for seed := range uint64(20) {
		whole(t, load(t, trouble, sim.BulkParallel, seed))
	}
}

func TestBulkIsTheSameForTheSameSeed(t *testing.T) {
	for _, name := range []string{"1user", "2users", "hint-drop", "strangers"} {
		s := dataverse(t, name)
		one, err := new(load(t, s, sim.BulkAIMD, 3)).JSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := sim.RunBulk(s, sim.Options{Law: sim.BulkAIMD, Seed: 3, Trace: true})
		if err != nil {
			t.Fatal(err)
		}
		if two, err := again.JSON(); err != nil || !bytes.Equal(one, two) {
			t.Errorf("%s: two runs differ (%v)", name, err)
		}
		other := load(t, s, sim.BulkAIMD, 4)
		other.Seed = 3
		if three, err := other.JSON(); err != nil || bytes.Equal(one, three) {
			t.Errorf("%s: another seed gives the same (%v)", name, err)
		}
	}
}

func TestLawsAndWorkloadsThatDoNotFitAreErrors(t *testing.T) {
	load, pace := dataverse(t, "1user"), parse(t, "horizon: 1m")
	for _, tt := range []struct {
		s         *scenario.Scenario
		law, want string
	}{
		{load, "cycle", `law is "cycle", must be one of parallel, advertised, aimd, hint, fixed:N for a bulk workload`},
		{load, "fixed:0", `"0" must be a whole number from 1 to 1000`},
		{load, "fixed:many", `"many" must be a whole number`},
		{load, "fixed:65", "65 places are above the workload's max_in_flight of 64"},
		{pace, "parallel", "has the workload backlog, which is not bulk"},
		{nil, "parallel", "no scenario"},
	} {
		if _, err := sim.RunBulk(tt.s, sim.Options{Law: tt.law}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.law, err, tt.want)
		}
	}
	if _, err := sim.Run(load, sim.Options{}); err == nil || !strings.Contains(err.Error(), "has the workload bulk") {
		t.Errorf("a run of a bulk workload: %v", err)
	}
	if _, err := sim.CompareBulk([]*scenario.Scenario{load}, []string{"parallel", "magic"}, 1); err == nil {
		t.Error("compared an unknown law")
	}
}

func TestPictureOfEveryBulkScenario(t *testing.T) {
	for _, name := range []string{"1user", "2users", "hint-drop", "strangers"} {
		r, err := sim.RunBulk(dataverse(t, name), sim.Options{Law: sim.BulkAIMD, Seed: 1, Trace: true})
		if err != nil {
			t.Fatal(err)
		}
		var one, two bytes.Buffer
		if err := sim.WriteBulkSVG(&one, r.Trace); err != nil {
			t.Fatal(err)
		}
		if err := sim.WriteBulkSVG(&two, r.Trace); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Errorf("%s: the same trace gave two pictures (%v)", name, err)
		}
		written := strings.Join(texts(t, one.Bytes()), "\n")
		want := []string{"dataverse-bulk-" + name + " under aimd", "seed 1", "batches in flight", "rows a second", fmt.Sprint(r.Throttled) + " throttles"}
		if name == "hint-drop" {
			want = append(want, "hint 2, knee 2")
		}
		for _, w := range want {
			if !strings.Contains(written, w) {
				t.Errorf("%s: the picture does not say %q", name, w)
			}
		}
		if strings.Contains(one.String(), "NaN") || strings.Contains(one.String(), "Inf") {
			t.Errorf("%s: the picture has invalid numbers", name)
		}
	}
}

// Whatever the limits and the trouble, a load ends, every row is accounted for,
// and more is never in flight than the workload and the law allow.
func TestEveryLoadEndsAndAccountsForItsRows(t *testing.T) {
	longtest.Draws(t, 50, 500)
	rapid.Check(t, func(rt *rapid.T) {
		number := func(low, high int, name string) int { return rapid.IntRange(low, high).Draw(rt, name) }
		maybe := func(name string) bool { return rapid.Bool().Draw(rt, name) }
		var b strings.Builder
		line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
		users, places := number(1, 3, "users"), number(1, 20, "places")
		line("name: drawn\nhorizon: %ds", number(10, 4000, "horizon"))
		line("workload: {kind: bulk, rows: %d, users: %d, max_in_flight: %d}", number(1, 2000, "rows"), users, places)
		line("provider:\n  latency: {p50: %dms}", number(0, 300, "latency"))
		line("  batch: {overhead: %dms, per_row: %dms, max_rows: %d, spread: 0.%d, knee: %d}",
			number(0, 1000, "overhead"), number(1, 50, "row"), number(1, 300, "most"), number(0, 9, "spread"), number(1, 9, "knee"))
		if maybe("hint") {
			line("  hint: %d", number(1, 30, "hint"))
		}
		line("  limits:\n    - {kind: concurrency, limit: %d}", number(1, 20, "concurrency"))
		line("    - {kind: busy_time, limit: %ds, window: %ds}", number(1, 100, "busy"), number(1, 100, "window"))
		line("    - {kind: sliding_window, limit: %d, window: %ds}", number(1, 50, "requests"), number(1, 20, "of"))
		line("  throttle: {retry_after: %s}", rapid.SampledFrom([]string{"none", "seconds", "exact"}).Draw(rt, "retry_after"))
		if maybe("penalty") {
			line("  penalty: {base: 1s, max: 30s}")
		}
		if maybe("suspend") {
			line("  suspend: {throttles: %d, within: 1m}", number(1, 50, "suspend"))
		}
		if maybe("strangers") {
			line("  strangers: {rate: 1/s}")
		}
		faults := maybe("faults")
		if faults {
			line("  faults: [{at: 1s, for: 3s, kind: outage}, {at: 5s, for: 1s, kind: reset}, {at: 7s, for: 5s, kind: slow}]")
		}
		s, err := scenario.Parse("drawn.yaml", []byte(b.String()))
		if err != nil {
			rt.Fatal(err)
		}
		law := rapid.SampledFrom(append(sim.BulkLaws(), fmt.Sprintf("fixed:%d", places))).Draw(rt, "law")
		r, err := sim.RunBulk(s, sim.Options{Law: law, Seed: rapid.Uint64().Draw(rt, "seed"), Trace: true})
		if err != nil {
			rt.Fatal(err)
		}
		accounted(rt, r)
		// A batch that failed too often is left to the next load.
		if r.Owed > 0 && r.Stopped == nil && r.ElapsedS < r.HorizonS && !faults {
			rt.Fatalf("%d rows are owed at %v s of %v s, and nothing stopped the load", r.Owed, r.ElapsedS, r.HorizonS)
		}
		if r.ParallelismMax > users*places || r.ParallelismMean > float64(r.ParallelismMax) || r.RetryAfterS > r.ElapsedS*float64(users)+0.01 {
			rt.Fatalf("%d in flight at most and %v on average, %v s of waits in %v s", r.ParallelismMax, r.ParallelismMean, r.RetryAfterS, r.ElapsedS)
		}
		if err := sim.WriteBulkSVG(&strings.Builder{}, r.Trace); err != nil {
			rt.Fatal(err)
		}
	})
}
