package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	facade "github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

func TestProgressSaysWhatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon := time.Now().Add(2 * time.Minute)
		rate := &event.Rate{EffectiveRatePerMin: 60_000, CeilingRatePerMin: 60_000}
		for want, now := range map[string]collect.Live{
			"1,000/s of at most 1,000/s, no back-off, waiting 2m0s for api.example.com: Retry-After": {
				Pacing: facade.Snapshot{Rate: rate, Circuit: "closed", RetryAt: soon},
			},
			"waiting 2m0s for api.example.com: it kept failing, so the circuit is open": {
				Pacing: facade.Snapshot{Rate: rate, Circuit: "open", RetryAt: soon},
			},
			"rate unknown, waiting 2m0s for api.example.com: it refuses for rate": {
				Waiting: reason.RateLimited.Reason(), Until: soon,
			},
			"no back-off, 90s left":             {Left: 90 * time.Second, Pacing: facade.Snapshot{Rate: rate}},
			"no back-off, 3s left on this page": {Left: 3 * time.Second, More: true, Pacing: facade.Snapshot{Rate: rate}},
		} {
			want = strings.ReplaceAll(want, "90s", "1m30s")
			if got := progressBlock("acme", "api.example.com", now, 0)[1]; !strings.HasSuffix(got, want) {
				t.Errorf("got %q, want %q at its end", got, want)
			}
		}
	})
}
