package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

func newCore(t testing.TB, p dispatch.Params, identities int) *dispatch.Core {
	t.Helper()
	resolved, err := p.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	return dispatch.New(&resolved, identities, 0)
}

// offer offers rows of 100 bytes.
func offer(c *dispatch.Core, now time.Duration, from, n int64) {
	for i := range n {
		c.Offer(now, dispatch.Row{Number: from + i, Bytes: 100})
	}
}

// send takes what is to be sent now.
func send(c *dispatch.Core, now time.Duration) (sent []dispatch.Batch, last dispatch.Decision) {
	for {
		last = c.Next(now)
		if last.Action != dispatch.Send {
			return sent, last
		}
		sent = append(sent, last.Batch)
	}
}

var okay = dispatch.Outcome{Class: reason.OK}

func throttled(wait time.Duration) dispatch.Outcome {
	return dispatch.Outcome{Class: reason.Throttled, Reason: reason.RateLimited.Reason(), RetryAfter: wait, HasRetryAfter: wait > 0}
}

func rejected(change func(*dispatch.Outcome)) dispatch.Outcome {
	o := dispatch.Outcome{Class: reason.Rejected, Reason: reason.ClientError}
	change(&o)
	return o
}

func settle(t testing.TB, c *dispatch.Core, now time.Duration, b dispatch.Batch, o dispatch.Outcome) dispatch.Settlement {
	t.Helper()
	s, ok := c.Settle(now, b.ID, o)
	if !ok {
		t.Fatalf("batch %d is not in flight", b.ID)
	}
	return s
}

func TestAFinishedBatchFreesItsPlaceAtOnce(t *testing.T) {
	c := newCore(t, dispatch.Params{Law: control.ParallelismParams{Max: 4, InitialFactor: 1}, FirstRows: 10, TargetTime: -1}, 1)
	offer(c, 0, 0, 100)
	sent, d := send(c, 0)
	if len(sent) != 4 || d.Action != dispatch.Wait || d.Reason != reason.Concurrency || d.At != dispatch.Never {
		t.Fatalf("sent %d and %+v, want 4 and to wait for one of them", len(sent), d)
	}
	settle(t, c, sec, sent[2], okay)
	if more, _ := send(c, sec); len(more) != 1 || more[0].Rows[0].Number != 40 || len(more[0].Rows) != 10 {
		t.Fatalf("after one came back %+v was sent, want rows 40 to 49", more)
	}
	if _, again := c.Settle(sec, sent[2].ID, okay); again {
		t.Error("a batch was settled twice")
	}
}

// One batch at a time says nothing about 26 at once.
func TestOnlyAFullLevelIsShownToBeBorne(t *testing.T) {
	for _, tt := range []struct{ offered, want int }{{10, 4}, {40, 6}} {
		c := newCore(t, dispatch.Params{Law: control.ParallelismParams{Max: 8}, FirstRows: 10, TargetTime: -1}, 1)
		for now := time.Duration(0); now < 8*sec; now += 2 * sec {
			offer(c, now, int64(now), int64(tt.offered))
			sent, _ := send(c, now)
			for _, b := range sent {
				settle(t, c, now+sec, b, okay)
			}
		}
		if got := c.Identities(8 * sec)[0].Law.Current; got != tt.want {
			t.Errorf("%d rows at a time: the level is %d, want %d", tt.offered, got, tt.want)
		}
	}
}

func TestAHintIsWaitedForWithOneBatch(t *testing.T) {
	c := newCore(t, dispatch.Params{FirstRows: 10, Hinted: true, Law: control.ParallelismParams{Max: 52}}, 2)
	offer(c, 0, 0, 1000)
	sent, last := send(c, 0)
	if len(sent) != 2 || sent[0].Identity == sent[1].Identity || last.Action != dispatch.Wait {
		t.Fatalf("before any answer %d batches were sent and then %+v, want one for each identity", len(sent), last)
	}
	answer := okay
	answer.Parallelism = 4
	c.Settle(sec, sent[0].ID, answer)
	again, _ := send(c, sec)
	if len(again) != 4 {
		t.Errorf("after the first answer recommended 4, %d batches were sent, want 4", len(again))
	}
	for _, b := range again {
		if b.Identity != sent[0].Identity {
			t.Error("an identity without an answer sent more than its first batch")
		}
	}
}

func TestRowsWaitForABatchToFillButNotForLong(t *testing.T) {
	c := newCore(t, dispatch.Params{FirstRows: 10}, 1)
	offer(c, 0, 0, 9)
	if sent, d := send(c, 0); len(sent) != 0 || d.At != sec {
		t.Fatalf("sent %d, then %+v, want to wait until 1s", len(sent), d)
	}
	if sent, _ := send(c, sec); len(sent) != 1 || len(sent[0].Rows) != 9 {
		t.Fatalf("sent %v after lingering", sent)
	}
	offer(c, 2*sec, 9, 1)
	c.End()
	if sent, _ := send(c, 2*sec); len(sent) != 1 {
		t.Fatal("the last rows need not wait for more")
	}
}

func TestTheWindowBoundsWhatIsHeld(t *testing.T) {
	c := newCore(t, dispatch.Params{WindowRows: 50, FirstRows: 20, Law: control.ParallelismParams{Max: 1}}, 1)
	n := int64(0)
	for ; !c.Full(); n++ {
		offer(c, 0, n, 1)
	}
	if n != 50 {
		t.Fatalf("%d rows were taken, want 50", n)
	}
	sent, _ := send(c, 0)
	if !c.Full() {
		t.Error("rows in flight are held too")
	}
	settle(t, c, sec, sent[0], okay)
	if rows, bytes := c.Held(); c.Full() || rows != 30 || bytes != 3000 {
		t.Errorf("%d rows of %d bytes held, want 30 of 3000", rows, bytes)
	}
	b := newCore(t, dispatch.Params{WindowBytes: 1000}, 1)
	b.Offer(0, dispatch.Row{Bytes: 5000})
	if !b.Full() {
		t.Error("5000 bytes are within 1000")
	}
	if sent, _ := send(b, 0); len(sent) != 1 {
		t.Error("a row larger than the window is stuck")
	}
}

func TestABatchIsBoundedInBytes(t *testing.T) {
	c := newCore(t, dispatch.Params{BatchBytes: 250, Law: control.ParallelismParams{Max: 52}}, 1)
	offer(c, 0, 0, 5)
	c.Offer(0, dispatch.Row{Number: 5, Bytes: 900})
	c.End()
	var sizes []int
	sent, _ := send(c, 0)
	for _, b := range sent {
		sizes = append(sizes, len(b.Rows))
	}
	if !slices.Equal(sizes, []int{2, 2, 1, 1}) {
		t.Errorf("batches of %v rows, want 2, 2, 1 and the large one alone", sizes)
	}
}

func TestRetryAfterGatesTheIdentityAndNoOther(t *testing.T) {
	c := newCore(t, dispatch.Params{FirstRows: 1, TargetTime: -1, Law: control.ParallelismParams{Max: 2, InitialFactor: 1}}, 2)
	offer(c, 0, 0, 100)
	sent, _ := send(c, 0)
	if len(sent) != 4 || sent[0].Identity == sent[1].Identity {
		t.Fatalf("%+v, want work spread by free places", sent)
	}
	s := settle(t, c, sec, sent[0], throttled(30*sec))
	if !s.Shrank || s.Fates[0] != dispatch.Again {
		t.Fatalf("%+v, want the level lowered and the row sent again", s)
	}
	other := sent[1].Identity
	for _, b := range sent[1:] {
		settle(t, c, 2*sec, b, okay)
	}
	more, d := send(c, 3*sec)
	for _, b := range more {
		if b.Identity != other {
			t.Fatalf("identity %d was used at 3s, its gate opens at 31s", b.Identity)
		}
	}
	if len(more) != 2 || more[0].Rows[0].Number != 0 || d.At != 31*sec || d.Reason != reason.Cooldown {
		t.Fatalf("sent %v, then %+v; want row 0 first, and to wait until 31s", more, d)
	}
	if more, _ := send(c, 31*sec); len(more) != 1 || more[0].Identity == other {
		t.Fatalf("at 31s %+v was sent, want the level of 1", more)
	}
}

func TestAThrottleIsNoRetry(t *testing.T) {
	c := newCore(t, dispatch.Params{FirstRows: 1, Backoff: retry.Backoff{Attempts: 2}, Law: control.ParallelismParams{Max: 1}}, 1)
	offer(c, 0, 0, 1)
	c.End()
	now := time.Duration(0)
	for range 4 {
		sent, d := send(c, now)
		if len(sent) != 1 || sent[0].Attempt != 1 {
			t.Fatalf("at %v: %+v, %+v", now, sent, d)
		}
		settle(t, c, now+sec, sent[0], throttled(10*sec))
		now += 11 * sec
	}
	if n := c.Counts(); n.Retried != 0 || n.Throttled != 4 || n.PutOff != 0 {
		t.Errorf("%+v, want four throttles and no retry", n)
	}
}

func TestThrottlesThatGoOnOpenTheCircuit(t *testing.T) {
	c := newCore(t, dispatch.Params{
		FirstRows: 1, TargetTime: -1,
		Breaker: breaker.Config{Window: 4, Minimum: 4, Ratio: 1},
		Law:     control.ParallelismParams{Max: 8, InitialFactor: 1},
	}, 1)
	offer(c, 0, 0, 100)
	now := time.Duration(0)
	sent, _ := send(c, now)
	moved := 0
	for epoch := range 4 {
		now += sec
		for _, b := range sent {
			if s := settle(t, c, now, b, throttled(sec)); s.Moved.Moved() {
				moved++
				if epoch != 3 {
					t.Fatalf("the circuit opened in epoch %d: the throttles of one count once", epoch)
				}
			}
		}
		now += sec
		sent, _ = send(c, now)
	}
	d := c.Next(now)
	if moved != 1 || len(sent) != 0 || d.Action != dispatch.Wait || d.Reason != reason.CircuitOpen.Reason() || d.At != now+59*sec {
		t.Fatalf("at %v %d sent, then %+v; want to wait for the circuit", now, len(sent), d)
	}
	if sent, _ := send(c, d.At); len(sent) != 1 {
		t.Fatalf("%d probes, want 1", len(sent))
	} else if s := settle(t, c, d.At+sec, sent[0], okay); s.Moved.To != breaker.Closed {
		t.Errorf("after the probe %+v", s.Moved)
	}
}

func TestWhatBecomesOfARow(t *testing.T) {
	lost := dispatch.Outcome{Class: reason.Lost, Reason: reason.Unreachable, Doubt: true}
	unsent := dispatch.Outcome{Class: reason.Lost, Reason: reason.Unreachable}
	garbage := dispatch.Outcome{Class: reason.Failed, Reason: reason.InvalidResponse, Doubt: true}
	rows := func(v ...dispatch.Verdict) dispatch.Outcome { return dispatch.Outcome{Class: reason.OK, Rows: v} }
	for _, tt := range []struct {
		name   string
		resend dispatch.Resend
		o      dispatch.Outcome
		want   string
		stops  reason.Reason
	}{
		{"served", dispatch.ResendNothing, okay, "acknowledged acknowledged", 0},
		{"row by row", dispatch.ResendNothing, rows(dispatch.Done, dispatch.Refused), "acknowledged rejected", 0},
		{"one later", dispatch.ResendNothing, rows(dispatch.Done, dispatch.Later), "acknowledged again", 0},
		{"one unknown", dispatch.ResendNothing, rows(dispatch.Done, dispatch.Unknown), "acknowledged uncertain", 0},
		{"one unknown of an upsert", dispatch.ResendAny, rows(dispatch.Done, dispatch.Unknown), "acknowledged again", 0},
		{"another number of rows", dispatch.ResendNothing, rows(dispatch.Done), "uncertain uncertain", 0},
		{"another number of rows of an upsert", dispatch.ResendAny, rows(dispatch.Done, dispatch.Done, dispatch.Done), "again again", 0},
		{"throttled", dispatch.ResendNothing, throttled(0), "again again", 0},
		{"lost on the way", dispatch.ResendNothing, lost, "uncertain uncertain", 0},
		{"an upsert lost on the way", dispatch.ResendAny, lost, "again again", 0},
		{"a batch with a key lost on the way", dispatch.ResendWhole, lost, "again again", 0},
		{"one unknown of a batch with a key", dispatch.ResendWhole, rows(dispatch.Done, dispatch.Unknown), "acknowledged uncertain", 0},
		{"never sent", dispatch.ResendNothing, unsent, "again again", 0},
		{"garbage", dispatch.ResendNothing, garbage, "uncertain uncertain", 0},
		{"an upsert answered with garbage", dispatch.ResendAny, garbage, "again again", 0},
		{"refused", dispatch.ResendNothing, rejected(func(*dispatch.Outcome) {}), "rejected rejected", 0},
		{"too large", dispatch.ResendNothing, rejected(func(o *dispatch.Outcome) { o.TooLarge = true }), "again again", 0},
		{"refused for one of them", dispatch.ResendNothing, rejected(func(o *dispatch.Outcome) { o.Divisible = true }), "again again", 0},
		{"the credential is refused", dispatch.ResendNothing, rejected(func(o *dispatch.Outcome) { o.Reason = reason.Unauthorized }), "again again", reason.Unauthorized},
		{"a target that cannot work", dispatch.ResendNothing, rejected(func(o *dispatch.Outcome) { o.Reason, o.Fatal = reason.NotFound, true }), "owed owed", reason.NotFound},
		{"a quota for long", dispatch.ResendNothing, dispatch.Outcome{Class: reason.Throttled, Exhausted: true}, "again again", reason.QuotaExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCore(t, dispatch.Params{FirstRows: 2, Resend: tt.resend}, 1)
			offer(c, 0, 0, 2)
			c.End()
			sent, _ := send(c, 0)
			s := settle(t, c, sec, sent[0], tt.o)
			var got []string
			for _, f := range s.Fates {
				got = append(got, f.String())
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("fates %v, want %s", got, tt.want)
			}
			d := c.Next(sec)
			if stop, _ := c.Stopped(); stop.Reason != tt.stops || (tt.stops != 0) != (d.Action == dispatch.Finish && d.Reason == tt.stops) {
				t.Errorf("stopped for %v and then %+v, want %v", stop.Reason, d, tt.stops)
			}
		})
	}
}

// A fault is found by halves, and only the row at fault is rejected.
func TestHalvesFindTheRowAtFault(t *testing.T) {
	c := newCore(t, dispatch.Params{FirstRows: 100, TargetTime: -1, Law: control.ParallelismParams{Max: 1}}, 1)
	offer(c, 0, 0, 100)
	c.End()
	var refused []int64
	for now := time.Duration(0); ; now += sec {
		d := c.Next(now)
		if d.Action != dispatch.Send {
			break
		}
		o := okay
		if slices.ContainsFunc(d.Batch.Rows, func(r dispatch.Row) bool { return r.Number == 37 }) {
			o = rejected(func(o *dispatch.Outcome) { o.Divisible = true })
		}
		for i, f := range settle(t, c, now, d.Batch, o).Fates {
			if f == dispatch.Rejected {
				refused = append(refused, d.Batch.Rows[i].Number)
			}
		}
	}
	if n := c.Counts(); !slices.Equal(refused, []int64{37}) || n.Acknowledged != 99 || n.Sent > 16 || n.Retried != 0 {
		t.Errorf("rows %v refused, %+v; want row 37 alone within 16 batches", refused, n)
	}
}

func TestTooLargeIsRemembered(t *testing.T) {
	c := newCore(t, dispatch.Params{FirstRows: 64, BatchRows: 64, TargetTime: -1, Law: control.ParallelismParams{Max: 1}}, 1)
	offer(c, 0, 0, 1000)
	sent, _ := send(c, 0)
	settle(t, c, sec, sent[0], rejected(func(o *dispatch.Outcome) { o.TooLarge = true }))
	for range 3 {
		sent, _ = send(c, sec)
		if len(sent) != 1 || len(sent[0].Rows) != 32 {
			t.Fatalf("%d rows after 64 were too many, want 32", len(sent[0].Rows))
		}
		settle(t, c, sec, sent[0], okay)
	}
}

func TestARetryHasAttemptsAndABudget(t *testing.T) {
	fail := dispatch.Outcome{Class: reason.Failed, Reason: reason.ServerError}
	run := func(p dispatch.Params) (dispatch.Counts, []dispatch.Fate) {
		p.Breaker, p.Law = breaker.Config{Window: 64, Minimum: 64}, control.ParallelismParams{Max: 1}
		c := newCore(t, p, 1)
		offer(c, 0, 0, 1)
		c.End()
		var fates []dispatch.Fate
		for now := time.Duration(0); ; {
			d := c.Next(now)
			switch d.Action {
			case dispatch.Finish:
				return c.Counts(), fates
			case dispatch.Wait:
				now = d.At
			case dispatch.Send:
				fates = append(fates, settle(t, c, now, d.Batch, fail).Fates[0])
			}
		}
	}
	n, fates := run(dispatch.Params{})
	if n.Sent != 5 || n.Retried != 4 || n.PutOff != 1 || fates[4] != dispatch.Owed || fates[3] != dispatch.Again {
		t.Errorf("%+v, %v; want 5 attempts, then owed", n, fates)
	}
	if n, _ := run(dispatch.Params{Budget: retry.Limits{Capacity: 2}}); n.Sent != 3 || n.Retried != 2 {
		t.Errorf("%+v with a budget of 2 retries", n)
	}
}

func TestAStallEndsTheLoad(t *testing.T) {
	c := newCore(t, dispatch.Params{FirstRows: 1, Law: control.ParallelismParams{Max: 1}}, 1)
	offer(c, 0, 0, 2)
	sent, _ := send(c, 0)
	settle(t, c, sec, sent[0], throttled(10*365*24*time.Hour))
	d := c.Next(sec)
	stop, _ := c.Stopped()
	if d.Action != dispatch.Finish || stop.Reason != reason.Cooldown || stop.RetryAt != sec+10*365*24*time.Hour {
		t.Errorf("%+v, %+v: want to stop for a wait of ten years, and say until when", d, stop)
	}
	if rows, _ := c.Held(); rows != 2 {
		t.Errorf("%d rows are owed, want 2", rows)
	}
	slow := newCore(t, dispatch.Params{FirstRows: 1}, 1)
	offer(slow, 24*time.Hour, 0, 1)
	if sent, _ := send(slow, 24*time.Hour); len(sent) != 1 {
		t.Error("waiting for input counts as failure")
	}
}

func TestTooManyRejectsStop(t *testing.T) {
	c := newCore(t, dispatch.Params{FirstRows: 1, MaxRejects: 2}, 1)
	c.Reject(2)
	if _, ok := c.Stopped(); ok {
		t.Fatal("stopped at the bound")
	}
	c.Reject(1)
	if s, _ := c.Stopped(); s.Reason != reason.ClientError || !c.Full() {
		t.Errorf("stopped for %v above the bound", s.Reason)
	}
}

func TestAResumedBatchIsWhole(t *testing.T) {
	c := newCore(t, dispatch.Params{FirstRows: 2}, 1)
	offer(c, 0, 100, 10)
	c.Resume(0, []dispatch.Row{{Number: 3, Bytes: 1}, {Number: 5, Bytes: 1}, {Number: 9, Bytes: 1}})
	d := c.Next(0)
	if d.Action != dispatch.Send || len(d.Batch.Rows) != 3 || d.Batch.Rows[2].Number != 9 {
		t.Errorf("%+v, want rows 3, 5 and 9 first, together", d)
	}
}

func TestTheSizeFollowsTheTime(t *testing.T) {
	// A batch takes half a second and ten milliseconds a row.
	took := func(rows int) time.Duration { return 500*ms + time.Duration(rows)*10*ms }
	s := dispatch.NewSizer(100, 2000, 10*sec)
	for range 100 {
		s.Observe(s.Size(), took(s.Size()))
	}
	if got := took(s.Size()); got < 9*sec || got > 10*sec+100*ms {
		t.Errorf("batches of %d rows take %v, want about 10s", s.Size(), got)
	}
	before := s.Size()
	s.Observe(before/4, ms)
	if s.Size() != before {
		t.Errorf("a rest of %d rows moved the size from %d to %d", before/4, before, s.Size())
	}
	s.TooSlow(before)
	s.TooSlow(before)
	if s.Size() != before/2 {
		t.Errorf("two batches that timed out together made %d of %d", s.Size(), before)
	}
	s.TooLarge(50)
	for range 100 {
		s.Observe(s.Size(), ms)
	}
	if s.Size() != 25 {
		t.Errorf("%d rows after 50 were too large, want 25", s.Size())
	}
	fixed := dispatch.NewSizer(7, 100, -1)
	fixed.Observe(7, time.Hour)
	fixed.TooSlow(7)
	if fixed.Size() != 7 {
		t.Errorf("a fixed size became %d", fixed.Size())
	}
	doubles := dispatch.NewSizer(10, 1000, 10*sec)
	for range 5 {
		doubles.Observe(10, ms)
	}
	if doubles.Size() != 20 {
		t.Errorf("five batches of one size made %d of 10, want 20", doubles.Size())
	}
}

func TestParamsNameFieldValueAndBound(t *testing.T) {
	for _, tt := range []struct {
		p    dispatch.Params
		want string
	}{
		{dispatch.Params{BatchRows: -1}, "batch rows is -1, must be from 1 to 1048576"},
		{dispatch.Params{BatchBytes: -1}, "batch bytes is -1"},
		{dispatch.Params{FirstRows: -3}, "first rows is -3"},
		{dispatch.Params{WindowRows: -1}, "window rows is -1"},
		{dispatch.Params{WindowBytes: -1}, "window bytes is -1"},
		{dispatch.Params{TargetTime: 48 * time.Hour}, "target time is 48h0m0s"},
		{dispatch.Params{Linger: -1}, "linger is -1ns"},
		{dispatch.Params{StallTimeout: -1}, "stall timeout is -1ns"},
		{dispatch.Params{Resend: 3}, "resend is 3"},
		{dispatch.Params{MaxRejects: -1}, "max rejects is -1"},
		{dispatch.Params{Law: control.ParallelismParams{Max: -1}}, "max parallelism is -1"},
		{dispatch.Params{Breaker: breaker.Config{Ratio: 2}}, "ratio is 2"},
		{dispatch.Params{Backoff: retry.Backoff{Base: -1}}, "base is -1ns"},
		{dispatch.Params{Budget: retry.Limits{Capacity: -1}}, "capacity is -1"},
	} {
		if _, err := tt.p.Resolve(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.p, err, tt.want)
		}
	}
}

// Whatever the provider answers, the core never exceeds the level, sends nothing before a
// gate, puts no row into two batches, gives no row a second outcome and accounts for every
// row.
func TestEveryRowIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := dispatch.Params{
			Law:       control.ParallelismParams{Max: rapid.IntRange(1, 8).Draw(t, "max")},
			FirstRows: rapid.IntRange(1, 5).Draw(t, "first"), WindowRows: rapid.IntRange(1, 40).Draw(t, "window"),
			StallTimeout: time.Hour, Resend: dispatch.Resend(rapid.IntRange(0, 2).Draw(t, "resend")), Seed: rapid.Uint64().Draw(t, "seed"),
			Backoff: retry.Backoff{Attempts: rapid.IntRange(1, 4).Draw(t, "attempts")},
		}.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		total := rapid.Int64Range(0, 80).Draw(t, "rows")
		identities := rapid.IntRange(1, 3).Draw(t, "identities")
		c := dispatch.New(&p, identities, 0)
		now, next := time.Duration(0), int64(0)
		flying := map[int64]dispatch.Batch{}
		underWay := map[int64]bool{}
		fates := map[int64]dispatch.Fate{}
		gates := make([]time.Duration, identities)
		inFlight := make([]int, identities)
		for step := 0; ; step++ {
			if step > 20_000 {
				t.Fatal("it does not end")
			}
			for next < total && !c.Full() {
				c.Offer(now, dispatch.Row{Number: next, Bytes: 10})
				next++
			}
			if next == total {
				c.End()
			}
			levels := c.Identities(now)
			d := c.Next(now)
			if d.Action == dispatch.Finish {
				break
			}
			if d.Action == dispatch.Send {
				b := d.Batch
				inFlight[b.Identity]++
				if inFlight[b.Identity] > levels[b.Identity].Law.Max || now < gates[b.Identity] {
					t.Fatalf("at %v: %d in flight of %+v, gate %v", now, inFlight[b.Identity], levels[b.Identity], gates[b.Identity])
				}
				for _, r := range b.Rows {
					if _, settled := fates[r.Number]; settled || underWay[r.Number] {
						t.Fatalf("row %d is sent once more", r.Number)
					}
					underWay[r.Number] = true
				}
				flying[b.ID] = b
				continue
			}
			if rows, _ := c.Held(); rows > p.WindowRows {
				t.Fatalf("%d rows held, at most %d", rows, p.WindowRows)
			}
			if len(flying) == 0 {
				if d.At == dispatch.Never || d.At <= now {
					t.Fatalf("at %v it waits until %v, with nothing in flight", now, d.At)
				}
				now = d.At
				continue
			}
			now += time.Duration(rapid.Int64Range(1, int64(5*sec)).Draw(t, "takes"))
			ids := make([]int64, 0, len(flying))
			for id := range flying {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			b := flying[rapid.SampledFrom(ids).Draw(t, "batch")]
			delete(flying, b.ID)
			inFlight[b.Identity]--
			o := outcome(t, len(b.Rows))
			s, ok := c.Settle(now, b.ID, o)
			if !ok || len(s.Fates) != len(b.Rows) {
				t.Fatalf("%+v, %v for %d rows", s, ok, len(b.Rows))
			}
			if o.HasRetryAfter && o.Class.Throttle() {
				gates[b.Identity] = max(gates[b.Identity], now+o.RetryAfter)
			}
			for i, r := range b.Rows {
				delete(underWay, r.Number)
				if s.Fates[i] != dispatch.Again {
					fates[r.Number] = s.Fates[i]
				}
				if s.Fates[i] == dispatch.Uncertain && p.Resend == dispatch.ResendAny {
					t.Fatalf("row %d of an upsert is uncertain", r.Number)
				}
			}
		}
		n, owed := c.Counts(), int64(0)
		for _, f := range fates {
			if f == dispatch.Owed {
				owed++
			}
		}
		held, _ := c.Held()
		if _, stopped := c.Stopped(); !stopped && (held != 0 || next != total) {
			t.Fatalf("done with %d rows held and %d of %d read", held, next, total)
		}
		if n.Acknowledged+n.Rejected+n.Uncertain+owed+int64(held) != next || n.Offered != next || int64(len(fates)) != next-int64(held) {
			t.Fatalf("%+v, %d owed and %d held of %d", n, owed, held, next)
		}
	})
}

func outcome(t *rapid.T, rows int) dispatch.Outcome {
	o := dispatch.Outcome{Parallelism: rapid.SampledFrom([]int{0, 0, 0, 1, 3, 8}).Draw(t, "hint")}
	switch rapid.IntRange(0, 9).Draw(t, "outcome") {
	case 0:
		o.Class, o.HasRetryAfter = reason.Throttled, rapid.Bool().Draw(t, "advertised")
		if o.HasRetryAfter {
			o.RetryAfter = time.Duration(rapid.IntRange(0, 60).Draw(t, "wait")) * sec
		}
	case 1:
		o.Class, o.Reason, o.Doubt = reason.Lost, reason.Timeout, rapid.Bool().Draw(t, "doubt")
	case 2:
		o.Class, o.Reason, o.Doubt = reason.Failed, reason.ServerError, rapid.Bool().Draw(t, "doubt")
	case 3:
		o.Class, o.Reason = reason.Rejected, reason.ClientError
		o.TooLarge, o.Divisible = rapid.Bool().Draw(t, "large"), rapid.Bool().Draw(t, "divisible")
	case 4:
		o.Class = reason.OK
		for range rows + rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "more") {
			o.Rows = append(o.Rows, dispatch.Verdict(rapid.IntRange(0, 3).Draw(t, "verdict")))
		}
	case 5:
		o.Class, o.Reason = reason.Unknown, reason.Canceled
	case 6:
		if rapid.IntRange(0, 9).Draw(t, "unauthorized") == 0 {
			o.Class, o.Reason = reason.Rejected, reason.Unauthorized
		} else {
			o.Class = reason.OK
		}
	default:
		o.Class = reason.OK
	}
	return o
}

func ExampleCore() {
	p, err := dispatch.Params{FirstRows: 2, Law: control.ParallelismParams{Max: 2}}.Resolve()
	if err != nil {
		panic(err)
	}
	core := dispatch.New(&p, 1, 0)
	for i := range int64(3) {
		core.Offer(0, dispatch.Row{Number: i, Bytes: 100})
	}
	core.End()
	for now := time.Duration(0); ; now += time.Second {
		d := core.Next(now)
		if d.Action == dispatch.Finish {
			fmt.Println("finished:", d.Reason)
			return
		}
		s, _ := core.Settle(now+time.Second, d.Batch.ID, dispatch.Outcome{Class: reason.OK})
		fmt.Printf("rows from %d are %v\n", d.Batch.Rows[0].Number, s.Fates)
	}
	// Output:
	// rows from 0 are [acknowledged acknowledged]
	// rows from 2 are [acknowledged]
	// finished: drained
}
