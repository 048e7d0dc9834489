package egress_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/pipenet"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

// serveOn serves a handler over pipes and gives a transport that reaches it.
func serveOn(t testing.TB, h http.Handler) (*http.Transport, *pipenet.Listener) {
	t.Helper()
	w := pipenet.New()
	server := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(w) }()
	transport := &http.Transport{DialContext: w.Dial, DisableCompression: true, MaxIdleConnsPerHost: 100}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return transport, w
}

// The secrets of the tests: none may be seen anywhere.
const (
	providerKey = "sk-provider-canary-7f3a"
	prompt      = "PROMPT-CANARY-51c8 tell me all"
)

// ledger is a quota that checks that each permit ends once.
type ledger struct {
	*governor.Governor
	mu    sync.Mutex
	open  map[quota.Permit]quota.Request
	used  []quota.Usage // of permits that were settled
	back  int           // permits given back
	twice int           // ends of permits that had ended
	flow  int64         // drained
	flows []int64       // in steps of
}

func newLedger(t testing.TB, c quota.Config) *ledger {
	t.Helper()
	g, err := governor.New(governor.Options{Config: c, MaxWait: time.Hour}) // the provider's max_wait binds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return &ledger{Governor: g, open: map[quota.Permit]quota.Request{}}
}

func (l *ledger) ApproveWait(ctx context.Context, r quota.Request) (quota.Decision, error) {
	d, err := l.Governor.ApproveWait(ctx, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.Approved {
		l.open[d.Permit] = r
	}
	return d, err
}

// Reserve gives reservations that are noted when their permits are handed out.
func (l *ledger) Reserve(r quota.Request, by quota.Waker) (quota.Reservation, error) {
	reserved, err := l.Governor.Reserve(r, by)
	if err != nil {
		return nil, err
	}
	return &noted{reserved, l, r}, nil
}

type noted struct {
	quota.Reservation
	ledger  *ledger
	request quota.Request
}

func (n *noted) Confirm() error {
	err := n.Reservation.Confirm()
	if err == nil {
		n.ledger.mu.Lock()
		defer n.ledger.mu.Unlock()
		n.ledger.open[n.Decision().Permit] = n.request
	}
	return err
}

func (l *ledger) end(p quota.Permit) {
	if _, ok := l.open[p]; !ok {
		l.twice++
	}
	delete(l.open, p)
}

func (l *ledger) RecordUsage(p quota.Permit, u quota.Usage) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, err := l.Governor.RecordUsage(p, u)
	if err == nil {
		l.end(p)
		l.used = append(l.used, u)
	}
	return first, err
}

func (l *ledger) Cancel(p quota.Permit) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(p)
	l.back++
	return l.Governor.Cancel(p)
}

func (l *ledger) Drain(p quota.Permit, n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flow += n
	l.flows = append(l.flows, n)
	return l.Governor.Drain(p, n)
}

// balanced checks that no permit is open and that what was granted was used or
// given back.
func (l *ledger) balanced(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) != 0 || l.twice != 0 {
		t.Errorf("%d permits are open, %d ended twice", len(l.open), l.twice)
	}
	s := l.Snapshot()
	if g := s.Global.Ledger; g.Held != 0 || g.Granted != g.Used+g.Refunded || s.Statistics.Open != 0 || s.Statistics.Waiting != 0 {
		t.Errorf("ledger %+v with %d open and %d waiting, want granted = used + refunded and nothing held", g, s.Statistics.Open, s.Statistics.Waiting)
	}
}

// total is what was charged, in tokens.
func (l *ledger) total() (u quota.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.used {
		u.Input += one.Input
		u.Cached += one.Cached
		u.Output += one.Output
	}
	return u
}

// generous is a quota that refuses nothing. By "total" tokens are what they are.
func generous(models ...string) quota.Config {
	c := quota.Config{PermitTTLMS: 7_200_000, Global: quota.Limits{CallsPerMinute: 1_000_000, TokensPerMinute: 1_000_000_000}, Models: map[string]quota.Model{"others": {}}}
	for _, m := range models {
		c.Models[m] = quota.Model{}
	}
	return c
}

// anyModel knows every model under one name.
func anyModel(string) string { return "others" }

// rig is a proxy between a client and an upstream, all over pipes.
type rig struct {
	proxy  *egress.Proxy
	quota  *ledger
	pacing *headway.Governor
	client *http.Client
	log    *lines

	mu    sync.Mutex
	calls []egress.CallLog
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// describe is a built-in API at http://upstream.
func describe(t testing.TB, api provider.API) provider.Description {
	t.Helper()
	builtin, _ := provider.Builtin(api)
	d, err := provider.New(provider.Settings{API: api, Upstream: "http://upstream", Charge: builtin.Charge})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newRig puts a proxy in front of an upstream. Tune may change the provider and
// the options before.
func newRig(t testing.TB, api provider.API, upstream http.RoundTripper, tune func(*egress.Provider, *egress.Options)) *rig {
	t.Helper()
	pacing, err := headway.New(headway.Config{Name: "p", Ceiling: time.Microsecond, Initial: time.Microsecond, JitterMax: -1, Law: "aimd", NoBreaker: true, PermitTimeout: 2 * time.Hour, MaxRetryAfter: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	x := &rig{quota: newLedger(t, generous()), pacing: pacing, log: &lines{}}
	p := egress.Provider{
		Name: "p", Description: describe(t, api), Key: providerKey, Approver: x.quota, Models: anyModel, Pacing: pacing, Roundtripper: upstream,
	}
	o := egress.Options{
		OnCall: func(c egress.CallLog) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.calls = append(x.calls, c)
		},
		Log: slog.New(slog.NewTextHandler(x.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if tune != nil {
		tune(&p, &o)
	}
	if l, ok := p.Approver.(*ledger); ok {
		x.quota = l
	}
	x.pacing = p.Pacing
	o.Providers = append([]egress.Provider{p}, o.Providers...)
	if x.proxy, err = egress.New(o); err != nil {
		t.Fatal(err)
	}
	transport, _ := serveOn(t, x.proxy)
	x.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return x
}

// last is the one call that there was.
func (x *rig) last(t testing.TB) egress.CallLog {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.calls) != 1 {
		t.Fatalf("%d calls were logged, want 1", len(x.calls))
	}
	return x.calls[0]
}

// settled checks that nothing is left of any call.
func (x *rig) settled(t testing.TB) {
	t.Helper()
	x.quota.balanced(t)
	if x.pacing != nil {
		if s := x.pacing.Snapshot(); s.InFlight != 0 || s.Waiting != 0 || s.Expired != 0 {
			t.Errorf("pacing has %d in flight, %d waiting, %d expired", s.InFlight, s.Waiting, s.Expired)
		}
	}
	for _, s := range x.proxy.Status() {
		if s.InFlight != 0 || s.Waiting != 0 || s.Unsettled != 0 {
			t.Errorf("%s has %d in flight, %d waiting, %d unsettled", s.Name, s.InFlight, s.Waiting, s.Unsettled)
		}
	}
}

// do sends a request; header fields are "Name: value".
func (x *rig) do(ctx context.Context, t testing.TB, method, path, body string, header ...string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://proxy"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, field := range header {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Set(name, value)
	}
	return x.client.Do(r)
}

// answer is what came back, without its body.
type answer struct {
	StatusCode int
	Header     http.Header
}

// ask sends a request and reads the answer to its end.
func (x *rig) ask(t testing.TB, method, path, body string, header ...string) (a *answer, text string, err error) {
	t.Helper()
	res, err := x.do(t.Context(), t, method, path, body, header...)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = res.Body.Close() }()
	all, err := io.ReadAll(res.Body)
	return &answer{res.StatusCode, res.Header}, string(all), err
}

// instant is a provider that answers at once, with further entries of a
// scenario's provider section.
func instant(section string) string {
	return "name: test\nprovider:\n  latency: {p50: 0s}\n  throttle: {retry_after: exact}\n" + section
}

// models is a simulated provider of language models, with the transport to it.
func models(t testing.TB, src string, o llm.Options) (*serve.Server, *http.Transport) {
	t.Helper()
	api, err := llm.New(o)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := scenario.Parse("test.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(cfg, serve.Options{APIs: []serve.API{api}})
	if err != nil {
		t.Fatal(err)
	}
	transport, _ := serveOn(t, s)
	return s, transport
}

// counted is what the provider counted for our key.
func counted(s *serve.Server) quota.Usage {
	k := s.Stats().ByKey[serve.KeyID(providerKey)]
	return quota.Usage{Input: k.Input, Cached: k.Cached, Output: k.Output}
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// direct is what the provider answers without a proxy, asked with another key.
func direct(t testing.TB, up http.RoundTripper, path, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://upstream"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
		r.Header.Set(name, "direct")
	}
	r.Header.Set("Authorization", "Bearer direct")
	r.Header.Set("Content-Type", "application/json")
	res, err := up.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	all, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("directly: status %d, error %v", res.StatusCode, err)
	}
	return string(all)
}

func chatBody(model string, stream bool) string {
	s := `{"model":"` + model + `","max_tokens":200,"messages":[{"role":"user","content":"` + prompt + `"}]`
	if stream {
		s += `,"stream":true`
	}
	return s + "}"
}

// chats are calls of each API, plain and streamed.
var chats = map[string]struct {
	api  provider.API
	path func(model string, stream bool) string
	body func(model string, stream bool) string
}{
	"openai": {provider.OpenAI, func(string, bool) string { return "/p/v1/chat/completions" }, chatBody},
	"responses": {provider.OpenAI, func(string, bool) string { return "/p/v1/responses" }, func(model string, stream bool) string {
		s := `{"model":"` + model + `","max_output_tokens":200,"input":"` + prompt + `"`
		if stream {
			s += `,"stream":true`
		}
		return s + "}"
	}},
	"azure":     {provider.AzureOpenAI, func(m string, _ bool) string { return "/p/openai/deployments/" + m + "/chat/completions?api-version=1" }, chatBody},
	"anthropic": {provider.Anthropic, func(string, bool) string { return "/p/v1/messages" }, chatBody},
	"gemini": {provider.Gemini, func(m string, stream bool) string {
		if stream {
			return "/p/v1beta/models/" + m + ":streamGenerateContent?alt=sse"
		}
		return "/p/v1beta/models/" + m + ":generateContent"
	}, func(string, bool) string {
		return `{"contents":[{"role":"user","parts":[{"text":"` + prompt + `"}]}],"generationConfig":{"maxOutputTokens":200}}`
	}},
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// answers is an upstream that costs nothing: a plain chat answer, or a stream of
// 40 events that are flushed one by one.
func answers() http.Handler {
	plain := `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("word ", 100) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":100,"total_tokens":112}}`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, plain)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range 40 {
			_, _ = io.WriteString(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"some words \"}}]}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":80,\"total_tokens\":92}}\n\ndata: [DONE]\n\n")
	})
}
