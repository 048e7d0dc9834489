package ratelimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/ratelimit"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// world is a server with two quotas, and a client of the protocol as go-control-plane makes it.
type world struct {
	http   *httptest.Server
	client rls.RateLimitServiceClient
	openai *governor.Governor
}

func newWorld(t testing.TB, models map[string]quota.Model) *world {
	t.Helper()
	quotas := map[string]api.Quota{}
	w := &world{}
	for _, name := range []string{"openai", "gemini"} {
		g, err := governor.New(governor.Options{Config: quota.Config{Models: models}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Close() })
		quotas[name] = g
		if name == "openai" {
			w.openai = g
		}
	}
	a, err := api.New(api.Options{
		Quotas: func() map[string]api.Quota { return quotas },
		Authorize: func(r *http.Request, _ api.Role) (api.Caller, error) {
			switch r.Header.Get("Authorization") {
			case "Bearer plain":
				return api.Caller{ID: "plain"}, nil
			case "Bearer team":
				return api.Caller{ID: "team", Tenant: "a"}, nil
			case "Bearer screen":
				return api.Caller{ID: "screen", Role: api.Viewer}, nil
			}
			return api.Caller{}, &reason.Refusal{Reason: reason.Unauthorized}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", a)
	mux.Handle(ratelimit.Path, ratelimit.Handler(a))
	w.http = httptest.NewUnstartedServer(mux)
	w.http.Config.Protocols = new(http.Protocols)
	w.http.Config.Protocols.SetHTTP1(true)
	w.http.Config.Protocols.SetUnencryptedHTTP2(true)
	w.http.Start()
	t.Cleanup(w.http.Close)
	w.client = client(t, w.http.Listener.Addr())
	return w
}

func client(t testing.TB, at net.Addr) rls.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(at.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return rls.NewRateLimitServiceClient(conn)
}

// of returns a descriptor of pairs of keys and values.
func of(pairs ...string) *descriptor.RateLimitDescriptor {
	d := &descriptor.RateLimitDescriptor{}
	for pair := range slices.Chunk(pairs, 2) {
		d.Entries = append(d.Entries, &descriptor.RateLimitDescriptor_Entry{Key: pair[0], Value: pair[1]})
	}
	return d
}

func (w *world) ask(t testing.TB, key string, in *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return w.client.ShouldRateLimit(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key), in)
}

const ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT

// The same calls are asked for by gRPC and by the API: the answers agree.
func TestAnswersAreThoseOfTheAPI(t *testing.T) {
	models := map[string]quota.Model{
		"calls":  {Limits: quota.Limits{CallsPerMinute: 1, Burst: 3}},
		"tokens": {Limits: quota.Limits{MaxDailyTokens: 100}},
		"free":   {},
	}
	for _, c := range []struct {
		model  string
		tokens int
		times  int
	}{{"calls", 0, 5}, {"tokens", 40, 4}, {"tokens", 101, 1}, {"free", 9, 3}, {"nobody", 1, 1}, {"free", -1, 1}} {
		byGRPC, byAPI := newWorld(t, models), newWorld(t, models)
		for i := range c.times {
			got, err := byGRPC.ask(t, "plain", &rls.RateLimitRequest{
				Domain: "openai", Descriptors: []*descriptor.RateLimitDescriptor{of("model", c.model, "expected_input_tokens", fmt.Sprint(c.tokens))},
			})
			var approval api.Approval
			res, problem := byAPI.post(t, "approve", fmt.Sprintf(`{"provider":"openai","model":%q,"expected_input_tokens":%d}`, c.model, c.tokens), &approval)
			if res == http.StatusOK {
				byAPI.post(t, "usage", fmt.Sprintf(`{"permit":%q,"input_tokens":%d}`, approval.Permit, c.tokens), &struct{}{})
			}
			what := fmt.Sprintf("%s, %d tokens, call %d", c.model, c.tokens, i+1)
			switch res {
			case 200:
				if err != nil || got.GetOverallCode() != ok || got.GetStatuses()[0].GetCode() != ok {
					t.Errorf("%s: %v, %v; the API approves", what, got, err)
				}
			case 429:
				var body api.Problem
				if err != nil || got.GetOverallCode() != over || json.Unmarshal(got.GetRawBody(), &body) != nil || body.Code != problem.Code || body.Scope != problem.Scope {
					t.Errorf("%s: %v, %v; the API answers %+v", what, got, err, problem)
				}
				wait := int64(0)
				for _, h := range got.GetResponseHeadersToAdd() {
					if h.GetKey() == "retry-after" {
						_, _ = fmt.Sscan(h.GetValue(), &wait)
					}
				}
				if want := (problem.RetryInMS + 999) / 1000; wait < want-1 || wait > want+1 {
					t.Errorf("%s: retry-after %d, the API says %d", what, wait, want)
				}
			default:
				want := map[int]codes.Code{400: codes.InvalidArgument, 404: codes.NotFound}[res]
				if status.Code(err) != want || !strings.Contains(err.Error(), problem.Detail) {
					t.Errorf("%s: %v; the API answers %d %s", what, err, res, problem.Detail)
				}
			}
		}
	}
}

// post sends a request to the quotas' API.
func (w *world) post(t *testing.T, what, body string, answer any) (status int, p api.Problem) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.http.URL+"/v1/quota/"+what, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer plain")
	r.Header.Set("Content-Type", "application/json")
	res, err := w.http.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		answer = &p
	}
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, p
}

// All descriptors pass, or nothing is taken.
func TestAllOrNothing(t *testing.T) {
	w := newWorld(t, map[string]quota.Model{
		"a": {Limits: quota.Limits{CallsPerMinute: 1, Burst: 5}}, "b": {Limits: quota.Limits{CallsPerMinute: 1, Burst: 1}},
	})
	both := func(hits uint32) *rls.RateLimitRequest {
		return &rls.RateLimitRequest{Domain: "openai", HitsAddend: hits, Descriptors: []*descriptor.RateLimitDescriptor{of("model", "a"), of("model", "b")}}
	}
	left := func() int64 { return *w.openai.Snapshot().Models["a"].CallsRemaining }
	out, err := w.ask(t, "plain", both(2))
	if err != nil || out.GetOverallCode() != over || out.GetStatuses()[0].GetCode() != ok || out.GetStatuses()[1].GetCode() != over || left() != 5 {
		t.Errorf("%v, %v; %d calls of model a are left, want 5", out, err, left())
	}
	if out, err = w.ask(t, "plain", both(0)); err != nil || out.GetOverallCode() != ok || left() != 4 {
		t.Errorf("%v, %v; %d calls of model a are left, want 4", out, err, left())
	}
	one := both(7)
	one.Descriptors = one.Descriptors[:1]
	one.Descriptors[0].HitsAddend = wrapperspb.UInt64(4)
	if out, err = w.ask(t, "plain", one); err != nil || out.GetOverallCode() != ok || left() != 0 {
		t.Errorf("%v, %v; %d calls of model a are left, want none", out, err, left())
	}
}

// However many ask at once, exactly as many calls pass as there are.
func TestExactlyTheLimit(t *testing.T) {
	w := newWorld(t, map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 1000}}})
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 40 {
				out, err := w.ask(t, "plain", &rls.RateLimitRequest{Domain: "openai", Descriptors: []*descriptor.RateLimitDescriptor{of("model", "m", "expected_input_tokens", "10")}})
				if err != nil {
					t.Error(err)
				} else if out.GetOverallCode() == ok {
					passed.Add(1)
				}
			}
		})
	}
	if all.Wait(); passed.Load() != 100 {
		t.Errorf("%d calls of 10 tokens passed, the day has 1000 tokens", passed.Load())
	}
	if held := w.openai.Statistics(); held.Open != 0 {
		t.Errorf("%d permits are open, want none", held.Open)
	}
}

func TestInvalidRequests(t *testing.T) {
	w := newWorld(t, map[string]quota.Model{"m": {}})
	limit := of("model", "m")
	limit.Limit = &descriptor.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 9}
	back := of("model", "m")
	back.IsNegativeHits = true
	none := of("model", "m")
	none.HitsAddend = wrapperspb.UInt64(0)
	for _, c := range []struct {
		key, domain string
		hits        uint32
		of          *descriptor.RateLimitDescriptor
		code        codes.Code
		text        string
	}{
		{"", "openai", 0, of("model", "m"), codes.Unauthenticated, "Headway key"},
		{"screen", "openai", 0, of("model", "m"), codes.PermissionDenied, "a key for calls"},
		{"team", "openai", 0, of("model", "m", "tenant", "b"), codes.PermissionDenied, "another tenant"},
		{"plain", "", 0, of("model", "m"), codes.InvalidArgument, "domain is empty"},
		{"plain", "nobody", 0, of("model", "m"), codes.NotFound, "must be one of the choices: gemini, openai"},
		{"plain", "headway", 0, of("model", "m"), codes.InvalidArgument, "several quotas"},
		{"plain", "openai", 0, nil, codes.InvalidArgument, "descriptors is empty"},
		{"plain", "openai", 0, of("modle", "m"), codes.InvalidArgument, "descriptors[0].entries[0].key is unknown, must be one of model, tenant"},
		{"plain", "openai", 0, of("model", "m", "model", "n"), codes.InvalidArgument, `entries[1].key is "model" for the second time`},
		{"plain", "openai", 0, of("model", "m", "max_tokens", "many"), codes.InvalidArgument, "entries[1].value is not an integer, as max_tokens must be"},
		{"plain", "openai", 1001, of("model", "m"), codes.InvalidArgument, "at most 1000 calls"},
		{"plain", "openai", 0, none, codes.InvalidArgument, "hits_addend is 0"},
		{"plain", "openai", 0, limit, codes.InvalidArgument, "descriptors[0].limit is set"},
		{"plain", "openai", 0, back, codes.InvalidArgument, "descriptors[0].is_negative_hits is true"},
	} {
		in := &rls.RateLimitRequest{Domain: c.domain, HitsAddend: c.hits}
		if c.of != nil {
			in.Descriptors = append(in.Descriptors, c.of)
		}
		_, err := w.ask(t, c.key, in)
		if status.Code(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v, want %v with %q", in, err, c.code, c.text)
		}
	}
}

// BenchmarkDecisions asks over one connection, as one worker of Envoy does with many requests
// at once. The floor is a server of grpc-go alone, which answers without a quota.
func BenchmarkDecisions(b *testing.B) {
	in := &rls.RateLimitRequest{Domain: "openai", Descriptors: []*descriptor.RateLimitDescriptor{of("model", "m", "expected_input_tokens", "10")}}
	b.Run("quota", func(b *testing.B) {
		w := newWorld(b, map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 1e9, Burst: 1e9}}})
		w.decide(b, in)
	})
	b.Run("floor", func(b *testing.B) {
		l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		s := grpc.NewServer()
		rls.RegisterRateLimitServiceServer(s, floor{})
		go func() { _ = s.Serve(l) }()
		b.Cleanup(s.Stop)
		w := &world{client: client(b, l.Addr())}
		w.decide(b, in)
	})
}

type floor struct {
	rls.UnimplementedRateLimitServiceServer
}

func (floor) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{OverallCode: ok}, nil
}

func (w *world) decide(b *testing.B, in *rls.RateLimitRequest) {
	b.SetParallelism(32)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if out, err := w.ask(b, "plain", in); err != nil || out.GetOverallCode() != ok {
				b.Error(out, err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
