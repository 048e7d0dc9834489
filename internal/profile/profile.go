package profile

import (
	"sync"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// Profile is what a provider publishes about its limits. It comes from [Find], [Load] or
// [Parse]. Its methods are safe for concurrent use. It remembers costs of requests and
// pools of routes, so each connection needs a profile of its own.
type Profile struct {
	name, title string
	hosts       []string          // patterns for the provider's hosts
	note        string            // for users, beside the figures
	sources     map[string]Source // of the figures
	account     Class             // shared by all attempts
	pools       []Class           // attempts with limits of their own; the first match counts
	refusals    []Refusal         // responses whose meaning differs from their status
	ask         *Ask              // where limits can be requested at no cost; nil if nowhere

	file   string // empty if built in
	text   []byte
	fields any

	finder Pools
	mu     sync.Mutex
	costs  map[alike]float64 // costs that responses reported
}

// Name is the profile's name.
func (p *Profile) Name() string { return p.name }

// Sheet is the whole content of a profile, for display. [Show] creates it. It must not be
// changed.
type Sheet struct {
	*Profile
	// Note is for users, beside the figures.
	Note string
	// Sources are the pages that the figures come from, by the keys that limits refer to.
	Sources map[string]Source
	// Classes are the account, which has no name, and the pools.
	Classes []Class
}

// Show returns the content of a profile.
func Show(p *Profile) Sheet {
	return Sheet{Profile: p, Note: p.note, Sources: p.sources, Classes: append([]Class{p.account}, p.pools...)}
}

// Title names the API that the profile describes.
func (p *Profile) Title() string { return p.title }

// Hosts returns patterns for the provider's hosts.
func (p *Profile) Hosts() []string { return p.hosts }

// File returns the file that the profile was read from; empty if it is built in.
func (p *Profile) File() string { return p.file }

// Pools returns the names of the pools that requests can belong to, for display.
func (p *Profile) Pools() []string {
	all := []string{}
	for i := range p.pools {
		if c := &p.pools[i]; c.Each.Response == "" || c.Name != "" {
			all = append(all, c.String())
		}
	}
	return all
}

// Ask returns the path at which limits can be requested at no cost; empty if the provider
// publishes none. [Profile.Asked] reads the response.
func (p *Profile) Ask() string {
	if p.ask == nil {
		return ""
	}
	return p.ask.Path
}

// Source is a page of the provider, and the day on which it was read.
type Source struct {
	URL  string
	Date string // such as 2026-11-22
}

// Class is a pool and its published limits.
type Class struct {
	Pool
	Limits     []Limit
	Cost       Cost
	Advertised []Advertised
}

// LimitKind is the kind of a published limit.
type LimitKind string

// The kinds of published limits.
const (
	Window   LimitKind = "window"
	Bucket   LimitKind = "bucket"
	InFlight LimitKind = "in_flight"
)

// Limit is one published figure.
type Limit struct {
	Kind LimitKind
	// Size is the number of units in each Window; a bucket also refills by it in that time.
	Size   float64
	Window time.Duration
	// Unit is what is counted; empty means requests.
	Unit string
	// Plan names the customers who have this limit; empty for all. A limit with a plan is
	// shown but not assumed.
	Plan string
	// Note has further conditions.
	Note string
	// Source is a key of the profile's sources.
	Source string
}

// Cost is what a request costs in units other than requests.
type Cost struct {
	// Unit is the unit, such as points or tokens; empty means requests.
	Unit string
	// Base is the assumed cost of a request before any is reported. Default 1.
	Base float64
	// Rules override Base for some requests; the first match counts.
	Rules []CostRule
	// Fields are fields of the request's body with a number. The first one that is present
	// is added to the estimate.
	Fields []string
	// Bytes is the assumed number of bytes of a body for each unit; 0 ignores the body's
	// size.
	Bytes float64
	// Alike is a field of the body, such as the query. Requests with the same value cost
	// the same. Empty means that all requests of the pool do.
	Alike string
	// Reports are fields of the response's body; the cost is the sum of those that are
	// present. Header is a field of the response's header.
	Reports []string
	Header  string
	// Parts are units that are part of the cost, each with the fields that report it.
	Parts  map[string][]string
	Source string
}

// CostRule is the cost of some requests.
type CostRule struct {
	Match Match
	Cost  float64
}

// Advertised names the response fields that state one limit: header fields, or fields of
// the body if In is "body".
type Advertised struct {
	Name, Unit                                  string
	Body                                        bool
	Refills                                     bool // units return one by one
	Limit, Remaining, Used, Reset, RefillPerSec string
	UsedOf                                      string        // holds both, such as 32/40
	Window                                      time.Duration // the time in which a bucket fills
	Source                                      string
}

// Refusal is a response whose meaning differs from its status.
type Refusal struct {
	Status []int
	// Header and Body are patterns that must all match.
	Header, Body map[string]string
	// Class is the real class of the response.
	Class reason.Class
	// Exhausted reports that a short wait does not help.
	Exhausted bool
	// Account reports that the refusal concerns the whole account.
	Account bool
	// Wait is the minimum wait if the response has none.
	Wait   time.Duration
	Source string
}

// Ask is where limits can be requested at no cost. The response is an object of limits by
// pool.
type Ask struct {
	Path string
	// In is the field of the response that has the object.
	In string
	// Limit, Remaining and Reset are fields of each limit. Reset is in seconds of the Unix
	// epoch.
	Limit, Remaining, Reset string
	Source                  string
}

// class returns the published limits of a pool, or of the account if the profile has no
// such pool.
func (p *Profile) class(pool string) *Class {
	for i := range p.pools {
		c := &p.pools[i]
		if c.is(pool) {
			return c
		}
	}
	return &p.account
}

// is reports whether name is the pool's name, or one that Each derives from it.
func (c *Class) is(pool string) bool {
	if pool == "" {
		return false
	}
	if (c.Each == Each{}) {
		return c.Name == pool
	}
	return c.Name != "" && len(pool) > len(c.Name) && pool[:len(c.Name)+1] == c.Name+":"
}

// classOf is like [Profile.class] for a request. A pool without a name is found by its
// Match.
func (p *Profile) classOf(r *Request, pool string) *Class {
	if c := p.class(pool); c != &p.account || pool == "" {
		return c
	}
	for i := range p.pools {
		if c := &p.pools[i]; c.Name == "" && c.Each.Response == "" && c.Match.Fits(r) {
			return c
		}
	}
	return &p.account
}

// Limits returns the published limits of a pool that apply to every customer; pool "" means
// the account. A law may start with them. Limits that depend on unknown facts are left out.
func (p *Profile) Limits(pool string) []control.Limit {
	c := p.class(pool)
	if pool != "" && c == &p.account {
		for i := range p.pools { // a pool without a name
			if q := &p.pools[i]; q.Name == "" && q.Each != (Each{}) && q.Each.Response == "" {
				c = q
			}
		}
		if c == &p.account {
			return nil
		}
	}
	var all []control.Limit
	for _, l := range c.Limits {
		perCost := l.Unit != signal.UnitRequests
		if l.Plan != "" || perCost && l.Unit != c.Cost.Unit {
			continue
		}
		a := control.Limit{Name: l.Unit, PerCost: perCost, Size: l.Size, Window: l.Window}
		switch l.Kind {
		case Window:
			a.Kind = control.SlidingWindow
		case Bucket:
			a.Kind = control.TokenBucket
		case InFlight:
			a.Kind = control.Concurrency
		}
		all = append(all, a)
	}
	return all
}

// At sets the path of the connection's address. Patterns match the path after it.
func (p *Profile) At(base string) { p.finder.Base = base }
