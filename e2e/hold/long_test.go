//go:build linux

package hold_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/sink/jsonl"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
	"github.com/headway-go/headway/store/sqlite"
)

// Each iteration of a benchmark collects so many records, a thousand a page, of
// about two hundred bytes each.
const (
	benchPages    = 50
	benchPageSize = 1000
	benchRecords  = benchPages * benchPageSize
)

// memory is a provider in this process without any limit.
type memory struct{}

// RoundTrip answers with a page, made on the spot.
func (memory) RoundTrip(r *http.Request) (*http.Response, error) {
	page, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Grow(benchPageSize * 220)
	b.WriteString(`{"items":[`)
	for i := page * benchPageSize; i < (page+1)*benchPageSize; i++ {
		if i > page*benchPageSize {
			b.WriteByte(',')
		}
		_, _ = fmt.Fprintf(&b, `{"id":"record-%08d","title":"a title of some length","updated_at":"2024-01-01T00:00:00Z","state":"open","amount":%d,"text":"%s"}`, i, i, filling)
	}
	next := ""
	if page+1 < benchPages {
		next = strconv.Itoa(page + 1)
	}
	_, _ = fmt.Fprintf(&b, `],"next":%q}`, next)
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(&b), ContentLength: int64(b.Len()), Request: r,
	}, nil
}

var filling = strings.Repeat("lorem ", 12)

// pages is a connector for it.
type pages struct{}

func (pages) Streams() []connector.Stream {
	return []connector.Stream{{Name: "records", Key: "id"}}
}

func (pages) List(ctx context.Context, call connector.Caller, r connector.ListRequest) (connector.Page, error) {
	at := r.Cursor
	if at == "" {
		at = "0"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://memory.invalid/records?page="+at, nil)
	if err != nil {
		return connector.Page{}, err
	}
	res, err := call.Do(ctx, req)
	if err != nil {
		return connector.Page{}, err
	}
	var body struct {
		Items []json.RawMessage
		Next  string
	}
	if err := json.Unmarshal(res.Body, &body); err != nil {
		return connector.Page{}, connector.Invalid(req, res, err)
	}
	page := connector.Page{Next: body.Next, Items: make([]connector.Item, len(body.Items))}
	for i, raw := range body.Items {
		// The key comes first in this provider's records.
		_, rest, _ := bytes.Cut(raw, []byte(`"id":"`))
		key, _, ok := bytes.Cut(rest, []byte{'"'})
		if !ok {
			return connector.Page{}, connector.Invalid(req, res, fmt.Errorf("record %d has no id", i))
		}
		page.Items[i] = connector.Item{Key: string(key), Data: raw}
	}
	return page, nil
}

func (pages) Detail(context.Context, connector.Caller, string, connector.Item) ([]connector.Record, error) {
	return nil, fmt.Errorf("there are no details")
}

func BenchmarkCollectJSONL(b *testing.B) {
	benchmarkCollect(b, func(dir string) collect.Sink { return jsonl.New(filepath.Join(dir, "out")) })
}

func BenchmarkCollectSQLite(b *testing.B) {
	benchmarkCollect(b, func(string) collect.Sink { return sqlsink.New("bench") })
}

// benchmarkCollect collects everything, again and again, into new folders.
func benchmarkCollect(b *testing.B, sink func(dir string) collect.Sink) {
	b.Helper()
	// What was resident before is not this benchmark's: writing 5 resets the peak.
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200); err != nil {
		b.Log("the peak of the resident memory cannot be reset:", err)
	}
	for b.Loop() {
		collectBench(b, sink)
	}
	b.ReportMetric(float64(b.N)*benchRecords/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(peak(os.Getpid()))/(1<<20), "MB-resident")
	b.ReportMetric(0, "ns/op")
}

func collectBench(b *testing.B, sink func(dir string) collect.Sink) {
	b.Helper()
	dir := b.TempDir()
	store, err := sqlite.Open(b.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		b.Fatal(err)
	}
	c, err := collect.New(collect.Options{
		Connection: "bench", Connector: pages{}, Store: store, Sink: sink(dir), Base: memory{},
		Pacing: headway.Config{Ceiling: 1, Initial: 1},
	})
	if err != nil {
		b.Fatal(err)
	}
	s, err := c.Run(b.Context())
	if err != nil || s.State != collect.RunDrained || s.Records != benchRecords {
		b.Fatalf("%s, %d of %d records, %v", s.State, s.Records, benchRecords, err)
	}
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

// tailMemory is the memory in which a long tail must be worked off, of any
// length.
const (
	tailMemory = 100 << 20
	// One detail of faulty fails at first.
	faulty = 250
	// gapPage is how many gaps are worked off side by side, at most.
	gapPage = 500
)

func tailKey(i int) string { return fmt.Sprintf("conversation-%05d", i) }

// owe writes the tail into a state, as earlier runs would have left it. Of ten
// gaps one has been tried before, and waits behind those who came until then.
// The order is that in which a fair collector asks: who has waited longest comes
// first.
func owe(t *testing.T, w workplace, tail int) (order []string) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), w.State())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	l, err := store.Acquire(t.Context(), collect.LeaseRequest{Connection: "chat-archive", Run: "owing", Now: time.Now(), TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-48 * time.Hour).Truncate(time.Second)
	since := map[string]time.Time{}
	for from := 0; from < tail; from += 2500 {
		c := collect.Commit{At: time.Now(), Stream: "conversations"}
		for i := from; i < from+2500; i++ {
			g := collect.Gap{
				GapKey: collect.GapKey{Stream: "messages", Key: tailKey(i)}, Parent: "conversations", Reason: reason.ServerError,
				Locator: fmt.Appendf(nil, `{"id":%q,"title":%q}`, tailKey(i), strings.Repeat("title ", 40)), FirstSeen: long.Add(time.Duration(i) * time.Second),
			}
			since[g.Key] = g.FirstSeen
			if i%10 == 3 {
				g.Attempts, g.LastSeen = int64(1+i%7), g.FirstSeen.Add(10_000*time.Second+time.Millisecond)
				since[g.Key] = g.LastSeen
			}
			order = append(order, g.Key)
			c.Opened = append(c.Opened, g)
			c.Items = append(c.Items, collect.KnownItem{Key: g.Key, Fingerprint: "seen"})
		}
		if err := store.Commit(t.Context(), l, c); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(order, func(a, b string) int { return since[a].Compare(since[b]) })
	done := collect.Lane{Stream: "conversations", Kind: collect.Catchup, Done: true, Watermark: "2024-01-01T00:00:00Z"}
	if err := store.Commit(t.Context(), l, collect.Commit{At: time.Now(), Lane: &done}); err != nil {
		t.Fatal(err)
	}
	if err := store.Finish(t.Context(), l, collect.RunEnd{At: time.Now(), State: collect.RunDeferred}); err != nil {
		t.Fatal(err)
	}
	return order
}

// deep is a provider of the tail. It remembers when each detail was first asked
// for, in attempts, and how often.
type deep struct {
	mu       sync.Mutex
	attempts int
	first    map[string]int
	asked    map[string]int
}

func (p *deep) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, detail := strings.CutPrefix(r.URL.Path, "/conversations/")
	if !detail {
		_, _ = w.Write([]byte(`{"items":[],"next_cursor":null}`))
		return
	}
	p.mu.Lock()
	p.attempts++
	if p.asked[key]++; p.asked[key] == 1 {
		p.first[key] = p.attempts
	}
	failing := p.asked[key] == 1 && len(p.first)%faulty == 0
	p.mu.Unlock()
	if failing {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintf(w, `{"messages":[{"id":"%[1]s/0","text":"%[2]s"},{"id":"%[1]s/1","text":"%[2]s"}]}`, key, "hello "+key)
}

// peak is the largest memory that a process has been resident in so far.
func peak(pid int) (bytes int64) {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0 // it has ended
	}
	defer func() { _ = f.Close() }()
	for in := bufio.NewScanner(f); in.Scan(); {
		if rest, ok := strings.CutPrefix(in.Text(), "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

func TestLongTailDrainsInOneRun(t *testing.T) {
	t.Parallel()
	p := &deep{first: map[string]int{}, asked: map[string]int{}}
	s := harness.NewServer(t, p)
	opened := atomic.Int64{}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	w := newWorkplace(t, s.URL, connection{provider: "  retry: {base: 1ms, cap: 2ms}\n"})
	tail := longtest.Size(2_500, 50_000)
	order := owe(t, w, tail)

	const concurrency = 4
	began := time.Now()
	run := w.Start(t, "--json", "--ceiling", "1ms", "--concurrency", fmt.Sprint(concurrency))
	resident := int64(0)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for running := true; running; {
		select {
		case <-run.Ended():
			running = false
		case <-look.C:
			resident = max(resident, peak(run.ID()))
		}
	}
	o := run.Wait(t)
	got := harness.Summary(t, o)
	if o.Code != harness.ExitDrained || got.GapsRecovered != int64(tail) || len(got.Owed) > 0 {
		t.Fatalf("%d of %d recovered, owed %v, %s (%s), exit code %d: %s", got.GapsRecovered, tail, got.Owed, got.Reason, got.Error, o.Code, o.Stderr)
	}
	if resident == 0 || resident > tailMemory {
		t.Errorf("it was resident in %d MB, want at most %d", resident>>20, tailMemory>>20)
	}
	if n := opened.Load(); n > 2*concurrency {
		t.Errorf("%d connections were opened for %d requests at once", n, concurrency)
	}
	records := w.records(t, "messages")
	if len(records) != 2*tail {
		t.Errorf("%d messages were written, want %d", len(records), 2*tail)
	}

	// A gap's wait is how many attempts for others went before its own. In a fair
	// order those are the gaps that have waited longer, each once, and retries.
	p.mu.Lock()
	defer p.mu.Unlock()
	retries, longest, late := p.attempts-tail, 0, 0
	for turn, key := range order {
		waited := p.first[key] - 1
		longest, late = max(longest, waited), max(late, waited-turn)
		if p.first[key] == 0 {
			t.Fatalf("%s was never asked for", key)
		}
	}
	if late > retries+gapPage {
		t.Errorf("a gap waited %d attempts longer than its place in line; %d retries and a page of %d explain less", late, retries, gapPage)
	}
	t.Logf("%d gaps and %d retries in %v, %d attempts/s, resident in %d MB at most; the longest wait of a gap was %d attempts of others, and none was overtaken by more than %d",
		tail, retries, time.Since(began).Round(time.Millisecond), int(float64(p.attempts)/time.Since(began).Seconds()), resident>>20, longest, late)
}

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
