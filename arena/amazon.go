package arena

import (
	"context"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

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
