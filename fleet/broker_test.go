package fleet_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/relay"
)

// memBroker is a broker in memory, with a clock of its own.
type memBroker struct {
	mu     sync.Mutex
	down   bool
	groups map[string]*lease
	salt   string
	subs   map[string]map[*brokerConn]func(string) // by group and session
	loss   int                                     // messages left of which every other one is lost
	lost   int

	moved time.Duration // how far the clock is ahead
}

type lease struct {
	leader string
	until  time.Time
	state  []byte
}

// brokerConn is one process's connection to the broker.
type brokerConn struct {
	*memBroker
	stalled bool
	pending []func()      // calls and messages that wait until the connection is not stalled
	broken  chan struct{} // closed when the connection ends
}

func newMemBroker() *memBroker {
	return &memBroker{groups: make(map[string]*lease), subs: make(map[string]map[*brokerConn]func(string))}
}

func (s *memBroker) connect() *brokerConn {
	return &brokerConn{memBroker: s, broken: make(chan struct{})}
}

// ask runs a call at the broker and returns its result.
func ask[T any](ctx context.Context, v *brokerConn, f func() T) (answer T, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return answer, relay.ErrDown
	}
	if !v.stalled {
		return f(), nil
	}
	answered := make(chan T, 1)
	v.pending = append(v.pending, func() { answered <- f() })
	v.mu.Unlock()
	defer v.mu.Lock()
	select {
	case answer = <-answered:
		return answer, nil
	case <-ctx.Done():
		return answer, errors.New("the broker does not answer")
	}
}

// stall stops all traffic of a connection, or delivers what has waited since.
func (v *brokerConn) stall(on bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stalled = on
	if !on {
		for len(v.pending) > 0 {
			f := v.pending[0]
			v.pending = v.pending[1:]
			f()
		}
	}
}

// kill closes a connection.
func (v *brokerConn) kill() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hangUp()
}

func (v *brokerConn) hangUp() {
	for _, subs := range v.subs {
		delete(subs, v)
	}
	close(v.broken)
	v.broken = make(chan struct{})
}

// stop shuts the broker down and deletes its data. Start starts it without data.
func (s *memBroker) stop(conns []*brokerConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	clear(s.groups)
	s.salt = ""
	for _, v := range conns {
		v.hangUp()
	}
}

func (s *memBroker) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// evict deletes all keys.
func (s *memBroker) evict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.groups)
	s.salt = ""
}

// lose makes the broker lose n of the next 2n messages, every other one.
func (s *memBroker) lose(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loss = 2 * n
}

// turn sets the clock ahead by a duration.
func (s *memBroker) turn(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = by
}

func (s *memBroker) Close() {}

func (s *memBroker) now() time.Time { return time.Now().Add(s.moved) }

// of returns a group, without its leader if the lease has expired; s.mu must be held.
func (s *memBroker) of(name string) *lease {
	r := s.groups[name]
	if r == nil {
		r = &lease{}
		s.groups[name] = r
	}
	if s.now().After(r.until) {
		r.leader = ""
	}
	return r
}

func (v *brokerConn) Salt(ctx context.Context, proposed string) (string, error) {
	return ask(ctx, v, func() string {
		if v.salt == "" {
			v.salt = proposed
		}
		return v.salt
	})
}

func (v *brokerConn) Leader(ctx context.Context, group string) (string, error) {
	return ask(ctx, v, func() string { return v.of(group).leader })
}

func (v *brokerConn) Acquire(ctx context.Context, group, token string) (string, []byte, error) {
	r, err := ask(ctx, v, func() lease {
		r := v.of(group)
		if r.leader == "" {
			r.leader, r.until = token, v.now().Add(relay.TTL)
		}
		return *r
	})
	return r.leader, r.state, err
}

// leads renews the lease if the token holds it; v.mu must be held.
func (v *brokerConn) leads(group, token string) bool {
	r := v.of(group)
	if r.leader != token {
		return false
	}
	r.until = v.now().Add(relay.TTL)
	return true
}

func (v *brokerConn) Renew(ctx context.Context, group, token string, state []byte) error {
	leads, err := ask(ctx, v, func() bool {
		if !v.leads(group, token) {
			return false
		}
		if state != nil {
			v.of(group).state = state
		}
		return true
	})
	if err == nil && !leads {
		err = relay.ErrReplaced
	}
	return err
}

func (v *brokerConn) Release(ctx context.Context, group, token string) error {
	_, err := ask(ctx, v, func() bool {
		r := v.of(group)
		if r.leader == token {
			r.leader = ""
		}
		return true
	})
	return err
}

// pass delivers a message and returns the number of receivers; v.mu must be held.
func (v *brokerConn) pass(name, text string) int {
	for to, receive := range v.subs[name] {
		if v.loss--; v.loss > 0 && v.loss%2 == 0 {
			v.lost++
			continue
		}
		if to.stalled {
			to.pending = append(to.pending, func() { receive(text) })
		} else {
			receive(text)
		}
	}
	return len(v.subs[name])
}

func (v *brokerConn) Send(ctx context.Context, group, text string) (int, error) {
	return ask(ctx, v, func() int { return v.pass(group+" ", text) })
}

func (v *brokerConn) Deliver(ctx context.Context, group, token string, all []relay.Message) ([]int, error) {
	receivers, err := ask(ctx, v, func() (receivers []int) {
		if v.leads(group, token) {
			for _, m := range all {
				receivers = append(receivers, v.pass(group+" "+m.Session, m.Text))
			}
		}
		return receivers
	})
	if err == nil && len(receivers) < len(all) {
		err = relay.ErrReplaced
	}
	return receivers, err
}

func (v *brokerConn) Subscribe(ctx context.Context, group, session string, ready func(), receive func(string)) error {
	name := group + " " + session
	broken, err := ask(ctx, v, func() chan struct{} {
		if v.subs[name] == nil {
			v.subs[name] = make(map[*brokerConn]func(string))
		}
		v.subs[name][v] = receive
		return v.broken
	})
	if err != nil {
		return err
	}
	ready()
	select {
	case <-ctx.Done():
		bye, done := context.WithTimeout(context.Background(), time.Second)
		defer done()
		_, _ = ask(bye, v, func() bool { delete(v.subs[name], v); return true })
		return ctx.Err()
	case <-broken:
		return relay.ErrDown
	}
}

// processes is a fleet on a broker whose members always have calls waiting.
type processes struct {
	t       *testing.T
	broker  *memBroker
	conns   []*brokerConn
	members []*headway.Governor
	ends    []func()

	mu    sync.Mutex
	sent  []time.Duration // since the beginning
	by    map[int]int
	notes map[string]int // events of the fleet
	begun time.Time
	work  sync.WaitGroup
}

// pace is the owner's ceiling for all together.
const pace = 50 * time.Millisecond

func newProcesses(t *testing.T, members int, wait bool) *processes {
	c := &processes{t: t, broker: newMemBroker(), by: make(map[int]int), notes: make(map[string]int), begun: time.Now()}
	for range members {
		c.join(wait)
	}
	return c
}

func (c *processes) join(wait bool) {
	i, v := len(c.conns), c.broker.connect()
	g, err := headway.New(headway.Config{
		Name: "acme", Law: "aimd", Ceiling: pace, Initial: pace, JitterMax: -1, NoBreaker: true,
		Fleet: fleet.OnBroker(v, wait).Member("api.acme.com", "key"),
		OnEvent: func(e event.Event) {
			if e.Type == event.Fleet {
				c.mu.Lock()
				c.notes[e.Note]++
				c.mu.Unlock()
			}
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	var ended sync.WaitGroup
	for range 2 {
		ended.Go(func() {
			for {
				p, err := g.Acquire(ctx)
				if err != nil {
					return
				}
				c.mu.Lock()
				c.sent = append(c.sent, time.Since(c.begun))
				c.by[i]++
				c.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				p.Settle(headway.Outcome{Class: headway.OK})
			}
		})
	}
	c.conns, c.members = append(c.conns, v), append(c.members, g)
	c.ends = append(c.ends, sync.OnceFunc(func() {
		cancel()
		ended.Wait()
		g.Close()
	}))
}

// end stops all members and checks that no window of several lengths has more attempts
// than the pace allows.
func (c *processes) end() {
	for _, end := range c.ends {
		c.work.Go(end)
	}
	c.work.Wait()
	synctest.Wait()
	for _, window := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		from, n := 0, 0
		for i, at := range c.sent {
			for c.sent[from] <= at-window {
				from++
			}
			n = max(n, i-from+1)
		}
		// The next leader may not know of the last permit of the one before, nor of the
		// last attempt of a member that reconnects.
		if allowed := int((window+100*time.Millisecond)/pace) + 2 + c.broker.lost; n > allowed {
			c.t.Errorf("%d in %v, %d are allowed", n, window, allowed)
		}
	}
}

// rate returns the attempts in the last stretch as a fraction of what the pace allows.
func (c *processes) rate(last time.Duration) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, from := 0, time.Since(c.begun)-last
	for _, at := range c.sent {
		if at > from {
			n++
		}
	}
	return float64(n) / float64(last/pace)
}

// leader returns the index of the leader, -1 if there is no leader.
func (c *processes) leader() int {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	for name, r := range c.broker.groups {
		if c.broker.of(name); r.leader != "" {
			for v := range c.broker.subs[name+" "] {
				return slices.Index(c.conns, v)
			}
		}
	}
	return -1
}

// Whatever fails at the broker, a fleet stays within its pace, continues, reports the loss,
// and recovers.
func TestBrokerFaults(t *testing.T) {
	all := func(c *processes, f func(*brokerConn)) {
		for _, v := range c.conns {
			f(v)
		}
	}
	for name, test := range map[string]struct {
		fault, mend func(*processes)
		rate        float64 // during the fault, at least
		away        int     // members that report the loss, at least
	}{
		"nothing":              {func(*processes) {}, func(*processes) {}, 0.98, 0},
		"the server restarts":  {func(c *processes) { c.broker.stop(c.conns); c.broker.start() }, func(*processes) {}, 0.85, 6},
		"the server is away":   {func(c *processes) { c.broker.stop(c.conns) }, func(c *processes) { c.broker.start() }, 0.9, 6},
		"the server stalls":    {func(c *processes) { all(c, func(v *brokerConn) { v.stall(true) }) }, func(c *processes) { all(c, func(v *brokerConn) { v.stall(false) }) }, 0.8, 6},
		"the leader is killed": {func(c *processes) { i := c.leader(); c.conns[i].kill(); c.ends[i]() }, func(*processes) {}, 0.85, 4},
		"the leader is cut off": {
			func(c *processes) { c.conns[c.leader()].stall(true) },
			func(c *processes) { all(c, func(v *brokerConn) { v.stall(false) }) }, 0.7, 6,
		},
		"half are cut off": {
			func(c *processes) {
				lead := c.leader()
				for i := range 3 {
					c.conns[(lead+1+i)%6].stall(true)
				}
			},
			func(c *processes) { all(c, func(v *brokerConn) { v.stall(false) }) }, 0.7, 3,
		},
		"the leader's half is cut off": {
			func(c *processes) {
				lead := c.leader()
				for i := range 3 {
					c.conns[(lead+i)%6].stall(true)
				}
			},
			func(c *processes) { all(c, func(v *brokerConn) { v.stall(false) }) }, 0.6, 6,
		},
		"messages are lost":           {func(c *processes) { c.broker.lose(10) }, func(*processes) {}, 0.9, 0},
		"all keys are evicted":        {func(c *processes) { c.broker.evict() }, func(*processes) {}, 0.85, 0},
		"the clock goes an hour on":   {func(c *processes) { c.broker.turn(time.Hour) }, func(c *processes) { c.broker.turn(0) }, 0.85, 0},
		"the clock goes an hour back": {func(c *processes) { c.broker.turn(-time.Hour) }, func(c *processes) { c.broker.turn(0) }, 0.85, 0},
		"a member joins":              {func(c *processes) { c.join(false) }, func(*processes) {}, 0.95, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newProcesses(t, 6, false)
				time.Sleep(12 * time.Second)
				if r := c.rate(5 * time.Second); r < 0.98 {
					t.Errorf("before: %.3f of the pace", r)
				}
				test.fault(c)
				time.Sleep(50 * time.Second)
				during := c.rate(50 * time.Second)
				test.mend(c)
				time.Sleep(15 * time.Second)
				after := c.rate(10 * time.Second)
				c.mu.Lock()
				notes := maps.Clone(c.notes)
				c.mu.Unlock()
				c.end()
				t.Logf("%.3f of the pace while it lasts, %.3f afterwards, %v", during, after, notes)
				if during < test.rate || after < 0.98 {
					t.Errorf("%.3f of the pace while it lasts, want %.2f; %.3f afterwards", during, test.rate, after)
				}
				if notes["away"] < test.away || notes["back"] != notes["away"] && name != "the leader is killed" {
					t.Errorf("events: %v, want %d away", notes, test.away)
				}
				if n := slices.Min(slices.Collect(maps.Values(c.by))); n < len(c.sent)/20 && name != "the leader is killed" {
					t.Errorf("a member has sent %d of %d", n, len(c.sent))
				}
			})
		})
	}
}
