//go:build unix

package egress_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
)

// ended is a request body that stays at its end. The body of net/http's server
// gives an error there once the server has begun to answer, while its transport
// reads once more after the last byte to see that it was the last. In one stream of
// some thousands the answer is faster, and httputil.ReverseProxy then loses the
// connection below it. Package egress is not concerned: it reads bodies first.
type ended struct {
	io.ReadCloser
	err error
}

func (e *ended) Read(p []byte) (n int, err error) {
	if e.err == nil {
		n, e.err = e.ReadCloser.Read(p)
	}
	return n, e.err
}

// buffers keep what httputil.ReverseProxy would else allocate for each call.
type buffers struct{ sync.Pool }

func (b *buffers) Get() []byte {
	if kept, ok := b.Pool.Get().(*[]byte); ok {
		return *kept
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buffer []byte) { b.Pool.Put(&buffer) }

// side is one of the two proxies that are compared.
type side struct {
	name, url string
	client    *http.Client
}

// call is one call of a client.
func (s *side) call(b *testing.B, body string) time.Duration {
	began := time.Now()
	res, err := s.client.Post(s.url, "application/json", strings.NewReader(body))
	if err != nil {
		b.Error(s.name, err)
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	if _, err = io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		b.Error(s.name, res.StatusCode, err)
	}
	return time.Since(began)
}

// newSides makes httputil.ReverseProxy, and this package with pacing as it is by default,
// estimate, usage and all, and a quota or none, before the same upstream.
func newSides(b *testing.B, pool httputil.BufferPool, budget bool) (reverse, ours *side) {
	b.Helper()
	upstream := httptest.NewServer(answers())
	b.Cleanup(upstream.Close)
	to, err := url.Parse(upstream.URL)
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	description, err := provider.New(provider.Settings{API: provider.OpenAI, Upstream: upstream.URL})
	if err != nil {
		b.Fatal(err)
	}
	pacing, err := headway.New(headway.Config{Name: "p", Passive: true, NoBreaker: true})
	if err != nil {
		b.Fatal(err)
	}
	p := egress.Provider{Name: "p", Description: description, Key: "k", Pacing: pacing}
	if budget {
		p.Approver, p.Models = newLedger(b, generous()).Governor, anyModel
	}
	proxy, err := egress.New(egress.Options{Providers: []egress.Provider{p}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = proxy.Drain(context.Background()) })
	serve := func(name string, h http.Handler) *side {
		front := httptest.NewServer(h)
		b.Cleanup(front.Close)
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
		b.Cleanup(client.CloseIdleConnections)
		return &side{name, front.URL + "/p/v1/chat/completions", client}
	}
	return serve("reverseproxy", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/p")
			r.Out.Body = &ended{ReadCloser: r.Out.Body}
		},
		Transport:  transport,
		BufferPool: pool,
	}), serve("headway", proxy)
}

// processor is the time that this process has computed, client and upstream
// included: what else the machine does changes it less than it changes the clock.
func processor(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkProxy compares a call through httputil.ReverseProxy with one through
// this package, over real loopback connections. One client calls both in turn, for
// the median and the 99th percentile of a call through each, and of what the one
// takes more than the other beside it. Then clients hammer both in turn, for the
// calls per second, their ratio within a turn, and what a call takes to compute;
// pooled against a httputil.ReverseProxy that was given a pool of buffers.
func BenchmarkProxy(b *testing.B) {
	question := strings.Repeat("What is the answer to the question? ", 40)
	for _, shape := range []struct{ name, rest string }{{"plain", ""}, {"stream", `,"stream":true`}} {
		body := `{"model":"m","max_tokens":200,"messages":[{"role":"user","content":"` + question + `"}]` + shape.rest + `}`
		b.Run(shape.name+"/latency", func(b *testing.B) {
			reverse, ours := newSides(b, nil, true)
			var before, after, added []time.Duration
			for b.Loop() {
				// Which is first changes, because the second finds warmer caches.
				var one, other time.Duration
				if len(before)%2 == 0 {
					one = reverse.call(b, body)
					other = ours.call(b, body)
				} else {
					other = ours.call(b, body)
					one = reverse.call(b, body)
				}
				before, after, added = append(before, one), append(after, other), append(added, other-one)
			}
			for name, all := range map[string][]time.Duration{"reverse": before, "headway": after, "added": added} {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, name+"-p50-µs")
				b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, name+"-p99-µs")
			}
		})
		hammer := func(b *testing.B, pool httputil.BufferPool, clients int, budget bool) {
			const calls = 10 // of each client, before the other side's turn
			sides := [2]*side{}
			sides[0], sides[1] = newSides(b, pool, budget)
			var rates [2][]float64
			var ratios []float64
			var spent [2]time.Duration
			for b.Loop() {
				first := len(ratios) % 2
				for _, i := range []int{first, 1 - first} {
					began, used := time.Now(), processor(b)
					var all sync.WaitGroup
					for range clients {
						all.Go(func() {
							for range calls {
								sides[i].call(b, body)
							}
						})
					}
					all.Wait()
					rates[i] = append(rates[i], float64(clients*calls)/time.Since(began).Seconds())
					spent[i] += processor(b) - used
				}
				n := len(ratios)
				ratios = append(ratios, rates[1][n]/rates[0][n])
			}
			done := float64(len(ratios) * clients * calls)
			b.ReportMetric(median(rates[0]), "reverse-calls/s")
			b.ReportMetric(median(rates[1]), "headway-calls/s")
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(spent[0].Seconds()*1e6/done, "reverse-cpu-µs")
			b.ReportMetric(spent[1].Seconds()*1e6/done, "headway-cpu-µs")
		}
		b.Run(shape.name+"/throughput", func(b *testing.B) { hammer(b, nil, 8, true) })
		b.Run(shape.name+"/throughput_pooled", func(b *testing.B) { hammer(b, &buffers{}, 8, true) })
		for _, clients := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprint(shape.name, "/unconfigured_", clients), func(b *testing.B) { hammer(b, nil, clients, false) })
		}
		b.Run(shape.name+"/alone", func(b *testing.B) {
			// For the allocations of a call, those of client and upstream included.
			reverse, ours := newSides(b, nil, true)
			for _, s := range []*side{reverse, ours} {
				b.Run(s.name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						s.call(b, body)
					}
				})
			}
		})
	}
}
