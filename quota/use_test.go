package quota_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

// kept returns the use of days as lines.
func kept(all []quota.DayUse) []string {
	lines := []string{}
	for _, u := range all {
		lines = append(lines, fmt.Sprintf("%s %s %s: %d tokens, %d calls", u.Scope, u.Day, u.Zone, u.Tokens, u.Calls))
	}
	return lines
}

// Changed use is taken once, and once more after each further change.
func TestWhatChangedIsTakenOnce(t *testing.T) {
	c := oneModel(quota.Limits{MaxDailyTokens: 1000, DayZone: "America/Los_Angeles"})
	c.Models["n"] = quota.Model{}
	g := governor(t, c)
	p := approve(t, g, 0, quota.Request{Model: "m", Tenant: "t", InputTokens: 100}).Permit
	changed := []string{
		"global 2026-03-04 UTC: 100 tokens, 1 calls", "model m 2026-03-04 America/Los_Angeles: 100 tokens, 1 calls",
		"tenant t 2026-03-04 UTC: 100 tokens, 1 calls",
	}
	same(t, "approved", kept(g.TakeChangedUse(0, nil)), changed)
	same(t, "and nothing", kept(g.TakeChangedUse(0, nil)), []string{})
	settle(t, g, 0, p, 90)
	for i := range changed {
		changed[i] = strings.Replace(changed[i], "100 tokens", "90 tokens", 1)
	}
	same(t, "settled", kept(g.TakeChangedUse(0, nil)), changed)
	approve(t, g, 0, quota.Request{Model: "n"})
	same(t, "another model's", kept(g.TakeChangedUse(0, nil)), []string{"global 2026-03-04 UTC: 90 tokens, 2 calls", "model n 2026-03-04 UTC: 0 tokens, 1 calls"})
	// At midnight in UTC, the day of Los Angeles goes on.
	same(t, "all", kept(g.Use(12*time.Hour, nil)), []string{"model m 2026-03-04 America/Los_Angeles: 90 tokens, 1 calls"})
	approve(t, g, 12*time.Hour, quota.Request{Model: "n", InputTokens: 7})
	same(t, "the day after", kept(g.TakeChangedUse(12*time.Hour, nil)), []string{"global 2026-03-05 UTC: 7 tokens, 1 calls", "model n 2026-03-05 UTC: 7 tokens, 1 calls"})
	same(t, "all", kept(g.Use(12*time.Hour, []quota.DayUse{{Day: "kept"}}))[1:], []string{
		"global 2026-03-05 UTC: 7 tokens, 1 calls", "model m 2026-03-04 America/Los_Angeles: 90 tokens, 1 calls", "model n 2026-03-05 UTC: 7 tokens, 1 calls",
	})
}

// The error names an invalid entry, and nothing is restored.
func TestWhatMayBeRestored(t *testing.T) {
	fits := strings.Repeat("x", 256)
	good := quota.DayUse{Scope: ofM, Day: "2026-03-04", Zone: "UTC", Tokens: 10, Calls: 1}
	for _, tt := range []struct {
		change func(u *quota.DayUse)
		want   string // the field
	}{
		{func(*quota.DayUse) {}, ""},
		{func(u *quota.DayUse) { u.Tokens, u.Calls = 0, 0 }, ""},
		{func(u *quota.DayUse) { u.Tokens, u.Calls = math.MaxInt64/4, math.MaxInt64/4 }, ""},
		{func(u *quota.DayUse) { u.Scope.Tenant, u.Scope.Agent = fits, fits }, ""},
		{func(u *quota.DayUse) { u.Day = "yesterday" }, "use[1].day"},
		{func(u *quota.DayUse) { u.Tokens = -1 }, "use[1].tokens"},
		{func(u *quota.DayUse) { u.Tokens = math.MaxInt64/4 + 1 }, "use[1].tokens"},
		{func(u *quota.DayUse) { u.Calls = -1 }, "use[1].calls"},
		{func(u *quota.DayUse) { u.Calls = math.MaxInt64/4 + 1 }, "use[1].calls"},
		{func(u *quota.DayUse) { u.Scope.Tenant = fits + "x" }, "use[1]"},
		{func(u *quota.DayUse) { u.Scope.Agent = fits + "x" }, "use[1]"},
	} {
		g := governor(t, oneModel(quota.Limits{}))
		u := good
		tt.change(&u)
		err := g.Restore(0, []quota.DayUse{good, u})
		field, _ := errors.AsType[*quota.FieldError](err)
		if (err == nil) != (tt.want == "") || err != nil && (field == nil || field.Field != tt.want) {
			t.Errorf("%.60v: %v, want one of %q", u, err, tt.want)
		}
		if n := len(g.Use(0, nil)); err != nil && n != 0 {
			t.Errorf("%d entries of a list that is wrong were restored", n)
		}
	}
}

// Use of today or of a later day is restored as today's.
func TestWhichDaysAreRestored(t *testing.T) {
	c := oneModel(quota.Limits{MaxDailyTokens: 1000})
	c.MaxTenants = 1
	for name, tt := range map[string]struct {
		stored []quota.DayUse
		want   []string
	}{
		"today":               {[]quota.DayUse{{ofM, "2026-03-04", "UTC", 10, 2}}, []string{"model m 2026-03-04 UTC: 10 tokens, 2 calls"}},
		"yesterday":           {[]quota.DayUse{{ofM, "2026-03-03", "UTC", 10, 2}}, []string{}},
		"tomorrow":            {[]quota.DayUse{{ofM, "2026-03-05", "UTC", 10, 2}}, []string{"model m 2026-03-04 UTC: 10 tokens, 2 calls"}},
		"only calls":          {[]quota.DayUse{{ofM, "2026-03-04", "UTC", 0, 2}}, []string{"model m 2026-03-04 UTC: 0 tokens, 2 calls"}},
		"twice":               {[]quota.DayUse{{ofM, "2026-03-04", "UTC", 10, 2}, {ofM, "2026-03-04", "UTC", 5, 1}}, []string{"model m 2026-03-04 UTC: 15 tokens, 3 calls"}},
		"its zone's today":    {[]quota.DayUse{{ofM, "2026-03-05", "Pacific/Kiritimati", 10, 2}}, []string{"model m 2026-03-04 UTC: 10 tokens, 2 calls"}},
		"its zone's day over": {[]quota.DayUse{{ofM, "2026-03-03", "America/Los_Angeles", 10, 2}}, []string{}},
		"a model that is gone": {[]quota.DayUse{{quota.Scope{Model: "n"}, "2026-03-04", "UTC", 10, 2}, {quota.Scope{Model: "n"}, "2026-03-04", "UTC", 1, 1}},
			[]string{"model n 2026-03-04 UTC: 11 tokens, 3 calls"}},
		"a tenant's": {[]quota.DayUse{{quota.Scope{Tenant: "t", Agent: "a", Model: "m"}, "2026-03-04", "UTC", 10, 2}, {quota.Scope{Tenant: "t"}, "2026-03-04", "UTC", 10, 2}},
			[]string{"tenant t 2026-03-04 UTC: 10 tokens, 2 calls", "tenant t, agent a, model m 2026-03-04 UTC: 10 tokens, 2 calls"}},
		"one too many": {[]quota.DayUse{{quota.Scope{Tenant: "t"}, "2026-03-04", "UTC", 10, 2}, {quota.Scope{Tenant: "u"}, "2026-03-04", "UTC", 7, 1}, {quota.Scope{Tenant: "u"}, "2026-03-04", "UTC", 7, 1}},
			[]string{"tenant t 2026-03-04 UTC: 10 tokens, 2 calls", "tenant u 2026-03-04 UTC: 14 tokens, 2 calls"}},
	} {
		// Tenants have a daily limit too.
		c.TenantDefault.Limits = quota.Limits{MaxDailyTokens: 100}
		g := governor(t, c)
		if err := g.Restore(0, tt.stored); err != nil {
			t.Fatal(err)
		}
		same(t, name, kept(g.Use(0, nil)), tt.want)
		same(t, name+", the next day", kept(g.Use(24*time.Hour, nil)), []string{})
	}
}

// A tenant keeps its use of the day even if another tenant had its place meanwhile.
func TestANameThatComesBackHasUsedWhatItUsed(t *testing.T) {
	c := oneModel(quota.Limits{})
	c.MaxTenants = 1
	g := governor(t, c)
	use := func(at time.Duration, tenant string, n int64) {
		settle(t, g, at, approve(t, g, at, quota.Request{Model: "m", Tenant: tenant, InputTokens: n}).Permit, n)
	}
	tenants := func(at time.Duration) []string { return kept(g.Use(at, nil)[2:]) }
	use(0, "a", 10)
	use(0, "b", 0) // a call
	same(t, "another came", tenants(0), []string{"tenant a 2026-03-04 UTC: 10 tokens, 1 calls", "tenant b 2026-03-04 UTC: 0 tokens, 1 calls"})
	use(0, "a", 1)
	same(t, "it came back", tenants(0), []string{"tenant a 2026-03-04 UTC: 11 tokens, 2 calls", "tenant b 2026-03-04 UTC: 0 tokens, 1 calls"})
	use(12*time.Hour, "b", 5)
	same(t, "the next day", tenants(12*time.Hour), []string{"tenant b 2026-03-05 UTC: 5 tokens, 1 calls"})
}

// Tenants without a place share the scope *.
func TestWhoShareAScopeUseItTogether(t *testing.T) {
	c := oneModel(quota.Limits{})
	c.MaxTenants = 1
	g := governor(t, c)
	for _, name := range []string{"a", "b", "c"} {
		approve(t, g, 0, quota.Request{Model: "m", Tenant: name, InputTokens: 10})
	}
	same(t, "all", kept(g.Use(0, nil)), []string{
		"global 2026-03-04 UTC: 30 tokens, 3 calls", "model m 2026-03-04 UTC: 30 tokens, 3 calls",
		"tenant * 2026-03-04 UTC: 20 tokens, 2 calls", "tenant a 2026-03-04 UTC: 10 tokens, 1 calls",
	})
}

// A model that the configuration no longer has keeps its calls of the day and the debt of its
// buckets.
func TestAModelThatIsGoneKeepsWhatMatters(t *testing.T) {
	const midnight = 12 * time.Hour
	none, other := quota.Config{}, oneModel(quota.Limits{})
	delete(other.Models, "m")
	other.Models["n"] = quota.Model{}
	for name, tt := range map[string]struct {
		c    quota.Config
		rows []row
	}{
		"calls without tokens": {oneModel(quota.Limits{MaxDailyCalls: 5}), []row{
			{0, uses(0), "approved"},
			{0, replaces(none), "replaced; global config"},
			{0, replaces(other), "replaced; global config"},
			{0, replaces(oneModel(quota.Limits{MaxDailyCalls: 5})), "replaced; global config"},
			{0, left(ofM), "dailyCalls 4"},
		}},
		"tokens": {oneModel(quota.Limits{MaxDailyTokens: 50}), []row{
			{0, uses(10), "approved"},
			{0, replaces(none), "replaced; global config"},
			{0, replaces(other), "replaced; global config"},
			{0, replaces(oneModel(quota.Limits{MaxDailyTokens: 50})), "replaced; global config"},
			{0, left(ofM), "dailyTokens 40"},
		}},
		"a debt of yesterday": {oneModel(quota.Limits{TokensPerMinute: 60}), []row{
			{midnight - sec, asks(ask(60)), "approved"},
			{midnight - sec, settles(0, quota.Usage{Input: 660}), "ends"},
			{midnight, replaces(none), "replaced; global config"},
			{midnight, replaces(other), "replaced; global config"},
			{midnight, replaces(oneModel(quota.Limits{TokensPerMinute: 60})), "replaced; global config"},
			{midnight, left(ofM), "tokens -599"},
		}},
		"nothing of yesterday": {oneModel(quota.Limits{TokensPerMinute: 60}), []row{
			{midnight - sec, uses(1), "approved"},
			{midnight, replaces(none), "replaced; global config"},
			{midnight, replaces(other), "replaced; global config"},
			{midnight, replaces(oneModel(quota.Limits{TokensPerMinute: 60})), "replaced; global config"},
			{midnight, ledger(ofM), "granted 0, used 0, refunded 0, held 0, cached 0, reasoning 0, approved 0, denied 0, lately 0 calls, 0 tokens"},
		}},
	} {
		t.Run(name, func(t *testing.T) { runs(t, tt.c, tt.rows) })
	}
}

// After a new configuration, a bucket lacks as many units of its new capacity as it lacked
// before.
func TestANewConfigurationKeepsWhatIsUsed(t *testing.T) {
	tokens := func(n int64) quota.Config { return oneModel(quota.Limits{TokensPerMinute: n}) }
	soft := func(budget, window int64) quota.Config {
		c := oneModel(quota.Limits{SoftTokenBudget: budget, SoftTokenWindowMS: window})
		c.ForecastOff = true
		return c
	}
	for name, tt := range map[string]struct {
		c    quota.Config
		rows []row
	}{
		"a larger bucket, a smaller one": {tokens(600), []row{
			{0, uses(200), "approved"},
			{0, replaces(tokens(900)), "replaced; global config"},
			{0, left(ofM), "tokens 700"},
			{0, replaces(tokens(120)), "replaced; global config"},
			{0, left(ofM), "tokens -80"},
			{10 * sec, left(ofM), "tokens -60"},
		}},
		"one is added, one is taken away": {tokens(600), []row{
			{0, uses(200), "approved"},
			{0, replaces(oneModel(quota.Limits{CallsPerMinute: 60})), "replaced; global config"},
			{0, left(ofM), "calls 60"},
			{0, replaces(tokens(600)), "replaced; global config"},
			{0, left(ofM), "tokens 600"},
		}},
		"a refund of what was not taken from it": {tokens(600), []row{
			{0, asks(ask(200)), "approved"},
			{sec, replaces(oneModel(quota.Limits{TokensPerMinute: 600, InputTokensPerMinute: 600})), "replaced; global config"},
			{sec, asks(ask(300)), "approved"},
			{sec, settles(0, quota.Usage{Input: 100}), "ends"},
			{sec, left(ofM), "tokens 210, inputTokens 300"}, // 400 and a second's 10, 300 taken, 100 back to the first
			{sec, settles(1, quota.Usage{Input: 200}), "ends"},
			{sec, left(ofM), "tokens 310, inputTokens 300"}, // at the same instant: it stays on the safe side
			{2 * sec, asks(ask(100)), "approved"},
			{2 * sec, cancels(2), "ends"},
			{2 * sec, left(ofM), "tokens 320, inputTokens 310"},
		}},
		"what was refused is cut to what there is": {tokens(600), []row{
			{0, uses(600), "approved"},
			{0, uses(500), "THROTTLED THROTTLED by model m, 50s; model m normal>throttle bucket_empty; model m throttle 50000ms; model m x2"},
			{0, replaces(tokens(60)), "replaced; global config"},
			{0, next, "10m0s true"}, // it lacked 600 and is full by then
			{10*minute - 1, passes, ""},
			{10 * minute, passes, "model m throttle>normal resume; model m resume"},
		}},
		"what lacked is no limit any more": {tokens(600), []row{
			{0, uses(600), "approved"},
			{0, uses(500), "THROTTLED THROTTLED by model m, 50s; model m normal>throttle bucket_empty; model m throttle 50000ms; model m x2"},
			{0, replaces(oneModel(quota.Limits{CallsPerMinute: 60})), "replaced; model m throttle>normal resume; model m resume; global config"},
		}},
		"another span of the window": {soft(1000, 60_000), []row{
			{0, uses(300), "approved 300/1000"},
			{30 * sec, uses(300), "approved 600/1000"},
			{60 * sec, replaces(soft(1000, 600_000)), "replaced; global config"},
			{60 * sec, left(ofM), "softTokens 400"},
			{60 * sec, replaces(soft(700, 600_000)), "replaced; model m normal>soft soft_reached; model m softPressure 0.857 of 600000ms; model m x0.857; global config"},
			{610*sec - 1, passes, ""},
			{610 * sec, passes, "model m soft>normal soft_relieved"},
		}},
		"no window any more": {soft(1000, 60_000), []row{
			{0, uses(900), "approved 900/1000 soft_pressure; model m normal>soft soft_reached; model m softPressure 0.9 of 60000ms; model m x0.9"},
			{0, replaces(oneModel(quota.Limits{})), "replaced; model m soft>normal soft_relieved; global config"},
			{0, replaces(soft(1000, 60_000)), "replaced; global config"},
			{0, left(ofM), "softTokens 1000"},
		}},
	} {
		t.Run(name, func(t *testing.T) { runs(t, tt.c, tt.rows) })
	}
}
