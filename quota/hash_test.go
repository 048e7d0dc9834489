package quota_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

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
