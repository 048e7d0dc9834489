package governor_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func oneModel(l quota.Limits) quota.Config {
	return quota.Config{Models: map[string]quota.Model{"m": {Limits: l}}}
}

func ask(tokens int64) quota.Request { return quota.Request{Model: "m", InputTokens: tokens} }

// open makes a governor that the test closes.
func open(t *testing.T, o governor.Options) *governor.Governor {
	t.Helper()
	g, err := governor.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// denied fails the test unless the error is a refusal with this code, and says
// for how long.
func denied(t *testing.T, err error, code quota.Code) time.Duration {
	t.Helper()
	d, ok := errors.AsType[*quota.Denial](err)
	if !ok || d.Code != code {
		t.Fatalf("error %v, want a denial with %s", err, code)
	}
	if _, ok := errors.AsType[*reason.Refusal](err); !ok {
		t.Fatalf("error %v is no refusal", err)
	}
	return d.RetryIn
}

// heard collects events, with the time at which they came.
type heard struct {
	mu     sync.Mutex
	start  time.Time
	lines  []string
	events []quota.Event
}

func listen() *heard { return &heard{start: time.Now()} }

func (h *heard) event(e quota.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	if e.Type != quota.EventDenied && e.Type != quota.EventAdaptiveScale {
		h.lines = append(h.lines, fmt.Sprintf("%v %s", time.Since(h.start), e))
	}
}

func (h *heard) want(t *testing.T, lines ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.lines, lines) {
		t.Errorf("heard %q\nwant  %q", h.lines, lines)
	}
}

func TestTheDailyCapRefusesUntilTheNextDayInTheScopesZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a bubble begins at midnight UTC of 2000-01-01
		time.Sleep(92*24*time.Hour + 8*time.Hour + 30*time.Minute) // 00:30 in Los Angeles, on a day of 23 hours
		h := listen()
		c := oneModel(quota.Limits{MaxDailyTokens: 100, DayZone: "America/Los_Angeles"})
		c.LoadZone = time.LoadLocation
		g := open(t, governor.Options{Config: c, OnEvent: h.event})
		d, err := g.Approve(ask(100))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 100}); err != nil {
			t.Fatal(err)
		}
		_, err = g.Approve(ask(1))
		retry := denied(t, err, quota.CodeHardLimit)
		if retry != 22*time.Hour+30*time.Minute {
			t.Errorf("retry in %v, want until midnight there", retry)
		}
		h.want(t, "0s llm:quota_exhausted model m")
		time.Sleep(retry)
		synctest.Wait()
		h.want(t, "0s llm:quota_exhausted model m", "22h30m0s rate:resume model m")
		if _, err := g.Approve(ask(100)); err != nil {
			t.Error(err)
		}
	})
}

func Test64GoroutinesAnd200000ApprovalsOnALimitOf1000AdmitExactly1000(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time passes, so that nothing refills
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 1000})})
		var (
			wg       sync.WaitGroup
			admitted atomic.Int64
		)
		for range 64 {
			wg.Go(func() {
				for range 200_000 / 64 {
					if d, err := g.Approve(ask(1)); err == nil {
						if !d.Approved {
							t.Error("no error and no approval")
						}
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if admitted.Load() != 1000 {
			t.Errorf("%d admitted", admitted.Load())
		}
		if s := g.Statistics(); s.Approved != 1000 || s.Denied != 199_000 || s.Models["m"] != (governor.Calls{Approved: 1000, Denied: 199_000}) {
			t.Errorf("%+v", s)
		}
	})
}

func TestFiveConcurrentCallsNeverUseMoreThanALimitOf100(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, governor.Options{Config: oneModel(quota.Limits{TokensPerMinute: 100})})
		var (
			wg   sync.WaitGroup
			used atomic.Int64
		)
		for range 5 {
			wg.Go(func() {
				if _, err := g.Approve(ask(60)); err == nil {
					used.Add(60)
				}
			})
		}
		wg.Wait()
		if used.Load() != 60 {
			t.Errorf("%d tokens", used.Load())
		}
		time.Sleep(time.Minute)
		if d, err := g.Approve(ask(663)); err != nil || d.Advisory&quota.AdviseClamped == 0 {
			t.Errorf("a call larger than the full bucket: %+v, %v", d, err)
		}
	})
}

func TestWaitersAreServedInTurnAndWhatCannotBeServedIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1, MaxDailyCalls: 4})})
		start := time.Now()
		if _, err := g.ApproveWait(t.Context(), ask(1)); err != nil {
			t.Fatal(err)
		}
		var (
			mu     sync.Mutex
			served []string
			wg     sync.WaitGroup
		)
		for _, priority := range []int{0, 1, 2} {
			wg.Go(func() {
				r := ask(1)
				r.Priority = priority
				_, err := g.ApproveWait(t.Context(), r)
				mu.Lock()
				defer mu.Unlock()
				served = append(served, fmt.Sprint(priority, " ", time.Since(start), " ", err))
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := g.ApproveWait(ctx, ask(1)) // three are before
		denied(t, err, quota.CodeThrottled)
		if time.Since(start) != 0 {
			t.Error("the refusal took", time.Since(start))
		}
		_, err = g.Approve(ask(1))
		denied(t, err, quota.CodeThrottled)
		wg.Wait()
		if want := []string{"2 1s <nil>", "1 2s <nil>", "0 3s <nil>"}; !slices.Equal(served, want) {
			t.Errorf("served %q, want %q", served, want)
		}
		_, err = g.ApproveWait(t.Context(), ask(1)) // the day is over
		denied(t, err, quota.CodeHardLimit)
		if s := g.Statistics(); s.MeanApprovalLatency != 1500*time.Millisecond || s.Waiting != 0 {
			t.Errorf("%+v, want a mean of 0s, 1s, 2s and 3s", s)
		}
	})
}

func TestAWaiterThatGivesUpTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})})
		if _, err := g.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := g.ApproveWait(ctx, ask(1))
			if r, ok := errors.AsType[*reason.Refusal](err); !ok || r.Reason != reason.Canceled || !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
		if _, err := g.ApproveWait(ctx, ask(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("an ended context: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := g.Approve(ask(1)); err != nil {
			t.Error(err)
		}
		if s := g.Statistics(); s.Approved != 2 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestMaxWaitBoundsTheWaitWithoutADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 1}), MaxWait: time.Minute + 2})
		start := time.Now()
		for want := range 2 {
			if _, err := g.ApproveWait(t.Context(), ask(1)); err != nil || time.Since(start) != time.Duration(want)*time.Minute {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
		}
		// A token that comes with the end of the wait comes too late.
		for maxWait, ok := range map[time.Duration]bool{time.Second: false, time.Second + 2: true} {
			e := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1}), MaxWait: maxWait})
			for i := range 2 {
				if d, err := e.ApproveWait(t.Context(), ask(1)); d.Approved != (ok || i == 0) {
					t.Errorf("with a wait of %v: %v", maxWait, err)
				}
			}
		}
		h := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 3, Burst: 1})}) // every 20 s
		if _, err := h.ApproveWait(t.Context(), ask(1)); err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		_, err := h.ApproveWait(t.Context(), ask(1))
		denied(t, err, quota.CodeThrottled)
		if time.Since(start) != 0 {
			t.Error("a wait beyond the default was not refused at once")
		}
	})
}

func TestARefundServesAWaiterAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, governor.Options{Config: oneModel(quota.Limits{TokensPerMinute: 60}), MaxWait: time.Hour})
		first, err := g.Approve(ask(60))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := g.ApproveWait(t.Context(), ask(50)); err != nil || time.Since(start) != 0 {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
		})
		synctest.Wait()
		if ok, err := g.RecordUsage(first.Permit, quota.Usage{Input: 10}); !ok || err != nil {
			t.Error(ok, err)
		}
		wg.Wait()
		if ok, err := g.RecordUsage(first.Permit, quota.Usage{Input: 10}); ok || err != nil {
			t.Error("settled twice:", ok, err)
		}
		if ok, err := g.Cancel(first.Permit); ok || err != nil {
			t.Error("canceled after its end:", ok, err)
		}
		if err := g.Drain(first.Permit, 1); err == nil {
			t.Error("drained after its end")
		}
	})
}

func TestCloseRefusesAllWhoWaitAndAllWhoCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})})
		d, err := g.Approve(ask(1))
		if err != nil {
			t.Fatal(err)
		}
		isClosed := func(err error) {
			t.Helper()
			if r, ok := errors.AsType[*reason.Refusal](err); !ok || r.Reason != reason.Closed {
				t.Errorf("error %v", err)
			}
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := g.ApproveWait(t.Context(), ask(1))
				isClosed(err)
			})
		}
		synctest.Wait()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		_, err = g.Approve(ask(1))
		isClosed(err)
		_, err = g.ApproveWait(t.Context(), ask(1))
		isClosed(err)
		if ok, err := g.RecordUsage(d.Permit, quota.Usage{Input: 1}); !ok || err != nil {
			t.Error("a permit that was out:", ok, err)
		}
	})
}

func TestAPermitThatNobodySettlesIsReleasedByTheTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := oneModel(quota.Limits{MaxDailyTokens: 100})
		c.PermitTTLMS = 1000
		g := open(t, governor.Options{Config: c, MaxWait: time.Hour})
		if _, err := g.Approve(ask(60)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := g.Snapshot(); s.Statistics.Expired != 1 || *s.Models["m"].DailyTokensRemaining != 100 {
			t.Errorf("%+v", s.Statistics)
		}
	})
}

func TestABadPatchChangesNothingAndAGoodOneTellsTheDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := listen()
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1}), OnEvent: h.event})
		before := g.Snapshot().ConfigDigest
		if err := g.UpdateConfig([]byte(`{"models":{"m":{"burst":-1}}}`)); err == nil || g.Snapshot().ConfigDigest != before {
			t.Errorf("error %v", err)
		}
		h.want(t)
		// A patch that makes room serves a waiter, without any timer.
		if _, err := g.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() {
			if _, err := g.ApproveWait(t.Context(), ask(1)); err != nil || time.Since(start) != 0 {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
		})
		synctest.Wait()
		if err := g.UpdateConfig([]byte(`{"models":{"m":{"burst":9}}}`)); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if g.Config().Models["m"].Burst != 9 || h.events[len(h.events)-1].Digest != g.Snapshot().ConfigDigest {
			t.Errorf("%+v", h.events)
		}
	})
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	for _, o := range []governor.Options{
		{Config: oneModel(quota.Limits{CallsPerMinute: -1})},
		{Config: oneModel(quota.Limits{}), MaxWait: -1},
	} {
		if _, err := governor.New(o); err == nil {
			t.Errorf("%+v was taken", o)
		} else if f, ok := errors.AsType[*quota.FieldError](err); !ok || f.Bound == "" {
			t.Error(err)
		}
	}
}

// TestAnApprovalThatCrossesTheEndOfItsWaitIsGivenBack: whichever came first.
func TestAnApprovalThatCrossesTheEndOfItsWaitIsGivenBack(t *testing.T) {
	crossed := 0
	for range 60 {
		synctest.Test(t, func(t *testing.T) {
			g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 100})})
			d, err := g.Approve(ask(100))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := g.ApproveWait(ctx, ask(60))
				ended <- err
			}()
			synctest.Wait()
			if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 10}); err != nil { // grants the wait
				t.Fatal(err)
			}
			cancel()
			err = <-ended
			synctest.Wait()
			want := int64(1)
			if err != nil {
				want, crossed = 0, crossed+1
			}
			if s := g.Snapshot(); s.Statistics.Open != want || *s.Models["m"].DailyTokensRemaining != 90-60*want {
				t.Fatalf("error %v: %d open, %d left of the day", err, s.Statistics.Open, *s.Models["m"].DailyTokensRemaining)
			}
		})
	}
	t.Logf("%d crossed", crossed)
}

// TestALeaseIsOfItsDay: the next day is stored as it is used.
func TestALeaseIsOfItsDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 640}), Store: store})
		for _, n := range []int64{600, 100, 50} {
			if _, err := g.Approve(ask(n)); err != nil {
				t.Fatal(err)
			}
			if store.tokens() != n {
				t.Errorf("%d stored, want the day's %d", store.tokens(), n)
			}
			time.Sleep(24 * time.Hour)
			synctest.Wait()
		}
	})
}

// The whole shell: clock, lock, timer, and with a file the leases.
func BenchmarkApproveAndRecord(b *testing.B) {
	for _, name := range []string{"memory", "file"} {
		b.Run(name, func(b *testing.B) {
			c := oneModel(quota.Limits{CallsPerMinute: 1e9, MaxDailyTokens: 1e15})
			c.Global = quota.Limits{CallsPerMinute: 1e9}
			o := governor.Options{Config: c}
			if name == "file" {
				file, err := governor.OpenFile(filepath.Join(b.TempDir(), "use.json"))
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = file.Close() }()
				o.Store = file
			}
			g, err := governor.New(o)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = g.Close() }()
			b.ReportAllocs()
			for b.Loop() {
				d, err := g.Approve(ask(100))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 80}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
