//go:build linux

package hold_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/store/sqlite"
)

var soakFor = flag.Duration("soak", 0, "how long to collect for, in real time; 0 does not")

// One run after the other through a local server that fails now and then: the
// last third of them may need no more memory and goroutines than the first.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("takes minutes: go test ./e2e/hold -run TestSoak -soak 10m")
	}
	var requests, run atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := requests.Add(1); n%40 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		res, err := memory{}.RoundTrip(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body, _ := io.ReadAll(res.Body)
		if r.URL.Query().Get("page") == "0" { // what each run finds changed
			body = bytes.ReplaceAll(body, []byte(`"state":"open"`), fmt.Appendf(nil, `"state":"%09d"`, run.Load()))
		}
		_, _ = w.Write(body)
	}))
	defer server.Close()
	base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}}
	defer base.CloseIdleConnections()
	dir := t.TempDir()
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	var heap, goroutines []float64
	for end := time.Now().Add(*soakFor); time.Now().Before(end) || len(heap) < 6; run.Add(1) {
		o := collect.Options{
			Connection: "soak", Connector: pages{}, Store: store, Sink: jsonl.New(filepath.Join(dir, "out")),
			Pacing: headway.Config{Ceiling: 1, Initial: 1}, Base: base,
		}
		o.Retry.Base, o.Retry.Cap = time.Microsecond, time.Microsecond
		c, err := collect.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := c.Run(t.Context()); err != nil || s.State != collect.RunDrained {
			t.Fatalf("run %d: %s (%s), %v", run.Load(), s.State, s.Reason, err)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap, goroutines = append(heap, float64(m.HeapAlloc)), append(goroutines, float64(runtime.NumGoroutine()))
	}
	third := len(heap) / 3
	middle := func(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }
	heapAt, heapEnd := middle(heap[:third]), middle(heap[len(heap)-third:])
	goAt, goEnd := middle(goroutines[:third]), middle(goroutines[len(heap)-third:])
	t.Logf("%d runs, %d requests; heap %.2f to %.2f MB, goroutines %.0f to %.0f", len(heap), requests.Load(), heapAt/1e6, heapEnd/1e6, goAt, goEnd)
	if heapEnd > 1.2*heapAt {
		t.Errorf("the heap grew from %.2f to %.2f MB", heapAt/1e6, heapEnd/1e6)
	}
	if goEnd > goAt+2 {
		t.Errorf("goroutines grew from %.0f to %.0f", goAt, goEnd)
	}
}
