package quota_test

import (
	"slices"
	"testing"
	"time"

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
	// Nobody asks; the shell's one timer fires when the governor says. One call
	// is there after a second; a tick later there is one to spare.
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
	// The next episode is reported again, however late one looks.
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
			t.Fatal("an approval in the episode does not tell of it")
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
		t.Error("an approval in the episode does not tell of it")
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
	g.HoldBack(0, quota.Request{Model: "unknown"}, time.Hour) // which is none of ours
	g.Advance(time.Hour)
	same(t, "events", eventsOf(g), []string{"0s rate:throttle global", "1s rate:resume global"})
	capped := governor(t, quota.Config{Global: quota.Limits{MaxDailyCalls: 1}, Models: map[string]quota.Model{"m": {}}})
	approve(t, capped, 0, ask(1))
	capped.HoldBack(0, ask(1), sec)
	capped.Advance(sec)
	same(t, "events of a day that is used up", eventsOf(capped), []string{"0s llm:quota_exhausted global"})
}

// The scenarios of the mission: each a list of calls with what they move.
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
	// The oldest go when there is no room, and one can tell.
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
	// The window empties at 61 s; from then on 1.9 returns in four steps.
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
