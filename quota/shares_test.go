package quota_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

// TestSharesOfThoseWhoComeBack has forty callers call again and again, each when its
// refusal says so. Half of them are of a tenant with three times the weight of the
// other. Within three minutes each tenant gets its share of the burst and of what
// follows, also if the fair place of the lighter tenant is beyond the maximum wait.
func TestSharesOfThoseWhoComeBack(t *testing.T) {
	for name, limits := range map[string]quota.Limits{
		"a call a second":      {CallsPerMinute: 60, Burst: 1},
		"60 a minute at once":  {CallsPerMinute: 60},
		"a burst of ten":       {CallsPerMinute: 60, Burst: 10},
		"300 a minute, spread": {CallsPerMinute: 300, Spread: true},
		"20 a minute at once":  {CallsPerMinute: 20},
	} {
		for _, maxWait := range []time.Duration{15 * sec, 10 * minute} {
			c := oneModel(limits)
			c.Tenants = map[string]quota.Tenant{"light": {Weight: 1}, "heavy": {Weight: 3}}
			g := governor(t, c)
			served := map[string]int{}
			var next [40]time.Duration // when each calls, or never while it waits
			for i := range next {
				next[i] = time.Duration(i*17%40) * ms
			}
			caller := map[quota.Waiter]int{}
			who := func(i int) string { return []string{"light", "heavy"}[i/20] }
			for now := time.Duration(0); now < 3*minute; {
				for i := range next {
					if next[i] > now {
						continue
					}
					next[i] = math.MaxInt64
					id, d := g.Enqueue(now, tenant(who(i), 0), now+maxWait)
					if id == 0 {
						next[i] = now + d.RetryIn
						continue
					}
					caller[id] = i
				}
				for _, grant := range g.Grants(now, nil) {
					i := caller[grant.Waiter]
					if next[i] = now + 300*ms; grant.Approved {
						served[who(i)]++
					} else {
						next[i] = now + grant.RetryIn
					}
				}
				then, ok := g.NextTransition(now)
				if !ok {
					then = math.MaxInt64
				}
				for _, at := range next {
					then = min(then, at)
				}
				now = max(then, now+1)
			}
			if ratio := float64(served["heavy"]) / float64(served["light"]); ratio < 2.7 || ratio > 3.3 {
				t.Errorf("%s, at most %v: served %v, %.2f to 1", name, maxWait, served, ratio)
			}
		}
	}
}

// TestTheQueueForAnotherModelCountsForWhatItTakes: requests that wait for a slow model
// do not hold up requests for another one, though both share the global limit.
func TestTheQueueForAnotherModelCountsForWhatItTakes(t *testing.T) {
	g := governor(t, quota.Config{
		Global: quota.Limits{CallsPerMinute: 60}, // far fewer than wait for the slow model
		Models: map[string]quota.Model{"slow": {Limits: quota.Limits{CallsPerMinute: 1}}, "quick": {}},
	})
	of := func(model string, n int) quota.Request {
		return quota.Request{Model: model, Tenant: fmt.Sprint(n), Priority: 1}
	}
	approve(t, g, 0, of("slow", 0))
	for i := range 100 {
		enqueue(t, g, 0, of("slow", i%5), 24*time.Hour)
	}
	g.Grants(0, nil)
	id := enqueue(t, g, 0, of("quick", 1), sec)
	if grants := g.Grants(0, nil); len(grants) != 1 || grants[0].Waiter != id || !grants[0].Approved {
		t.Errorf("%+v", grants)
	}
}
