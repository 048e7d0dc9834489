package egress_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/quota"
)

// narrow is an upstream that takes two calls a second, ten at once, and says
// nothing of it in its headers.
type narrow struct {
	mu      sync.Mutex
	level   float64
	at      time.Time
	refused int
}

func (n *narrow) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	time.Sleep(50 * time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	n.level, n.at = min(10, n.level+2*now.Sub(n.at).Seconds()), now
	status := http.StatusOK
	if n.level < 1 {
		status = http.StatusTooManyRequests
		n.refused++
	} else {
		n.level--
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2,
	}, nil
}

// TestABurstThatTheProviderRefusesIsSpread: an owner who gives a burst of 120 at
// 120 a minute loses the calls that were under way, and not those of every burst.
func TestABurstThatTheProviderRefusesIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &narrow{level: 10, at: time.Now()}
		x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) {
			config := generous()
			config.Global = quota.Limits{CallsPerMinute: 120, Burst: 120}
			p.Approver, p.Pacing, p.MaxWait = newLedger(t, config), nil, time.Minute
			p.Circuit.Off = true
		})
		const clients = 20
		var all sync.WaitGroup
		answered := make(chan int, 4000)
		for range clients {
			all.Go(func() {
				for range 4 { // bursts of work, with rests in which the owner's bucket fills
					for range 15 {
						res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
						if err != nil {
							t.Error(err)
							return
						}
						answered <- res.StatusCode
					}
					time.Sleep(5 * time.Minute)
				}
			})
		}
		all.Wait()
		close(answered)
		ok := 0
		for status := range answered {
			if status == http.StatusOK {
				ok++
			}
		}
		if up.refused > 2*clients || ok < 4*15*clients-2*clients {
			t.Errorf("%d calls were answered and %d refused by the provider, want no more refused than were under way", ok, up.refused)
		}
	})
}
