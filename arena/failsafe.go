package arena

import (
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/headway-go/headway/internal/sim/scenario"
)

const (
	failsafeModule = "github.com/failsafe-go/failsafe-go"
	failsafeRetry  = "`failsafehttp.NewRetryPolicyBuilder` (honours Retry-After in seconds) with backoff from 1 s to 30 s and 3 retries"
	// patience is how long a limiter lets a request wait: for ever, here.
	patience = 31 * 24 * time.Hour
)

// tripper is a rival that is an http.RoundTripper.
type tripper struct{ http.RoundTripper }

// Send makes a round trip.
func (t tripper) Send(req *http.Request) (*http.Response, error) { return t.RoundTrip(req) }

func failsafePolicy() retrypolicy.RetryPolicy[*http.Response] {
	return failsafehttp.NewRetryPolicyBuilder().WithBackoff(time.Second, 30*time.Second).WithMaxRetries(3).Build() //nolint:bodyclose // Only the type is a response.
}

func failsafeAdaptive() Rival {
	return Rival{
		Name: "failsafe-adaptive", Origin: OwnCode, Module: failsafeModule,
		Configuration: failsafeRetry + " around `adaptivelimiter` with its defaults (1 to 200 in flight, 20 at first), which waits instead of refusing",
		New: func(_ *scenario.Scenario, wire http.RoundTripper) Sender {
			limiter := adaptivelimiter.NewBuilder[*http.Response]().WithMaxWaitTime(patience).Build() //nolint:bodyclose // Only the type is a response.
			return tripper{failsafehttp.NewRoundTripper(wire, failsafePolicy(), limiter)}             //nolint:bodyclose // Only the type is a response.
		},
	}
}

func failsafeRate() Rival {
	return Rival{
		Name: "failsafe-rate", Origin: OwnCode, Module: failsafeModule,
		Configuration: failsafeRetry + " around a smooth `ratelimiter` at the owner's ceiling, the one rate that its user knows",
		New: func(s *scenario.Scenario, wire http.RoundTripper) Sender {
			limiter := ratelimiter.NewSmoothBuilderWithMaxRate[*http.Response](s.Owner.Ceiling).WithMaxWaitTime(patience).Build() //nolint:bodyclose // Only the type is a response.
			return tripper{failsafehttp.NewRoundTripper(wire, failsafePolicy(), limiter)}                                         //nolint:bodyclose // Only the type is a response.
		},
	}
}
