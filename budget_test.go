package headway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/reason"
)

// pot is a budget of so many attempts, refilled one at a time.
type pot struct {
	key   uint32
	every time.Duration
	next  time.Time // when an attempt fits again
	fails error     // returned by Confirm
	none  error     // returned by Reserve

	mu          sync.Mutex
	taken, back int
}

func (p *pot) Keys() []uint32        { return []uint32{p.key} }
func (p *pot) Cost() time.Duration   { return p.every }
func (p *pot) Whole() time.Duration  { return p.every }
func (p *pot) Confirm() error        { return p.fails }
func (p *pot) Load(key uint32) int64 { return map[bool]int64{true: 1}[key == p.key] }

func (p *pot) Serves(_ uint32, load int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, time.Until(p.next)) + time.Duration(load-1)*p.every
}

func (p *pot) Reserve() (time.Duration, uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait := time.Until(p.next); wait > 0 || p.none != nil {
		return max(wait, 0), 1, p.none
	}
	p.taken++
	p.next = time.Now().Add(p.every)
	return 0, 0, nil
}

func (p *pot) Back() {
	p.fill()
	p.back++
}

// fill refills the pot.
func (p *pot) fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = time.Time{}
}

func (p *pot) Refuse(wait time.Duration) error {
	return &headway.Refusal{Reason: reason.QuotaExhausted, RetryAt: time.Now().Add(wait)}
}

// An attempt waits only for its own limits, and shares decide between those that wait for
// the same one.
func TestABudgetHoldsUpOnlyAttemptsThatNeedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{Ceiling: ms, Initial: ms, MaxWait: time.Hour})
		acquire(t, g).Settle(headway.Outcome{Class: headway.OK})
		time.Sleep(sec)
		slow, fast := &pot{key: 1, every: 10 * sec}, &pot{key: 2, every: sec}
		start := time.Now()
		var (
			mu    sync.Mutex
			order []string
			wg    sync.WaitGroup
		)
		for _, flow := range []string{"a", "a", "a", "a", "b", "b", "fast", "fast", "fast"} {
			wg.Go(func() {
				r := headway.Request{Flow: flow, Budget: slow}
				if flow == "fast" {
					r.Budget = fast
				}
				p, err := g.AcquireFor(t.Context(), r)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, flow)
				mu.Unlock()
				p.Settle(headway.Outcome{Class: headway.OK})
			})
			synctest.Wait()
		}
		wg.Wait()
		if got := strings.Join(order, " "); !strings.HasPrefix(got, "a fast fast fast b ") || !strings.HasSuffix(got, " a") {
			t.Errorf("served %s", got)
		}
		if took := time.Since(start); took != 50*sec || slow.taken != 6 || fast.taken != 3 {
			t.Errorf("in %v, %d and %d taken", took, slow.taken, fast.taken)
		}
	})
}

// An attempt that waits for one slow limit does not count as being ahead of attempts that
// do not need that limit, so none of them is refused because of it.
func TestAWaiterForAnotherBudgetIsNotAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{Ceiling: sec, Initial: sec, MaxWait: time.Hour, Tolerance: -1})
		slow, fast := &pot{key: 1, every: time.Hour}, &pot{key: 2, every: ms}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() { _, _ = g.AcquireFor(ctx, headway.Request{Flow: "a", Priority: 1, Budget: slow}) })
		}
		time.Sleep(10 * sec)
		short, stop := context.WithTimeout(t.Context(), 5*sec)
		if _, err := g.AcquireFor(short, headway.Request{Flow: "b", Budget: fast}); err != nil {
			t.Errorf("with 40 before it that wait for another limit: %v", err)
		}
		stop()
		_, err := g.AcquireFor(t.Context(), headway.Request{Flow: "b", Budget: &pot{key: 3, none: errors.New("never")}})
		if err == nil || err.Error() != "never" {
			t.Errorf("a refusal that no wait helps: %v", err)
		}
		short, stop = context.WithTimeout(t.Context(), time.Minute)
		start := time.Now()
		_, err = g.AcquireFor(short, headway.Request{Flow: "b", Budget: slow})
		if r := refusal(t, err); r.Reason != reason.QuotaExhausted || time.Since(start) != 0 || time.Until(r.RetryAt) < 39*time.Hour {
			t.Errorf("behind 39 of them: %v", err)
		}
		stop()
		cancel()
		wg.Wait()
		if s := g.Snapshot(); s.Waiting != 0 {
			t.Errorf("%d wait", s.Waiting)
		}
	})
}

// What a budget could not make durable is given back.
func TestAPermitIsGivenBackWhenItsBudgetIsNotDurable(t *testing.T) {
	g := newGovernor(t, headway.Config{Ceiling: ms, Initial: ms})
	full := errors.New("the disk is full")
	p, err := g.AcquireFor(t.Context(), headway.Request{Budget: &pot{every: ms, fails: full}})
	if !errors.Is(err, full) || p.Cancel() || g.Snapshot().InFlight != 0 {
		t.Errorf("%v, %d in flight", err, g.Snapshot().InFlight)
	}
}

// Capacity that comes early is used: the budget's owner calls Wake.
func TestWakeAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, headway.Config{Ceiling: ms, Initial: ms, MaxWait: 2 * time.Hour})
		g.Wake()
		b := &pot{every: time.Hour, next: time.Now().Add(time.Hour)}
		start := time.Now()
		time.AfterFunc(7*sec, func() {
			b.fill()
			g.Wake()
		})
		p, err := g.AcquireFor(t.Context(), headway.Request{Budget: b})
		if err != nil || time.Since(start) != 7*sec || p.Wait() != (headway.Wait{Reason: reason.Pacing, Bound: reason.BoundCeiling}) {
			t.Errorf("%v after %v, having waited for %+v", err, time.Since(start), p.Wait())
		}
	})
}

// A permit granted at the moment its wait ends is given back, and so is its budget.
func TestAPermitGrantedAsTheWaitEndsIsGivenBack(t *testing.T) {
	crossed := 0
	for range 60 {
		synctest.Test(t, func(t *testing.T) {
			g := newGovernor(t, headway.Config{Ceiling: ms, Initial: ms, MaxInFlight: 1})
			p := acquire(t, g)
			time.Sleep(sec)
			b := &pot{every: ms}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				p, err := g.AcquireFor(ctx, headway.Request{Budget: b})
				p.Cancel()
				ended <- err
			}()
			synctest.Wait()
			cancel()
			p.Settle(headway.Outcome{Class: headway.OK})
			err := <-ended
			if err != nil && b.taken > 0 {
				crossed++
			}
			if err != nil != (b.taken == b.back) || g.Snapshot().InFlight != 0 {
				t.Fatalf("%v: %d taken, %d given back, %d in flight", err, b.taken, b.back, g.Snapshot().InFlight)
			}
		})
	}
	t.Logf("%d crossed", crossed)
}

// A refusal at the moment of the deadline is the error returned, because it says more.
func TestARefusalAtTheDeadlineIsTheError(t *testing.T) {
	spent, crossed := errors.New("spent"), 0
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			g := newGovernor(t, headway.Config{Ceiling: ms, Initial: ms, MaxInFlight: 1})
			p := acquire(t, g)
			b := &pot{every: ms, none: spent}
			ctx, cancel := context.WithTimeout(t.Context(), sec)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := g.AcquireFor(ctx, headway.Request{Budget: b})
				ended <- err
			}()
			time.Sleep(sec)
			p.Settle(headway.Outcome{Class: headway.OK}) // now it would be served
			err := <-ended
			if errors.Is(err, spent) {
				crossed++
			} else if r, ok := errors.AsType[*headway.Refusal](err); !ok || r.RetryAt.IsZero() {
				t.Fatal(err)
			}
		})
	}
	t.Logf("%d crossed", crossed)
}

// mailbox is a fleet whose server is the test.
type mailbox struct {
	member headway.FleetMember
	mu     sync.Mutex
	said   []string
}

func (b *mailbox) Join(m headway.FleetMember) (headway.FleetWay, bool) {
	b.member = m
	return b, false
}

func (b *mailbox) Leave() {}

func (b *mailbox) Send(m headway.FleetMessage) {
	text, err := m.MarshalJSON()
	if err != nil {
		panic(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, string(text))
}

// says is what the member has said since it was asked last.
func (b *mailbox) says() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	said := strings.Join(b.said, "\n")
	b.said = nil
	return said
}

// A member of a fleet asks for no permit while its budget has no room: it would expire, and
// the others would go without.
func TestAFleetGrantsNoPermitForAFullBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := &mailbox{}
		g := newGovernor(t, headway.Config{Ceiling: ms, Initial: ms, MaxWait: time.Hour, JitterMax: -1, Fleet: box})
		hear := func(text string) {
			if err := box.member.Hear([]byte(text)); err != nil {
				t.Error(err)
			}
		}
		hear(`{"news": {"lease": 2000000000, "members": 2, "interval": 1000000, "debt": 0}}`)
		b := &pot{key: 1, every: 10 * sec, next: time.Now().Add(10 * sec)}
		begun := time.Now()
		var wg sync.WaitGroup
		var served atomic.Int32
		for range 3 {
			wg.Go(func() {
				if p, err := g.AcquireFor(t.Context(), headway.Request{Budget: b}); err == nil {
					served.Add(1)
					p.Settle(headway.Outcome{Class: headway.OK})
				}
			})
		}
		asked := func() (ids []uint64) {
			t.Helper()
			for line := range strings.Lines(box.says()) {
				var said struct{ Wants, Done []struct{ ID uint64 } }
				if err := json.Unmarshal([]byte(line), &said); err != nil {
					t.Fatal(err)
				}
				for _, w := range said.Wants {
					ids = append(ids, w.ID)
				}
			}
			return ids
		}
		grant := func(ids []uint64) {
			t.Helper()
			if len(ids) == 0 {
				t.Fatalf("no permit is asked for, after %v", time.Since(begun))
			}
			hear(fmt.Sprintf(`{"at": %d, "grants": [%d]}`, time.Since(begun), ids[0]))
		}
		grant(asked()) // it is not known yet that there is no room
		if said := box.says(); !strings.Contains(said, `"done":[{"id":1`) || !strings.Contains(said, `"drops":[2,3]`) {
			t.Errorf("without room it says %s", said)
		}
		time.Sleep(10*sec - ms)
		if said := box.says(); said != "" {
			t.Errorf("before there is room it says %s", said)
		}
		time.Sleep(2 * ms)
		var pending []uint64
		for want := 1; want <= 3; want++ {
			pending = append(pending, asked()...)
			grant(pending)
			time.Sleep(2 * ms) // the ceiling
			synctest.Wait()
			if b.taken != want {
				t.Fatalf("%d of the budget taken after %v, want %d", b.taken, time.Since(begun), want)
			}
			pending = pending[1:]
			b.fill()
			g.Wake()
		}
		wg.Wait()
		if n := served.Load(); n != 3 {
			t.Errorf("%d were served, want 3", n)
		}
	})
}
