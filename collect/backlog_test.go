package collect_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// outage is a bench in a bubble whose details can be made to fail.
type outage struct {
	*bench
	down bool
}

func newOutage(t *testing.T, pageSize int) *outage {
	t.Helper()
	o := &outage{bench: endure(t, 0), down: true}
	o.o.Pacing = headway.Config{Ceiling: time.Millisecond, Initial: time.Millisecond}
	o.o.Retry.Attempts = 1
	o.pageSize = pageSize
	o.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return o.down && isDetail(r) && fail(w, http.StatusServiceUnavailable)
	}
	return o
}

// add adds n docs with the given number of messages each to the list. They change one
// second apart, beginning at the given instant.
func (o *outage) add(n, messages int, from time.Time) {
	for i := range n {
		d := doc{ID: fmt.Sprintf("d%04d", len(o.docs)), Updated: from.Add(time.Duration(i) * time.Second).UTC().Format(time.RFC3339)}
		for m := range messages {
			d.Messages = append(d.Messages, fmt.Sprint("message ", m))
		}
		o.docs = append(o.docs, d)
	}
}

// owes runs while details fail and checks how many items the backlog stands for.
func (o *outage) owes(t *testing.T, want int64) {
	t.Helper()
	s, err := o.run(t)
	if err != nil || s.State != collect.RunDeferred {
		t.Fatalf("got %s (%s), %v; want a deferred run", s.State, s.Reason, err)
	}
	backlog := int64(0)
	for _, g := range o.gaps(t, collect.GapPending) {
		backlog += g.Items
	}
	if backlog != want {
		t.Fatalf("a backlog of %d docs, want %d of %d", backlog, want, len(o.docs))
	}
}

// recovered runs with working details until nothing is left, and checks that all of them
// were collected.
func (o *outage) recovered(t *testing.T) {
	t.Helper()
	o.down = false
	for range 8 {
		o.retry(t)
		s, err := o.run(t)
		if err != nil {
			t.Fatal(err)
		}
		if s.State == collect.RunDrained {
			all := 0
			for _, d := range o.docs {
				all += len(d.Messages)
			}
			if lost := all - len(o.lines(t, "messages")); lost != 0 {
				t.Fatalf("drained, and %d of %d messages are lost", lost, all)
			}
			o.complete(t)
			return
		}
	}
	t.Fatal("not drained after 8 runs")
}

// With the newest first, 2,800 of 5,000 messages were lost: the rest after the first pages
// was looked for from the watermark of those pages, which is the highest of all.
func TestIncidentABacklogOfANewestFirstListLost2800Of5000Messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, 100)
		o.newest = true
		o.add(2500, 2, time.Now().Add(-24*time.Hour))
		o.owes(t, 1200)
		o.recovered(t)
	})
}

// Twelve docs of the first page of a backlog had the watermark of the last doc before it,
// and the list excludes the watermark with which it is requested.
func TestIncidentABacklogOfAnExclusiveListLost12(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, 100)
		o.after = true
		o.add(1500, 1, time.Now().Add(-24*time.Hour))
		for i := 1099; i < 1112; i++ {
			o.docs[i].Updated = o.docs[1099].Updated
		}
		o.owes(t, 200)
		o.recovered(t)
	})
}

// An outage left a backlog in the steady lane and continued in the catch-up: 5,800 of
// 12,000 messages were lost, since the backlog kept its later start.
func TestIncidentASteadyBacklogHidACatchupBacklogOf5800Of12000Messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, 100)
		o.add(4200, 2, time.Now().Add(-24*time.Hour))
		o.down = false
		o.o.CatchupPages = 1 // the past, a page a run
		if s, err := o.run(t); err != nil || s.Details != 100 {
			t.Fatalf("%d details, %v; want the first page's", s.Details, err)
		}
		time.Sleep(time.Hour)
		o.add(1800, 2, time.Now().Add(-30*time.Minute))
		o.down = true
		o.owes(t, 600)
		o.o.CatchupPages = 0
		o.owes(t, 600+2800)
		o.recovered(t)
	})
}

// A walk that an earlier run began misses changes after its begin. The run that completes
// it lists these too before it drains.
func TestARunThatResumesAWalkFindsWhatChangedSinceItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, 10)
		o.newest, o.down = true, false
		o.add(10, 1, time.Now().Add(-24*time.Hour))
		o.drained(t)
		time.Sleep(time.Hour)
		o.add(30, 1, time.Now().Add(-30*time.Minute))
		o.o.MaxRequests = 15 // the first of three pages, and a part of the second
		if s, err := o.run(t); err != nil || s.State != collect.RunDeferred {
			t.Fatalf("got %s (%s), %v; want a deferred run", s.State, s.Reason, err)
		}
		time.Sleep(time.Hour)
		o.add(2, 1, time.Now().Add(-30*time.Minute))
		o.o.MaxRequests = 0
		o.drained(t)
		o.complete(t)
	})
}

// During the cooldown, recovery may slow the pacing down but never speed it up.
func TestRecoveryInTheCooldownSpeedsNothingUp(t *testing.T) {
	end := func(cooled bool) float64 {
		b := newBench(t, 20)
		b.o.Pacing.Law = "aimd"
		b.o.Pacing.Initial, b.o.Pacing.Step = time.Millisecond, 10*time.Microsecond
		b.owe(t, reason.ServerError, 0, 20, nil)
		if cooled {
			b.cool(t, time.Now().Add(time.Hour))
		}
		s, err := b.run(t)
		if err != nil || s.GapsRecovered != 20 || s.Rate == nil {
			t.Fatalf("cooled %v: %+v, %v", cooled, s, err)
		}
		return s.Rate.CurrentIntervalMS
	}
	if free, cooled := end(false), end(true); free > 0.9 || cooled < 0.95 {
		t.Errorf("an interval of 1 ms became %v ms, in the cooldown %v ms", free, cooled)
	}
}

func TestACapLeavesTheCooldownAsItIs(t *testing.T) {
	b := newBench(t, 6)
	until := time.Now().Add(time.Hour).Round(0)
	b.owe(t, reason.ServerError, 0, 4, nil)
	b.cool(t, until)
	b.o.MaxRequests = 2
	s, err := b.run(t)
	if err != nil || s.Reason != reason.MaxRequests.Reason() {
		t.Fatalf("got %s, %v", s.Reason, err)
	}
	state, err := b.store.Load(t.Context(), "bench")
	if err != nil || !state.Cooldown.Until.Equal(until) || !s.Cooldown.Until.Equal(until) {
		t.Fatalf("a cooldown until %v became %v, summary %v, %v", until, state.Cooldown.Until, s.Cooldown.Until, err)
	}
}

func TestPressureNeverQuarantinesAGap(t *testing.T) {
	b := newBench(t, 1)
	b.o.Retry.Attempts = 1
	b.o.Pacing.NoBreaker = true
	b.owe(t, reason.ServerError, 0, 1, func(g *collect.Gap) { g.Attempts = 100 })
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return isDetail(r) && fail(w, http.StatusTooManyRequests)
	}
	if _, err := b.run(t); err != nil {
		t.Fatal(err)
	}
	if gaps := b.gaps(t, collect.GapTerminal); len(gaps) != 0 {
		t.Fatalf("quarantined for the provider's pressure: %+v", gaps)
	}
	if gaps := b.gaps(t, collect.GapPending); len(gaps) != 1 || gaps[0].Reason != reason.RateLimited.Reason() || gaps[0].Attempts < 101 {
		t.Fatalf("gaps %+v, want the one, attempted once more", gaps)
	}
}

// served records the sizes of the pages of gaps.
type served struct {
	collect.Store
	pages []int
	rows  int
}

func (s *served) Serve(ctx context.Context, l collect.Lease, ask collect.ServeRequest) ([]collect.Gap, error) {
	gaps, err := s.Store.Serve(ctx, l, ask)
	size := 0
	for _, g := range gaps {
		size += len(g.Locator)
	}
	if len(gaps) > 0 {
		s.pages, s.rows = append(s.pages, size), max(s.rows, len(gaps))
	}
	return gaps, err
}

func TestAPageOfGapsIsBoundedInBytesAndRows(t *testing.T) {
	b := newBench(t, 1200)
	b.owe(t, reason.ServerError, 0, 40, func(g *collect.Gap) {
		g.Locator = fmt.Appendf(nil, `{"id":%q,"pad":%q}`, g.Key, strings.Repeat("x", 100<<10))
	})
	b.owe(t, reason.ServerError, 40, 1200, nil)
	s := &served{Store: b.store}
	b.o.Store = s
	if got := b.drained(t); got.GapsRecovered != 1200 {
		t.Fatalf("recovered %d of 1200", got.GapsRecovered)
	}
	for i, size := range s.pages {
		if size > 1<<20 {
			t.Errorf("page %d holds %d bytes of locators, want at most 1 MiB", i, size)
		}
	}
	if len(s.pages) < 4 || s.rows > 500 {
		t.Errorf("%d pages of at most %d gaps, want at least 4 of at most 500", len(s.pages), s.rows)
	}
}

// An item of a backlog that fails by itself gets its own gap and leaves the backlog. An item
// that was not requested stays in the backlog.
func TestABacklogKeepsUnsentItemsAndReleasesFailedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOutage(t, 50)
		b.add(1300, 2, time.Now().Add(-24*time.Hour))
		b.owes(t, 150)
		last := "/docs/" + b.docs[len(b.docs)-60].ID
		asked := 0
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			if r.URL.Path == last {
				asked++
				return fail(w, http.StatusInternalServerError)
			}
			return false
		}
		// Stops in the middle of the backlog: the rest is still owed.
		b.retry(t)
		b.o.MaxRequests = 1150
		s, err := b.run(t)
		if err != nil || s.Reason != reason.MaxRequests.Reason() || backlogs(b.gaps(t, collect.GapPending)) != 1 {
			t.Fatalf("got %s, %v, %d backlog gaps", s.Reason, err, backlogs(b.gaps(t, collect.GapPending)))
		}
		b.o.MaxRequests = 0
		b.retry(t)
		if _, err := b.run(t); err != nil {
			t.Fatal(err)
		}
		gaps := b.gaps(t, collect.GapPending)
		if len(gaps) != 1 || gaps[0].Backlog || "/docs/"+gaps[0].Key != last || asked == 0 {
			t.Fatalf("owed %+v after %d requests for %s, want a gap of its own", gaps, asked, last)
		}
		b.retry(t)
		b.overrule = nil
		b.drained(t)
		b.complete(t)
	})
}
