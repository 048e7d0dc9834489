//go:build linux

package hold_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-go/headway"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
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
