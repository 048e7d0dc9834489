package collect_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/memory"
	"github.com/headway-go/headway/sink/jsonl"
)

// doc is one item of the provider's list and its detail records.
type doc struct {
	ID       string   `json:"id"`
	Updated  string   `json:"updated"`
	Messages []string `json:"-"`
}

// provider is a small API: pages of docs, and a detail for each. Each response can be
// overridden.
type provider struct {
	mu       sync.Mutex
	docs     []doc
	pageSize int
	newest   bool // the newest doc comes first in the list
	after    bool // since leaves out the docs of that very instant
	overrule func(n int, r *http.Request, w http.ResponseWriter) bool
	requests []string // path and query, in order
	served   map[string]int
	at       map[string]int // where a doc stands in docs, by its ID
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r.URL.RequestURI())
	if p.overrule != nil && p.overrule(len(p.requests), r, w) {
		return
	}
	if id, ok := strings.CutPrefix(r.URL.Path, "/docs/"); ok {
		p.detail(w, id)
		return
	}
	var list []doc
	since := r.URL.Query().Get("since")
	for _, d := range p.docs {
		if d.Updated > since || d.Updated == since && !p.after {
			list = append(list, d)
		}
	}
	slices.SortStableFunc(list, func(a, b doc) int { return strings.Compare(a.Updated, b.Updated) })
	if p.newest {
		slices.Reverse(list)
	}
	at := 0
	if c := r.URL.Query().Get("cursor"); c != "" {
		if _, err := fmt.Sscanf(c, "after-%d", &at); err != nil {
			http.Error(w, "no such cursor", http.StatusBadRequest)
			return
		}
	}
	end := min(at+p.pageSize, len(list))
	next := ""
	if end < len(list) {
		next = fmt.Sprintf("after-%d", end)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"items": list[min(at, end):end], "next": next})
}

func (p *provider) detail(w http.ResponseWriter, id string) {
	if len(p.at) != len(p.docs) { // a test added some
		p.at = map[string]int{}
		for i, d := range p.docs {
			p.at[d.ID] = i
		}
	}
	i, ok := p.at[id]
	if !ok {
		http.NotFound(w, nil)
		return
	}
	p.served[id]++
	_ = json.NewEncoder(w).Encode(p.docs[i].Messages)
}

// client is a connector for provider, written in Go.
type client struct{ base string }

func (c client) Streams() []connector.Stream {
	return []connector.Stream{{Name: "docs", DetailStream: "messages", Incremental: true}}
}

func (c client) get(ctx context.Context, call connector.Caller, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	res, err := call.Do(ctx, req)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(res.Body, into); err != nil {
		return connector.Invalid(req, res, err)
	}
	return nil
}

func (c client) List(ctx context.Context, call connector.Caller, r connector.ListRequest) (connector.Page, error) {
	var body struct {
		Items []doc  `json:"items"`
		Next  string `json:"next"`
	}
	q := url.Values{"cursor": {r.Cursor}, "since": {r.Since}}
	if err := c.get(ctx, call, "/docs?"+q.Encode(), &body); err != nil {
		return connector.Page{}, err
	}
	page := connector.Page{Next: body.Next, ServerTime: time.Now()}
	for _, d := range body.Items {
		data, err := json.Marshal(d)
		if err != nil {
			return connector.Page{}, err
		}
		page.Items = append(page.Items, connector.Item{Key: d.ID, Data: data, Watermark: d.Updated})
	}
	return page, nil
}

func (c client) Detail(ctx context.Context, call connector.Caller, _ string, it connector.Item) ([]connector.Record, error) {
	var messages []string
	if err := c.get(ctx, call, "/docs/"+url.PathEscape(it.Key), &messages); err != nil {
		return nil, err
	}
	var records []connector.Record
	for i, m := range messages {
		data, err := json.Marshal(map[string]string{"id": fmt.Sprintf("%s/%d", it.Key, i), "text": m})
		if err != nil {
			return nil, err
		}
		records = append(records, connector.Record{Key: fmt.Sprint(i), Data: data})
	}
	return records, nil
}

// bench is a provider with a connection's state, sink and options.
type bench struct {
	*provider
	dir   string
	store collect.Store
	o     collect.Options
}

// newBench serves n docs of two messages each, three a page.
func newBench(t *testing.T, n int) *bench {
	t.Helper()
	p := newProvider(n)
	b := benchOf(t, p, "http://provider.test", within{p})
	b.o.Retry.Base, b.o.Retry.Cap = time.Microsecond, time.Microsecond
	return b
}

func newProvider(n int) *provider {
	p := &provider{pageSize: 3, served: map[string]int{}}
	for i := range n {
		p.docs = append(p.docs, doc{
			ID: fmt.Sprintf("d%02d", i), Updated: fmt.Sprintf("2024-01-01T00:00:%02dZ", i),
			Messages: []string{fmt.Sprintf("hello %d", i), fmt.Sprintf("goodbye %d", i)},
		})
	}
	return p
}

// benchOf is a bench for a provider that is reached through base.
func benchOf(t *testing.T, p *provider, url string, base http.RoundTripper) *bench {
	t.Helper()
	b := &bench{provider: p, dir: t.TempDir(), store: memory.New()}
	b.o = collect.Options{
		Connection: "bench", Connector: client{base: url}, Store: b.store,
		Pacing: headway.Config{Ceiling: 1, Initial: 1},
		Base:   base, Concurrency: 1, // one after the other, whatever the latency
	}
	return b
}

// run collects once.
func (b *bench) run(t *testing.T) (collect.Summary, error) {
	t.Helper()
	b.o.Sink = jsonl.New(filepath.Join(b.dir, "out"))
	c, err := collect.New(b.o)
	if err != nil {
		t.Fatal(err)
	}
	return c.Run(t.Context())
}

// drained collects once and must find nothing left.
func (b *bench) drained(t *testing.T) collect.Summary {
	t.Helper()
	s, err := b.run(t)
	if err != nil || s.State != collect.RunDrained {
		t.Fatalf("got %s (%s), %v; want drained", s.State, s.Reason, err)
	}
	return s
}

// lines are the lines of a stream's file, sorted.
func (b *bench) lines(t *testing.T, stream string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join(b.dir, "out", stream+".jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var lines []string
	for in := bufio.NewScanner(f); in.Scan(); {
		lines = append(lines, in.Text())
	}
	slices.Sort(lines)
	return lines
}

// complete checks that each message of each doc is there exactly once.
func (b *bench) complete(t *testing.T) {
	t.Helper()
	var want []string
	for _, d := range b.docs {
		for i, m := range d.Messages {
			data, _ := json.Marshal(map[string]string{"id": fmt.Sprintf("%s/%d", d.ID, i), "text": m})
			want = append(want, string(data))
		}
	}
	slices.Sort(want)
	if got := b.lines(t, "messages"); !slices.Equal(got, want) {
		t.Fatalf("%d messages on disk, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
}

func (b *bench) gaps(t *testing.T, status collect.GapStatus) []collect.Gap {
	t.Helper()
	gaps, err := b.store.Gaps(t.Context(), collect.GapFilter{Connection: "bench", Status: status})
	if err != nil {
		t.Fatal(err)
	}
	return gaps
}

// fail answers with a status.
func fail(w http.ResponseWriter, status int) bool {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "no")
	return true
}

func newSink(b *bench) collect.Sink { return jsonl.New(filepath.Join(b.dir, "out")) }

// aside lists the files that a fresh start set aside.
func aside(t *testing.T, b *bench) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "out", "*.bak"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// lanes are the positions of the one stream.
func (b *bench) lanes(t *testing.T) (catchup, steady collect.Lane) {
	t.Helper()
	state, err := b.store.Load(t.Context(), "bench")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range state.Lanes {
		if l.Kind == collect.Catchup {
			catchup = l
		} else {
			steady = l
		}
	}
	return catchup, steady
}

// hold lets the first request wait until release is closed; begun is closed once it
// waits.
func (b *bench) hold(t *testing.T) (begun <-chan struct{}, release chan<- struct{}) {
	asked, answer := make(chan struct{}), make(chan struct{})
	b.overrule = func(n int, _ *http.Request, _ http.ResponseWriter) bool {
		if n == 1 {
			close(asked)
			select {
			case <-answer:
			case <-t.Context().Done(): // the test has failed
			}
		}
		return false
	}
	return asked, answer
}
