package headway_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/reason"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	ms  = time.Millisecond
	sec = time.Second
)

// noJitter makes waits exact.
func noJitter(c headway.Config) headway.Config {
	c.JitterMax = -1
	if c.Law == "" {
		c.Law = "aimd" // its intervals are easy to predict
	}
	return c
}

func newGovernor(t testing.TB, c headway.Config) *headway.Governor {
	t.Helper()
	g, err := headway.New(noJitter(c))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func acquire(t testing.TB, g *headway.Governor) headway.Permit {
	t.Helper()
	p, err := g.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func refusal(t testing.TB, err error) *reason.Refusal {
	t.Helper()
	r, ok := errors.AsType[*reason.Refusal](err)
	if !ok {
		t.Fatalf("got %v, want a refusal", err)
	}
	return r
}

func TestConfigNamesFieldValueAndBound(t *testing.T) {
	for _, tt := range []struct {
		c    headway.Config
		want string
	}{
		{headway.Config{MaxWait: -1}, "headway: max wait is -1ns"},
		{headway.Config{PermitTimeout: -1}, "headway: permit timeout is -1ns"},
		{headway.Config{Ceiling: -1}, "headway: control: ceiling is -1ns"},
	} {
		if _, err := headway.New(tt.c); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}

func TestAcquireWaitsForTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{})
		start := time.Now()
		acquire(t, g)
		acquire(t, g).Settle(headway.Outcome{Class: reason.OK})
		if got := time.Since(start); got != sec {
			t.Fatalf("the second attempt came after %v, want the initial 1s", got)
		}
	})
}

func TestRetryAfterDelaysOnlyTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{Tolerance: -1})
		acquire(t, g).Settle(headway.Outcome{Class: reason.Throttled, RetryAfter: 100 * sec})
		start := time.Now()
		var gaps []time.Duration
		for range 4 {
			acquire(t, g).Settle(headway.Outcome{Class: reason.OK})
			gaps = append(gaps, time.Since(start))
			start = time.Now()
		}
		// 2 s: the interval when the delayed attempt went, doubled once for the throttle.
		want := []time.Duration{100 * sec, 2 * sec, 1900 * ms, 1800 * ms}
		for i := range want {
			if gaps[i] != want[i] {
				t.Fatalf("gaps %v, want %v", gaps, want)
			}
		}
	})
}

// Two attempts in flight are refused one after the other: the wait of the later response
// counts only if it ends later.
func TestALaterShorterRetryAfterDoesNotShortenALongerOne(t *testing.T) {
	for _, tt := range []struct{ first, second, want time.Duration }{
		{100 * sec, 5 * sec, 100 * sec}, {5 * sec, 100 * sec, 110 * sec}, {100 * sec, 90 * sec, 100 * sec},
		{100 * sec, 0, 100 * sec}, {20 * sec, 15 * sec, 25 * sec},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGovernor(t, headway.Config{Ceiling: ms, Initial: ms, Tolerance: -1})
			one, two := acquire(t, g), acquire(t, g)
			start := time.Now()
			one.Settle(headway.Outcome{Class: reason.Throttled, RetryAfter: tt.first})
			time.Sleep(10 * sec) // shorter than any first wait but one
			two.Settle(headway.Outcome{Class: reason.Throttled, RetryAfter: tt.second})
			acquire(t, g).Settle(headway.Outcome{Class: reason.OK})
			if got := time.Since(start); got < tt.want || got > tt.want+sec {
				t.Errorf("%v, and 10s later %v: the next attempt came after %v, want %v", tt.first, tt.second, got, tt.want)
			}
		})
	}
}

func TestAWaitBeyondMaxWaitIsARefusalThatSaysWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{Name: "acme"})
		acquire(t, g).Settle(headway.Outcome{Class: reason.Throttled, RetryAfter: time.Hour})
		before := time.Now()
		_, err := g.Acquire(t.Context())
		r := refusal(t, err)
		if r.Reason != reason.RateLimited.Reason() || r.Scope != "acme" || !r.RetryAt.Equal(before.Add(time.Hour)) {
			t.Fatalf("got %+v", r)
		}
		if time.Since(before) != 0 {
			t.Fatal("it waited before it refused")
		}
	})
}

func TestAnIntervalBeyondMaxWaitIsRefusedForItsPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{MaxWait: 3 * sec})
		for range 2 {
			acquire(t, g).Settle(headway.Outcome{Class: reason.Throttled})
		}
		acquire(t, g)
		if _, err := g.Acquire(t.Context()); refusal(t, err).Reason != reason.RateLimited.Reason() {
			t.Fatal(err)
		}
	})
}

func TestADeadlineThatCannotBeMetIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{})
		acquire(t, g)
		ctx, cancel := context.WithTimeout(t.Context(), sec-1)
		defer cancel()
		start := time.Now()
		_, err := g.Acquire(ctx)
		if r := refusal(t, err); r.Reason != reason.Deadline || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
			t.Fatalf("got %v after %v", err, time.Since(start))
		}
		// A deadline that can be met is served, and those behind it count its interval.
		ctx2, cancel2 := context.WithTimeout(t.Context(), sec)
		defer cancel2()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := g.Acquire(ctx2); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if _, err := g.Acquire(ctx2); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
			t.Errorf("behind the queue: %v after %v", err, time.Since(start))
		}
		wg.Wait()
	})
}

func TestCancelLetsTheNextWaiterGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{})
		acquire(t, g)
		ctx, cancel := context.WithCancel(t.Context())
		var first, second error
		var at time.Duration
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { _, first = g.Acquire(ctx) })
		synctest.Wait()
		wg.Go(func() {
			_, second = g.Acquire(t.Context())
			at = time.Since(start)
		})
		synctest.Wait()
		if g.Snapshot().Waiting != 2 {
			t.Fatalf("%d wait, want 2", g.Snapshot().Waiting)
		}
		cancel()
		wg.Wait()
		if r := refusal(t, first); r.Reason != reason.Canceled || !errors.Is(first, context.Canceled) {
			t.Errorf("canceled: %v", first)
		}
		if second != nil || at != sec {
			t.Errorf("the next one: %v at %v, want the place at 1s", second, at)
		}
	})
}

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{})
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				p := acquire(t, g)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				p.Settle(headway.Outcome{Class: reason.OK})
			})
			synctest.Wait()
		}
		wg.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("served in the order %v", order)
			}
		}
	})
}

func TestASettlementWakesAWaiterForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{Ceiling: ms, Initial: ms, MaxInFlight: 1})
		p := acquire(t, g)
		start := time.Now()
		time.AfterFunc(7*sec, func() { p.Settle(headway.Outcome{Class: reason.OK}) })
		acquire(t, g)
		if got := time.Since(start); got != 7*sec {
			t.Fatalf("served after %v, the place was free after 7s", got)
		}
	})
}

func TestAPermitIsSettledOnceAndNeverLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{Ceiling: ms, Initial: ms, MaxInFlight: 1, PermitTimeout: time.Minute})
		p := acquire(t, g)
		twin := p
		if !p.Settle(headway.Outcome{Class: reason.OK}) {
			t.Fatal("the first settlement did not count")
		}
		if p.Settle(headway.Outcome{Class: reason.OK}) || twin.Cancel() || (headway.Permit{}).Cancel() {
			t.Fatal("a second settlement counted")
		}
		acquire(t, g) // never settled
		start := time.Now()
		next := acquire(t, g)
		if got := time.Since(start); got < time.Minute || got > time.Minute+sec {
			t.Fatalf("the lost permit's place was free after %v, want its timeout of 1m", got)
		}
		if s := g.Snapshot(); s.Expired != 1 || s.InFlight != 1 {
			t.Fatalf("got %+v", s)
		}
		if twin.Settle(headway.Outcome{Class: reason.OK}) {
			t.Fatal("a stale permit settled the slot's new one")
		}
		next.Cancel()
	})
}

func TestAnOpenCircuitFailsAllAtOnceThenProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []event.Event
		g := newGovernor(t, headway.Config{
			Ceiling: ms, Initial: ms,
			OnEvent: func(e event.Event) {
				if e.Type == event.Circuit {
					events = append(events, e)
				}
			},
		})
		for range 5 {
			acquire(t, g).Settle(headway.Outcome{Class: reason.Failed})
		}
		start := time.Now()
		_, err := g.Acquire(t.Context())
		if r := refusal(t, err); r.Reason != reason.CircuitOpen.Reason() || !r.RetryAt.Equal(start.Add(time.Minute)) {
			t.Fatalf("got %+v", r)
		}
		time.Sleep(time.Minute)
		acquire(t, g).Settle(headway.Outcome{Class: reason.OK})
		acquire(t, g).Cancel()
		var moves []string
		for _, e := range events {
			moves = append(moves, e.Circuit.Previous+">"+e.Circuit.State)
		}
		want := []string{"closed>open", "open>half_open", "half_open>closed"}
		if len(moves) != 3 || moves[0] != want[0] || moves[1] != want[1] || moves[2] != want[2] {
			t.Fatalf("moves %v, want %v", moves, want)
		}
	})
}

func TestRateEventsAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []event.Event
		g := newGovernor(t, headway.Config{Ceiling: 10 * ms, Initial: 100 * ms, Step: ms, OnEvent: func(e event.Event) { events = append(events, e) }})
		for range 1000 {
			acquire(t, g).Settle(headway.Outcome{Class: reason.OK})
		}
		if len(events) == 0 || len(events) > 6 {
			t.Fatalf("%d events for a thousand successes", len(events))
		}
		acquire(t, g).Settle(headway.Outcome{Class: reason.Throttled})
		last := events[len(events)-1]
		if last.Type != event.CollectionRate || last.Note != "back_off" || last.Rate.CurrentIntervalMS != 20 ||
			last.Rate.LastBackoff == nil || last.Rate.LastBackoff.AtIntervalMS != 10 || last.Rate.LastBackoff.Reason != reason.RateLimited.Reason() {
			t.Fatalf("got %+v", last)
		}
	})
}

func TestSnapshotSaysUnknownBeforeTheFirstResponse(t *testing.T) {
	g := newGovernor(t, headway.Config{Name: "acme"})
	if s := g.Snapshot(); s.Rate != nil || s.Circuit != "closed" || s.Connection != "acme" {
		t.Fatalf("got %+v", s)
	}
	acquire(t, g).Settle(headway.Outcome{Class: reason.OK})
	if s := g.Snapshot(); s.Rate == nil || s.Rate.CurrentIntervalMS != 900 || s.Rate.CeilingRatePerMin != 240 || s.Rate.LastBackoff != nil {
		t.Fatalf("got %+v", s.Rate)
	}
}

func TestSnapshotShowsLimitsAndTheirProvenance(t *testing.T) {
	owners := []event.Limit{
		{Kind: "token_bucket", Size: 240, WindowS: 60, Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1, Used: new(0.0)},
		{Kind: "concurrency", Size: 3, Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1, Used: new(0.0)},
	}
	for _, law := range []string{"aimd", "cycle"} {
		synctest.Test(t, func(t *testing.T) {
			var events []event.Event
			g := newGovernor(t, headway.Config{Law: law, MaxInFlight: 3, OnEvent: func(e event.Event) { events = append(events, e) }})
			if diff := cmp.Diff(owners, g.Snapshot().Limits); diff != "" {
				t.Errorf("%s, before the first response (-want +got):\n%s", law, diff)
			}
			acquire(t, g).Settle(headway.Outcome{Class: reason.OK, Facts: []control.Fact{
				{Name: "requests", Quota: 60, Remaining: 59, Window: time.Minute, Reset: time.Minute},
				{Name: "a name, with\nmore", PerCost: true, Refills: true, Quota: -1, Remaining: 5, Window: -1, Reset: -1},
				{Name: "slots", InFlight: true, Quota: 4, Remaining: 3, Window: -1, Reset: -1},
			}})
			want := append(slices.Clone(owners),
				event.Limit{Kind: "fixed_window", Size: 60, WindowS: 60, Unit: event.UnitRequests, Pool: "requests", Provenance: event.Advertised, Confidence: 1},
				event.Limit{Kind: "token_bucket", Unit: event.UnitCost, Provenance: event.Advertised, Confidence: 1},
				event.Limit{Kind: "concurrency", Size: 4, Unit: event.UnitRequests, Pool: "slots", Provenance: event.Advertised, Confidence: 1})
			want[0].Used, want[0].RoomAt = new(1.0), time.Now().Add(250*time.Millisecond).Round(0)
			if law == "cycle" {
				want[2].Used = new(1.0)
			}
			got := g.Snapshot().Limits
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", law, diff)
			}
			if law == "aimd" && (len(events) == 0 || !cmp.Equal(events[0].Limits, got)) {
				t.Errorf("the events are %+v", events)
			}
			time.Sleep(250 * time.Millisecond)
			if l := g.Snapshot().Limits[0]; *l.Used != 0 || !l.RoomAt.IsZero() {
				t.Errorf("after the ceiling's interval %+v", l)
			}
		})
	}
}

func TestCloseRefusesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{})
		p := acquire(t, g)
		var refused atomic.Int32
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, err := g.Acquire(t.Context())
				if refusal(t, err).Reason == reason.Closed {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		g.Close()
		wg.Wait()
		if refused.Load() != 5 || !p.Settle(headway.Outcome{Class: reason.OK}) {
			t.Fatalf("%d of 5 were refused", refused.Load())
		}
		if _, err := g.TryAcquire(); refusal(t, err).Reason != reason.Closed {
			t.Fatal(err)
		}
	})
}

func TestTryAcquireNeverWaitsAndNeverOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{})
		if _, err := g.TryAcquire(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := g.TryAcquire()
		if r := refusal(t, err); r.Reason != reason.ConservativeStart || !r.RetryAt.Equal(start.Add(sec)) {
			t.Fatalf("got %+v", r)
		}
		var wg sync.WaitGroup
		wg.Go(func() { acquire(t, g) })
		synctest.Wait()
		if _, err := g.TryAcquire(); err == nil {
			t.Fatal("it overtook one who waits")
		}
		wg.Wait()
	})
}

// With real goroutines and the real clock, the number of permits is bounded by the time
// that passed, and no attempt is refused because of contention.
func TestManyGoroutinesKeepTheCeilingAndNoneIsRefused(t *testing.T) {
	g := newGovernor(t, headway.Config{Ceiling: 100 * time.Microsecond, Initial: 100 * time.Microsecond, MaxInFlight: 8})
	start := time.Now()
	var inFlight, most, done atomic.Int32
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 20 {
				p, err := g.Acquire(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				n := inFlight.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				inFlight.Add(-1)
				p.Settle(headway.Outcome{Class: reason.OK})
				done.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if done.Load() != 1280 || most.Load() > 8 {
		t.Fatalf("%d done, %d in flight at most", done.Load(), most.Load())
	}
	if least := 1279 * 100 * time.Microsecond; took < least {
		t.Fatalf("1280 attempts in %v, the ceiling allows no less than %v", took, least)
	}
}

func TestConnectionsAreIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := headway.NewConnections[string](noJitter(headway.Config{Name: "agents"}))
		if err != nil {
			t.Fatal(err)
		}
		a, b := c.For("a"), c.For("b")
		if a == b || c.For("a") != a || c.Len() != 2 {
			t.Fatal("a key must have one governor of its own")
		}
		acquire(t, a).Settle(headway.Outcome{Class: reason.Throttled, RetryAfter: time.Hour})
		start := time.Now()
		acquire(t, b).Settle(headway.Outcome{Class: reason.OK})
		if time.Since(start) != 0 || b.Snapshot().Rate.LastBackoff != nil {
			t.Fatal("a throttle on one connection slowed another")
		}
		if _, err := a.Acquire(t.Context()); refusal(t, err).Scope != "agents/a" {
			t.Fatal(err)
		}
		if !c.Forget("a") || c.Forget("a") || c.For("a") == a {
			t.Fatal("forget")
		}
	})
}

// One attempt in a hundred is refused for load, whatever the pace.
func TestASnapshotShowsWhatIsRefusedForLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := headway.New(headway.Config{Ceiling: 50 * time.Millisecond, JitterMax: -1, NoBreaker: true})
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 7))
		for range 5000 {
			p, err := g.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
			o := headway.Outcome{Class: reason.OK}
			if rng.IntN(100) == 0 {
				o.Class = reason.Overloaded
			}
			p.Settle(o)
		}
		if r := g.Snapshot().Rate; r == nil || r.RefusedForLoad < 0.005 || r.RefusedForLoad > 0.03 {
			t.Errorf("the rate is %+v", r)
		}
	})
}
