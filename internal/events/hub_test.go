package events_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/quota"
)

func newHub(t testing.TB, size int) *events.Hub {
	t.Helper()
	h, err := events.New(size)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// all reads until there are no more, and tells counts: of a mark minus what was
// dropped.
func all(r *events.Reader) (counts []int64) {
	for {
		entries, _, _ := r.Next()
		if len(entries) == 0 {
			return counts
		}
		for _, e := range entries {
			if e.Type == events.Dropped {
				counts = append(counts, -int64(e.Dropped))
			} else {
				counts = append(counts, e.Event.Count)
			}
		}
	}
}

func tell(h *events.Hub, from, to int) {
	for n := from; n <= to; n++ {
		h.Connection(event.Event{Type: event.Phase, Count: int64(n)})
	}
}

func TestNewNamesTheBound(t *testing.T) {
	for _, size := range []int{-1, events.MaxSize + 1} {
		want := fmt.Sprintf("events: size is %d, must be from 1 to 100000, or 0 for 1000", size)
		if _, err := events.New(size); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	h := newHub(t, 0)
	tell(h, 1, events.DefaultSize+5)
	if h.Len() != events.DefaultSize || h.Total() != events.DefaultSize+5 {
		t.Errorf("%d kept of %d", h.Len(), h.Total())
	}
}

func TestEntriesSayWhoseTheyAre(t *testing.T) {
	h := newHub(t, 10)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h.Connection(event.Event{At: at, Type: event.Circuit, Connection: "chat"})
	h.Proxied("openai")(event.Event{At: at, Type: event.CollectionRate, Connection: "openai"})
	h.Quota("openai")(quota.Event{At: at, Type: quota.EventThrottle, Scope: quota.Scope{Model: "m"}})
	entries, _, _ := h.Read(events.Oldest).Next()
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprint(e.At.Equal(at), e.Type, " ", e.Connection, " ", e.Provider, " ", e.Event != nil, e.Quota != nil, e.ID[strings.IndexByte(e.ID, '-'):]))
	}
	want := []string{"truecircuit chat  true false-1", "truecollection_rate openai openai true false-2", "truerate:throttle  openai false true-3"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAReaderBeginsWhereItAsksTo(t *testing.T) {
	h := newHub(t, 10)
	tell(h, 1, 3)
	entries, _, _ := h.Read(events.Oldest).Next()
	second := entries[1].ID
	fresh, resumed := h.Read(""), h.Read(second)
	tell(h, 4, 5)
	if got := all(fresh); !cmp.Equal(got, []int64{4, 5}) {
		t.Errorf("from now on: %v", got)
	}
	if got := all(resumed); !cmp.Equal(got, []int64{3, 4, 5}) {
		t.Errorf("after the second: %v", got)
	}
	if got := all(h.Read(fresh.ID())); got != nil {
		t.Errorf("after the last: %v", got)
	}
	if got := all(newHub(t, 10).Read(second)); !cmp.Equal(got, []int64{0}) {
		t.Errorf("in another process: %v, want a mark", got)
	}
}

func TestAReaderThatFellBehindGoesOnAfterTheMark(t *testing.T) {
	h := newHub(t, 4)
	r := h.Read("")
	tell(h, 1, 10)
	if got := all(r); !cmp.Equal(got, []int64{-6, 7, 8, 9, 10}) {
		t.Errorf("%v", got)
	}
	tell(h, 11, 11)
	if got := all(r); !cmp.Equal(got, []int64{11}) {
		t.Errorf("%v", got)
	}
}

func TestMoreIsSignaledOnceThereIsMoreOrTheEnd(t *testing.T) {
	h := newHub(t, 4)
	r := h.Read("")
	_, more, open := r.Next()
	select {
	case <-more:
		t.Error("more before there was")
	default:
	}
	tell(h, 1, 1)
	select {
	case <-more:
	default:
		t.Error("nothing was signaled")
	}
	h.Close()
	h.Close()
	entries, _, stillOpen := r.Next()
	if len(entries) != 1 || !open || !stillOpen {
		t.Errorf("%d entries, open %v %v: what was added before the end must be given", len(entries), open, stillOpen)
	}
	entries, more, open = r.Next()
	if len(entries) != 0 || open {
		t.Errorf("%d entries, open %v", len(entries), open)
	}
	<-more
}

// TestNoReaderMissesAnythingWithoutKnowing: whatever is added between reads,
// every reader sees rising numbers, and what it was given plus what it was said to have missed
// to have missed is all there was.
func TestNoReaderMissesAnythingWithoutKnowing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, err := events.New(rapid.IntRange(1, 100).Draw(t, "size"))
		if err != nil {
			t.Fatal(err)
		}
		r, next, seen := h.Read(""), 1, int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			n := rapid.IntRange(0, 150).Draw(t, "added")
			tell(h, next, next+n-1)
			next += n
			if rapid.Bool().Draw(t, "resume") && next > 1 {
				r = h.Read(r.ID())
			}
			for range rapid.IntRange(0, 3).Draw(t, "reads") {
				entries, _, _ := r.Next()
				for _, e := range entries {
					if e.Type == events.Dropped {
						if e.Dropped == 0 {
							t.Fatal("a mark without a count")
						}
						seen += int64(e.Dropped)
						continue
					}
					if seen++; e.Event.Count != seen {
						t.Fatalf("event %d, want %d", e.Event.Count, seen)
					}
				}
			}
		}
		for _, c := range all(r) {
			seen += max(-c, 1)
		}
		if seen != int64(next-1) {
			t.Fatalf("%d accounted for of %d", seen, next-1)
		}
	})
}

func TestManyMayAddAndReadAtOnce(t *testing.T) {
	h := newHub(t, 64)
	var tellers, readers sync.WaitGroup
	for range 4 {
		tellers.Go(func() { tell(h, 1, 500) })
		readers.Go(func() {
			r, seen := h.Read(events.Oldest), uint64(0)
			for {
				entries, more, open := r.Next()
				if !open {
					break
				}
				for _, e := range entries {
					seen += max(e.Dropped, 1)
				}
				if len(entries) == 0 {
					<-more
				}
			}
			if seen > 2000 {
				t.Errorf("%d seen of 2000", seen)
			}
			if at := r.ID(); at[strings.IndexByte(at, '-'):] != "-2000" {
				t.Errorf("ended at %s", at)
			}
		})
	}
	tellers.Wait()
	h.Close()
	readers.Wait()
}

// A reader that comes back with an id that is too old learns how much it missed.
func Example() {
	hub, err := events.New(2)
	if err != nil {
		panic(err)
	}
	reader := hub.Read("")
	hub.Connection(event.Event{Type: event.RunStart, Connection: "chat"})
	hub.Quota("openai")(quota.Event{Type: quota.EventThrottle})
	hub.Connection(event.Event{Type: event.RunEnd, Connection: "chat"})
	entries, _, _ := reader.Next()
	for _, e := range entries {
		fmt.Println(e.Type, e.Dropped)
	}
	// Output:
	// dropped 1
	// rate:throttle 0
	// run_end 0
}

func TestAWebhookCountsWhatItsReceiverMisses(t *testing.T) {
	h := newHub(t, 4)
	began, release, got := make(chan struct{}), make(chan struct{}), make(chan events.Delivery, 10)
	first := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var d events.Delivery
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
			t.Error(err)
		}
		if first {
			first = false
			close(began)
			<-release
			w.WriteHeader(http.StatusBadRequest) // is not tried again
			return
		}
		got <- d
	}))
	defer server.Close()
	dropped := uint64(0)
	hook := events.Webhook{
		URL: server.URL, Secret: "s", Types: []string{string(event.Phase)}, OnDrop: func(n uint64) { dropped += n }, Log: slog.New(slog.DiscardHandler),
	}
	from, done := h.Read(""), make(chan struct{})
	go func() { defer close(done); hook.Run(t.Context(), from) }()
	h.Connection(event.Event{Type: event.Circuit}) // of another type
	tell(h, 1, 1)
	<-began
	tell(h, 2, 11)
	close(release)
	d := <-got
	if len(d.Entries) != 4 || d.Entries[3].Event.Count != 11 || d.Dropped != 7 { // one was refused, six fell out
		t.Errorf("%d entries, %d dropped", len(d.Entries), d.Dropped)
	}
	tell(h, 12, 12)
	if d := <-got; len(d.Entries) != 1 || d.Dropped != 0 {
		t.Errorf("then %d entries, %d dropped", len(d.Entries), d.Dropped)
	}
	h.Close()
	<-done
	if dropped != 7 {
		t.Errorf("%d were counted", dropped)
	}
}
