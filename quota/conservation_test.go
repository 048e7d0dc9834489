package quota_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/quota"
)

// drawLimits draws small limits, each budget set or not.
func drawLimits(t *rapid.T, name string) quota.Limits {
	some := func(what string, least, most int64) int64 {
		if !rapid.Bool().Draw(t, name+" has "+what) {
			return 0
		}
		return rapid.Int64Range(least, most).Draw(t, name+" "+what)
	}
	l := quota.Limits{
		CallsPerMinute: some("calls", 1, 600), TokensPerMinute: some("tokens", 10, 5000),
		InputTokensPerMinute: some("input", 10, 5000), MaxDailyTokens: some("daily tokens", 100, 20_000),
		MaxDailyCalls: some("daily calls", 10, 200), SoftTokenBudget: some("soft", 10, 2000),
	}
	if l.SoftTokenBudget > 0 {
		l.SoftTokenWindowMS = rapid.Int64Range(100, 120_000).Draw(t, name+" window")
		l.SoftPolicy = rapid.SampledFrom([]quota.Policy{quota.Defer, quota.Deny, quota.Advise}).Draw(t, name+" policy")
	}
	if l.CallsPerMinute > 0 {
		l.Burst = some("burst", 1, 50)
	}
	return l
}

func drawConfig(t *rapid.T) quota.Config {
	return quota.Config{
		Global: drawLimits(t, "global"),
		Models: map[string]quota.Model{
			"m": {Limits: drawLimits(t, "m"), Charge: rapid.SampledFrom([]string{"", "openai", "azure", "anthropic", "gemini"}).Draw(t, "rule")},
			"n": {Limits: drawLimits(t, "n")},
		},
		TenantDefault: quota.Tenant{Limits: drawLimits(t, "tenant"), Models: map[string]quota.Limits{"m": drawLimits(t, "tenant's m")},
			AgentDefault: quota.Agent{Limits: drawLimits(t, "agent")}},
		PermitTTLMS: rapid.Int64Range(1, 100_000).Draw(t, "ttl"), KeepExpired: rapid.Bool().Draw(t, "keep"),
		MaxTenants: 2, MaxAgents: 1, DayZone: "America/New_York",
	}
}

func drawRequest(t *rapid.T) quota.Request {
	tokens := rapid.Int64Range(0, 3000)
	r := quota.Request{
		Model: rapid.SampledFrom([]string{"m", "n"}).Draw(t, "model"), Tenant: rapid.SampledFrom([]string{"", "t", "u", "v"}).Draw(t, "tenant"),
		Agent: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "agent"), Priority: rapid.IntRange(0, 2).Draw(t, "priority"),
		InputTokens: tokens.Draw(t, "input"), OutputTokens: tokens.Draw(t, "output"), MaxTokens: tokens.Draw(t, "max"),
	}
	r.CachedTokens = rapid.Int64Range(0, r.InputTokens).Draw(t, "cached")
	return r
}

// everyScope are the scopes that a run of drawn requests can touch.
func everyScope() []quota.Scope {
	var all []quota.Scope
	for _, tenant := range []string{"", "t", "u", "v", "*"} {
		for _, agent := range []string{"", "a", "b", "*"} {
			for _, model := range []string{"", "m", "n"} {
				all = append(all, quota.Scope{Tenant: tenant, Agent: agent, Model: model})
			}
		}
	}
	return all
}

// checkScopes holds every scope's ledger against conservation.
func checkScopes(t *rapid.T, g *quota.Governor, at time.Duration) {
	for _, scope := range everyScope() {
		s, ok := g.Inspect(at, scope)
		if !ok {
			continue
		}
		if l := s.Ledger; l.Granted != l.Used+l.Refunded+l.Held || l.Held < 0 || l.Used < 0 || l.Refunded < 0 {
			t.Fatalf("%v: granted %d, used %d, refunded %d, held %d", scope, l.Granted, l.Used, l.Refunded, l.Held)
		}
		if s.CallsRemaining != nil && (*s.CallsRemaining < 0 || *s.CallsRemaining > *s.CallsCapacity) {
			t.Fatalf("%v: %d calls of %d left", scope, *s.CallsRemaining, *s.CallsCapacity)
		}
	}
}

func TestBudgetIsConservedUnderRandomSettleCancelExpiryAndCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.LoadZone = time.LoadLocation
		g, err := quota.New(c, origin)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Duration(0)
		var open []quota.Permit
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, 20_000_000_000).Draw(t, "later"))
			pick := func() quota.Permit { return open[rapid.IntRange(0, len(open)-1).Draw(t, "permit")] }
			what := rapid.IntRange(0, 6).Draw(t, "what")
			switch {
			case what <= 2 || len(open) == 0:
				if d := g.Approve(now, drawRequest(t)); d.Approved {
					open = append(open, d.Permit)
				}
			case what == 3:
				n := rapid.Int64Range(0, 5000)
				g.RecordUsage(now, pick(), quota.Usage{Input: n.Draw(t, "used"), Output: n.Draw(t, "made")}) //nolint:errcheck // often a conflict, on purpose
			case what == 4:
				g.Cancel(now, pick()) //nolint:errcheck // the permits were all given out
			case what == 5:
				g.Drain(now, pick(), rapid.Int64Range(0, 4000).Draw(t, "drained")) //nolint:errcheck // often a conflict, on purpose
			case what == 6: // a crash: the day's use is all that is left
				before := g.Use(now, nil)
				if g, err = quota.New(c, origin); err != nil {
					t.Fatal(err)
				}
				g.Advance(now)
				if err := g.Restore(now, before); err != nil {
					t.Fatal(err)
				}
				if after := g.Use(now, nil); !slices.Equal(before, after) {
					t.Fatalf("before the crash %+v\nafter it %+v", before, after)
				}
				open = nil
			}
			checkScopes(t, g, now)
		}
		now += 101 * sec // all permits expire
		checkScopes(t, g, now)
		for _, scope := range everyScope() {
			if s, ok := g.Inspect(now, scope); ok && s.Ledger.Held != 0 {
				t.Fatalf("%v holds %d when no permit is open", scope, s.Ledger.Held)
			}
		}
	})
}

// A limit is held in the strictest sense: in any stretch of time no more than
// the burst and what flows in since are approved, whatever the estimates say.
func TestNeverOverALimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perMinute, burst := rapid.Int64Range(1, 1000).Draw(t, "a minute"), rapid.Int64Range(1, 20).Draw(t, "burst")
		daily := rapid.Int64Range(1, 500).Draw(t, "a day")
		g, err := quota.New(oneModel(quota.Limits{CallsPerMinute: perMinute, Burst: burst, MaxDailyTokens: daily}), origin)
		if err != nil {
			t.Fatal(err)
		}
		var at []time.Duration
		now, seen := time.Duration(0), time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(-2e9, 3e9).Draw(t, "later"))
			seen = max(seen, now) // a clock that steps back stands still
			if d := g.Approve(now, ask(rapid.Int64Range(0, 10).Draw(t, "tokens"))); d.Approved {
				at = append(at, seen)
			}
		}
		used := daily - *mustInspect(t, g).DailyTokensRemaining
		if used > daily || used < 0 {
			t.Fatalf("%d used of %d a day", used, daily)
		}
		for i := range at {
			for j := i; j < len(at); j++ {
				if most := burst + int64(at[j]-at[i])*perMinute/int64(minute); int64(j-i+1) > most {
					t.Fatalf("%d approved from %v to %v, at most %d", j-i+1, at[i], at[j], most)
				}
			}
		}
	})
}

func mustInspect(t *rapid.T, g *quota.Governor) quota.ModelSnapshot {
	s, ok := g.Inspect(0, quota.Scope{Model: "m"})
	if !ok {
		t.Fatal("no model m")
	}
	return s
}

// RetryIn is exact: a request that is alone passes then, and not before.
func TestRetryInIsExactForAnyLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.LoadZone, c.PermitTTLMS = time.LoadLocation, 31*24*3600*1000
		if rapid.Bool().Draw(t, "with its own scopes") {
			c.MaxTenants, c.MaxAgents = 10, 10
		}
		replay := func() *quota.Governor {
			g, err := quota.New(c, origin)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		type call struct {
			at time.Duration
			r  quota.Request
		}
		var calls []call
		now := time.Duration(0)
		g := replay()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "later"))
			r := drawRequest(t)
			calls = append(calls, call{now, r})
			d := g.Approve(now, r)
			if d.Approved || d.RetryIn == quota.Never {
				continue
			}
			if d.RetryIn <= 0 {
				t.Fatalf("retry in %v", d.RetryIn)
			}
			if d.Held {
				continue // when calls under way end, nobody knows
			}
			for _, wait := range []time.Duration{d.RetryIn - 1, d.RetryIn} {
				other := replay()
				for _, c := range calls {
					other.Approve(c.at, c.r)
				}
				if got := other.Approve(now+wait, r); got.Approved != (wait == d.RetryIn) {
					if got.Reason == quota.HardLimit || d.Reason == quota.HardLimit || got.Held {
						continue // the day turned only for some, or has no room even then
					}
					t.Fatalf("%+v for %+v, then after %v: %+v", d, r, wait, got)
				}
			}
			return
		}
	})
}

// The same calls at the same instants give the same log; looking in between,
// or being late with the timer, changes nothing.
func TestTheSameCallsGiveTheSameTransitionHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.LoadZone = time.LoadLocation
		type call struct {
			at    time.Duration
			r     quota.Request
			used  int64
			delay time.Duration
		}
		var calls []call
		now := time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, 30e9).Draw(t, "later"))
			calls = append(calls, call{now, drawRequest(t), rapid.Int64Range(0, 3000).Draw(t, "used"), time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "delay"))})
		}
		looks := rapid.SliceOfN(rapid.Int64Range(0, int64(now)+1), 50, 50).Draw(t, "looks")
		run := func(looking bool) (string, []string) {
			g, err := quota.New(c, origin)
			if err != nil {
				t.Fatal(err)
			}
			var open []quota.Permit
			for i, call := range calls {
				if looking {
					from := time.Duration(0)
					if i > 0 {
						from = calls[i-1].at
					}
					g.Advance(from + time.Duration(looks[i])%max(1, call.at-from))
					g.NextTransition(from)
					g.Snapshot(from)
				}
				if d := g.Approve(call.at, call.r); d.Approved {
					open = append(open, d.Permit)
				}
				if i%2 == 0 && len(open) > 0 {
					g.RecordUsage(call.at, open[0], quota.Usage{Input: call.used}) //nolint:errcheck // it may have expired
					open = open[1:]
				}
			}
			g.Advance(now + 48*time.Hour)
			moves, _ := g.TakeMoves(nil)
			return fmt.Sprintf("%x", g.LogHash()), []string{fmt.Sprint(moves)}
		}
		first, log := run(false)
		second, _ := run(false)
		third, looked := run(true)
		if first != second || first != third {
			t.Fatalf("%s, %s, %s\n%v\n%v", first, second, third, log, looked)
		}
	})
}

// The timer that NextTransition asks for is never late: advancing from one to
// the next sees every move at its instant.
func TestNextTransitionIsNeverLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.LoadZone = time.LoadLocation
		g, err := quota.New(c, origin)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, 5e9).Draw(t, "later"))
			g.Approve(now, drawRequest(t))
		}
		g.TakeMoves(nil)
		for range 300 {
			at, ok := g.NextTransition(now)
			if !ok {
				break
			}
			if at < now {
				t.Fatalf("the next transition at %v is before %v", at, now)
			}
			g.Advance(at - 1)
			if moves, _ := g.TakeMoves(nil); len(moves) > 0 {
				t.Fatalf("%+v came before %v", moves, at)
			}
			g.Advance(at)
			moves, _ := g.TakeMoves(nil)
			for _, m := range moves {
				if m.Instant != at {
					t.Fatalf("%+v was due before %v", m, at)
				}
			}
			if now == at && at > 48*time.Hour {
				break
			}
			now = at
		}
	})
}
