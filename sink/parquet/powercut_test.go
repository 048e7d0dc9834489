package parquet

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/powercut"
)

// committed is what a store knows: a position, and what it stands for.
type committed struct {
	position json.RawMessage
	keys     []string
	// aside is how many folders were set aside instead.
	aside int
}

func sinkOn(d *powercut.Disk) *Sink {
	s := small(filepath.Join(d.Dir, "data", "out"))
	s.disk = d
	return s
}

// collectMore checks what was committed, collects a few slices more, and checks
// the parts.
func collectMore(slices int) func(*testing.T, *powercut.Life[committed]) {
	return func(t *testing.T, l *powercut.Life[committed]) {
		var c committed
		if n := len(l.Before); n > 0 {
			c = l.Before[n-1]
		}
		s := sinkOn(l.Disk)
		if err := s.Open(t.Context(), c.position, sample); err != nil {
			t.Fatal(err)
		}
		holds(t, s, c)
		// As the runtime does, so that the store knows what is whose.
		c.position = synced(t, s)
		l.Step()
		l.Ack(c)
		for i := range slices {
			key := fmt.Sprintf("%d-%d", len(l.Before), i)
			r := rec(key, fmt.Sprintf(`{"text":"%0100d"}`, i)) // two make a part
			for _, stream := range sample {
				put(t, s, stream.Name, r)
			}
			position := synced(t, s)
			l.Step()
			c = committed{position: position, keys: append(append([]string(nil), c.keys...), key)}
			l.Ack(c)
		}
		// A part that the last commit completed, and no write after it.
		c.position = synced(t, s)
		l.Step()
		l.Ack(c)
		closed(t, s)
		holds(t, s, c)
	}
}

// holds checks the rows of each stream.
func holds(t *testing.T, s *Sink, c committed) {
	t.Helper()
	for _, stream := range sample {
		var keys []string
		for _, r := range rows(t, s.dir, stream.Name) {
			keys = append(keys, r.key)
		}
		if fmt.Sprint(keys) != fmt.Sprint(c.keys) {
			t.Fatalf("%s holds %v; %v were committed", stream.Name, keys, c.keys)
		}
	}
}

func TestAPowerCutLosesNothingCommitted(t *testing.T) {
	powercut.Test(t, powercut.Plan{Draws: 1, Stride: 11}, collectMore(4), collectMore(1))
}

func TestAPowerCutUndoesNoStartOver(t *testing.T) {
	setAside := func(t *testing.T, l *powercut.Life[committed]) {
		paths, err := sinkOn(l.Disk).SetAside([]string{"talks", "messages"}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		l.Step()
		l.Ack(committed{aside: len(paths)})
	}
	powercut.Test(t, powercut.Plan{Draws: 1, Stride: 7}, func(t *testing.T, l *powercut.Life[committed]) {
		collectMore(1)(t, l)
		setAside(t, l)
	}, func(t *testing.T, l *powercut.Life[committed]) {
		if n := len(l.Before); n > 0 && l.Before[n-1].position == nil {
			collectMore(1)(t, l)
			kept, err := filepath.Glob(filepath.Join(l.Dir, "data", "out", "*.bak"))
			if err != nil || len(kept) < l.Before[n-1].aside {
				t.Fatalf("of %d folders that were set aside there are %v, %v", l.Before[n-1].aside, kept, err)
			}
			return
		}
		setAside(t, l) // it was cut short
	})
}

// What a life wrote and did not commit is gone for good once the next has opened
// the sink, also for who reads the parts without it.
func TestAPowerCutBringsNothingBackThatWasDiscarded(t *testing.T) {
	reopen := func(t *testing.T, l *powercut.Life[committed]) {
		var c committed
		if n := len(l.Before); n > 0 {
			c = l.Before[n-1]
		}
		s := sinkOn(l.Disk)
		if c.aside > 0 {
			holds(t, s, committed{})
		}
		if err := s.Open(t.Context(), c.position, sample); err != nil {
			t.Fatal(err)
		}
		l.Step()
		l.Ack(committed{position: c.position, aside: 1})
		closed(t, s)
	}
	powercut.Test(t, powercut.Plan{Draws: 1, Stride: 3}, func(t *testing.T, l *powercut.Life[committed]) {
		s := sinkOn(l.Disk)
		if err := s.Open(t.Context(), nil, sample); err != nil {
			t.Fatal(err)
		}
		c := committed{position: synced(t, s)}
		l.Step()
		l.Ack(c)
		for _, stream := range sample {
			put(t, s, stream.Name, rec("1", `{"text":"lost"}`))
		}
		synced(t, s)
		closed(t, s)
		again := *l
		again.Before = []committed{c}
		reopen(t, &again)
		l.Ack(committed{position: c.position, aside: 1})
	}, reopen)
}
