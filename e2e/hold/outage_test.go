//go:build unix

package hold_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/harness"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/sim/serve"
)

// An outage begins while the details are collected, opens the circuit for its
// minute, and is over before that.
const (
	outageAt  = 4 * time.Second
	outageFor = 24 * time.Second
	circuit   = time.Minute
)

// steadyWork takes eight seconds without an outage.
var steadyWork = serve.Options{Seed: 6, Conversations: 200, Messages: 4, Token: harness.Token}

// failingProvider starts a provider in a process of its own that has an outage.
func failingProvider(t *testing.T) (url string) {
	t.Helper()
	dir := t.TempDir()
	scenario, ready := filepath.Join(dir, "scenario.yaml"), filepath.Join(dir, "ready")
	harness.Write(t, scenario, fmt.Sprintf("name: outage\nprovider:\n  latency: {p50: 2ms}\n  faults: [{at: %v, for: %v, kind: outage}]\n", outageAt, outageFor))
	p := harness.Launch(t, dir, nil, "provider", "serve", scenario, "--listen", "127.0.0.1:0", "--ready-file", ready, "--token", harness.Token,
		"--seed", fmt.Sprint(steadyWork.Seed), "--conversations", fmt.Sprint(steadyWork.Conversations), "--messages", fmt.Sprint(steadyWork.Messages))
	p.Await(t, &p.Stderr, "serving outage at ")
	text, err := os.ReadFile(ready)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Signal(t, syscall.SIGTERM)
		if o := p.Wait(t); o.Code != 0 {
			t.Errorf("the provider did not stop in order: %s", o)
		}
	})
	return strings.TrimSpace(string(text))
}

// eventsOf are a run's events of one type, in its output.
func eventsOf(o harness.Outcome, kind event.Type) (n int) {
	return strings.Count(o.Stdout, fmt.Sprintf(`"type":%q,"connection"`, kind))
}

// A run once ended after 136 s of its 900 s, for one circuit that had opened.
func TestOutageIsWaitedOut(t *testing.T) {
	t.Parallel()
	url := failingProvider(t)
	w := newWorkplace(t, url, connection{ceiling: "40ms", step: "200ms", page: 50, run: "{max_wall_clock: 15m}"})
	o := w.Collect(t, "--json")
	got := harness.Summary(t, o)
	if o.Code != harness.ExitDrained || len(got.Owed) > 0 {
		t.Errorf("got %s (%s), owed %v: %s", got.Reason, got.Error, got.Owed, o)
	}
	if o.Took < outageAt+outageFor {
		t.Errorf("it took %v; the circuit is open for %v", o.Took, circuit)
	}
	w.Complete(t, truthOf(t, steadyWork))
	t.Logf("drained after %v of 15 minutes: %d attempts, %d retries, %d circuit events", o.Took.Round(time.Millisecond), got.Attempts, got.Retries, eventsOf(o, event.Circuit))
}

func TestOutageLongerThanTheRun(t *testing.T) {
	t.Parallel()
	s := newSite(t, steadyWork)
	asked := atomic.Int64{}
	// From the sixtieth request on, however fast the machine is, until the next run.
	s.lie.Store(&lie{
		applies: func(*http.Request) bool { return asked.Add(1) > 60 },
		answer:  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	})
	w := newWorkplace(t, s.URL, connection{ceiling: "40ms", step: "200ms", page: 50, run: "{max_wall_clock: 12s}"})
	o := w.Collect(t, "--json")
	got := harness.Summary(t, o)
	if o.Code != harness.ExitDeferred || got.Reason != reason.MaxWallClock.Reason() {
		t.Errorf("got %s (%s), want %s: %s", got.Reason, got.Error, reason.MaxWallClock, o)
	}
	if got.Pressure.Cycles > 0 || !got.Pressure.Until.IsZero() {
		t.Errorf("a cap is no pressure, and the run arms a cooldown: %+v", got.Pressure)
	}
	// The next run comes once the outage is over, and at the time that was named.
	s.lie.Store(nil)
	again := got.RetryAt
	for _, g := range w.Gaps(t) {
		if g.RetryAt.After(again) {
			again = g.RetryAt
		}
	}
	t.Logf("deferred after %v (%s), owed %v, next run in %v", o.Took.Round(time.Millisecond), got.Reason, got.Owed, time.Until(again).Round(time.Millisecond))
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
