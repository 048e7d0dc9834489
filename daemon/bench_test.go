package daemon_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/daemon/config"
)

// BenchmarkBesideReverseProxy compares a daemon with the defaults and no limits, in front
// of a provider that never objects, with httputil.ReverseProxy in front of the same: in
// turn, over loopback, calls per second as a share of those of ReverseProxy.
func BenchmarkBesideReverseProxy(b *testing.B) {
	for _, delay := range []time.Duration{0, 5 * time.Millisecond} {
		for _, clients := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("answers_after_%v/%d", delay, clients), func(b *testing.B) { beside(b, delay, clients) })
		}
	}
}

func beside(b *testing.B, delay time.Duration, clients int) {
	const calls = 20 // of each client, before the other side's turn
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(delay)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	b.Cleanup(provider.Close)
	to, err := url.Parse(provider.URL)
	if err != nil {
		b.Fatal(err)
	}
	connections := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	b.Cleanup(connections.CloseIdleConnections)
	plain := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/p")
		},
		Transport: connections,
	})
	b.Cleanup(plain.Close)
	c, err := config.Read("headway.yaml", []byte("listen: 127.0.0.1:0\nstate: "+filepath.Join(b.TempDir(), "state")+
		"\nproviders: {p: {api: openai, upstream: \""+provider.URL+"/v1\", pass_through: true}}\n"), func(string) string { return "" })
	if err != nil {
		b.Fatal(err)
	}
	d, err := daemon.New(c, daemon.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := d.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Stop(context.Background()) })
	body := `{"model":"m","max_tokens":200,"messages":[{"role":"user","content":"` + strings.Repeat("What is the answer? ", 70) + `"}]}`
	var sides [2]*http.Client
	for i := range sides {
		sides[i] = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
		b.Cleanup(sides[i].CloseIdleConnections)
	}
	at := [2]string{plain.URL, "http://" + d.Address().String()}
	var ratios []float64
	var sum [2]time.Duration
	for b.Loop() {
		var took [2]time.Duration
		first := len(ratios) % 2
		for _, i := range [2]int{first, 1 - first} {
			began := time.Now()
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					for range calls {
						res, err := sides[i].Post(at[i]+"/p/v1/chat/completions", "application/json", strings.NewReader(body))
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, res.Body)
						if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
							b.Error(i, res.Status)
						}
					}
				})
			}
			all.Wait()
			took[i] = time.Since(began)
			sum[i] += took[i]
		}
		ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	for i, name := range []string{"reverse-µs/call", "headway-µs/call"} {
		b.ReportMetric(sum[i].Seconds()*1e6/float64(len(ratios)*calls), name)
	}
}
