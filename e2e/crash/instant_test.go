//go:build unix

package crash_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
)

// TestRandomInstants kills processes wherever they are, in our code,
// in SQLite's or in the system's, and starts the next one at once. When a
// collection is complete another begins, until enough have died. In each the
// provider changes after a while, whatever the process is at.
func TestRandomInstants(t *testing.T) {
	kills := longtest.Size(8, 200) // for each sink
	for _, sink := range kinds {
		t.Run(sink.name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			chance := rand.New(rand.NewPCG(seed, 0))
			survived, lives, torn, asked, needed := 0, 0, 0, 0, 0
			for survived < kills {
				lives++
				p := newProvider(t, 400, 40, passing)
				w := newPlace(t, sink, p, 4)
				survived += w.live(t, chance, kills-survived, &torn)
				w.drained(t)
				w.complete(t, false)
				p.served.Close()
				if t.Failed() {
					t.Fatalf("in collection %d, after %d kills", lives, survived)
				}
				asked += p.details
				needed += len(p.truth().order)
			}
			t.Logf("kills survived: %d, in %d collections; %d left bytes behind that were not committed; %d details were asked for of %d conversations",
				survived, lives, torn, asked, needed)
		})
	}
}

// passing is how conversations fail that get well while they are asked for.
func passing(i int) condition {
	switch {
	case i%97 == 13:
		return condition{-1, 404}
	case i == 20: // more of these would open the circuit
		return condition{2, 500}
	case i%9 == 4:
		return condition{3, 409}
	}
	return condition{}
}

// live kills processes until the collection is complete or that many have died.
func (w place) live(t *testing.T, chance *rand.Rand, most int, torn *int) (died int) {
	t.Helper()
	changed := false
	for died < most {
		after := 10*time.Millisecond + time.Duration(chance.Int64N(int64(240*time.Millisecond)))
		o := w.collect(t, nil, after)
		if !o.killed {
			if o.code != exitDrained && o.code != exitDeferred {
				t.Fatalf("kill %d of this collection, which was to come %v after the start: %s", died+1, after, o)
			}
			if changed {
				return died
			}
		} else {
			died++
			if w.committed(t, changed).tail {
				*torn++
			}
			if t.Failed() {
				t.Fatalf("after kill %d of this collection, which came %v after the start", died, after)
			}
		}
		if !changed && (!o.killed || died == 5) {
			w.p.update()
			changed = true
		}
	}
	return died
}

// drained runs the program until nothing is left that can be had.
func (w place) drained(t *testing.T) {
	t.Helper()
	for range 8 {
		if w.ended(t).code == exitDrained {
			return
		}
		gone, left := w.p.truth().gone, 0
		for id, g := range w.look(t).gaps {
			if g.Status == collect.GapPending && !gone[id] {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
	t.Errorf("eight runs did not drain it")
}
