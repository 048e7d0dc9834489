//go:build linux

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/pgserver"
	"github.com/headway-go/headway/store/postgres"
)

func request(run string, ttl time.Duration) collect.LeaseRequest {
	return collect.LeaseRequest{Connection: "c", Run: run, Holder: "host", Now: time.Now(), TTL: ttl}
}

func acquire(t *testing.T, s *postgres.Store, run string) collect.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), request(run, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// noted is a commit whose event shows how often it was made.
func noted(note string) collect.Commit {
	return collect.Commit{
		At: time.Now(), Stream: "x", Items: []collect.KnownItem{{Key: note, Fingerprint: note}},
		Events: []event.Event{{At: time.Now(), Type: event.Phase, Note: note}},
	}
}

// notes counts the events of a run by their notes.
func notes(t *testing.T, s *postgres.Store, run string) map[string]int {
	t.Helper()
	list, err := s.Events(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, e := range list {
		found[e.Note]++
	}
	return found
}

// Commits continue while the server restarts. Each acknowledged one is stored, and none is
// stored twice.
func TestAServerThatRestarts(t *testing.T) {
	server := pgserver.New(t)
	s := open(t, server.Database(t))
	l := acquire(t, s, "r")
	var stop atomic.Bool
	var made atomic.Int64
	goesOn := make(chan struct{}, 1)
	var failed sync.Once
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				if err := s.Commit(t.Context(), l, noted(fmt.Sprintf("%d-%d", w, i))); err != nil {
					t.Errorf("commit %d: %v", i, err)
					failed.Do(func() { stop.Store(true); close(goesOn) })
					return
				}
				if made.Add(1); stop.Load() {
					return
				}
				select {
				case goesOn <- struct{}{}:
				default:
				}
			}
		})
	}
	for i := range longtest.Size(2, 20) {
		for range 20 {
			<-goesOn
		}
		server.Stop(t, []syscall.Signal{syscall.SIGQUIT, syscall.SIGINT}[i%2])
		server.Start(t)
	}
	stop.Store(true)
	wg.Wait()
	found := notes(t, s, "r")
	if int64(len(found)) != made.Load() {
		t.Errorf("%d commits are there, %d were acknowledged", len(found), made.Load())
	}
	for note, n := range found {
		if n != 1 {
			t.Errorf("commit %s is there %d times", note, n)
		}
	}
	if status, _, err := collect.StatusOf(t.Context(), s, "c"); err != nil || status.Items["x"] != made.Load() {
		t.Errorf("%d items, %v; want %d", status.Items["x"], err, made.Load())
	}
}

// The connection breaks at the commit, before or after the server gets it. Either way the
// commit is stored once and the caller gets no error.
func TestACommitWhoseAnswerIsLost(t *testing.T) {
	at := pgserver.Shared(t).Database(t)
	for name, arrives := range map[string]bool{"before it arrives": false, "after it arrived": true} {
		t.Run(name, func(t *testing.T) {
			between := newProxy(t, at)
			s := open(t, between.through(at)+"&search_path="+strings.Fields(name)[0])
			l := acquire(t, s, "r")
			for i := range 3 {
				between.cut(arrives)
				if err := s.Commit(t.Context(), l, noted(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
			if n := between.cuts.Load(); n != 3 {
				t.Errorf("the connection was cut %d times, want 3", n)
			}
			if found := notes(t, s, "r"); len(found) != 3 || found["0"] != 1 || found["1"] != 1 || found["2"] != 1 {
				t.Errorf("the commits are there %v times, want once each", found)
			}
		})
	}
}

// proxy forwards connections to the server, and breaks them at a commit on request.
type proxy struct {
	listener net.Listener
	cuts     atomic.Int64
	mu       sync.Mutex
	armed    bool
	arrives  bool
}

func newProxy(t *testing.T, at string) *proxy {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.carry(client, u.Host) })
		}
	})
	return p
}

func (p *proxy) through(at string) string {
	u, _ := url.Parse(at)
	u.Host = p.listener.Addr().String()
	return u.String()
}

// cut breaks the connection at the next commit.
func (p *proxy) cut(arrives bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.arrives = true, arrives
}

func (p *proxy) carry(client net.Conn, to string) {
	server, err := net.Dial("tcp", to)
	if err != nil {
		_ = client.Close()
		return
	}
	var silent atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { // answers
		defer func() { _ = client.Close() }()
		b := make([]byte, 1<<16)
		for {
			n, err := server.Read(b)
			if err != nil || silent.Load() {
				return
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	})
	b := make([]byte, 1<<16)
	for {
		n, err := client.Read(b)
		if err != nil {
			break
		}
		p.mu.Lock()
		now, arrives := p.armed && bytes.Contains(b[:n], []byte("commit\x00")), p.arrives
		if now {
			p.armed = false
			p.cuts.Add(1)
		}
		p.mu.Unlock()
		if now && !arrives {
			break
		}
		silent.Store(now)
		if _, err := server.Write(b[:n]); err != nil {
			break
		}
		if now {
			wg.Wait() // for the server's answer
			break
		}
	}
	_ = server.Close()
	_ = client.Close()
	wg.Wait()
}

func isHeld(err error) bool {
	_, ok := errors.AsType[*collect.HeldError](err)
	return ok
}

// A lease whose session has ended is free at once. A lease whose lock was lost in a restart
// of the server is not.
func TestAHolderThatIsGoneIsNotWaitedFor(t *testing.T) {
	server := pgserver.New(t)
	at := server.Database(t)
	first, err := postgres.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	second := open(t, at)
	l := acquire(t, first, "r1")
	held := func(when, run string) {
		t.Helper()
		if _, err := second.Acquire(t.Context(), request(run, time.Hour)); !isHeld(err) {
			t.Errorf("%s: got %v, want a held connection", when, err)
		}
		if status, _, err := collect.StatusOf(t.Context(), second, "c"); err != nil || status.Holder != "host" {
			t.Errorf("%s: holder %q, %v", when, status.Holder, err)
		}
	}
	held("while its holder lives", "r2")
	server.Stop(t, syscall.SIGQUIT)
	server.Start(t)
	held("after the server was restarted", "r3")
	if err := first.Renew(t.Context(), l, time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	held("after its lock was taken again", "r4")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	acquire(t, second, "r5")
	runs, err := second.Runs(t.Context(), "c", 0)
	if err != nil || len(runs) != 2 || runs[1].State != collect.RunAbandoned {
		t.Errorf("runs %+v, %v; want r1 abandoned", runs, err)
	}
}

// If the server's clock is an hour off, a lease still has its duration, and readers see the
// instants of this machine's clock.
func TestLeasesGoByTheServersClock(t *testing.T) {
	server := pgserver.Shared(t)
	at := server.Database(t)
	for name, off := range map[string]string{"ahead": "1 hour", "behind": "-1 hour"} {
		server.Exec(t, at, "CREATE SCHEMA "+name, fmt.Sprintf(`CREATE FUNCTION %s.clock_timestamp() RETURNS timestamptz LANGUAGE sql
			AS $$ SELECT pg_catalog.clock_timestamp() + interval '%s' $$`, name, off))
		s := open(t, at+"&search_path="+url.QueryEscape(name+",pg_catalog"))
		begun := time.Now()
		if _, err := s.Acquire(t.Context(), request("r1", time.Minute)); err != nil {
			t.Fatal(err)
		}
		_, err := s.Acquire(t.Context(), request("r2", time.Minute))
		held, ok := errors.AsType[*collect.HeldError](err)
		if !ok || held.Expires.Sub(begun) < 59*time.Second || time.Until(held.Expires) > 61*time.Second {
			t.Errorf("%s: got %v, want a lease of a minute from now", name, err)
		}
		if status, _, err := collect.StatusOf(t.Context(), s, "c"); err != nil || status.Holder == "" {
			t.Errorf("%s: nobody holds the connection: %v", name, err)
		}
		late := request("r3", time.Minute)
		late.Now = late.Now.Add(time.Minute)
		if _, err := s.Acquire(t.Context(), late); err != nil {
			t.Errorf("%s: a minute later: %v", name, err)
		}
	}
}

// Errors of Open name the database and what to do, and do not contain the password.
func TestWhatCannotBeOpened(t *testing.T) {
	const secret = "hunter2canary"
	server := pgserver.Shared(t)
	at := server.Database(t)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*url.URL)) string {
		c := *u
		c.User = url.UserPassword("headway", secret)
		f(&c)
		return c.String()
	}
	server.Exec(t, at, "CREATE ROLE locked LOGIN PASSWORD 'another'", "CREATE ROLE poor LOGIN", "CREATE SCHEMA later",
		"CREATE TABLE later.headway_schema (version int)", "INSERT INTO later.headway_schema VALUES (99)")
	for name, c := range map[string]struct {
		at, says string
	}{
		"a port where nobody listens":  {change(func(u *url.URL) { u.Host = "127.0.0.1:1" }), "cannot be reached"},
		"a wrong password":             {change(func(u *url.URL) { u.User = url.UserPassword("locked", secret) }), "does not let this user in"},
		"no such database":             {change(func(u *url.URL) { u.Path = "/missing" }), "createdb"},
		"no right to create tables":    {change(func(u *url.URL) { u.User = url.UserPassword("poor", secret) }), "lacks a right"},
		"a store of a newer version":   {change(func(u *url.URL) { u.RawQuery += "&search_path=later" }), "upgrade headway"},
		"a port that is not a number":  {"postgres://headway:" + secret + "@localhost:x/db", "cannot be read"},
		"a pool of words":              {change(func(u *url.URL) { u.RawQuery += "&pool_max_conns=many" }), "pool_max_conns"},
		"words with a wrong parameter": {"host=127.0.0.1 password=" + secret + " port=x", "cannot be read"},
	} {
		s, err := postgres.Open(t.Context(), c.at)
		if err == nil {
			t.Errorf("%s: no error", name)
			_ = s.Close()
			continue
		}
		if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v; want %q, and not the password", name, err, c.says)
		}
		if place, ok := strings.CutPrefix(c.at, "postgres://"); ok && !strings.Contains(c.says, "cannot be read") && c.says != "pool_max_conns" {
			place = place[strings.Index(place, "@")+1:]
			if !strings.Contains(err.Error(), place[:strings.Index(place, "?")]) {
				t.Errorf("%s: %v does not name the database", name, err)
			}
		}
	}
	if _, err := postgres.OpenReader(t.Context(), at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a reader of an empty database: %v, want fs.ErrNotExist", err)
	}
}

// If many open a store at once, one creates it and all can use it.
func TestManyOpenOneStoreAtOnce(t *testing.T) {
	at := pgserver.Shared(t).Database(t) + "&search_path=%22New%20Home%22"
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), at)
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r, err := postgres.OpenReader(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := r.Connections(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("connections %v, %v", list, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A write that waits for a server ends with its context.
func TestAServerThatIsAwayIsGivenUpWithTheContext(t *testing.T) {
	server := pgserver.New(t)
	s := open(t, server.Database(t))
	l := acquire(t, s, "r")
	server.Stop(t, syscall.SIGQUIT)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Commit(ctx, l, noted("1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's end", err)
	}
}
