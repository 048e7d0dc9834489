package bulk

import (
	"sync"
	"time"

	"github.com/headway-go/headway/control"
)

// Key identifies a parallelism level: a connection and a type of entity, since some types
// cost the server more than others. Type may be empty.
type Key struct{ Connection, Type string }

// Controller is the parallelism law alone, for programs that send batches themselves.
// Connections are independent. The types of one connection share its level: while several
// are in use, each gets a part.
//
// It is safe for concurrent use. It uses the monotonic clock. It keeps a law for each key
// that was ever used.
type Controller struct {
	params control.ParallelismParams
	origin time.Time

	mu          sync.Mutex
	connections map[string]*connection
}

// connection holds one server's recommendations and the laws of its types.
type connection struct {
	recommended    int           // 0 while it has not
	budget, window time.Duration // 0 while it has not been advertised
	types          map[string]*kind
}

// kind is the law of one type and the number of its batches in flight.
type kind struct {
	control.Parallelism
	flying int
}

// ended records the end of a batch.
func (k *kind) ended() { k.flying = max(k.flying-1, 0) }

// NewController returns a controller whose levels all start with p. If p is invalid, the
// error names the field, its value and its bound.
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

// law returns the law of a key. The caller holds c.mu.
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

// Parallelism returns how many batches of the key may be in flight. inFlight is how many
// are. Call it before each batch: if the result is greater than inFlight, the caller is
// assumed to send one batch, until Success or Throttle reports its end or the next call
// passes another inFlight.
//
// The result is 0 only while other types use the whole level of the connection. Call it
// again when one of their batches has ended.
func (c *Controller) Parallelism(k Key, inFlight int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	law := c.law(k, now)
	level := law.Level(now, inFlight)
	// The ceiling is the server's recommendation, or less if its budget of execution time
	// allows fewer batches of this type.
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

// Success records that a batch that was sent at sent has succeeded now. busy is the
// execution time on the server; 0 if unknown.
func (c *Controller) Success(k Key, sent time.Time, busy time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	law := c.law(k, now)
	law.ended()
	law.Success(c.at(sent), now, busy)
}

// Throttle records that a batch that was sent at sent was refused now for rate or load.
// retryAfter is the advertised wait, which the caller has to observe; 0 if there was none.
func (c *Controller) Throttle(k Key, sent time.Time, retryAfter time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	law := c.law(k, now)
	law.ended()
	law.Throttle(c.at(sent), now, retryAfter)
}

// Recommend sets the number of batches in flight that the server of a connection
// recommends (x-ms-dop-hint), over all types. Values below 1 are ignored.
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

// Budget sets the execution time that the server of a connection allows in each window,
// over all types (Dataverse: 1,200 s in 300 s). Values that are not positive are ignored.
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

// Reset resets the level of the key. Its totals and the server's recommendations stay.
func (c *Controller) Reset(k Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.at(time.Now())
	c.law(k, now).Reset(now)
}

// Statistics is the state of a key's law.
type Statistics struct {
	Key
	control.ParallelismStatistics
	// The times of the last change and the last throttle, by the wall clock; LastThrottle
	// is zero if there was none.
	LastThrottleAt, LastIncreaseAt, LastActivityAt time.Time
}

// Statistics returns the current state of the key's law.
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
