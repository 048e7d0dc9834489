//go:build unix

package valkey

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/valkeyserver"
	"github.com/headway-go/headway/quota"
)

// world is members of a fleet that share budgets, in virtual time: the cores that decide, and
// the script in a real server, which reads its clock from the last argument.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	client   *Client
	script   *rueidis.Lua
	group    string
	limits   quota.Limits
	now      time.Duration
	clock    time.Duration // of the server, ahead of now
	expires  map[string]time.Duration
	members  []*machine
	named    int
	approved []time.Duration
	faults   int
	carried  time.Duration // how many exchanges the server has carried out
	evicts   bool          // the server may evict keys
	policy   bool          // what evicts was before
	runs     int           // how often another server has taken over
	evicting float64       // the part of the keys that it evicts before each exchange
}

// machine is a member.
type machine struct {
	core    *quota.Governor
	budgets *Budgets
	wait    bool
	rate    float64 // of its calls
	burst   float64 // how often it makes as many as it can, per second
	link    link
	beat    time.Duration // when the next exchange is due
	ends    time.Duration // of the exchange under way
	x       *quota.Exchange
	a       *quota.Exchanged // nil if there will be no answer
	calls   int              // approved since the last fault began
}

// link is what happens to a member's exchanges.
type link int

const (
	up link = iota
	refused
	lost // a message, or its answer
)

// start is the server's clock at the beginning: noon, far from the next day.
const start = 20_000*24*time.Hour + 12*time.Hour

const tick = 50 * time.Millisecond

func newWorld(t *testing.T, c *Client, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), client: c, group: fmt.Sprint("world ", seed), expires: map[string]time.Duration{},
		script: rueidis.NewLuaScript(strings.Replace(budgetText, "redis.call('TIME')", "cjson.decode(ARGV[#ARGV])", 1)),
	}
	if w.rng.IntN(3) > 0 {
		w.limits.MaxDailyCalls = 20 + w.rng.Int64N(400)
	}
	if w.limits.MaxDailyCalls == 0 || w.rng.IntN(2) == 0 {
		w.limits.CallsPerMinute, w.limits.Burst = 1+w.rng.Int64N(3000), 1+w.rng.Int64N(100)
		if w.rng.IntN(3) == 0 {
			w.limits.CallsPerMinute, w.limits.Burst = 1, 60+w.rng.Int64N(60) // it takes longer than an hour to refill
		}
	}
	w.evicts = w.rng.IntN(2) == 0
	for range 2 + w.rng.IntN(4) {
		w.join()
	}
	return w
}

// join starts a member.
func (w *world) join() {
	w.named++
	core, err := quota.New(quota.Config{Global: w.limits, Models: map[string]quota.Model{"m": {}}, LoadZone: time.LoadLocation}, time.Unix(0, 0).Add(start))
	if err != nil {
		w.t.Fatal(err)
	}
	m := &machine{core: core, budgets: w.client.Budgets(w.group, strconv.Itoa(w.named)), wait: w.rng.IntN(4) == 0, rate: 2 + 8*w.rng.Float64(), burst: 0.05 * float64(w.rng.IntN(2))}
	m.budgets.server = w.server()
	core.Share(w.now, quota.FleetOptions{Wait: m.wait, Ahead: time.Duration(w.rng.IntN(2)) * 300 * time.Millisecond})
	w.members = append(w.members, m)
	w.exchange(m)
	w.finish(m)
}

// exchange begins an exchange of a member.
func (w *world) exchange(m *machine) {
	m.x, m.a, m.ends = m.core.Exchange(w.now, false), nil, w.now
	switch m.link { //nolint:exhaustive // nothing is carried over another
	case up:
		m.a = w.carry(m)
		m.ends += time.Duration(w.rng.IntN(3)) * tick / 2
	case lost:
		if w.rng.IntN(2) == 0 {
			w.carry(m)
		}
		m.ends += time.Second
	}
}

// finish ends an exchange.
func (w *world) finish(m *machine) {
	if m.a != nil {
		m.core.Exchanged(w.now, m.x, m.a)
	} else {
		m.core.Unanswered(w.now)
	}
	m.x, m.beat = nil, w.now+quota.FleetBeat
}

// carry has the server carry out an exchange.
func (w *world) carry(m *machine) *quota.Exchanged {
	keys, args := m.budgets.message(m.x)
	w.carried++
	at := start + w.now + w.clock + w.carried*time.Microsecond // no two at one instant
	w.forget(at)
	w.evict()
	r, err := w.script.Exec(w.t.Context(), w.client.c, keys, append(args, fmt.Sprintf(`["%d","%d"]`, at/time.Second, at%time.Second/time.Microsecond))).AsStrSlice()
	if err != nil {
		w.t.Fatal(err)
	}
	for i, key := range keys {
		keep := 24 * time.Hour
		if i > 0 {
			ms, _ := strconv.Atoi(args[7+perBudget*i-1])
			keep = time.Duration(ms) * time.Millisecond
		}
		w.expires[key] = at + keep
	}
	a, _, err := answer(m.x, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// forget deletes what has expired by the server's clock.
func (w *world) forget(at time.Duration) {
	for key, end := range w.expires {
		if end <= at {
			w.ask("DEL", key)
			delete(w.expires, key)
		}
	}
}

func (w *world) ask(words ...string) string {
	r, err := w.client.c.Do(context.Background(), w.client.c.B().Arbitrary(words...).Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) && !strings.Contains(err.Error(), "int64") {
		w.t.Fatal(words, err)
	}
	return r
}

// call makes one call at a member, as the shell does: with an exchange first if it needs one.
func (w *world) call(m *machine) {
	r := quota.Request{Model: "m"}
	if m.x == nil && m.core.Needs(w.now, r) {
		w.exchange(m)
		if m.ends > w.now {
			return // it would wait; its claim is granted to the next one
		}
		w.finish(m)
	}
	d := m.core.Approve(w.now, r)
	if !d.Approved {
		return
	}
	w.approved = append(w.approved, w.now)
	m.calls++
	if m.wait && m.core.Fleet().Away {
		w.t.Errorf("%v: a member that waits approved a call while the server was away", w.now)
	}
	if _, err := m.core.RecordUsage(w.now, d.Permit, quota.Usage{}); err != nil {
		w.t.Fatal(err)
	}
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.now + d; w.now < end; w.now += tick {
		for _, m := range w.members {
			if m.x != nil && w.now >= m.ends {
				w.finish(m)
			}
			for p := m.rate * tick.Seconds(); p > 0; p-- {
				if w.rng.Float64() < p {
					w.call(m)
				}
			}
			for n := 0; w.rng.Float64() < m.burst*tick.Seconds() && n < 100; n++ {
				for range 20 {
					w.call(m)
				}
			}
			if m.x == nil && (w.now >= m.beat || m.core.Lacks()) {
				w.exchange(m)
			}
		}
	}
}

// some are a half of the members, or all.
func (w *world) some() []*machine {
	if w.rng.IntN(2) == 0 {
		return w.members
	}
	return w.members[:len(w.members)/2]
}

// fault is one fault and its end, and in the middle of it perhaps another one. exact reports
// whether nothing that was granted may be lost.
func (w *world) fault() (name string, exact bool) {
	w.faults++
	if n := w.rng.IntN(8); n > 1 {
		name, exact = w.other(n)
		w.run(3 * time.Second) // until all members have brought what they know of the use
		return name, exact
	}
	l := refused + link(w.rng.IntN(2))
	cutOff := w.some()
	for _, m := range w.members {
		m.calls = 0
	}
	for _, m := range cutOff {
		m.link = l
	}
	lasts := time.Duration(1+w.rng.IntN(90)) * time.Second
	inner := time.Duration(w.rng.Float64() * float64(lasts))
	w.run(inner)
	if name = map[link]string{refused: "refused", lost: "lost"}[l]; w.rng.IntN(2) == 0 {
		other, _ := w.other(2 + w.rng.IntN(6))
		name += " with " + other
	}
	w.run(lasts - inner)
	for _, m := range cutOff {
		m.link = up
		// Its share begins 2.5 s after the last answer, and ends after a minute. After another
		// fault the use that members report may be more than is allowed for a while.
		share := float64(w.limits.CallsPerMinute) / 60 / float64(len(w.members)) * (min(lasts, time.Minute).Seconds() - 5)
		if w.faults == 1 && w.limits.MaxDailyCalls == 0 && !m.wait && share > 3 && m.calls == 0 && slices.Contains(w.members, m) && !strings.Contains(name, "with") {
			w.t.Errorf("%v: a member whose share is %.1f calls approved none while the server was away", w.now, share)
		}
	}
	w.run(3 * time.Second) // until all have answers again
	return name, false
}

// other is a fault that may come at any time.
func (w *world) other(which int) (name string, exact bool) {
	switch which {
	case 2:
		w.clock += time.Hour
		return "clock an hour ahead", true
	case 3:
		w.clock -= time.Hour
		return "clock an hour behind", true
	case 4:
		w.ask("FLUSHDB")
		clear(w.expires)
		return "no data", false
	case 5:
		old := w.copy()
		w.run(time.Duration(w.rng.IntN(300)) * time.Millisecond)
		w.restore(old)
		w.runs++
		w.say()
		return "older copy", false
	case 6:
		w.evicting, w.policy = 0.1+0.9*w.rng.Float64(), w.evicts
		w.evicts = true
		w.say()
		w.run(time.Duration(w.rng.IntN(100)) * time.Second)
		w.evicting, w.evicts = 0, w.policy
		w.say()
		return "keys evicted", false
	default:
		w.members = slices.Delete(w.members, 0, 1)
		w.join()
		return "killed", false
	}
}

// server is what the server says of itself, and say lets the members know.
func (w *world) server() string {
	return fmt.Sprintf("%d %s", w.runs, map[bool]string{true: "allkeys-random", false: "noeviction"}[w.evicts])
}

func (w *world) say() {
	for _, m := range w.members {
		m.budgets.server = w.server()
	}
}

// copy returns the server's data, and restore sets it back to them, as a replica does that takes
// over and had not received the last writes.
func (w *world) copy() map[string]string {
	data := map[string]string{}
	for key := range w.expires {
		data[key] = w.ask("DUMP", key)
	}
	return data
}

func (w *world) restore(data map[string]string) {
	for key := range w.expires {
		w.ask("DEL", key)
		if data[key] == "" {
			delete(w.expires, key)
		} else {
			w.ask("RESTORE", key, "0", data[key])
		}
	}
}

// evict deletes some keys, as a server does whose memory is full.
func (w *world) evict() {
	if w.evicting == 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(w.expires)) {
		if w.rng.Float64() < w.evicting {
			w.ask("DEL", key)
			delete(w.expires, key)
		}
	}
}

// Members that share budgets never exceed them, whatever happens to the server: it refuses
// connections, loses messages or answers, for all members or a half of them, loses its data, or
// has its clock set; members are killed and others join. Members go on, and when it is over a
// day's cap is used to the last call if nothing that was granted was lost.
func TestNeverOverABudget(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	first := uint64(1) // the same worlds each time; others in a long run
	if longtest.Long() {
		first = rand.Uint64()
	}
	for n := range longtest.Size(8, 1000) {
		w := newWorld(t, c, first+uint64(n))
		exact := true
		var faults []string
		for range 1 + w.rng.IntN(4) {
			w.run(time.Duration(w.rng.IntN(20_000)) * time.Millisecond)
			name, keeps := w.fault()
			exact = exact && keeps
			faults = append(faults, fmt.Sprintf("%v %s", w.now, name))
		}
		w.run(3 * time.Minute)
		w.check(exact)
		if t.Failed() {
			t.Fatalf("seed %d, limits %+v, %d members, faults %v, %d approved", first+uint64(n), w.limits, len(w.members), faults, len(w.approved))
		}
	}
}

// check holds the calls against the limits.
func (w *world) check(exact bool) {
	made := int64(len(w.approved))
	if most := w.limits.MaxDailyCalls; most > 0 {
		if made > most {
			w.t.Errorf("%d calls were approved of a day of %d", made, most)
		}
		if least := map[bool]int64{true: most, false: most / 2}[exact]; made < least && w.limits.CallsPerMinute == 0 {
			w.t.Errorf("%d calls were approved of a day of %d, at least %d are possible", made, most, least)
		}
	}
	if w.limits.CallsPerMinute == 0 {
		return
	}
	slices.Sort(w.approved)
	if least := min(w.limits.CallsPerMinute, 60*2*int64(len(w.members))) / 2; w.limits.MaxDailyCalls == 0 {
		late, _ := slices.BinarySearch(w.approved, w.now-time.Minute)
		if last := int64(len(w.approved) - late); last < least {
			w.t.Errorf("%d calls were approved in the last minute, at least %d are possible", last, least)
		}
	}
	rate := float64(w.limits.CallsPerMinute) / 60
	// A call is made up to two ticks after it was granted.
	most := float64(w.limits.Burst) + 0.01*float64(w.limits.CallsPerMinute+w.limits.Burst) + float64(len(w.members)) + 2*tick.Seconds()*rate
	level, last := 0.0, time.Duration(0)
	for _, at := range w.approved {
		level = max(0, level-rate*(at-last).Seconds()) + 1
		if last = at; level > most {
			w.t.Errorf("%v: %.1f calls more than %.1f a second, %.1f are allowed at once", at, level, rate, most)
			return
		}
	}
}

// openClient returns a connection to a server of its own.
func openClient(t *testing.T) *Client {
	t.Helper()
	o, err := Parse(&url.URL{Scheme: "valkey", Host: valkeyserver.New(t).Address})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// What a silent member reserved counts as used after its lease, since it may have used it, until
// the member sends again and reports what it did use. What it had taken stays used.
func TestASilentMembersReserveCountsAsUsed(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	member := func(name string) func(lease time.Duration, reserve, take int64) *quota.Exchanged {
		b := c.Budgets("cap", name)
		return func(lease time.Duration, reserve, take int64) *quota.Exchanged {
			t.Helper()
			a, err := b.Exchange(t.Context(), &quota.Exchange{
				Lease: lease, Silence: lease,
				Budgets: []quota.SharedBudget{{Name: quota.DailyCalls, Day: "today", Cap: 100, Reserve: reserve}},
				Claims:  []quota.SharedClaim{{Budgets: []int{0}, Amounts: []int64{take}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
	}
	killed, other := member("killed"), member("other")
	if a := killed(time.Hour, 40, 10); !a.Granted[0] || a.Budgets[0].Reserve != 40 || a.Members != 1 {
		t.Fatalf("%+v", a)
	}
	if a := other(time.Hour, 0, 60); a.Granted[0] || a.Members != 2 || a.Budgets[0].Use != 10 {
		t.Fatalf("what another member reserved was granted: %+v", a)
	}
	killed(time.Millisecond, 40, 0)
	for deadline := time.Now().Add(5 * time.Minute); other(time.Hour, 0, 0).Budgets[0].Use != 50; {
		if time.Now().After(deadline) {
			t.Fatal("the reserve does not count as used")
		}
	}
	if more, rest := other(time.Hour, 50, 51), other(time.Hour, 0, 50); more.Granted[0] || more.Budgets[0].Reserve != 50 || !rest.Granted[0] {
		t.Errorf("beside a silent member: %+v, then %+v", more, rest)
	}
	if a := killed(time.Hour, 0, 0); a.Budgets[0].Use != 60 {
		t.Errorf("it used nothing of its reserve: %+v", a)
	}
	if more, rest := other(time.Hour, 0, 41), other(time.Hour, 0, 40); more.Granted[0] || !rest.Granted[0] {
		t.Errorf("what was taken was given again: %+v, then %+v", more, rest)
	}
}
