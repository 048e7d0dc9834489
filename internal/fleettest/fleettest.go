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

// MaxWait bounds what tests wait for. It is far from what anything here takes, also on a busy
// machine.
const MaxWait = 5 * time.Minute

// Until repeats a check until it holds, for [MaxWait] at most.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(MaxWait)
	for pause := 2 * time.Millisecond; !holds(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", MaxWait, what)
		}
		time.Sleep(pause)
	}
}

// Check is the contract.
func Check(t *testing.T, b Backend) {
	t.Helper()
	way := b.Fleet(false)
	one, two, three := join(t, way.Member("api.acme.com", "key")), join(t, way.Member("api.acme.com", "key")), join(t, way.Member("api.acme.com", "key"))
	other := join(t, way.Member("api.acme.com", "another key"))

	// Together they keep the ceiling, and all are served. The first permit is later than begun and
	// the last one earlier than ended, however busy the machine is.
	var all sync.WaitGroup
	begun := time.Now()
	for _, m := range []*member{one, two, three} {
		all.Go(func() {
			for range 20 {
				m.attempt(served)
			}
		})
	}
	all.Wait()
	if took := time.Since(begun); took < 59*gap {
		t.Errorf("60 attempts of 3 members took %v, must be at least %v", took, 59*gap)
	}

	// Each member gets what was learned.
	Until(t, "all members have the fleet's interval", func() bool {
		return one.Learned().Interval == two.Learned().Interval && two.Learned().Interval == three.Learned().Interval && one.Learned().Interval < 2*gap
	})

	// A refusal of one member holds the others back, but no member with another credential. On a
	// busy machine the others may hear of it late: then there is another refusal.
	const rest = 2 * time.Second
	Until(t, "a refusal holds another member back", func() bool {
		refused, held := one.attempt(headway.Outcome{Class: headway.Throttled, RetryAfter: rest}), true
		for since := time.Duration(0); since < rest-rest/8; {
			since = two.attempt(served).Sub(refused)
			held = held && (since < rest/4 || since >= rest-rest/8)
		}
		return held
	})
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
	Until(t, "it is known that the server is away", func() bool { return one.saw("away") && two.saw("away") })
	begun = time.Now()
	for range 4 {
		one.attempt(served)
	}
	if took := time.Since(begun); took < 3*2*gap-gap {
		t.Errorf("3 attempts without a server took %v, at half the ceiling's rate or less they take %v", took, 6*gap)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*gap)
	defer cancel()
	if _, err := closed.Acquire(ctx); err == nil {
		t.Error("a member with away=wait sent something while the server was away")
	}
	b.Start()
	Until(t, "the server is back", func() bool { return one.saw("back") && two.saw("back") })
	one.attempt(served)
	two.attempt(served)
	closed.attempt(served)
}
