package governor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// What happens while somebody waits is said at once, and ends on time, with nobody asking.
func TestWhoWaitsIsHeardOfAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		limits quota.Limits
		do     func(t *testing.T, g *governor.Governor)
		want   []string
		atOnce int
	}{
		"refused at once": {quota.Limits{CallsPerMinute: 60, Burst: 1}, func(t *testing.T, g *governor.Governor) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			defer cancel()
			if _, err := g.Approve(ask(1)); err != nil {
				t.Fatal(err)
			}
			_, err := g.ApproveWait(ctx, ask(1))
			denied(t, err, quota.CodeThrottled)
		}, []string{"0s rate:throttle model m THROTTLED", "1s rate:resume model m"}, 1},
		"approved at once": {quota.Limits{SoftTokenBudget: 10, SoftTokenWindowMS: 1000}, func(t *testing.T, g *governor.Governor) {
			if _, err := g.ApproveWait(t.Context(), ask(9)); err != nil {
				t.Fatal(err)
			}
		}, []string{"0s rate:softPressure model m"}, 1},
		"a reservation that is refused": {quota.Limits{CallsPerMinute: 60, Burst: 1}, func(t *testing.T, g *governor.Governor) {
			if _, err := g.Approve(ask(1)); err != nil {
				t.Fatal(err)
			}
			denied(t, reserve(t, g, &waker{}).Refuse(time.Second), quota.CodeThrottled)
		}, []string{"0s rate:throttle model m THROTTLED", "1s rate:resume model m"}, 1},
		"a reservation that brings pressure": {quota.Limits{SoftTokenBudget: 10, SoftTokenWindowMS: 1000}, func(t *testing.T, g *governor.Governor) {
			r, err := g.Reserve(ask(9), &waker{})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.Reserve(); err != nil {
				t.Fatal(err)
			}
		}, []string{"0s rate:softPressure model m"}, 1},
		"a reservation that is given back": {quota.Limits{CallsPerMinute: 1, Burst: 1}, func(t *testing.T, g *governor.Governor) {
			r, err := g.Reserve(ask(1), &waker{})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.Reserve(); err != nil {
				t.Fatal(err)
			}
			_, err = g.Approve(ask(1))
			denied(t, err, quota.CodeThrottled)
			synctest.Wait()
			r.Back()
		}, []string{"0s rate:throttle model m THROTTLED", "0s rate:resume model m"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := listen()
				g := open(t, governor.Options{Config: oneModel(c.limits), OnEvent: h.event})
				c.do(t, g)
				synctest.Wait()
				h.want(t, c.want[:c.atOnce]...)
				time.Sleep(time.Minute)
				h.want(t, c.want...)
			})
		})
	}
}

// A refusal is said by the time that its caller has it.
func TestAReservationThatFindsNoPlaceIsSaidAtOnce(t *testing.T) {
	h := listen()
	g := open(t, governor.Options{Config: oneModel(quota.Limits{}), OnEvent: h.event})
	_, err := g.Reserve(quota.Request{Model: "unknown"}, &waker{})
	denied(t, err, quota.CodeModelNotConfigured)
	if len(h.events) != 1 || h.events[0].Type != quota.EventDenied {
		t.Errorf("heard %+v", h.events)
	}
}

// What a slow subscriber did not get is counted.
func TestEventsThatASlowSubscriberLost(t *testing.T) {
	c := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})
	c.EventBuffer = 2
	g := open(t, governor.Options{Config: c})
	busy := false
	defer g.Subscribe(func(quota.Event) {
		if !busy {
			busy = true
			for i := range 5 {
				_ = g.UpdateConfig(fmt.Appendf(nil, `{"models":{"m":{"burst":%d}}}`, i+3))
			}
		}
	})()
	if err := g.UpdateConfig([]byte(`{"models":{"m":{"burst":2}}}`)); err != nil {
		t.Fatal(err)
	}
	if s := g.Statistics(); s.EventsLost != 3 {
		t.Errorf("%d events are lost, want 3 of the 5 that came meanwhile", s.EventsLost)
	}
}

// How an agent should slow down, and when a budget runs out, are asked of the shell too.
func TestFactorAndForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1, MaxDailyTokens: 1000})
		g := open(t, governor.Options{Config: c})
		if f := g.Factor(ask(1)); f != 1 {
			t.Errorf("without pressure the factor is %v", f)
		}
		for range 2 {
			_, _ = g.Approve(ask(10))
		}
		if f := g.Factor(ask(1)); f < 2 {
			t.Errorf("throttled, the factor is %v", f)
		}
		time.Sleep(time.Minute)
		if all := g.Forecast(quota.Scope{Model: "m"}); len(all) < 2 || all[1].Remaining != 990 {
			t.Errorf("%+v", all)
		}
	})
}

// A burst that the provider refused is spread from then on, which the log says once.
func TestARefusedBurstIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 60}), Log: slog.New(slog.NewTextHandler(&out, nil))})
		for range 2 {
			d, err := g.Approve(ask(1))
			if err != nil {
				t.Fatal(err)
			}
			g.Overrun(d.Permit)
			if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 1}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if n := strings.Count(out.String(), "[RG][ADAPT] the provider refused a burst"); n != 1 {
			t.Errorf("said %d times:\n%s", n, out.String())
		}
		approved := 0
		for range 60 {
			if _, err := g.Approve(ask(1)); err == nil {
				approved++
			}
		}
		if approved > 30 {
			t.Errorf("%d calls at once after a burst was refused", approved)
		}
	})
}

// What another part of the program refused begins an episode here too, and ends it.
func TestWhatIsHeldBackElsewhereIsAnEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := listen()
		g := open(t, governor.Options{Config: oneModel(quota.Limits{}), OnEvent: h.event})
		g.HoldBack(ask(1), 3*time.Second)
		time.Sleep(time.Minute)
		h.want(t, "0s rate:throttle global THROTTLED", "3s rate:resume global")
	})
}

func TestThrottleOnceAndResumeOnTimeWithNobodyAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := listen()
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1}), OnEvent: h.event})
		if _, err := g.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			_, err := g.Approve(ask(1))
			denied(t, err, quota.CodeThrottled)
		}
		h.want(t, "0s rate:throttle model m THROTTLED")
		time.Sleep(time.Hour)
		h.want(t, "0s rate:throttle model m THROTTLED", "1s rate:resume model m")
	})
}

func TestSubscribersHearInOrderOutsideTheLockUntilTheyCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})})
		var seqs []uint64
		cancel := g.Subscribe(func(e quota.Event) {
			seqs = append(seqs, e.Seq) // one at a time: the race detector would tell
			g.Snapshot()               // and not under the lock
			if e.Type == quota.EventThrottle {
				_, _ = g.Approve(ask(1)) // events of a subscriber's own calls come after
			}
		})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					_, _ = g.Approve(ask(1))
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.IsSorted(seqs) || len(slices.Compact(slices.Clone(seqs))) != len(seqs) || len(seqs) < 4 {
			t.Errorf("%d events, in order %v", len(seqs), slices.IsSorted(seqs))
		}
		before := len(seqs)
		cancel()
		if err := g.UpdateConfig([]byte(`{"models":{"m":{"burst":2}}}`)); err != nil {
			t.Fatal(err)
		}
		if len(seqs) != before {
			t.Error("called after cancel")
		}
	})
}

func TestASubscriberThatPanicsDoesNotSilenceTheOthers(t *testing.T) {
	g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60})})
	cancel := g.Subscribe(func(quota.Event) { panic("mine") })
	func() {
		defer func() { _ = recover() }()
		_ = g.UpdateConfig([]byte(`{"models":{"m":{"burst":2}}}`))
		t.Error("the panic was swallowed")
	}()
	cancel()
	h := listen()
	defer g.Subscribe(h.event)()
	if err := g.UpdateConfig([]byte(`{"models":{"m":{"burst":3}}}`)); err != nil || len(h.events) != 1 {
		t.Errorf("%v, heard %v", err, h.events)
	}
}

func TestEachTransitionAndRefusalHasItsTag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		g := open(t, governor.Options{
			Config: quota.Config{Models: map[string]quota.Model{
				"m": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 1}}, "day": {Limits: quota.Limits{MaxDailyTokens: 10}},
				"soft": {Limits: quota.Limits{SoftTokenBudget: 10, SoftTokenWindowMS: 1000}},
			}},
			Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		for range 2 {
			_, _ = g.Approve(quota.Request{Model: "m", Reason: "a note of the caller"})
		}
		d, _ := g.Approve(quota.Request{Model: "day", InputTokens: 10})
		_, _ = g.RecordUsage(d.Permit, quota.Usage{Input: 10})
		_, _ = g.Approve(quota.Request{Model: "soft", InputTokens: 9})
		_ = g.UpdateConfig([]byte(`{"models":{"m":{"burst":2}}}`))
		_ = g.UpdateConfig([]byte(`{"models":{"m":{"burst":-2}}}`))
		_ = g.Replace(oneModel(quota.Limits{Burst: -3}))
		g.Backoff(quota.Scope{Model: "m"}, quota.Decision{Code: quota.CodeThrottled})
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, want := range []string{
			`level=DEBUG msg="[RG][APPROVE] refused" scope="model m" model=m reason=THROTTLED code=RATE_THROTTLED retry_in_ms=1000` + "\n",
			`level=WARN msg="[RG][THROTTLE] calls have to wait" scope="model m" model=m reason=THROTTLED`,
			`level=INFO msg="[RG][RESUME] calls may go on" scope="model m"`,
			`level=INFO msg="[RG][SOFT] under pressure" scope="model soft" model=soft utilization=0.9`,
			`level=WARN msg="[RG][HARD] the daily cap is used up" scope="model day" model=day`,
			`level=INFO msg="[RG][CONFIG] configuration swapped"`,
			`level=WARN msg="[RG][CONFIG] patch rejected" error="quota: models.m.burst is -2`,
			`level=WARN msg="[RG][CONFIG] configuration rejected" error="quota: models.m.burst is -3`,
			`level=DEBUG msg="[RG][ADAPT] scale changed"`, `msg="[RG][APPROVE] client backs off"`,
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no line %s in\n%s", want, out.String())
			}
		}
		if strings.Contains(out.String(), "a note") {
			t.Error("the caller's note is in the log")
		}
	})
}
