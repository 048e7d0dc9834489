package quota_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/quota"
)

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

func TestHeadingForTheEndOfADayRaisesSoftPressureEarly(t *testing.T) {
	for _, off := range []bool{false, true} {
		c := oneModel(quota.Limits{MaxDailyTokens: 12_000})
		c.ForecastOff = off
		g := governor(t, c)
		// 500 a minute use up the 12 hours' worth in 24 minutes.
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
		// The rate falls: pressure ends, with nobody asking.
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
	// 10 a second are 600 a minute: it stays below 0.8, and will.
	if g, at := use(sec); at != 0 {
		t.Errorf("a steady use of 0.6 is soft at %v: %+v", at, model(t, g, at))
	}
	// 20 a second would be 1,200 a minute; one need not wait for 0.8 to see it.
	g, at := use(sec / 2)
	if used := 1000 - *model(t, g, at).SoftTokensRemaining; at == 0 || used < 500 || used >= 600 {
		t.Errorf("soft at %v with %d used", at, used)
	}
	// A single burst is no rate.
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
	// Nobody is idle yet: newcomers share one scope with the default limits, so
	// that a new name is no new budget.
	shared := 0
	for i := range 1000 {
		if d := g.Approve(0, of(100+i)); d.Approved {
			shared++
			if d.Advisory&quota.AdviseShared == 0 {
				t.Error("no advisory tells of the shared scope")
			}
			settle(t, g, 0, d.Permit, 0)
		}
	}
	if shared != 2 || g.Statistics().Tenants != 4 {
		t.Errorf("%d approvals, %d tenants", shared, g.Statistics().Tenants)
	}
	// Who is named in the configuration has its own scope all the same.
	if d := approve(t, g, 0, quota.Request{Model: "m", Tenant: "named"}); d.Advisory&quota.AdviseShared != 0 {
		t.Error("a tenant of the configuration has no scope")
	}
	// Once the buckets are full again the idle make room.
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
	// Agents of one tenant are bounded as well, and none come of unknown models.
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
	random := uint64(42) // a generator of our own: the same everywhere
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

// The hash is that of every machine: run it with GOARCH=386 as well.
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
	for trigger := range quota.CapRaised { // which takes the owner
		if !seen[trigger] {
			t.Errorf("nothing was moved by %v", trigger)
		}
	}
}
