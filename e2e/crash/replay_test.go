//go:build unix

package crash_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/internal/longtest"
)

// into is the same place with another sink.
func (w place) into(t *testing.T, sink kind) place {
	t.Helper()
	file := filepath.Join(w.dir, "conn.yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte("sink: {"+w.sink.yaml+"}"), []byte("sink: {"+sink.yaml+"}"), 1)
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	w.sink = sink
	return w
}

// replay copies what the former sink kept, in a process of its own.
func (w place) replay(t *testing.T, env ...string) outcome {
	t.Helper()
	return launch(t, w.dir, append(env, "CHAT_URL="+w.p.served.URL), 0, "replay", "conn.yaml", "--quiet")
}

// anySink are steps of a replay at which no sink is at work.
var anySink = []fault.Name{
	fault.LeaseAcquired, fault.SliceCommitting, fault.SliceCommitted, fault.StoreBegun, fault.StoreCommitting, fault.StoreCommitted,
	fault.RunFinishing, fault.RunFinished,
}

// TestEveryStepOfAReplay lets a replay die at each of its steps. Another one goes
// on, and has all records in the new sink once; a run afterwards goes on where the
// collection stood. Steps that have nothing to do with the sinks are shared out
// between the pairs, but in a long run.
func TestEveryStepOfAReplay(t *testing.T) {
	// So many that each stream takes several slices.
	many := func(t *testing.T) *provider {
		return newProvider(t, 1040, 80, func(int) condition { return condition{} })
	}
	type pair struct {
		from, to kind
		died     bool // the collection died with a slice that was committed and is not in the tables
	}
	pairs := []pair{{fileSink, jsonlSink, true}, {stateSink, fileSink, false}, {fileSink, jsonlSink, false}, {fileSink, stateSink, false}}
	for turn, tt := range pairs[:longtest.Size(2, len(pairs))] {
		name := tt.from.name + " into " + tt.to.name
		if tt.died {
			name += " after a kill"
		}
		t.Run(name, func(t *testing.T) {
			begun := newPlace(t, tt.from, many(t), 8)
			if tt.died {
				begun.dies(t, fault.FileApplying, 12)
			} else {
				begun.ended(t)
			}
			begun = begun.into(t, tt.to)
			trace := filepath.Join(t.TempDir(), "trace")
			if o := begun.copied(t, begun.p).replay(t, fault.TraceEnv+"="+trace); o.killed || o.code != 0 {
				t.Fatal(o)
			}
			b, err := os.ReadFile(trace)
			if err != nil {
				t.Fatal(err)
			}
			passes := map[fault.Name]int{}
			for line := range strings.Lines(string(b)) {
				passes[fault.Name(strings.TrimSpace(line))]++
			}
			if passes[fault.SliceCommitting] < 3 {
				t.Errorf("so few slices: %v", passes)
			}
			for _, step := range slices.Sorted(maps.Keys(passes)) {
				at := slices.Index(anySink, step)
				if !longtest.Long() && at >= 0 && (at+turn)%2 == 1 {
					continue
				}
				for _, pass := range chosen(passes[step]) {
					t.Run(fmt.Sprintf("%s:%d", step, pass), func(t *testing.T) {
						t.Parallel()
						w := begun.copied(t, begun.p)
						if o := w.replay(t, fmt.Sprintf("%s=%s:%d", fault.Env, step, pass)); !o.killed {
							t.Fatalf("it did not come to pass %d of %s: %s", pass, step, o)
						}
						if w.sink == jsonlSink { // tables have no two rows of a key
							w.look(t).genuine(t, w.p.truth())
						}
						if o := w.replay(t); o.killed || o.code != 0 {
							t.Fatal(o)
						}
						h := w.look(t)
						h.genuine(t, w.p.truth())
						h.accounted(t, w.p.truth())
						w.ended(t)
						w.complete(t, false)
					})
				}
			}
		})
	}
}
