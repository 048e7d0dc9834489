package profile

import (
	"sync"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// Profile is what a provider publishes about its limits. It comes from [Named], [Load] or
// [Parse]. Its methods are safe for concurrent use; it remembers what requests have cost
// and of which pools their routes are, so each connection has one of its own.
type Profile struct {
	name, title string
	hosts       []string          // where the provider is, as patterns
	note        string            // what a person should know beside the figures
	sources     map[string]Source // where the figures come from
	account     Class             // what all attempts share
	pools       []Class           // attempts with limits of their own, the first that fits first
	refusals    []Refusal         // answers that mean something else than their status says
	ask         *Ask              // where limits can be asked for at no cost; nil for nowhere

	file   string // empty for one that comes with Headway
	text   []byte
	fields any

	finder Pools
	mu     sync.Mutex
	costs  map[alike]float64 // what requests took
}

// Name is the profile's name.
func (p *Profile) Name() string { return p.name }

// Sheet is a profile with all that it says, to be shown. It is made by [Show], and must not be
// changed.
type Sheet struct {
	*Profile
	// Note is what a person should know beside the figures.
	Note string
	// Sources are the pages that the figures are from, by the names that limits have for
	// them.
	Sources map[string]Source
	// Classes are what all attempts share, without a name, and then the pools.
	Classes []Class
}

// Show returns what a profile says.
func Show(p *Profile) Sheet {
	return Sheet{Profile: p, Note: p.note, Sources: p.sources, Classes: append([]Class{p.account}, p.pools...)}
}

// Title says which API the profile describes.
func (p *Profile) Title() string { return p.title }

// Hosts are where the provider is, as patterns.
func (p *Profile) Hosts() []string { return p.hosts }

// File is where the profile was read from; empty for one that comes with Headway.
func (p *Profile) File() string { return p.file }

// Pools lists the pools that requests can belong to, as a person calls them.
func (p *Profile) Pools() []string {
	all := []string{}
	for i := range p.pools {
		if c := &p.pools[i]; c.Each.Response == "" || c.Name != "" {
			all = append(all, c.String())
		}
	}
	return all
}

// Ask is the path at which limits can be asked for at no cost; empty where that is not
// published. [Profile.Asked] reads the answer.
func (p *Profile) Ask() string {
	if p.ask == nil {
		return ""
	}
	return p.ask.Path
}

// Source is a page of the provider, and when it was read.
type Source struct {
	URL  string
	Date string // such as 2026-11-22
}

// Class is a pool, with what is published about it.
type Class struct {
	Pool
	Limits     []Limit
	Cost       Cost
	Advertised []Advertised
}

// LimitKind is the kind of a published limit.
type LimitKind string

// The kinds.
const (
	Window   LimitKind = "window"
	Bucket   LimitKind = "bucket"
	InFlight LimitKind = "in_flight"
)

// Limit is one published figure.
type Limit struct {
	Kind LimitKind
	// Size is in units for each Window; of a bucket also what it refills in that time.
	Size   float64
	Window time.Duration
	// Unit is requests unless it says something else.
	Unit string
	// Plan names the customers who have this limit; empty for all. A limit with a plan is
	// shown but not assumed.
	Plan string
	// Note is what else is said of it.
	Note string
	// Source is a key of the profile's sources.
	Source string
}

// Cost is what a request takes of limits that do not count requests.
type Cost struct {
	// Unit is what is counted, such as points or tokens; empty for requests.
	Unit string
	// Base is the assumed cost of a request before anything is known. Default 1.
	Base float64
	// Rules override Base for some requests; the first that fits counts.
	Rules []CostRule
	// Fields are fields of the request's body that hold a number: the first that is there
	// is added to the estimate.
	Fields []string
	// Bytes is how many bytes of a body are thought to take one unit; 0 leaves them out.
	Bytes float64
	// Alike is a field of the body that requests of the same cost have in common, such as
	// the query; empty when all of the pool count alike.
	Alike string
	// Reports are fields of the answer's body that hold what the request took: the sum of
	// those that are there. Header is a field of the header.
	Reports []string
	Header  string
	// Parts are units within the cost, each with the fields that report it.
	Parts  map[string][]string
	Source string
}

// CostRule is the cost of some requests.
type CostRule struct {
	Match Match
	Cost  float64
}

// Advertised names the fields of an answer that state one limit: header fields, or
// fields of the body if In is "body".
type Advertised struct {
	Name, Unit                                  string
	Body                                        bool
	Refills                                     bool // units come back one by one
	Limit, Remaining, Used, Reset, RefillPerSec string
	UsedOf                                      string        // holds both, as 32/40
	Window                                      time.Duration // of a bucket, the time in which it fills
	Source                                      string
}

// Refusal is an answer that means something else than its status says.
type Refusal struct {
	Status []int
	// Header and Body are patterns of values that must all fit.
	Header, Body map[string]string
	// Class is what the answer stands for.
	Class reason.Class
	// Exhausted says that waiting does not help for long.
	Exhausted bool
	// Account says that it is about the whole account.
	Account bool
	// Wait is how long to wait at least when the answer does not say.
	Wait   time.Duration
	Source string
}

// Ask is where limits can be asked for at no cost: an object of limits by their pools.
type Ask struct {
	Path string
	// In is the field of the answer that holds the object.
	In string
	// Limit, Remaining and Reset are fields of each; Reset is in seconds of the Unix epoch.
	Limit, Remaining, Reset string
	Source                  string
}

// class returns what is published about a pool; about the account if the profile has no
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

// is reports whether a name is that of the pool, or of one of those that Each makes.
func (c *Class) is(pool string) bool {
	if pool == "" {
		return false
	}
	if (c.Each == Each{}) {
		return c.Name == pool
	}
	return c.Name != "" && len(pool) > len(c.Name) && pool[:len(c.Name)+1] == c.Name+":"
}

// classOf is [Profile.class] for a request of a pool: a pool without a name is found by
// what it matches.
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

// Limits returns the published limits of a pool that hold for every customer; those of
// the account for "". A law may start with them. Limits on what cannot be known in
// advance are left out.
func (p *Profile) Limits(pool string) []control.Limit {
	c := p.class(pool)
	if pool != "" && c == &p.account {
		for i := range p.pools { // one without a name
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

// At sets the path of the connection's address; the paths of patterns are below it.
func (p *Profile) At(base string) { p.finder.Base = base }

// cited are the keys of the sources that figures and rules name.
func (p *Profile) cited() []string {
	var keys []string
	for c := range p.all() {
		for _, l := range c.Limits {
			keys = append(keys, l.Source)
		}
		if c.Cost.Source != "" {
			keys = append(keys, c.Cost.Source)
		}
		for _, a := range c.Advertised {
			keys = append(keys, a.Source)
		}
	}
	for _, r := range p.refusals {
		keys = append(keys, r.Source)
	}
	if p.ask != nil {
		keys = append(keys, p.ask.Source)
	}
	return keys
}

// all yields the account and the pools.
func (p *Profile) all() func(yield func(*Class) bool) {
	return func(yield func(*Class) bool) {
		if !yield(&p.account) {
			return
		}
		for i := range p.pools {
			if !yield(&p.pools[i]) {
				return
			}
		}
	}
}
