package memory_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/memory"
	"github.com/headway-go/headway/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) collect.Store { return memory.New() })
}

// TestASinkCannotShareTheStore: a commit that wants to write into the store's
// database is refused whole, and the error says what to use.
func TestASinkCannotShareTheStore(t *testing.T) {
	s := memory.New()
	l, err := s.Acquire(t.Context(), collect.LeaseRequest{Connection: "c", Run: "r", TTL: 1})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Commit(t.Context(), l, collect.Commit{SinkAt: collect.Location{Kind: "k"}, Within: func(context.Context, collect.Execer) error { return nil }})
	if err == nil || !strings.Contains(err.Error(), "store/sqlite") {
		t.Errorf("got %v, want an error that names store/sqlite", err)
	}
	if state, _ := s.Load(t.Context(), "c"); state.SinkAt.Kind != "" {
		t.Error("the refused commit left its mark")
	}
}

// TestWhatComesOutIsACopy: a caller that changes what it gave or got changes
// nothing in the store.
func TestWhatComesOutIsACopy(t *testing.T) {
	s := memory.New()
	l, err := s.Acquire(t.Context(), collect.LeaseRequest{Connection: "c", Run: "r", TTL: 1})
	if err != nil {
		t.Fatal(err)
	}
	text := func() []byte { return []byte(`"as given"`) }
	c := collect.Commit{
		Stream: "x", Items: []collect.KnownItem{{Key: "k", Children: text()}}, Sink: text(),
		Pacing: &collect.Pacing{Version: 1, State: text()},
		Opened: []collect.Gap{{GapKey: collect.GapKey{Stream: "d", Key: "k"}, Locator: text()}},
	}
	if err := s.Commit(t.Context(), l, c); err != nil {
		t.Fatal(err)
	}
	for _, given := range [][]byte{c.Items[0].Children, c.Sink, c.Pacing.State, c.Opened[0].Locator} {
		clear(given)
	}
	for range 2 { // the second time sees what was done to the first
		state, _ := s.Load(t.Context(), "c")
		known, _ := s.Known(t.Context(), "c", "x", []string{"k"})
		gaps, _ := s.Gaps(t.Context(), collect.GapFilter{})
		for i, got := range [][]byte{known["k"].Children, state.Sink, state.Pacing.State, gaps[0].Locator} {
			if string(got) != string(text()) {
				t.Errorf("field %d is %q", i, got)
			}
			clear(got)
		}
	}
}
