//go:build unix

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/fleettest"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/relay"
	"github.com/headway-go/headway/internal/valkey"
	"github.com/headway-go/headway/internal/valkeyserver"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// inValkey opens fleets on a Valkey.
type inValkey struct {
	t *testing.T
	*valkeyserver.Server
}

func (b inValkey) Fleet(wait bool) *fleet.Fleet {
	address := "valkey://" + b.Address
	if wait {
		address += "?away=wait"
	}
	f, err := fleet.Open(b.t.Context(), address)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

func TestContractOnValkey(t *testing.T) {
	t.Parallel()
	fleettest.Check(t, inValkey{t, valkeyserver.New(t)})
}

// valkeyFleet is a fleet on a Valkey whose members always have calls waiting. The first half
// of them connects through a proxy.
type valkeyFleet struct {
	t      *testing.T
	server *valkeyserver.Server
	proxy  *valkeyserver.Proxy
	ends   []func()
	begun  time.Time

	query string // of the fleet's address

	mu    sync.Mutex
	sent  instants
	notes map[string]int // events of the fleet
}

// instants are when something was sent, since the beginning.
type instants []time.Duration

// burst is how many more were sent in any window than one in each interval.
func (all instants) burst(interval time.Duration) (most float64) {
	level, last := 0.0, time.Duration(0)
	for _, at := range all {
		level = max(0, level-float64(at-last)/float64(interval)) + 1
		last, most = at, max(most, level)
	}
	return most
}

func newValkeyFleet(t *testing.T, members int, query string) *valkeyFleet {
	g := &valkeyFleet{t: t, server: valkeyserver.New(t), query: query, notes: make(map[string]int), begun: time.Now()}
	g.proxy = valkeyserver.NewProxy(t, g.server.Address)
	for i := range members {
		address := g.server.Address
		if i < members/2 {
			address = g.proxy.Address
		}
		g.join(address)
	}
	return g
}

func (g *valkeyFleet) join(address string) {
	g.t.Helper()
	f, err := fleet.Open(g.t.Context(), "redis://"+address+"/0"+g.query)
	if err != nil {
		g.t.Fatal(err)
	}
	governor, err := headway.New(headway.Config{
		Name: "acme", Law: "aimd", Ceiling: pace, Initial: pace, JitterMax: -1, NoBreaker: true, Fleet: f.Member("api.acme.com", "key"),
		OnEvent: func(e event.Event) {
			if e.Type == event.Fleet {
				g.mu.Lock()
				g.notes[e.Note]++
				g.mu.Unlock()
			}
		},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	var work sync.WaitGroup
	for range 2 {
		work.Go(func() {
			for {
				p, err := governor.Acquire(ctx)
				if err != nil {
					return
				}
				g.mu.Lock()
				g.sent = append(g.sent, time.Since(g.begun))
				g.mu.Unlock()
				p.Settle(headway.Outcome{Class: headway.OK})
			}
		})
	}
	end := sync.OnceFunc(func() {
		cancel()
		work.Wait()
		governor.Close()
	})
	g.ends = append(g.ends, end)
	g.t.Cleanup(end)
}

// goesOn waits until n more attempts were sent.
func (g *valkeyFleet) goesOn(n int) {
	g.t.Helper()
	before := g.count()
	g.until("attempts go on", func() bool { return len(g.sent) >= before+n })
}

func (g *valkeyFleet) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sent)
}

// lasts waits until n more attempts were sent without the server; in a long run for a minute, in
// which together they keep more than half of the pace.
func (g *valkeyFleet) lasts(n int) {
	g.t.Helper()
	before, begun := g.count(), time.Now()
	g.goesOn(n)
	if longtest.Long() {
		time.Sleep(time.Until(begun.Add(time.Minute)))
		rate := float64(g.count()-before) / float64(time.Since(begun)/pace)
		if g.t.Logf("%.2f of the pace in the minute", rate); rate < 0.6 {
			g.t.Errorf("%.2f of the pace without the server", rate)
		}
	}
}

// stays waits for a second, a minute in a long run, in which nothing is sent once no permit is left.
func (g *valkeyFleet) stays() {
	g.t.Helper()
	before := 0
	for before != g.count() {
		before = g.count()
		time.Sleep(fleet.Lease)
	}
	time.Sleep(time.Duration(longtest.Size(1, 60)) * time.Second)
	if n := g.count() - before; n > 0 || before == 0 {
		g.t.Errorf("%d were sent, and %d by members that wait for the server", before, n)
	}
}

// until waits for a condition, which is evaluated under the lock.
func (g *valkeyFleet) until(what string, holds func() bool) {
	g.t.Helper()
	fleettest.Until(g.t, what, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return holds()
	})
}

// kept holds what was sent against the pace. A permit may be used up to one lease after it was
// granted, on a busy machine.
func (g *valkeyFleet) kept(members int) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	burst := g.sent.burst(pace)
	g.t.Logf("%d were sent, in no window more than %.1f beyond the pace", len(g.sent), burst)
	if most := float64(longtest.Size(int(fleet.Lease/pace)+6, 2*members+6)); burst > most {
		g.t.Errorf("%.1f were sent at once, %.1f are allowed", burst, most)
	}
}

// A real server fails in many ways. The fleet continues, reports the loss, recovers, and never
// exceeds its pace.
func TestValkeyFaults(t *testing.T) {
	const members = 4
	away := func(g *valkeyFleet, n int) func() bool { return func() bool { return g.notes["away"] >= n } }
	back := func(g *valkeyFleet) func() bool { return func() bool { return g.notes["back"] >= g.notes["away"] } }
	restart := func(during func(*valkeyFleet)) func(*valkeyFleet) {
		return func(g *valkeyFleet) {
			g.server.Stop()
			g.until("all report the loss", away(g, members))
			during(g)
			g.server.Start()
			g.until("it is back", back(g))
		}
	}
	silence := func(during func(*valkeyFleet)) func(*valkeyFleet) {
		return func(g *valkeyFleet) {
			g.server.Pause()
			g.until("all report the loss", away(g, members))
			during(g)
			g.server.Resume()
			g.until("it is back", back(g))
		}
	}
	lasts := func(g *valkeyFleet) { g.lasts(40) }
	for name, test := range map[string]func(*valkeyFleet){
		"restart":                restart(lasts),
		"restart, fail closed":   restart((*valkeyFleet).stays),
		"no answer":              silence(lasts),
		"no answer, fail closed": silence((*valkeyFleet).stays),
		"half are cut off": func(g *valkeyFleet) {
			g.proxy.Stall(true)
			g.until("half report the loss", away(g, members/2))
			g.lasts(60)
			g.proxy.Stall(false)
			g.until("it is back", back(g))
		},
		"memory is full": func(g *valkeyFleet) {
			g.server.Must("CONFIG", "SET", "maxmemory", "1")
			if answer, err := g.server.Ask("SET", "x", "y"); err != nil || !strings.HasPrefix(answer, "-OOM") {
				g.t.Errorf("the memory is not full: %s, %v", answer, err)
			}
			g.goesOn(40)
			g.join(g.server.Address)
			for _, end := range g.ends[:3] { // one of them is probably the leader
				end()
			}
			g.goesOn(60)
			g.until("it is there", back(g))
		},
		"keys are evicted": func(g *valkeyFleet) {
			g.server.Must("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
			g.server.Must("CONFIG", "SET", "maxmemory", "1")
			g.goesOn(60)
			g.server.Must("CONFIG", "SET", "maxmemory", "0")
			g.goesOn(20)
			g.until("it is there", back(g))
		},
		"all data is deleted": func(g *valkeyFleet) {
			g.server.Must("FLUSHALL")
			g.goesOn(60)
			g.until("it is there", back(g))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			query := ""
			if strings.HasSuffix(name, "closed") {
				query = "?away=wait"
			}
			g := newValkeyFleet(t, members, query)
			g.goesOn(40)
			test(g)
			g.goesOn(40)
			for _, end := range g.ends {
				end()
			}
			g.kept(members)
			if answer, err := g.server.Ask("TTL", "headway:salt"); err != nil || answer == ":-1" {
				t.Errorf("the salt stays forever: %s, %v", answer, err)
			}
		})
	}
}

// A replica takes over from a server that is killed.
func TestValkeyFailsOver(t *testing.T) {
	t.Parallel()
	g := newValkeyFleet(t, 2, "")
	replica := valkeyserver.New(t)
	host, port, _ := strings.Cut(g.server.Address, ":")
	if answer, err := replica.Ask("REPLICAOF", host, port); err != nil || answer != "+OK" {
		t.Fatal(answer, err)
	}
	g.join(g.proxy.Address)
	g.ends[1]() // the one that does not use the proxy
	g.goesOn(40)
	g.server.Stop()
	g.until("all report the loss", func() bool { return g.notes["away"] >= 2 })
	g.lasts(20)
	if answer, err := replica.Ask("REPLICAOF", "NO", "ONE"); err != nil || answer != "+OK" {
		t.Fatal(answer, err)
	}
	g.proxy.Move(replica.Address)
	g.until("it is back", func() bool { return g.notes["back"] >= g.notes["away"] })
	g.goesOn(40)
	g.kept(2)
}

// The rights that the guide names suffice for a fleet, and errors do not repeat a wrong
// password.
func TestValkeyUser(t *testing.T) {
	t.Parallel()
	b := inValkey{t, valkeyserver.New(t)}
	rights := "+get +set +del +pexpire +evalsha +eval +spublish +ssubscribe +sunsubscribe +ping +hello +client" +
		" +info +time +zadd +zrem +zcount +zremrangebyscore +zrange +zrangebyscore +zscore +hmget +hset +hdel +hgetall"
	words := append([]string{"ACL", "SETUSER", "fleet", "on", ">canary", "~headway:*", "&headway:*"}, strings.Fields(rights)...)
	if answer, err := b.Ask(words...); err != nil || answer != "+OK" {
		t.Fatal(answer, err)
	}
	f, err := fleet.Open(t.Context(), "valkey://fleet:canary@"+b.Address)
	if err != nil {
		t.Fatal(err)
	}
	g, err := headway.New(headway.Config{Name: "x", Fleet: f.Member("p", "c")})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	p, err := g.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Cancel()
	budget, err := governor.New(governor.Options{
		Config: quota.Config{Global: quota.Limits{MaxDailyCalls: 1}, Models: map[string]quota.Model{"m": {}}}, Fleet: f.Share("x"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := budget.Approve(quota.Request{Model: "m"}); err != nil {
		t.Error(err)
	}
	if err := budget.Close(); err != nil {
		t.Error(err)
	}
	_, err = fleet.Open(t.Context(), "valkey://fleet:canaries@"+b.Address)
	if err == nil || strings.Contains(err.Error(), "canar") || !strings.Contains(err.Error(), b.Address) {
		t.Errorf("a wrong password: %v", err)
	}
}

// A leader that was replaced can send nothing, and cannot end another's lease.
func TestValkeyFencesLeaders(t *testing.T) {
	t.Parallel()
	v := valkeyserver.New(t)
	o, err := valkey.Parse(&url.URL{Scheme: "valkey", Host: v.Address})
	if err != nil {
		t.Fatal(err)
	}
	c, err := valkey.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, end := context.WithCancel(t.Context())
	received, ready, ended := make(chan string, 10), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Subscribe(ctx, "group", "session", func() { close(ready) }, func(s string) { received <- s })
	}()
	<-ready
	deliver := func(token, text string) error {
		_, err := c.Deliver(ctx, "group", token, []relay.Message{{Session: "session", Text: text}})
		return err
	}
	leader, _, err := c.Acquire(ctx, "group", "first")
	if err != nil || leader != "first" || deliver("first", "one") != nil || c.Renew(ctx, "group", "first", []byte("kept")) != nil {
		t.Errorf("the first leads: %q, %v", leader, err)
	}
	if answer, err := v.Ask("DEL", "headway:{group}:leader"); err != nil || answer != ":1" {
		t.Errorf("the lease: %s, %v", answer, err)
	}
	if deliver("first", "two") == nil || c.Renew(ctx, "group", "first", nil) == nil {
		t.Error("a leader without the lease continues")
	}
	leader, state, err := c.Acquire(ctx, "group", "second")
	if err != nil || leader != "second" || string(state) != "kept" {
		t.Errorf("the second leads: %q, %q, %v", leader, state, err)
	}
	if err := deliver("first", "three"); !errors.Is(err, relay.ErrReplaced) {
		t.Errorf("a replaced leader delivers: %v", err)
	}
	if err := c.Renew(ctx, "group", "first", []byte("old")); !errors.Is(err, relay.ErrReplaced) {
		t.Errorf("a replaced leader renews the lease: %v", err)
	}
	if err := c.Release(ctx, "group", "first"); err != nil || deliver("second", "four") != nil {
		t.Errorf("a replaced leader ended the other's lease: %v", err)
	}
	if one, four := <-received, <-received; one != "one" || four != "four" || len(received) > 0 {
		t.Errorf("received %q and %q", one, four)
	}
	end()
	<-ended
}

// BenchmarkAcquireInValkey measures the round trip of one attempt to the leader, in this
// process, through a Valkey on this machine.
func BenchmarkAcquireInValkey(b *testing.B) {
	f, err := fleet.Open(b.Context(), "valkey://"+valkeyserver.New(b).Address)
	if err != nil {
		b.Fatal(err)
	}
	acquire(b, f)
}

// BenchmarkTenThousandConnections measures what 10,000 members take of one Valkey: each has a
// connection with a subscription, and publishes a message of 200 bytes to another. A server
// allows 10,000 connections unless maxclients says more.
func BenchmarkTenThousandConnections(b *testing.B) {
	const members = 10_000
	v := valkeyserver.New(b, "--maxclients", "20000")
	info := func(section, name string) (n float64) {
		b.Helper()
		text, err := v.Text("INFO", section)
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(text, name+":")
		if _, err := fmt.Sscan(rest, &n); err != nil {
			b.Fatal(err)
		}
		return n
	}
	before := info("memory", "used_memory")
	conns := make([]net.Conn, members)
	read := func(c net.Conn, until string) {
		buffer, got := make([]byte, 4096), ""
		for !strings.Contains(got, until) {
			n, err := c.Read(buffer)
			if err != nil {
				b.Fatal(err)
			}
			got += string(buffer[:n])
		}
	}
	for i := range conns {
		c, err := net.Dial("tcp", v.Address)
		if err != nil {
			b.Fatalf("connection %d: %v", i, err)
		}
		defer func() { _ = c.Close() }()
		conns[i] = c
		_, _ = fmt.Fprintf(c, "HELLO 3\r\nSSUBSCRIBE headway:{%d}:to:x\r\n", i)
		read(c, "ssubscribe")
	}
	memory := (info("memory", "used_memory") - before) / members
	cpu := func() float64 { return info("cpu", "used_cpu_user") + info("cpu", "used_cpu_sys") }
	message := strings.Repeat("x", 200)
	used, n := cpu(), 0
	for b.Loop() {
		i := n % members
		_, _ = fmt.Fprintf(conns[i], "SPUBLISH headway:{%d}:to:x %s\r\n", (i+1)%members, message)
		read(conns[(i+1)%members], message)
		n++
	}
	b.ReportMetric((cpu()-used)/float64(n)*1e6, "server-µs/message")
	b.ReportMetric(memory, "server-B/member")
}

// BenchmarkSharedBudget measures an approval and its settlement by one member, with calls taken
// ahead and with a round trip each, and beside them a counter in Lua on the same client library.
func BenchmarkSharedBudget(b *testing.B) {
	v := valkeyserver.New(b)
	limits := quota.Limits{CallsPerMinute: 1e9, MaxDailyCalls: 1e15}
	run := func(name string, ahead time.Duration, parallel int) {
		b.Run(name, func(b *testing.B) {
			g := budgetMember(b, v.Address, b.Name(), quota.FleetOptions{Ahead: ahead}, limits)
			one := func() {
				d, err := g.Approve(quota.Request{Model: "m"})
				if err == nil {
					_, err = g.RecordUsage(d.Permit, quota.Usage{})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			if parallel == 1 {
				for b.Loop() {
					one()
				}
				return
			}
			b.SetParallelism(parallel / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					one()
				}
			})
		})
	}
	run("ahead", 300*time.Millisecond, 1)
	run("each", 0, 1)
	run("each-64", 0, 64)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{v.Address}, DisableCache: true})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	count := rueidis.NewLuaScript(`local n = redis.call('INCR', KEYS[1])
if n > tonumber(ARGV[1]) then return 0 end
redis.call('PEXPIRE', KEYS[1], 86400000)
return 1`)
	own := func() {
		if n, err := count.Exec(b.Context(), client, []string{"own"}, []string{"1000000000"}).AsInt64(); err != nil || n != 1 {
			b.Fatal(n, err)
		}
	}
	b.Run("own-lua", func(b *testing.B) {
		for b.Loop() {
			own()
		}
	})
	b.Run("own-lua-64", func(b *testing.B) {
		b.SetParallelism(64 / runtime.GOMAXPROCS(0))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				own()
			}
		})
	})
}
