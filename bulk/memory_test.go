package bulk_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

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
