//go:build linux

package hold_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/store/sqlite"
)

// BenchmarkBesideLoop collects 100,000 items of a local server that has no
// limits, by a connection file into JSON lines with the state on disk, and
// beside it, in turn, runs a loop that only asks, decodes and writes. Both ask
// for one page at a time and have it on disk (fsync) before the next; with
// details both ask for eight at once. The pacing's interval is a nanosecond,
// so that it bounds neither: a connection file's smallest, 1 ms, would bound
// pages of 100 to 100,000 items a second.
//
// The CPU time and the memory are the process's, the server's part included.
func BenchmarkBesideLoop(b *testing.B) {
	for _, c := range []struct {
		size    int
		details bool
	}{{100, false}, {1000, false}, {1000, true}} {
		name := fmt.Sprintf("page=%d", c.size)
		if c.details {
			name += ",details"
		}
		b.Run(name, func(b *testing.B) { besideLoop(b, c.size, c.details) })
	}
}

const (
	loopItems   = 100_000
	loopWorkers = 8
)

func besideLoop(b *testing.B, size int, details bool) {
	records := loopItems
	if details {
		records *= 2
	}
	s := httptest.NewServer(newStock(size))
	defer s.Close()
	memory := int64(0)
	var loop, own, ratio, loopCPU, ownCPU []float64
	for b.Loop() {
		theirs, cpu := timed(b, func(dir string) error { return loopOver(s.URL, dir, details) }, records)
		loop, loopCPU = append(loop, theirs), append(loopCPU, cpu)
		ours, cpu := timed(b, func(dir string) error {
			debug.FreeOSMemory()
			forgetPeak(b)
			err := collectStock(b, s.URL, dir, details, records)
			memory = max(memory, peak(os.Getpid()))
			return err
		}, records)
		own, ownCPU = append(own, ours), append(ownCPU, cpu)
		ratio = append(ratio, ours/theirs)
	}
	b.ReportMetric(middle(loop), "loop-records/s")
	b.ReportMetric(middle(own), "records/s")
	b.ReportMetric(middle(ratio), "of-loop")
	b.ReportMetric(middle(loopCPU), "loop-cpu-s")
	b.ReportMetric(middle(ownCPU), "cpu-s")
	b.ReportMetric(float64(memory)/(1<<20), "MB-resident")
	b.ReportMetric(0, "ns/op")
}

// forgetPeak sets the process's largest resident memory back to the present.
func forgetPeak(b *testing.B) {
	b.Helper()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200); err != nil {
		b.Log("the peak of the resident memory cannot be reset:", err)
	}
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// timed runs f in a new folder and checks the number of lines that it left.
func timed(b *testing.B, f func(dir string) error, records int) (perSecond, cpu float64) {
	b.Helper()
	dir := b.TempDir()
	began, before := time.Now(), processTime()
	if err := f(dir); err != nil {
		b.Fatal(err)
	}
	perSecond, cpu = float64(records)/time.Since(began).Seconds(), (processTime() - before).Seconds()
	lines := 0
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		lines += bytes.Count(text, []byte{'\n'})
	}
	if lines != records {
		b.Fatalf("%d lines, want %d", lines, records)
	}
	return perSecond, cpu
}

func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// stock is a provider of 100,000 items of about 200 bytes. It answers with a
// page made beforehand, in which only the numbers differ.
type stock struct {
	size   int
	page   []byte
	places []int // of the numbers in the page
	bodies sync.Pool
}

func newStock(size int) *stock {
	s := &stock{size: size}
	s.page = append(s.page, `{"items":[`...)
	for i := range size {
		if i > 0 {
			s.page = append(s.page, ',')
		}
		s.page = append(s.page, `{"id":"record-`...)
		s.places = append(s.places, len(s.page))
		s.page = fmt.Appendf(s.page, `00000000","title":"a title of some length","updated_at":"2024-01-01T00:00:00Z","state":"open","amount":%d,"text":%q}`, i, filling)
	}
	s.page = append(s.page, `],"next":`...)
	s.bodies.New = func() any { return slices.Grow(slices.Clone(s.page), 32) }
	return s
}

// ServeHTTP answers /items?cursor=N and /items/KEY.
func (s *stock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if key, detail := strings.CutPrefix(r.URL.Path, "/items/"); detail {
		_, _ = fmt.Fprintf(w, `{"messages":[{"id":"%s-0","author":"somebody","text":%q}]}`, key, filling)
		return
	}
	page, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	body := s.bodies.Get().([]byte)[:len(s.page)]
	for i, at := range s.places {
		for n, d := page*s.size+i, 7; d >= 0; n, d = n/10, d-1 {
			body[at+d] = byte('0' + n%10)
		}
	}
	if next := page + 1; next*s.size < loopItems {
		body = fmt.Appendf(body, `"%d"}`, next)
	} else {
		body = append(body, "null}"...)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
	s.bodies.Put(body) //nolint:staticcheck // a slice's header is small beside a page
}

// collectStock is the collector's part.
func collectStock(b *testing.B, url, dir string, details bool, records int) (err error) {
	file := "connection: bench\nprovider: {base_url: " + url + "}\nstreams:\n  - name: items\n    list: {path: /items}\n" +
		"    records: .items\n    key: .id\n    paginate: {cursor: .next, param: cursor}\n"
	if details {
		file += "    detail: {stream: messages, path: '/items/{key}', records: .messages, key: .id}\n"
	}
	cfg, err := rest.Parse("bench.yaml", []byte(file), nil)
	if err != nil {
		return err
	}
	items, err := rest.New(cfg)
	if err != nil {
		return err
	}
	store, err := sqlite.Open(b.Context(), filepath.Join(dir, "state", "headway.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = loopWorkers
	defer base.CloseIdleConnections()
	c, err := collect.New(collect.Options{
		Connection: "bench", Connector: items, Store: store, Sink: jsonl.New(dir), Base: base,
		Pacing: headway.Config{Law: "cycle", Ceiling: 1, Initial: 1}, Concurrency: loopWorkers,
	})
	if err != nil {
		return err
	}
	sum, err := c.Run(b.Context())
	if err == nil && (sum.State != collect.RunDrained || sum.Records != int64(records)) {
		err = fmt.Errorf("%s, %d of %d records", sum.State, sum.Records, records)
	}
	return err
}

// loopOver is what somebody would write who does not care for limits, and for
// the end of a run only as far as what is on disk.
func loopOver(url, dir string, details bool) (err error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = loopWorkers
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: base}
	items, err := newLines(filepath.Join(dir, "items.jsonl"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, items.f.Close()) }()
	messages, err := newLines(filepath.Join(dir, "messages.jsonl"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, messages.f.Close()) }()
	for cursor, more := "", true; more; {
		var page struct {
			Items []json.RawMessage
			Next  string
		}
		if err := get(client, url+"/items?cursor="+cursor, &page); err != nil {
			return err
		}
		if err := items.write(page.Items); err != nil {
			return err
		}
		if details {
			if err := loopDetails(client, url, page.Items, messages); err != nil {
				return err
			}
		}
		cursor, more = page.Next, page.Next != ""
	}
	return nil
}

// loopDetails asks for the details of a page, eight at once.
func loopDetails(client *http.Client, url string, items []json.RawMessage, to *lines) error {
	var wg sync.WaitGroup
	in, failed := make(chan json.RawMessage), make([]error, loopWorkers)
	var mu sync.Mutex
	var found []json.RawMessage
	for i := range loopWorkers {
		wg.Go(func() {
			for raw := range in {
				var item struct{ ID string }
				var detail struct{ Messages []json.RawMessage }
				if err := errors.Join(json.Unmarshal(raw, &item), get(client, url+"/items/"+item.ID, &detail)); err != nil {
					failed[i] = err
					continue
				}
				mu.Lock()
				found = append(found, detail.Messages...)
				mu.Unlock()
			}
		})
	}
	for _, raw := range items {
		in <- raw
	}
	close(in)
	wg.Wait()
	return errors.Join(errors.Join(failed...), to.write(found))
}

func get(client *http.Client, url string, into any) error {
	res, err := client.Get(url)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(res.Body)
	return errors.Join(err, res.Body.Close(), json.Unmarshal(body, into))
}

type lines struct {
	f *os.File
	w *bufio.Writer
}

func newLines(path string) (*lines, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &lines{f, bufio.NewWriterSize(f, 64<<10)}, nil
}

func (l *lines) write(records []json.RawMessage) error {
	for _, r := range records {
		_, _ = l.w.Write(r)
		_ = l.w.WriteByte('\n')
	}
	return errors.Join(l.w.Flush(), l.f.Sync())
}
