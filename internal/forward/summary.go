package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/lockfile"
)

// maxHosts bounds the number of hosts counted by name.
const maxHosts = 1000

// otherHosts counts the hosts beyond maxHosts.
const otherHosts = "(other hosts)"

// counts has the counters that do not belong to a connection.
type counts struct {
	underWay, refusedCaller, notHTTP atomic.Int64

	mu       sync.Mutex
	tunneled map[string]int64
	distrust map[string]int64 // programs that rejected the certificate
	requests map[string]int64 // decrypted connections that had a request
	open     map[string]int   // decrypted connections that are open
}

func add(to *map[string]int64, host string) {
	if *to == nil {
		*to = map[string]int64{}
	}
	if _, known := (*to)[host]; !known && len(*to) >= maxHosts {
		host = otherHosts
	}
	(*to)[host]++
}

func (c *counts) tunnel(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.tunneled, host)
}

// refusedUs counts a program that rejected the certificate for a host, and reports whether
// it is the first one.
func (c *counts) refusedUs(host string) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.distrust, host)
	return c.distrust[host] == 1
}

// trust notes that a program has sent a request to a host through a decrypted connection.
func (c *counts) trust(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.requests, host)
}

// opened notes a decrypted connection to a host.
func (c *counts) opened(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]int{}
	}
	c.open[host]++
}

// closed notes the end of a decrypted connection, and reports whether it was the last one to a
// host that no program has sent a request to.
func (c *counts) closed(host string) (unused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[host]--; c.open[host] > 0 {
		return false
	}
	delete(c.open, host)
	return c.requests[host] == 0
}

func (c *counts) distrusted(host string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.distrust[host] > 0
}

// Host is the number of connections, or of unencrypted requests, to a host.
type Host struct {
	Host  string `json:"host"`
	Count int64  `json:"count"`
}

func hosts(of map[string]int64) []Host {
	all := make([]Host, 0, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, Host{name, of[name]})
	}
	slices.SortStableFunc(all, func(a, b Host) int { return int(b.Count - a.Count) })
	return all
}

// Connection sums up the requests with one credential to one provider.
type Connection struct {
	// Name is the name of the provider's profile, or the host. Several credentials of a
	// provider have the same name.
	Name string `json:"name"`
	// Requests counts requests of the program, Attempts the attempts sent for them.
	Requests int64 `json:"requests"`
	Attempts int64 `json:"attempts"`
	// Throttled counts attempts that the provider refused for rate or load.
	Throttled int64 `json:"throttled"`
	// Held counts requests that were refused, held and sent again.
	Held int64 `json:"held"`
	// Passed counts refusals of the provider that the program got, Refused refusals of the
	// proxy itself.
	Passed  int64 `json:"passed"`
	Refused int64 `json:"refused"`
	// Waits counts attempts that waited, WaitedMS is their total wait in milliseconds.
	Waits    int64 `json:"waits"`
	WaitedMS int64 `json:"waited_ms"`
	// Limits are the known limits, each with its source.
	Limits []event.Limit          `json:"limits"`
	Pools  []headway.PoolSnapshot `json:"pools,omitempty"`
	// Now is the state of its governor.
	Now headway.Snapshot `json:"-"`
}

// Summary sums up what a proxy has done.
type Summary struct {
	Connections []Connection `json:"connections"`
	// Tunneled counts connections that were passed through without decryption.
	Tunneled []Host `json:"tunneled"`
	// Distrusted counts connections whose program rejected the proxy's certificate.
	Distrusted []Host `json:"distrusted"`
	// NotHTTP counts connections to named hosts that were closed because they were not HTTP.
	NotHTTP int64 `json:"not_http"`
	// Unauthenticated counts requests of callers without the password.
	Unauthenticated int64 `json:"refused_callers"`
}

// Summary returns what the proxy has done so far.
func (p *Proxy) Summary() Summary {
	s := Summary{Connections: []Connection{}, NotHTTP: p.counts.notHTTP.Load(), Unauthenticated: p.counts.refusedCaller.Load()}
	for _, c := range p.governed.list() {
		now := c.governor.Snapshot()
		limits := now.Limits
		if limits == nil {
			limits = []event.Limit{}
		}
		s.Connections = append(s.Connections, Connection{
			Name: c.name, Requests: c.requests.Load(), Attempts: c.attempts.Load(), Throttled: c.throttles.Load(),
			Held: c.held.Load(), Passed: c.passed.Load(), Refused: c.refused.Load(),
			Waits: c.waits.Load(), WaitedMS: time.Duration(c.waited.Load()).Milliseconds(), Limits: limits, Pools: now.Pools, Now: now,
		})
	}
	slices.SortStableFunc(s.Connections, func(a, b Connection) int { return strings.Compare(a.Name, b.Name) })
	p.counts.mu.Lock()
	defer p.counts.mu.Unlock()
	s.Tunneled, s.Distrusted = hosts(p.counts.tunneled), hosts(p.counts.distrust)
	return s
}

// Requests returns the number of requests and tunnels, governed or not.
func (s Summary) Requests() (n int64) {
	for _, c := range s.Connections {
		n += c.Requests
	}
	for _, h := range s.Tunneled {
		n += h.Count
	}
	return n
}

const (
	learnedFile    = "run.json"
	learnedVersion = 1
	maxLearned     = 16 << 20
)

// Belief is what was learned about a provider's limits, for the next run. It does not say
// with which credential.
type Belief struct {
	Account *State           `json:"account,omitempty"`
	Pools   map[string]State `json:"pools,omitempty"`
}

// State is the learned state of a control law, and when it was recorded.
type State struct {
	Law        string    `json:"law"`
	Version    int       `json:"version"`
	IntervalMS float64   `json:"interval_ms"`
	Data       []byte    `json:"data,omitempty"`
	RecordedAt time.Time `json:"recorded_at"`
}

func stateOf(s control.State, at time.Time) State {
	return State{Law: s.Law, Version: s.Version, IntervalMS: float64(s.Interval) / float64(time.Millisecond), Data: s.Data, RecordedAt: at.UTC()}
}

// state converts s for a governor; ok is false if it is too old.
func (s State) state(now time.Time) (_ control.State, ok bool) {
	return control.State{Law: s.Law, Version: s.Version, Interval: time.Duration(s.IntervalMS * float64(time.Millisecond)), Data: s.Data},
		headway.Fresh(s.RecordedAt, now) == nil
}

// restore gives a governor the learned state. Invalid or old states are left out.
func (b Belief) restore(g *headway.Governor, now time.Time) {
	if b.Account != nil {
		if s, ok := b.Account.state(now); ok {
			_ = g.Restore(s)
		}
	}
	pools := map[string]control.State{}
	for name, of := range b.Pools {
		if s, ok := of.state(now); ok {
			pools[name] = s
		}
	}
	if len(pools) > 0 {
		g.RestorePools(pools)
	}
}

// Learned returns what was learned about each connection, by name. Where a provider has
// several credentials, it returns what the one with the most attempts has learned.
func (p *Proxy) Learned() map[string]Belief {
	all, most, now := map[string]Belief{}, map[string]int64{}, time.Now()
	for _, c := range p.governed.list() {
		var b Belief
		if c.governor.Snapshot().Rate != nil {
			s := stateOf(c.governor.Learned(), now)
			b.Account = &s
		}
		for name, s := range c.governor.LearnedPools() {
			if b.Pools == nil {
				b.Pools = map[string]State{}
			}
			b.Pools[name] = stateOf(s, now)
		}
		if n := c.attempts.Load(); n > most[c.name] && (b.Account != nil || b.Pools != nil) {
			all[c.name], most[c.name] = b, n
		}
	}
	return all
}

// stored is the content of the file.
type stored struct {
	Version     int               `json:"version"`
	Connections map[string]Belief `json:"connections"`
}

// Load reads the learned state from a state folder. It returns an empty map where there is
// none, and also with an error, so that a run can start in any case.
func Load(dir string) (map[string]Belief, error) {
	b, err := atomicfile.Read(filepath.Join(dir, learnedFile), maxLearned)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Belief{}, nil
	}
	var s stored
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err == nil && s.Version != learnedVersion {
		err = fmt.Errorf("it has version %d, want %d", s.Version, learnedVersion)
	}
	if err != nil || s.Connections == nil {
		s.Connections = map[string]Belief{}
	}
	if err != nil {
		return s.Connections, fmt.Errorf("the rates learned before, in %s, are not used: %w", filepath.Join(dir, learnedFile), err)
	}
	return s.Connections, nil
}

// Save adds the learned state to a state folder. It keeps the state of other connections until
// that is too old. Several processes may call Save at the same time.
func Save(ctx context.Context, dir string, learned map[string]Belief) error {
	if len(learned) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, learnedFile)
	return lockfile.With(ctx, path+".lock", func(context.Context) error {
		all, _ := Load(dir) // a damaged file is replaced
		now := time.Now()
		maps.DeleteFunc(all, func(_ string, b Belief) bool { return !b.fresh(now) })
		maps.Copy(all, learned)
		b, err := json.Marshal(stored{learnedVersion, all})
		if err != nil {
			return err
		}
		return atomicfile.Write(disk.OS{}, path, b)
	})
}

func (b Belief) fresh(now time.Time) bool {
	if b.Account != nil && headway.Fresh(b.Account.RecordedAt, now) == nil {
		return true
	}
	for _, s := range b.Pools {
		if headway.Fresh(s.RecordedAt, now) == nil {
			return true
		}
	}
	return false
}
