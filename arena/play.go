package arena

import (
	"context"
	"net/http"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// Spin is what a rival is charged when it waits for no time or fails without
// sending: in real life its loop would take about that long.
const Spin = time.Microsecond

// Most is how many refusals a run may have: then it is cut, and its figures are
// those up to that instant.
const Most = 100_000

// Sender is one rival at work, shared by the workers of a client.
type Sender interface {
	// Send carries a piece of work as far as the rival goes: its waits, its
	// retries. What it brings back is closed; what counts is what the provider saw.
	Send(*http.Request) (*http.Response, error)
}

// Entry is the outcome of one run.
type Entry struct {
	sim.Result
	// Cut is when the run was cut, for being refused too often; 0 when it was not.
	// Then HorizonS and all figures are those of the time until then.
	Cut time.Duration
	// Spins counts attempts that failed in no time, without being sent.
	Spins int
	// Counts is what the provider counted.
	Counts provider.Counts
}

// Play runs a rival through a scenario. The oracle must be that of the scenario
// and the seed. Call it outside of a bubble.
func Play(t *testing.T, s *scenario.Scenario, seed uint64, r Rival, oracle *sim.Oracle, most int) Entry {
	t.Helper()
	var e Entry
	synctest.Test(t, func(t *testing.T) {
		own := *s // its horizon is shortened when the run is cut
		ledger := sim.NewLedger(&own, r.Name, seed)
		w, err := newWire(s, seed, most, ledger)
		if err != nil {
			t.Fatal(err)
		}
		w.run(t.Context(), r)

		end, best := s.Horizon, oracle
		if w.cut > 0 {
			end, own.Horizon = w.cut, w.cut
			n := sort.Search(len(oracle.Admissions), func(i int) bool { return oracle.Admissions[i] > end })
			best = &sim.Oracle{Admissions: oracle.Admissions[:n]}
		}
		w.model.Advance(end)
		e = Entry{Result: ledger.Result(best, w.model), Cut: w.cut, Spins: w.spins, Counts: w.model.Counts()}
		if w.cut > 0 {
			e.StrangersHarm = nil // the oracle's figure is that of the whole run
		}
	})
	return e
}

// run lets the rival's workers work until the run is over.
func (w *wire) run(ctx context.Context, r Rival) {
	// Not a deadline: some rivals give up early when they see one coming.
	ctx, w.end = context.WithCancel(ctx)
	defer w.end()
	w.ledger.Idle(w.idleUntil(0))

	var workers sync.WaitGroup
	var shared Sender
	for _, c := range w.clients {
		sender := shared
		if sender == nil {
			sender = r.New(w.s, w)
		}
		if w.s.Fleet {
			shared = sender
		}
		if c.open {
			workers.Go(c.arrivals)
		}
		for range w.s.Workload.MaxInFlight {
			workers.Go(func() { c.labour(ctx, sender) })
		}
	}
	// The end may come sooner: nobody waits for this one.
	timer := time.AfterFunc(w.s.Horizon, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.finish()
	})
	workers.Wait()
	timer.Stop()
}
