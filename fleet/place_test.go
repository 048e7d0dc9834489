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
	"github.com/headway-go/headway/internal/meeting"
)

// square is a place in memory, with a clock of its own.
type square struct {
	mu   sync.Mutex
	down bool
	room map[string]*roomOf
	salt string
	subs map[string]map[*view]func(string) // by room and session
	loss int                               // of the next messages, every other one is lost
	lost int

	moved time.Duration // the clock is ahead by this
}

type roomOf struct {
	leader string
	until  time.Time
	kept   []byte
}

// view is one process's connection with the square.
type view struct {
	*square
	stalled bool
	pending []func()      // what the square gets once it is not stalled
	broken  chan struct{} // closed when the connection ends
}

func newSquare() *square {
	return &square{room: make(map[string]*roomOf), subs: make(map[string]map[*view]func(string))}
}

func (s *square) view() *view {
	return &view{square: s, broken: make(chan struct{})}
}

// ask asks the square for something.
func ask[T any](ctx context.Context, v *view, f func() T) (answer T, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return answer, meeting.ErrGone
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
		return answer, errors.New("the square says nothing")
	}
}

// stall holds up what a process and the square say to each other; what is said meanwhile
// arrives afterwards.
func (v *view) stall(on bool) {
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

// kill ends a connection.
func (v *view) kill() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hangUp()
}

func (v *view) hangUp() {
	for _, subs := range v.subs {
		delete(subs, v)
	}
	close(v.broken)
	v.broken = make(chan struct{})
}

// stop takes the square away with all that it knows; start brings an empty one.
func (s *square) stop(views []*view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	clear(s.room)
	s.salt = ""
	for _, v := range views {
		v.hangUp()
	}
}

func (s *square) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// evict drops all keys.
func (s *square) evict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.room)
	s.salt = ""
}

// lose loses every other one of the next messages.
func (s *square) lose(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loss = 2 * n
}

// turn sets the clock off by so much.
func (s *square) turn(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = by
}

func (s *square) Close() {}

func (s *square) now() time.Time { return time.Now().Add(s.moved) }

// of is a room, whose lease may be over; with the lock held.
func (s *square) of(name string) *roomOf {
	r := s.room[name]
	if r == nil {
		r = &roomOf{}
		s.room[name] = r
	}
	if s.now().After(r.until) {
		r.leader = ""
	}
	return r
}

func (v *view) Salt(ctx context.Context, proposed string) (string, error) {
	return ask(ctx, v, func() string {
		if v.salt == "" {
			v.salt = proposed
		}
		return v.salt
	})
}

func (v *view) Leader(ctx context.Context, room string) (string, error) {
	return ask(ctx, v, func() string { return v.of(room).leader })
}

func (v *view) Lead(ctx context.Context, room, token string) (string, []byte, error) {
	r, err := ask(ctx, v, func() roomOf {
		r := v.of(room)
		if r.leader == "" {
			r.leader, r.until = token, v.now().Add(meeting.TTL)
		}
		return *r
	})
	return r.leader, r.kept, err
}

// leads renews a lease, with the lock held.
func (v *view) leads(room, token string) bool {
	r := v.of(room)
	if r.leader != token {
		return false
	}
	r.until = v.now().Add(meeting.TTL)
	return true
}

func (v *view) Renew(ctx context.Context, room, token string, keep []byte) error {
	leads, err := ask(ctx, v, func() bool {
		if !v.leads(room, token) {
			return false
		}
		if keep != nil {
			v.of(room).kept = keep
		}
		return true
	})
	if err == nil && !leads {
		err = meeting.ErrReplaced
	}
	return err
}

func (v *view) Release(ctx context.Context, room, token string) error {
	_, err := ask(ctx, v, func() bool {
		r := v.of(room)
		if r.leader == token {
			r.leader = ""
		}
		return true
	})
	return err
}

// pass passes a message on, with the lock held.
func (v *view) pass(name, text string) int {
	for to, hear := range v.subs[name] {
		if v.loss--; v.loss > 0 && v.loss%2 == 0 {
			v.lost++
			continue
		}
		if to.stalled {
			to.pending = append(to.pending, func() { hear(text) })
		} else {
			hear(text)
		}
	}
	return len(v.subs[name])
}

func (v *view) Say(ctx context.Context, room, text string) (int, error) {
	return ask(ctx, v, func() int { return v.pass(room+" ", text) })
}

func (v *view) Tell(ctx context.Context, room, token string, all []meeting.Message) ([]int, error) {
	taken, err := ask(ctx, v, func() (taken []int) {
		if v.leads(room, token) {
			for _, m := range all {
				taken = append(taken, v.pass(room+" "+m.Session, m.Text))
			}
		}
		return taken
	})
	if err == nil && len(taken) < len(all) {
		err = meeting.ErrReplaced
	}
	return taken, err
}

func (v *view) Listen(ctx context.Context, room, session string, ready func(), hear func(string)) error {
	name := room + " " + session
	broken, err := ask(ctx, v, func() chan struct{} {
		if v.subs[name] == nil {
			v.subs[name] = make(map[*view]func(string))
		}
		v.subs[name][v] = hear
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
		return meeting.ErrGone
	}
}

// crowd is a fleet of processes that meet at a square, each with more work than it may do.
type crowd struct {
	t       *testing.T
	square  *square
	views   []*view
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

func newCrowd(t *testing.T, members int, wait bool) *crowd {
	c := &crowd{t: t, square: newSquare(), by: make(map[int]int), notes: make(map[string]int), begun: time.Now()}
	for range members {
		c.join(wait)
	}
	return c
}

func (c *crowd) join(wait bool) {
	i, v := len(c.views), c.square.view()
	g, err := headway.New(headway.Config{
		Name: "acme", Law: "aimd", Ceiling: pace, Initial: pace, JitterMax: -1, NoBreaker: true,
		Fleet: fleet.NewMeeting(v, wait).Member("api.acme.com", "key"),
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
	c.views, c.members = append(c.views, v), append(c.members, g)
	c.ends = append(c.ends, sync.OnceFunc(func() {
		cancel()
		ended.Wait()
		g.Close()
	}))
}

// end ends all members and holds what was sent to the pace in windows of several lengths.
func (c *crowd) end() {
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
		// What a leader permits as it is lost may be missing in what the next one knows,
		// and an attempt of a member that comes again.
		if allowed := int((window+100*time.Millisecond)/pace) + 2 + c.square.lost; n > allowed {
			c.t.Errorf("%d in %v, %d are allowed", n, window, allowed)
		}
	}
}

// rate is what was sent in a stretch up to now, of what the pace allows.
func (c *crowd) rate(last time.Duration) float64 {
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

// leader is the member that leads.
func (c *crowd) leader() int {
	c.square.mu.Lock()
	defer c.square.mu.Unlock()
	for name, r := range c.square.room {
		if c.square.of(name); r.leader != "" {
			for v := range c.square.subs[name+" "] {
				return slices.Index(c.views, v)
			}
		}
	}
	return -1
}

// Whatever happens to where a fleet meets, it keeps its pace, goes on, says so, and is whole
// again afterwards.
func TestMeetingBearsFaults(t *testing.T) {
	all := func(c *crowd, f func(*view)) {
		for _, v := range c.views {
			f(v)
		}
	}
	for name, test := range map[string]struct {
		fault, mend func(*crowd)
		rate        float64 // while it lasts, at least
		away        int     // members that say so, at least
	}{
		"nothing":              {func(*crowd) {}, func(*crowd) {}, 0.98, 0},
		"the server restarts":  {func(c *crowd) { c.square.stop(c.views); c.square.start() }, func(*crowd) {}, 0.85, 6},
		"the server is away":   {func(c *crowd) { c.square.stop(c.views) }, func(c *crowd) { c.square.start() }, 0.9, 6},
		"the server stalls":    {func(c *crowd) { all(c, func(v *view) { v.stall(true) }) }, func(c *crowd) { all(c, func(v *view) { v.stall(false) }) }, 0.8, 6},
		"the leader is killed": {func(c *crowd) { i := c.leader(); c.views[i].kill(); c.ends[i]() }, func(*crowd) {}, 0.85, 4},
		"the leader is cut off": {
			func(c *crowd) { c.views[c.leader()].stall(true) },
			func(c *crowd) { all(c, func(v *view) { v.stall(false) }) }, 0.7, 6,
		},
		"half are cut off": {
			func(c *crowd) {
				lead := c.leader()
				for i := range 3 {
					c.views[(lead+1+i)%6].stall(true)
				}
			},
			func(c *crowd) { all(c, func(v *view) { v.stall(false) }) }, 0.7, 3,
		},
		"the leader's half is cut off": {
			func(c *crowd) {
				lead := c.leader()
				for i := range 3 {
					c.views[(lead+i)%6].stall(true)
				}
			},
			func(c *crowd) { all(c, func(v *view) { v.stall(false) }) }, 0.6, 6,
		},
		"messages are lost":           {func(c *crowd) { c.square.lose(10) }, func(*crowd) {}, 0.9, 0},
		"all keys are evicted":        {func(c *crowd) { c.square.evict() }, func(*crowd) {}, 0.85, 0},
		"the clock goes an hour on":   {func(c *crowd) { c.square.turn(time.Hour) }, func(c *crowd) { c.square.turn(0) }, 0.85, 0},
		"the clock goes an hour back": {func(c *crowd) { c.square.turn(-time.Hour) }, func(c *crowd) { c.square.turn(0) }, 0.85, 0},
		"a member joins":              {func(c *crowd) { c.join(false) }, func(*crowd) {}, 0.95, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, 6, false)
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
