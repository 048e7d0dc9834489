package control_test

import (
	"testing"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// teller is a limiter that tells what is left of it and when all is back, as
// OpenAI's headers do, whatever kind it is.
type teller interface {
	arrive(now time.Duration, cost float64) (ok bool, retryAfter time.Duration)
	tell(now time.Duration) control.Fact
}

// slidingWindow gives back what was used after a minute.
type slidingWindow struct {
	quota float64
	used  []use
}

type use struct {
	at   time.Duration
	cost float64
}

func (w *slidingWindow) sum(now time.Duration) (sum float64) {
	for len(w.used) > 0 && w.used[0].at+time.Minute <= now {
		w.used = w.used[1:]
	}
	for _, u := range w.used {
		sum += u.cost
	}
	return sum
}

func (w *slidingWindow) arrive(now time.Duration, cost float64) (bool, time.Duration) {
	over := w.sum(now) + cost - w.quota
	if over <= 0 {
		w.used = append(w.used, use{now, cost})
		return true, 0
	}
	for _, u := range w.used {
		if over -= u.cost; over <= 0 {
			return false, u.at + time.Minute - now
		}
	}
	return false, time.Minute
}

func (w *slidingWindow) tell(now time.Duration) control.Fact {
	f := control.Fact{Name: "x", Refills: true, Quota: w.quota, Remaining: w.quota - w.sum(now), Window: -1}
	if n := len(w.used); n > 0 {
		f.Reset = w.used[n-1].at + time.Minute - now
	}
	return f
}

// tokenBucket gives back bit by bit.
type tokenBucket struct {
	quota, level float64
	at           time.Duration
}

func (b *tokenBucket) fill(now time.Duration) {
	b.level = min(b.quota, b.level+b.quota/60*(now-b.at).Seconds())
	b.at = now
}

func (b *tokenBucket) arrive(now time.Duration, cost float64) (bool, time.Duration) {
	b.fill(now)
	if b.level < cost {
		return false, time.Duration((cost - b.level) / b.quota * float64(time.Minute))
	}
	b.level -= cost
	return true, 0
}

func (b *tokenBucket) tell(now time.Duration) control.Fact {
	b.fill(now)
	left := float64(int64(b.level))
	return control.Fact{
		Name: "x", Refills: true, Quota: b.quota, Remaining: left, Window: -1,
		Reset: time.Duration((b.quota - b.level) / b.quota * float64(time.Minute)),
	}
}

// follow plays a law against what tells of itself: one attempt at a time, each
// answered after a tenth of a second.
func follow(t *testing.T, l teller, span time.Duration, costs []float64, strangers time.Duration) (used float64, refused int, silence time.Duration) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: 10 * ms})
	now, last, next := time.Duration(0), -time.Hour, strangers
	for n := 0; now < span; {
		cost := costs[n%len(costs)]
		at := max(law.Hold(now, cost), last+law.Spacing())
		if at > now {
			now = at
			continue
		}
		for strangers > 0 && next <= now {
			l.arrive(next, 1)
			next += strangers
		}
		law.Sent(now, cost)
		if n > 0 {
			silence = max(silence, now-last)
		}
		last = now
		o := control.Observation{Sent: now, Now: now + 100*ms, Class: reason.OK, Estimate: cost, Cost: cost}
		ok, wait := l.arrive(now, cost)
		if ok {
			used += cost
			n++
		} else {
			o.Class, o.RetryAfter = reason.Throttled, wait
			refused++
		}
		f := l.tell(now)
		f.PerCost = len(costs) > 1
		o.Facts = []control.Fact{f}
		now += 100 * ms
		law.Observe(o)
	}
	return used, refused, silence
}

var one, mixed = []float64{1}, []float64{400, 1900, 700, 64, 1200, 300}

func TestAToldSlidingWindowIsNotTakenForABucket(t *testing.T) {
	const span = 30 * time.Minute
	for name, c := range map[string]struct {
		limit     teller
		costs     []float64
		quota     float64
		strangers time.Duration
		refused   int
		least     float64
	}{
		"attempts":       {&slidingWindow{quota: 60}, one, 60, 0, 0, 0.97}, // its name says bucket
		"cost":           {&slidingWindow{quota: 20_000}, mixed, 20_000, 0, 0, 0.9},
		"with strangers": {&slidingWindow{quota: 600}, one, 300, 200 * ms, 10, 0.95},
	} {
		used, refused, _ := follow(t, c.limit, span, c.costs, c.strangers)
		if part := used / (c.quota * span.Minutes()); refused > c.refused || part < c.least {
			t.Errorf("%s: %d refused, %.3f of the limit used, want at most %d and %.2f", name, refused, part, c.refused, c.least)
		}
	}
}

func TestAToldBucketIsNotTakenForASlidingWindow(t *testing.T) {
	const span = 30 * time.Minute
	for name, c := range map[string]struct {
		quota float64
		costs []float64
		pause time.Duration
	}{"attempts": {60, one, 3 * time.Second}, "cost": {20_000, mixed, 10 * time.Second}} {
		used, refused, silence := follow(t, &tokenBucket{quota: c.quota, level: c.quota}, span, c.costs, 0)
		if part := used / (c.quota * (1 + span.Minutes())); refused > 2 || part < 0.95 || silence > c.pause {
			t.Errorf("%s: %d refused, %.3f of the limit used, %v of silence, want at most 2, 0.95 and %v", name, refused, part, silence, c.pause)
		}
	}
}

// One response that tells when all is back may tell of a window or of a bucket:
// nothing is believed of either until more was used.
func TestOneToldResetIsNoBelief(t *testing.T) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: 10 * ms})
	send := func(now time.Duration, used float64, reset time.Duration) {
		law.Sent(now, 1)
		law.Observe(control.Observation{Sent: now, Now: now + 10*ms, Class: reason.OK, Estimate: 1, Cost: 1, Facts: []control.Fact{
			{Name: "requests", Quota: 60, Remaining: 60 - used, Window: -1, Reset: reset, Refills: true},
		}})
	}
	send(0, 1, 59900*ms)
	if b := law.Belief(); b.Kind != control.Unknown || law.Interval() != 10*ms {
		t.Errorf("after one response: %+v, an interval of %v", b, law.Interval())
	}
	for i := range 9 {
		now := time.Duration(i+1) * 100 * ms
		send(now, float64(i+2), 59900*ms)
	}
	if b := law.Belief(); b.Kind != control.SlidingWindow || b.Limit != 60 || b.Window != time.Minute || law.Interval() != sec {
		t.Errorf("after ten: %+v, an interval of %v", b, law.Interval())
	}
	bucket := cycle(t, control.Params{Ceiling: 10 * ms, Initial: 10 * ms})
	law = bucket
	for i := range 10 {
		send(time.Duration(i)*ms, float64(i+1), time.Duration(i+1)*sec)
	}
	if b := law.Belief(); b.Kind != control.TokenBucket || law.Interval() > 1200*ms || law.Interval() < 900*ms {
		t.Errorf("a bucket that gives one a second: %+v, an interval of %v", b, law.Interval())
	}
}
