package headway_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// served queues the requests one after the other and returns the flows of the first ones
// served, in order.
func served(t *testing.T, g *headway.Governor, most int, requests ...headway.Request) string {
	t.Helper()
	var (
		mu    sync.Mutex
		order []string
		wg    sync.WaitGroup
	)
	acquire(t, g).Settle(headway.Outcome{Class: headway.OK}) // so that the next attempt has to wait
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, r := range requests {
		wg.Go(func() {
			p, err := g.AcquireFor(ctx, r)
			if err != nil {
				return
			}
			mu.Lock()
			if order = append(order, r.Flow); len(order) == most {
				cancel()
			}
			mu.Unlock()
			p.Settle(headway.Outcome{Class: headway.OK})
		})
		synctest.Wait()
	}
	wg.Wait()
	return strings.Join(order, "")
}

// even returns a governor of one attempt a second.
func even(t *testing.T) *headway.Governor {
	t.Helper()
	return newGovernor(t, headway.Config{Ceiling: sec, Initial: sec, Tolerance: -1, MaxWait: time.Hour})
}

func times(n int, rs ...headway.Request) (all []headway.Request) {
	for range n {
		all = append(all, rs...)
	}
	return all
}

func TestWhoGoesNext(t *testing.T) {
	for name, c := range map[string]struct {
		requests []headway.Request
		want     string
	}{
		"the greater priority":        {[]headway.Request{{Flow: "a"}, {Flow: "b", Priority: -1}, {Flow: "c", Priority: 1}}, "cab"},
		"who came first":              {[]headway.Request{{Flow: "a"}, {Flow: "b"}, {Flow: "c"}}, "abc"},
		"whose flow was served least": {[]headway.Request{{Flow: "a"}, {Flow: "a"}, {Flow: "b"}}, "aba"},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := served(t, even(t), len(c.requests), c.requests...); got != c.want {
				t.Errorf("%s: served %s, want %s", name, got, c.want)
			}
		})
	}
}

func TestSharesGoByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := served(t, even(t), 40, times(40, headway.Request{Flow: "a", Weight: 1}, headway.Request{Flow: "b", Weight: 3})...)
		if a, b := strings.Count(got, "a"), strings.Count(got, "b"); a < 9 || a > 11 || a+b != 40 {
			t.Errorf("%d and %d of 40, want them as 1 to 3: %s", a, b, got)
		}
	})
}

// Attempts that went before any attempt had to wait count for the shares of those that
// wait.
func TestABurstIsMadeGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{Ceiling: ms, Initial: sec, Tolerance: 10 * sec})
		acquire(t, g).Settle(headway.Outcome{Class: headway.OK})
		time.Sleep(time.Hour)
		for range 10 { // from idle credit
			p, err := g.AcquireFor(t.Context(), headway.Request{Flow: "a"})
			if err != nil {
				t.Fatal(err)
			}
			p.Cancel()
		}
		time.Sleep(ms)
		got := served(t, g, 20, times(20, headway.Request{Flow: "a"}, headway.Request{Flow: "b"})...)
		if a := strings.Count(got, "a"); a > 8 {
			t.Errorf("after 10 of a burst a was served %d of 20: %s", a, got)
		}
	})
}

// A refusal says when the caller would be served: after the attempts that already wait.
func TestARefusalCountsTheWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := even(t)
		acquire(t, g).Settle(headway.Outcome{Class: headway.OK})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if p, err := g.AcquireFor(ctx, headway.Request{Flow: "a"}); err == nil {
					p.Cancel()
				}
			})
		}
		synctest.Wait()
		for flow, want := range map[string]time.Duration{"a": 21 * sec, "b": 2 * sec} {
			start := time.Now()
			short, cancel := context.WithTimeout(t.Context(), sec-1)
			_, err := g.AcquireFor(short, headway.Request{Flow: flow})
			cancel()
			r := refusal(t, err)
			if wait := r.RetryAt.Sub(start); r.Reason != reason.Deadline || wait < want-sec || wait > want+sec || time.Since(start) != 0 {
				t.Errorf("of flow %s: %v after %v, to come back in %v, want about %v", flow, err, time.Since(start), wait, want)
			}
		}
		cancel()
		wg.Wait()
		if s := g.Snapshot(); s.Waiting != 0 || s.InFlight != 0 || s.Held != (headway.Wait{}) {
			t.Errorf("left is %+v", s)
		}
	})
}

// No attempt is refused for a rate that is not known yet: the remaining quota that the
// provider reports lets waiting attempts go.
func TestWaitersWithinTheReportedQuotaAreNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{Law: control.DefaultLaw, Ceiling: 10 * ms, Initial: sec, MaxWait: 10 * time.Minute})
		p := acquire(t, g)
		time.Sleep(50 * ms)
		p.Settle(headway.Outcome{Class: headway.OK, Facts: []control.Fact{{Name: "requests", Refills: true, Quota: 60, Remaining: 57, Window: -1, Reset: 59800 * ms}}})
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				p, err := g.AcquireFor(ctx, headway.Request{})
				if err != nil {
					t.Errorf("%v, want a permit", err)
					return
				}
				p.Settle(headway.Outcome{Class: headway.OK})
			})
		}
		wg.Wait()
	})
}

// Attempts that wait in vain are refused together, but they cannot be served together
// when they come back.
func TestAttemptsRefusedTogetherComeBackInTurn(t *testing.T) {
	for name, c := range map[string]struct{ maxWait, deadline time.Duration }{
		"their deadlines":  {time.Hour, 30 * sec},
		"the longest wait": {30 * sec, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGovernor(t, headway.Config{Ceiling: sec, Initial: sec, Tolerance: -1, MaxWait: c.maxWait})
			p := acquire(t, g)
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
			defer cancel()
			errs := make([]error, 10)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { _, errs[i] = g.AcquireFor(ctx, headway.Request{}) })
				synctest.Wait()
			}
			p.Settle(headway.Outcome{Class: headway.Throttled, RetryAfter: 2 * time.Minute})
			wg.Wait()
			next := 2 * time.Minute
			for i, err := range errs {
				wait := time.Until(refusal(t, err).RetryAt)
				if wait < next || i == 0 && wait != next {
					t.Errorf("%s: number %d comes back in %v, want %v", name, i, wait, next)
				}
				next = wait + sec
			}
		})
	}
}

// An attempt that is refused for the pace of a pool comes back when that pool has
// capacity. Attempts of another pool that are refused at the same time take none of it.
func TestRefusalsOfAnotherPoolAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{Law: "aimd", Ceiling: 10 * time.Millisecond, Initial: 10 * sec, Tolerance: -1, JitterMax: -1, MaxWait: 5 * sec, Passive: true})
		g.RestorePools(map[string]headway.State{"a": {Law: "aimd", Version: 1, Interval: 10 * sec}, "b": {Law: "aimd", Version: 1, Interval: 10 * sec}})
		pools := []string{"a", "b", "a", "b", "a", "b"}
		for _, pool := range pools[:2] {
			p, err := g.AcquireFor(t.Context(), headway.Request{Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Cancel()
		}
		time.Sleep(6 * sec)
		errs := make([]error, len(pools))
		var wg sync.WaitGroup
		for i, pool := range pools {
			wg.Go(func() { _, errs[i] = g.AcquireFor(t.Context(), headway.Request{Pool: pool}) })
			synctest.Wait()
		}
		wg.Wait()
		for i, err := range errs {
			if i < 2 {
				if err != nil {
					t.Errorf("the first of %s: %v", pools[i], err)
				}
				continue
			}
			if wait, want := time.Until(refusal(t, err).RetryAt), time.Duration(i/2)*10*sec; (want - wait).Abs() > 50*time.Millisecond {
				t.Errorf("number %d of %s comes back in %v, want %v", i/2+1, pools[i], wait, want)
			}
		}
	})
}

// If the waiter that owns the timer leaves, another one gets the timer.
func TestAWaiterAlwaysOwnsTheTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := even(t)
		acquire(t, g).Settle(headway.Outcome{Class: headway.OK})
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if i%2 == 0 {
				cancel = func() {}
			}
			wg.Go(func() {
				defer cancel()
				if p, err := g.AcquireFor(ctx, headway.Request{Priority: i}); err == nil {
					p.Settle(headway.Outcome{Class: headway.OK})
				}
			})
			synctest.Wait()
			if i%2 == 1 {
				cancel() // the one with the greatest priority, who is next
				synctest.Wait()
			}
		}
		wg.Wait()
		if took := time.Since(start); took != 5*sec {
			t.Errorf("five were served in %v, want one a second", took)
		}
	})
}

func BenchmarkAcquireFor(b *testing.B) {
	g, err := headway.New(unlimited())
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		p, err := g.AcquireFor(ctx, headway.Request{Flow: "a", Weight: 3})
		if err != nil {
			b.Fatal(err)
		}
		p.Settle(headway.Outcome{Class: headway.OK})
	}
}

// Every wait ends, served, refused or abandoned, whatever the others do, and nothing is
// left behind. In a synctest bubble a lost wake-up is a deadlock.
func TestEveryWaitEnds(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			g := newGovernor(t, headway.Config{
				Ceiling: 10 * ms, Initial: 100 * ms, MaxInFlight: random.IntN(4), MaxWait: time.Hour, PermitTimeout: time.Minute, NoBreaker: true,
			})
			pots := []*pot{{key: 1, every: sec}, {key: 2, every: 50 * ms}}
			var served, refused atomic.Int64
			var wg sync.WaitGroup
			for range 200 {
				r := headway.Request{Priority: random.IntN(3), Flow: string(rune('a' + random.IntN(4))), Weight: random.IntN(5), Cost: random.Float64() * 10}
				if n := random.IntN(3); n < len(pots) {
					r.Budget = pots[n]
				}
				come, stay := time.Duration(random.Int64N(int64(20*sec))), time.Duration(random.Int64N(int64(30*sec)))
				takes, canceled, class := time.Duration(random.Int64N(int64(sec))), random.IntN(2) == 0, headway.Class(random.IntN(4))
				wg.Go(func() {
					time.Sleep(come)
					ctx, cancel := context.WithTimeout(t.Context(), stay)
					defer cancel()
					if canceled {
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(stay, cancel)
					}
					p, err := g.AcquireFor(ctx, r)
					if err != nil {
						refused.Add(1)
						return
					}
					served.Add(1)
					time.Sleep(takes)
					p.Settle(headway.Outcome{Class: class, RetryAfter: takes})
				})
			}
			wg.Wait()
			if served.Load()+refused.Load() != 200 || served.Load() == 0 {
				t.Errorf("seed %d: %d served, %d refused", seed, served.Load(), refused.Load())
			}
			if s := g.Snapshot(); s.Waiting != 0 || s.InFlight != 0 || s.Expired != 0 {
				t.Errorf("seed %d: left is %+v", seed, s)
			}
		})
	}
}

func TestAPermitSaysWhatItWaitedFor(t *testing.T) {
	ok := headway.Outcome{Class: reason.OK}
	for _, tt := range []struct {
		name   string
		config headway.Config
		first  headway.Outcome
		want   headway.Wait
	}{
		{"the owner's ceiling", headway.Config{Law: "aimd", Initial: 250 * time.Millisecond}, ok,
			headway.Wait{Reason: reason.Pacing, Bound: reason.BoundCeiling}},
		{"a law on its way to the ceiling", headway.Config{Law: "aimd", Initial: time.Second}, ok,
			headway.Wait{Reason: reason.Pacing, Bound: reason.BoundLearning}},
		{"a law that the provider has slowed down", headway.Config{Law: "aimd", Initial: 250 * time.Millisecond},
			headway.Outcome{Class: reason.Throttled}, headway.Wait{Reason: reason.Pacing, Bound: reason.BoundLimit}},
		{"Retry-After", headway.Config{Law: "aimd"}, headway.Outcome{Class: reason.Throttled, RetryAfter: time.Minute},
			headway.Wait{Reason: reason.Cooldown, Bound: reason.BoundCooldown}},
		{"no answer yet", headway.Config{}, headway.Outcome{}, headway.Wait{Reason: reason.ConservativeStart, Bound: reason.BoundLearning}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.config.Tolerance = -1
				g := newGovernor(t, tt.config)
				first := acquire(t, g)
				if first.Wait() != (headway.Wait{}) {
					t.Fatalf("the first attempt waited for %+v", first.Wait())
				}
				first.Settle(tt.first)
				p := acquire(t, g)
				if p.Wait() != tt.want {
					t.Errorf("the second attempt waited for %+v, want %+v", p.Wait(), tt.want)
				}
				p.Settle(ok)
				time.Sleep(time.Hour)
				if p = acquire(t, g); p.Wait() != (headway.Wait{}) {
					t.Errorf("an attempt after an hour waited for %+v", p.Wait())
				}
			})
		})
	}
}

// An attempt that waits for a held pool lets attempts of other pools pass, in the queue
// and with a budget.
func TestAHeldPoolHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := headway.New(headway.Config{Passive: true, NoBreaker: true})
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.AcquireFor(t.Context(), headway.Request{Pool: "held"})
		if err != nil {
			t.Fatal(err)
		}
		p.Settle(headway.Outcome{Class: headway.Throttled, RetryAfter: time.Minute})
		began := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				p, err := g.AcquireFor(t.Context(), headway.Request{Pool: "held", Priority: 9})
				if err != nil {
					t.Error(err)
					return
				}
				if time.Since(began) < time.Minute {
					t.Errorf("the held pool was served after %v", time.Since(began))
				}
				p.Settle(headway.Outcome{Class: headway.OK})
			})
		}
		synctest.Wait()
		for range 10 {
			p, err := g.AcquireFor(t.Context(), headway.Request{Pool: "free"})
			if err != nil || time.Since(began) != 0 {
				t.Fatalf("the free pool was served after %v, %v", time.Since(began), err)
			}
			p.Settle(headway.Outcome{Class: headway.OK})
		}
		s := g.Snapshot()
		if s.Waiting != 3 || len(s.Pools) != 2 || s.Pools[0].Name != "free" || s.Pools[1].Name != "held" {
			t.Fatalf("%+v", s)
		}
		if s.Pools[0].Rate != nil || !s.Pools[0].RetryAt.IsZero() || !s.RetryAt.IsZero() {
			t.Errorf("the free pool, or the account, is held: %+v", s)
		}
		if got := s.Pools[1].RetryAt; s.Pools[1].Rate == nil || got.Sub(began) < time.Minute || got.Sub(began) > time.Minute+time.Second {
			t.Errorf("the held pool: %+v", s.Pools[1])
		}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var refusal *headway.Refusal
		if _, err := g.AcquireFor(short, headway.Request{Pool: "held"}); !errors.As(err, &refusal) || time.Since(began) != 0 || refusal.RetryAt.Sub(began) < time.Minute {
			t.Errorf("who has ten seconds was refused after %v: %v", time.Since(began), err)
		}
		wg.Wait()
	})
}

// What pools learned survives the states that a program stores.
func TestWhatPoolsLearnedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := headway.Config{Law: "aimd", Ceiling: 10 * time.Millisecond, Initial: time.Second, JitterMax: -1}
		g, err := headway.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if all := g.LearnedPools(); all != nil {
			t.Errorf("%v is known of pools that there are none of", all)
		}
		for i := range 16 {
			p, err := g.AcquireFor(t.Context(), headway.Request{Pool: "a"})
			if err != nil {
				t.Fatal(err)
			}
			o := headway.Outcome{Class: headway.OK}
			if i == 0 {
				o.Class = headway.Throttled // a pool without a refusal learns nothing
			}
			p.Settle(o)
		}
		learned := g.LearnedPools()
		if len(learned) != 1 || learned["a"].Interval != 500*time.Millisecond {
			t.Fatalf("%+v", learned)
		}
		again, err := headway.New(c)
		if err != nil {
			t.Fatal(err)
		}
		again.RestorePools(learned)
		p, err := again.AcquireFor(t.Context(), headway.Request{Pool: "a"})
		if err != nil {
			t.Fatal(err)
		}
		p.Settle(headway.Outcome{Class: headway.OK})
		if r := again.Snapshot().Pools[0].Rate; r == nil || r.CurrentIntervalMS != 400 {
			t.Errorf("%+v, want 400 ms after one more", r)
		}
	})
}
