// Package ratelimit serves Envoy's rate limit service (envoy.service.ratelimit.v3) from the
// daemon's quotas, so that Envoy, Istio and other gateways ask for calls as programs do with
// POST /v1/quota/approve, and get the same answers.
//
// A request's domain names the quota, which is that of a provider; the domain "headway" stands
// for the quota of requests that name none. Each descriptor is one call. Its entries have the
// names of the fields of POST /v1/quota/approve: model, tenant, agent, priority, reason,
// expected_input_tokens, expected_output_tokens, cached_tokens and max_tokens. All descriptors
// must pass, or nothing is taken. A hits_addend of n takes n calls. A gateway cannot settle a
// call, so each is settled at once with the tokens that it expects.
//
// A refusal is OVER_LIMIT with the Retry-After header and the problem document that the API
// answers. Other problems are gRPC errors: InvalidArgument, Unauthenticated, PermissionDenied,
// NotFound, ResourceExhausted, Unavailable and Internal. The key is sent as metadata
// "authorization: Bearer KEY".
package ratelimit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/quota"
)

// Path is where requests of the service begin.
const Path = "/envoy.service.ratelimit.v3.RateLimitService/"

// DefaultDomain stands for the quota of requests that name none.
const DefaultDomain = "headway"

// MaxCalls is the maximum number of calls in one request: its descriptors, each as often as
// its hits_addend says.
const MaxCalls = 1000

// Decider decides whether calls may be made; see [api.API.Decide].
type Decider interface {
	Decide(r *http.Request, provider string, calls []quota.Request) (at int, p *api.Problem)
}

// Handler returns a handler for requests below [Path]. It takes gRPC over HTTP/2, also without
// TLS where the server allows that. Safe for concurrent use.
func Handler(d Decider) http.Handler {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(api.MaxBody))
	rls.RegisterRateLimitServiceServer(s, &service{decider: d})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, r)))
	})
}

type requestKey struct{}

type service struct {
	rls.UnimplementedRateLimitServiceServer
	decider Decider
}

// ShouldRateLimit implements [rls.RateLimitServiceServer].
func (s *service) ShouldRateLimit(ctx context.Context, in *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	calls, of, err := read(in)
	if err != nil {
		return nil, err
	}
	provider := in.GetDomain()
	if provider == DefaultDomain {
		provider = ""
	}
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	at, p := s.decider.Decide(r, provider, calls)
	out := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	for range in.GetDescriptors() {
		out.Statuses = append(out.Statuses, &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK})
	}
	switch {
	case p == nil:
		return out, nil
	case at < 0 || p.Status != http.StatusTooManyRequests:
		if at >= 0 && len(in.GetDescriptors()) > 1 {
			return nil, status.Errorf(code(p.Status), "descriptors[%d]: %s", of[at], detail(p))
		}
		return nil, status.Error(code(p.Status), detail(p))
	}
	out.OverallCode = rls.RateLimitResponse_OVER_LIMIT
	refused := out.Statuses[of[at]]
	refused.Code = rls.RateLimitResponse_OVER_LIMIT
	out.ResponseHeadersToAdd = []*core.HeaderValue{{Key: "content-type", Value: "application/problem+json"}}
	if wait, ok := p.RetryIn(); ok {
		refused.DurationUntilReset = durationpb.New(wait)
		seconds := (wait + time.Second - 1) / time.Second
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, &core.HeaderValue{Key: "retry-after", Value: strconv.FormatInt(int64(seconds), 10)})
	}
	if out.RawBody, err = json.Marshal(p); err != nil { // cannot happen: a Problem has strings and numbers only
		return nil, status.Error(codes.Internal, "internal error")
	}
	return out, nil
}

func detail(p *api.Problem) string {
	text := cmp.Or(p.Detail, p.Title)
	if len(p.Choices) > 0 {
		text += ": " + strings.Join(p.Choices, ", ")
	}
	return text
}

// code returns the gRPC code for the HTTP status of a problem.
func code(httpStatus int) codes.Code {
	switch httpStatus {
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.NotFound
	case http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	}
	return codes.Internal
}

// read returns the calls that a request asks for, and for each the index of its descriptor.
func read(in *rls.RateLimitRequest) (calls []quota.Request, of []int, err error) {
	if in.GetDomain() == "" {
		return nil, nil, status.Errorf(codes.InvalidArgument, "domain is empty, must name a quota, or be %q for the default one", DefaultDomain)
	}
	if len(in.GetDescriptors()) == 0 {
		return nil, nil, status.Error(codes.InvalidArgument, "descriptors is empty, must have one for each call")
	}
	for i, d := range in.GetDescriptors() {
		call, err := readCall(d)
		if err != nil {
			return nil, nil, status.Errorf(codes.InvalidArgument, "descriptors[%d]%s", i, err)
		}
		hits := uint64(max(1, in.GetHitsAddend()))
		if own := d.GetHitsAddend(); own != nil {
			if hits = own.GetValue(); hits == 0 {
				return nil, nil, status.Errorf(codes.InvalidArgument, "descriptors[%d].hits_addend is 0, must be at least 1: a call is asked for, or it is not", i)
			}
		}
		if hits > MaxCalls || len(calls)+int(hits) > MaxCalls {
			return nil, nil, status.Errorf(codes.InvalidArgument, "descriptors[%d].hits_addend is %d, the request must be for at most %d calls in all", i, hits, MaxCalls)
		}
		for range hits {
			calls, of = append(calls, call), append(of, i)
		}
	}
	return calls, of, nil
}

// readCall returns the call of a descriptor. The error begins with the field.
func readCall(d *descriptor.RateLimitDescriptor) (call quota.Request, err error) {
	switch {
	case d.GetLimit() != nil:
		return call, fmt.Errorf(".limit is set, must be absent: the daemon's configuration has the limits")
	case d.GetIsNegativeHits():
		return call, fmt.Errorf(".is_negative_hits is true, must be false: calls are not given back")
	}
	texts := map[string]*string{"model": &call.Model, "tenant": &call.Tenant, "agent": &call.Agent, "reason": &call.Reason}
	numbers := map[string]*int64{
		"expected_input_tokens": &call.InputTokens, "expected_output_tokens": &call.OutputTokens,
		"cached_tokens": &call.CachedTokens, "max_tokens": &call.MaxTokens,
	}
	seen := make(map[string]bool, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		key, value := e.GetKey(), e.GetValue()
		if seen[key] {
			return call, fmt.Errorf(".entries[%d].key is %q for the second time", i, key)
		}
		text, number := texts[key], numbers[key]
		switch {
		case text != nil:
			*text = value
		case number != nil:
			*number, err = strconv.ParseInt(value, 10, 64)
		case key == "priority":
			call.Priority, err = strconv.Atoi(value)
		default:
			return call, fmt.Errorf(".entries[%d].key is unknown, must be one of %s", i, strings.Join(keys, ", "))
		}
		if err != nil {
			return call, fmt.Errorf(".entries[%d].value is not an integer, as %s must be", i, key)
		}
		seen[key] = true
	}
	return call, nil
}

var keys = []string{"model", "tenant", "agent", "priority", "reason", "expected_input_tokens", "expected_output_tokens", "cached_tokens", "max_tokens"}
