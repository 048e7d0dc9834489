package bulk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/reason"
)

// counter is a source of rows {"id":N}, with some that are malformed.
type counter struct {
	rows, next int64
	malformed  map[int64]bool
	ends       error // instead of io.EOF
	stream     bool
	blocks     chan struct{} // the end is not before it is closed
}

func (c *counter) Next() (bulk.Row, error) {
	n := c.next
	if n == c.rows {
		if c.blocks != nil {
			<-c.blocks
		}
		if c.ends != nil {
			return bulk.Row{}, c.ends
		}
		return bulk.Row{}, io.EOF
	}
	c.next++
	at := bulk.Position{Line: n + 1, Offset: n * 10}
	if c.malformed[n] {
		return bulk.Row{Position: at}, &bulk.MalformedError{Position: at, Text: []byte("{oops"), Err: errors.New("no JSON")}
	}
	return bulk.Row{Position: at, Data: fmt.Appendf(nil, `{"id":%d}`, n)}, nil
}

func (c *counter) Identity() journal.Input {
	if c.stream {
		return journal.Input{Name: "-", Format: "counter"}
	}
	return journal.Input{Name: "counter", Format: "counter", Size: c.rows, Hash: "counter"}
}

// server is a target in memory.
type server struct {
	resend     dispatch.Resend
	identities int
	maxRows    int
	took       time.Duration
	// answer decides on a batch before it is written; nil is to write it.
	answer func(n int64, identity int, b bulk.Batch) *bulk.Outcome

	mu       sync.Mutex
	batches  int64
	written  map[int64]int // how often, by id
	keys     map[string]bool
	inFlight []int
	peak     []int
}

func (s *server) Traits() bulk.Traits {
	t := bulk.Traits{Name: "memory", Resend: s.resend, MaxRows: s.maxRows}
	for i := range max(s.identities, 1) {
		t.Identities = append(t.Identities, fmt.Sprint("user", i))
	}
	return t
}

func (s *server) Send(ctx context.Context, identity int, b bulk.Batch) bulk.Outcome {
	n := s.enter(identity)
	defer s.leave(identity)
	select {
	case <-time.After(s.took):
	case <-ctx.Done():
		return bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.Lost, Reason: reason.Canceled, Doubt: true}, Err: ctx.Err()}
	}
	if s.answer != nil {
		if o := s.answer(n, identity, b); o != nil {
			return *o
		}
	}
	s.write(b)
	return bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.OK}}
}

func (s *server) enter(identity int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight == nil {
		s.inFlight, s.peak = make([]int, max(s.identities, 1)), make([]int, max(s.identities, 1))
	}
	s.inFlight[identity]++
	s.peak[identity] = max(s.peak[identity], s.inFlight[identity])
	s.batches++
	return s.batches
}

func (s *server) leave(identity int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight[identity]--
}

// write writes a batch, once for each key where the target knows keys.
func (s *server) write(b bulk.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == nil {
		s.written, s.keys = map[int64]int{}, map[string]bool{}
	}
	if s.resend == dispatch.ResendWhole {
		if s.keys[b.Key] {
			return
		}
		s.keys[b.Key] = true
	}
	for _, r := range b.Rows {
		s.written[id(r)]++
	}
}

func id(r bulk.Row) int64 {
	var v struct{ ID int64 }
	if err := json.Unmarshal(r.Data, &v); err != nil {
		panic(err)
	}
	return v.ID
}

// run runs a load and checks that its figures add up.
func run(t testing.TB, ctx context.Context, src bulk.Source, target bulk.Target, o bulk.Options) (bulk.Summary, error) {
	t.Helper()
	sum, err := bulk.Run(ctx, src, target, o)
	if sum.Acknowledged+sum.Rejected+sum.Uncertain+sum.Owed != sum.Rows {
		t.Errorf("%+v does not add up", sum.Totals)
	}
	if sum.State == bulk.Drained && (sum.Owed != 0 || !sum.InputRead || err != nil) {
		t.Errorf("drained with %+v, %v", sum.Totals, err)
	}
	if got := rejects(t, sum.RejectsFile); int64(len(got)) != sum.Rejected {
		t.Errorf("%d rows in the reject file, %d counted", len(got), sum.Rejected)
	}
	if got := rejects(t, sum.UncertainFile); int64(len(got)) != sum.Uncertain {
		t.Errorf("%d rows in the uncertain file, %d counted", len(got), sum.Uncertain)
	}
	return sum, err
}

// rejects reads a side file.
func rejects(t testing.TB, path string) (all []bulk.Reject) {
	t.Helper()
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := true
	for line := range strings.Lines(string(b)) {
		if first {
			if line != bulk.RejectsPreamble && line != bulk.UncertainPreamble {
				t.Errorf("the first line is %q", line)
			}
			first = false
			continue
		}
		var r bulk.Reject
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// eachOnce checks that the server has every row but some exactly once.
func (s *server) eachOnce(t testing.TB, rows int64, but ...int64) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := map[int64]bool{}
	for _, n := range but {
		missing[n] = true
	}
	for n := range rows {
		if want := map[bool]int{false: 1, true: 0}[missing[n]]; s.written[n] != want {
			t.Errorf("row %d was written %d times, want %d", n, s.written[n], want)
		}
	}
	if len(s.written) > int(rows) {
		t.Errorf("%d rows written of %d", len(s.written), rows)
	}
}
