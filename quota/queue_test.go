package quota_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/quota"
)

// enqueue fails the test on a refusal.
func enqueue(t testing.TB, g *quota.Governor, at time.Duration, r quota.Request, deadline time.Duration) quota.Waiter {
	t.Helper()
	w, d := g.Enqueue(at, r, deadline)
	if w == 0 {
		t.Fatalf("refused: %+v", d)
	}
	return w
}

// drive plays the shell: it grants at every instant that the governor names,
// and returns the order of approval.
func drive(t testing.TB, g *quota.Governor, from, until time.Duration) (order []quota.Waiter, at map[quota.Waiter]time.Duration) {
	t.Helper()
	at = map[quota.Waiter]time.Duration{}
	for now := from; now <= until; {
		for _, grant := range g.Grants(now, nil) {
			if grant.Approved {
				order = append(order, grant.Waiter)
				at[grant.Waiter] = now
			}
		}
		next, ok := g.NextTransition(now)
		if !ok || g.Waiting() == 0 {
			return order, at
		}
		if next <= now {
			t.Fatalf("at %v the next transition is at %v", now, next)
		}
		now = next
	}
	return order, at
}

func tenant(name string, priority int) quota.Request {
	return quota.Request{Model: "m", Tenant: name, Priority: priority, InputTokens: 10}
}

func TestTenantsShareByWeight(t *testing.T) {
	g := governor(t, quota.Config{
		Models:  map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 1}}},
		Tenants: map[string]quota.Tenant{"heavy": {Limits: quota.Limits{}, Weight: 3}, "light": {}, "modest": {}},
	})
	approve(t, g, 0, tenant("light", 0))
	who := map[quota.Waiter]string{}
	// The heavy and the light want more than there is, the modest little; they
	// come one tenant after the other.
	for name, n := range map[string]int{"heavy": 60, "light": 60, "modest": 5} {
		for range n {
			who[enqueue(t, g, 0, tenant(name, 0), time.Hour)] = name
		}
	}
	order, _ := drive(t, g, 0, 45*sec)
	got := map[string]int{}
	for _, w := range order {
		got[who[w]]++
	}
	// Max-min: the modest gets all it wants, the others 3:1 of the rest.
	if len(order) != 45 || got["modest"] != 5 || got["heavy"] < 29 || got["heavy"] > 31 {
		t.Errorf("%v of %d", got, len(order))
	}
}

func TestSharesAreOfTokensWhereTokensAreScarce(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{TokensPerMinute: 6000, TokenBurst: 100}))
	who := map[quota.Waiter]string{}
	for range 100 {
		large, small := tenant("large", 0), tenant("small", 0)
		large.InputTokens, small.InputTokens = 100, 10
		who[enqueue(t, g, 0, large, time.Hour)] = "large"
		for range 10 {
			who[enqueue(t, g, 0, small, time.Hour)] = "small"
			if g.Waiting() > 900 {
				break
			}
		}
		if g.Waiting() > 900 {
			break
		}
	}
	order, _ := drive(t, g, 0, minute)
	got := map[string]int{}
	for _, w := range order {
		got[who[w]]++
	}
	if got["small"] < 9*got["large"] || got["small"] > 11*got["large"] {
		t.Errorf("%v: not the same tokens for both", got)
	}
}

func TestPrioritiesComeBeforeFairness(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1}))
	approve(t, g, 0, tenant("a", 0))
	low := enqueue(t, g, 0, tenant("b", 0), time.Hour)
	first := enqueue(t, g, 0, tenant("a", 5), time.Hour)
	second := enqueue(t, g, 0, tenant("a", 5), time.Hour)
	highest := enqueue(t, g, 0, tenant("c", 9), time.Hour)
	order, at := drive(t, g, 0, minute)
	if !slices.Equal(order, []quota.Waiter{highest, first, second, low}) {
		t.Errorf("%v", order)
	}
	for i, w := range order {
		if at[w] != time.Duration(i+1)*sec {
			t.Errorf("the %d. was granted at %v", i+1, at[w])
		}
	}
}

func TestALargeRequestIsNotStarvedBySmallOnes(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{TokensPerMinute: 60}))
	approve(t, g, 0, ask(60))
	large := enqueue(t, g, 0, ask(50), time.Hour)
	small := enqueue(t, g, 0, ask(1), time.Hour)
	if grants := g.Grants(10*sec, nil); len(grants) != 0 {
		t.Fatalf("%+v went before the large one", grants)
	}
	// Nor do newcomers overtake, unless their priority is greater.
	d := refused(t, g, 10*sec, ask(1), quota.CodeThrottled)
	if d.RetryIn != 42*sec { // after both of them
		t.Errorf("retry in %v", d.RetryIn)
	}
	urgent := ask(1)
	urgent.Priority = 1
	approve(t, g, 10*sec, urgent)
	order, at := drive(t, g, 10*sec, time.Hour)
	if !slices.Equal(order, []quota.Waiter{large, small}) || at[large] != 51*sec {
		t.Errorf("%v at %v", order, at)
	}
}

func TestWhoIsBlockedByItsOwnScopeBlocksNobodyElse(t *testing.T) {
	g := governor(t, quota.Config{
		Models:  map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 600, Burst: 10}}},
		Tenants: map[string]quota.Tenant{"slow": {Limits: quota.Limits{CallsPerMinute: 1}}},
	})
	approve(t, g, 0, tenant("slow", 0))
	slow := enqueue(t, g, 0, tenant("slow", 9), time.Hour)
	quick := enqueue(t, g, 0, tenant("quick", 0), time.Hour)
	order, at := drive(t, g, 0, time.Hour)
	if !slices.Equal(order, []quota.Waiter{quick, slow}) || at[quick] != 0 || at[slow] != minute {
		t.Errorf("%v at %v", order, at)
	}
}

func TestWaitersAreRefusedAtOnceWhatCannotBeServedInTime(t *testing.T) {
	c := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1, MaxDailyCalls: 10})
	c.MaxWaiting = 3
	g := governor(t, c)
	approve(t, g, 0, ask(1))
	refuse := func(r quota.Request, deadline time.Duration, code quota.Code) quota.Decision {
		t.Helper()
		w, d := g.Enqueue(0, r, deadline)
		if w != 0 || d.Code != code || !d.Final {
			t.Errorf("%d, %+v, want %s", w, d, code)
		}
		return d
	}
	refuse(ask(1), sec-1, quota.CodeThrottled)
	for i := range 3 {
		w, d := g.Enqueue(0, ask(1), time.Duration(i+1)*sec)
		if w == 0 || d.RetryIn != time.Duration(i+1)*sec {
			t.Fatalf("%d, %+v", w, d)
		}
		// The next one would have to wait a second longer.
		refuse(ask(1), time.Duration(i+1)*sec+1, quota.CodeThrottled)
	}
	refuse(ask(1), time.Hour, quota.CodeGlobalLimit) // the queue is full
	refuse(quota.Request{Model: "none"}, time.Hour, quota.CodeModelNotConfigured)
	if g.Waiting() != 3 {
		t.Errorf("%d wait", g.Waiting())
	}
}

func TestTheEndsOfAWait(t *testing.T) {
	g := governor(t, quota.Config{Models: map[string]quota.Model{
		"m": {Limits: quota.Limits{CallsPerMinute: 1}}, "n": {Limits: quota.Limits{CallsPerMinute: 1}},
		"day": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 1, MaxDailyCalls: 2}},
	}})
	of := func(model string) quota.Request { return quota.Request{Model: model, Tenant: "t"} }
	for _, model := range []string{"m", "n", "day"} {
		approve(t, g, 0, of(model))
	}
	late := enqueue(t, g, 0, of("m"), minute)
	crowded := of("m")
	crowded.Priority = 1
	first := enqueue(t, g, 0, crowded, minute+1)
	gone := enqueue(t, g, 0, of("n"), time.Hour)
	served, spent := enqueue(t, g, 0, of("day"), time.Hour), enqueue(t, g, 0, of("day"), time.Hour)
	leaves := enqueue(t, g, 0, of("day"), time.Hour)
	if !g.Withdraw(0, leaves) || g.Withdraw(0, leaves) {
		t.Error("a waiter leaves once")
	}
	early := enqueue(t, g, 0, of("day"), time.Hour)
	if d, ok := g.Expire(0, early); !ok || d.Approved || d.Code != quota.CodeThrottled || d.RetryIn < sec {
		t.Errorf("a wait that ends early: %+v", d)
	}
	if _, ok := g.Expire(0, early); ok {
		t.Error("a wait ended twice")
	}
	got := map[quota.Waiter]string{}
	note := func(grants []quota.Grant) {
		for _, grant := range grants {
			got[grant.Waiter] = fmt.Sprint(grant.Approved, grant.Code)
		}
	}
	note(g.Grants(0, nil))
	note(g.Grants(sec, nil))
	if err := g.UpdateConfig(2*sec, []byte(`{"models":{"n":null}}`)); err != nil {
		t.Fatal(err)
	}
	note(g.Grants(2*sec, nil))
	note(g.Grants(minute, nil))
	want := map[quota.Waiter]string{
		served: "true", spent: "false" + string(quota.CodeHardLimit), gone: "false" + string(quota.CodeModelNotConfigured),
		late: "false" + string(quota.CodeThrottled), first: "true",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || g.Waiting() != 0 {
		t.Errorf("%v, want %v; %d wait", got, want, g.Waiting())
	}
}

// A request that waits is granted or refused in the end, in an order that respects
// priorities, and the books balance.
func TestEveryWaitEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.LoadZone = time.LoadLocation
		g, err := quota.New(c, origin)
		if err != nil {
			t.Fatal(err)
		}
		waiting := map[quota.Waiter]bool{}
		now := time.Duration(0)
		note := func(grants []quota.Grant) {
			for _, grant := range grants {
				if !waiting[grant.Waiter] {
					t.Fatalf("%+v did not wait", grant)
				}
				delete(waiting, grant.Waiter)
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "later"))
			r := drawRequest(t)
			if d := g.Approve(now, r); !d.Approved {
				if w, _ := g.Enqueue(now, r, now+time.Duration(rapid.Int64Range(0, 60e9).Draw(t, "max wait"))); w != 0 {
					waiting[w] = true
				}
			}
			if rapid.Bool().Draw(t, "withdraw") {
				for w := quota.Waiter(1); w < 50; w++ {
					if waiting[w] {
						if !g.Withdraw(now, w) {
							t.Fatalf("%d cannot leave", w)
						}
						delete(waiting, w)
						break
					}
				}
			}
			note(g.Grants(now, nil))
			checkScopes(t, g, now)
		}
		for range 1000 {
			if g.Waiting() == 0 {
				break
			}
			at, ok := g.NextTransition(now)
			if !ok || at <= now {
				t.Fatalf("%d wait at %v, but the next transition is at %v, %v", g.Waiting(), now, at, ok)
			}
			now = at
			note(g.Grants(now, nil))
		}
		if len(waiting) != 0 || g.Waiting() != 0 {
			t.Fatalf("%d and %d still wait at %v", len(waiting), g.Waiting(), now)
		}
	})
}

// Who comes late does not make up for the time in which it wanted nothing.
func TestWhoComesLateHasNoCredit(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1}))
	approve(t, g, 0, tenant("early", 0))
	who := map[quota.Waiter]string{}
	for range 60 {
		who[enqueue(t, g, 0, tenant("early", 0), time.Hour)] = "early"
	}
	drive(t, g, 0, 30*sec)
	for range 30 {
		who[enqueue(t, g, 31*sec, tenant("late", 0), time.Hour)] = "late"
	}
	order, _ := drive(t, g, 31*sec, 50*sec)
	got := map[string]int{}
	for _, w := range order {
		got[who[w]]++
	}
	if got["early"] < 9 || got["late"] < 9 {
		t.Errorf("%v: not half each", got)
	}
}

// TestARefusalOnTheWaitingPathBeginsTheSameEpisodes: as if it had not asked to wait.
func TestARefusalOnTheWaitingPathBeginsTheSameEpisodes(t *testing.T) {
	for name, limits := range map[string]quota.Limits{
		"calls":  {CallsPerMinute: 1},
		"tokens": {TokensPerMinute: 100},
		"soft":   {SoftTokenBudget: 100, SoftTokenWindowMS: 60_000},
		"denied": {SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Deny},
		"day":    {MaxDailyTokens: 100},
		"dayend": {MaxDailyCalls: 1, CallsPerMinute: 1},
	} {
		run := func(wait bool) (events, moves []string, factor float64) {
			g := governor(t, oneModel(limits))
			settle(t, g, 0, approve(t, g, 0, ask(70)).Permit, 70)
			settle(t, g, 0, g.Approve(0, ask(30)).Permit, 30)
			var d quota.Decision
			if wait {
				var id quota.Waiter
				if id, d = g.Enqueue(sec, ask(90), 2*sec); id != 0 {
					t.Fatalf("%s: it waits", name)
				}
			} else {
				d = g.Approve(sec, ask(90))
			}
			if d.Approved || d.Code == "" {
				t.Fatalf("%s: %+v", name, d)
			}
			return eventsOf(g), moved(g), g.Factor(sec, ask(1))
		}
		if limits.MaxDailyCalls > 0 || limits.CallsPerMinute > 0 {
			run = func(wait bool) (events, moves []string, factor float64) {
				g := governor(t, oneModel(limits))
				settle(t, g, 0, approve(t, g, 0, ask(70)).Permit, 70)
				if wait {
					g.Enqueue(sec, ask(90), 2*sec)
				} else {
					g.Approve(sec, ask(90))
				}
				return eventsOf(g), moved(g), g.Factor(sec, ask(1))
			}
		}
		events, moves, factor := run(false)
		waitEvents, waitMoves, waitFactor := run(true)
		same(t, name+": events of a wait", waitEvents, events)
		same(t, name+": moves of a wait", waitMoves, moves)
		if factor != waitFactor || len(moves) == 0 {
			t.Errorf("%s: factors %v and %v, moves %q", name, factor, waitFactor, moves)
		}
	}
}

// TestRetryInCountsTheQueue: a refusal says when the caller would be served, after
// those who go before it by priority and share, not when the bucket has a token.
func TestRetryInCountsTheQueue(t *testing.T) {
	queued := func(more func(g *quota.Governor)) *quota.Governor {
		c := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})
		c.Tenants = map[string]quota.Tenant{"heavy": {}, "light": {}, "weighty": {Weight: 3}}
		g := governor(t, c)
		approve(t, g, 0, tenant("heavy", 0))
		for range 30 {
			enqueue(t, g, 0, tenant("heavy", 0), time.Hour)
		}
		if more != nil {
			more(g)
		}
		g.Grants(0, nil)
		return g
	}
	for name, c := range map[string]struct {
		more     func(g *quota.Governor)
		tenant   string
		priority int
		want     time.Duration
	}{
		"the same tenant's":           {nil, "heavy", 0, 31 * sec},
		"another's, by turns":         {nil, "light", 0, 2 * sec},
		"the greater priority":        {nil, "light", 1, sec},
		"its own first":               {func(g *quota.Governor) { enqueue(t, g, 0, tenant("light", 0), time.Hour) }, "light", 0, 3 * sec},
		"by weight":                   {func(g *quota.Governor) { enqueue(t, g, 0, tenant("weighty", 0), time.Hour) }, "weighty", 0, 3 * sec},
		"after the greater priority":  {func(g *quota.Governor) { enqueue(t, g, 0, tenant("weighty", 5), time.Hour) }, "heavy", 0, 32 * sec},
		"before the lesser, by share": {func(g *quota.Governor) { enqueue(t, g, 0, tenant("weighty", -5), time.Hour) }, "heavy", 0, 31 * sec},
	} {
		g := queued(c.more)
		r := tenant(c.tenant, c.priority)
		if c.priority == 0 { // others overtake: their wait is that of the bucket and the queue
			if d := g.Approve(0, r); d.Approved || d.RetryIn != c.want {
				t.Errorf("%s: at once: %+v, want a retry in %v", name, d, c.want)
			}
		}
		if id, d := g.Enqueue(0, r, 1); id != 0 || d.RetryIn != c.want {
			t.Errorf("%s: refused with %+v, want a retry in %v", name, d, c.want)
		}
	}
	// At the end of a wait too.
	g := queued(nil)
	id := enqueue(t, g, 0, tenant("light", 0), 2500*ms)
	for range 5 {
		enqueue(t, g, sec/2, tenant("weighty", 3), time.Hour) // they overtake
	}
	g.Grants(sec, nil)
	g.Grants(2*sec, nil)
	if grants := g.Grants(2500*ms, nil); len(grants) != 1 || grants[0].Waiter != id || grants[0].RetryIn != 8*sec-2500*ms {
		t.Errorf("%+v", grants)
	}
	// Windows and tokens count as well.
	g = governor(t, oneModel(quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, TokensPerMinute: 6000}))
	approve(t, g, 0, ask(100))
	for range 5 {
		enqueue(t, g, 0, ask(100), time.Hour)
	}
	g.Grants(0, nil)
	if id, d := g.Enqueue(0, ask(100), sec); id != 0 || d.RetryIn < 5*minute || d.RetryIn > 7*minute {
		t.Errorf("refused with %+v, want a retry in about six windows", d)
	}
}

// TestSharesAreOfTheWindowWhereOnlyThatIsScarce: a tenant of large requests gets no
// more of a soft budget than one of small ones.
func TestSharesAreOfTheWindowWhereOnlyThatIsScarce(t *testing.T) {
	c := oneModel(quota.Limits{SoftTokenBudget: 60, SoftTokenWindowMS: 60_000})
	c.ForecastOff = true
	g := governor(t, c)
	approve(t, g, 0, ask(60))
	large := map[quota.Waiter]int64{}
	for range 40 {
		for name, tokens := range map[string]int64{"large": 30, "small": 10} {
			r := ask(tokens)
			r.Tenant = name
			large[enqueue(t, g, 0, r, 24*time.Hour)] = tokens
		}
	}
	order, _ := drive(t, g, 0, 10*minute)
	got := map[int64]int64{}
	for _, id := range order {
		got[large[id]] += large[id]
	}
	if diff := got[30] - got[10]; len(order) < 15 || diff < -40 || diff > 40 {
		t.Errorf("of the large %d tokens, of the small %d", got[30], got[10])
	}
}

// TestTheHardLimitIsSaidFirst: whichever scope has it, and however long others take.
func TestTheHardLimitIsSaidFirst(t *testing.T) {
	slow, day := quota.Limits{CallsPerMinute: 1, Burst: 1, RefillPerSecond: 1e-6}, quota.Limits{MaxDailyCalls: 1}
	for name, c := range map[string]quota.Config{
		"the model's":  {Global: slow, Models: map[string]quota.Model{"m": {Limits: day}}},
		"the global's": {Global: day, Models: map[string]quota.Model{"m": {Limits: slow}}},
	} {
		g := governor(t, c)
		approve(t, g, 0, ask(1))
		if d := refused(t, g, 0, ask(1), quota.CodeHardLimit); d.RetryIn != 12*time.Hour || !d.Final || d.Reason != quota.HardLimit {
			t.Errorf("%s: %+v, want the day's end", name, d)
		}
		if id, d := g.Enqueue(0, ask(1), time.Hour); id != 0 || d.Code != quota.CodeHardLimit || d.RetryIn != 12*time.Hour {
			t.Errorf("%s: waiting: %+v, want the day's end", name, d)
		}
	}
}

// TestHowLongOneWaits: the shortest wait to expect, in a scope of one's own and in one that
// tenants have in common.
func TestHowLongOneWaits(t *testing.T) {
	of := func(tenant string, priority int, tokens int64) quota.Request {
		return quota.Request{Model: "m", Tenant: tenant, Priority: priority, InputTokens: tokens}
	}
	own := func(l quota.Limits) quota.Config {
		return quota.Config{Models: map[string]quota.Model{"m": {}, "n": {}}, TenantDefault: quota.Tenant{Limits: l}}
	}
	elsewhere := own(quota.Limits{CallsPerMinute: 60, Burst: 2})
	elsewhere.Models["n"] = quota.Model{Limits: quota.Limits{CallsPerMinute: 1}}
	twice := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})
	twice.Global = quota.Limits{CallsPerMinute: 60, Burst: 1}
	full := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})
	full.MaxWaiting = 1
	slowN := of("t", 0, 0)
	slowN.Model = "n"
	for name, tt := range map[string]struct {
		c    quota.Config
		rows []row
	}{
		"a tenant's own calls": {own(quota.Limits{CallsPerMinute: 60, Burst: 1}), []row{
			{0, asks(of("t", 0, 0)), "approved"},
			{0, enqueues(of("t", 0, 0), time.Hour), "waits 1s"},
			{0, enqueues(of("t", 0, 0), time.Hour), "waits 2s"},
			{0, enqueues(of("t", 1, 0), time.Hour), "waits 1s"}, // it goes first
			{0, enqueues(of("t", 0, 0), time.Hour), "waits 4s"},
			{0, enqueues(of("t", -1, 0), time.Hour), "waits 5s"},
			{0, enqueues(of("u", 0, 0), time.Hour), "waits 0s"},
			{0, enqueues(of("t", 0, 0), 5*sec), "waits 5s"}, // the one of lesser priority is behind
			{0, enqueues(of("t", 0, 0), 6*sec-1), "THROTTLED THROTTLED by tenant t, 6s, final; tenant t normal>throttle bucket_empty; tenant t throttle 1000ms; tenant t x2"},
			{0, grants, "6 approved"},
			{sec, grants, "3 approved; tenant t throttle>normal resume; tenant t normal>throttle bucket_empty; tenant t resume; tenant t throttle 1000ms"},
			{2 * sec, grants, "1 approved; tenant t throttle>normal resume; tenant t normal>throttle bucket_empty; tenant t resume; tenant t throttle 1000ms"},
		}},
		"a tenant's own tokens": {own(quota.Limits{TokensPerMinute: 600, TokenBurst: 100}), []row{
			{0, asks(of("t", 0, 100)), "approved"},
			{0, enqueues(of("t", 0, 50), time.Hour), "waits 5s"},
			{0, enqueues(of("t", 0, 100), time.Hour), "waits 15s"},
			{0, enqueues(of("t", 0, 20), time.Hour), "waits 17s"},
			{0, asks(of("t", 0, 20)), "THROTTLED THROTTLED by tenant t, 19s; tenant t normal>throttle bucket_empty; tenant t throttle 2000ms; tenant t x2"},
		}},
		"a tenant's own window": {own(quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}), []row{
			{0, asks(of("t", 0, 100)), "approved 1000/1000 soft_pressure; tenant t normal>soft soft_reached; tenant t softPressure 1 of 60000ms"},
			{0, enqueues(of("t", 0, 50), time.Hour), "waits 1m1s"},
			{0, enqueues(of("t", 0, 50), time.Hour), "waits 1m1s"},
			{0, enqueues(of("t", 0, 50), time.Hour), "waits 1m30s"}, // one window and a half
			{0, enqueues(of("t", 0, 50), time.Hour), "waits 2m0s"},
		}},
		"who waits for another model": {elsewhere, []row{
			{0, asks(slowN), "approved"},
			{0, enqueues(slowN, time.Hour), "waits 1m0s"},
			{0, enqueues(of("t", 0, 0), time.Hour), "waits 0s"},
			{0, enqueues(of("t", 0, 0), time.Hour), "waits 1s"}, // behind one, not two
			{0, grants, "2 approved; model n normal>throttle bucket_empty; tenant t normal>throttle bucket_empty; model n throttle 60000ms; model n x2; tenant t throttle 1000ms; tenant t x2"},
			{0, enqueues(of("t", 0, 0), 2*sec), "waits 2s"},
		}},
		"two scopes that take as long": {twice, []row{
			{0, asks(ask(0)), "approved"},
			{0, enqueues(ask(0), time.Hour), "waits 1s"},
			{0, enqueues(ask(0), time.Hour), "waits 2s"},
			{0, enqueues(ask(0), 2*sec), "THROTTLED GLOBAL_LIMIT_EXCEEDED by global, 3s, final; global normal>throttle bucket_empty; model m normal>throttle bucket_empty; global throttle 1000ms; global x2; model m throttle 1000ms; model m x2"},
		}},
		"a full queue": {full, []row{
			{0, asks(ask(0)), "approved"},
			{0, enqueues(ask(0), time.Hour), "waits 1s"},
			{0, enqueues(ask(0), time.Hour), "THROTTLED GLOBAL_LIMIT_EXCEEDED by global, 2s, final; model m normal>throttle bucket_empty; model m throttle 1000ms; model m x2"},
			{0, next, "0s true"}, // grants are due
			{0, grants, ""},
			{0, next, "1s true"},
			{sec, grants, "1 approved; model m throttle>normal resume; model m resume"},
			{sec, enqueues(ask(0), 2*sec), "waits 1s"},
		}},
		"until a deadline": {oneModel(quota.Limits{TokensPerMinute: 60}), []row{
			{0, asks(ask(60)), "approved"},
			{0, enqueues(ask(10), 10*sec), "waits 10s"},
			{0, enqueues(ask(10), 10*sec), "THROTTLED THROTTLED by model m, 20s, final; model m normal>throttle bucket_empty; model m throttle 10000ms; model m x2"},
			{0, grants, ""},
			{0, next, "10s true"},
			{5 * sec, asks(quota.Request{Model: "m", InputTokens: 5, Priority: 1}), "approved throttled"},
			{10*sec - 1, grants, ""},
			{10 * sec, grants, "1 THROTTLED THROTTLED by model m, 5s, final"},
			{10 * sec, ledger(ofM), "granted 65, used 0, refunded 0, held 65, cached 0, reasoning 0, approved 2, denied 2, lately 2 calls, 65 tokens"},
		}},
		"a model that is taken out": {oneModel(quota.Limits{CallsPerMinute: 1}), []row{
			{0, asks(ask(0)), "approved"},
			{0, enqueues(ask(0), time.Hour), "waits 1m0s"},
			{0, replaces(quota.Config{}), "replaced; global config"},
			{0, grants, "1 HARD_LIMIT MODEL_NOT_CONFIGURED by model m, never, final"},
			{0, next, "10m0s true"}, // the permit's end
		}},
		"a cap that is used up meanwhile": {oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1, MaxDailyTokens: 100}), []row{
			{0, asks(ask(40)), "approved"},
			{0, enqueues(ask(50), time.Hour), "waits 1s"},
			{0, settles(0, quota.Usage{Input: 60}), "ends"},
			{0, grants, "1 HARD_LIMIT HARD_LIMIT by model m, 12h0m0s, final; model m normal>throttle bucket_empty; model m throttle 1000ms; model m x2"},
		}},
		"other limits meanwhile": {oneModel(quota.Limits{TokensPerMinute: 100}), []row{
			{0, asks(ask(100)), "approved"},
			{0, enqueues(quota.Request{Model: "m", Tenant: "t", InputTokens: 80}, time.Hour), "waits 48s"},
			{0, replaces(quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{TokensPerMinute: 1000}}}, TenantDefault: quota.Tenant{Limits: quota.Limits{MaxDailyCalls: 5, MaxDailyTokens: 100}}}), "replaced; global config"},
			{0, grants, "1 approved"},
			{0, left(quota.Scope{Tenant: "t"}), "dailyTokens 20, dailyCalls 4"},
			{0, left(ofM), "tokens 820"},
		}},
	} {
		t.Run(name, func(t *testing.T) { runs(t, tt.c, tt.rows) })
	}
}

// TestSharesAreForgottenWhenAllIsFullAgain: until then who was served before goes after
// who was not; from then on who came first goes first.
func TestSharesAreForgottenWhenAllIsFullAgain(t *testing.T) {
	calls := quota.Limits{CallsPerMinute: 60, Burst: 1}
	for name, tt := range map[string]struct {
		c    quota.Config
		full time.Duration
	}{
		"the model's calls": {oneModel(calls), 2 * sec},
		"the global calls":  {quota.Config{Global: calls, Models: map[string]quota.Model{"m": {}}}, 2 * sec},
		"a window":          {oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1, SoftTokenBudget: 1000, SoftTokenWindowMS: 10_000}), 11*sec + 333*ms + 333*time.Microsecond + 333},
	} {
		if name == "a window" {
			// Parts of 166.666667 ms: what is charged at 1 s is of the part from 0.833 s on, and
			// leaves 61 parts later.
			tt.full = 66 * 166_666_667
		}
		for _, early := range []bool{true, false} {
			g := governor(t, tt.c)
			approve(t, g, 0, tenant("a", 0))
			enqueue(t, g, 0, tenant("a", 0), time.Hour)
			drive(t, g, 0, sec)
			at := tt.full
			if early {
				at--
			}
			a, b := enqueue(t, g, at, tenant("a", 0), time.Hour), enqueue(t, g, at, tenant("b", 0), time.Hour)
			want := a
			if early {
				want = b
			}
			order, _ := drive(t, g, tt.full, tt.full+2*sec)
			if len(order) != 2 || order[0] != want {
				t.Errorf("%s, asked at %v: %v, want %v first", name, at, fmt.Sprint(order), want)
			}
		}
	}
}

const (
	ms     = time.Millisecond
	sec    = time.Second
	minute = time.Minute
)

// origin is midday, so that no day turns in a test that does not want it.
var origin = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func governor(t testing.TB, c quota.Config) *quota.Governor {
	t.Helper()
	return governorAt(t, c, origin)
}

func governorAt(t testing.TB, c quota.Config, at time.Time) *quota.Governor {
	t.Helper()
	if c.LoadZone == nil {
		c.LoadZone = time.LoadLocation
	}
	g, err := quota.New(c, at)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// oneModel is a configuration with limits for the model "m" only.
func oneModel(l quota.Limits) quota.Config {
	return quota.Config{Models: map[string]quota.Model{"m": {Limits: l}}}
}

// ask is a request for the model "m".
func ask(tokens int64) quota.Request { return quota.Request{Model: "m", InputTokens: tokens} }

// approve fails the test on a refusal.
func approve(t testing.TB, g *quota.Governor, at time.Duration, r quota.Request) quota.Decision {
	t.Helper()
	d := g.Approve(at, r)
	if !d.Approved {
		t.Fatalf("at %v: refused: %+v", at, d)
	}
	return d
}

// refused fails the test on an approval or another code.
func refused(t testing.TB, g *quota.Governor, at time.Duration, r quota.Request, code quota.Code) quota.Decision {
	t.Helper()
	d := g.Approve(at, r)
	if d.Approved || d.Code != code {
		t.Fatalf("at %v: %+v, want a refusal with %s", at, d, code)
	}
	return d
}

// settle fails the test when it was not the permit's end.
func settle(t testing.TB, g *quota.Governor, at time.Duration, p quota.Permit, tokens int64) {
	t.Helper()
	if first, err := g.RecordUsage(at, p, quota.Usage{Input: tokens}); !first || err != nil {
		t.Fatalf("settling: %v, %v", first, err)
	}
}

// eventsOf takes the events but those of denial and scale, as lines.
func eventsOf(g *quota.Governor) []string {
	events, _ := g.TakeEvents(nil)
	lines := []string{}
	for _, e := range events {
		if e.Type != quota.EventDenied && e.Type != quota.EventAdaptiveScale {
			lines = append(lines, fmt.Sprintf("%v %s %s", e.Instant, e.Type, e.Scope))
		}
	}
	return lines
}

// moved takes the transition log, as lines.
func moved(g *quota.Governor) []string {
	moves, _ := g.TakeMoves(nil)
	lines := []string{}
	for _, m := range moves {
		lines = append(lines, fmt.Sprintf("%v %s: %v>%v %v", m.Instant, m.Scope, m.From, m.To, m.Trigger))
	}
	return lines
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// model reads the model "m".
func model(t testing.TB, g *quota.Governor, at time.Duration) quota.ModelSnapshot {
	t.Helper()
	s, ok := g.Inspect(at, quota.Scope{Model: "m"})
	if !ok {
		t.Fatal("no model m")
	}
	return s
}
