package quota_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

// TestSharesOfThoseWhoComeBack has forty callers call again and again, each when its
// refusal says so. Half of them are of a tenant with three times the weight of the
// other. Within three minutes each tenant gets its share of the burst and of what
// follows, also if the fair place of the lighter tenant is beyond the maximum wait.
func TestSharesOfThoseWhoComeBack(t *testing.T) {
	for name, limits := range map[string]quota.Limits{
		"a call a second":      {CallsPerMinute: 60, Burst: 1},
		"60 a minute at once":  {CallsPerMinute: 60},
		"a burst of ten":       {CallsPerMinute: 60, Burst: 10},
		"300 a minute, spread": {CallsPerMinute: 300, Spread: true},
		"20 a minute at once":  {CallsPerMinute: 20},
	} {
		for _, maxWait := range []time.Duration{15 * sec, 10 * minute} {
			c := oneModel(limits)
			c.Tenants = map[string]quota.Tenant{"light": {Weight: 1}, "heavy": {Weight: 3}}
			g := governor(t, c)
			served := map[string]int{}
			var next [40]time.Duration // when each calls, or never while it waits
			for i := range next {
				next[i] = time.Duration(i*17%40) * ms
			}
			caller := map[quota.Waiter]int{}
			who := func(i int) string { return []string{"light", "heavy"}[i/20] }
			for now := time.Duration(0); now < 3*minute; {
				for i := range next {
					if next[i] > now {
						continue
					}
					next[i] = math.MaxInt64
					id, d := g.Enqueue(now, tenant(who(i), 0), now+maxWait)
					if id == 0 {
						next[i] = now + d.RetryIn
						continue
					}
					caller[id] = i
				}
				for _, grant := range g.Grants(now, nil) {
					i := caller[grant.Waiter]
					if next[i] = now + 300*ms; grant.Approved {
						served[who(i)]++
					} else {
						next[i] = now + grant.RetryIn
					}
				}
				then, ok := g.NextTransition(now)
				if !ok {
					then = math.MaxInt64
				}
				for _, at := range next {
					then = min(then, at)
				}
				now = max(then, now+1)
			}
			if ratio := float64(served["heavy"]) / float64(served["light"]); ratio < 2.7 || ratio > 3.3 {
				t.Errorf("%s, at most %v: served %v, %.2f to 1", name, maxWait, served, ratio)
			}
		}
	}
}

// TestTheQueueForAnotherModelCountsForWhatItTakes: requests that wait for a slow model
// do not hold up requests for another one, though both share the global limit.
func TestTheQueueForAnotherModelCountsForWhatItTakes(t *testing.T) {
	g := governor(t, quota.Config{
		Global: quota.Limits{CallsPerMinute: 60}, // far fewer than wait for the slow model
		Models: map[string]quota.Model{"slow": {Limits: quota.Limits{CallsPerMinute: 1}}, "quick": {}},
	})
	of := func(model string, n int) quota.Request {
		return quota.Request{Model: model, Tenant: fmt.Sprint(n), Priority: 1}
	}
	approve(t, g, 0, of("slow", 0))
	for i := range 100 {
		enqueue(t, g, 0, of("slow", i%5), 24*time.Hour)
	}
	g.Grants(0, nil)
	id := enqueue(t, g, 0, of("quick", 1), sec)
	if grants := g.Grants(0, nil); len(grants) != 1 || grants[0].Waiter != id || !grants[0].Approved {
		t.Errorf("%+v", grants)
	}
}

// join fails the test on a refusal.
func join(t testing.TB, g *quota.Governor, at time.Duration, r quota.Request) *quota.Place {
	t.Helper()
	p, d := g.Join(at, r)
	if p == nil {
		t.Fatalf("at %v: refused: %+v", at, d)
	}
	return p
}

// A place holds nothing until it is taken, and what is given back can be taken again.
func TestAPlaceIsTakenWhenThereIsRoom(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1, MaxDailyCalls: 3}))
	first, second := join(t, g, 0, ask(1)), join(t, g, 0, ask(1))
	if g.Waiting() != 2 {
		t.Fatalf("%d wait", g.Waiting())
	}
	d, _ := g.Take(0, first)
	if !d.Approved || g.Waiting() != 1 {
		t.Fatalf("%+v, %d wait", d, g.Waiting())
	}
	if d, blocked := g.Take(0, second); d.Approved || d.Final || d.RetryIn != sec || blocked != 1 || len(second.Keys()) != 1 {
		t.Errorf("without room: %+v, blocked %b of %v", d, blocked, second.Keys())
	}
	g.Back(0, first, d.Permit)
	if d, _ = g.Take(0, second); !d.Approved {
		t.Errorf("what was given back: %+v", d)
	}
	if d, _ := g.Take(sec, first); !d.Approved || g.Waiting() != 0 {
		t.Errorf("a second later: %+v, %d wait", d, g.Waiting())
	}
	approve(t, g, 2*sec, ask(1))
	if p, d := g.Join(3*sec, ask(1)); p != nil || d.Code != quota.CodeHardLimit || !d.Final {
		t.Errorf("the day is over: %v, %+v", p, d)
	}
}

func TestAPlaceEnds(t *testing.T) {
	c := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})
	c.MaxWaiting = 2
	g := governor(t, c)
	approve(t, g, 0, ask(1))
	first, second := join(t, g, 0, ask(1)), join(t, g, 0, ask(1))
	if p, d := g.Join(0, ask(1)); p != nil || d.Code != quota.CodeGlobalLimit || d.Reason != quota.Throttled || d.RetryIn != 1 || !d.Final {
		t.Errorf("a third: %v, %+v", p, d)
	}
	g.Leave(0, first)
	g.Leave(0, first)
	if g.Waiting() != 1 {
		t.Errorf("%d wait", g.Waiting())
	}
	if d := g.Refuse(0, second, 20*sec); d.Code != quota.CodeThrottled || d.RetryIn != 20*sec || !d.Final || g.Waiting() != 0 {
		t.Errorf("refused: %+v, %d wait", d, g.Waiting())
	}
	if p, d := g.Join(0, quota.Request{Model: "other"}); p != nil || d.Code != quota.CodeModelNotConfigured {
		t.Errorf("another model: %v, %+v", p, d)
	}
	gone := join(t, g, 0, ask(1))
	if err := g.UpdateConfig(0, []byte(`{"models":{"m":null,"n":{}}}`)); err != nil {
		t.Fatal(err)
	}
	if d, _ := g.Take(0, gone); d.Code != quota.CodeModelNotConfigured || !d.Final || g.Waiting() != 0 {
		t.Errorf("its model is gone: %+v, %d wait", d, g.Waiting())
	}
}

func TestARefusedPlaceWhoseModelIsGone(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1}))
	approve(t, g, 0, ask(1))
	p := join(t, g, 0, ask(1))
	if err := g.UpdateConfig(0, []byte(`{"models":{"m":null,"n":{}}}`)); err != nil {
		t.Fatal(err)
	}
	if d := g.Refuse(0, p, 20*sec); d.Code != quota.CodeModelNotConfigured || d.RetryIn != quota.Never || !d.Final || g.Waiting() != 0 {
		t.Errorf("%+v, %d wait", d, g.Waiting())
	}
}

// Neither a call that does not wait nor a place overtakes who waits for the same budget.
func TestPlacesAndWaitersDoNotOvertake(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1}))
	approve(t, g, 0, ask(1))
	p := join(t, g, 0, ask(1))
	g.Take(0, p) // in vain
	refused(t, g, sec, ask(1), quota.CodeThrottled)
	urgent := ask(1)
	urgent.Priority = 1
	approve(t, g, sec, urgent)
	w := enqueue(t, g, sec, ask(1), minute)
	g.Grants(sec, nil)
	if d, _ := g.Take(2*sec, p); d.Approved || d.RetryIn <= 0 {
		t.Errorf("the place overtook one who waits in the queue: %+v", d)
	}
	if order, _ := drive(t, g, 2*sec, 2*sec); len(order) != 1 || order[0] != w {
		t.Errorf("granted %v", order)
	}
	if d, _ := g.Take(3*sec, p); !d.Approved {
		t.Errorf("%+v", d)
	}
}

func TestWhatAPlaceTakesOfItsBudgets(t *testing.T) {
	g := governor(t, quota.Config{
		Global:  quota.Limits{TokensPerMinute: 6000},
		Models:  map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 2}}},
		Tenants: map[string]quota.Tenant{"a": {Weight: 3}},
	})
	p := join(t, g, 0, quota.Request{Model: "m", Tenant: "a", InputTokens: 500})
	if name, weight := p.Tenant(); name != "a" || weight != 3 {
		t.Errorf("%s with weight %d", name, weight)
	}
	if p.Cost() != 5*sec || g.Whole() != minute {
		t.Errorf("it takes %v of %v, want 5s of tokens in 1m", p.Cost(), g.Whole())
	}
	if len(p.Keys()) != 2 || p.Load(p.Keys()[0]) == 0 || p.Load(99) != 0 {
		t.Errorf("keys %v", p.Keys())
	}
	calls := p.Keys()[1]
	for n, want := range map[int64]time.Duration{1: 0, 2: 0, 3: sec, 12: 10 * sec} {
		if got := g.Serves(0, p, calls, n*p.Load(calls)); got != want {
			t.Errorf("%d calls are served in %v, want %v", n, got, want)
		}
	}
	if g.Serves(0, p, 99, 1) != 0 {
		t.Error("it does not need that one")
	}
}

// TestSpreadLimitsGiveFewInARow: five seconds' worth, then nearly the rate, so that
// no minute holds much more than a minute's worth; and a burst that is given counts
// as it stands.
func TestSpreadLimitsGiveFewInARow(t *testing.T) {
	for name, c := range map[string]struct {
		limits             quota.Limits
		first, most, least int
	}{
		"spread":         {quota.Limits{CallsPerMinute: 60, Spread: true}, 5, 64, 58},
		"with a burst":   {quota.Limits{CallsPerMinute: 60, Burst: 60, Spread: true}, 60, 121, 60},
		"not spread":     {quota.Limits{CallsPerMinute: 60}, 60, 121, 60},
		"a slow one":     {quota.Limits{CallsPerMinute: 3, Spread: true}, 1, 4, 2},
		"by the second":  {quota.Limits{CallsPerMinute: 600, RefillPerSecond: 10, Spread: true}, 50, 640, 580},
		"tokens, spread": {quota.Limits{TokensPerMinute: 60_000, Spread: true}, 5, 64, 58},
	} {
		g := governor(t, oneModel(c.limits))
		take := func(from, until time.Duration) (n int) {
			for now := from; now <= until; now += 100 * time.Millisecond {
				for g.Approve(now, quota.Request{Model: "m", InputTokens: 1000}).Approved {
					n++
				}
			}
			return n
		}
		first := take(0, 0)
		minute := first + take(100*time.Millisecond, time.Minute)
		later := take(time.Minute+100*time.Millisecond, 2*time.Minute)
		if first != c.first || minute > c.most || later < c.least || later > c.most {
			t.Errorf("%s: %d at once, %d in the first minute, %d in the next, want %d, at most %d, at least %d", name, first, minute, later, c.first, c.most, c.least)
		}
	}
}

// TestALargeCallOfASpreadLimitIsOwedAtOnce: not only when it is settled.
func TestALargeCallOfASpreadLimitIsOwedAtOnce(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{TokensPerMinute: 60_000, Spread: true}))
	d := approve(t, g, 0, quota.Request{Model: "m", InputTokens: 15_000})
	if s := model(t, g, 0); *s.TokensRemaining != -10_000 || d.Advisory&quota.AdviseClamped != 0 {
		t.Errorf("%d tokens remain, advised %v", *s.TokensRemaining, d.Advisory)
	}
	if _, err := g.Cancel(0, d.Permit); err != nil {
		t.Fatal(err)
	}
	if s := model(t, g, 0); *s.TokensRemaining != 5000 || s.Ledger.Held != 0 {
		t.Errorf("%d tokens remain and %d are held after it was canceled", *s.TokensRemaining, s.Ledger.Held)
	}
}

// TestAShareLastsWhileTheServerIsAway has a member of two use the part of a day's cap that the
// server keeps for it, one call between two exchanges in vain. When the server is back it
// counts what was used, and gets back what was not.
func TestAShareLastsWhileTheServerIsAway(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"each call asks": 0, "ahead": 300 * ms} {
		for _, made := range []int{0, 4, 10} {
			g := governor(t, oneModel(quota.Limits{MaxDailyCalls: 140}))
			g.Share(0, quota.FleetOptions{Ahead: ahead})
			answer := func(now time.Duration, use float64, reserve, ahead int64) (delta int64) {
				x := g.Exchange(now, false)
				a := &quota.Exchanged{Members: 2, Granted: make([]bool, len(x.Claims)), Budgets: make([]quota.SharedUse, len(x.Budgets))}
				for i, b := range x.Budgets {
					delta += b.Delta + b.Grown
					a.Budgets[i] = quota.SharedUse{Use: use + float64(b.Delta+b.Grown), Reserve: reserve, Ahead: ahead, Born: "x"}
				}
				g.Exchanged(now, x, a)
				return delta
			}
			answer(0, 60, 10, 0)
			g.Exchange(0, false)
			g.Unanswered(0)
			if now := 10 * time.Second; g.Approve(now, quota.Request{Model: "m"}).Approved {
				t.Errorf("%s: a call was approved after one answer: others may not be known yet", name)
			}
			answer(0, 60, 10, 40)
			for range 40 { // its own use, by which its reserve goes
				if _, err := g.RecordUsage(0, g.Approve(0, quota.Request{Model: "m"}).Permit, quota.Usage{}); err != nil {
					t.Fatal(err)
				}
			}
			now := quota.FleetBeat
			g.Exchange(now, false)
			g.Unanswered(now)
			approved := 0
			for range made + 1 {
				if approved == made && made < 10 {
					break
				}
				d := g.Approve(now, quota.Request{Model: "m"})
				if d.Approved {
					approved++
					if _, err := g.RecordUsage(now, d.Permit, quota.Usage{}); err != nil {
						t.Fatal(err)
					}
				}
				now += quota.FleetBeat
				g.Exchange(now, false)
				g.Unanswered(now)
			}
			if approved != made {
				t.Errorf("%s: %d calls were approved, want %d", name, approved, made)
			}
			counted := answer(now, 60, 0, 0)
			counted += answer(now+quota.FleetBeat, 60+float64(counted), 0, 0)
			if counted != int64(made) {
				t.Errorf("%s: %d calls are counted, %d were made", name, counted, made)
			}
		}
	}
}
