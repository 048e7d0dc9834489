package quota

import (
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/fairqueue"
)

// Version is the version of the snapshot's structure.
const Version = 1

// Governor holds the state of all scopes. Make one with [New]. Not safe for concurrent
// use.
type Governor struct {
	config    Config
	digest    string
	origin    time.Time // the wall-clock time of instant 0
	calendars map[string]*calendar
	root      *account
	nodes     uint64 // nodes ever made

	seen     time.Duration // the latest instant
	due      time.Duration // the earliest at which something may happen by itself
	schedule []*node       // a heap by due
	ttl      time.Duration
	span     time.Duration // over which the recent rate is measured

	permits permits
	past    map[Scope]pastUse // use of evicted scopes
	changed []*node           // nodes whose daily use changed
	sweep   int               // length of that list at which it is swept
	events  ring[Event]
	moves   ring[Move]
	log     logHash
	counts  counts

	fleet *membership // nil without a fleet

	waiting []*waiter // in order of arrival
	queue   fairqueue.Queue[*waiter]
	waiters uint64        // ever queued
	retry   time.Duration // when the next pass over the queue may find capacity
	full    time.Duration // the common budgets are not full before this
}

// counts are totals since New.
type counts struct{ approved, denied, throttles, resumes, scaled, conflicts int64 }

// New returns a governor with every bucket full. origin is the wall-clock time of instant
// 0 and must be after 1970. The error is a [*FieldError], or several of them joined.
func New(c Config, origin time.Time) (*Governor, error) {
	c, err := c.Resolve()
	if err != nil {
		return nil, err
	}
	if origin.Unix() <= 0 {
		return nil, &FieldError{"origin", origin.Format(time.RFC3339), "a wall-clock instant after 1970"}
	}
	g := &Governor{origin: origin, calendars: map[string]*calendar{}, root: &account{}, due: math.MaxInt64}
	g.events.bound, g.moves.bound = int(c.EventBuffer), int(c.EventBuffer)
	if err := g.install(c, 0); err != nil {
		return nil, err
	}
	return g, nil
}

// Config returns the configuration in force, with its defaults. Its maps must not be
// changed.
func (g *Governor) Config() Config { return g.config }

// Digest returns the SHA-256 of the configuration's canonical JSON, in hexadecimal.
func (g *Governor) Digest() string { return g.digest }

// UpdateConfig applies a JSON merge patch (RFC 7396) to the configuration; see
// [Config.Patched] and [Governor.Replace].
func (g *Governor) UpdateConfig(now time.Duration, patch []byte) error {
	next, err := g.config.Patched(patch)
	if err != nil {
		return err
	}
	return g.Replace(now, next)
}

// Replace replaces the whole configuration. Use carries over: a bucket that lacked n
// tokens lacks n of its new capacity. New budgets begin full, but the day's use counts.
// If it returns an error, nothing has changed.
func (g *Governor) Replace(now time.Duration, c Config) error {
	c, err := c.Resolve()
	if err != nil {
		return err
	}
	now = g.tick(now)
	if err := g.install(c, now); err != nil {
		return err
	}
	g.emit(now, Event{Type: EventConfig, Scope: Scope{}, Digest: g.digest})
	return nil
}

// install puts a resolved configuration in force.
func (g *Governor) install(c Config, now time.Duration) error {
	digest, err := c.Digest()
	if err != nil {
		return err
	}
	zones := maps.Clone(g.calendars) // including those of removed models
	for _, l := range c.everyLimit() {
		name := c.dayZone(l)
		if zones[name] != nil {
			continue
		}
		zone, err := c.zone(name)
		if err != nil {
			return &FieldError{"dayZone", name, "a time zone that is known"}
		}
		zones[name] = &calendar{name: name, zone: zone}
		zones[name].anchor(g.origin, now)
	}
	g.config, g.digest, g.calendars = c, digest, zones
	g.ttl = time.Duration(c.PermitTTLMS) * time.Millisecond
	g.span = time.Duration(c.ForecastWindowMS) * time.Millisecond
	g.events.resize(int(c.EventBuffer))
	g.moves.resize(int(c.EventBuffer))
	g.configureAccount(g.root, now)
	for _, w := range g.waiting {
		g.reroute(w)
	}
	g.setBurst()
	g.retry = now
	g.due = g.earliest()
	return nil
}

// everyLimit returns all limits, so that every zone is found.
func (c *Config) everyLimit() []*Limits {
	all := []*Limits{&c.Global}
	add := func(l Limits) { all = append(all, &l) }
	agent := func(a Agent) {
		add(a.Limits)
		for _, l := range a.Models {
			add(l)
		}
	}
	tenant := func(t Tenant) {
		add(t.Limits)
		for _, l := range t.Models {
			add(l)
		}
		for _, a := range t.Agents {
			agent(a)
		}
		agent(t.AgentDefault)
	}
	for _, m := range c.Models {
		add(m.Limits)
	}
	for _, t := range c.Tenants {
		tenant(t)
	}
	tenant(c.TenantDefault)
	return all
}

// configureNode makes a node, or applies new limits to an existing one.
func (g *Governor) configureNode(n *node, s Scope, l *Limits, now time.Duration) *node {
	p := compile(l, g.calendars[g.config.dayZone(l)])
	if n == nil {
		g.nodes++
		n = &node{scope: s, limits: p, id: g.nodes, heap: -1, refilled: now,
			day: p.calendar.day, factor: one}
		for k := range n.bucket {
			n.bucket[k].level, n.since[k] = p.refill[k].capacity, -1
		}
		if p.soft {
			n.window = newWindow(p.softSpan, now)
		}
		g.recall(n)
		return n
	}
	raised := p.dailyTokens > n.limits.dailyTokens || p.dailyCalls > n.limits.dailyCalls
	n.configure(p, now)
	if n.state == Exhausted && raised && !n.spent() {
		g.transition(n, CapRaised, now)
	}
	g.reconsider(n, now)
	return n
}

// Anchor reports that the wall clock was set and shows wall at now. Days only go forward:
// a clock that is set back does not repeat a day.
func (g *Governor) Anchor(now time.Duration, wall time.Time) {
	now = g.tick(now)
	g.origin = wall.Add(-now)
	for _, c := range g.calendars {
		c.anchor(g.origin, now)
	}
	g.due = g.earliest()
	for n := range g.eachNode {
		if n.state == Exhausted {
			n.sync(now)
			g.reconsider(n, now)
		}
	}
}

// eachNode visits every node, in a fixed order.
func (g *Governor) eachNode(yield func(*node) bool) { g.root.visit(yield) }

func (a *account) visit(yield func(*node) bool) bool {
	if !a.nameless() && !yield(a.node) {
		return false
	}
	for _, n := range sorted(a.byModel) {
		if !yield(n) {
			return false
		}
	}
	for _, n := range sorted(a.gone) {
		if !yield(n) {
			return false
		}
	}
	for _, c := range a.order {
		if !c.visit(yield) {
			return false
		}
	}
	c := a.children[shared]
	return c == nil || c.visit(yield)
}

// sorted iterates over a map in the order of its keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
