//go:build linux

package hold_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/store/sqlite"
)

var soakFor = flag.Duration("soak", 0, "how long to collect for, in real time; 0 does not")

// changing is a provider of 40 pages of 25 items, each with a detail, of which one
// in five has changed whenever it is asked in another run. It fails at one request
// in forty and refuses one in a thousand.
type changing struct{ requests, run atomic.Int64 }

func (p *changing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch n := p.requests.Add(1); {
	case n%1000 == 999:
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case n%40 == 0:
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if key, detail := strings.CutPrefix(r.URL.Path, "/items/"); detail {
		_, _ = fmt.Fprintf(w, `{"messages":[{"id":"%[1]s-0","run":%[2]d,"text":%[3]q},{"id":"%[1]s-1","text":%[3]q}]}`, key, p.run.Load(), filling)
		return
	}
	page, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	var items []string
	for i := page * 25; i < (page+1)*25; i++ {
		version := int64(0)
		if i%5 == 0 {
			version = p.run.Load()
		}
		items = append(items, fmt.Sprintf(`{"id":"record-%04d","version":%d,"text":%q}`, i, version, filling))
	}
	next := "null"
	if page < 39 {
		next = strconv.Quote(strconv.Itoa(page + 1))
	}
	_, _ = fmt.Fprintf(w, `{"items":[%s],"next":%s}`, strings.Join(items, ","), next)
}

// One run after the other through a local server that fails now and then: the
// last third of them may need no more memory and goroutines than the first. The
// law is back at full pace at once, so that the collector works and does not wait.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("takes minutes: go test ./e2e/hold -run TestSoak -soak 10m")
	}
	provider := &changing{}
	server := httptest.NewServer(provider)
	defer server.Close()
	config, err := rest.Parse("soak.yaml", []byte("connection: soak\nprovider: {base_url: "+server.URL+"}\nstreams:\n  - name: items\n    list: {path: /items}\n"+
		"    records: .items\n    key: .id\n    paginate: {cursor: .next, param: cursor}\n"+
		"    detail: {stream: messages, path: '/items/{key}', records: .messages, key: .id}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	items, err := rest.New(config)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{MaxIdleConnsPerHost: 4}
	defer base.CloseIdleConnections()
	dir := t.TempDir()
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	var heap, goroutines []float64
	for end := time.Now().Add(*soakFor); time.Now().Before(end) || len(heap) < 6; provider.run.Add(1) {
		o := collect.Options{
			Connection: "soak", Connector: items, Store: store, Sink: jsonl.New(filepath.Join(dir, "out")),
			Pacing: headway.Config{Law: "aimd", Ceiling: 1, Initial: 1, Step: time.Millisecond}, Base: base, Concurrency: 4,
		}
		o.Retry.Base, o.Retry.Cap = time.Microsecond, time.Microsecond
		c, err := collect.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := c.Run(t.Context()); err != nil || s.State != collect.RunDrained {
			t.Fatalf("run %d: %s (%s), %v", provider.run.Load(), s.State, s.Reason, err)
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
	t.Logf("%d runs, %d requests; heap %.2f to %.2f MB, goroutines %.0f to %.0f", len(heap), provider.requests.Load(), heapAt/1e6, heapEnd/1e6, goAt, goEnd)
	if heapEnd > 1.2*heapAt {
		t.Errorf("the heap grew from %.2f to %.2f MB", heapAt/1e6, heapEnd/1e6)
	}
	if goEnd > goAt+2 {
		t.Errorf("goroutines grew from %.0f to %.0f", goAt, goEnd)
	}
}
