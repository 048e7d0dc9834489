package bulk

import (
	"sync"
	"time"

	"github.com/headway-go/headway/control"
)

// Key is what a level is kept for: a connection, and in it a type of entity,
// since some take more of the server's work than others. An empty Type is as
// good as any.
type Key struct{ Connection, Type string }

// Controller is the parallelism law alone, for programs that send batches of
// their own. Connections do not influence each other; the types of one share
// what its server recommends: while several are in use, each gets a part of it.
//
// It is safe for concurrent use. Its clock is the monotonic one.
type Controller struct {
	params control.ParallelismParams
	origin time.Time

	mu          sync.Mutex
	connections map[string]*connection
}

// connection is what one server recommends, and the laws of the types.
type connection struct {
	recommended int // 0 while it has not
	types       map[string]*control.Parallelism
}

// NewController makes a controller whose levels all start with the same numbers.
// The error names field, value and bound.
func NewController(p control.ParallelismParams) (*Controller, error) {
	p, err := p.Resolve()
	if err != nil {
		return nil, err
	}
	return &Controller{params: p, origin: time.Now(), connections: map[string]*connection{}}, nil
}

// connection is that of the name; the caller holds the lock.
func (c *Controller) connection(name string) *connection {
	if c.connections[name] == nil {
		c.connections[name] = &connection{types: map[string]*control.Parallelism{}}
	}
	return c.connections[name]
}

// law is that of the key; the caller holds the lock.
func (c *Controller) law(k Key, now time.Duration) *control.Parallelism {
	conn := c.connection(k.Connection)
	l := conn.types[k.Type]
	if l == nil {
		fresh := control.NewParallelism(&c.params, now)
		fresh.Recommend(conn.recommended)
		fresh.Reset(now)
		l = &fresh
		conn.types[k.Type] = l
	}
	return l
}

// Parallelism is how many batches of the key may be under way now; inFlight is
// how many are.
func (c *Controller) Parallelism(k Key, inFlight int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	law := c.law(k, now)
	level := law.Level(now, inFlight)
	sum, most := 0, law.Statistics(now).Max
	for _, l := range c.connection(k.Connection).types {
		if s := l.Statistics(now); now-s.LastActivity <= c.params.IdleReset {
			sum += s.Current
		}
	}
	if sum <= most {
		return level
	}
	return max(level*most/sum, 1)
}

// Success tells of a batch that was sent at sent and is served now. busy is how
// long the server worked on it; 0 when it does not say.
func (c *Controller) Success(k Key, sent time.Time, busy time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	c.law(k, now).Success(c.at(sent), now, busy)
}

// Throttle tells of a batch that was sent at sent and is refused now for rate or
// load. retryAfter is the told wait, which is the caller's to keep; 0 when untold.
func (c *Controller) Throttle(k Key, sent time.Time, retryAfter time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	c.law(k, now).Throttle(c.at(sent), now, retryAfter)
}

// Recommend tells how many batches under way the server of a connection asks for
// (x-ms-dop-hint), over all types. Below 1 is no recommendation.
func (c *Controller) Recommend(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 1 {
		return
	}
	conn := c.connection(name)
	conn.recommended = n
	for _, l := range conn.types {
		l.Recommend(n)
	}
}

// Reset starts the key afresh; its totals and what the server recommends stay.
func (c *Controller) Reset(k Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	c.law(k, now).Reset(now)
}

// Statistics are what the law of a key has to show.
type Statistics struct {
	Key
	control.ParallelismStatistics
	// The last of each as wall-clock instants; LastThrottle is zero when there was
	// none.
	LastThrottleAt, LastIncreaseAt, LastActivityAt time.Time
}

// Statistics is what the law of the key has to show now.
func (c *Controller) Statistics(k Key) Statistics {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	s := Statistics{Key: k, ParallelismStatistics: c.law(k, now).Statistics(now)}
	s.LastIncreaseAt, s.LastActivityAt = c.origin.Add(s.LastIncrease), c.origin.Add(s.LastActivity)
	if s.TotalThrottles > 0 {
		s.LastThrottleAt = c.origin.Add(s.LastThrottle)
	}
	return s
}

func (c *Controller) at(t time.Time) time.Duration { return t.Sub(c.origin) }
