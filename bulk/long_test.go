package bulk_test

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
)

// shift is a source that has rows until the evening, and a lunch break.
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

// TestALongLoadForgetsAndStartsAfresh is throttled once and rises again: in steps
// of four while the level that was known to be good is believed, in steps of two
// when it is five minutes old. When no row came for more than five minutes it
// starts afresh, with its totals.
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
