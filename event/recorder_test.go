package event_test

import (
	"math"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/event"
)

// numbered is an event that differs from all others.
func numbered(n int64) event.Event { return event.Event{Type: event.Phase, Count: n} }

// filled is a recorder of that size that was given events 1 to added.
func filled(size int, added int64) *event.Recorder {
	r := event.NewRecorder(size)
	for n := range added {
		r.Add(numbered(n + 1))
	}
	return r
}

// consecutive fails unless the events are those from first to last, and each
// carries its number.
func consecutive(t *testing.T, events []event.Event, first, last int64) {
	t.Helper()
	if want := max(0, last-first+1); int64(len(events)) != want {
		t.Fatalf("%d events, want %d", len(events), want)
	}
	for i, e := range events {
		if n := first + int64(i); e.Seq != n || e.Count != n {
			t.Fatalf("event %d has seq %d and is number %d, want %d", i, e.Seq, e.Count, n)
		}
	}
}

func TestZeroValueKeepsTheDefaultNumber(t *testing.T) {
	var zero event.Recorder
	if got := zero.Events(); got != nil || zero.Dropped() != 0 {
		t.Errorf("an empty recorder has %v and dropped %d", got, zero.Dropped())
	}
	for name, r := range map[string]*event.Recorder{"zero value": &zero, "size 0": event.NewRecorder(0)} {
		for n := range int64(event.DefaultSize + 7) {
			r.Add(numbered(n + 1))
		}
		t.Run(name, func(t *testing.T) {
			consecutive(t, r.Events(), 8, event.DefaultSize+7)
			if r.Dropped() != 7 {
				t.Errorf("dropped %d, want 7", r.Dropped())
			}
		})
	}
}

func TestNegativeSizePanics(t *testing.T) {
	defer func() {
		if got, want := recover(), "event: recorder size is -1, must not be negative"; got != want {
			t.Errorf("panic %v, want %q", got, want)
		}
	}()
	event.NewRecorder(-1)
}

func TestSince(t *testing.T) {
	tests := []struct {
		name        string
		size        int
		added, seq  int64
		first, last int64
	}{
		{"nothing yet", 3, 0, 0, 1, 0},
		{"all while there is room", 3, 2, 0, 1, 2},
		{"a tail while there is room", 3, 2, 1, 2, 2},
		{"all of a full ring", 3, 3, 0, 1, 3},
		{"a ring that went round", 3, 5, 0, 3, 5},
		{"a reader who missed some", 3, 9, 2, 7, 9},
		{"a reader who missed none", 3, 5, 3, 4, 5},
		{"the newest only", 3, 4, 3, 4, 4},
		{"nothing new", 3, 5, 5, 6, 5},
		{"from the future", 3, 5, 99, 6, 5},
		{"size one", 1, 4, 0, 4, 4},
		{"the least number", 3, 5, math.MinInt64, 3, 5},
		{"the greatest number", 3, 5, math.MaxInt64, 6, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			consecutive(t, filled(tt.size, tt.added).Since(tt.seq), tt.first, tt.last)
		})
	}
}

func TestRecorderNumbersWhateverSeqItIsGiven(t *testing.T) {
	r := event.NewRecorder(2)
	r.Add(event.Event{Seq: 77, Count: 1})
	r.Add(event.Event{Seq: -1, Count: 2})
	consecutive(t, r.Events(), 1, 2)
}

func TestWhatIsReadIsTheReaders(t *testing.T) {
	r := filled(3, 5)
	events := r.Events()
	for i := range events {
		events[i].Count = -1
	}
	_ = append(events[:1], event.Event{})
	consecutive(t, r.Events(), 3, 5)
	before := r.Events()
	r.Add(numbered(6))
	consecutive(t, before, 3, 5)
}

func TestRecorderIsATailOfAllThatWasAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 9).Draw(t, "size")
		r := event.NewRecorder(size)
		var all []event.Event
		for range rapid.IntRange(0, 40).Draw(t, "added") {
			e := numbered(rapid.Int64().Draw(t, "count"))
			r.Add(e)
			e.Seq = int64(len(all) + 1)
			all = append(all, e)
		}
		dropped := max(0, len(all)-size)
		if r.Dropped() != int64(dropped) {
			t.Fatalf("dropped %d, want %d", r.Dropped(), dropped)
		}
		seq := rapid.IntRange(-2, 45).Draw(t, "seq")
		want := all[min(len(all), max(dropped, seq)):]
		got := r.Since(int64(seq))
		if len(got) != len(want) {
			t.Fatalf("since %d: %d events, want %d", seq, len(got), len(want))
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("since %d (-want +got):\n%s", seq, d)
		}
	})
}

func TestConcurrentReadersMissNothingThatIsKept(t *testing.T) {
	const writers, each, size = 4, 500, 64
	r := event.NewRecorder(size)
	var writing, reading sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		writing.Go(func() {
			for range each {
				r.Add(numbered(int64(w)))
			}
		})
	}
	for range 2 {
		reading.Go(func() {
			seen := int64(0)
			for last := false; !last; {
				select {
				case <-done:
					last = true // once more, for what came since
				default:
				}
				for i, e := range r.Since(seen) {
					if i > 0 && e.Seq != seen+1 {
						t.Errorf("seq %d follows %d", e.Seq, seen)
					}
					seen = e.Seq
				}
			}
			if seen != writers*each {
				t.Errorf("the last event that was read is %d, want %d", seen, writers*each)
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	perWriter := map[int64]int{}
	for _, e := range r.Events() {
		perWriter[e.Count]++
	}
	kept := 0
	for _, n := range perWriter {
		kept += n
	}
	if kept != size || r.Dropped() != writers*each-size {
		t.Errorf("kept %d and dropped %d, want %d and %d", kept, r.Dropped(), size, writers*each-size)
	}
}

func TestAddDoesNotAllocateOnceFull(t *testing.T) {
	r := filled(8, 8)
	if got := testing.AllocsPerRun(100, func() { r.Add(numbered(1)) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

func BenchmarkRecorderAdd(b *testing.B) {
	r := filled(event.DefaultSize, event.DefaultSize)
	e := numbered(1)
	b.ReportAllocs()
	for b.Loop() {
		r.Add(e)
	}
}

func BenchmarkRecorderAddParallel(b *testing.B) {
	r := filled(event.DefaultSize, event.DefaultSize)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		e := numbered(1)
		for pb.Next() {
			r.Add(e)
		}
	})
}

func BenchmarkRecorderSince(b *testing.B) {
	for _, n := range []int64{1, event.DefaultSize} {
		b.Run(strconv.FormatInt(n, 10), func(b *testing.B) {
			const added = 3*event.DefaultSize + 100
			r := filled(event.DefaultSize, added)
			b.ReportAllocs()
			for b.Loop() {
				if got := r.Since(added - n); int64(len(got)) != n {
					b.Fatalf("%d events, want %d", len(got), n)
				}
			}
		})
	}
}
