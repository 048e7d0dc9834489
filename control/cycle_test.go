package control_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/reason"
)

func cycle(t interface{ Fatal(...any) }, p control.Params) control.Law {
	resolved, err := p.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	law, err := control.New("cycle", &resolved)
	if err != nil {
		t.Fatal(err)
	}
	return law
}

// play drives a law against a limiter for a while: an attempt goes when the law
// lets it, and is answered after a tenth of a second.
func play(law control.Law, from, until time.Duration, ceiling time.Duration, admit func(now time.Duration) (bool, time.Duration)) (admitted, refused int) {
	now, last := from, from-time.Hour
	for now < until {
		at := max(law.Hold(now, 1), last+max(ceiling, law.Spacing()))
		if at > now {
			now = at
			continue
		}
		law.Sent(now, 1)
		last = now
		ok, wait := admit(now)
		o := control.Observation{Sent: now, Now: now + 100*ms, Class: reason.OK, Estimate: 1, Cost: 1, RetryAfter: wait}
		if ok {
			admitted++
		} else {
			o.Class = reason.Throttled
			refused++
		}
		now += 100 * ms
		law.Observe(o)
	}
	return admitted, refused
}

// bucketOf admits by a token bucket.
func bucketOf(rate, burst float64) func(now time.Duration) (bool, time.Duration) {
	tokens, at := burst, time.Duration(0)
	return func(now time.Duration) (bool, time.Duration) {
		tokens, at = min(burst, tokens+rate*(now-at).Seconds()), now
		if tokens < 1 {
			return false, 0
		}
		tokens--
		return true, 0
	}
}

// windowOf admits n in each window that the first request opens.
func windowOf(n int, length time.Duration) func(now time.Duration) (bool, time.Duration) {
	used, end := 0, time.Duration(0)
	return func(now time.Duration) (bool, time.Duration) {
		if now >= end {
			used, end = 0, now+length
		}
		if used >= n {
			return false, 0
		}
		used++
		return true, 0
	}
}

func TestCycleHoldsARateAndSaysSo(t *testing.T) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec})
	admitted, refused := play(law, 0, time.Hour, 10*ms, bucketOf(5, 10))
	if admitted < 5*3600*95/100 || refused > 30 {
		t.Errorf("%d admitted and %d refused in an hour of 5/s", admitted, refused)
	}
	b := law.Belief()
	if b.Kind != control.TokenBucket || b.Limit < 4.8 || b.Limit > 5.1 || b.Confidence < 0.8 {
		t.Errorf("believes in %+v", b)
	}
	want := []control.Limit{{Kind: b.Kind, Size: b.Limit, Window: b.Window, Confidence: b.Confidence}}
	if diff := cmp.Diff(want, law.(control.Limiter).Limits(nil)); diff != "" {
		t.Errorf("goes by (-want +got):\n%s", diff)
	}
}

// How often a window is refused until its length is known depends on when canaries go: the mean of
// several initial intervals counts.
func TestCycleHoldsAWindowAndSaysSo(t *testing.T) {
	const runs = 8
	refusals := 0
	for run := range runs {
		law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec + time.Duration(run)*70*ms})
		admitted, refused := play(law, 0, 2*time.Hour, 10*ms, windowOf(120, time.Minute))
		if refusals += refused; admitted < 2*60*120*95/100 {
			t.Errorf("run %d: %d admitted and %d refused in two hours of 120 a minute", run, admitted, refused)
		}
		b := law.Belief()
		if rate := b.Limit / b.Window.Seconds(); b.Kind == control.Unknown || rate < 1.9 || rate > 2.1 {
			t.Errorf("run %d: believes in %+v", run, b)
		}
	}
	if refusals*1000 > 2.5*2*60*120*runs {
		t.Errorf("%d refused in %d runs of two hours", refusals, runs)
	}
}

func TestCycleFollowsTheHeaders(t *testing.T) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: 10 * ms})
	fact := control.Fact{Name: "core", Quota: 10, Remaining: 0, Window: time.Minute, Reset: 30 * sec}
	law.Sent(0, 1)
	law.Observe(control.Observation{Sent: 0, Now: sec, Class: reason.OK, Estimate: 1, Facts: []control.Fact{fact}})
	if at := law.Hold(2*sec, 1); at < 31*sec || at > 32*sec {
		t.Errorf("with nothing left until 31 s the next goes at %v", at)
	}
	want := control.Belief{Kind: control.FixedWindow, Limit: 10, Window: time.Minute, Confidence: 1}
	if diff := cmp.Diff(want, law.Belief()); diff != "" {
		t.Error(diff)
	}
	limits := []control.Limit{{Advertised: true, Name: "core", Kind: control.FixedWindow, Size: 10, Window: time.Minute, Confidence: 1}}
	if diff := cmp.Diff(limits, law.(control.Limiter).Limits(nil)); diff != "" {
		t.Error(diff)
	}
}

// A header that names a date in ten years stops nobody for longer than a day.
func TestCycleAsksAgainAfterADay(t *testing.T) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: 10 * ms})
	law.Sent(0, 1)
	law.Observe(control.Observation{Now: sec, Class: reason.OK, Estimate: 1, Facts: []control.Fact{
		{Name: "core", Quota: 10, Window: -1, Reset: 10 * 365 * 24 * time.Hour},
	}})
	if at := law.Hold(2*sec, 1); at > 25*time.Hour {
		t.Errorf("the next goes at %v", at)
	}
}

// Of a block exactly one canary is sent, and nothing until its refusal would have come.
func TestCycleSendsOneCanaryAfterABlock(t *testing.T) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec})
	admitted := 0
	play(law, 0, 10*sec, 10*ms, func(time.Duration) (bool, time.Duration) { admitted++; return admitted < 20, 3 * sec })
	now := 60 * sec
	if at := law.Hold(now, 1); at != now {
		t.Fatalf("a minute later the canary goes at %v", at)
	}
	law.Sent(now, 1)
	if at := law.Hold(now+sec/2, 1); at != now+sec {
		t.Errorf("with the canary under way the next goes at %v, want %v", at, now+sec)
	}
	law.Observe(control.Observation{Sent: now, Now: now + 2*sec, Class: reason.OK, Estimate: 1})
	if at := law.Hold(now+2*sec, 1); at == control.Never {
		t.Error("the canary came through and nothing may follow")
	}
}

// drawHistory drives a law through anything, and settles what is under way.
func drawHistory(t *rapid.T, law control.Law) (now time.Duration) {
	type sent struct{ at time.Duration }
	var flying []sent
	settle := func(i int) {
		o := drawObservation(t, now)
		o.Sent, o.Now = flying[i].at, now
		o.Estimate, o.Cost = 1, float64(rapid.IntRange(0, 3).Draw(t, "cost"))
		flying = append(flying[:i], flying[i+1:]...)
		law.Observe(o)
	}
	for range rapid.IntRange(0, 150).Draw(t, "events") {
		now += time.Duration(rapid.SampledFrom([]int64{0, int64(ms), int64(100 * ms), int64(sec), int64(time.Minute), int64(time.Hour)}).Draw(t, "step"))
		if len(flying) > 0 && rapid.Bool().Draw(t, "settle") {
			settle(rapid.IntRange(0, len(flying)-1).Draw(t, "which"))
			continue
		}
		if at := law.Hold(now, 1); at != control.Never && at < now+2*time.Hour {
			now = max(now, at)
			law.Sent(now, float64(rapid.IntRange(1, 2).Draw(t, "estimate")))
			flying = append(flying, sent{now})
		}
	}
	for len(flying) > 0 {
		settle(0)
	}
	return now
}

// Whatever has happened, once the provider admits everything the law goes on: it
// is never told to wait for an outcome when none is under way, and a wait is
// bounded by what was told or by the longest rung.
func TestCycleNeverStallsWhileTheProviderAdmits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec})
		now := drawHistory(t, law)
		for i := range 30 {
			at := law.Hold(now, 1)
			if at == control.Never {
				t.Fatalf("attempt %d waits for an outcome and none is under way", i)
			}
			if at < now || at-now > 26*time.Hour {
				t.Fatalf("attempt %d waits for %v", i, at-now)
			}
			now = at
			law.Sent(now, 1)
			now += 10 * ms
			law.Observe(control.Observation{Sent: now - 10*ms, Now: now, Class: reason.OK, Estimate: 1, Cost: 1})
		}
	})
}

// A state that was stored and read makes the same law as the state itself, and
// storing that gives it again.
func TestCycleStateSurvivesARoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := control.Params{Ceiling: 10 * ms, Initial: sec}
		law := cycle(t, p)
		now := drawHistory(t, law)
		state := law.State()
		raw, err := json.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		var read control.State
		if err := json.Unmarshal(raw, &read); err != nil {
			t.Fatal(err)
		}
		one, other := cycle(t, p), cycle(t, p)
		if err := one.Restore(state); err != nil {
			t.Fatal(err)
		}
		if err := other.Restore(read); err != nil {
			t.Fatal(err)
		}
		again := cycle(t, p)
		if err := again.Restore(one.State()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(one.State(), again.State()); diff != "" {
			t.Fatal(diff)
		}
		for range 30 {
			a, b := one.Hold(now, 1), other.Hold(now, 1)
			if a != b {
				t.Fatalf("one goes at %v, the other at %v", a, b)
			}
			if a == control.Never {
				break
			}
			now = a
			one.Sent(now, 1)
			other.Sent(now, 1)
			now += 10 * ms
			o := drawObservation(t, now)
			o.Sent, o.Now, o.Estimate = now-10*ms, now, 1
			if x, y := one.Observe(o), other.Observe(o); x != y || one.Interval() != other.Interval() {
				t.Fatalf("%v and %v after the same outcome", x, y)
			}
		}
	})
}

func TestCycleRefusesAStateThatCannotBe(t *testing.T) {
	for _, tt := range []struct{ data, want string }{
		{`{`, "cannot be read"},
		{`{"found":[{"kind":"moon","size":1}]}`, `kind is "moon", must be one of`},
		{`{"found":[{"kind":"flight","size":0}]}`, "size is 0"},
		{`{"found":[{"kind":"rate","size":2,"high":1}]}`, "high is 1, must be from 2"},
		{`{"found":[{"kind":"window","size":5,"window_ns":-7}]}`, "window is -7ns"},
		{`{"found":[{},{},{},{},{}]}`, "5 limits are stored, must be at most 4"},
		{`{"penalty_ns":-1}`, "penalty is -1ns"},
		{`{"trip_ns":60000000001}`, "trip is 1m0.000000001s, must be from 0 to 1m0s"},
		{`{"wait_unit":60}`, "wait unit is 60, must be 0, 1 or 1000"},
	} {
		law := cycle(t, control.Params{})
		err := law.Restore(control.State{Law: "cycle", Version: 1, Interval: sec, Data: []byte(tt.data)})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.data, err, tt.want)
		}
		if b := law.Belief(); b.Kind != control.Unknown {
			t.Errorf("%s: believes in %+v", tt.data, b)
		}
	}
}

func FuzzCycleRestore(f *testing.F) {
	golden.Seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec})
		if law.Restore(control.State{Law: "cycle", Version: 1, Interval: sec, Data: data}) != nil {
			return
		}
		now := time.Duration(0)
		for range 20 {
			at := law.Hold(now, 1)
			if at == control.Never || at-now > 26*time.Hour {
				t.Fatalf("restored, it waits for %v", at-now)
			}
			now = at
			law.Sent(now, 1)
			law.Observe(control.Observation{Sent: now, Now: now + ms, Class: reason.OK, Estimate: 1})
			now += ms
		}
	})
}

func ExampleCycle() {
	p, _ := control.Params{Ceiling: 10 * time.Millisecond}.Resolve()
	law, _ := control.New("cycle", &p)
	play(law, 0, time.Hour, 10*time.Millisecond, bucketOf(5, 10))
	b := law.Belief()
	fmt.Printf("%v of %.1f in %v\n", b.Kind, b.Limit, b.Window)
	// Output:
	// token_bucket of 5.0 in 1s
}

// BenchmarkCycle is one attempt: asked, sent and settled, once a rate and a
// window are held.
func BenchmarkCycle(b *testing.B) {
	for _, limiter := range []struct {
		name string
		make func() func(time.Duration) (bool, time.Duration)
	}{
		{"bucket", func() func(time.Duration) (bool, time.Duration) { return bucketOf(5, 10) }},
		{"window", func() func(time.Duration) (bool, time.Duration) { return windowOf(120, time.Minute) }},
	} {
		b.Run(limiter.name, func(b *testing.B) {
			law := cycle(b, control.Params{Ceiling: 10 * ms, Initial: sec})
			play(law, 0, time.Hour, 10*ms, limiter.make())
			now := 2 * time.Hour
			b.ReportMetric(float64(unsafe.Sizeof(control.Cycle{})), "bytes")
			b.ReportAllocs()
			for b.Loop() {
				if at := law.Hold(now, 1); at != control.Never {
					now = max(now, at)
				}
				law.Sent(now, 1)
				now += ms
				law.Observe(control.Observation{Sent: now - ms, Now: now, Class: reason.OK, Estimate: 1, Cost: 1})
			}
		})
	}
}

// What was refused hours after it was sent says nothing of how long a refusal
// takes: it must not lengthen the waits that follow.
func TestCycleIsNotHeldBackByARefusalThatTookHours(t *testing.T) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec})
	now := time.Duration(0)
	admit := func() {
		at := law.Hold(now, 1)
		if at == control.Never || at-now > 24*time.Hour+time.Minute {
			t.Fatalf("at %v the next goes in %v", now, at-now)
		}
		law.Sent(at, 1)
		now = at + 10*ms
		law.Observe(control.Observation{Sent: at, Now: now, Class: reason.OK, Estimate: 1, Cost: 1})
	}
	for range 3 {
		admit()
	}
	for range 3 {
		at := law.Hold(now, 1)
		if at == control.Never {
			t.Fatal("nothing is under way, and it waits for an outcome")
		}
		law.Sent(at, 1)
		now = at + 20*time.Hour
		law.Observe(control.Observation{Sent: at, Now: now, Class: reason.Throttled, Estimate: 1})
	}
	for range 60 {
		admit()
	}
}

// TestCycleShowsItsLimits: those that it found and those that responses advertise.
func TestCycleShowsItsLimits(t *testing.T) {
	law := newLaw(t, "cycle", control.Params{Ceiling: 10 * ms, Initial: sec})
	play(law, 0, time.Hour, 10*ms, bucketOf(5, 10))
	b := law.Belief()
	want := []control.Limit{{Kind: control.TokenBucket, Size: b.Limit, Window: sec, Confidence: b.Confidence}}
	if diff := cmp.Diff(want, law.(control.Limiter).Limits(nil)); diff != "" || b.Kind != control.TokenBucket || b.Limit < 4.8 || b.Limit > 5.1 {
		t.Errorf("believes in %+v, goes by (-want +got):\n%s", b, diff)
	}
	law = newLaw(t, "cycle", control.Params{Ceiling: 10 * ms, Initial: 10 * ms})
	law.Sent(0, 1)
	law.Observe(control.Observation{Now: sec, Class: reason.OK, Estimate: 1, Facts: []control.Fact{
		{Name: "core", Quota: 10, Remaining: 0, Window: time.Minute, Reset: 30 * sec},
		{Name: "tokens", PerCost: true, Refills: true, Quota: 1000, Remaining: 900, Window: time.Minute, Reset: 6 * sec},
	}})
	want = []control.Limit{
		{Advertised: true, Name: "core", Kind: control.FixedWindow, Size: 10, Window: time.Minute, Confidence: 1},
		{Advertised: true, Name: "tokens", Kind: control.TokenBucket, PerCost: true, Size: 1000, Window: time.Minute, Confidence: 1},
	}
	if diff := cmp.Diff(want, law.(control.Limiter).Limits(nil)); diff != "" {
		t.Errorf("goes by (-want +got):\n%s", diff)
	}
}

// A law that starts from what another learned is bounded by ceiling and initial interval,
// believes the same, and is not held back by it on the same limit.
func TestAWarmStartOfDrawnLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := control.Params{Ceiling: 10 * ms, Initial: sec}
		var limiter func() func(time.Duration) (bool, time.Duration)
		if rate := rapid.Float64Range(1, 20).Draw(t, "rate"); rapid.Bool().Draw(t, "window") {
			length := time.Duration(rapid.IntRange(5, 120).Draw(t, "length")) * sec
			limiter = func() func(time.Duration) (bool, time.Duration) {
				return windowOf(max(1, int(rate*length.Seconds())), length)
			}
		} else {
			burst := rapid.Float64Range(1, 20).Draw(t, "burst")
			limiter = func() func(time.Duration) (bool, time.Duration) { return bucketOf(rate, burst) }
		}
		law := cycle(t, p)
		play(law, 0, 30*time.Minute, p.Ceiling, limiter())
		state := law.State()
		if state.Interval < p.Ceiling || state.Interval > p.Initial {
			t.Fatalf("an interval of %v is stored", state.Interval)
		}
		warm := cycle(t, p)
		if err := warm.Restore(state); err != nil {
			t.Fatal(err)
		}
		if b := law.Belief().Kind; warm.Belief().Kind != b && len(law.(control.Limiter).Limits(nil)) == 1 && len(warm.(control.Limiter).Limits(nil)) == 1 {
			t.Errorf("it believes in a %v, and believed in a %v", warm.Belief().Kind, b)
		}
		if at := warm.Spacing(); at != p.Initial {
			t.Errorf("before the first answer attempts go %v apart", at)
		}
		got, _ := play(warm, 0, 20*time.Minute, p.Ceiling, limiter())
		cold, _ := play(cycle(t, p), 0, 20*time.Minute, p.Ceiling, limiter())
		if float64(got) < 0.6*float64(cold) {
			t.Errorf("%d admitted in 20 minutes, %d after a cold start", got, cold)
		}
	})
}

// A limit that was raised while nobody looked is found, though nothing is refused.
func TestARestoredWindowIsTested(t *testing.T) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec})
	state := control.State{Law: "cycle", Version: 1, Interval: sec, Data: []byte(`{"found":[{"kind":"window","size":60,"window_ns":60000000000,"confidence":1}]}`)}
	if err := law.Restore(state); err != nil {
		t.Fatal(err)
	}
	admitted, _ := play(law, 0, 2*time.Hour, 10*ms, bucketOf(4, 10))
	if least := 3 * 60 * 2 * 60; admitted < least {
		t.Errorf("%d admitted in two hours of 240 a minute, of which 60 had been known; want %d", admitted, least)
	}
}

func TestAPublishedWindowIsNotTested(t *testing.T) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec})
	if err := law.(*control.Cycle).Assume([]control.Limit{{Kind: control.SlidingWindow, Size: 60, Window: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	if admitted, refused := play(law, 0, 2*time.Hour, 10*ms, bucketOf(4, 10)); admitted > 2*60*60 || admitted < 2*60*60*95/100 || refused != 0 {
		t.Errorf("%d admitted and %d refused in two hours of 60 a minute as it is published", admitted, refused)
	}
}

// What was counted and not sent leaves room in a limit, and what went later leaves it later.
func TestRecount(t *testing.T) {
	p, err := control.Params{Ceiling: time.Millisecond, Initial: time.Millisecond}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	for name, recount := range map[string]func(*control.Cycle){
		"as it was": func(*control.Cycle) {},
		"not sent":  func(c *control.Cycle) { c.Recount(3*time.Second, control.Never, 1) },
		"later":     func(c *control.Cycle) { c.Recount(time.Second, 9*time.Second, 1) },
	} {
		law, err := control.New("cycle", &p)
		if err != nil {
			t.Fatal(err)
		}
		c := law.(*control.Cycle)
		if err := c.Assume([]control.Limit{{Kind: control.SlidingWindow, Size: 10, Window: 20 * time.Second}}); err != nil {
			t.Fatal(err)
		}
		for i := range time.Duration(10) {
			at := (i + 1) * time.Second
			c.Sent(at, 1)
			c.Observe(control.Observation{Sent: at, Now: at + time.Millisecond, Class: reason.OK})
		}
		recount(c)
		at := c.Hold(11*time.Second, 1)
		switch {
		case name == "as it was" && (at < 21*time.Second || at > 21500*time.Millisecond),
			name == "not sent" && at > 13*time.Second,
			name == "later" && (at < 22*time.Second || at > 22500*time.Millisecond):
			t.Errorf("%s: the next may go at %v", name, at)
		}
	}
}

// teller is a limiter that reports what is left of it and when it is full again, as
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

// follow runs a law against a limiter that reports its state: one attempt at a time, each
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

// A single response with a reset may belong to a window or to a bucket:
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

// What a law assumes is what it goes by, shows and stores.
func TestCycleAssumesPublishedLimits(t *testing.T) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec}).(*control.Cycle)
	err := law.Assume([]control.Limit{
		{Kind: control.SlidingWindow, Size: 2, Window: time.Minute},
		{Kind: control.FixedWindow, PerCost: true, Size: 1, Window: time.Hour},
		{Kind: control.Unknown, Size: 9, Window: time.Minute},
		{Kind: control.Slowdown, Size: 9, Window: time.Minute},
		{Kind: control.Concurrency, Size: 1, Window: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []control.Limit{
		{Kind: control.SlidingWindow, Size: 2, Window: time.Minute, Confidence: 0.9},
		{Kind: control.SlidingWindow, PerCost: true, Size: 1, Window: time.Hour, Confidence: 0.9},
		{Kind: control.Concurrency, Size: 1, Confidence: 0.8},
	}
	if diff := cmp.Diff(want, law.Limits(nil)); diff != "" {
		t.Errorf("goes by (-want +got):\n%s", diff)
	}
	if b := law.Belief(); b != (control.Belief{Kind: control.CostWindow, Limit: 1, Window: time.Hour, Confidence: 0.9}) {
		t.Errorf("believes in %+v, want the limit on cost", b)
	}
	law.Sent(0, 0.25)
	uses := []control.Use{{Used: 1, Free: 24 * sec}, {Used: 0.25, Free: time.Hour + 36*sec}, {Used: 1, Free: -1}}
	if diff := cmp.Diff(uses, law.Uses(sec, nil)); diff != "" {
		t.Errorf("in use (-want +got):\n%s", diff)
	}
	again := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec}).(*control.Cycle)
	if err := again.Restore(law.State()); err != nil || len(again.Limits(nil)) != len(want) {
		t.Errorf("stored %+v: %v", law.State(), err)
	}
}

func TestCycleSaysWhetherABlockLastsAndWasForetold(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sent   int // of ten that fit into a known window
		stored time.Duration
	}{{"a full window", 10, 6 * sec}, {"an empty one", 1, 6 * sec}, {"nothing is known", 1, 10 * sec}} {
		law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: 10 * sec}).(*control.Cycle)
		if tt.name != "nothing is known" {
			if err := law.Resume(control.State{Law: "cycle", Version: 1, Interval: 6 * sec, Data: []byte(`{"found":[{"kind":"window","size":10,"window_ns":60000000000,"confidence":1}]}`)}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range tt.sent {
			at := time.Duration(i+1) * sec
			law.Sent(at, 1)
			if law.Waiting() || law.Foretold() {
				t.Fatalf("%s: before a refusal: waiting %v, foretold %v", tt.name, law.Waiting(), law.Foretold())
			}
			class := reason.OK
			if i == tt.sent-1 {
				class = reason.Throttled
			}
			law.Observe(control.Observation{Sent: at, Now: at + ms, Class: class, Estimate: 1, Cost: 1})
		}
		if full := tt.sent == 10; !law.Waiting() || law.Foretold() != full {
			t.Errorf("%s: waiting %v, foretold %v", tt.name, law.Waiting(), law.Foretold())
		}
		if got := law.State().Interval; got < tt.stored || got > tt.stored+tt.stored/20 {
			t.Errorf("%s: an interval of %v is stored, want %v", tt.name, got, tt.stored)
		}
	}
}

// Five of a hundred units are left for half a minute.
func TestCycleCountsThePartOfACostThatALimitTook(t *testing.T) {
	for _, tt := range []struct {
		name       string
		took, cost float64 // of the attempt whose response says so
		recost     float64
		next       float64
		fits       bool
	}{
		{"all of it", 0, 10, 0, 5, true},
		{"all of a larger one", 0, 10, 0, 6, false},
		{"half of it", 5, 10, 0, 10, true},
		{"half of a larger one", 5, 10, 0, 11, false},
		{"of an unknown cost", 5, 0, 0, 5, true},
		{"the attempt costs more than it was counted with", 0, 10, 1, 5, false},
		{"it costs less", 0, 10, -1, 6, true},
	} {
		law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: 10 * ms}).(*control.Cycle)
		law.Sent(0, 10)
		law.Observe(control.Observation{Now: sec, Class: reason.OK, Estimate: 10, Cost: tt.cost, Facts: []control.Fact{
			{Name: "slots", InFlight: true, Quota: 10, Remaining: 0, Window: -1, Reset: time.Hour},
			{Name: "tokens", PerCost: true, Took: tt.took, Quota: 100, Remaining: 5, Window: time.Minute, Reset: 30 * sec},
		}})
		law.Recost(0, tt.recost)
		if at := law.Hold(2*sec, tt.next); (at < 3*sec) != tt.fits {
			t.Errorf("%s: the next goes at %v", tt.name, at)
		}
	}
}

func TestCycleTakesInLimitsThatNoResponseNames(t *testing.T) {
	law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: 10 * ms}).(*control.Cycle)
	law.Advertise(sec, []control.Fact{
		{Name: "slots", InFlight: true, Quota: 3, Remaining: 0, Window: -1, Reset: time.Hour},
		{Name: "core", Quota: 10, Remaining: 0, Window: -1, Reset: 30 * sec},
	})
	want := []control.Limit{{Advertised: true, Name: "core", Kind: control.FixedWindow, Size: 10, Window: 30 * sec, Confidence: 1}}
	if diff := cmp.Diff(want, law.Limits(nil)); diff != "" {
		t.Errorf("goes by (-want +got):\n%s", diff)
	}
}

// Before anything was answered attempts go at the initial interval.
func TestWhichOutcomesAreAnswers(t *testing.T) {
	for class, answered := range map[reason.Class]bool{
		reason.Unknown: false, reason.Lost: false, reason.OK: true, reason.Throttled: true, reason.Overloaded: true, reason.Failed: true, reason.Rejected: true,
	} {
		law := cycle(t, control.Params{Ceiling: 10 * ms, Initial: sec}).(*control.Cycle)
		law.Sent(0, 1)
		law.Observe(control.Observation{Now: ms, Class: class, Estimate: 1})
		if got := law.Spacing(); (got == 10*ms) != answered {
			t.Errorf("after %v attempts are at least %v apart", class, got)
		}
	}
}

func TestWhichStatesCycleTakes(t *testing.T) {
	for _, tt := range []struct {
		s    control.State
		want string
	}{
		{control.State{Law: "cycle", Version: 1, Interval: 1}, ""},
		{control.State{Law: "cycle", Version: 1, Interval: 1, Data: []byte(`{}`)}, ""},
		{control.State{Law: "cycle", Version: 1}, "the stored interval is 0s, must be positive"},
		{control.State{Law: "cycle", Version: 1, Interval: -1}, "the stored interval is -1ns, must be positive"},
		{control.State{Law: "cycle", Version: 2, Interval: 1}, "the state is of version 2, this binary knows 1"},
		{control.State{Law: "aimd", Version: 1, Interval: 1}, `the state is of law "aimd", not "cycle"`},
	} {
		err := cycle(t, control.Params{}).Restore(tt.s)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != "control: "+tt.want {
			t.Errorf("%+v: got %v, want %q", tt.s, err, tt.want)
		}
	}
	for range 50 {
		if names := control.Names(); len(names) != 2 || names[0] != "aimd" || names[1] != "cycle" {
			t.Fatalf("the laws are %v", names)
		}
	}
}
