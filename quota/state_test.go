package quota_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/quota"
)

func TestExceedingTheLimitThrottlesOnceAndRecoveryResumesOnceWithNobodyAsking(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 3}))
	for range 3 {
		approve(t, g, 0, ask(1))
	}
	for range 5 {
		refused(t, g, 0, ask(1), quota.CodeThrottled)
	}
	refused(t, g, sec/2, ask(1), quota.CodeThrottled)
	same(t, "events", eventsOf(g), []string{"0s rate:throttle model m"})
	// Without requests, a timer calls Advance when NextTransition says. There is capacity
	// for one call after 1 s and for a second one after 2 s, when the episode ends.
	at, ok := g.NextTransition(sec)
	if !ok || at != 2*sec {
		t.Fatalf("next transition at %v, %v", at, ok)
	}
	g.Advance(at - 1)
	same(t, "events before", eventsOf(g), []string{})
	g.Advance(at)
	same(t, "events", eventsOf(g), []string{"2s rate:resume model m"})
	g.Advance(at + minute)
	same(t, "events long after", eventsOf(g), []string{})
	// The next episode is reported too, with its own times, however late Advance is called.
	for range 4 {
		g.Approve(2*minute, ask(1))
	}
	g.Advance(time.Hour)
	same(t, "the next episode", eventsOf(g), []string{"2m0s rate:throttle model m", "2m2s rate:resume model m"})
}

func TestAnEpisodeGoesOnWhileEveryTokenIsTakenAtOnce(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 3}))
	for range 3 {
		approve(t, g, 0, ask(1))
	}
	for i := range 60 {
		at := time.Duration(i) * sec
		refused(t, g, at, ask(1), quota.CodeThrottled)
		d := approve(t, g, at+sec, ask(1))
		if d.Advisory&quota.AdviseThrottled == 0 {
			t.Fatal("an approval in the episode does not mention it")
		}
	}
	g.Advance(time.Hour)
	same(t, "events", eventsOf(g), []string{"0s rate:throttle model m", "1m2s rate:resume model m"})
}

func TestTheGlobalScopeHasItsOwnEpisode(t *testing.T) {
	g := governor(t, quota.Config{Global: quota.Limits{CallsPerMinute: 60, Burst: 1}, Models: map[string]quota.Model{"m": {}}})
	approve(t, g, 0, ask(1))
	refused(t, g, 0, ask(1), quota.CodeGlobalLimit)
	g.Advance(minute)
	events, _ := g.TakeEvents(nil)
	var types []quota.EventType
	for _, e := range events {
		types = append(types, e.Type)
		if e.Type != quota.EventDenied && !e.Global {
			t.Errorf("%+v is not said to be global", e)
		}
	}
	if types[0] != quota.EventThrottle || !slices.Contains(types, quota.EventResume) {
		t.Errorf("%v", types)
	}
}

func TestWhatIsHeldBackIsOneEpisodeOfTheGlobalScope(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 3}))
	g.HoldBack(0, ask(1), 30*sec)
	g.HoldBack(sec, ask(1), 10*sec) // shorter than what was said before
	g.HoldBack(2*sec, ask(1), 40*sec)
	if d := approve(t, g, 3*sec, ask(1)); d.Advisory&quota.AdviseThrottled == 0 {
		t.Error("an approval in the episode does not mention it")
	}
	if f := g.Factor(3*sec, ask(1)); f != 2 {
		t.Errorf("the factor is %v, want 2", f)
	}
	if at, ok := g.NextTransition(4 * sec); !ok || at != 42*sec {
		t.Errorf("next transition at %v, %v", at, ok)
	}
	g.Advance(time.Hour)
	same(t, "events", eventsOf(g), []string{"0s rate:throttle global", "42s rate:resume global"})
	same(t, "moves", moved(g), []string{"0s global: normal>throttle held_back", "42s global: throttle>normal resume"})
	if s := g.Statistics(); s.Denied != 3 || s.Throttles != 1 || s.Resumes != 1 {
		t.Errorf("%+v", s)
	}
}

func TestABucketThatIsEmptyOutlastsWhatIsHeldBack(t *testing.T) {
	g := governor(t, quota.Config{Global: quota.Limits{CallsPerMinute: 60, Burst: 1}, Models: map[string]quota.Model{"m": {}}})
	approve(t, g, 0, ask(1))
	g.HoldBack(0, ask(1), sec/2)
	refused(t, g, 0, ask(1), quota.CodeGlobalLimit)
	g.HoldBack(0, quota.Request{Model: "unknown"}, time.Hour) // not a model of this governor
	g.Advance(time.Hour)
	same(t, "events", eventsOf(g), []string{"0s rate:throttle global", "1s rate:resume global"})
	capped := governor(t, quota.Config{Global: quota.Limits{MaxDailyCalls: 1}, Models: map[string]quota.Model{"m": {}}})
	approve(t, capped, 0, ask(1))
	capped.HoldBack(0, ask(1), sec)
	capped.Advance(sec)
	same(t, "events of a day that is used up", eventsOf(capped), []string{"0s llm:quota_exhausted global"})
}

// Each scenario is a list of calls, with the transitions that they cause.
func TestScenarios(t *testing.T) {
	midnight := 12 * time.Hour // after the origin
	type step struct {
		at     time.Duration
		tokens int64 // -1: only look
		code   quota.Code
		moves  []string
	}
	for _, tt := range []struct {
		name   string
		limits quota.Limits
		steps  []step
	}{
		{"normal", quota.Limits{CallsPerMinute: 60, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, MaxDailyTokens: 1000}, []step{
			{0, 40, "", nil}, {sec, 40, "", nil}, {minute + 3*sec, 40, "", nil},
		}},
		{"burst exhaustion, from normal to throttle directly", quota.Limits{CallsPerMinute: 60, Burst: 1, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}, []step{
			{0, 1, "", nil},
			{0, 1, quota.CodeThrottled, []string{"0s model m: normal>throttle bucket_empty"}},
			{sec, -1, "", []string{"1s model m: throttle>normal resume"}},
		}},
		{"token exhaustion", quota.Limits{TokensPerMinute: 60}, []step{
			{0, 60, "", nil},
			{0, 10, quota.CodeThrottled, []string{"0s model m: normal>throttle bucket_empty"}},
			{9 * sec, 10, quota.CodeThrottled, nil},
			{20 * sec, -1, "", []string{"16s model m: throttle>normal resume"}}, // 10 and a tenth of 60
		}},
		{"soft, throttle, resume, soft again, normal", quota.Limits{CallsPerMinute: 60, Burst: 3, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}, []step{
			{0, 50, "", nil},
			{0, 31, "", []string{"0s model m: normal>soft soft_reached"}},
			{0, 1, "", nil},
			{0, 1, quota.CodeThrottled, []string{"0s model m: soft>throttle bucket_empty"}},
			{2 * sec, -1, "", []string{"2s model m: throttle>normal resume", "2s model m: normal>soft soft_reached"}},
			{time.Hour, -1, "", []string{"1m1s model m: soft>normal soft_relieved"}},
		}},
		{"soft has hysteresis", quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}, []step{
			{0, 5, "", nil},
			{10 * sec, 71, "", nil},
			{20 * sec, 5, "", []string{"20s model m: normal>soft soft_reached"}},
			{62 * sec, -1, "", nil}, // 76 of 100: below 0.8, not yet 0.7
			{time.Hour, -1, "", []string{"1m11s model m: soft>normal soft_relieved"}},
		}},
		{"what the window refused keeps it soft until there is room", quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}, []step{
			{0, 20, "", nil},
			{10 * sec, 30, "", nil},
			{20 * sec, 80, quota.CodeSoftLimit, []string{"20s model m: normal>soft soft_reached"}},
			{62 * sec, -1, "", nil},
			{time.Hour, -1, "", []string{"1m11s model m: soft>normal soft_relieved"}},
		}},
		{"soft to hard escalation, then the next day", quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, MaxDailyTokens: 100}, []step{
			{0, 99, "", []string{"0s model m: normal>soft soft_reached"}},
			{0, 70, quota.CodeHardLimit, []string{"0s model m: soft>exhausted cap_reached"}},
			{2 * minute, 70, quota.CodeHardLimit, nil},
			{midnight - 1, 70, quota.CodeHardLimit, nil},
			{midnight, 70, "", []string{"12h0m0s model m: exhausted>normal day_turned"}},
		}},
		{"throttle to exhausted", quota.Limits{CallsPerMinute: 60, Burst: 1, MaxDailyCalls: 2}, []step{
			{0, 1, "", nil},
			{0, 1, quota.CodeThrottled, []string{"0s model m: normal>throttle bucket_empty"}},
			{sec, 1, "", []string{"1s model m: throttle>normal resume", "1s model m: normal>exhausted cap_reached"}},
			{2 * sec, 1, quota.CodeHardLimit, nil},
			{midnight, 1, "", []string{"12h0m0s model m: exhausted>normal day_turned"}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := governor(t, oneModel(tt.limits))
			for i, s := range tt.steps {
				if s.tokens < 0 {
					g.Advance(s.at)
				} else if d := g.Approve(s.at, ask(s.tokens)); d.Code != s.code || d.Approved != (s.code == "") {
					t.Fatalf("step %d: %+v", i, d)
				} else if d.Approved {
					settle(t, g, s.at, d.Permit, s.tokens)
				}
				if s.moves == nil {
					s.moves = []string{}
				}
				same(t, "moves", moved(g), s.moves)
			}
		})
	}
}

func TestMultipleResumesAreSuppressed(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 2, TokensPerMinute: 600}))
	approve(t, g, 0, ask(600))
	refused(t, g, 0, ask(10), quota.CodeThrottled) // for tokens
	approve(t, g, 6*sec, ask(0))
	approve(t, g, 6*sec, ask(0))
	refused(t, g, 6*sec, ask(10), quota.CodeThrottled) // for calls, in the same episode
	for at := 6 * sec; at < 5*minute; at += sec / 4 {
		g.Advance(at)
	}
	same(t, "events", eventsOf(g), []string{"0s rate:throttle model m", "8s rate:resume model m"})
}

func TestARefundResumesAtOnce(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{TokensPerMinute: 100}))
	p := approve(t, g, 0, ask(100)).Permit
	refused(t, g, 0, ask(50), quota.CodeThrottled)
	settle(t, g, sec, p, 10)
	same(t, "events", eventsOf(g), []string{"0s rate:throttle model m", "1s rate:resume model m"})
	approve(t, g, sec, ask(50))
}

func TestDeniedEventsDoNotFloodTheBuffer(t *testing.T) {
	c := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})
	c.EventBuffer = 3
	g := governor(t, c)
	approve(t, g, 0, ask(1))
	for range 1000 {
		refused(t, g, 0, ask(1), quota.CodeThrottled)
	}
	events := g.Snapshot(0).RecentEvents
	last := events[len(events)-1]
	if len(events) != 3 || events[0].Type != quota.EventThrottle || last.Type != quota.EventDenied || last.Count != 1000 || last.Code != quota.CodeThrottled {
		t.Errorf("%v with %d of %+v", events, len(events), last)
	}
	g.TakeEvents(nil)
	refused(t, g, 0, ask(1), quota.CodeThrottled)
	fresh, lost := g.TakeEvents(nil)
	if len(fresh) != 1 || fresh[0].Count != 0 || lost != 0 {
		t.Errorf("%v, %d lost", fresh, lost)
	}
	// Without room the oldest events are dropped, and counted as lost.
	for i := range 5 {
		g.Backoff(sec, quota.Scope{Model: "m"}, quota.Decision{RetryIn: time.Duration(i)})
	}
	fresh, lost = g.TakeEvents(nil)
	if len(fresh) != 3 || lost != 3 { // five and the end of the episode
		t.Errorf("%v, %d lost", fresh, lost)
	}
}

func TestTheScaleFactorFollowsPressureAndReturnsInSteps(t *testing.T) {
	c := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 3, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Advise})
	c.ScaleStepMS = 1000
	g := governor(t, c)
	factor := func(at time.Duration) float64 { return g.Factor(at, quota.Request{Model: "m"}) }
	if f := factor(0); f != 1 {
		t.Errorf("factor %v at first", f)
	}
	approve(t, g, 0, ask(90))
	if f := factor(0); f != 0.9 {
		t.Errorf("factor %v at 0.9 of the soft budget", f)
	}
	approve(t, g, 0, ask(100)) // advised, not refused
	p := approve(t, g, 0, ask(100)).Permit
	if f := factor(0); f != 2.9 {
		t.Errorf("factor %v at 2.9 of the soft budget", f)
	}
	refused(t, g, 0, ask(100), quota.CodeThrottled)
	if f := factor(0); f != 2.9 {
		t.Errorf("factor %v in throttle", f)
	}
	if _, err := g.Cancel(0, p); err != nil { // resumes, still soft
		t.Fatal(err)
	}
	if f := factor(0); f != 2 {
		t.Errorf("factor %v in throttle at 1.9 of the soft budget, want at least 2", f)
	}
	if f := factor(2 * sec); f != 1.9 {
		t.Errorf("factor %v after the resume, still soft", f)
	}
	// The window is empty at 61 s. From then on the factor returns from 1.9 in four steps.
	var factors []float64
	for i := range 6 {
		factors = append(factors, factor(61*sec+time.Duration(i)*sec))
	}
	for i, want := range []float64{1.9, 1.675, 1.45, 1.225, 1, 1} {
		if d := factors[i] - want; d > 0.002 || d < -0.002 {
			t.Errorf("factors %v: step %d, want %v", factors, i, want)
		}
	}
	events, _ := g.TakeEvents(nil)
	last := 0.0
	for _, e := range events {
		if e.Type == quota.EventAdaptiveScale {
			if e.Factor == last {
				t.Errorf("the same factor %v is reported twice", last)
			}
			last = e.Factor
		}
	}
	if last != 1 {
		t.Errorf("the last factor reported is %v", last)
	}
}

func TestAThrottledScopeScalesByTwoAtLeastAndFourAtMost(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1}))
	approve(t, g, 0, ask(1))
	refused(t, g, 0, ask(1), quota.CodeThrottled)
	if f := g.Factor(0, ask(1)); f != 2 {
		t.Errorf("%v", f)
	}
	c := oneModel(quota.Limits{SoftTokenBudget: 10, SoftTokenWindowMS: 1000, SoftPolicy: quota.Advise})
	g = governor(t, c)
	settle(t, g, 0, approve(t, g, 0, ask(10)).Permit, 1000)
	if f := g.Factor(0, ask(1)); f != 4 {
		t.Errorf("%v", f)
	}
	c.AdaptiveScalingOff = true
	if err := g.Replace(0, c); err != nil {
		t.Fatal(err)
	}
	if f := g.Factor(0, ask(1)); f != 1 || g.Snapshot(0).AdaptiveScalingEnabled {
		t.Errorf("%v with scaling off", f)
	}
}

func TestTheSnapshotHasItsStructure(t *testing.T) {
	g := governor(t, quota.Config{
		Global: quota.Limits{CallsPerMinute: 60, Burst: 3, MaxDailyTokens: 1000},
		Models: map[string]quota.Model{
			"bare": {},
			"full": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 2, TokensPerMinute: 500, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, MaxDailyTokens: 500, MaxDailyCalls: 50}},
		},
	})
	full := quota.Request{Model: "full", InputTokens: 85}
	settle(t, g, 0, approve(t, g, 0, full).Permit, 84)
	approve(t, g, 0, quota.Request{Model: "full", InputTokens: 1})
	refused(t, g, 0, full, quota.CodeSoftLimit)
	approve(t, g, 0, quota.Request{Model: "bare"})
	refused(t, g, 500*ms, quota.Request{Model: "bare"}, quota.CodeGlobalLimit)
	got, err := json.MarshalIndent(g.Snapshot(sec), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	const path = "testdata/snapshot.golden.json"
	if golden.Updating() {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestBurstRemainingCountsTheScopesAbove(t *testing.T) {
	g := governor(t, quota.Config{
		Global: quota.Limits{CallsPerMinute: 60, Burst: 3},
		Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 10}}, "n": {}},
	})
	s := g.Snapshot(0)
	if *s.Models["m"].CallsRemaining != 10 || *s.Models["m"].BurstRemaining != 3 || *s.Models["n"].BurstRemaining != 3 || *s.Global.BurstRemaining != 3 {
		t.Errorf("%+v", s)
	}
	if s.Models["n"].CallsRemaining != nil {
		t.Error("a model without a call limit has calls remaining")
	}
}

func TestForecasts(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, MaxDailyTokens: 12_000}))
	// Ten minutes of 5 calls and 500 tokens a minute: 7,000 tokens last 14
	// minutes more, and calls forever.
	for i := range 50 {
		at := time.Duration(i) * 12 * sec
		settle(t, g, at, approve(t, g, at, ask(100)).Permit, 100)
	}
	all := g.Forecast(10*minute, quota.Scope{Model: "m"})
	if len(all) != 2 || all[0].Budget != "calls" || all[1].Budget != "dailyTokens" {
		t.Fatalf("%+v", all)
	}
	if all[0].RunsOutIn != quota.Never || all[0].PerMinute != 5 || all[0].Early() {
		t.Errorf("%+v", all[0])
	}
	if all[1].RunsOutIn != 14*minute || all[1].Remaining != 7000 || all[1].PerMinute != 500 || !all[1].Early() {
		t.Errorf("%+v", all[1])
	}
	if g.Forecast(10*minute, quota.Scope{Tenant: "nobody"}) != nil {
		t.Error("a forecast for nobody")
	}
}

// Each budget says how much it holds, and when it has room for one call or token.
func TestForecastsSayWhenThereIsRoom(t *testing.T) {
	type use struct {
		size, remaining int64
		room            time.Duration
	}
	const turn = 12 * 60 * minute // the day ends at midnight
	c := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 2, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, MaxDailyTokens: 150, MaxDailyCalls: 2})
	g := governor(t, c)
	is := func(at time.Duration, want map[string]use) {
		t.Helper()
		got := map[string]use{}
		for _, f := range g.Forecast(at, quota.Scope{Model: "m"}) {
			got[f.Budget] = use{f.Size, f.Remaining, f.RoomIn}
		}
		if len(got) != len(want) {
			t.Errorf("budgets are %v", got)
		}
		for budget, w := range want {
			if got[budget] != w {
				t.Errorf("at %v %s is %v, want %v", at, budget, got[budget], w)
			}
		}
	}
	is(0, map[string]use{"calls": {2, 2, 0}, "softTokens": {100, 100, 0}, "dailyTokens": {150, 150, 0}, "dailyCalls": {2, 2, 0}})
	first := approve(t, g, 0, ask(50)).Permit
	second := approve(t, g, 0, ask(50)).Permit
	// Two calls were made; of the tokens, both hold 50.
	is(sec/2, map[string]use{"calls": {2, 0, sec / 2}, "softTokens": {100, 0, 61*sec - sec/2}, "dailyTokens": {150, 50, 0}, "dailyCalls": {2, 0, turn - sec/2}})
	settle(t, g, sec, first, 50)
	settle(t, g, sec, second, 100)
	is(sec, map[string]use{"calls": {2, 1, 0}, "softTokens": {100, -50, 60 * sec}, "dailyTokens": {150, 0, turn - sec}, "dailyCalls": {2, 0, turn - sec}})

	held := governor(t, oneModel(quota.Limits{MaxDailyTokens: 50}))
	approve(t, held, 0, ask(50))
	if f := held.Forecast(0, quota.Scope{Model: "m"})[0]; f.RoomIn != quota.Never || f.Remaining != 0 {
		t.Errorf("%+v: a call under way may give back what it holds", f)
	}
}

func TestHeadingForTheEndOfADayRaisesSoftPressureEarly(t *testing.T) {
	for _, off := range []bool{false, true} {
		c := oneModel(quota.Limits{MaxDailyTokens: 12_000})
		c.ForecastOff = off
		g := governor(t, c)
		// At 500 a minute, the tokens of a day are used up in 24 minutes.
		for i := range 80 {
			at := time.Duration(i) * 12 * sec
			settle(t, g, at, approve(t, g, at, ask(100)).Permit, 100)
		}
		events, _ := g.TakeEvents(nil)
		var early []quota.Event
		for _, e := range events {
			if e.Type == quota.EventSoftPressure {
				early = append(early, e)
			}
		}
		if off {
			if len(early) != 0 {
				t.Errorf("forecasts are off: %v", early)
			}
			continue
		}
		if len(early) != 1 || !early[0].Forecast || early[0].Utilization != 0.5 || early[0].WindowMS != 24*3600*1000 {
			t.Fatalf("%+v", early)
		}
		if d := approve(t, g, 16*minute, ask(100)); d.Advisory&quota.AdviseSoft == 0 {
			t.Error("no advisory")
		}
		// Without requests the rate falls, and the pressure ends.
		g.Advance(time.Hour)
		if s := model(t, g, time.Hour); s.State != quota.Normal {
			t.Errorf("state %v an hour later", s.State)
		}
	}
}

func TestHeadingForTheEndOfTheWindowRaisesSoftPressureEarly(t *testing.T) {
	use := func(every time.Duration) (*quota.Governor, time.Duration) {
		g := governor(t, oneModel(quota.Limits{SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000}))
		for at := time.Duration(0); at < 5*minute; at += every {
			approve(t, g, at, ask(10))
			if s := model(t, g, at); s.State == quota.Soft {
				return g, at
			}
		}
		return g, 0
	}
	// 10 a second are 600 a minute, which never reaches 0.8 of the budget.
	if g, at := use(sec); at != 0 {
		t.Errorf("a steady use of 0.6 is soft at %v: %+v", at, model(t, g, at))
	}
	// 20 a second are 1,200 a minute. The forecast sees that before 0.8 is reached.
	g, at := use(sec / 2)
	if used := 1000 - *model(t, g, at).SoftTokensRemaining; at == 0 || used < 500 || used >= 600 {
		t.Errorf("soft at %v with %d used", at, used)
	}
	// The forecast takes no rate from a single burst.
	g = governor(t, oneModel(quota.Limits{SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000}))
	approve(t, g, 0, ask(799))
	if s := model(t, g, 0); s.State != quota.Normal {
		t.Errorf("state %v after a burst", s.State)
	}
}

func TestScopesAreBounded(t *testing.T) {
	c := oneModel(quota.Limits{})
	c.MaxTenants, c.MaxAgents = 3, 2
	c.TenantDefault = quota.Tenant{Limits: quota.Limits{CallsPerMinute: 60, Burst: 2}}
	c.Tenants = map[string]quota.Tenant{"named": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 9}}}
	g := governor(t, c)
	of := func(i int) quota.Request { return quota.Request{Model: "m", Tenant: fmt.Sprintf("t%d", i)} }
	for i := range 3 {
		settle(t, g, 0, approve(t, g, 0, of(i)).Permit, 0)
	}
	// No tenant is idle yet. New tenants share one scope with the default limits, so a new
	// name gives no new budget.
	shared := 0
	for i := range 1000 {
		if d := g.Approve(0, of(100+i)); d.Approved {
			shared++
			if d.Advisory&quota.AdviseShared == 0 {
				t.Error("no advisory is about the shared scope")
			}
			settle(t, g, 0, d.Permit, 0)
		}
	}
	if shared != 2 || g.Statistics().Tenants != 4 {
		t.Errorf("%d approvals, %d tenants", shared, g.Statistics().Tenants)
	}
	// A tenant of the configuration has its own scope nevertheless.
	if d := approve(t, g, 0, quota.Request{Model: "m", Tenant: "named"}); d.Advisory&quota.AdviseShared != 0 {
		t.Error("a tenant of the configuration has no scope")
	}
	// When their buckets are full again, idle tenants make room.
	for i := range 10_000 {
		at := minute + time.Duration(i)*minute
		if d := approve(t, g, at, of(2000+i)); d.Advisory&quota.AdviseShared != 0 {
			t.Fatalf("no room for tenant %d", i)
		} else {
			settle(t, g, at, d.Permit, 0)
		}
	}
	if n := g.Statistics().Tenants; n > 5 {
		t.Errorf("%d tenants are remembered", n)
	}
	// An open permit and a used daily cap are remembered.
	if err := g.UpdateConfig(20_000*minute, []byte(`{"tenantDefault":{"maxDailyTokens":10}}`)); err != nil {
		t.Fatal(err)
	}
	at := 20_000 * minute
	for i := range 5 {
		g.Approve(at, quota.Request{Model: "m", Tenant: fmt.Sprintf("u%d", i), InputTokens: 10})
	}
	left := g.Use(at+minute, nil)
	if d := g.Approve(at+minute, quota.Request{Model: "m", Tenant: "again", InputTokens: 1}); d.Approved {
		t.Errorf("a new name is a new daily budget: %+v with %+v", d, left)
	}
	// The agents of a tenant are bounded too, and unknown models add none.
	for i := range 100 {
		r := quota.Request{Model: "m", Tenant: "named", Agent: fmt.Sprintf("a%d", i)}
		if d := g.Approve(at, r); d.Approved {
			settle(t, g, at, d.Permit, 0)
		}
		g.Approve(at, quota.Request{Model: "none", Tenant: fmt.Sprintf("x%d", i)})
	}
	if _, ok := g.Inspect(at, quota.Scope{Tenant: "x1"}); ok {
		t.Error("a request for an unknown model made a scope")
	}
}

func TestWhoHoldsAPermitOrWaitsIsNotForgotten(t *testing.T) {
	c := oneModel(quota.Limits{CallsPerMinute: 1})
	c.MaxTenants, c.PermitTTLMS = 1, 3600_000
	g := governor(t, c)
	of := func(tenant string) quota.Request { return quota.Request{Model: "m", Tenant: tenant} }
	permit := approve(t, g, 0, of("a")).Permit
	if d := approve(t, g, minute, of("b")); d.Advisory&quota.AdviseShared == 0 {
		t.Error("a tenant with an open permit was forgotten")
	}
	settle(t, g, minute, permit, 0)
	enqueue(t, g, minute, of("a"), time.Hour)
	if _, d := g.Enqueue(minute, of("c"), time.Hour); d.Final {
		t.Fatalf("%+v", d)
	}
	if _, ok := g.Inspect(minute, quota.Scope{Tenant: "c"}); ok {
		t.Error("a tenant who waits was forgotten")
	}
	drive(t, g, minute, time.Hour)
	approve(t, g, 2*time.Hour, of("c"))
	if _, ok := g.Inspect(2*time.Hour, quota.Scope{Tenant: "c"}); !ok {
		t.Error("an idle tenant made no room")
	}
}

// timeline plays a fixed sequence of ten thousand calls.
func timeline(t *testing.T) *quota.Governor {
	l := func(calls, tokens, soft, daily int64) quota.Limits {
		return quota.Limits{
			CallsPerMinute: calls, Burst: calls / 4, TokensPerMinute: tokens,
			SoftTokenBudget: soft, SoftTokenWindowMS: 45_000, MaxDailyTokens: daily, DayZone: "America/Los_Angeles",
		}
	}
	g := governor(t, quota.Config{
		Global:        l(60, 190_000, 110_000, 30_000_000),
		Models:        map[string]quota.Model{"a": {Limits: l(31, 90_000, 60_000, 400_000), Charge: "openai"}, "b": {Limits: l(29, 70_000, 50_000, 500_000), Charge: "anthropic"}},
		TenantDefault: quota.Tenant{Limits: l(16, 60_000, 40_000, 5_000_000)},
		PermitTTLMS:   20_000, EventBuffer: 100_000,
	})
	random := uint64(42) // a generator of its own, so that the sequence never changes
	draw := func(n uint64) int64 {
		random = random*6364136223846793005 + 1442695040888963407
		return int64((random >> 33) % n)
	}
	now := time.Duration(0)
	var open []quota.Permit
	for range 10_000 {
		now += time.Duration(draw(1_000_000_007) * draw(2))
		if draw(500) == 0 {
			now += 7 * time.Hour
		}
		r := quota.Request{
			Model: []string{"a", "b"}[draw(2)], Tenant: fmt.Sprint("t", draw(5)),
			InputTokens: draw(3000), OutputTokens: draw(500), MaxTokens: draw(2000),
		}
		if d := g.Approve(now, r); d.Approved {
			open = append(open, d.Permit)
		}
		if len(open) > 3 {
			p := open[0]
			open = open[1:]
			switch draw(10) {
			case 0: // forgotten
			case 1:
				if _, err := g.Cancel(now, p); err != nil {
					t.Fatal(err)
				}
			default: // late ones are refused
				g.RecordUsage(now, p, quota.Usage{Input: draw(3000), Output: draw(1000)}) //nolint:errcheck // some have expired, on purpose
			}
		}
	}
	g.Advance(now + 48*time.Hour)
	return g
}

// The hash is the same on every machine. Run this with GOARCH=386 too.
func TestTheSameTimelineGivesTheSameHashEverywhere(t *testing.T) {
	const want = "5da8979feec14fcbc3dfdfc20d5f76946faed7a12e66b2dc93affd12bcc46e34"
	first, second := timeline(t), timeline(t)
	if got := fmt.Sprintf("%x", first.LogHash()); got != want || first.LogHash() != second.LogHash() {
		t.Errorf("%s and %x, want %s", got, second.LogHash(), want)
	}
	s := first.Statistics()
	if s.Moves < 500 || s.Throttles < 100 || s.Expired < 100 || s.Approved < 1000 || s.Denied < 1000 {
		t.Errorf("%+v: the timeline is too quiet to prove anything", s)
	}
	moves, _ := first.TakeMoves(nil)
	seen := map[quota.Trigger]bool{}
	for _, m := range moves {
		seen[m.Trigger] = true
	}
	for trigger := range quota.CapRaised { // CapRaised needs a new configuration
		if !seen[trigger] {
			t.Errorf("nothing was moved by %v", trigger)
		}
	}
}
