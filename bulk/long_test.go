package bulk_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/reason"
)

// shift is a source that gives rows until an instant, with a break in between.
type shift struct {
	counter
	began              time.Time
	lunch, back, close time.Duration
}

func (s *shift) Next() (bulk.Row, error) {
	switch at := time.Since(s.began); {
	case at >= s.close:
		return bulk.Row{}, io.EOF
	case at >= s.lunch && at < s.back:
		time.Sleep(s.back - at)
	}
	return s.counter.Next()
}

func (s *shift) Identity() journal.Input { return journal.Input{Name: "shift", Hash: "shift"} }

// TestALongLoadForgetsAndStartsAfresh: after its one throttle the level rises by four
// while the last good level is less than five minutes old, then by two. After a break
// of more than five minutes the law starts from its initial level; totals stay.
func TestALongLoadForgetsAndStartsAfresh(t *testing.T) {
	for _, tt := range []struct {
		lunch time.Duration
		want  []int
	}{
		{6 * time.Minute, []int{26, 13, 17, 21, 23, 25, 26, 28}},
		{4 * time.Minute, []int{26, 13, 17, 21, 23, 25, 27, 29, 31}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{took: time.Second}
			s.answer = func(n int64, _ int, _ bulk.Batch) *bulk.Outcome {
				if n == 200 {
					return throttle(time.Second)
				}
				return nil
			}
			src := &shift{counter: counter{rows: 1 << 40}, began: time.Now(), lunch: 9 * time.Minute, back: 9*time.Minute + tt.lunch, close: 18 * time.Minute}
			var levels []int
			sum, err := run(t, t.Context(), src, s, bulk.Options{
				Dir: t.TempDir(), OnProgress: func(p bulk.Progress) { levels = append(levels, p.Identities[0].Law.Current) },
				Params: dispatch.Params{
					FirstRows: 2, TargetTime: -1, WindowRows: 200,
					Law: control.ParallelismParams{Max: 52, MinIncreaseInterval: 2 * time.Minute},
				},
			})
			if err != nil || sum.State != bulk.Drained || sum.Acknowledged != sum.Rows {
				t.Fatalf("%+v, %v", sum, err)
			}
			if levels = slices.Compact(levels); fmt.Sprint(levels) != fmt.Sprint(tt.want) {
				t.Errorf("with a break of %v the levels are %v, want %v", tt.lunch, levels, tt.want)
			}
			if law := sum.Identities[0].Law; law.TotalThrottles != 1 || law.Max != 52 {
				t.Errorf("at the end %+v, want one throttle", law)
			}
			s.eachOnce(t, sum.Rows)
		})
	}
}

// sink takes everything and keeps nothing.
type sink struct{ rows atomic.Int64 }

func (s *sink) Traits() bulk.Traits {
	return bulk.Traits{Name: "sink", Identities: []string{"one"}, Resend: dispatch.ResendAny}
}

func (s *sink) Send(_ context.Context, _ int, b bulk.Batch) bulk.Outcome {
	s.rows.Add(int64(len(b.Rows)))
	return bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.OK}}
}

// TestMemoryDoesNotGrowWithTheInput reads many more rows than the window holds.
func TestMemoryDoesNotGrowWithTheInput(t *testing.T) {
	const rows = 1_000_000
	s, peak := &sink{}, uint64(0)
	sum, err := run(t, t.Context(), &counter{rows: rows}, s, bulk.Options{Dir: t.TempDir(), ProgressEvery: 1e7, OnProgress: func(bulk.Progress) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse+m.StackInuse)
	}})
	if err != nil || sum.Acknowledged != rows || s.rows.Load() != rows {
		t.Fatalf("%+v, %v", sum, err)
	}
	if peak > 100<<20 {
		t.Errorf("%d MiB of memory for %d rows", peak>>20, rows)
	}
	t.Logf("%d MiB at most, %.0f rows/s", peak>>20, sum.RowsPerSecond)
}
