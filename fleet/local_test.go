package fleet_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/lockfile"
)

// A governor in the server's own process paces by itself, without a round trip, until another
// process joins with the same credential. Then both share a pace, and the second starts from
// what the first has learned.
func TestLocalMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gap = 100 * time.Millisecond
		s := fleet.NewServer()
		member := func(name string, way headway.Fleet) *headway.Governor {
			g, err := headway.New(headway.Config{Name: name, Ceiling: gap, Initial: gap, Tolerance: -1, JitterMax: -1, NoBreaker: true, Fleet: way})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		var sent []time.Time
		attempt := func(g *headway.Governor) {
			t.Helper()
			p, err := g.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sent = append(sent, time.Now())
			p.Settle(headway.Outcome{Class: headway.OK})
		}
		paced := func() {
			t.Helper()
			for i := range sent[1:] {
				if d := sent[i+1].Sub(sent[i]); d < gap {
					t.Errorf("attempts %d and %d are %v apart, want %v", i, i+1, d, gap)
				}
			}
		}
		begun := time.Now()
		own, elsewhere := member("own", s.Local("api.acme.com", "key")), member("elsewhere", s.Local("api.acme.com", "another key"))
		for range 10 {
			attempt(own)
		}
		if took := time.Since(begun); took > 9*gap {
			t.Errorf("alone, ten attempts took %v, want %v", took, 9*gap)
		}
		if now := own.Snapshot().Fleet; now == nil || now.Members != 0 || s.Members() != 0 {
			t.Errorf("alone, it is %+v of %d members", now, s.Members())
		}
		attempt(elsewhere)
		sent = sent[:10] // without the attempt on the other credential
		time.Sleep(fleet.Lease)
		other := member("other", s.Fleet().Member("api.acme.com", "key"))
		synctest.Wait()
		for range 20 {
			attempt(own)
			attempt(other)
		}
		paced()
		if now := own.Snapshot().Fleet; now == nil || now.Members != 2 || now.Away || s.Members() != 2 {
			t.Errorf("with another, it is %+v of %d members", now, s.Members())
		}
		if now := elsewhere.Snapshot().Fleet; now.Members != 0 {
			t.Errorf("one of another credential is %+v", now)
		}
		other.Close()
		for range 20 {
			attempt(own)
		}
		paced()
		late := member("late", s.Local("api.acme.com", "key")) // there is a member: it joins at once
		synctest.Wait()
		attempt(late)
		if s.Members() != 2 {
			t.Errorf("%d members, want 2", s.Members())
		}
		for _, g := range []*headway.Governor{own, elsewhere, late} {
			g.Close()
		}
		s.Close()
	})
}

// When one member finds that only the attempts of one pool were refused, the account of all
// members is free again, and the pool rests at all of them.
func TestPartReachesTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gap, rest = 100 * time.Millisecond, time.Minute
		s := fleet.NewServer()
		member := func(name string) *headway.Governor {
			g, err := headway.New(headway.Config{
				Name: name, Ceiling: gap, Initial: gap, Tolerance: -1, JitterMax: -1, NoBreaker: true,
				Fleet: s.Fleet().Member("api.acme.com", "key"),
			})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		attempt := func(g *headway.Governor, pool string, o headway.Outcome) time.Duration {
			t.Helper()
			begun := time.Now()
			p, err := g.AcquireFor(t.Context(), headway.Request{Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			p.Settle(o)
			return time.Since(begun)
		}
		served := headway.Outcome{Class: headway.OK}
		one, two := member("one"), member("two")
		attempt(one, "", served)
		attempt(two, "", served)
		before := one.Learned()
		attempt(one, "", headway.Outcome{Class: headway.Throttled, RetryAfter: rest})
		refused := time.Now()
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(t.Context(), rest/2)
		if _, err := two.Acquire(short); err == nil {
			t.Error("the refusal does not hold the other member")
		}
		cancel()
		one.Part("details", before)
		for _, g := range []*headway.Governor{two, one} {
			if waited := attempt(g, "", served); waited > time.Second {
				t.Errorf("an attempt of the account waited %v", waited)
			}
		}
		attempt(two, "details", served)
		if since := time.Since(refused); since < rest {
			t.Errorf("the pool rested %v, want %v", since, rest)
		}
		one.Close()
		two.Close()
		s.Close()
	})
}

// A member leaves at once while its broker is still being opened, and others come and go.
func TestLeaveWhileTheBrokerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := make(chan struct{})
		f := fleet.OnSlowBroker(opened)
		begun := time.Now()
		for range 3 {
			g, err := headway.New(headway.Config{Name: "x", Fleet: f.Member("api.acme.com", "key")})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // it waits for the broker
			g.Close()
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("to leave took %v", took)
		}
		close(opened)
		synctest.Wait()
	})
}

// Processes that use a folder share a pace without anything else that runs: the first runs the
// server, and when it ends another takes over, without a burst. Each Folder stands for a
// process.
func TestFolder(t *testing.T) {
	const gap = 10 * time.Millisecond
	dir := shortDir(t)
	open := func() *fleet.Folder {
		f := fleet.NewFolder(dir)
		if err := f.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		return f
	}
	member := func(f *fleet.Folder) *headway.Governor {
		g, err := headway.New(headway.Config{Name: "acme", Ceiling: gap, Initial: gap, Tolerance: -1, JitterMax: -1, NoBreaker: true, Fleet: f.Member("api.acme.com", "key")})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	attempts := func(g *headway.Governor, n int) {
		for range n {
			p, err := g.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			p.Settle(headway.Outcome{Class: headway.OK})
		}
	}
	socket := filepath.Join(dir, fleet.Socket)
	first, second := open(), open()
	if !fleet.Leads(first) || fleet.Leads(second) {
		t.Fatalf("the first leads: %v, the second: %v", fleet.Leads(first), fleet.Leads(second))
	}
	if i, err := os.Stat(socket); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", i, err)
	}
	one := member(first)
	begun := time.Now()
	attempts(one, 1)
	two := member(second)
	var both sync.WaitGroup
	both.Go(func() { attempts(two, 100) })
	attempts(one, 20)
	one.Close()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	both.Wait()
	if took := time.Since(begun); took < 118*gap { // 121 attempts; the first and the last may be late
		t.Errorf("121 attempts took %v, must be at least %v", took, 118*gap)
	}
	for deadline := time.Now().Add(time.Minute); !fleet.Leads(second); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody has taken over for a minute")
		}
	}
	third := open()
	three := member(third)
	attempts(three, 1)
	if all, err := third.Show(t.Context()); err != nil || len(all) != 1 || len(all[0].Members) != 2 {
		t.Errorf("two members share as %+v, %v", all, err)
	}
	two.Close()
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("a server that ended before its member left no trace: %v", err)
	}
	attempts(three, 1)
	three.Close()
	if err := third.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket); fleet.Leads(third) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// Where no server can be run or reached, members of the process share among themselves.
func TestFolderThatCannotBeUsed(t *testing.T) {
	held := shortDir(t)
	lock, err := lockfile.Open(filepath.Join(held, fleet.Socket+".lock")) // of a process that hangs
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		held:                        "does not answer",
		filepath.Join(held, "none"): "no such file",
		filepath.Join(shortDir(t), strings.Repeat("long", 50)): "socket",
	} {
		if strings.HasSuffix(dir, "long") {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		f := fleet.NewFolder(dir)
		if err := f.Open(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", dir, err, want)
		}
		g, err := headway.New(headway.Config{Name: "acme", Fleet: f.Member("api.acme.com", "key")})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := g.Acquire(t.Context()); err != nil {
			t.Error(err)
		} else {
			p.Settle(headway.Outcome{Class: headway.OK})
		}
		g.Close()
		if err := f.Close(); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}

// Members that leave in order before their server ends are not waited for by those that stay.
func TestLeaversAreKnownAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members = 20
		s := fleet.NewServer()
		var all [members]*headway.Governor
		for i := range all {
			g, err := headway.New(headway.Config{Name: "acme", Ceiling: time.Millisecond, Initial: time.Millisecond, JitterMax: -1, NoBreaker: true, Fleet: s.Fleet().Member("api.acme.com", "key")})
			if err != nil {
				t.Fatal(err)
			}
			all[i] = g
		}
		time.Sleep(2 * fleet.Lease)
		stays := all[0]
		if now := stays.Snapshot().Fleet; now == nil || now.Members != members {
			t.Fatalf("%+v, want %d members", now, members)
		}
		for _, g := range all[1:] {
			g.Close()
		}
		for s.Members() > 1 { // no Wait: the news of it must not be written yet
			runtime.Gosched()
		}
		s.Close()
		time.Sleep(fleet.Lease)
		if now := stays.Snapshot().Fleet; now == nil || now.Members != 1 || !now.Away {
			t.Errorf("%+v, want one member, away", now)
		}
		stays.Close()
	})
}
