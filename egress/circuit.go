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

// Circuit is when a provider, or a part of it, that keeps failing is left alone.
//
// Each model on each path has a breaker of its own, which answers of 5xx, broken
// answers and silence open, so that one part that fails stops no other. One more,
// for the provider as a whole, opens when no connection can be made. What the
// client did, or the owner's own call timeout, counts for none of them.
type Circuit struct {
	// Config is the shape of each breaker. Zero fields take the defaults of package
	// breaker: half of at least 5 of the last 10, for 60 s.
	breaker.Config
	// Off leaves the breakers out.
	Off bool
	// Max bounds the breakers of one provider, 1 to 65,536. Default 256. Beyond it
	// the closed one that was used least recently is forgotten.
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

// CircuitStatus is one breaker that is not closed.
type CircuitStatus struct {
	// Model and Path are the part of the provider that it is for, both empty for
	// the provider as a whole. Segments of the path that have digits, but for a
	// version, are a star: they may name what a client keeps there.
	Model string `json:"model,omitempty"`
	Path  string `json:"path,omitempty"`
	// State is open or half_open.
	State string `json:"state"`
	// RetryAt is when the next attempt is let through.
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// part is what of a provider fails by itself.
type part struct{ model, path string }

// String names the part, without what a client may have named in the path.
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

// passage is an attempt's leave by the breakers.
type passage struct {
	whole, part breaker.Ticket
	of          *circuit // nil when the part has none
}

// moves are what a call of circuits changed.
type moves struct{ whole, part breaker.Transition }

// wait is how long the breakers hold an attempt up; 0 when they do not. It
// changes nothing.
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

// admit asks for one attempt, which then has to be settled.
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

// of is the breaker of a part, made when it is first asked for; nil when there
// are too many that are not closed. c.mu must be held.
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

// settle reports to both breakers how an attempt ended.
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

// status are the breakers that are not closed, that of the whole first.
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

// starred is a path without what may be a name that a client gave.
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
