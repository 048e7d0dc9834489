package egress_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// late is a provider that takes its time.
type late struct {
	http.RoundTripper
	takes time.Duration
}

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(l.takes)
	return l.RoundTripper.RoundTrip(r)
}

func TestCallsSayWhatBoundThem(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tune  func(t *testing.T, p *egress.Provider)
		first string // the model of a call before
		calls int
		want  reason.Bound
	}{
		{"the owner's ceiling", func(t *testing.T, p *egress.Provider) { p.Pacing = slow(t, time.Second) }, "", 20, reason.BoundCeiling},
		{"the owner's budget", func(t *testing.T, p *egress.Provider) {
			c := generous()
			c.Global = quota.Limits{CallsPerMinute: 12, Burst: 1}
			p.Approver = newLedger(t, c)
		}, "", 3, reason.BoundCeiling},
		{"the provider's Retry-After", func(*testing.T, *egress.Provider) {}, "throttled", 1, reason.BoundCooldown},
		{"latency", func(_ *testing.T, p *egress.Provider) { p.Roundtripper = late{p.Roundtripper, 2 * time.Second} }, "", 3, reason.BoundLatency},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, up := models(t, instant(""), llm.Options{})
				x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) {
					p.MaxWait = time.Minute
					tt.tune(t, p)
				})
				if tt.first != "" {
					if _, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody(tt.first, false)); err != nil {
						t.Fatal(err)
					}
				}
				var wg sync.WaitGroup
				for range tt.calls {
					wg.Go(func() {
						res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
						if err != nil || res.StatusCode != http.StatusOK {
							t.Errorf("%v, %v", res, err)
						}
					})
				}
				wg.Wait()
				synctest.Wait()
				var sum reason.Bounds
				for _, c := range x.calls {
					if got := c.BoundBy.Total(); got != c.Whole {
						t.Errorf("%v of %v is accounted for: %v", got, c.Whole, c.BoundBy)
					}
					for i, d := range c.BoundBy {
						sum[i] += d
					}
				}
				if shares := sum.Shares(); len(shares) == 0 || shares[0].Bound != tt.want || shares[0].Of < 0.9 {
					t.Errorf("the calls were bound by %v, want %v", sum, tt.want)
				}
				if got := x.proxy.Status()[0].BoundBy; got != sum {
					t.Errorf("the status says %v, the calls %v", got, sum)
				}
			})
		})
	}
}
