package sdk_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/pipenet"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/quota/governor"
)

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
