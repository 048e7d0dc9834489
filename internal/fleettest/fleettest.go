// Package fleettest is the contract that every kind of fleet passes, whatever carries its
// messages. It is for tests only. It checks times against lower bounds only, so that it
// passes on a slow machine too.
package fleettest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
)

// Backend is a fleet's server that a test can stop and start.
type Backend interface {
	// Fleet opens the fleet; with wait, members send nothing while the server is away.
	Fleet(wait bool) *fleet.Fleet
	// Stop ends the server, Start starts another one in its place.
	Stop()
	Start()
}

// gap is the ceiling's interval.
const gap = 20 * time.Millisecond

// member is a governor in the fleet.
type member struct {
	*headway.Governor
	t *testing.T

	mu    sync.Mutex
	notes []string // of the fleet's events
}

// join makes a member.
func join(t *testing.T, way headway.Fleet) *member {
	t.Helper()
	m := &member{t: t}
	g, err := headway.New(headway.Config{
		Name: "acme", Law: "aimd", Ceiling: gap, Initial: 2 * gap, Step: gap / 4, Tolerance: -1, JitterMax: -1, NoBreaker: true, Fleet: way,
		OnEvent: func(e event.Event) {
			if e.Type == event.Fleet {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.notes = append(m.notes, e.Note)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	m.Governor = g
	return m
}

// saw reports whether the fleet's newest event has this note.
func (m *member) saw(note string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.notes) > 0 && m.notes[len(m.notes)-1] == note
}

// attempt makes one attempt with an outcome, and returns the instant of its permit.
func (m *member) attempt(o headway.Outcome) time.Time {
	m.t.Helper()
	p, err := m.Acquire(m.t.Context())
	if err != nil {
		m.t.Error(err)
		return time.Now()
	}
	at := time.Now()
	if !p.Settle(o) {
		m.t.Error("a permit was settled before")
	}
	return at
}

var served = headway.Outcome{Class: headway.OK}

// until repeats a check until it holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Check is the contract.
func Check(t *testing.T, b Backend) {
	t.Helper()
	way := b.Fleet(false)
	one, two, three := join(t, way.Member("api.acme.com", "key")), join(t, way.Member("api.acme.com", "key")), join(t, way.Member("api.acme.com", "key"))
	other := join(t, way.Member("api.acme.com", "another key"))

	// Together they keep the ceiling, and all are served.
	var all sync.WaitGroup
	var mu sync.Mutex
	var first, last time.Time
	for _, m := range []*member{one, two, three} {
		all.Go(func() {
			for range 20 {
				at := m.attempt(served)
				mu.Lock()
				if first.IsZero() || at.Before(first) {
					first = at
				}
				if at.After(last) {
					last = at
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if took := last.Sub(first); took < 58*gap { // 60 attempts; the first and the last may be late
		t.Errorf("60 attempts of 3 members took %v, must be at least %v", took, 58*gap)
	}

	// Each member gets what was learned.
	until(t, "all members have the fleet's interval", func() bool {
		return one.Learned().Interval == two.Learned().Interval && two.Learned().Interval == three.Learned().Interval && one.Learned().Interval < 2*gap
	})

	// A refusal of one member holds the others back, but no member with another credential.
	const rest = 2 * time.Second
	one.attempt(headway.Outcome{Class: headway.Throttled, RetryAfter: rest})
	refused := time.Now()
	until(t, "another member is held back", func() bool {
		before := time.Now()
		return two.attempt(served).Sub(before) > rest/4 || time.Since(refused) > rest
	})
	if since := time.Since(refused); since < rest-rest/8 {
		t.Errorf("another member was served %v after a refusal that asked for %v", since, rest)
	}
	before := other.Snapshot().At
	if other.attempt(served).Before(before) || !other.Snapshot().RetryAt.IsZero() {
		t.Error("a refusal holds back who has another credential")
	}

	// An attempt that is canceled and a member that closes do not delay the others.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := three.Acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("an attempt that was canceled: %v", err)
	}
	three.Close()
	one.attempt(served)

	// Without a server members continue at their shares; then they use permits again.
	closed := join(t, b.Fleet(true).Member("api.acme.com", "key"))
	closed.attempt(served)
	b.Stop()
	until(t, "it is known that the server is away", func() bool { return one.saw("away") && two.saw("away") })
	first = one.attempt(served)
	for range 3 {
		last = one.attempt(served)
	}
	if took := last.Sub(first); took < 3*2*gap-gap {
		t.Errorf("3 attempts without a server took %v, at half the ceiling's rate or less they take %v", took, 6*gap)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*gap)
	defer cancel()
	if _, err := closed.Acquire(ctx); err == nil {
		t.Error("a member with away=wait sent something while the server was away")
	}
	b.Start()
	until(t, "the server is back", func() bool { return one.saw("back") && two.saw("back") })
	one.attempt(served)
	two.attempt(served)
	closed.attempt(served)
}
