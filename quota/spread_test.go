package quota_test

import (
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

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
