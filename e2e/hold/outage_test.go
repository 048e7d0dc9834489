//go:build unix

package hold_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/reason"
)

// circuit is how long one stays open; an outage here is over before that.
const (
	circuit   = time.Minute
	outageFor = 24 * time.Second
)

// steadyWork takes eight seconds without an outage.
var steadyWork = serve.Options{Seed: 6, Conversations: 200, Messages: 4, Token: harness.Token}

// failing is a provider that is down from its sixtieth request on, so while the
// details are collected, however fast the machine is. Within says until when.
func failing(t *testing.T, within func(down time.Duration) bool) *site {
	t.Helper()
	s := newSite(t, steadyWork)
	var mu sync.Mutex
	asked, since := 0, time.Time{}
	s.lie.Store(&lie{
		applies: func(*http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if asked++; asked == 60 {
				since = time.Now()
			}
			return asked >= 60 && within(time.Since(since))
		},
		answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	})
	return s
}

// eventsOf are a run's events of one type, in its output.
func eventsOf(o harness.Outcome, kind event.Type) (n int) {
	return strings.Count(o.Stdout, fmt.Sprintf(`"type":%q,"connection"`, kind))
}

// A run once ended after 136 s of its 900 s, for one circuit that had opened.
func TestOutageIsWaitedOut(t *testing.T) {
	t.Parallel()
	s := failing(t, func(down time.Duration) bool { return down < outageFor })
	w := newWorkplace(t, s.URL, connection{ceiling: "40ms", step: "200ms", page: 50, run: "{max_wall_clock: 15m}"})
	o := w.Collect(t, "--json")
	got := harness.Summary(t, o)
	if o.Code != harness.ExitDrained || len(got.Owed) > 0 {
		t.Errorf("got %s (%s), owed %v: %s", got.Reason, got.Error, got.Owed, o)
	}
	if o.Took < outageFor {
		t.Errorf("it took %v; the circuit is open for %v", o.Took, circuit)
	}
	w.Complete(t, truthOf(t, steadyWork))
	t.Logf("drained after %v of 15 minutes: %d attempts, %d retries, %d circuit events", o.Took.Round(time.Millisecond), got.Attempts, got.Retries, eventsOf(o, event.Circuit))
}

func TestOutageLongerThanTheRun(t *testing.T) {
	t.Parallel()
	s := failing(t, func(time.Duration) bool { return true })
	w := newWorkplace(t, s.URL, connection{ceiling: "40ms", step: "200ms", page: 50, run: "{max_wall_clock: 12s}"})
	o := w.Collect(t, "--json")
	got := harness.Summary(t, o)
	if o.Code != harness.ExitDeferred || got.Reason != reason.MaxWallClock.Reason() {
		t.Errorf("got %s (%s), want %s: %s", got.Reason, got.Error, reason.MaxWallClock, o)
	}
	if got.Cooldown.Cycles > 0 || !got.Cooldown.Until.IsZero() {
		t.Errorf("a cap is not pressure, and the run arms a cooldown: %+v", got.Cooldown)
	}
	// The next run comes once the outage is over, and at the time that was named.
	s.lie.Store(nil)
	again := got.Ended
	if got.RetryAt.After(again) {
		again = got.RetryAt
	}
	for _, g := range w.Gaps(t) {
		if g.RetryAt.After(again) {
			again = g.RetryAt
		}
	}
	t.Logf("deferred after %v (%s), owed %v, next run in %v", o.Took.Round(time.Millisecond), got.Reason, got.Owed, again.Sub(got.Ended).Round(time.Millisecond))
	if again.Sub(got.Ended) > circuit {
		t.Fatalf("the next run would be at %v", again)
	}
	timer := time.NewTimer(time.Until(again))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	next := w.Collect(t, "--json", "--max-wall-clock", "15m")
	if got := harness.Summary(t, next); next.Code != harness.ExitDrained || len(got.Owed) > 0 {
		t.Errorf("the next run: %s (%s), owed %v: %s", got.Reason, got.Error, got.Owed, next)
	}
	w.Complete(t, truthOf(t, steadyWork))
}
