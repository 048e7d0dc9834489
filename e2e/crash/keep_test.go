//go:build unix

package crash_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/internal/longtest"
	store "github.com/headway-go/headway/store/sqlite"
)

// TestKilledRunsKeepWhatWasAnswered kills a collection of five details a second
// again and again, as soon as after one detail and as late as after 7.5 s of
// them. Each time at least nine tenths of what the provider answered stands on
// disk, also in the middle of a page, and so do the attempts that it took. How
// soon that is so depends on the disk: the kill waits for it, but in a long run.
func TestKilledRunsKeepWhatWasAnswered(t *testing.T) {
	kills := longtest.Size(3, 30)
	most := longtest.Size(12, 37)
	for _, sink := range kinds {
		for _, page := range []int{20, 100} {
			t.Run(fmt.Sprintf("%s, pages of %d", sink.name, page), func(t *testing.T) {
				t.Parallel()
				seed := uint64(time.Now().UnixNano())
				t.Logf("seed %d", seed)
				chance := rand.New(rand.NewPCG(seed, 0))
				p := newProvider(t, kills*(most+1), page, func(int) condition { return condition{} })
				c := &counted{p: p}
				at := harness.Serve(t, c)
				w := newPlace(t, sink, p, 1)
				w.slow(t)
				answered, kept := 0, 0
				for n := range kills {
					last := 1 + chance.IntN(most)
					kill := c.killAt(last)
					if kills < 30 {
						kill = w.recorded(t, kill, (answered+last)*9/10)
					}
					o := launchUntil(t, w.dir, []string{"CHAT_URL=" + at.URL}, kill, "collect", "conn.yaml", "--quiet")
					if !o.killed {
						t.Fatalf("kill %d was to come with detail %d: %s", n+1, last, o)
					}
					h := w.committed(t, false)
					now, total := h.hydrated(), c.distinct()
					if got, want := now-kept, total-answered; got < want*9/10 {
						t.Errorf("kill %d: %d of the %d details that were answered since the last one are kept", n+1, got, want)
					}
					if now < total*9/10 {
						t.Errorf("kill %d: %d of the %d details that were answered are kept", n+1, now, total)
					}
					if run := newest(h.runs); int(run.Attempts) < (total-answered)*9/10 {
						t.Errorf("kill %d: the run has %d attempts on record, and %d details were answered", n+1, run.Attempts, total-answered)
					}
					answered, kept = total, now
				}
				t.Logf("%d kills: %d of %d details kept", kills, kept, answered)
			})
		}
	}
}

// recorded gives what is closed once so many items are on record, after a first
// event.
func (w place) recorded(t *testing.T, first <-chan struct{}, items int) <-chan struct{} {
	t.Helper()
	then := make(chan struct{})
	go func() {
		defer close(then)
		select {
		case <-first:
		case <-t.Context().Done():
			return
		}
		late := time.NewTimer(maxWait / 2)
		defer late.Stop()
		look := time.NewTicker(50 * time.Millisecond)
		defer look.Stop()
		for w.items(t.Context()) < int64(items) {
			select {
			case <-look.C:
			case <-late.C:
				return // what is missing is said by the test
			case <-t.Context().Done():
				return
			}
		}
	}()
	return then
}

// items is how many conversations are on record while a process is at work; what
// cannot be read at this moment counts as none.
func (w place) items(ctx context.Context) int64 {
	r, err := store.OpenReader(ctx, filepath.Join(w.dir, w.sink.state))
	if err != nil {
		return 0
	}
	defer func() { _ = r.Close() }()
	all, err := r.Connections(ctx)
	if err != nil || len(all) == 0 {
		return 0
	}
	return all[0].Items["conversations"]
}

// newest is the run that began last.
func newest(runs []collect.Run) collect.Run {
	if len(runs) == 0 {
		return collect.Run{}
	}
	return runs[0]
}

// slow makes it a connection of five requests a second, under the default law.
func (w place) slow(t *testing.T) {
	t.Helper()
	file := filepath.Join(w.dir, "conn.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const fast = "  ceiling: 1ms\n  pacing: {initial: 1ms, law: aimd, step: 1ms}\n"
	if !strings.Contains(string(text), fast) {
		t.Fatalf("not the connection that was expected:\n%s", text)
	}
	slow := strings.Replace(string(text), fast, "  ceiling: 200ms\n  pacing: {initial: 200ms}\n", 1)
	if err := os.WriteFile(file, []byte(slow), 0o600); err != nil {
		t.Fatal(err)
	}
}

// hydrated counts the conversations with all their messages.
func (h held) hydrated() (n int) {
	for id := range h.conversations {
		if len(h.messages[id+"-m0"]) > 0 && len(h.messages[id+"-m1"]) > 0 && len(h.messages[id+"-m2"]) > 0 {
			n++
		}
	}
	return n
}

// counted is a provider that keeps a record of the details that it answered, and
// says when a certain one is asked for, which it then does not answer any more.
type counted struct {
	p *provider

	mu       sync.Mutex
	answered map[string]bool
	left     int // details to answer until kill
	kill     chan struct{}
}

// killAt gives what is closed once so many more details have been answered and
// the next one is asked for.
func (c *counted) killAt(after int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.kill = after, make(chan struct{})
	return c.kill
}

// distinct counts the details that were answered at least once.
func (c *counted) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answered)
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, detail := strings.CutPrefix(r.URL.Path, "/conversations/")
	if detail && !c.answers(id) {
		<-r.Context().Done()
		return
	}
	c.p.served.Config.Handler.ServeHTTP(w, r)
}

// answers reports whether a detail is answered, and counts it.
func (c *counted) answers(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		select {
		case <-c.kill:
		default:
			close(c.kill)
		}
		return false
	}
	c.left--
	if c.answered == nil {
		c.answered = map[string]bool{}
	}
	c.answered[id] = true
	return true
}

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
	// So many that the messages take several slices, in a long run the conversations too.
	many := func(t *testing.T) *provider {
		return newProvider(t, longtest.Size(340, 1040), longtest.Size(26, 80), func(int) condition { return condition{} })
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
