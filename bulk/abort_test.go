package bulk_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/reason"
)

// TestAbortCutsOffWhatIsUnderWay ends a load whose server takes an hour for each
// batch.
func TestAbortCutsOffWhatIsUnderWay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Hour, resend: dispatch.ResendAny}
		abort := make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(abort) })
		began := time.Now()
		sum, err := run(t, t.Context(), &counter{rows: 500}, s, bulk.Options{Dir: dir, Drain: 2 * time.Hour, Abort: abort})
		if err != nil || sum.State != bulk.Deferred || sum.Reason != reason.Interrupted || sum.Owed != 500 {
			t.Errorf("%+v, %v", sum, err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v to be cut off after a minute", took)
		}
	})
}

// TestRejectsAreThoseThatTheJournalCounts reads the side files of a load, and of
// folders without one.
func TestRejectsAreThoseThatTheJournalCounts(t *testing.T) {
	dir := t.TempDir()
	src := &counter{rows: 300, malformed: map[int64]bool{7: true, 200: true}}
	if _, err := run(t, t.Context(), src, &server{}, bulk.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	var numbers []int64
	for r, err := range bulk.Rejects(dir) {
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, r.Number)
	}
	if !slices.Equal(numbers, []int64{7, 200}) {
		t.Errorf("rows %v are rejected", numbers)
	}
	for r, err := range bulk.Uncertain(dir) {
		t.Errorf("%+v is uncertain, %v", r, err)
	}
	for _, err := range bulk.Rejects(t.TempDir()) {
		if !errors.Is(err, journal.ErrNone) {
			t.Errorf("of an empty folder: %v", err)
		}
	}
}

// TestStatusTellsWhetherALoadRuns looks at a folder while a load has it, and
// after.
func TestStatusTellsWhetherALoadRuns(t *testing.T) {
	dir := t.TempDir()
	looked := false
	_, err := run(t, t.Context(), &counter{rows: 300}, &server{}, bulk.Options{Dir: dir, OnProgress: func(bulk.Progress) {
		if s, err := bulk.ReadStatus(dir); !looked && (err != nil || s.Running == nil || !*s.Running) {
			t.Errorf("while it runs: %+v, %v", s, err)
		}
		looked = true
	}})
	if err != nil || !looked {
		t.Fatalf("looked %v, %v", looked, err)
	}
	if s, err := bulk.ReadStatus(dir); err != nil || s.Running == nil || *s.Running {
		t.Errorf("after it: %+v, %v", s, err)
	}
}

// TestAnInterruptThatFindsNothingLeft cuts off the last batch of a load that may
// not send it again: no row is owed, so there is nothing to go on with.
func TestAnInterruptThatFindsNothingLeft(t *testing.T) {
	for rows, state := range map[int64]bulk.State{200: bulk.Drained, 50_000: bulk.Deferred} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			s := &server{took: time.Hour, resend: dispatch.ResendNothing}
			abort := make(chan struct{})
			time.AfterFunc(time.Minute, func() { close(abort) })
			sum, err := run(t, t.Context(), &counter{rows: rows}, s, bulk.Options{Dir: dir, Abort: abort})
			if err != nil || sum.State != state || sum.Uncertain == 0 || (sum.Owed == 0) != (state == bulk.Drained) {
				t.Errorf("%d rows: %+v, %v", rows, sum, err)
			}
		})
	}
}
