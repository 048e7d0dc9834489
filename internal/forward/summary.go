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

// maxHosts bounds the hosts that are counted by name.
const maxHosts = 1000

// otherHosts stands for those beyond.
const otherHosts = "(other hosts)"

// counts are what is counted beside the connections.
type counts struct {
	underWay, refusedCaller, notHTTP atomic.Int64

	mu       sync.Mutex
	tunneled map[string]int64
	distrust map[string]int64
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

func (c *counts) refusedUs(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.distrust, host)
}

// Host is how many connections, or unencrypted requests, there were to a host.
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

// Connection is what came of the requests of one credential at one provider.
type Connection struct {
	// Name is that of the provider's profile, or the host. Several credentials have the
	// same.
	Name string `json:"name"`
	// Requests are those of the program, Attempts what was sent for them.
	Requests int64 `json:"requests"`
	Attempts int64 `json:"attempts"`
	// Throttled are attempts that the provider refused for rate or load.
	Throttled int64 `json:"throttled"`
	// Held are requests that were refused and sent again.
	Held int64 `json:"held"`
	// Passed are refusals that the program got, from the provider; Refused from here.
	Passed  int64 `json:"passed"`
	Refused int64 `json:"refused"`
	// Waits are attempts that waited, WaitedMS for how long in all.
	Waits    int64 `json:"waits"`
	WaitedMS int64 `json:"waited_ms"`
	// Limits are those that are known, each with where it is from.
	Limits []event.Limit          `json:"limits"`
	Pools  []headway.PoolSnapshot `json:"pools,omitempty"`
}

// Summary is what a proxy has done.
type Summary struct {
	Connections []Connection `json:"connections"`
	// Tunneled are connections that passed through as they are.
	Tunneled []Host `json:"tunneled"`
	// Distrusted are connections that the program ended at our certificate.
	Distrusted []Host `json:"distrusted"`
	// NotHTTP are connections to named hosts that ended because they were not HTTP.
	NotHTTP int64 `json:"not_http"`
	// Strange are requests of callers without the password.
	Strange int64 `json:"refused_callers"`
}

// Summary says what the proxy has done so far.
func (p *Proxy) Summary() Summary {
	s := Summary{Connections: []Connection{}, NotHTTP: p.counts.notHTTP.Load(), Strange: p.counts.refusedCaller.Load()}
	for _, c := range p.governed.list() {
		now := c.governor.Snapshot()
		limits := now.Limits
		if limits == nil {
			limits = []event.Limit{}
		}
		s.Connections = append(s.Connections, Connection{
			Name: c.name, Requests: c.requests.Load(), Attempts: c.attempts.Load(), Throttled: c.throttles.Load(),
			Held: c.held.Load(), Passed: c.passed.Load(), Refused: c.refused.Load(),
			Waits: c.waits.Load(), WaitedMS: time.Duration(c.waited.Load()).Milliseconds(), Limits: limits, Pools: now.Pools,
		})
	}
	slices.SortStableFunc(s.Connections, func(a, b Connection) int { return strings.Compare(a.Name, b.Name) })
	p.counts.mu.Lock()
	defer p.counts.mu.Unlock()
	s.Tunneled, s.Distrusted = hosts(p.counts.tunneled), hosts(p.counts.distrust)
	return s
}

// Requests counts what has come through, governed or not.
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

// Belief is what was learned of a connection's limits, for the next run. It is of a
// provider: which credential it was learned with is not kept.
type Belief struct {
	Account *State           `json:"account,omitempty"`
	Pools   map[string]State `json:"pools,omitempty"`
}

// State is what a law has learned, and when.
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

// state is what a governor takes; ok is false for one that is too old.
func (s State) state(now time.Time) (_ control.State, ok bool) {
	return control.State{Law: s.Law, Version: s.Version, Interval: time.Duration(s.IntervalMS * float64(time.Millisecond)), Data: s.Data},
		headway.Fresh(s.RecordedAt, now) == nil
}

// restore has a governor start from a belief. What cannot be read, or is too old, is left
// out.
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

// Learned is what is known of each connection now, by its name. Of several credentials of
// a provider it is what the busiest has learned.
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

// stored is the file.
type stored struct {
	Version     int               `json:"version"`
	Connections map[string]Belief `json:"connections"`
}

// Load reads what was learned from a state folder. What cannot be read is an error, beside
// nothing learned: a run can start without it.
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
		return s.Connections, fmt.Errorf("what was learned before, in %s, is left out: %w", filepath.Join(dir, learnedFile), err)
	}
	return s.Connections, nil
}

// Save adds what was learned to a state folder. What is there of other connections stays,
// until it is too old. Another process may do the same at the same time.
func Save(ctx context.Context, dir string, learned map[string]Belief) error {
	if len(learned) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, learnedFile)
	return lockfile.With(ctx, path+".lock", func(context.Context) error {
		all, _ := Load(dir) // one that cannot be read is replaced
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
