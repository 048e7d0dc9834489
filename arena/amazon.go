package arena

import (
	"context"
	_ "embed" // for go.mod
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"golang.org/x/time/rate"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// amazonAttempts is raised from the SDK's 3, so that work is not given up early.
const amazonAttempts = 10

func amazon() Rival {
	return Rival{
		Name: "aws-adaptive", Origin: OwnCode, Module: "github.com/aws/aws-sdk-go-v2",
		Configuration: "`retry.NewAdaptiveMode` in the SDK's own `retry.Attempt` middleware, all defaults (retry quota 500, backoff to 20 s) but 10 attempts instead of 3. Signing and the serialisers of a service are left out. Throttles carry the error code `TooManyRequestsException`, whatever their status, except a 503, which carries `ServiceUnavailable`. It reads no Retry-After",
		New: func(_ *scenario.Scenario, wire http.RoundTripper) Sender {
			mode := retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
				o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) { o.MaxAttempts = amazonAttempts })
			})
			return &amazonSender{attempt: retry.NewAttemptMiddleware(mode, smithyhttp.RequestCloner), wire: wire}
		},
	}
}

// amazonSender is the part of an SDK client that retries.
type amazonSender struct {
	attempt *retry.Attempt
	wire    http.RoundTripper
}

// Send hands the request to the SDK's retry loop.
func (a *amazonSender) Send(req *http.Request) (*http.Response, error) {
	in, _ := smithyhttp.NewStackRequest().(*smithyhttp.Request)
	in.Request = req
	out, _, err := a.attempt.HandleFinalize(
		&dear{Context: req.Context()}, middleware.FinalizeInput{Request: in}, middleware.FinalizeHandlerFunc(a.transport))
	if err != nil {
		return nil, err
	}
	resp, _ := out.Result.(*http.Response)
	return resp, nil
}

// transport does what the SDK's own transport and a service's deserialiser do:
// a connection that failed and an answer that is no success become the SDK's errors.
func (a *amazonSender) transport(ctx context.Context, in middleware.FinalizeInput) (out middleware.FinalizeOutput, _ middleware.Metadata, err error) {
	req, _ := in.Request.(*smithyhttp.Request)
	resp, err := a.wire.RoundTrip(req.WithContext(ctx)) //nolint:bodyclose // The worker closes it; it is empty.
	switch {
	case err != nil:
		return out, middleware.Metadata{}, &smithyhttp.RequestSendError{Err: err}
	case resp.StatusCode == http.StatusOK:
		out.Result = resp
		return out, middleware.Metadata{}, nil
	}
	api := &smithy.GenericAPIError{Code: amazonCode(ctx, resp.StatusCode), Fault: smithy.FaultClient}
	return out, middleware.Metadata{}, &awshttp.ResponseError{
		ResponseError: &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: resp}, Err: api},
	}
}

// amazonCode is the code in the body of an error, in the words of AWS.
func amazonCode(ctx context.Context, status int) string {
	if status == http.StatusServiceUnavailable {
		return "ServiceUnavailable"
	}
	if k, ok := ctx.Value(workKey{}).(*work); ok && k.last.Throttled {
		return "TooManyRequestsException"
	}
	return "AccessDeniedException"
}

// dear is a context that it takes [Spin] to look at twice in one instant. The
// SDK's adaptive mode waits for a token for a time that it rounds down, to
// nothing when the token is a rounding error away; with a clock that stands still
// it would wait for ever. It looks at the context in each of its waits.
type dear struct {
	context.Context
	looked time.Time
}

// Done is the parent's, some time later.
func (d *dear) Done() <-chan struct{} {
	if now := time.Now(); now.After(d.looked) {
		d.looked = now
	} else {
		time.Sleep(Spin)
	}
	return d.Context.Done()
}

const (
	failsafeModule = "github.com/failsafe-go/failsafe-go"
	failsafeRetry  = "`failsafehttp.NewRetryPolicyBuilder` (honours Retry-After in seconds) with backoff from 1 s to 30 s and 3 retries"
	// maxWait is how long a limiter lets a request wait: for ever, here.
	maxWait = 31 * 24 * time.Hour
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
			limiter := adaptivelimiter.NewBuilder[*http.Response]().WithMaxWaitTime(maxWait).Build() //nolint:bodyclose // Only the type is a response.
			return tripper{failsafehttp.NewRoundTripper(wire, failsafePolicy(), limiter)}            //nolint:bodyclose // Only the type is a response.
		},
	}
}

func failsafeRate() Rival {
	return Rival{
		Name: "failsafe-rate", Origin: OwnCode, Module: failsafeModule,
		Configuration: failsafeRetry + " around a smooth `ratelimiter` at the owner's ceiling, the one rate that its user knows",
		New: func(s *scenario.Scenario, wire http.RoundTripper) Sender {
			limiter := ratelimiter.NewSmoothBuilderWithMaxRate[*http.Response](s.Owner.Ceiling).WithMaxWaitTime(maxWait).Build() //nolint:bodyclose // Only the type is a response.
			return tripper{failsafehttp.NewRoundTripper(wire, failsafePolicy(), limiter)}                                        //nolint:bodyclose // Only the type is a response.
		},
	}
}

// timeRate is a limiter that is given a part of the right rate.
func timeRate(name string, part float64) Rival {
	return Rival{
		Name: name, Origin: Cheat, Module: "golang.org/x/time",
		Configuration: fmt.Sprintf("`rate.NewLimiter` with %g of the rate that the scenario's limits sustain at its start, less the strangers' and divided among the clients, burst 1; refused work is sent again in its turn. No law gets this number", part),
		New: func(s *scenario.Scenario, wire http.RoundTripper) Sender {
			right := part * RightRate(s)
			if !s.Fleet {
				right /= float64(s.Clients)
			}
			return &rateSender{limiter: rate.NewLimiter(rate.Limit(right), 1), wire: wire}
		},
	}
}

type rateSender struct {
	limiter *rate.Limiter
	wire    http.RoundTripper
}

// Send waits for its turn.
func (r *rateSender) Send(req *http.Request) (*http.Response, error) {
	if err := r.limiter.Wait(req.Context()); err != nil {
		return nil, err
	}
	return r.wire.RoundTrip(req)
}

// RightRate is the rate that a scenario's limits sustain before any change, in
// attempts a second for all clients together: that of the tightest limit, less
// what strangers take, and no faster than the owner's ceiling.
func RightRate(s *scenario.Scenario) float64 {
	busy := busyTime(s.Provider.Latency)
	right := math.Inf(1)
	for _, l := range s.Provider.Limits {
		per, ok := l.PerSecond()
		switch {
		case ok:
		case l.Kind == scenario.CostWindow:
			per = l.Units / s.Workload.Cost.Mean / l.Window.Seconds()
		case l.Kind == scenario.BusyTime:
			per = float64(l.Busy) / busy / l.Window.Seconds()
		case l.Kind == scenario.Concurrency:
			per = float64(l.Count) / (busy / float64(time.Second))
		}
		right = min(right, per)
	}
	if s.Provider.Strangers != nil {
		right -= s.Provider.Strangers.Rate.PerSecond()
	}
	ceiling := 1 / s.Owner.Ceiling.Seconds()
	if !s.Fleet {
		ceiling *= float64(s.Clients)
	}
	return max(min(right, ceiling), 1e-6)
}

// busyTime is how long the provider works on a request on average, in
// nanoseconds.
func busyTime(l scenario.Latency) float64 {
	return max(1, mean(l.P50, l.P99)-2*mean(l.UplinkP50, l.UplinkP99))
}

// mean is that of a lognormal distribution.
func mean(p50, p99 time.Duration) float64 {
	const z99 = 2.3263478740408408
	if p99 <= p50 {
		return float64(p50)
	}
	sigma := math.Log(float64(p99)/float64(p50)) / z99
	return float64(p50) * math.Exp(sigma*sigma/2)
}

// Origin is where a rival's code is from.
type Origin string

// The origins.
const (
	// OwnCode: the rival's own code, unchanged.
	OwnCode Origin = "own code"
	// Described: written here after the law's documents.
	Described Origin = "written here from documents"
	// Cheat: the rival's own code, given a number that no real client has.
	Cheat Origin = "own code, a cheat"
)

// Rival is a client of another make.
type Rival struct {
	Name   string
	Origin Origin
	// Module is the path of the module that its code is in; "" for Described.
	Module string
	// Configuration is what it was given, for a person.
	Configuration string
	// New makes one for a client, or for a fleet, that sends over the wire.
	New func(s *scenario.Scenario, wire http.RoundTripper) Sender
}

//go:embed go.mod
var goMod string

// Version is the version of the rival's module that go.mod requires; a test
// binary does not carry it. "-" where there is no module, "unknown" where
// go.mod does not require it.
func (r Rival) Version() string {
	if r.Module == "" {
		return "-"
	}
	for line := range strings.Lines(goMod) {
		if words := strings.Fields(strings.TrimPrefix(line, "require ")); len(words) >= 2 && words[0] == r.Module {
			return strings.TrimPrefix(words[1], "v")
		}
	}
	return "unknown"
}

// Rivals are all of them, in the order of the tables.
func Rivals() []Rival {
	return slices.Concat(
		[]Rival{amazon(), failsafeAdaptive(), failsafeRate(), retryable()},
		[]Rival{timeRate("x-time-rate", 1), timeRate("x-time-rate-half", 0.5)},
		[]Rival{autoThrottle(), vegas(), gradient2(), adaptiveBucket()},
	)
}
