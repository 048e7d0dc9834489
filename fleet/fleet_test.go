package fleet_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/fleettest"
	"github.com/headway-go/headway/internal/leaktest"
)

func TestMain(m *testing.M) {
	// A closed client of Valkey may have a pause of at most one second left.
	leaktest.Main(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// inProcess is a server in this process.
type inProcess struct {
	mu     sync.Mutex
	server *fleet.Server // nil while it is away
}

func (b *inProcess) dial(ctx context.Context) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server == nil {
		return nil, errors.New("nobody is there")
	}
	return fleet.Conn(ctx, b.server.Fleet())
}

func (b *inProcess) Fleet(wait bool) *fleet.Fleet { return fleet.NewFleet(b.dial, wait) }

func (b *inProcess) Start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.server = fleet.NewServer()
}

func (b *inProcess) Stop() {
	b.mu.Lock()
	s := b.server
	b.server = nil
	b.mu.Unlock()
	s.Close()
}

// socket is a server on a socket.
type socket struct {
	t      *testing.T
	path   string
	server *fleet.Server
	listen net.Listener
}

func (b *socket) Fleet(wait bool) *fleet.Fleet {
	address := "unix://" + b.path
	if wait {
		address += "?away=wait"
	}
	f, err := fleet.Open(b.t.Context(), address)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

func (b *socket) Start() {
	l, err := new(net.ListenConfig).Listen(b.t.Context(), "unix", b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	b.server, b.listen = fleet.NewServer(), l
	go b.server.Serve(l)
}

func (b *socket) Stop() {
	_ = b.listen.Close()
	b.server.Close()
}

// shortDir returns a folder whose path is short enough for a socket in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleet") //nolint:usetesting // Its name must be short.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestContractInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &inProcess{}
		b.Start()
		t.Cleanup(b.Stop)
		fleettest.Check(t, b)
	})
}

func TestContractOnASocket(t *testing.T) {
	t.Parallel()
	b := &socket{t: t, path: filepath.Join(shortDir(t), fleet.Socket)}
	b.Start()
	t.Cleanup(func() { b.Stop() })
	fleettest.Check(t, b)
}

func TestOpen(t *testing.T) {
	dir := shortDir(t)
	for address, want := range map[string]string{
		"tcp://localhost":                     "unix:///PATH",
		"valkey://canary:canary@127.0.0.1:1/": "no server of a fleet is there at 127.0.0.1:1: the broker is down: connection refused",
		"redis://u:canary@127.0.0.1:1/2":      "no server of a fleet is there at 127.0.0.1:1",
		"valkey://u:canary@127.0.0.1/canary":  "valkey://HOST:PORT/DB",
		"valkey://u:canary@:6379":             "valkey://HOST:PORT/DB",
		"valkey://u:canary@h:canary":          "valkey://HOST:PORT",
		"unix://":                             "unix:///PATH",
		"unix:///x?away=perhaps":              "away=share or away=wait",
		"unix:///x?secret=canary":             "away=share or away=wait",
		"unix://" + dir + "/headway.sock":     "no server of a fleet is there",
		"unix://" + dir + "/more/x?away=wait": "no server of a fleet is there",
	} {
		_, err := fleet.Open(t.Context(), address)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		if away := strings.Contains(want, "no server"); errors.Is(err, fleet.ErrAway) != away {
			t.Errorf("%s: the error is ErrAway: %v", address, !away)
		}
	}
}

// A server that sends no greeting, or another one, counts as away.
func TestOpenOfSomethingElse(t *testing.T) {
	for name, answer := range map[string]string{"silence": "", "another": "HTTP/1.1 200 OK\r\n\r\n", "later": `{"headway_fleet":2,"salt":"x"}` + "\n"} {
		synctest.Test(t, func(t *testing.T) {
			f := fleet.NewFleet(func(context.Context) (net.Conn, error) {
				here, there := net.Pipe()
				go func() {
					_, _ = there.Write([]byte(answer))
					_, _ = there.Read(make([]byte, 1)) // until the other end closes
					_ = there.Close()
				}()
				return here, nil
			}, false)
			began := time.Now()
			if conn, err := fleet.Dial(t.Context(), f); err == nil {
				t.Errorf("%s: somebody is there: %v", name, conn.Close())
			}
			if took := time.Since(began); took > fleet.Lease {
				t.Errorf("%s: it took %v", name, took)
			}
			synctest.Wait()
		})
	}
}

func TestKeyHidesTheCredential(t *testing.T) {
	f := fleet.NewFleet(nil, false)
	key := fleet.Key(f, "api.acme.com", "canary", "salt")
	if len(key) != 64 || strings.Contains(key, "canary") {
		t.Errorf("the key is %q", key)
	}
	for _, other := range []string{
		fleet.Key(f, "api.acme.com", "canary", "another salt"),
		fleet.Key(f, "api.acme.com", "another", "salt"),
		fleet.Key(f, "api.acme.co", "m\ncanary", "salt"),
		fleet.Key(f, "api.acme.org", "canary", "salt"),
	} {
		if other == key {
			t.Error("two credentials have one key")
		}
	}
	if fleet.Key(f, "api.acme.com", "canary", "salt") != key {
		t.Error("one credential has two keys")
	}
}

// An invalid message ends its connection only.
func TestServerSurvivesInvalidMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet.NewServer()
		defer s.Close()
		for _, said := range []string{"", "x\n", "{}\n", "null\n", `{"hello":{}}` + "\n", `{"hello":{"key":"k","config":{"Ceiling":-1}}}` + "\n",
			`{"hello":{"key":"k"}}` + "\n" + `{"wants":[{"id":1,"cost":-5,"in":-9},{"id":1},{"id":0}],"drops":[7],"done":[{"id":9,"outcome":{"Class":2,"RetryAfter":-1}}]}` + "\n",
			strings.Repeat("x", 5<<20)} {
			conn, err := fleet.Conn(t.Context(), s.Fleet())
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = conn.Write([]byte(said)) }()
			go func() {
				b := make([]byte, 4096)
				for {
					if _, err := conn.Read(b); err != nil {
						return
					}
				}
			}()
			time.Sleep(10 * time.Second)
			_ = conn.Close()
		}
		g, err := headway.New(headway.Config{Name: "x", Fleet: s.Fleet().Member("p", "c")})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		p, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.Cancel()
		if n := s.Members(); n != 1 {
			t.Errorf("%d members, want 1", n)
		}
	})
}

// A server that reads nothing for an hour then gets a few messages, not one for each beat.
func TestQueueOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		f := fleet.NewFleet(func(ctx context.Context) (net.Conn, error) {
			go func() { _, _ = there.Write([]byte(`{"headway_fleet":1,"salt":"x"}` + "\n")) }()
			return here, ctx.Err()
		}, false)
		g, err := headway.New(headway.Config{Name: "x", Fleet: f.Member("p", "c")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		messages := 0
		_ = there.SetReadDeadline(time.Now().Add(time.Second))
		for from := bufio.NewScanner(there); from.Scan(); messages++ {
		}
		if messages > 10 {
			t.Errorf("%d messages waited for the server", messages)
		}
		_ = there.Close()
		g.Close()
	})
}

// failing is a listener whose first connections fail.
type failing struct {
	net.Listener
	fails int
}

func (l *failing) Accept() (net.Conn, error) {
	if l.fails--; l.fails >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// A server accepts members again once the process no longer has too many open files.
func TestServeOutlivesErrors(t *testing.T) {
	path := filepath.Join(shortDir(t), fleet.Socket)
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := fleet.NewServer()
	defer s.Close()
	var served sync.WaitGroup
	served.Go(func() { s.Serve(&failing{l, 2}) })
	if _, err := fleet.Open(t.Context(), "unix://"+path); err != nil {
		t.Error(err)
	}
	_ = l.Close()
	served.Wait()
}

// Many attempts that wait for a refused pool do not delay those of another pool.
func TestAPoolThatWaitsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet.NewServer()
		defer s.Close()
		g, err := headway.New(headway.Config{Name: "x", Passive: true, NoBreaker: true, Fleet: s.Fleet().Member("p", "c")})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		p, err := g.AcquireFor(t.Context(), headway.Request{Pool: "slow"})
		if err != nil {
			t.Fatal(err)
		}
		p.Settle(headway.Outcome{Class: headway.Throttled, RetryAfter: time.Minute})
		var waiting sync.WaitGroup
		for range 40 {
			waiting.Go(func() {
				p, err := g.AcquireFor(t.Context(), headway.Request{Pool: "slow"})
				if err != nil {
					t.Error(err)
					return
				}
				p.Settle(headway.Outcome{Class: headway.OK})
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		if p, err = g.AcquireFor(t.Context(), headway.Request{Pool: "quick"}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("an attempt of another pool had to wait %v", took)
		}
		p.Settle(headway.Outcome{Class: headway.OK})
		waiting.Wait()
	})
}

// With ?away=wait members send nothing while they cannot reach the leader.
func TestBrokerFailsClosed(t *testing.T) {
	for name, fault := range map[string]func(*processes){
		"away": func(c *processes) { c.broker.stop(c.conns) },
		"stalled": func(c *processes) {
			for _, v := range c.conns {
				v.stall(true)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newProcesses(t, 4, true)
				time.Sleep(10 * time.Second)
				fault(c)
				time.Sleep(fleet.Lease)
				sent := c.rate(10 * time.Minute)
				time.Sleep(time.Minute)
				if now := c.rate(10 * time.Minute); now != sent || sent == 0 {
					t.Errorf("%.4f was sent before, and %.4f a minute later", sent, now)
				}
				c.broker.start()
				for _, v := range c.conns {
					v.stall(false)
				}
				time.Sleep(10 * time.Second)
				if r := c.rate(5 * time.Second); r < 0.95 {
					t.Errorf("%.3f of the pace afterwards", r)
				}
				c.end()
			})
		})
	}
}

// A fleet whose members all end and start again resumes from what was learned.
func TestBrokerKeepsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemBroker()
		join := func() *headway.Governor {
			g, err := headway.New(headway.Config{
				Name: "acme", Law: "aimd", Ceiling: pace, Initial: 4 * pace, JitterMax: -1, NoBreaker: true,
				Fleet: fleet.OnBroker(s.connect(), false).Member("api.acme.com", "key"),
			})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		one, two := join(), join()
		for range 200 {
			for _, g := range []*headway.Governor{one, two} {
				p, err := g.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				p.Settle(headway.Outcome{Class: headway.OK})
			}
		}
		time.Sleep(5 * time.Second)
		learned := one.Learned().Interval
		one.Close()
		two.Close()
		time.Sleep(time.Hour)
		g := join()
		defer g.Close()
		p, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.Settle(headway.Outcome{Class: headway.OK})
		time.Sleep(5 * time.Second)
		if now := g.Learned().Interval; learned >= 4*pace || now > learned {
			t.Errorf("%v was learned, and %v is known", learned, now)
		}
	})
}

// BenchmarkAcquire measures one attempt in a fleet on a socket, for one caller and for many:
// with a round trip for each attempt, as under an owner's ceiling, and with permits ahead of
// need.
func BenchmarkAcquire(b *testing.B) {
	path := filepath.Join(b.TempDir(), fleet.Socket)
	l, err := new(net.ListenConfig).Listen(b.Context(), "unix", path)
	if err != nil {
		b.Fatal(err)
	}
	s := fleet.NewServer()
	defer s.Close()
	go s.Serve(l)
	defer func() { _ = l.Close() }()
	f, err := fleet.Open(b.Context(), "unix://"+path)
	if err != nil {
		b.Fatal(err)
	}
	acquire(b, f)
}

// acquire measures attempts with a permit requested for each, and ahead of need.
func acquire(b *testing.B, f *fleet.Fleet) {
	for name, c := range map[string]headway.Config{
		"each":  {Ceiling: 2 * time.Nanosecond, Passive: true, NoBreaker: true, Fleet: f.Member("p", "each")},
		"ahead": {Passive: true, NoBreaker: true, Fleet: f.Member("p", "ahead")},
	} {
		g, err := headway.New(c)
		if err != nil {
			b.Fatal(err)
		}
		defer g.Close()
		one := func(b *testing.B) {
			p, err := g.Acquire(b.Context())
			if err != nil {
				b.Error(err)
				return
			}
			p.Settle(headway.Outcome{Class: headway.OK})
		}
		one(b) // once the server permits anything
		b.Run(name+"/one", func(b *testing.B) {
			for b.Loop() {
				one(b)
			}
		})
		b.Run(name+"/many", func(b *testing.B) {
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					one(b)
				}
			})
		})
	}
}
