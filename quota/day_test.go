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
			settle(t, g, 0, approve(t, g, 0, ask(60)).Permit, 60)
			d := refused(t, g, 0, ask(60), quota.CodeHardLimit)
			if d.Reason != quota.HardLimit || d.RetryIn != tt.untilTurn {
				t.Errorf("%+v, want HARD_LIMIT for %v", d, tt.untilTurn)
			}
			same(t, "events", told(g), []string{"0s llm:quota_exhausted model m"})
			refused(t, g, tt.untilTurn-1, ask(60), quota.CodeHardLimit)
			same(t, "events", told(g), []string{})
			approve(t, g, tt.untilTurn, ask(60))
			same(t, "events", told(g), []string{tt.untilTurn.String() + " rate:resume model m"})
		})
	}
}

func TestExhaustionSaysScopeAndCap(t *testing.T) {
	g := governor(t, quota.Config{
		Models:  map[string]quota.Model{"m": {}},
		Tenants: map[string]quota.Tenant{"t": {Limits: quota.Limits{MaxDailyTokens: 10}}, "u": {Limits: quota.Limits{MaxDailyCalls: 1}}},
	})
	approve(t, g, 0, quota.Request{Model: "m", Tenant: "t", InputTokens: 10})
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

func TestAnExhaustedScopeApprovesWhatARefundMakesRoomFor(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{MaxDailyTokens: 100}))
	p := approve(t, g, 0, ask(90)).Permit
	refused(t, g, 0, ask(50), quota.CodeHardLimit)
	settle(t, g, 0, p, 10)
	approve(t, g, 0, ask(50))
	if s := model(t, g, 0); s.State != quota.Exhausted {
		t.Errorf("state %v: only the day's end is the end of exhaustion", s.State)
	}
}
