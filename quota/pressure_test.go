package quota_test

import (
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

// advised is a soft budget of 1000 in a minute that only advises, and a step of a second.
func advised(more quota.Limits) quota.Config {
	more.SoftTokenBudget, more.SoftTokenWindowMS, more.SoftPolicy = 1000, 60_000, quota.Advise
	c := oneModel(more)
	c.ForecastOff, c.ScaleStepMS = true, 1000
	return c
}

func TestStatesAndFactorsMoveAtTheirBounds(t *testing.T) {
	const (
		toSoft   = "; model m normal>soft soft_reached; model m softPressure "
		midnight = 12 * time.Hour
	)
	day := func(l quota.Limits) quota.Config { return oneModel(l) }
	narrow := advised(quota.Limits{})
	narrow.ScaleMin, narrow.ScaleMax = 0.9, 2.5
	off := narrow
	off.AdaptiveScalingOff = true
	for name, tt := range map[string]struct {
		c    quota.Config
		rows []row
	}{
		"soft above 0.8, normal at 0.7": {oneModel(quota.Limits{SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000}), []row{
			{0, uses(100), "approved 100/1000"},
			{sec, uses(1), "approved 101/1000"},
			{2 * sec, uses(699), "approved 800/1000"},
			{3 * sec, uses(1), "approved 801/1000 soft_pressure" + toSoft + "0.801 of 60000ms; model m x0.801"},
			{61*sec - 1, passes, ""},
			{61 * sec, passes, ""}, // 701
			{62*sec - 1, passes, ""},
			{62 * sec, passes, "model m soft>normal soft_relieved"}, // 700
		}},
		"the factor follows by 0.05 and returns in four steps": {advised(quota.Limits{}), []row{
			{0, uses(800), "approved 800/1000"},
			{0, uses(50), "approved 850/1000 soft_pressure" + toSoft + "0.85 of 60000ms; model m x0.85"},
			{0, uses(49), "approved 899/1000 soft_pressure"},
			{0, uses(1), "approved 900/1000 soft_pressure; model m x0.9"},
			{0, uses(100), "approved 1000/1000 soft_pressure; model m x1"},
			{0, uses(1), "approved 1001/1000 soft_pressure soft_limit"},
			{0, uses(3099), "approved 2001/1000 soft_pressure soft_limit clamped; model m x2.001; model m x4"},
			{0, next, "1m1s true"},
			{61*sec - 1, passes, ""},
			{61 * sec, passes, "model m soft>normal soft_relieved"},
			{61 * sec, next, "1m2s true"},
			{62*sec - 1, passes, ""},
			{62 * sec, passes, "model m x3.25"},
			{66 * sec, passes, "model m x2.5@1m3s; model m x1.75@1m4s; model m x1@1m5s"},
			{66 * sec, next, "12h0m0s true"},
		}},
		"and from below": {advised(quota.Limits{}), []row{
			{0, uses(850), "approved 850/1000 soft_pressure" + toSoft + "0.85 of 60000ms; model m x0.85"},
			{70 * sec, passes, "model m soft>normal soft_relieved@1m1s; model m x0.887@1m2s; model m x0.924@1m3s; model m x0.961@1m4s; model m x1@1m5s"},
		}},
		"what is less than four steps away returns in one": {advised(quota.Limits{}), []row{
			{0, uses(998), "approved 998/1000 soft_pressure" + toSoft + "0.998 of 60000ms; model m x0.998"},
			{70 * sec, passes, "model m soft>normal soft_relieved@1m1s; model m x1@1m2s"},
		}},
		"what is at 1 has no way back": {advised(quota.Limits{}), []row{
			{0, uses(1000), "approved 1000/1000 soft_pressure" + toSoft + "1 of 60000ms"},
			{70 * sec, passes, "model m soft>normal soft_relieved@1m1s"},
			{70 * sec, next, "12h0m0s true"},
		}},
		"pressure on the way back": {advised(quota.Limits{}), []row{
			{0, uses(2000), "approved 1000/1000 soft_pressure clamped" + toSoft + "1 of 60000ms; model m x2"},
			{62 * sec, passes, "model m soft>normal soft_relieved@1m1s; model m x1.75"},
			{62 * sec, uses(900), "approved 900/1000 soft_pressure" + toSoft + "0.9 of 60000ms; model m x0.9"},
			{64 * sec, passes, ""},
		}},
		"bounds of its own": {narrow, []row{
			{0, uses(850), "approved 850/1000 soft_pressure" + toSoft + "0.85 of 60000ms; model m x0.9"},
			{0, uses(2000), "approved 1850/1000 soft_pressure soft_limit clamped; model m x1.85; model m x2.5"},
		}},
		"switched off": {advised(quota.Limits{}), []row{
			{0, uses(999), "approved 999/1000 soft_pressure" + toSoft + "0.999 of 60000ms; model m x0.999"},
			{0, replaces(off), "replaced; model m x1; global config"},
			{0, uses(1000), "approved 1999/1000 soft_pressure soft_limit"},
			{70 * sec, passes, "model m soft>normal soft_relieved@1m1s"},
		}},
		"switched off on the way back": {advised(quota.Limits{}), []row{
			{0, uses(2000), "approved 1000/1000 soft_pressure clamped" + toSoft + "1 of 60000ms; model m x2"},
			{62 * sec, passes, "model m soft>normal soft_relieved@1m1s; model m x1.75"},
			{62 * sec, replaces(off), "replaced; model m x1; global config"},
			{70 * sec, passes, ""},
		}},
		"a throttle takes 2 at least": {advised(quota.Limits{CallsPerMinute: 60, Burst: 2}), []row{
			{0, uses(999), "approved 999/1000 soft_pressure" + toSoft + "0.999 of 60000ms; model m x0.999"},
			{0, uses(1000), "approved 1999/1000 soft_pressure soft_limit; model m x1.999"},
			{0, uses(1), "THROTTLED THROTTLED by model m, 1s; model m soft>throttle bucket_empty; model m throttle 1000ms; model m x2"},
			{0, uses(1), "THROTTLED THROTTLED by model m, 1s"},
			{2*sec - 1, passes, ""},
			{2 * sec, passes, "model m throttle>normal resume; model m normal>soft soft_reached; model m resume; model m softPressure 1.999 of 60000ms; model m x1.999"},
		}},
		"and more with the window": {advised(quota.Limits{CallsPerMinute: 60, Burst: 1}), []row{
			{0, uses(3000), "approved 1000/1000 soft_pressure clamped" + toSoft + "1 of 60000ms; model m x3"},
			{0, uses(1), "THROTTLED THROTTLED by model m, 1s; model m soft>throttle bucket_empty; model m throttle 1000ms"},
		}},
		"used up while soft": {advised(quota.Limits{MaxDailyTokens: 900}), []row{
			{0, uses(840), "approved 840/1000 soft_pressure" + toSoft + "0.84 of 60000ms; model m x0.84"},
			{0, asks(ask(10)), "approved 850/1000 soft_pressure"},
			{0, settles(0, quota.Usage{Input: 59}), "ends; model m x0.899"},
			{0, asks(ask(1)), "approved 900/1000 soft_pressure"},
			{0, settles(1, quota.Usage{Input: 1}), "ends; model m soft>exhausted cap_reached; model m quota_exhausted dailyTokens; model m x2"},
		}},
		"a day's end": {day(quota.Limits{MaxDailyTokens: 100}), []row{
			{0, asks(ask(98)), "approved"},
			{0, settles(0, quota.Usage{Input: 99}), "ends"},
			{0, asks(ask(2)), "HARD_LIMIT HARD_LIMIT by model m, 12h0m0s, final; model m normal>exhausted cap_reached; model m quota_exhausted dailyTokens; model m x2"},
			{0, asks(ask(1)), "approved"},
			{0, next, "10m0s true"},
			{0, cancels(1), "ends"},
			{0, next, "12h0m0s true"},
			{midnight - 1, passes, ""},
			{midnight, passes, "model m exhausted>normal day_turned; model m resume"},
			{midnight + 20*sec, passes, "model m x1.75@12h0m5s; model m x1.5@12h0m10s; model m x1.25@12h0m15s; model m x1"},
		}},
		"used up by what is settled, and room made": {day(quota.Limits{MaxDailyTokens: 1000, MaxDailyCalls: 3}), []row{
			{0, asks(ask(50)), "approved"},
			{0, asks(ask(0)), "approved"},
			{0, settles(0, quota.Usage{Input: 900}), "ends"},
			{0, asks(ask(1)), "approved; model m normal>exhausted cap_reached; model m quota_exhausted dailyCalls; model m x2"},
			{0, cancels(1), "ends; model m exhausted>normal room_made; model m resume"}, // a call of no tokens
			{0, settles(2, quota.Usage{Input: 100}), "ends; model m normal>exhausted cap_reached; model m quota_exhausted dailyTokens"},
		}},
		"the same configuration ends nothing": {day(quota.Limits{MaxDailyTokens: 1000}), []row{
			{0, uses(990), "approved"},
			{0, uses(11), "HARD_LIMIT HARD_LIMIT by model m, 12h0m0s, final; model m normal>exhausted cap_reached; model m quota_exhausted dailyTokens; model m x2"},
			{0, replaces(day(quota.Limits{MaxDailyTokens: 1000})), "replaced; global config"},
			{0, replaces(day(quota.Limits{MaxDailyTokens: 1001})), "replaced; model m exhausted>normal cap_raised; model m resume; global config"},
		}},
		"a cap that is raised in time": {day(quota.Limits{MaxDailyTokens: 100}), []row{
			{0, uses(90), "approved"},
			{0, replaces(day(quota.Limits{MaxDailyTokens: 200})), "replaced; global config"},
			{0, uses(110), "approved; model m normal>exhausted cap_reached; model m quota_exhausted dailyTokens; model m x2"},
		}},
		"a cap that is raised too little": {day(quota.Limits{MaxDailyTokens: 100}), []row{
			{0, asks(ask(100)), "approved"},
			{0, settles(0, quota.Usage{Input: 150}), "ends; model m normal>exhausted cap_reached; model m quota_exhausted dailyTokens; model m x2"},
			{0, replaces(day(quota.Limits{MaxDailyTokens: 150})), "replaced; global config"},
			{0, replaces(day(quota.Limits{MaxDailyTokens: 151})), "replaced; model m exhausted>normal cap_raised; model m resume; global config"},
			{0, replaces(day(quota.Limits{MaxDailyTokens: 140})), "replaced; model m normal>exhausted cap_reached; model m quota_exhausted dailyTokens; global config"},
			{0, replaces(day(quota.Limits{MaxDailyTokens: 140, MaxDailyCalls: 1})), "replaced; global config"},
			{0, replaces(day(quota.Limits{MaxDailyCalls: 1})), "replaced; global config"},
			{0, replaces(day(quota.Limits{MaxDailyCalls: 2})), "replaced; model m exhausted>normal cap_raised; model m resume; global config"},
		}},
		"tokens of a throttle come back with a tenth to spare": {oneModel(quota.Limits{CallsPerMinute: 1, Burst: 2, TokensPerMinute: 600}), []row{
			{0, uses(600), "approved"},
			{0, uses(10), "THROTTLED THROTTLED by model m, 1s; model m normal>throttle bucket_empty; model m throttle 1000ms; model m x2"},
			{0, uses(0), "approved throttled"}, // the last call, which nobody was refused
			{7*sec - 1, passes, ""},
			{7 * sec, passes, "model m throttle>normal resume; model m resume"},
		}},
		"the most that was refused, of what lacked": {oneModel(quota.Limits{CallsPerMinute: 60, Burst: 2, TokensPerMinute: 600}), []row{
			{0, uses(100), "approved"},
			{0, uses(0), "approved"},
			{0, uses(500), "THROTTLED THROTTLED by model m, 1s; model m normal>throttle bucket_empty; model m throttle 1000ms; model m x2"}, // for a call
			{sec, uses(500), "approved throttled"},                // which leaves 10 tokens
			{sec, uses(30), "THROTTLED THROTTLED by model m, 2s"}, // 20 more
			{sec, uses(20), "THROTTLED THROTTLED by model m, 1s"}, // less than the most
			{9*sec - 1, passes, ""},                               // 90, with the tenth
			{9 * sec, passes, "model m throttle>normal resume; model m resume"},
		}},
		"a refund of one token ends a throttle": {oneModel(quota.Limits{TokensPerMinute: 9}), []row{
			{0, asks(ask(9)), "approved"},
			{6 * sec, uses(1), "THROTTLED THROTTLED by model m, 666.666667ms; model m normal>throttle bucket_empty; model m throttle 667ms; model m x2"}, // 0.9
			{6 * sec, settles(0, quota.Usage{Input: 8}), "ends; model m throttle>normal resume; model m resume"},
		}},
		"a refund of what only the provider counts": {quota.Config{
			Models: map[string]quota.Model{"m": {Limits: quota.Limits{TokensPerMinute: 9}, Charge: "anthropic"}},
		}, []row{
			{0, asks(ask(9)), "approved"},
			{6 * sec, uses(1), "THROTTLED THROTTLED by model m, 666.666667ms; model m normal>throttle bucket_empty; model m throttle 667ms; model m x2"}, // 0.9
			{6 * sec, settles(0, quota.Usage{Input: 9, Cached: 1}), "ends; model m throttle>normal resume; model m resume"},
		}},
		"a removed model advises nothing": {advised(quota.Limits{MaxDailyTokens: 5000}), []row{
			{0, asks(ask(850)), "approved 850/1000 soft_pressure" + toSoft + "0.85 of 60000ms; model m x0.85"},
			{0, asks(ask(1)), "approved 851/1000 soft_pressure"},
			{0, replaces(quota.Config{}), "replaced; global config"},
			{0, settles(0, quota.Usage{Input: 2000}), "ends"},
			{0, settles(1, quota.Usage{Input: 5000}), "ends"},
			{2 * minute, passes, ""},
		}},
		"a forecast of the day": {day(quota.Limits{MaxDailyTokens: 1000}), []row{
			{0, uses(400), "approved"},
			{30 * sec, uses(99), "approved"},
			{60 * sec, uses(0), "approved"}, // 499: not half
			{60 * sec, uses(1), "approved soft_pressure" + toSoft + "0.5 of 86400000ms foreseen; model m x0.5"},
			{60 * sec, next, "2m0s true"},
			{180*sec - 1, passes, ""},
			{180 * sec, passes, "model m soft>normal soft_relieved"}, // a minute without a call
			{201 * sec, passes, "model m x0.625@3m5s; model m x0.75@3m10s; model m x0.875@3m15s; model m x1@3m20s"},
		}},
		"a forecast of the day's calls": {day(quota.Limits{MaxDailyCalls: 10}), []row{
			{0, uses(0), "approved"},
			{0, uses(0), "approved"},
			{30 * sec, uses(0), "approved"},
			{60 * sec, uses(0), "approved"}, // 4 of 10
			{60 * sec, uses(0), "approved soft_pressure" + toSoft + "0.5 of 86400000ms foreseen; model m x0.5"},
		}},
		"one burst is no rate": {day(quota.Limits{MaxDailyTokens: 1000}), []row{
			{0, uses(400), "approved"},
			{60*sec - 1, uses(100), "approved"},
			{60*sec - 1, stands(ofM), "normal x1"},
		}},
		"a rate that lasts": {day(quota.Limits{MaxDailyTokens: 100_000}), []row{
			// In 12 hours, less the minute, 719 minutes: of what is left, 50,000, 69 a minute are
			// used up in 725, and 70 in 714.
			{0, uses(49_931), "approved"},
			{2 * minute, uses(69), "approved"},
			{3 * minute, uses(0), "approved"},
			{3 * minute, uses(1), "approved soft_pressure" + toSoft + "0.5 of 86400000ms foreseen; model m x0.5"},
		}},
		"a forecast of the window": {oneModel(quota.Limits{SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000}), []row{
			{0, uses(100), "approved 100/1000"},
			{sec, uses(100), "approved 200/1000"},
			{2 * sec, uses(100), "approved 300/1000"},
			{3 * sec, uses(199), "approved 499/1000"},
			{4 * sec, uses(1), "approved 500/1000 soft_pressure" + toSoft + "0.5 of 60000ms foreseen; model m x0.5"},
			{4 * sec, next, "14s true"}, // ten parts
			{14*sec - 1, passes, ""},
			{14 * sec, passes, "model m soft>normal soft_relieved"}, // nothing since
		}},
		"four parts are no rate": {oneModel(quota.Limits{SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000}), []row{
			{0, uses(100), "approved 100/1000"},
			{2 * sec, uses(200), "approved 300/1000"},
			{3 * sec, uses(200), "approved 500/1000"},
			{4 * sec, uses(200), "approved 700/1000"},
		}},
		"what a refusal says of the window": {oneModel(quota.Limits{SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000}), []row{
			{0, uses(600), "approved 600/1000"},
			{sec, uses(400), "approved 1000/1000 soft_pressure" + toSoft + "1 of 60000ms"},
			{sec, uses(500), "SOFT_LIMIT SOFT_LIMIT by model m, 1m0s"},
			{61*sec - 1, passes, ""},
			{61 * sec, passes, "model m soft>normal soft_relieved"}, // there is room for 500 and for 0.3
		}},
		"held back": {oneModel(quota.Limits{}), []row{
			{0, func(p *play, at time.Duration) string { p.g.HoldBack(at, ask(1), 30*sec); return "" }, "global normal>throttle held_back; global throttle 30000ms; global x2"},
			{sec, func(p *play, at time.Duration) string { p.g.HoldBack(at, ask(1), -sec); return "" }, ""},
			{sec, next, "30s true"},
			{30*sec - 1, passes, ""},
			{30 * sec, passes, "global throttle>normal resume; global resume"},
		}},
		"the clock was set forward over midnight": {day(quota.Limits{MaxDailyTokens: 100, MaxDailyCalls: 10}), []row{
			{10*minute - 1, asks(ask(10)), "approved"},
			{10 * minute, func(p *play, at time.Duration) string { p.g.Anchor(at, origin.Add(midnight+minute)); return "" }, ""},
			{10 * minute, left(ofM), "dailyTokens 100, dailyCalls 10"},
			{10 * minute, cancels(0), "ends"}, // which was of the day before
			{10 * minute, left(ofM), "dailyTokens 100, dailyCalls 10"},
		}},
		"the clock was set forward": {day(quota.Limits{MaxDailyTokens: 100}), []row{
			{0, uses(100), "approved; model m normal>exhausted cap_reached; model m quota_exhausted dailyTokens; model m x2"},
			{sec, func(p *play, at time.Duration) string { p.g.Anchor(at, origin.Add(midnight-1)); return "" }, ""},
			{sec, func(p *play, at time.Duration) string { p.g.Anchor(at, origin.Add(midnight)); return "" }, "model m exhausted>normal day_turned; model m resume"},
			{sec, left(ofM), "dailyTokens 100"},
			{sec, next, "6s true"}, // the factor
		}},
	} {
		t.Run(name, func(t *testing.T) { runs(t, tt.c, tt.rows) })
	}
}

// TestTheFactorOfAPath: the greatest where one is above 1, else the smallest.
func TestTheFactorOfAPath(t *testing.T) {
	l := quota.Limits{SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Advise}
	byModel := map[string]quota.Limits{"m": l}
	c := quota.Config{
		Models:        map[string]quota.Model{"m": {}, "n": {}},
		TenantDefault: quota.Tenant{Limits: l, Models: byModel, AgentDefault: quota.Agent{Limits: l, Models: byModel}},
	}
	g := governor(t, c)
	use := func(model, tenant, agent string, n int64) {
		r := quota.Request{Model: model, Tenant: tenant, Agent: agent, InputTokens: n}
		settle(t, g, 0, approve(t, g, 0, r).Permit, n)
	}
	use("m", "t", "a", 850)  // all four of its scopes
	use("n", "t", "b", 60)   // t: 910, b: 60
	use("n", "u", "a", 1200) // u and its agent
	use("m", "u", "b", 10)   // u: 1210
	for r, want := range map[quota.Request]float64{
		{Model: "m"}:                          1,
		{Model: "n"}:                          1,
		{Model: "m", Tenant: "t"}:             0.85, // its use of m
		{Model: "n", Tenant: "t"}:             0.91,
		{Model: "m", Tenant: "t", Agent: "a"}: 0.85,
		{Model: "n", Tenant: "t", Agent: "b"}: 0.91,
		{Model: "m", Tenant: "u"}:             1.2,
		{Model: "m", Tenant: "u", Agent: "a"}: 1.2,
		{Model: "m", Tenant: "u", Agent: "c"}: 1.2,
		{Model: "m", Tenant: "v", Agent: "a"}: 1,
	} {
		if got := g.Factor(0, r); got != want {
			t.Errorf("%+v: %v, want %v", r, got, want)
		}
	}
	if n := g.Statistics().Tenants; n != 2 {
		t.Errorf("asking made scopes: %d tenants", n)
	}
	if _, ok := g.Inspect(0, quota.Scope{Tenant: "u", Agent: "c"}); ok {
		t.Error("asking made an agent")
	}
	agents := governor(t, quota.Config{Models: map[string]quota.Model{"m": {}}, TenantDefault: quota.Tenant{AgentDefault: quota.Agent{Models: byModel}}})
	settle(t, agents, 0, approve(t, agents, 0, quota.Request{Model: "m", Tenant: "t", Agent: "a", InputTokens: 1300}).Permit, 1300)
	for r, want := range map[quota.Request]float64{
		{Model: "m", Tenant: "t", Agent: "a"}: 1.3, {Model: "m", Tenant: "t"}: 1, {Model: "n", Tenant: "t", Agent: "a"}: 1, {Model: "m", Tenant: "t", Agent: "b"}: 1,
	} {
		if got := agents.Factor(0, r); got != want {
			t.Errorf("an agent's use of a model, %+v: %v, want %v", r, got, want)
		}
	}
}
