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
// what its server bears: while several are in use, each gets a part of it.
//
// It is safe for concurrent use. Its clock is the monotonic one. It keeps a law
// for each key that it was ever asked about.
type Controller struct {
	params control.ParallelismParams
	origin time.Time

	mu          sync.Mutex
	connections map[string]*connection
}

// connection is what one server recommends, and the laws of the types.
type connection struct {
	recommended    int           // 0 while it has not
	budget, window time.Duration // 0 while it has not been advertised
	types          map[string]*kind
}

// kind is the law of one type, and how many of its batches are under way as far
// as is known.
type kind struct {
	control.Parallelism
	flying int
}

// ended notes that a batch is back.
func (k *kind) ended() { k.flying = max(k.flying-1, 0) }

// NewController makes a controller whose levels all start with the same numbers.
// The error names field, value and bound.
func NewController(p control.ParallelismParams) (*Controller, error) {
	p, err := p.Resolve()
	if err != nil {
		return nil, err
	}
	return &Controller{params: p, origin: time.Now(), connections: map[string]*connection{}}, nil
}

// connection returns the named connection, creating it if needed; c.mu must be held.
func (c *Controller) connection(name string) *connection {
	if c.connections[name] == nil {
		c.connections[name] = &connection{types: map[string]*kind{}}
	}
	return c.connections[name]
}

// law is that of the key; the caller holds the lock.
func (c *Controller) law(k Key, now time.Duration) *kind {
	conn := c.connection(k.Connection)
	l := conn.types[k.Type]
	if l == nil {
		l = &kind{Parallelism: control.NewParallelism(&c.params, now)}
		l.Recommend(conn.recommended)
		l.Budget(conn.budget, conn.window)
		l.Reset(now)
		conn.types[k.Type] = l
	}
	return l
}

// Parallelism is how many batches of the key may be under way now; inFlight is
// how many are. Ask before each batch: where the answer is above inFlight, one is
// taken to be sent, until Success or Throttle tells that it is back, or the next
// call says otherwise.
//
// It is 0 only while other types of the connection have every place: ask again
// when one of their batches is back.
func (c *Controller) Parallelism(k Key, inFlight int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	law := c.law(k, now)
	level := law.Level(now, inFlight)
	// The ceiling is what the server recommends, or less where its budget of
	// execution time fits less of this type.
	sum, others, most := 0, 0, law.Statistics(now).Ceiling
	for _, l := range c.connection(k.Connection).types {
		if s := l.Statistics(now); now-s.LastActivity <= c.params.IdleReset {
			sum += s.Current
			if l != law {
				others += l.flying
			}
		}
	}
	if sum > most {
		level = max(level*most/sum, 1)
	}
	level = max(min(level, most-others), 0)
	law.flying = max(inFlight, 0)
	if level > law.flying {
		law.flying++
	}
	return level
}

// Success tells of a batch that was sent at sent and is served now. busy is how
// long the server worked on it; 0 when it does not say.
func (c *Controller) Success(k Key, sent time.Time, busy time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	law := c.law(k, now)
	law.ended()
	law.Success(c.at(sent), now, busy)
}

// Throttle tells of a batch that was sent at sent and is refused now for rate or
// load. retryAfter is the advertised wait, which the caller has to keep; 0 without one.
func (c *Controller) Throttle(k Key, sent time.Time, retryAfter time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	law := c.law(k, now)
	law.ended()
	law.Throttle(c.at(sent), now, retryAfter)
}

// Recommend tells how many batches under way the server of a connection asks for
// (x-ms-dop-hint), over all types. Below 1 is not a recommendation.
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

// Budget tells how much execution time the server of a connection allows in each
// window, over all types (Dataverse: 1,200 s in 300 s). Figures that are not
// positive are ignored.
func (c *Controller) Budget(name string, busy, window time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if busy <= 0 || window <= 0 {
		return
	}
	conn := c.connection(name)
	conn.budget, conn.window = busy, window
	for _, l := range conn.types {
		l.Budget(busy, window)
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
