package control_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

func newParallelism(t testing.TB, p control.ParallelismParams) control.Parallelism {
	t.Helper()
	resolved, err := p.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	return control.NewParallelism(&resolved, 0)
}

// succeed records three successes at each of the instants, five seconds apart.
func succeed(l *control.Parallelism, from time.Duration) time.Duration {
	now := from + 5*sec
	for range 3 {
		l.Success(now-sec, now, 0)
	}
	return now
}

func TestTheWorkedExample(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{Max: 52})
	now := time.Duration(0)
	level := func(want int) {
		t.Helper()
		if got := l.Level(now, 1); got != want {
			t.Fatalf("at %v the level is %d, want %d", now, got, want)
		}
	}
	level(26)
	for want := 28; want <= 44; want += 2 {
		now = succeed(&l, now)
		level(want)
	}
	now += sec
	l.Throttle(now-ms, now, 0)
	level(22)
	if s := l.Statistics(now); s.LastKnownGood != 42 || s.TotalThrottles != 1 || s.SuccessesSinceThrottle != 0 {
		t.Fatalf("after the throttle %+v, want last known good 42", s)
	}
	for _, want := range []int{26, 30, 34, 38, 42, 44, 46, 48, 50, 52, 52} {
		now = succeed(&l, now)
		level(want)
	}
	now += 5 * time.Minute
	if l.Level(now, 0) != 52 {
		t.Fatal("five minutes to the instant is not yet idle")
	}
	now += 5*time.Minute + 1
	if got := l.Level(now, 0); got != 26 {
		t.Fatalf("after idleness the level is %d, want 26", got)
	}
	if s := l.Statistics(now); s.TotalThrottles != 1 || s.LastKnownGood != 26 {
		t.Fatalf("after the reset %+v, want the total kept and nothing else", s)
	}
}

func TestParallelismStep(t *testing.T) {
	type do func(l *control.Parallelism)
	ok := func(sent, now time.Duration) do { return func(l *control.Parallelism) { l.Success(sent, now, 0) } }
	no := func(sent, now time.Duration) do { return func(l *control.Parallelism) { l.Throttle(sent, now, 0) } }
	hint := func(n int) do { return func(l *control.Parallelism) { l.Recommend(n) } }
	level := func(now time.Duration) do { return func(l *control.Parallelism) { l.Level(now, 0) } }
	many := func(n int, d do) do {
		return func(l *control.Parallelism) {
			for range n {
				d(l)
			}
		}
	}
	for _, tt := range []struct {
		name  string
		p     control.ParallelismParams
		steps []do
		want  int
		good  int
	}{
		{"starts at half", control.ParallelismParams{Max: 52}, nil, 26, 26},
		{"starts at half, rounded down, at least the minimum", control.ParallelismParams{Max: 1}, nil, 1, 1},
		{"starts at a factor", control.ParallelismParams{Max: 10, InitialFactor: 1}, nil, 10, 10},
		{"count without time is not enough", control.ParallelismParams{}, []do{many(100, ok(4*sec, 5*sec-1))}, 26, 26},
		{"time without count is not enough", control.ParallelismParams{}, []do{many(2, ok(59*sec, time.Minute))}, 26, 26},
		{"count and time are", control.ParallelismParams{}, []do{many(3, ok(4*sec, 5*sec))}, 28, 26},
		{"and both begin anew", control.ParallelismParams{}, []do{many(100, ok(4*sec, 5*sec))}, 28, 26},
		{"the count begins anew with each step", control.ParallelismParams{}, []do{many(3, ok(4*sec, 5*sec)), many(2, ok(9*sec, 10*sec))}, 28, 26},
		{"and so does the time", control.ParallelismParams{}, []do{many(3, ok(4*sec, 5*sec)), many(9, ok(9*sec, 10*sec-1))}, 28, 26},
		{"successes before a throttle count for nothing", control.ParallelismParams{}, []do{many(2, ok(ms, sec)), no(sec, 2*sec), many(2, ok(9*sec, 10*sec))}, 13, 24},
		{"a third one after it does", control.ParallelismParams{}, []do{many(2, ok(ms, sec)), no(sec, 2*sec), many(3, ok(9*sec, 10*sec))}, 17, 24},
		{"a reset forgets successes", control.ParallelismParams{}, []do{many(2, ok(ms, sec)), level(10 * time.Minute), ok(10*time.Minute, 11*time.Minute)}, 26, 26},
		{"a throttle halves", control.ParallelismParams{}, []do{no(0, sec)}, 13, 24},
		{"throttles of one epoch count once", control.ParallelismParams{}, []do{no(0, sec), no(0, sec), no(ms, 2*sec), no(sec, 3*sec)}, 13, 24},
		{"those of the next count again", control.ParallelismParams{}, []do{no(0, sec), no(sec+1, 2*sec)}, 6, 11},
		{"never below the minimum", control.ParallelismParams{Max: 8, Min: 3}, []do{no(0, sec), no(2*sec, 3*sec), no(4*sec, 5*sec)}, 3, 3},
		{"successes of the epoch before count for nothing", control.ParallelismParams{}, []do{no(0, 6*sec), many(9, ok(5*sec, 7*sec))}, 13, 24},
		{"recovery does not jump past the level known to be good", control.ParallelismParams{Max: 10}, []do{no(0, sec), many(3, ok(5*sec, 6*sec))}, 3, 3},
		{"a level known to be good expires", control.ParallelismParams{}, []do{no(0, sec), ok(6*time.Minute, 6*time.Minute+sec)}, 13, 13},
		{"to five minutes it holds", control.ParallelismParams{}, []do{no(0, sec), ok(5*time.Minute, 5*time.Minute+sec)}, 13, 24},
		{"growth ends at the recommendation", control.ParallelismParams{Max: 27, InitialFactor: 0.999}, []do{many(3, ok(4*sec, 5*sec))}, 27, 26},
		{"growth beyond the recommendation is not saved up", control.ParallelismParams{Max: 27, InitialFactor: 0.999}, []do{
			many(3, ok(4*sec, 5*sec)), many(3, ok(9*sec, 10*sec)), many(3, ok(14*sec, 15*sec)), hint(52),
		}, 27, 26},
		{"a lower hint counts at once", control.ParallelismParams{}, []do{hint(4)}, 4, 4},
		{"a hint of one", control.ParallelismParams{}, []do{hint(1), no(0, sec)}, 1, 1},
		{"a hint below the minimum is obeyed", control.ParallelismParams{Min: 5}, []do{hint(2), no(0, sec)}, 2, 2},
		{"a higher hint is grown into", control.ParallelismParams{}, []do{hint(4), hint(52), many(3, ok(4*sec, 5*sec))}, 6, 4},
		{"a hint beyond the ceiling is cut", control.ParallelismParams{Max: 4, Ceiling: 8, InitialFactor: 1}, []do{
			hint(1 << 30), many(3, ok(4*sec, 5*sec)), many(3, ok(9*sec, 10*sec)), many(3, ok(14*sec, 15*sec)),
		}, 8, 4},
		{"what is not a hint is ignored", control.ParallelismParams{}, []do{hint(0), hint(-7)}, 26, 26},
		{"disabled is the recommendation as it is", control.ParallelismParams{Disabled: true}, []do{no(0, sec), hint(40)}, 40, 26},
		{"idleness starts afresh", control.ParallelismParams{}, []do{no(0, sec), level(5*time.Minute + sec + 1)}, 26, 26},
		{"five minutes to the instant are not", control.ParallelismParams{}, []do{no(0, sec), level(5*time.Minute + sec)}, 13, 24},
		{"asking is activity", control.ParallelismParams{}, []do{no(0, sec), level(3 * time.Minute), level(6 * time.Minute)}, 13, 24},
		{"a batch that takes longer is ignored", control.ParallelismParams{}, []do{no(0, sec), ok(2*sec, 20*time.Minute), level(21 * time.Minute)}, 13, 13},
		{"time that runs backwards raises nothing", control.ParallelismParams{}, []do{many(3, ok(9*sec, 10*sec)), many(9, ok(0, sec)), many(9, ok(5*sec, 6*sec))}, 28, 26},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newParallelism(t, tt.p)
			for _, step := range tt.steps {
				step(&l)
			}
			if s := l.Statistics(0); s.Current != tt.want || s.LastKnownGood != tt.good {
				t.Errorf("level %d, last known good %d, want %d and %d", s.Current, s.LastKnownGood, tt.want, tt.good)
			}
		})
	}
}

func TestWaitingAsAskedIsNotIdleness(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{})
	l.Throttle(0, sec, time.Hour)
	if got := l.Level(time.Hour+sec, 0); got != 13 {
		t.Errorf("after an hour's wait the level is %d, want 13", got)
	}
	if got := l.Level(time.Hour+5*time.Minute+2*sec, 0); got != 26 {
		t.Errorf("after idleness on top the level is %d, want 26", got)
	}
	if l.Throttle(time.Hour+6*time.Minute, time.Hour+7*time.Minute, 0); l.Level(2*time.Hour, 1) != 13 {
		t.Error("a law with work under way is not idle")
	}
}

func TestExecutionTimeIsACeiling(t *testing.T) {
	p := control.ParallelismParams{BusyBudget: 1200 * sec, BusyWindow: 300 * sec}
	l := newParallelism(t, p)
	if got := l.Level(0, 0); got != 4 {
		t.Fatalf("before the first batch the level is %d, want the 4 that are busy on average", got)
	}
	for now := 10 * sec; now < 10*time.Minute; now += 5 * sec {
		l.Success(now-10*sec, now, 0)
		if got := l.Level(now, 4); got != 4 {
			t.Fatalf("at %v the level is %d, want 4, however long nothing is throttled", now, got)
		}
	}
	// Half of each batch's time passes on the way: twice as many fit.
	for now := 10 * time.Minute; now < 20*time.Minute; now += sec {
		l.Success(now-10*sec, now, 5*sec)
	}
	if got := l.Level(20*time.Minute, 4); got != 8 {
		t.Errorf("the level is %d, want 8", got)
	}
	// The ceiling does not follow the level down.
	l.Throttle(20*time.Minute, 20*time.Minute+sec, 0)
	if s := l.Statistics(21 * time.Minute); s.Current != 4 || s.Ceiling != 8 || s.LastKnownGood != 6 {
		t.Errorf("after a throttle %+v, want level 4 below a ceiling of 8", s)
	}
}

func TestTheBudgetIsLearned(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{})
	l.Budget(0, sec)
	l.Budget(sec, -sec)
	if got := l.Level(0, 0); got != 26 {
		t.Fatalf("invalid figures changed the level to %d", got)
	}
	l.Budget(1200*sec, 300*sec)
	if got := l.Level(0, 0); got != 4 {
		t.Errorf("the level is %d, want 4", got)
	}
	l.Budget(sec, time.Hour)
	if got := l.Level(0, 0); got != 1 {
		t.Errorf("the level is %d, want 1 at least", got)
	}
}

func TestConnectionsAreIsolated(t *testing.T) {
	p, err := control.ParallelismParams{}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	a, b := control.NewParallelism(&p, 0), control.NewParallelism(&p, 0)
	before := b
	a.Throttle(0, sec, 0)
	a.Recommend(2)
	if b != before {
		t.Errorf("a throttle of one connection made the other %+v", b)
	}
}

// The level keeps within its bounds whatever happens, and only successes raise it.
func TestParallelismBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 100).Draw(t, "max")
		p, err := control.ParallelismParams{
			Max: most, Min: rapid.IntRange(1, most).Draw(t, "min"), Ceiling: most + rapid.IntRange(0, 50).Draw(t, "above"),
			InitialFactor:  rapid.Float64Range(0.01, 1).Draw(t, "factor"),
			DecreaseFactor: rapid.Float64Range(0.01, 0.99).Draw(t, "decrease"),
			Increase:       rapid.IntRange(1, 40).Draw(t, "increase"),
			Disabled:       rapid.Bool().Draw(t, "disabled"),
		}.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		l := control.NewParallelism(&p, 0)
		now, throttles, recommended := time.Duration(0), int64(0), p.Max
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(-int64(sec), int64(3*sec)).Draw(t, "passes"))
			if rapid.IntRange(0, 30).Draw(t, "rests") == 0 {
				now += 6 * time.Minute
			}
			sent := now - time.Duration(rapid.Int64Range(0, int64(20*sec)).Draw(t, "took"))
			before := l.Statistics(now)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				l.Throttle(sent, now, 0)
				throttles++
				if after := l.Statistics(now); after.Current > before.Current {
					t.Fatalf("a throttle raised the level from %d to %d", before.Current, after.Current)
				}
			case 1:
				n := rapid.IntRange(-5, 300).Draw(t, "hint")
				l.Recommend(n)
				if n >= 1 {
					recommended = min(n, p.Ceiling)
				}
			case 2:
				l.Level(now, rapid.IntRange(0, 1).Draw(t, "in flight"))
			default:
				if l.Success(sent, now, 0) != (l.Statistics(now).Current > before.Current) {
					t.Fatal("what a success reports is not what it did")
				}
			}
			s := l.Statistics(now)
			if least := min(p.Min, recommended); s.Current < least || s.Current > recommended || s.Max != recommended {
				t.Fatalf("level %d of %d, want from %d to %d", s.Current, s.Max, least, recommended)
			}
			if s.LastKnownGood < 1 || s.LastKnownGood > recommended || s.TotalThrottles != throttles || s.TotalDecreases > throttles {
				t.Fatalf("%+v after %d throttles", s, throttles)
			}
		}
	})
}

func TestParallelismDoesNotAllocate(t *testing.T) {
	p, err := control.ParallelismParams{}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	l := control.NewParallelism(&p, 0)
	now := time.Duration(0)
	if n := testing.AllocsPerRun(100, func() {
		now += sec
		l.Level(now, 3)
		l.Success(now-sec, now, 0)
		l.Throttle(now, now+1, sec)
		l.Recommend(20)
		l.Statistics(now)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestParallelismParamsNameFieldValueAndBound(t *testing.T) {
	for _, tt := range []struct {
		p    control.ParallelismParams
		want string
	}{
		{control.ParallelismParams{Max: -1}, "max parallelism is -1, must be from 1 to 65536"},
		{control.ParallelismParams{Max: 10, Ceiling: 5}, "ceiling is 5, must be from the max of 10"},
		{control.ParallelismParams{Min: 60}, "min parallelism is 60, must be from 1 to the max of 52"},
		{control.ParallelismParams{InitialFactor: 1.5}, "initial factor is 1.5, must be above 0 and at most 1"},
		{control.ParallelismParams{InitialFactor: math.NaN()}, "initial factor is NaN"},
		{control.ParallelismParams{Increase: -1}, "increase is -1"},
		{control.ParallelismParams{DecreaseFactor: 1}, "decrease factor is 1, must be between 0 and 1"},
		{control.ParallelismParams{StabilizationBatches: -1}, "stabilization batches is -1"},
		{control.ParallelismParams{RecoveryMultiplier: -1}, "recovery multiplier is -1"},
		{control.ParallelismParams{MinIncreaseInterval: -1}, "min increase interval is -1ns"},
		{control.ParallelismParams{LastKnownGoodTTL: 48 * time.Hour}, "last known good TTL is 48h0m0s"},
		{control.ParallelismParams{IdleReset: -1}, "idle reset is -1ns"},
		{control.ParallelismParams{BusyBudget: sec}, "busy budget is 1s in a busy window of 0s, must both be set or neither"},
	} {
		if _, err := tt.p.Resolve(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.p, err, tt.want)
		}
	}
}

func ExampleParallelism() {
	p, err := control.ParallelismParams{Max: 52}.Resolve()
	if err != nil {
		panic(err)
	}
	law := control.NewParallelism(&p, 0)
	fmt.Println(law.Level(0, 0))
	for range 3 {
		law.Success(0, 5*time.Second, 0)
	}
	fmt.Println(law.Level(5*time.Second, 0))
	law.Throttle(5*time.Second, 6*time.Second, 0)
	fmt.Println(law.Level(6*time.Second, 0), law.Statistics(6*time.Second).LastKnownGood)
	law.Recommend(4)
	fmt.Println(law.Level(6*time.Second, 0))
	// Output:
	// 26
	// 28
	// 14 26
	// 4
}

func TestParallelismParamsMayBeTheirBounds(t *testing.T) {
	const most = 65536
	for _, p := range []control.ParallelismParams{
		{Max: 1}, {Max: most}, {Max: 1, Ceiling: 1}, {Ceiling: most}, {Min: 1}, {Max: 7, Min: 7}, {InitialFactor: 1},
		{InitialFactor: math.SmallestNonzeroFloat64}, {Increase: 1}, {Increase: most}, {DecreaseFactor: math.Nextafter(1, 0)},
		{StabilizationBatches: 1}, {RecoveryMultiplier: 1}, {RecoveryMultiplier: most}, {MinIncreaseInterval: day}, {IdleReset: 1},
		{BusyBudget: day, BusyWindow: day},
	} {
		if _, err := p.Resolve(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, tt := range []struct {
		p    control.ParallelismParams
		want string
	}{
		{control.ParallelismParams{Max: most + 1}, "max parallelism is 65537, must be from 1 to 65536"},
		{control.ParallelismParams{Ceiling: most + 1}, "ceiling is 65537, must be from the max of 52 to 65536"},
		{control.ParallelismParams{Max: 7, Ceiling: 6}, "ceiling is 6, must be from the max of 7 to 65536"},
		{control.ParallelismParams{Min: -1}, "min parallelism is -1"},
		{control.ParallelismParams{Max: 7, Min: 8}, "min parallelism is 8"},
		{control.ParallelismParams{InitialFactor: -0.1}, "initial factor is -0.1"},
		{control.ParallelismParams{Increase: most + 1}, "increase is 65537, must be from 1 to 65536"},
		{control.ParallelismParams{DecreaseFactor: -0.1}, "decrease factor is -0.1"},
		{control.ParallelismParams{RecoveryMultiplier: most + 1}, "recovery multiplier is 65537, must be from 1 to 65536"},
		{control.ParallelismParams{IdleReset: day + 1}, "idle reset is"},
		{control.ParallelismParams{BusyWindow: sec}, "busy budget is 0s in a busy window of 1s"},
	} {
		if _, err := tt.p.Resolve(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.p, err, tt.want)
		}
	}
	p, err := control.ParallelismParams{}.Resolve()
	if err != nil || p.Ceiling != 256 || p.Max != 52 || p.Min != 1 {
		t.Errorf("by default %+v, %v", p, err)
	}
	if p, err := (control.ParallelismParams{Max: 300}).Resolve(); err != nil || p.Ceiling != 300 {
		t.Errorf("above the default ceiling %+v, %v", p, err)
	}
}

func TestAThrottleSaysWhetherItIsTheFirstOfItsEpoch(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		l := newParallelism(t, control.ParallelismParams{Disabled: disabled})
		for i, step := range []struct {
			sent, now, wait time.Duration
			fresh           bool
			activity        time.Duration
		}{
			{0, sec, -5, true, sec}, // an invalid wait
			{0, 2 * sec, 0, false, 2 * sec},
			{sec, 3 * sec, 0, false, 3 * sec},
			{sec + 1, 4 * sec, time.Minute, true, 64 * sec},
		} {
			if fresh := l.Throttle(step.sent, step.now, step.wait); fresh != step.fresh {
				t.Errorf("disabled %v, throttle %d: fresh %v, want %v", disabled, i, fresh, step.fresh)
			}
			if s := l.Statistics(step.now); s.LastThrottle != step.now || s.LastActivity != step.activity || s.TotalThrottles != int64(i+1) {
				t.Errorf("disabled %v, throttle %d: %+v", disabled, i, s)
			}
		}
	}
}

func TestADisabledLawCountsAndTakesNoSteps(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{Disabled: true})
	for i := range 5 {
		now := time.Duration(i+1) * 10 * sec
		if l.Success(now-sec, now, 0) {
			t.Error("the level rose")
		}
	}
	if s := l.Statistics(0); s.Current != 52 || s.SuccessesSinceThrottle != 5 || s.LastIncrease != 0 {
		t.Errorf("%+v", s)
	}
}

func TestRecoveryTakesSeveralStepsAtOnce(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{Max: 52, Increase: 3, RecoveryMultiplier: 3})
	l.Throttle(0, sec, 0)
	if s := l.Statistics(0); s.Current != 13 || s.LastKnownGood != 23 {
		t.Fatalf("after the throttle %+v", s)
	}
	for range 3 {
		l.Success(6*sec, 7*sec, 0)
	}
	if s := l.Statistics(0); s.Current != 13+3*3 {
		t.Errorf("the level is %d, want 22", s.Current)
	}
}

func TestAResetIsActivity(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{})
	l.Reset(time.Hour)
	if s := l.Statistics(time.Hour); s.LastActivity != time.Hour || s.LastIncrease != time.Hour {
		t.Errorf("%+v", s)
	}
}

// A server that allows a thousand seconds of execution in each second, so that
// the ceiling shows the mean of the batches.
func TestTheCeilingFollowsTheMeanOfTheBatches(t *testing.T) {
	type batch struct{ took, busy time.Duration }
	for _, tt := range []struct {
		name    string
		batches []batch
		want    int
	}{
		{"none yet", nil, 1000},
		{"the first stands for itself", []batch{{8 * sec, 4 * sec}}, 2000},
		{"each next moves it by an eighth", []batch{{8 * sec, 4 * sec}, {16 * sec, 4 * sec}}, 2250},
		{"a server that does not say was busy all the time", []batch{{8 * sec, 4 * sec}, {8 * sec, 0}}, 1777},
		{"nor one that says less", []batch{{8 * sec, 4 * sec}, {8 * sec, -1}}, 1777},
		{"a nanosecond counts", []batch{{4, 1}}, 4000},
		{"and is a mean", []batch{{4, 1}, {4, 9}}, 2000},
		{"no batch takes less", []batch{{0, 1}}, 1000},
		{"at most what the server recommends", []batch{{80 * sec, sec}}, 5000},
	} {
		l := newParallelism(t, control.ParallelismParams{Max: 5000, BusyBudget: 1000 * sec, BusyWindow: sec})
		for _, b := range tt.batches {
			l.Success(time.Minute-b.took, time.Minute, b.busy)
		}
		if got := l.Statistics(0).Ceiling; got != tt.want {
			t.Errorf("%s: ceiling %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestABudgetThatIsNoneIsIgnored(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{Max: 100})
	for _, tt := range []struct {
		busy, window time.Duration
		want         int
	}{{0, sec, 100}, {sec, 0, 100}, {-1, sec, 100}, {1, 1, 1}, {7 * sec, sec, 7}, {0, sec, 7}, {sec, 0, 7}, {sec, -1, 7}} {
		l.Budget(tt.busy, tt.window)
		if got := l.Statistics(0).Ceiling; got != tt.want {
			t.Errorf("after a budget of %v in %v the ceiling is %d, want %d", tt.busy, tt.window, got, tt.want)
		}
	}
}

func TestWhatKeepsTheLevelFromBeingHigher(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    control.ParallelismParams
		do   func(*control.Parallelism)
		want reason.Bound
	}{
		{"it has not grown yet", control.ParallelismParams{}, nil, reason.BoundParallelism},
		{"the assumed maximum", control.ParallelismParams{InitialFactor: 1}, nil, reason.BoundCeiling},
		{"a recommendation", control.ParallelismParams{InitialFactor: 1}, func(l *control.Parallelism) { l.Recommend(4) }, reason.BoundLimit},
		{"the owner's ceiling", control.ParallelismParams{Max: 8, Ceiling: 8, InitialFactor: 1}, func(l *control.Parallelism) { l.Recommend(8) }, reason.BoundCeiling},
		{"a ceiling below the recommendation", control.ParallelismParams{Max: 8, Ceiling: 8, InitialFactor: 1}, func(l *control.Parallelism) { l.Recommend(9) }, reason.BoundCeiling},
		{"execution time", control.ParallelismParams{InitialFactor: 1, BusyBudget: 4 * sec, BusyWindow: sec}, nil, reason.BoundLimit},
	} {
		l := newParallelism(t, tt.p)
		if tt.do != nil {
			tt.do(&l)
		}
		if got := l.Bound(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
