package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/ledger"
	"github.com/headway-go/headway/reason"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	leaktest.Main(m)
}

func refusal(class reason.Class, why reason.Reason, change func(*bulk.Outcome)) *bulk.Outcome {
	o := bulk.Outcome{Outcome: dispatch.Outcome{Class: class, Reason: why}, Err: fmt.Errorf("POST /rows: %s", why)}
	if change != nil {
		change(&o)
	}
	return &o
}

func throttle(wait time.Duration) *bulk.Outcome {
	return refusal(reason.Throttled, reason.RateLimited.Reason(), func(o *bulk.Outcome) {
		o.RetryAfter, o.HasRetryAfter = wait, true
	})
}

func TestEveryRowIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Second}
		sum, err := run(t, t.Context(), &counter{rows: 12_345}, s, bulk.Options{Dir: t.TempDir()})
		if err != nil || sum.State != bulk.Drained || sum.Reason != reason.Drained || sum.Acknowledged != 12_345 {
			t.Fatalf("%+v, %v", sum, err)
		}
		s.eachOnce(t, 12_345)
		if s.peak[0] < 20 || s.peak[0] > control.DefaultMaxParallelism {
			t.Errorf("%d batches at once, want about the 26 it starts with", s.peak[0])
		}
		if len(sum.Identities) != 1 || sum.Identities[0].Name != "user0" || sum.RowsPerSecond <= 0 {
			t.Errorf("%+v", sum.Progress)
		}
	})
}

func TestAFinishedLoadIsNotSentAgain(t *testing.T) {
	dir := t.TempDir()
	s := &server{}
	for range 2 {
		if sum, err := run(t, t.Context(), &counter{rows: 100}, s, bulk.Options{Dir: dir}); err != nil || sum.State != bulk.Drained {
			t.Fatalf("%+v, %v", sum, err)
		}
	}
	s.eachOnce(t, 100)
}

func TestAnEmptyInput(t *testing.T) {
	sum, err := run(t, t.Context(), &counter{}, &server{}, bulk.Options{Dir: t.TempDir()})
	if err != nil || sum.State != bulk.Drained || sum.Rows != 0 {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestRejectedRowsAreKeptWithTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Second}
		s.answer = func(_ int64, _ int, b bulk.Batch) *bulk.Outcome {
			o := &bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.OK}}
			for _, r := range b.Rows {
				v, p := dispatch.Done, bulk.Problem{}
				if id(r)%100 == 7 {
					v, p = dispatch.Refused, bulk.Problem{Status: 400, Code: "0x80040237", Message: "duplicate <key>"}
				}
				o.Rows, o.Problems = append(o.Rows, v), append(o.Problems, p)
			}
			return o
		}
		sum, err := run(t, t.Context(), &counter{rows: 1000, malformed: map[int64]bool{701: true}}, s, bulk.Options{Dir: t.TempDir()})
		if err != nil || sum.State != bulk.Drained || sum.Rejected != 11 || sum.Acknowledged != 989 {
			t.Fatalf("%+v, %v", sum, err)
		}
		for _, r := range rejects(t, sum.RejectsFile) {
			switch {
			case r.Number == 701:
				if r.Text != "{oops" || r.Line != 702 || r.Error.Message != "no JSON" {
					t.Errorf("the malformed row is %+v", r)
				}
			case string(r.Row) != fmt.Sprintf(`{"id":%d}`, r.Number) || r.Line != r.Number+1 || r.Error.Message != "duplicate <key>" || r.Error.Status != 400:
				t.Errorf("a rejected row is %+v", r)
			}
		}
	})
}

func TestAMalformedRowStopsOnlyWhereAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sum, err := run(t, t.Context(), &counter{rows: 1000, malformed: map[int64]bool{701: true}}, &server{took: time.Second},
			bulk.Options{Dir: t.TempDir(), StopOnMalformed: true})
		if err == nil || !strings.Contains(err.Error(), "line 702: malformed row: no JSON") || sum.State != bulk.Failed || sum.Rejected != 0 {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}

func TestACredentialThatIsRefusedMidway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := &server{took: time.Second, answer: func(n int64, _ int, _ bulk.Batch) *bulk.Outcome {
			if n > 40 {
				return refusal(reason.Rejected, reason.Unauthorized, nil)
			}
			return nil
		}}
		sum, err := run(t, t.Context(), &counter{rows: 20_000}, s, bulk.Options{Dir: dir})
		if err != nil || sum.State != bulk.Deferred || sum.Reason != reason.Unauthorized || sum.Rejected != 0 ||
			sum.Acknowledged != int64(len(s.written)) || sum.Owed == 0 || sum.Cause != "POST /rows: unauthorized" {
			t.Fatalf("%+v, %v", sum, err)
		}
		s.answer = nil
		if sum, err = run(t, t.Context(), &counter{rows: 20_000}, s, bulk.Options{Dir: dir, Start: bulk.ResumeOnly}); err != nil || sum.State != bulk.Drained {
			t.Fatalf("resumed: %+v, %v", sum, err)
		}
		s.eachOnce(t, 20_000)
	})
}

func TestOtherIdentitiesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Second, identities: 3, answer: func(n int64, identity int, _ bulk.Batch) *bulk.Outcome {
			if identity == 1 && n > 30 {
				return refusal(reason.Rejected, reason.Unauthorized, nil)
			}
			return nil
		}}
		sum, err := run(t, t.Context(), &counter{rows: 30_000}, s, bulk.Options{Dir: t.TempDir()})
		if err != nil || sum.State != bulk.Drained || sum.Identities[1].Stopped != reason.Unauthorized || sum.Identities[2].Stopped != reason.None {
			t.Fatalf("%+v, %v", sum, err)
		}
		s.eachOnce(t, 30_000)
	})
}

func TestATargetThatCannotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(int64, int, bulk.Batch) *bulk.Outcome {
			return refusal(reason.Rejected, reason.NotFound, func(o *bulk.Outcome) { o.Fatal = true })
		}}
		sum, err := run(t, t.Context(), &counter{rows: 1000}, s, bulk.Options{Dir: t.TempDir()})
		if err != nil || sum.State != bulk.Deferred || sum.Reason != reason.NotFound || sum.Rejected != 0 || sum.Acknowledged != 0 {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}

func TestAHintIsObeyedFromTheFirstResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Second}
		hint, over := 4, 0
		s.answer = func(n int64, _ int, b bulk.Batch) *bulk.Outcome {
			s.mu.Lock()
			defer s.mu.Unlock()
			if n > 100 {
				hint = 1
			}
			if n > 26+1 && s.inFlight[0] > 4 || n > 100+4 && s.inFlight[0] > 1 {
				over++
			}
			for _, r := range b.Rows {
				if s.written == nil {
					s.written = map[int64]int{}
				}
				s.written[id(r)]++
			}
			return &bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.OK, Parallelism: hint}}
		}
		sum, err := run(t, t.Context(), &counter{rows: 15_000}, s, bulk.Options{Dir: t.TempDir(), Params: dispatch.Params{TargetTime: -1}})
		if err != nil || sum.State != bulk.Drained || sum.Identities[0].Law.Max != 1 {
			t.Fatalf("%+v, %v", sum, err)
		}
		if over > 26 {
			t.Errorf("%d batches were sent beyond the hint", over)
		}
		s.eachOnce(t, 15_000)
	})
}

func TestNothingIsSentBeforeTheRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shut time.Time
		s := &server{took: time.Second}
		s.answer = func(n int64, _ int, _ bulk.Batch) *bulk.Outcome {
			s.mu.Lock()
			defer s.mu.Unlock()
			if n == 60 {
				shut = time.Now().Add(40 * time.Second)
				return throttle(40 * time.Second)
			}
			if sent := time.Now().Add(-s.took); sent.Before(shut) && sent.After(shut.Add(-39*time.Second)) {
				t.Errorf("a batch was sent %v before the gate opens", shut.Sub(sent))
			}
			return nil
		}
		sum, err := run(t, t.Context(), &counter{rows: 20_000}, s, bulk.Options{Dir: t.TempDir()})
		if err != nil || sum.State != bulk.Drained || sum.Counts.Throttled != 1 || sum.Elapsed < 40*time.Second {
			t.Fatalf("%+v, %v", sum, err)
		}
		s.eachOnce(t, 20_000)
	})
}

func TestALongRetryAfterEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(int64, int, bulk.Batch) *bulk.Outcome { return throttle(10 * 365 * 24 * time.Hour) }}
		sum, err := run(t, t.Context(), &counter{rows: 100}, s, bulk.Options{Dir: t.TempDir()})
		if err != nil || sum.State != bulk.Deferred || sum.Reason != reason.Cooldown || sum.RetryAt.Before(time.Now().AddDate(9, 0, 0)) {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}

func TestTooLargeIsSplitAndNothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(_ int64, _ int, b bulk.Batch) *bulk.Outcome {
			if len(b.Rows) > 13 {
				return refusal(reason.Rejected, reason.ClientError, func(o *bulk.Outcome) { o.TooLarge = true })
			}
			return nil
		}}
		sum, err := run(t, t.Context(), &counter{rows: 3000}, s, bulk.Options{Dir: t.TempDir()})
		if err != nil || sum.State != bulk.Drained || sum.Rejected != 0 {
			t.Fatalf("%+v, %v", sum, err)
		}
		s.eachOnce(t, 3000)
	})
}

// What a lost answer means depends on whether twice is two rows.
func TestAnswersThatAreLost(t *testing.T) {
	for _, tt := range []struct {
		resend      dispatch.Resend
		uncertain   int
		writtenOnce bool
	}{
		{resend: dispatch.ResendNothing, uncertain: 300, writtenOnce: true},
		{resend: dispatch.ResendWhole, writtenOnce: true},
		{resend: dispatch.ResendAny},
	} {
		t.Run(fmt.Sprint(tt.resend), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{resend: tt.resend, took: time.Second}
				s.answer = func(n int64, _ int, b bulk.Batch) *bulk.Outcome {
					if n%20 != 0 {
						return nil
					}
					s.write(b) // and the answer does not arrive
					return refusal(reason.Lost, reason.Unreachable, func(o *bulk.Outcome) { o.Doubt = true })
				}
				sum, err := run(t, t.Context(), &counter{rows: 6000}, s, bulk.Options{Dir: t.TempDir(), Params: dispatch.Params{TargetTime: -1}})
				if err != nil || sum.State != bulk.Drained || sum.Uncertain != int64(tt.uncertain) || sum.Acknowledged != 6000-sum.Uncertain {
					t.Fatalf("%+v, %v", sum, err)
				}
				if tt.writtenOnce {
					s.eachOnce(t, 6000)
				}
				if len(s.written) != 6000 {
					t.Errorf("%d rows written", len(s.written))
				}
			})
		})
	}
}

func TestAStoppedLoadGoesOn(t *testing.T) {
	for _, resend := range []dispatch.Resend{dispatch.ResendNothing, dispatch.ResendWhole, dispatch.ResendAny} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			s := &server{took: 10 * time.Second, resend: resend}
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			sum, err := run(t, ctx, &counter{rows: 50_000}, s, bulk.Options{Dir: dir})
			if err != nil || sum.State != bulk.Deferred || sum.Reason != reason.Interrupted || sum.Uncertain != 0 || sum.Owed == 0 || sum.Elapsed > time.Minute {
				t.Fatalf("%+v, %v", sum, err)
			}
			status, err := bulk.ReadStatus(dir)
			if err != nil || status.Acknowledged != sum.Acknowledged || status.InDoubt != 0 || status.Target != "memory" {
				t.Fatalf("%+v, %v", status, err)
			}
			if sum, err = run(t, t.Context(), &counter{rows: 50_000}, s, bulk.Options{Dir: dir}); err != nil || sum.State != bulk.Drained {
				t.Fatalf("resumed: %+v, %v", sum, err)
			}
			s.eachOnce(t, 50_000)
		})
	}
}

// Batches that do not end within the drain are in doubt.
func TestWhatIsInFlightWhenTheDrainEnds(t *testing.T) {
	for resend, uncertain := range map[dispatch.Resend]bool{dispatch.ResendNothing: true, dispatch.ResendWhole: false} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			s := &server{took: time.Hour, resend: resend}
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			sum, err := run(t, ctx, &counter{rows: 5000}, s, bulk.Options{Dir: dir, Drain: -1})
			if err != nil || sum.Reason != reason.Interrupted || (sum.Uncertain == 2600) != uncertain || sum.Elapsed > 26*time.Second {
				t.Fatalf("%+v, %v", sum, err)
			}
			if status, err := bulk.ReadStatus(dir); err != nil || (status.InDoubt == 2600) == uncertain {
				t.Fatalf("%+v, %v", status, err)
			}
			sum, err = run(t, t.Context(), &counter{rows: 5000}, s, bulk.Options{Dir: dir})
			if err != nil || sum.State != bulk.Drained || (sum.Acknowledged == 2400) != uncertain {
				t.Fatalf("resumed: %+v, %v", sum, err)
			}
		})
	}
}

func TestAnInputThatBreaksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := &server{took: time.Second}
		sum, err := run(t, t.Context(), &counter{rows: 500, ends: errors.New("gzip: invalid checksum")}, s, bulk.Options{Dir: dir})
		if err == nil || !strings.Contains(err.Error(), "the input ends after row 500: gzip: invalid checksum") || sum.State != bulk.Failed || sum.Acknowledged != 500 || sum.InputRead {
			t.Fatalf("%+v, %v", sum, err)
		}
		s.eachOnce(t, 500)
	})
}

func TestAStreamIsLoadedButNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		src := &counter{rows: 10, stream: true, blocks: make(chan struct{})}
		defer close(src.blocks)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sum, err := run(t, ctx, src, &server{}, bulk.Options{Dir: dir})
		if err != nil || sum.Acknowledged != 10 || sum.State != bulk.Deferred || sum.InputRead {
			t.Fatalf("what came before the stream blocked: %+v, %v", sum, err)
		}
		if _, err := bulk.Run(t.Context(), src, &server{}, bulk.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "save it to a file") {
			t.Errorf("resumed: %v", err)
		}
	})
}

func TestTheFolderIsAsExpected(t *testing.T) {
	dir := t.TempDir()
	if _, err := bulk.Run(t.Context(), &counter{rows: 1}, &server{}, bulk.Options{Dir: dir, Start: bulk.ResumeOnly}); !errors.Is(err, journal.ErrNone) {
		t.Errorf("nothing to resume: %v", err)
	}
	if _, err := bulk.ReadStatus(dir); !errors.Is(err, journal.ErrNone) {
		t.Errorf("no status: %v", err)
	}
	if _, err := run(t, t.Context(), &counter{rows: 1}, &server{}, bulk.Options{Dir: dir, Start: bulk.StartOnly}); err != nil {
		t.Fatal(err)
	}
	if _, err := bulk.Run(t.Context(), &counter{rows: 1}, &server{}, bulk.Options{Dir: dir, Start: bulk.StartOnly}); err == nil || !strings.Contains(err.Error(), "holds a load already") {
		t.Errorf("started twice: %v", err)
	}
	if _, err := bulk.Run(t.Context(), &counter{rows: 2}, &server{}, bulk.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "has 2 bytes and had 1") {
		t.Errorf("another input: %v", err)
	}
}

func TestASecondProcessIsLockedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := &server{took: time.Second}
		s.answer = func(n int64, _ int, _ bulk.Batch) *bulk.Outcome {
			if n == 1 {
				sum, err := bulk.Run(t.Context(), &counter{rows: 10}, &server{}, bulk.Options{Dir: dir})
				if sum.Reason != reason.LeaseHeld || !errors.Is(err, &reason.Refusal{Reason: reason.LeaseHeld}) && err == nil {
					t.Errorf("%+v, %v", sum, err)
				}
			}
			return nil
		}
		if _, err := run(t, t.Context(), &counter{rows: 10}, s, bulk.Options{Dir: dir}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestProgressIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []bulk.Progress
		s := &server{took: 3 * time.Second}
		sum, err := run(t, t.Context(), &counter{rows: 20_000}, s, bulk.Options{
			Dir: t.TempDir(), ProgressEvery: 2 * time.Second,
			OnProgress: func(p bulk.Progress) { got = append(got, p) },
		})
		if err != nil || len(got) < 4 || got[0].Acknowledged != 0 || got[len(got)-1].Acknowledged != 20_000 {
			t.Fatalf("%d times, %+v, %v", len(got), sum, err)
		}
		if !slices.ContainsFunc(got, func(p bulk.Progress) bool { return p.InFlight > 0 && p.Acknowledged > 0 && p.Owed > 0 }) {
			t.Error("none is of the middle")
		}
	})
}

func TestOptionsNameFieldValueAndBound(t *testing.T) {
	for want, o := range map[string]bulk.Options{
		"dir is empty":           {},
		"start is 9":             {Dir: "x", Start: 9},
		"progress every is -1ns": {Dir: "x", ProgressEvery: -1},
		"batch rows is -1":       {Dir: "x", Params: dispatch.Params{BatchRows: -1}},
	} {
		if _, err := bulk.Run(t.Context(), &counter{}, &server{}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A batch in doubt of which a row cannot be read any more, because the input was
// changed, cannot be sent again as it was: it does not stay owed for ever.
func TestABatchInDoubtThatCannotBeReadAgain(t *testing.T) {
	for _, resend := range []dispatch.Resend{dispatch.ResendNothing, dispatch.ResendWhole} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			// The journal of a load that was killed with rows 3 to 7 under way.
			src := &counter{rows: 20}
			j, _, err := journal.Open(dir, journal.Options{
				Header:          journal.Header{Load: "L", Input: src.Identity(), Target: (&server{}).Traits().Name},
				RejectsPreamble: bulk.RejectsPreamble, UncertainPreamble: bulk.UncertainPreamble,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(j.Write(journal.Entry{Batch: 1, Sent: []ledger.Span{{First: 3, Last: 7}}}), j.Close()); err != nil {
				t.Fatal(err)
			}
			src.malformed = map[int64]bool{5: true}
			s := &server{resend: resend}
			sum, err := run(t, t.Context(), src, s, bulk.Options{Dir: dir})
			if err != nil || sum.State != bulk.Drained || sum.Rejected != 1 || sum.Uncertain != 4 || sum.Acknowledged != 15 {
				t.Errorf("resend %d: %+v, %v", resend, sum, err)
			}
			s.eachOnce(t, 20, 3, 4, 5, 6, 7)
			if st, err := bulk.ReadStatus(dir); err != nil || st.InDoubt != 0 {
				t.Errorf("%+v, %v", st, err)
			}
		})
	}
}

// The journal fails with the last thing that is written to it, after which nothing
// is sent that would show it.
func TestAJournalThatFailsAtTheEnd(t *testing.T) {
	for name, src := range map[string]*counter{
		"every row is malformed": {rows: 3, malformed: map[int64]bool{0: true, 1: true, 2: true}},
		"the only row is":        {rows: 300, malformed: map[int64]bool{299: true}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			spoil := sync.OnceFunc(func() {
				if err := os.Mkdir(filepath.Join(dir, journal.RejectsFile), 0o700); err != nil {
					t.Error(err)
				}
			})
			sum, err := bulk.Run(t.Context(), src, &server{}, bulk.Options{Dir: dir, OnProgress: func(bulk.Progress) { spoil() }})
			if err == nil || !strings.Contains(err.Error(), journal.RejectsFile) || sum.State != bulk.Failed || sum.Reason != reason.Internal || sum.Rejected != 0 {
				t.Fatalf("%+v, %v", sum, err)
			}
			if err := os.Remove(filepath.Join(dir, journal.RejectsFile)); err != nil {
				t.Fatal(err)
			}
			again := &counter{rows: src.rows, malformed: src.malformed}
			if sum, err = run(t, t.Context(), again, &server{resend: dispatch.ResendAny}, bulk.Options{Dir: dir}); err != nil || sum.State != bulk.Drained || sum.Rejected != int64(len(src.malformed)) {
				t.Errorf("resumed: %+v, %v", sum, err)
			}
		})
	}
}
