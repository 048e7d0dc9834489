package egress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/breaker"
)

// Circuit configures the circuit breakers of a provider. The zero value has the defaults.
//
// Each model on each path has its own breaker, which opens on 5xx answers, broken answers and
// silence, so that a failing part does not stop the others. One more breaker, for the whole
// provider, opens when no connection can be made. Failures caused by the client or by
// CallTimeout do not count.
type Circuit struct {
	// Config configures each breaker. Zero fields take the defaults of package breaker: it
	// opens for 60 s when half of the last 10 calls failed, of at least 5.
	breaker.Config
	// Off turns the breakers off.
	Off bool
	// Max bounds the number of breakers of a provider, 1 to 65,536. Default 256. Beyond
	// it, the least recently used closed breaker is dropped.
	Max int
}

const defaultCircuits, maxCircuits = 256, 1 << 16

func (c Circuit) resolve() (_ Circuit, err error) {
	if c.Max == 0 {
		c.Max = defaultCircuits
	}
	if c.Max < 1 || c.Max > maxCircuits {
		return c, fmt.Errorf("max is %d, must be from 1 to %d, or 0 for %d", c.Max, maxCircuits, defaultCircuits)
	}
	c.Config, err = c.Resolve()
	return c, err
}

// CircuitStatus is the state of a breaker that is not closed.
type CircuitStatus struct {
	// Model and Path name the part of the provider; both are empty for the whole
	// provider. A star replaces path segments with digits, other than a version, since
	// they may be ids.
	Model string `json:"model,omitempty"`
	Path  string `json:"path,omitempty"`
	// State is open or half_open.
	State string `json:"state"`
	// RetryAt is when the next attempt is let through.
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// part is a part of a provider that can fail on its own.
type part struct{ model, path string }

// String names the part, without ids in the path.
func (p part) String() string {
	switch {
	case p == part{}:
		return "the whole provider"
	case p.model == "":
		return starred(p.path)
	}
	return p.model + " at " + starred(p.path)
}

// circuits are the breakers of one provider. The zero value is ready for use.
type circuits struct {
	mu    sync.Mutex
	whole breaker.Breaker
	parts map[part]*circuit
}

// circuit is the breaker of one part.
type circuit struct {
	breaker.Breaker
	used time.Duration
}

// passage is the permission of the breakers for one attempt.
type passage struct {
	whole, part breaker.Ticket
	of          *circuit // nil when the part has none
}

// moves are the state changes made by one call of a method of circuits.
type moves struct{ whole, part breaker.Transition }

// wait returns how long the breakers would delay an attempt; 0 for not at all. It changes no
// state.
func (c *circuits) wait(o *Circuit, now time.Duration, p part) time.Duration {
	if o.Off {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.whole.ReadyAt(&o.Config)
	if one := c.parts[p]; one != nil {
		at = max(at, one.ReadyAt(&o.Config))
	}
	return max(0, at-now)
}

// admit asks the breakers to let one attempt through. The caller must settle it.
func (c *circuits) admit(o *Circuit, now time.Duration, p part) (leave passage, ok bool, m moves) {
	if o.Off {
		return passage{}, true, moves{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if leave.whole, ok, m.whole = c.whole.Admit(&o.Config, now); !ok {
		return passage{}, false, m
	}
	if leave.of = c.of(o, p); leave.of == nil {
		return leave, true, m
	}
	leave.of.used = now
	if leave.part, ok, m.part = leave.of.Admit(&o.Config, now); !ok {
		c.whole.Settle(&o.Config, now, leave.whole, breaker.Neutral)
		return passage{}, false, m
	}
	return leave, true, m
}

// of returns the breaker of a part, and makes it at the first use. It returns nil when too
// many breakers are not closed. c.mu must be held.
func (c *circuits) of(o *Circuit, p part) *circuit {
	if one := c.parts[p]; one != nil {
		return one
	}
	if len(c.parts) >= o.Max {
		var oldest *circuit
		var name part
		for other, one := range c.parts {
			if one.State() == breaker.Closed && (oldest == nil || one.used < oldest.used) {
				oldest, name = one, other
			}
		}
		if oldest == nil {
			return nil
		}
		delete(c.parts, name)
	}
	if c.parts == nil {
		c.parts = map[part]*circuit{}
	}
	one := &circuit{}
	c.parts[p] = one
	return one
}

// settle reports the outcome of an attempt to both breakers.
func (c *circuits) settle(o *Circuit, now time.Duration, leave passage, whole, part breaker.Result) (m moves) {
	if o.Off {
		return m
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.whole = c.whole.Settle(&o.Config, now, leave.whole, whole)
	if leave.of != nil {
		m.part = leave.of.Settle(&o.Config, now, leave.part, part)
	}
	return m
}

// status returns the breakers that are not closed, that of the whole provider first.
func (c *circuits) status(o *Circuit, origin time.Time) (all []CircuitStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(b *breaker.Breaker, p part) {
		if b.State() == breaker.Closed {
			return
		}
		s := CircuitStatus{Model: p.model, Path: starred(p.path), State: b.State().String()}
		if at := b.ReadyAt(&o.Config); at > 0 {
			s.RetryAt = origin.Add(at).Round(0)
		}
		all = append(all, s)
	}
	add(&c.whole, part{})
	for p, one := range c.parts {
		add(&one.Breaker, p)
	}
	slices.SortFunc(all, func(a, b CircuitStatus) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Path, b.Path))
	})
	return all
}

// starred returns a path with a star for each segment that may be an id.
func starred(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		version := len(s) > 1 && len(s) <= 8 && s[0] == 'v' && s[1] >= '0' && s[1] <= '9'
		if !version && strings.ContainsAny(s, "0123456789") {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}
