package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/estimate"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/pipenet"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/quota/governor"
)

var (
	agentsFor   = flag.Duration("agents.for", 10*time.Minute, "virtual time that the five agents work")
	agentsReal  = flag.Duration("agents.real", 5*time.Second, "real time that the five agents work")
	agentsSeeds = flag.Int("agents.seeds", 1, "how many seeds the five agents work under")
)

// agent is a client with a share of its own.
type agent struct {
	name    string
	weight  int
	workers int // calls that it wants to have under way
}

// key is the agent's Headway key, made up but of the right form.
func (a agent) key() string { return "hw_" + strings.Repeat(a.name, 8) }

// five agents, of which the last two have a right to more. Each always has more
// to ask than it gets.
func five(workers int) []agent {
	return []agent{{"anna", 1, workers}, {"bert", 1, workers}, {"cleo", 1, workers}, {"dora", 2, workers}, {"emil", 3, workers}}
}

// sizes are of what bounds of requests are drawn, evenly.
type sizes struct{ prompt, most [2]int }

// limits of the provider, and two kinds of load: in one requests are scarce, in
// the other tokens.
var (
	tight     = llm.Limits{RequestsPerMinute: 60, TokensPerMinute: 20_000}
	manySmall = sizes{prompt: [2]int{20, 200}, most: [2]int{64, 250}}
	mixed     = sizes{prompt: [2]int{20, 600}, most: [2]int{64, 400}}
	large     = sizes{prompt: [2]int{20, 600}, most: [2]int{400, 2000}}
)

// tally is what an agent got.
type tally struct {
	calls, errors int
	tooMany       int // errors that were a 429
	charge        float64
	longest       time.Duration
}

// work lets the agents call until the context ends, each call with what the SDK
// does by itself.
func work(ctx context.Context, team []agent, seed uint64, of sizes, client func(agent) openai.Client) map[string]*tally {
	var mu sync.Mutex
	all := map[string]*tally{}
	var running sync.WaitGroup
	for i, a := range team {
		got := &tally{}
		all[a.name] = got
		c := client(a)
		for w := range a.workers {
			random := rand.New(rand.NewPCG(seed, uint64(i*1000+w)))
			running.Go(func() {
				for ctx.Err() == nil {
					one := draw(random, of)
					began := time.Now()
					err := one.send(ctx, &c)
					if ctx.Err() != nil {
						return
					}
					mu.Lock()
					got.longest = max(got.longest, time.Since(began))
					if err == nil {
						got.calls++
						got.charge += float64(one.charge())
					} else {
						got.errors++
						if e, ok := errors.AsType[*openai.Error](err); ok && e.StatusCode == http.StatusTooManyRequests {
							got.tooMany++
						}
					}
					mu.Unlock()
				}
			})
		}
	}
	running.Wait()
	return all
}

// question is one call.
type question struct {
	text   string
	most   int
	stream bool
}

var words = strings.Fields("sea sky sun fog ice ink oak jar key map net owl pen rim row tie urn van wax yak zoo")

func draw(r *rand.Rand, of sizes) question {
	between := func(b [2]int) int { return b[0] + r.IntN(b[1]-b[0]+1) }
	var b strings.Builder
	for range between(of.prompt) {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return question{b.String(), between(of.most), r.IntN(2) == 0}
}

// charge is what the provider counts for it against its tokens a minute: the
// larger of the prompt and the bound of the output.
func (q question) charge() int { return max(q.most, 7+(len(q.text)+3)/4) }

func (q question) send(ctx context.Context, c *openai.Client) error {
	params := openai.ChatCompletionNewParams{
		Model: "sim-small", MaxCompletionTokens: openai.Int(int64(q.most)),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(q.text)},
	}
	if !q.stream {
		_, err := c.Chat.Completions.New(ctx, params)
		return err
	}
	st := c.Chat.Completions.NewStreaming(ctx, params)
	for st.Next() {
	}
	return errors.Join(st.Err(), st.Close())
}

// figures are what is measured.
type figures struct {
	admitted, throttled float64
	goodput             float64 // of the limit that binds
	requests, tokens    float64 // of what each limit allows
	calls, errors       int     // of agents
	refused             int     // 429s that SDKs saw
	codes               map[string]int
	longest             time.Duration
	shares              []float64 // of calls and tokens, against the weights: 1 is its own
}

func (f figures) perThousand() float64 { return 1000 * f.throttled / max(1, f.admitted) }

func (f figures) String() string {
	return fmt.Sprintf("admitted %.0f, throttled %.0f (%.2f per 1000), requests %.3f, tokens %.3f of the limit; calls %d, failed %d, 429s seen %d %v, longest %v, shares %.3f",
		f.admitted, f.throttled, f.perThousand(), f.requests, f.tokens, f.calls, f.errors, f.refused, f.codes, f.longest.Round(time.Millisecond), f.shares)
}

// setting is one experiment.
type setting struct {
	limits  llm.Limits
	sizes   sizes
	team    []agent
	span    time.Duration
	seed    uint64
	direct  bool   // without the proxy
	maxWait string // of the proxy
}

// measure runs the experiment in a bubble.
func measure(t *testing.T, s setting) (f figures) {
	t.Helper()
	estimate.Load() // outside, since it is kept
	synctest.Test(t, func(t *testing.T) {
		provider := limited(t, s.limits, s.seed)
		upstream := serveOn(t, provider)
		base, through := "http://provider/v1/", upstream
		if !s.direct {
			through = serveOn(t, inProcess(t, agentsFile("http://provider", s.limits, s.team, s.maxWait), upstream))
			base = "http://proxy/openai/v1/"
		}
		f = s.run(t, base, through, func() serve.Stats { return provider.Stats() })
	})
	return f
}

// run lets the agents work and gives the figures.
func (s setting) run(t *testing.T, base string, through http.RoundTripper, stats func() serve.Stats) figures {
	seen := watch(through)
	ctx, cancel := context.WithTimeout(t.Context(), s.span)
	defer cancel()
	got := work(ctx, s.team, s.seed, s.sizes, func(a agent) openai.Client {
		key := a.key()
		if s.direct {
			key = providerKey
		}
		return openai.NewClient(option.WithBaseURL(base), option.WithAPIKey(key), option.WithHTTPClient(&http.Client{Transport: seen}))
	})
	f := judge(stats(), got, s)
	f.refused, f.codes = seen.count(http.StatusTooManyRequests), seen.codes
	return f
}

// judge makes figures of what provider and agents counted.
func judge(st serve.Stats, got map[string]*tally, s setting) (f figures) {
	k := st.ByKey[serve.KeyID(providerKey)]
	f.admitted, f.throttled = float64(k.Admitted), float64(k.Throttled)
	f.requests = f.admitted / (float64(s.limits.RequestsPerMinute) * s.span.Minutes())
	f.tokens = k.Charged / (float64(s.limits.TokensPerMinute) * s.span.Minutes())
	f.goodput = max(f.requests, f.tokens)
	weights, served := 0, 0.0
	share := func(g *tally) float64 {
		if f.tokens > f.requests {
			return g.charge
		}
		return float64(g.calls)
	}
	for _, a := range s.team {
		g := got[a.name]
		weights += a.weight
		served += share(g)
		f.calls += g.calls
		f.errors += g.errors
		f.longest = max(f.longest, g.longest)
	}
	for _, a := range s.team {
		f.shares = append(f.shares, share(got[a.name])/served/(float64(a.weight)/float64(weights)))
	}
	return f
}

// check holds the figures of the proxy against what is promised.
func (f figures) check(t *testing.T) {
	t.Helper()
	if f.throttled > f.admitted/1000 {
		t.Errorf("the provider refused %.0f of %.0f calls, want at most 1 in 1000", f.throttled, f.admitted)
	}
	if f.goodput < 0.95 || f.goodput > 1.02 {
		t.Errorf("%.3f of what the limits allow was used, want 0.95", f.goodput)
	}
	if f.refused > 0 || f.errors > 0 {
		t.Errorf("the agents saw %d answers of 429 (%v) and %d errors, want none", f.refused, f.codes, f.errors)
	}
	for i, share := range f.shares {
		if math.Abs(share-1) > 0.05 {
			t.Errorf("agent %d has %.3f of its share, want it within 5 %%", i, share)
		}
	}
}

// TestFiveAgentsOnOneKey: what the proxy promises, and what the same agents get
// from the same provider without it, by what their SDK does alone.
func TestFiveAgentsOnOneKey(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes sizes
	}{{"requests are scarce", manySmall}, {"tokens are scarce", mixed}} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range *agentsSeeds {
				s := setting{limits: tight, sizes: c.sizes, team: five(6), span: *agentsFor, seed: uint64(seed + 1), maxWait: "10m"}
				f := measure(t, s)
				t.Logf("seed %d, proxy:  %v", s.seed, f)
				f.check(t)
				s.direct = true
				bare := measure(t, s)
				t.Logf("seed %d, direct: %v", s.seed, bare)
				if bare.perThousand() < 100 || bare.errors == 0 {
					t.Errorf("the SDK alone had %.0f refusals in 1000 calls and %d errors: this load proves nothing", bare.perThousand(), bare.errors)
				}
			}
		})
	}
}

// TestFiveAgentsInOtherWays is what the documentation quotes beside the
// promise: calls that are large for the limit, and no configured max wait. With -v it
// says what the SDK alone gets, too.
func TestFiveAgentsInOtherWays(t *testing.T) {
	for _, c := range []struct {
		name    string
		sizes   sizes
		workers int
		maxWait string
		times   time.Duration // of the usual span
		least   float64
	}{
		{"large calls", large, 6, "10m", 3, 0.92}, // 0.926 to 0.936 in eight runs of one seed: whose turn it is differs
		{"default max_wait, one call at a time", mixed, 1, "", 1, 0.5},
		{"default max_wait, three calls at a time", mixed, 3, "", 1, 0.93},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range *agentsSeeds {
				s := setting{limits: tight, sizes: c.sizes, team: five(c.workers), span: c.times * *agentsFor, seed: uint64(seed + 1), maxWait: c.maxWait}
				f := measure(t, s)
				t.Logf("seed %d, proxy:  %v", s.seed, f)
				if f.throttled > 0 || f.goodput < c.least || f.codes["provider"] > 0 {
					t.Errorf("%.0f refusals by the provider, %.3f of its limit used, want none and %.2f", f.throttled, f.goodput, c.least)
				}
				if testing.Verbose() { // nothing is asked of it
					s.direct = true
					t.Logf("seed %d, direct: %v", s.seed, measure(t, s))
				}
			}
		})
	}
}

// TestFiveAgentsInRealTime is the promise with real processes and the real clock,
// for as long as the flag says.
func TestFiveAgentsInRealTime(t *testing.T) {
	s := setting{limits: tight, sizes: mixed, team: five(6), span: *agentsReal, seed: 1, maxWait: "10m"}
	up := upstream(t, "--rpm", "60", "--tpm", "20000", "--pace", "120", "--output-tokens", "120")
	dir := t.TempDir()
	file, ready := filepath.Join(dir, "headway.yaml"), filepath.Join(dir, "ready")
	harness.Write(t, file, agentsFile(up, s.limits, s.team, s.maxWait))
	p := harness.Launch(t, dir, []string{"PROVIDER_KEY=" + providerKey}, "serve", file, "--ready-file", ready)
	f := s.run(t, awaitReady(t, p, ready)+"/openai/v1/", http.DefaultTransport, func() serve.Stats { return stats(t, up) })
	t.Logf("%v", f)
	if f.throttled > 0 || f.refused > 0 || f.errors > 0 || f.admitted == 0 {
		t.Errorf("the provider refused %.0f of %.0f calls, the agents saw %d answers of 429 and %d errors, want none", f.throttled, f.admitted, f.refused, f.errors)
	}
	if s.span >= 3*time.Minute {
		f.check(t)
	}
}

// serveOn serves a handler over pipes and gives a transport that reaches it.
func serveOn(t *testing.T, h http.Handler) *http.Transport {
	t.Helper()
	transport, _ := pipenet.Serve(t, h)
	transport.DisableCompression, transport.MaxIdleConnsPerHost = true, 256
	return transport
}

// limited is the simulated provider with limits by the minute.
func limited(t *testing.T, l llm.Limits, seed uint64) *serve.Server {
	t.Helper()
	limits, err := l.Scenario()
	if err != nil {
		t.Fatal(err)
	}
	models, err := llm.New(llm.Options{Seed: seed, OutputTokens: 120, TokensPerSecond: 120})
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(limits, serve.Options{Seed: seed, APIs: []serve.API{models}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// agentsFile is the configuration of the proxy as its owner writes it: the
// provider's documented limits and the tenants' weights. Everything else is
// left to its defaults, except for max_wait, when it is given.
func agentsFile(upstream string, l llm.Limits, team []agent, maxWait string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "listen: 127.0.0.1:0\nstate: state\nkeys:\n")
	for _, a := range team {
		fmt.Fprintf(&b, "  - {id: %s, tenant: %s, hash: %q}\n", a.name, a.name, keys.Hash(a.key()))
	}
	fmt.Fprintf(&b, "providers:\n  openai:\n    api: openai\n    charge: openai\n    upstream: %s\n    key: {env: PROVIDER_KEY}\n", upstream)
	if maxWait != "" {
		fmt.Fprintf(&b, "    max_wait: %s\n", maxWait)
	}
	fmt.Fprintf(&b, "    quota:\n      global: {calls_per_minute: %d, tokens_per_minute: %d}\n      tenants:\n", l.RequestsPerMinute, l.TokensPerMinute)
	for _, a := range team {
		fmt.Fprintf(&b, "        %s: {weight: %d}\n", a.name, a.weight)
	}
	return b.String()
}

// inProcess makes the proxy of a file as the daemon makes it, but over pipes and
// without a disk.
func inProcess(t *testing.T, file string, upstream http.RoundTripper) *egress.Proxy {
	t.Helper()
	c, err := config.Read("headway.yaml", []byte(file), func(name string) string {
		return map[string]string{"PROVIDER_KEY": providerKey}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	p := c.Providers[0]
	budget, err := governor.New(governor.Options{Config: p.Quota.Quota, MaxWait: p.MaxWait})
	if err != nil {
		t.Fatal(err)
	}
	pacing, err := headway.New(headway.Config{
		Name: p.Name, Ceiling: p.Pacing.Ceiling, Initial: p.Pacing.Initial, Law: p.Pacing.Law,
		MaxInFlight: p.Pacing.MaxInFlight, MaxWait: p.MaxWait, PermitTimeout: p.CallTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keys.New(c.Keys)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := egress.New(egress.Options{
		Keys: ring,
		Providers: []egress.Provider{{
			Name: p.Name, Description: p.Description, Key: p.Key.Reveal(), Pacing: pacing, Approver: budget,
			Models:  func(string) string { return config.OtherModels },
			MaxWait: p.MaxWait, MaxBody: p.MaxBody, Retries: p.Retries, CallTimeout: p.CallTimeout, Roundtripper: upstream,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		pacing.Close()
		if err := budget.Close(); err != nil {
			t.Error(err)
		}
	})
	return proxy
}

// watched counts the answers that an SDK sees, those that it retries by itself
// included.
type watched struct {
	to http.RoundTripper

	mu     sync.Mutex
	status map[int]int
	codes  map[string]int // of answers with status 429
}

func watch(to http.RoundTripper) *watched {
	return &watched{to: to, status: map[int]int{}, codes: map[string]int{}}
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := w.to.RoundTrip(r)
	if err != nil {
		return res, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status[res.StatusCode]++
	if res.StatusCode == http.StatusTooManyRequests {
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		res.Body = io.NopCloser(bytes.NewReader(body))
		if err != nil {
			return res, nil
		}
		code := "provider"
		if i := strings.Index(string(body), "RATE_"); i >= 0 {
			code, _, _ = strings.Cut(string(body)[i:], `"`)
		}
		w.codes[code]++
	}
	return res, nil
}

func (w *watched) count(status int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status[status]
}
