package quota_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

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
