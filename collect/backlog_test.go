package collect_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
)

// outage is a bench in a bubble whose details can be down as a whole.
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

// add puts n docs of so many messages each into the list, changed one second
// after the other from the given instant on.
func (o *outage) add(n, messages int, from time.Time) {
	for i := range n {
		d := doc{ID: fmt.Sprintf("d%04d", len(o.docs)), Updated: from.Add(time.Duration(i) * time.Second).UTC().Format(time.RFC3339)}
		for m := range messages {
			d.Messages = append(d.Messages, fmt.Sprint("message ", m))
		}
		o.docs = append(o.docs, d)
	}
}

// owes runs while details are down and checks how many a backlog stands for.
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

// recovered runs with details up until nothing is left, and checks that all of
// them were collected.
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

// The newest first: 2,800 of 5,000 messages were lost, since what was left after
// the first pages was looked for from their watermark on, the highest there is.
func TestIncidentABacklogOfANewestFirstListLost2800Of5000Messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, 100)
		o.newest = true
		o.add(2500, 2, time.Now().Add(-24*time.Hour))
		o.owes(t, 1400)
		o.recovered(t)
	})
}

// Twelve docs of the first page that became a backlog had the watermark of the
// last doc before it, and the list leaves out the watermark that it is asked for.
func TestIncidentABacklogOfAnExclusiveListLost12(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, 100)
		o.after = true
		o.add(1500, 1, time.Now().Add(-24*time.Hour))
		for i := 1099; i < 1112; i++ {
			o.docs[i].Updated = o.docs[1099].Updated
		}
		o.owes(t, 400)
		o.recovered(t)
	})
}

// An outage that left a backlog of what changed went on in the past: 5,800 of
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
		o.owes(t, 800)
		o.o.CatchupPages = 0
		o.owes(t, 800+2900)
		o.recovered(t)
	})
}

// A walk that an earlier run began shows nothing that came after it began: a run
// that completes it looks for that too before it says that nothing is left.
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
