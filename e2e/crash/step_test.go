//go:build unix

package crash_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/sink/jsonl"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
	store "github.com/headway-go/headway/store/sqlite"
)

// scenario is one way to come to the steps.
type scenario struct {
	name string
	// begin makes a place at which nothing runs yet.
	begin func(t *testing.T, sink kind) place
	// again is the provider of that place, as it is then, once more.
	again func(t *testing.T) *provider
	args  []string // of collect
	// steps are those to die at; nil is all that it comes to. Shared says that the sinks
	// share out those that all of them come to, but in a long run.
	steps  []fault.Name
	shared bool
	// left checks what the dead left; after goes on from there to the end.
	left, after func(t *testing.T, w place)
}

// Of 24 conversations some fail for a while, one of them with a server's error,
// of which more would open the circuit, and one fails for ever.
func ill(i int) condition {
	switch {
	case i == 13:
		return condition{-1, 404}
	case i == 3:
		return condition{1000, 500}
	case i%9 == 6, i == 14:
		return condition{1000, 409}
	}
	return condition{}
}

func young(t *testing.T) *provider { return newProvider(t, 24, 4, ill) }

func updated(t *testing.T) *provider {
	p := young(t)
	p.update()
	return p
}

// large has more than a run keeps as gaps of their own.
func large(t *testing.T) *provider {
	return newProvider(t, 1240, 40, func(int) condition { return condition{} })
}

var scenarios = []scenario{
	{
		// The first collection: its gaps are opened, and tried in vain.
		name:  "first",
		begin: func(t *testing.T, sink kind) place { return newPlace(t, sink, young(t), 1) },
		again: young,
		left:  func(t *testing.T, w place) { w.committed(t, false) },
		after: func(t *testing.T, w place) {
			w.ended(t)
			h := w.committed(t, false)
			want := w.p.truth()
			h.owes(t, want.sick) // those that are gone among them
			if l := h.lanes[collect.Catchup]; !l.Done || l.Walking {
				t.Errorf("the catch-up is not done: %+v", l)
			}
			w.p.update()
			w.ended(t)
			w.complete(t, true)
		},
	},
	{
		// The second: gaps are recovered, changes are found.
		name: "second",
		begin: func(t *testing.T, sink kind) place {
			w := newPlace(t, sink, young(t), 1)
			w.ended(t)
			w.p.update()
			return w
		},
		again: updated,
		left:  func(t *testing.T, w place) { w.committed(t, false) },
		after: func(t *testing.T, w place) {
			w.ended(t)
			w.complete(t, true)
		},
	},
	{
		// Starting over sets aside what there is, and deletes nothing.
		name: "fresh",
		begin: func(t *testing.T, sink kind) place {
			w := newPlace(t, sink, updated(t), 1)
			w.ended(t)
			return w
		},
		again: updated,
		args:  []string{"--fresh"},
		steps: []fault.Name{fault.FreshAside, fault.FreshForgotten, fault.SinkSynced, fault.JSONLChanging, fault.FileStaging, fault.FileStaged, fault.FileApplying, fault.FileApplied},
		left:  func(*testing.T, place) {}, // state and sink are of two beginnings
		after: func(t *testing.T, w place) {
			w.ended(t, "--fresh")
			w.complete(t, false)
			w.keptAside(t)
		},
	},
	{
		// A tail of details that pressure deferred is worked off as one gap.
		name:  "backlog",
		begin: overwhelmed,
		again: large,
		steps: []fault.Name{
			fault.BacklogListed, fault.BacklogCommitted, fault.SinkSynced, fault.StoreCommitting, fault.StoreCommitted,
			fault.FileStaged, fault.FileApplying,
		},
		shared: true,
		left:   func(t *testing.T, w place) { w.committed(t, false) },
		after: func(t *testing.T, w place) {
			w.ended(t)
			w.complete(t, false)
		},
	},
}

// overwhelmed is a place whose provider gave no detail, after a second process
// has died with a page of the backlog in hand: one of the last, so that few are
// left to those that follow, in a long run the first.
func overwhelmed(t *testing.T, sink kind) place {
	w := newPlace(t, sink, large(t), 4)
	w.p.swamp(true)
	w.suspended(t)
	h := w.committed(t, false)
	if g := h.gaps[""]; !g.Backlog || g.Status != collect.GapPending {
		t.Fatalf("no backlog after %d gaps: %+v", len(h.gaps), g)
	}
	w.p.swamp(false)
	w.retry(t)
	w.dies(t, fault.BacklogListed, longtest.Size(26, 1))
	w.committed(t, false)
	return w
}

// suspended runs a collection in a bubble of this process: the program waits for
// minutes until it gives the details up and walks on.
func (w place) suspended(t *testing.T) {
	t.Helper()
	synctest.Test(t, w.suspendedNow)
}

func (w place) suspendedNow(t *testing.T) {
	t.Helper()
	config, err := rest.Load(filepath.Join(w.dir, "conn.yaml"), func(string) (string, bool) { return w.p.served.URL, true })
	if err != nil {
		t.Fatal(err)
	}
	o := collect.Options{Connection: "chat", Sink: sqlsink.New("chat"), Base: within{w.p.served.Config.Handler}}
	switch w.sink {
	case fileSink:
		o.Sink = sqlsink.NewFile(filepath.Join(w.dir, w.sink.records), "chat")
	case jsonlSink:
		o.Sink = jsonl.New(filepath.Join(w.dir, "out"))
	}
	if o.Connector, err = rest.New(config); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), filepath.Join(w.dir, w.sink.state))
	if err != nil {
		t.Fatal(err)
	}
	o.Store = s
	o.Pacing.Ceiling, o.Pacing.Initial, o.Retry.Attempts = time.Millisecond, time.Millisecond, 1
	c, err := collect.New(o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Run(t.Context())
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// within serves requests in the process.
type within struct{ http.Handler }

func (w within) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	res := rec.Result()
	res.Request = r
	return res, nil
}

// dies runs the program until a pass of a step, which it must come to.
func (w place) dies(t *testing.T, step fault.Name, pass int, args ...string) {
	t.Helper()
	if !w.comesTo(t, step, pass, args...) {
		t.Fatalf("it did not come to pass %d of %s", pass, step)
	}
}

// comesTo runs the program until a pass of a step, and reports whether it died there
// or came to an end of its own.
func (w place) comesTo(t *testing.T, step fault.Name, pass int, args ...string) bool {
	t.Helper()
	o := w.collect(t, []string{fmt.Sprintf("%s=%s:%d", fault.Env, step, pass)}, 0, args...)
	if !o.killed && o.code != exitDrained && o.code != exitDeferred {
		t.Fatalf("before pass %d of %s: %s", pass, step, o)
	}
	return o.killed
}

// passes are the steps of a run that nobody interrupts, each with how often it
// is passed.
func (w place) passes(t *testing.T, args ...string) map[fault.Name]int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace")
	if o := w.collect(t, []string{fault.TraceEnv + "=" + file}, 0, args...); o.killed || (o.code != exitDrained && o.code != exitDeferred) {
		t.Fatal(o)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := map[fault.Name]int{}
	for line := range strings.Lines(string(b)) {
		n[fault.Name(strings.TrimSpace(line))]++
	}
	return n
}

// TestEveryCommitStep lets a process die at every step that there is a point
// for, with each sink, in the middle of all the times that it comes there, and
// another one go on. Steps that the first and the second collection both come to
// are shared out between the sinks: one dies at such a step in the first, another one in the
// second; those of a backlog are shared out between the sinks too. In a long run each dies
// at all of them, and the first, the second and the last time too.
func TestEveryCommitStep(t *testing.T) {
	for turn, sink := range kinds {
		t.Run(sink.name, func(t *testing.T) {
			reached := map[fault.Name]int{}
			var survived atomic.Int64
			t.Run("steps", func(t *testing.T) {
				begun, coming := make([]place, len(scenarios)), make([]map[fault.Name]int, len(scenarios))
				for i, s := range scenarios {
					begun[i] = s.begin(t, sink)
					coming[i] = begun[i].copied(t, s.again(t)).passes(t, s.args...)
				}
				for i, s := range scenarios {
					begun, passes := begun[i], coming[i]
					for _, step := range slices.Sorted(maps.Keys(passes)) {
						reached[step] += passes[step]
						if s.steps != nil && !slices.Contains(s.steps, step) {
							continue
						}
						if at := slices.Index(s.steps, step) + turn; s.shared && !longtest.Long() && ownSteps[step] == "" && at%len(kinds) > 0 {
							continue
						}
						both := s.steps == nil && coming[0][step] > 0 && coming[1][step] > 0
						if both && !longtest.Long() && (slices.Index(fault.Names(), step)+turn)%len(kinds) != i {
							continue
						}
						for _, pass := range chosen(passes[step]) {
							t.Run(fmt.Sprintf("%s/%s:%d", s.name, step, pass), func(t *testing.T) {
								t.Parallel()
								w := begun.copied(t, s.again(t))
								// The traced run may have been slower, and have committed more often: by time.
								for at := pass; !w.comesTo(t, step, at, s.args...); at /= 2 {
									if at == 1 {
										t.Fatalf("it did not come to %s", step)
									}
									w = begun.copied(t, s.again(t))
								}
								s.left(t, w)
								s.after(t, w)
								if !t.Failed() {
									survived.Add(1)
								}
							})
						}
					}
				}
			})
			for _, step := range fault.Names() {
				if reached[step] == 0 && (ownSteps[step] == "" || ownSteps[step] == sink.name) {
					t.Errorf("no scenario comes to %s: it is not tested", step)
				}
				delete(reached, step)
			}
			for step := range reached {
				t.Errorf("the step %q is not among fault.Names", step)
			}
			t.Logf("kills survived: %d, at %d steps", survived.Load(), len(fault.Names()))
		})
	}
}

// ownSteps are those that only one sink comes to.
var ownSteps = map[fault.Name]string{
	fault.JSONLChanging: jsonlSink.name,
	fault.FileStaging:   fileSink.name, fault.FileStaged: fileSink.name,
	fault.FileApplying: fileSink.name, fault.FileApplied: fileSink.name,
}

// chosen are the passes to die at, of n: one in the middle, and in a long run
// the first, the second and the last.
func chosen(n int) []int {
	all := append([]int{1, 2, n}[:longtest.Size(0, 3)], (n+1)/2)
	all = slices.DeleteFunc(all, func(pass int) bool { return pass > n })
	slices.Sort(all)
	return slices.Compact(all)
}

// keptAside fails unless all that the sink had before it started over is still
// there, under other names.
func (w place) keptAside(t *testing.T) {
	t.Helper()
	want := w.p.truth()
	var kept []byte
	if w.sink == jsonlSink {
		files, err := filepath.Glob(filepath.Join(w.dir, "out", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if filepath.Ext(file) == ".jsonl" {
				continue
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, b...)
		}
	} else {
		kept = w.tablesAside(t)
	}
	for id := range want.conversations {
		if !bytes.Contains(kept, []byte(`"`+id+`"`)) {
			t.Errorf("%s was there before, and was not set aside", id)
		}
	}
	for id := range want.messages {
		if !bytes.Contains(kept, []byte(`"`+id+`"`)) {
			t.Errorf("%s was there before, and was not set aside", id)
		}
	}
}

// TestTheShippedProgramHasNoFaults: without the tag neither the variable nor a
// step's name is in the program, so that nothing can make it die.
func TestTheShippedProgramHasNoFaults(t *testing.T) {
	harness.Sources(t)
	shipped := filepath.Join(t.TempDir(), "headway")
	if err := harness.Build(t.Context(), shipped); err != nil {
		t.Fatal(err)
	}
	traces := func(program string) (found []string) {
		b, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		// The last is the name of the function, in the table that stacks are printed by.
		for _, name := range append(fault.Names(), fault.Env, fault.TraceEnv, "internal/fault.Point") {
			if bytes.Contains(b, []byte(name)) {
				found = append(found, string(name))
			}
		}
		return found
	}
	if found := traces(shipped); len(found) > 0 {
		t.Errorf("the program without the tag has %q", found)
	}
	if found := traces(harness.Program()); len(found) != len(fault.Names())+3 {
		t.Errorf("the program with the tag has only %q: this test looks for the wrong texts", found)
	}
}

// TestAStepThatIsNotIsAnError: a test that dies nowhere would prove nothing.
func TestAStepThatIsNotIsAnError(t *testing.T) {
	w := newPlace(t, jsonlSink, young(t), 1)
	for _, value := range []string{"nowhere", "sink.synced:0", "sink.synced:x", ":1"} {
		if o := w.collect(t, []string{fault.Env + "=" + value}, 0); o.killed || o.code != 2 || !strings.Contains(o.output, "fault: "+fault.Env) {
			t.Errorf("%s=%s: %s", fault.Env, value, o)
		}
	}
}
