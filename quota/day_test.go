package quota_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

func TestTheDailyCapRefusesAndTheNextDayAdmitsAgain(t *testing.T) {
	pacific, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name      string
		zone      string
		from      time.Time
		untilTurn time.Duration
	}{
		{"UTC by default", "", time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC), 12 * time.Hour},
		{"an ordinary day at the Pacific", "America/Los_Angeles", time.Date(2026, 3, 4, 0, 0, 0, 0, pacific), 24 * time.Hour},
		{"a day of 23 hours", "America/Los_Angeles", time.Date(2026, 3, 8, 0, 0, 0, 0, pacific), 23 * time.Hour},
		{"a day of 25 hours", "America/Los_Angeles", time.Date(2026, 11, 1, 0, 0, 0, 0, pacific), 25 * time.Hour},
		{"midnight does not exist", "America/Sao_Paulo", time.Date(2018, 11, 3, 15, 0, 0, 0, time.UTC), 12 * time.Hour},
		{"midnight comes twice", "America/Havana", time.Date(2026, 10, 31, 16, 0, 0, 0, time.UTC), 12 * time.Hour},
		{"a day that does not exist", "Pacific/Apia", time.Date(2011, 12, 29, 22, 0, 0, 0, time.UTC), 12 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := governorAt(t, oneModel(quota.Limits{MaxDailyTokens: 100, DayZone: tt.zone}), tt.from)
			settle(t, g, 0, approve(t, g, 0, ask(60)).Permit, 99)
			d := refused(t, g, 0, ask(60), quota.CodeHardLimit)
			if d.Reason != quota.HardLimit || d.RetryIn != tt.untilTurn {
				t.Errorf("%+v, want HARD_LIMIT for %v", d, tt.untilTurn)
			}
			same(t, "events", eventsOf(g), []string{"0s llm:quota_exhausted model m"})
			refused(t, g, tt.untilTurn-1, ask(60), quota.CodeHardLimit)
			same(t, "events", eventsOf(g), []string{})
			approve(t, g, tt.untilTurn, ask(60))
			same(t, "events", eventsOf(g), []string{tt.untilTurn.String() + " rate:resume model m"})
		})
	}
}

func TestExhaustionSaysScopeAndCap(t *testing.T) {
	g := governor(t, quota.Config{
		Models:  map[string]quota.Model{"m": {}},
		Tenants: map[string]quota.Tenant{"t": {Limits: quota.Limits{MaxDailyTokens: 10}}, "u": {Limits: quota.Limits{MaxDailyCalls: 1}}},
	})
	settle(t, g, 0, approve(t, g, 0, quota.Request{Model: "m", Tenant: "t", InputTokens: 10}).Permit, 10)
	approve(t, g, 0, quota.Request{Model: "m", Tenant: "u", InputTokens: 10})
	events, _ := g.TakeEvents(nil)
	got := map[string]string{}
	for _, e := range events {
		if e.Type == quota.EventExhausted {
			got[e.ScopeName] = e.CapType
		}
	}
	if len(got) != 2 || got["tenant t"] != "dailyTokens" || got["tenant u"] != "dailyCalls" {
		t.Errorf("%v", got)
	}
}

func TestARequestLargerThanTheDayIsNeverApproved(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{MaxDailyTokens: 100, TokensPerMinute: 10}))
	d := refused(t, g, 0, ask(101), quota.CodeHardLimit)
	if d.RetryIn != quota.Never {
		t.Errorf("%+v", d)
	}
	same(t, "moves", moved(g), []string{}) // others still pass
	approve(t, g, 0, ask(100))
}

func TestARestartDoesNotHandTheBudgetOutTwice(t *testing.T) {
	c := quota.Config{
		Global: quota.Limits{MaxDailyTokens: 200},
		Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 100, DayZone: "America/Los_Angeles"}}},
		Tenants: map[string]quota.Tenant{"t": {Limits: quota.Limits{MaxDailyCalls: 10}, Models: map[string]quota.Limits{"m": {MaxDailyTokens: 80}},
			Agents: map[string]quota.Agent{"a": {}}}},
	}
	r := quota.Request{Model: "m", Tenant: "t", Agent: "a", InputTokens: 30}
	g := governor(t, c)
	settle(t, g, 0, approve(t, g, 0, r).Permit, 30)
	approve(t, g, 0, r) // open when the process dies: it counts
	kept := g.TakeChangedUse(sec, nil)
	if len(kept) != 5 || len(g.TakeChangedUse(sec, nil)) != 0 {
		t.Errorf("kept %+v", kept)
	}
	if all := g.Use(sec, nil); len(all) != len(kept) {
		t.Errorf("in all %+v", all)
	}

	g = governorAt(t, c, origin.Add(time.Hour))
	if err := g.Restore(0, kept); err != nil {
		t.Fatal(err)
	}
	refused(t, g, 0, r, quota.CodeHardLimit)
	r.InputTokens = 20
	approve(t, g, 0, r)
	if s := model(t, g, 0); *s.DailyTokensRemaining != 20 {
		t.Errorf("%d left", *s.DailyTokensRemaining)
	}

	// The model's day at the Pacific is not over when the others' is.
	g = governorAt(t, c, origin.Add(13*time.Hour))
	if err := g.Restore(0, kept); err != nil {
		t.Fatal(err)
	}
	if s := g.Snapshot(0); *s.Models["m"].DailyTokensRemaining != 40 || *s.Global.DailyTokensRemaining != 200 {
		t.Errorf("%d and %d left", *s.Models["m"].DailyTokensRemaining, *s.Global.DailyTokensRemaining)
	}
	for _, bad := range []quota.DayUse{{Day: "today"}, {Day: "2026-03-04", Tokens: -1}, {Day: "2026-03-04", Calls: -1}} {
		if err := g.Restore(0, append(slices.Clip(kept), bad)); err == nil {
			t.Errorf("%+v was restored", bad)
		}
	}
	if s := g.Snapshot(0); *s.Models["m"].DailyTokensRemaining != 40 {
		t.Errorf("%d left: a bad list was restored in part", *s.Models["m"].DailyTokensRemaining)
	}
}

func TestAnEstimateOfYesterdayIsNotGivenBackToToday(t *testing.T) {
	c := oneModel(quota.Limits{MaxDailyTokens: 100})
	c.PermitTTLMS = 24 * 3600 * 1000
	g := governor(t, c)
	p := approve(t, g, 12*time.Hour-1, ask(90)).Permit
	approve(t, g, 12*time.Hour, ask(90))
	settle(t, g, 12*time.Hour, p, 0)
	if s := model(t, g, 12*time.Hour); *s.DailyTokensRemaining != 10 {
		t.Errorf("%d left today", *s.DailyTokensRemaining)
	}
}

func TestAClockSetBackHandsOutNoDayTwice(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{MaxDailyTokens: 100}))
	settle(t, g, 12*time.Hour, approve(t, g, 12*time.Hour, ask(100)).Permit, 100) // the 5th
	g.Anchor(13*time.Hour, origin)                                                // the 4th again
	refused(t, g, 13*time.Hour, ask(1), quota.CodeHardLimit)
	// Midnight of the 4th passes: it is the 5th, whose budget is gone.
	refused(t, g, 13*time.Hour+13*time.Hour, ask(1), quota.CodeHardLimit)
	d := refused(t, g, 26*time.Hour, ask(1), quota.CodeHardLimit)
	approve(t, g, 26*time.Hour+d.RetryIn, ask(100))
	// Set forward, the new day counts.
	g = governor(t, oneModel(quota.Limits{MaxDailyTokens: 100}))
	approve(t, g, 0, ask(100))
	g.Anchor(sec, origin.Add(24*time.Hour))
	approve(t, g, sec, ask(100))
}

// TestExhaustedMeansUsedUp: what open permits hold makes others wait, and a scope
// with room left is not exhausted, whatever was refused.
func TestExhaustedMeansUsedUp(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{MaxDailyTokens: 1_000_000}))
	var open []quota.Permit
	for range 122 {
		open = append(open, approve(t, g, 0, ask(8192)).Permit)
	}
	d := refused(t, g, 0, ask(8192), quota.CodeThrottled)
	if d.Reason != quota.Throttled || d.Final || !d.Held || d.RetryIn > sec || d.RetryIn <= 0 {
		t.Errorf("refused with %+v, want a short retry", d)
	}
	id, wait := g.Enqueue(0, ask(8192), 10*sec)
	if id == 0 {
		t.Fatalf("not queued: %+v", wait)
	}
	if grants := g.Grants(0, nil); len(grants) != 0 {
		t.Fatalf("%+v", grants)
	}
	for _, p := range open {
		settle(t, g, sec, p, 200)
	}
	if grants := g.Grants(sec, nil); len(grants) != 1 || !grants[0].Approved {
		t.Errorf("after the calls ended: %+v", grants)
	}
	if s := model(t, g, sec); s.State != quota.Normal || *s.DailyTokensRemaining != 1_000_000-122*200-8192 {
		t.Errorf("state %v with %d left", s.State, *s.DailyTokensRemaining)
	}
	// One that is larger than what is left does not exhaust it for the others.
	refused(t, g, sec, ask(980_000), quota.CodeHardLimit)
	if s := model(t, g, sec); s.State != quota.Normal {
		t.Errorf("state %v after a large one", s.State)
	}
	same(t, "moves", moved(g), []string{})
}

// TestWhoWaitsForHeldTokensIsRefusedWhenTheyAreUsed: the wait ends with the truth.
func TestWhoWaitsForHeldTokensIsRefusedWhenTheyAreUsed(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{MaxDailyTokens: 100}))
	p := approve(t, g, 0, ask(100)).Permit
	id := enqueue(t, g, 0, ask(10), time.Hour)
	settle(t, g, sec, p, 100)
	grants := g.Grants(sec, nil)
	if len(grants) != 1 || grants[0].Waiter != id || grants[0].Code != quota.CodeHardLimit {
		t.Errorf("%+v", grants)
	}
	same(t, "moves", moved(g), []string{"1s model m: normal>exhausted cap_reached"})
}

func TestARefundThatMakesRoomEndsExhaustion(t *testing.T) {
	// A call that was canceled.
	g := governor(t, oneModel(quota.Limits{MaxDailyCalls: 1}))
	p := approve(t, g, 0, ask(1)).Permit
	refused(t, g, 0, ask(1), quota.CodeHardLimit)
	if _, err := g.Cancel(sec, p); err != nil {
		t.Fatal(err)
	}
	same(t, "moves", moved(g), []string{"0s model m: normal>exhausted cap_reached", "1s model m: exhausted>normal room_made"})
	approve(t, g, sec, ask(1))

	// Output that flowed, and was less than thought.
	g = governor(t, oneModel(quota.Limits{MaxDailyTokens: 100}))
	p = approve(t, g, 0, ask(10)).Permit
	if err := g.Drain(0, p, 100); err != nil {
		t.Fatal(err)
	}
	if s := model(t, g, 0); s.State != quota.Exhausted {
		t.Errorf("state %v after 110 of 100 tokens flowed or were held", s.State)
	}
	settle(t, g, sec, p, 20)
	same(t, "moves", moved(g), []string{"0s model m: normal>exhausted cap_reached", "1s model m: exhausted>normal room_made"})
	same(t, "events", eventsOf(g), []string{"0s llm:quota_exhausted model m", "1s rate:resume model m"})

	// The last hundredth: too little for a request, and then for more.
	g = governor(t, oneModel(quota.Limits{MaxDailyTokens: 1000}))
	p = approve(t, g, 0, ask(1)).Permit
	settle(t, g, 0, approve(t, g, 0, ask(995)).Permit, 989)
	refused(t, g, 0, ask(20), quota.CodeHardLimit)
	same(t, "moves", moved(g), []string{})
	settle(t, g, 0, p, 1)
	refused(t, g, 0, ask(20), quota.CodeHardLimit)
	same(t, "moves", moved(g), []string{"0s model m: normal>exhausted cap_reached"})
}

// TestEstimatesOfYesterdayAreNotHeldToday: nor given back to it.
func TestEstimatesOfYesterdayAreNotHeldToday(t *testing.T) {
	c := oneModel(quota.Limits{MaxDailyTokens: 100})
	c.PermitTTLMS = 24 * 3600 * 1000
	g := governor(t, c)
	p := approve(t, g, 12*time.Hour-1, ask(90)).Permit
	today := approve(t, g, 12*time.Hour, ask(90)).Permit
	settle(t, g, 12*time.Hour, p, 0)
	if d := g.Approve(12*time.Hour, ask(20)); !d.Held {
		t.Errorf("%+v, want one that waits for today's call", d)
	}
	settle(t, g, 12*time.Hour, today, 95)
	if d := g.Approve(12*time.Hour, ask(20)); d.Held || d.Code != quota.CodeHardLimit {
		t.Errorf("%+v, want the day's end", d)
	}
}

// TestAModelThatIsTakenOutKeepsWhatItUsed: bucket, window and day, and the calls
// that were under way.
func TestAModelThatIsTakenOutKeepsWhatItUsed(t *testing.T) {
	c := oneModel(quota.Limits{MaxDailyTokens: 100, CallsPerMinute: 60, SoftTokenBudget: 200, SoftTokenWindowMS: 60_000})
	c.Tenants = map[string]quota.Tenant{"t": {Models: map[string]quota.Limits{"m": {MaxDailyCalls: 3}}}}
	g := governor(t, c)
	r := ask(30)
	r.Tenant = "t"
	settle(t, g, 0, approve(t, g, 0, r).Permit, 30)
	p := approve(t, g, 0, r).Permit
	without := c
	without.Models, without.Tenants = map[string]quota.Model{"n": {}}, nil
	for range 2 {
		if err := g.Replace(sec, without); err != nil {
			t.Fatal(err)
		}
		refused(t, g, sec, r, quota.CodeModelNotConfigured)
	}
	settle(t, g, sec, p, 50) // while it is away
	if kept := g.Use(sec, nil); len(kept) != 4 || kept[1].Tokens != 80 {
		t.Errorf("kept %+v", kept)
	}
	if err := g.Replace(sec, c); err != nil {
		t.Fatal(err)
	}
	if s := model(t, g, sec); *s.DailyTokensRemaining != 20 || *s.SoftTokensRemaining != 120 || *s.CallsRemaining != 59 {
		t.Errorf("%d of the day, %d of the window and %d calls are left", *s.DailyTokensRemaining, *s.SoftTokensRemaining, *s.CallsRemaining)
	}
	if kept := g.Use(sec, nil); len(kept) != 4 { // no scope twice
		t.Errorf("kept %+v", kept)
	}
	r.InputTokens = 1
	settle(t, g, sec, approve(t, g, sec, r).Permit, 1)
	refused(t, g, sec, r, quota.CodeHardLimit) // the third of the tenant's calls was the last
	// The next day it begins again, and what was away is forgotten.
	if err := g.Replace(2*sec, without); err != nil {
		t.Fatal(err)
	}
	g.Advance(13 * time.Hour)
	if err := g.Replace(13*time.Hour, c); err != nil {
		t.Fatal(err)
	}
	if s := model(t, g, 13*time.Hour); *s.DailyTokensRemaining != 100 || s.State != quota.Normal {
		t.Errorf("%d left, state %v on the next day", *s.DailyTokensRemaining, s.State)
	}
	if kept := g.Use(13*time.Hour, nil); len(kept) != 0 {
		t.Errorf("kept %+v", kept)
	}
}

// TestANameThatWasForgottenKeepsItsDay: a tenant without a cap makes room for
// another, and gets a cap later.
func TestANameThatWasForgottenKeepsItsDay(t *testing.T) {
	c := oneModel(quota.Limits{})
	c.MaxTenants, c.MaxAgents = 2, 1
	g := governor(t, c)
	for _, name := range []string{"a", "b", "c", "a", "d"} {
		r := ask(10)
		r.Tenant, r.Agent = name, "x"
		settle(t, g, 0, approve(t, g, 0, r).Permit, 10)
	}
	want := map[quota.Scope]int64{{}: 50, {Model: "m"}: 50, {Tenant: "a"}: 20, {Tenant: "d"}: 10}
	got := map[quota.Scope]int64{}
	for _, u := range g.Use(0, nil) {
		got[u.Scope] += u.Tokens
	}
	for s, n := range want {
		if got[s] != n {
			t.Errorf("%v: %d tokens kept, want %d, of %v", s, got[s], n, got)
		}
	}
	c.TenantDefault.MaxDailyTokens = 25
	if err := g.Replace(sec, c); err != nil {
		t.Fatal(err)
	}
	g = governorAt(t, c, origin)
	if err := g.Restore(sec, []quota.DayUse{{Scope: quota.Scope{Tenant: "a"}, Day: "2026-03-04", Zone: "UTC", Tokens: 20, Calls: 2}}); err != nil {
		t.Fatal(err)
	}
	r := ask(10)
	r.Tenant = "a"
	refused(t, g, sec, r, quota.CodeHardLimit)
	// Tomorrow nothing of it is left.
	g.Advance(13 * time.Hour)
	if kept := g.Use(13*time.Hour, nil); len(kept) != 0 {
		t.Errorf("kept %+v", kept)
	}
}

// TestStoredUseIsReadInItsZone: a day counts until it is over in the zone in which
// it was counted, and in the scope's of now; a later day counts as today.
func TestStoredUseIsReadInItsZone(t *testing.T) {
	for _, c := range []struct {
		day, zone, now string // of the scope
		at             time.Time
		left           int64
	}{
		{"2026-03-04", "UTC", "UTC", origin, 40},
		{"2026-03-03", "UTC", "UTC", origin, 100},
		{"2026-03-09", "UTC", "UTC", origin, 40},
		{"2026-03-04", "UTC", "Pacific/Kiritimati", origin, 40},                      // the 5th there
		{"2026-03-05", "Pacific/Kiritimati", "UTC", origin, 40},                      // the 4th here
		{"2026-03-04", "Pacific/Kiritimati", "UTC", origin, 40},                      // over there, not here
		{"2026-03-04", "UTC", "America/Los_Angeles", origin.Add(13 * time.Hour), 40}, // the 4th there still
		{"2026-03-03", "Pacific/Kiritimati", "UTC", origin, 100},
		{"2026-03-04", "Nowhere/Else", "UTC", origin, 40},
		{"2026-03-03", "Nowhere/Else", "UTC", origin, 100},
		{"2026-03-04", "", "UTC", origin, 40},
	} {
		g := governorAt(t, oneModel(quota.Limits{MaxDailyTokens: 100, DayZone: c.now}), c.at)
		if err := g.Restore(0, []quota.DayUse{{Scope: quota.Scope{Model: "m"}, Day: c.day, Zone: c.zone, Tokens: 60, Calls: 1}}); err != nil {
			t.Fatal(err)
		}
		if left := *model(t, g, 0).DailyTokensRemaining; left != c.left {
			t.Errorf("%s in %q, read in %s: %d left, want %d", c.day, c.zone, c.now, left, c.left)
		}
	}
}
