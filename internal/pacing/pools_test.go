package pacing_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// worker sends attempts in a pool, one at a time.
type worker struct {
	pool string
	next time.Duration // when it asks, or receives its answer
	came time.Duration // when it first asked
	out  *pacing.Ticket
}

// tally counts the outcomes of a pool's attempts.
type tally struct {
	ok, refused int
	refusedAt   []time.Duration
	okAt        []time.Duration
}

const trip = 20 * ms

// drive lets the workers send through one core until an instant. allows returns the
// provider's outcome for an attempt. Answers take a round trip.
func drive(core *pacing.Core, until time.Duration, allows func(pool string, now time.Duration) pacing.Outcome, workers ...*worker) map[string]*tally {
	all := map[string]*tally{}
	outcomes := map[*worker]pacing.Outcome{}
	for {
		w := workers[0]
		for _, o := range workers {
			if o.next < w.next || o.next == w.next && o.came < w.came { // first come, first served
				w = o
			}
		}
		now := w.next
		if now >= until {
			return all
		}
		of := all[w.pool]
		if of == nil {
			of = &tally{}
			all[w.pool] = of
		}
		if w.out != nil {
			core.Settle(now, *w.out, outcomes[w])
			w.out, w.came = nil, now
			continue
		}
		var pool *pacing.Pool
		if w.pool != "" {
			pool = core.In(now, w.pool)
		}
		ticket, d, _ := core.Admit(now, pacing.Attempt{Ready: now, Pool: pool})
		if !d.OK {
			w.next = min(d.At, now+100*ms) // an outcome may change it
			continue
		}
		o := allows(w.pool, now)
		if outcomes[w] = o; o.Class.Throttle() {
			of.refused++
			of.refusedAt = append(of.refusedAt, now)
		} else {
			of.ok++
			of.okAt = append(of.okAt, now)
		}
		w.out, w.next = &ticket, now+trip
	}
}

// window admits n attempts in each window of that length.
func window(n int, length time.Duration) func(now time.Duration) bool {
	var at []time.Duration
	return func(now time.Duration) bool {
		for len(at) > 0 && at[0] <= now-length {
			at = at[1:]
		}
		if len(at) >= n {
			return false
		}
		at = append(at, now)
		return true
	}
}

var (
	granted = pacing.Outcome{Class: reason.OK}
	denied  = pacing.Outcome{Class: reason.Throttled}
)

func workersOf(pool string, n int) (all []*worker) {
	for range n {
		all = append(all, &worker{pool: pool})
	}
	return all
}

// m1 is refused for 40 s; m2 has no limit.
func TestOnePoolsRefusalsSlowNoOther(t *testing.T) {
	for _, law := range []string{"cycle"} { // law aimd does less well
		for _, passive := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s passive %v", law, passive), func(t *testing.T) {
				c := noJitter(pacing.Config{Law: law, Ceiling: 2 * ms, Initial: 50 * ms, Passive: passive, NoBreaker: true})
				alone := drive(newCore(t, c), 2*time.Minute, func(string, time.Duration) pacing.Outcome { return granted }, workersOf("m2", 3)...)
				beside := drive(newCore(t, c), 2*time.Minute, func(pool string, now time.Duration) pacing.Outcome {
					if pool == "m1" && now > 10*sec && now < 50*sec {
						return denied
					}
					return granted
				}, append(workersOf("m2", 3), workersOf("m1", 1)...)...)
				if got, want := within(beside["m2"].okAt, 10*sec, 50*sec), within(alone["m2"].okAt, 10*sec, 50*sec); float64(got) < 0.98*float64(want) {
					t.Errorf("%d calls of m2 while m1 is refused, %d without m1", got, want)
				}
				if n := beside["m1"].refused; n == 0 || n > 12 {
					t.Errorf("m1 was refused %d times", n)
				}
				if n := within(beside["m1"].okAt, 60*sec, 2*time.Minute); n < 5 {
					t.Errorf("%d calls of m1 after its block, refused at %v", n, beside["m1"].refusedAt)
				}
			})
		}
	}
}

func within(at []time.Duration, from, to time.Duration) (n int) {
	for _, a := range at {
		if a >= from && a < to {
			n++
		}
	}
	return n
}

// Two pools share limits of 80 kinds. That it is the account's limit is found in nearly all of them.
func TestALimitOfTheAccountHoldsAllPools(t *testing.T) {
	all, found, refused, goodput := 0, 0, 0, 0.0
	for _, passive := range []bool{false, true} {
		for _, size := range []int{40, 60, 80, 100, 120, 150, 200, 300} {
			for _, length := range []time.Duration{20 * sec, 30 * sec, 45 * sec, 60 * sec, 90 * sec} {
				core := newCore(t, noJitter(pacing.Config{Law: "cycle", Ceiling: 10 * ms, Initial: 50 * ms, Passive: passive, NoBreaker: true}))
				limit := window(size, length)
				got := drive(core, 20*length, func(_ string, now time.Duration) pacing.Outcome {
					if limit(now) {
						return granted
					}
					return denied
				}, append(workersOf("m1", 2), workersOf("m2", 2)...)...)
				first := got["m1"].refusedAt[0]
				if other := got["m2"].refusedAt; len(other) > 0 {
					first = max(first, other[0])
				}
				if n := within(got["m1"].okAt, first, first+length/3) + within(got["m2"].okAt, first, first+length/3); n > 0 {
					t.Errorf("%d in %v, passive %v: %d calls in the third of it after both were refused", size, length, passive, n)
				}
				n, part := got["m1"].refused+got["m2"].refused, float64(got["m1"].ok+got["m2"].ok)/float64(20*size)
				known := core.Belief().Kind != control.Unknown
				for p := range core.Pools {
					known = known && p.Belief().Kind == control.Unknown
				}
				all++
				if known {
					found++
				}
				refused += n
				goodput += part
				if part < 0.74 || n > 100 || known && n > 40 {
					t.Errorf("%d in %v, passive %v: %.3f of what can be had, %d refused, the account's limit is known: %v", size, length, passive, part, n, known)
				}
				if size == 100 && length == 30*sec && (part < 0.8 || n > 40 || !known && !passive) {
					t.Errorf("100 in 30 s, passive %v: %.3f of what can be had, %d refused, the account's limit is known: %v", passive, part, n, known)
				}
			}
		}
	}
	if mean := float64(refused) / float64(all); found < all*9/10 || mean > 25 || goodput < 0.88*float64(all) {
		t.Errorf("the account's limit, and none of a pool, is known in %d of %d; refused %.1f, %.3f of what can be had", found, all, mean, goodput/float64(all))
	}
}

// If a refusal says that it concerns the account, other pools wait too.
func TestARefusalOfTheAccountHoldsAllPools(t *testing.T) {
	core := newCore(t, noJitter(pacing.Config{Passive: true, NoBreaker: true}))
	a, _, _ := core.Admit(0, pacing.Attempt{Pool: core.In(0, "a")})
	core.Settle(sec, a, pacing.Outcome{Class: reason.Throttled, RetryAfter: 20 * sec, Account: true})
	for _, pool := range []string{"a", "b"} {
		if d := core.Ask(2*sec, pacing.Attempt{Pool: core.In(2*sec, pool)}); d.OK || d.At < 21*sec || d.Pool != nil {
			t.Errorf("pool %s: %+v, want a wait of the account until 21 s", pool, d)
		}
	}
}

// Two pools are refused in one block. If both refusals ask for about the same wait, the limit
// may be the account's, and a third pool waits too. If one asks for much longer, it is a limit
// of its own.
func TestRefusalsOfOneLimitAskForTheSameWait(t *testing.T) {
	for _, c := range []struct {
		first, second time.Duration // what the refusals ask for
		free          time.Duration // when a third pool may go; 0 is at once
	}{
		{60 * sec, 58 * sec, 61 * sec},
		{5 * sec, 10 * sec, 13 * sec}, // grows with each refusal
		{sec, 958 * sec, 0},
		{958 * sec, sec, 0},
		{0, 20 * sec, 23 * sec}, // the first says nothing
	} {
		core := newCore(t, noJitter(pacing.Config{Law: "cycle", Ceiling: ms, Initial: sec, Passive: true, NoBreaker: true}))
		a, _, _ := core.Admit(sec, pacing.Attempt{Ready: sec, Pool: core.In(sec, "a")})
		core.Settle(sec, a, pacing.Outcome{Class: reason.Throttled, RetryAfter: c.first})
		b, _, _ := core.Admit(2*sec, pacing.Attempt{Ready: 2 * sec, Pool: core.In(2*sec, "b")})
		core.Settle(3*sec, b, pacing.Outcome{Class: reason.Throttled, RetryAfter: c.second})
		d := core.Ask(3*sec, pacing.Attempt{Ready: 3 * sec, Pool: core.In(3*sec, "c")})
		if d.OK != (c.free == 0) || d.At < c.free {
			t.Errorf("after refusals that ask for %v and %v another pool may go: %+v, want not before %v", c.first, c.second, d, c.free)
		}
	}
}

// The account has shown a limit that asks for a second's wait. When one pool then asks for
// a quarter of an hour, the others go on after that second.
func TestALongWaitOfOnePoolHoldsNoOther(t *testing.T) {
	core := newCore(t, noJitter(pacing.Config{Law: "cycle", Ceiling: 10 * ms, Initial: 50 * ms, Passive: true, NoBreaker: true}))
	day := window(300, 15*time.Minute)
	got := drive(core, 10*time.Minute, func(pool string, now time.Duration) pacing.Outcome {
		switch {
		case now > 4*sec && now < 5*sec:
			return pacing.Outcome{Class: reason.Throttled, RetryAfter: sec}
		case pool == "m1" && !day(now):
			return pacing.Outcome{Class: reason.Throttled, RetryAfter: 15*time.Minute - now}
		}
		return granted
	}, append(workersOf("m1", 2), append(workersOf("m2", 2), workersOf("m3", 2)...)...)...)
	long := got["m1"].refusedAt[got["m1"].refused-1]
	if long < 5*sec {
		t.Fatal("m1 did not reach its own limit")
	}
	for _, pool := range []string{"m2", "m3"} {
		if n := within(got[pool].okAt, long, long+30*sec); n < 100 {
			t.Errorf("%d calls of %s in the half minute after m1 was to wait for a quarter of an hour", n, pool)
		}
	}
}

// Another pool goes on at once.
func TestRetryAfterHoldsItsPoolOnly(t *testing.T) {
	core := newCore(t, noJitter(pacing.Config{Passive: true, NoBreaker: true}))
	a, _, _ := core.Admit(0, pacing.Attempt{Pool: core.In(0, "a")})
	core.Settle(sec, a, pacing.Outcome{Class: reason.Throttled, RetryAfter: 20 * sec})
	in := core.In(2*sec, "a")
	if d := core.Ask(2*sec, pacing.Attempt{Pool: in}); d.OK || d.At < 21*sec || d.Pool != in {
		t.Errorf("pool a: %+v, want a wait of the pool until 21 s", d)
	}
	if d := core.Ask(2*sec, pacing.Attempt{Pool: core.In(2*sec, "b")}); !d.OK {
		t.Errorf("pool b: %+v, want leave", d)
	}
	if d := core.Ask(2*sec, pacing.Attempt{}); !d.OK {
		t.Errorf("the account: %+v, want leave", d)
	}
}

// Two pools with limits of their own were once refused at the same time. Later only one
// of them is refused: the account is not held up for that.
func TestCoincidenceIsTakenBack(t *testing.T) {
	core := newCore(t, noJitter(pacing.Config{Law: "cycle", Ceiling: 10 * ms, Initial: 50 * ms, NoBreaker: true}))
	limit := window(20, 20*sec)
	got := drive(core, 20*time.Minute, func(pool string, now time.Duration) pacing.Outcome {
		if pool == "m1" && !limit(now) || pool == "m2" && now > 5*sec && now < 6*sec {
			return denied
		}
		return granted
	}, append(workersOf("m1", 2), workersOf("m2", 2)...)...)
	if n := within(got["m2"].okAt, 15*time.Minute, 20*time.Minute); n < 5*60*50 {
		t.Errorf("%d calls of m2 in the last five minutes, of about 100 a second", n)
	}
	if n := within(got["m1"].okAt, 15*time.Minute, 20*time.Minute); n < 200 {
		t.Errorf("%d calls of m1 in the last five minutes, of 300", n)
	}
}

// If what the account learned from refusals turns out to concern one pool, it holds back
// that pool and not the account.
func TestAPartedPoolTakesTheBlockWithIt(t *testing.T) {
	core := newCore(t, noJitter(pacing.Config{Law: "cycle", Ceiling: 10 * ms, Initial: 50 * ms, NoBreaker: true}))
	send := func(at time.Duration, o pacing.Outcome) {
		t.Helper()
		ticket, d, _ := core.Admit(at, pacing.Attempt{Ready: at})
		if !d.OK {
			t.Fatalf("at %v: %+v", at, d)
		}
		core.Settle(at+ms, ticket, o)
	}
	send(0, granted)
	before := core.Learned()
	send(sec, pacing.Outcome{Class: reason.Throttled, RetryAfter: 20 * sec})
	if d := core.Ask(2*sec, pacing.Attempt{}); d.OK || d.At < 21*sec {
		t.Fatalf("the account, refused: %+v", d)
	}
	core.Part(2*sec, "details", before)
	if d := core.Ask(2*sec, pacing.Attempt{}); !d.OK {
		t.Errorf("the account: %+v, want leave", d)
	}
	if d := core.Ask(2*sec, pacing.Attempt{Pool: core.In(2*sec, "details")}); d.OK || d.At < 21*sec {
		t.Errorf("the pool: %+v, want a wait until 21 s", d)
	}
}

func TestPoolsAreBoundedAndRemembered(t *testing.T) {
	core := newCore(t, noJitter(pacing.Config{MaxPools: 4, NoBreaker: true, Ceiling: 10 * ms, Initial: sec}))
	at := time.Duration(0)
	send := func(pool string, o pacing.Outcome) pacing.Ticket {
		for {
			ticket, d, _ := core.Admit(at, pacing.Attempt{Ready: at, Pool: core.In(at, pool)})
			if d.OK {
				at += ms
				core.Settle(at, ticket, o)
				return ticket
			}
			at = max(at+1, d.At)
		}
	}
	send("first", denied)
	for range 15 { // aimd: from 2 s, 100 ms shorter at each
		send("first", granted)
	}
	learned := core.In(at, "first").Interval()
	if learned != 500*ms {
		t.Fatalf("learned %v", learned)
	}
	for i := range 50 {
		send(fmt.Sprint(i), denied)
		send(fmt.Sprint(i), granted)
		n := 0
		for range core.Pools {
			n++
		}
		if n > 4 {
			t.Fatalf("%d pools", n)
		}
	}
	if all := core.LearnedPools(); len(all) != 51 || all["first"].Interval != learned {
		t.Errorf("%d pools are stored, the first with %v, want 51 and %v", len(all), all["first"].Interval, learned)
	}
	if got := core.In(at, "first").Interval(); got != learned {
		t.Errorf("the pool came back with %v, want %v", got, learned)
	}
	if n := len(core.LearnedPools()); n != 51 {
		t.Errorf("%d pools are stored after it came back", n)
	}
	fresh := newCore(t, noJitter(pacing.Config{NoBreaker: true, Ceiling: 10 * ms, Initial: sec}))
	fresh.RestorePools(core.LearnedPools())
	if got := fresh.In(0, "first").Interval(); got != learned {
		t.Errorf("after a restart the pool has %v, want %v", got, learned)
	}
}

// A pool with an attempt in flight is not evicted.
func TestAPoolInUseIsNotEvicted(t *testing.T) {
	core := newCore(t, noJitter(pacing.Config{MaxPools: 1, Passive: true, NoBreaker: true}))
	a := core.In(0, "a")
	ticket, _, _ := core.Admit(0, pacing.Attempt{Pool: a})
	core.In(sec, "b")
	if core.In(sec, "a") != a {
		t.Error("the pool with an attempt under way was given up")
	}
	core.Settle(sec, ticket, granted)
	core.In(2*sec, "c")
	core.In(3*sec, "d")
	if core.In(4*sec, "a") == a {
		t.Error("the idle pool was kept")
	}
}

func TestPassiveStart(t *testing.T) {
	send := func(core *pacing.Core, n int, o pacing.Outcome) (at time.Duration) {
		for range n {
			ready := core.Arrive(at)
			ticket, d, _ := core.Admit(at, pacing.Attempt{Ready: ready})
			if !d.OK {
				return d.At - at
			}
			core.Settle(at, ticket, o)
		}
		return 0
	}
	for _, law := range control.Names() {
		core := newCore(t, pacing.Config{Law: law, Passive: true})
		if wait := send(core, 1000, granted); wait != 0 {
			t.Errorf("%s: a wait of %v, though nothing was refused", law, wait)
		}
		if b := core.LastBackoff(); b.Reason != reason.None {
			t.Errorf("%s: a back-off before any refusal: %+v", law, b)
		}
		send(core, 1, denied)
		if wait := send(core, 1000, granted); wait == 0 {
			t.Errorf("%s: no wait after a refusal", law)
		}
		if b := core.LastBackoff(); b.Reason != reason.RateLimited.Reason() || b.Interval != 0 {
			t.Errorf("%s: the first refusal ended a free pace, but the last back-off is %+v", law, b)
		}
		core = newCore(t, pacing.Config{Law: law, Passive: true})
		send(core, 1, pacing.Outcome{Class: reason.OK, Facts: []control.Fact{{Name: "a", Quota: 5, Remaining: 4, Window: time.Minute, Reset: time.Minute}}})
		if wait := send(core, 1000, granted); wait == 0 {
			t.Errorf("%s: no wait though a limit was advertised", law)
		}
		core = newCore(t, pacing.Config{Law: law, Passive: true, Ceiling: 100 * ms, Tolerance: -1})
		if wait := send(core, 3, granted); wait != 100*ms {
			t.Errorf("%s: a wait of %v under a ceiling of 100 ms", law, wait)
		}
		core.Arrive(sec)
		ticket, d, _ := core.Admit(sec, pacing.Attempt{Ready: sec})
		if !d.OK {
			t.Fatalf("%s: %+v", law, d)
		}
		core.Settle(sec, ticket, denied)
		if b := core.LastBackoff(); b.Reason != reason.RateLimited.Reason() || b.Interval != 100*ms || b.At != sec {
			t.Errorf("%s: refused at the ceiling, but the last back-off is %+v", law, b)
		}
	}
}

// TestTheLastBackoffHasAReason: a law may slow down only when the block after a refusal ends,
// at an attempt that is granted.
func TestTheLastBackoffHasAReason(t *testing.T) {
	for _, law := range control.Names() {
		core := newCore(t, noJitter(pacing.Config{Law: law, Ceiling: 10 * ms, Passive: true, NoBreaker: true}))
		var backoffs int
		tokens, last := 20.0, time.Duration(0)
		for now := time.Duration(0); now < 5*time.Minute; {
			ticket, d, _ := core.Admit(now, pacing.Attempt{Ready: core.Arrive(now)})
			if !d.OK {
				now = max(d.At, now+ms)
				continue
			}
			tokens, last = min(20, tokens+20*(now-last).Seconds()), now
			before, o := core.Interval(), denied
			if tokens >= 1 {
				tokens, o = tokens-1, granted
			}
			core.Settle(now, ticket, o)
			if core.Interval() > before && core.Known() {
				backoffs++
				if b := core.LastBackoff(); b.Reason != reason.RateLimited.Reason() {
					t.Fatalf("%s: at %v the interval went from %v to %v after %v, and the last back-off is %+v", law, now, before, core.Interval(), o.Class, b)
				}
			}
		}
		if backoffs < 2 {
			t.Errorf("%s: only %d back-offs", law, backoffs)
		}
	}
}

// The ceiling holds whatever is refused, in whichever pools.
func TestTheCeilingBindsAllPoolsTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := noJitter(pacing.Config{
			Law: rapid.SampledFrom(control.Names()).Draw(t, "law"), Ceiling: 50 * ms, Initial: 200 * ms, Tolerance: -1,
			Passive: rapid.Bool().Draw(t, "passive"), NoBreaker: true, MaxPools: rapid.IntRange(1, 3).Draw(t, "pools"),
		})
		core, err := pacing.New(c)
		if err != nil {
			t.Fatal(err)
		}
		last, now := time.Duration(math.MinInt64/2), time.Duration(0)
		var out []pacing.Ticket
		for range 200 {
			now += time.Duration(rapid.IntRange(0, 300).Draw(t, "step")) * ms
			if len(out) > 0 && rapid.Bool().Draw(t, "settle") {
				o := rapid.SampledFrom([]pacing.Outcome{granted, granted, denied, {Class: reason.Lost}, {Class: reason.Throttled, Account: true, RetryAfter: sec}}).Draw(t, "outcome")
				core.Settle(now, out[0], o)
				out = out[1:]
				continue
			}
			var in *pacing.Pool
			if name := rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(t, "pool"); name != "" {
				in = core.In(now, name)
			}
			ticket, d, _ := core.Admit(now, pacing.Attempt{Ready: now, Pool: in})
			if !d.OK {
				if d.At <= now {
					t.Fatalf("asked to come back at %v, which is not later than %v", d.At, now)
				}
				continue
			}
			if now-last < 50*ms {
				t.Fatalf("%v after the attempt before", now-last)
			}
			last = now
			out = append(out, ticket)
		}
		if got := core.InFlight(); got != len(out) {
			t.Fatalf("%d in flight, want %d", got, len(out))
		}
	})
}

// A permit that was asked for a small attempt serves a large one that is more urgent, and
// the server learns of it at once: its limit counts what is sent.
func TestAPermitOfAnotherCost(t *testing.T) {
	c := pacing.Config{Passive: true, NoBreaker: true, JitterMax: -1}
	member, err := pacing.New(c)
	if err != nil {
		t.Fatal(err)
	}
	member.Join("one", false)
	now := time.Second
	member.Hear(now, &pacing.ToMember{News: &pacing.News{Lease: 2 * time.Second, Members: 1, Interval: ms}})
	member.Demand(now, []pacing.Attempt{{Cost: 1}})
	out, _ := member.Outbox(now)
	if len(out.Wants) != 1 || out.Wants[0].Cost != 1 {
		t.Fatalf("asked for %+v", out.Wants)
	}
	member.Hear(now, &pacing.ToMember{Grants: []uint64{out.Wants[0].ID}})
	if _, d, _ := member.Admit(now, pacing.Attempt{Cost: 60}); !d.OK {
		t.Fatalf("the permit was not used: %+v", d)
	}
	if out, _ = member.Outbox(now); len(out.Costs) != 1 || out.Costs[0].Cost != 60 {
		t.Errorf("the server hears of %+v, want a cost of 60", out.Costs)
	}

	server, err := pacing.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Assume(now, "", []control.Limit{{Kind: control.SlidingWindow, PerCost: true, Size: 100, Window: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	first, _, _ := server.Admit(now, pacing.Attempt{Cost: 1})
	server.Settle(now, first, pacing.Outcome{Class: reason.OK})
	now += 5 * sec
	ticket, d, _ := server.Admit(now, pacing.Attempt{Cost: 1})
	if !d.OK {
		t.Fatalf("%+v", d)
	}
	next := func() time.Duration { return server.Ask(now, pacing.Attempt{Cost: 60}).At }
	before := next()
	ticket = server.Recost(ticket, 60)
	if at := next(); at < before+10*sec {
		t.Errorf("120 of 100 units a minute may go at %v, with 61 of them at %v", at, before)
	}
	server.Unsend(ticket)
	if at := next(); at > before {
		t.Errorf("after an attempt that was not sent the next may go at %v, before it at %v", at, before)
	}
}
