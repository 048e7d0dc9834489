//go:build unix

package fleet_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/fleettest"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/valkeyserver"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// budgetMember opens a governor that shares budgets in a Valkey.
func budgetMember(t testing.TB, address, name string, o quota.FleetOptions, global quota.Limits) *governor.Governor {
	t.Helper()
	return openBudget(t, budgetsAt(t, address, name), o, global)
}

func openBudget(t testing.TB, from governor.Fleet, o quota.FleetOptions, global quota.Limits) *governor.Governor {
	t.Helper()
	g, err := governor.New(governor.Options{
		Config: quota.Config{Global: global, Models: map[string]quota.Model{"m": {}}}, Fleet: from, Share: o,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// patient is a server of budgets whose answer is too late after a minute only: on a busy machine it
// takes long. One that never comes has to end too, also where the client does not notice its loss.
type patient struct {
	governor.Fleet
	reserve atomic.Int64 // of the day's calls in the last answer, which are the last budget
}

func budgetsAt(t testing.TB, address, name string) *patient {
	t.Helper()
	f, err := fleet.Open(t.Context(), "valkey://"+address)
	if err != nil {
		t.Fatal(err)
	}
	return &patient{Fleet: f.Share(name)}
}

func (p *patient) Exchange(ctx context.Context, x *quota.Exchange) (*quota.Exchanged, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	a, err := p.Fleet.Exchange(ctx, x)
	if err == nil && len(a.Budgets) > 0 {
		p.reserve.Store(a.Budgets[len(a.Budgets)-1].Reserve)
	}
	return a, err
}

// spent reports whether a refusal says that the day's cap is used up.
func spent(err error) bool {
	d, ok := errors.AsType[*quota.Denial](err)
	return ok && d.Code == quota.CodeHardLimit
}

// Fifty members admit exactly what a cap allows, of calls and of tokens, whether they take it
// ahead or not, and although estimates are too high.
func TestFiftyMembersAdmitExactlyTheCap(t *testing.T) {
	t.Parallel()
	v := valkeyserver.New(t)
	for name, test := range map[string]struct {
		limits       quota.Limits
		ahead        time.Duration
		tokens, real int64 // estimate and use of a call
		want         int64
	}{
		"calls":         {quota.Limits{MaxDailyCalls: 1000}, 0, 1, 1, 1000},
		"calls, ahead":  {quota.Limits{MaxDailyCalls: 20_000}, 300 * time.Millisecond, 1, 1, 20_000},
		"tokens":        {quota.Limits{MaxDailyTokens: 10_000}, 0, 20, 10, 999}, // 10 are left then
		"tokens, ahead": {quota.Limits{MaxDailyTokens: 200_000}, 300 * time.Millisecond, 10, 10, 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			for range longtest.Size(1, 20) {
				admitFifty(t, v, t.Name(), test.limits, test.ahead, test.tokens, test.real, test.want)
			}
		})
	}
}

var repeats atomic.Int64

func admitFifty(t *testing.T, v *valkeyserver.Server, name string, limits quota.Limits, ahead time.Duration, tokens, real, want int64) {
	name += string(rune('a' + repeats.Add(1)))
	var all []*governor.Governor
	for range 50 {
		all = append(all, budgetMember(t, v.Address, name, quota.FleetOptions{Ahead: ahead}, limits))
	}
	var admitted, used atomic.Int64
	var work sync.WaitGroup
	for _, g := range all {
		work.Go(func() {
			for {
				d, err := g.ApproveWait(t.Context(), quota.Request{Model: "m", InputTokens: tokens})
				if err != nil {
					if !spent(err) {
						t.Error(err)
					}
					return
				}
				if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: real}); err != nil {
					t.Error(err)
				}
				admitted.Add(1)
				used.Add(real)
			}
		})
	}
	work.Wait()
	for _, g := range all {
		_ = g.Close()
	}
	if admitted.Load() != want {
		t.Errorf("%d were admitted, %d tokens used; want %d", admitted.Load(), used.Load(), want)
	}
}

// While the server is away a member approves nothing, or goes on at its share, as configured.
// When the server is back without its data, the use goes on from what the members know.
func TestBudgetsWithoutTheServer(t *testing.T) {
	t.Parallel()
	v := valkeyserver.New(t)
	limits := quota.Limits{MaxDailyCalls: 100, CallsPerMinute: 6000, Burst: 100}
	budgets := budgetsAt(t, v.Address, "x")
	share := openBudget(t, budgets, quota.FleetOptions{}, limits)
	wait := budgetMember(t, v.Address, "x", quota.FleetOptions{Wait: true}, limits)
	call := func(g *governor.Governor) error {
		d, err := g.Approve(quota.Request{Model: "m", InputTokens: 1})
		if err == nil {
			_, err = g.RecordUsage(d.Permit, quota.Usage{Input: 1})
		}
		return err
	}
	for i := range 50 {
		g := share
		if i%5 == 0 {
			g = wait
		}
		if err := call(g); err != nil {
			t.Fatal(err)
		}
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		fleettest.Until(t, what, ok)
	}
	left := func(g *governor.Governor) int64 { return *g.Snapshot().Global.DailyCallsRemaining }
	until("both know the use of both", func() bool { return left(share) == 50 && left(wait) == 50 && share.Fleet().Members == 2 })
	until("half of a quarter of it is reserved", func() bool { return budgets.reserve.Load() == 6 })
	v.Stop()
	until("both report the loss", func() bool { return share.Fleet().Away && wait.Fleet().Away })
	alone := 0
	until("the share is used", func() bool {
		if call(share) == nil {
			alone++
		}
		if call(wait) == nil {
			t.Fatal("a call was approved while the server is away")
		}
		return alone == 6
	})
	for range 100 { // the reserve is used up
		if call(share) == nil {
			t.Fatal("more was approved than the reserve")
		}
	}
	v.Start()
	until("the server is back", func() bool { return !share.Fleet().Away && !wait.Fleet().Away })
	until("the use is known again", func() bool { return left(share) == 44 && left(wait) == 44 })
	n := 0
	until("the day is used up", func() bool {
		err := call(wait)
		if err == nil {
			n++
		}
		return spent(err)
	})
	if n != 44 {
		t.Errorf("%d more were admitted, want 44", n)
	}
}

// callers are four members that make calls all the time, the first half of them through a proxy
// that can move to another server.
type callers struct {
	t       *testing.T
	server  *valkeyserver.Server
	proxy   *valkeyserver.Proxy
	members []*governor.Governor
	begun   time.Time
	end     func()

	mu   sync.Mutex
	made instants
}

const callsPerSecond, burst, dayOfCalls = 20, 10, 100_000

// newCallers starts the callers, so many of them through the proxy.
func newCallers(t *testing.T, through int) *callers {
	c := &callers{t: t, server: valkeyserver.New(t), begun: time.Now()}
	c.proxy = valkeyserver.NewProxy(t, c.server.Address)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	c.end = sync.OnceFunc(func() { cancel(); work.Wait() })
	for i := range 4 {
		address := c.server.Address
		if i < through {
			address = c.proxy.Address
		}
		g := budgetMember(t, address, "calls", quota.FleetOptions{}, quota.Limits{CallsPerMinute: 60 * callsPerSecond, Burst: burst, MaxDailyCalls: dayOfCalls})
		c.members = append(c.members, g)
		work.Go(func() {
			for ctx.Err() == nil {
				if d, err := g.ApproveWait(ctx, quota.Request{Model: "m"}); err == nil {
					c.mu.Lock()
					c.made = append(c.made, time.Since(c.begun))
					c.mu.Unlock()
					_, _ = g.RecordUsage(d.Permit, quota.Usage{})
				}
			}
		})
	}
	t.Cleanup(c.end)
	return c
}

// goesOn waits for more calls.
func (c *callers) goesOn(n int) {
	c.t.Helper()
	before := c.count()
	fleettest.Until(c.t, "calls go on", func() bool { return c.count() >= before+n })
}

func (c *callers) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.made)
}

// lasts waits for more calls, in a long run for a minute.
func (c *callers) lasts(n int) {
	c.t.Helper()
	before, begun := c.count(), time.Now()
	c.goesOn(n)
	if longtest.Long() {
		time.Sleep(time.Until(begun.Add(time.Minute)))
		c.t.Logf("%d calls in the minute", c.count()-before)
	}
}

// all waits until each member's state is as wanted.
func (c *callers) all(what string, is func(*quota.FleetStatus) bool) {
	c.t.Helper()
	fleettest.Until(c.t, what, func() bool {
		for _, g := range c.members {
			if !is(g.Fleet()) {
				return false
			}
		}
		return true
	})
}

// A replica takes over that had not received what the server had granted last, the server's memory
// is full, or it evicts what it has: no budget is exceeded, calls go on, and the members say it.
func TestBudgetsOutliveTheirServer(t *testing.T) {
	t.Parallel()
	away := func(f *quota.FleetStatus) bool { return f.Away }
	back := func(f *quota.FleetStatus) bool { return !f.Away && f.Members == 4 }
	for name, test := range map[string]func(*callers){
		"failover": func(c *callers) {
			stream, replica := valkeyserver.NewProxy(c.t, c.server.Address), valkeyserver.New(c.t)
			host, port, _ := strings.Cut(stream.Address, ":")
			replica.Must("REPLICAOF", host, port)
			fleettest.Until(c.t, "the replica has all", func() bool {
				text, err := replica.Text("INFO", "replication")
				return err == nil && strings.Contains(text, "master_link_status:up")
			})
			c.goesOn(20)
			stream.Stall(true)
			c.goesOn(20) // which the replica does not know of
			c.server.Stop()
			c.all("all report the loss", away)
			c.lasts(10)
			replica.Must("REPLICAOF", "NO", "ONE")
			c.proxy.Move(replica.Address)
			c.all("it is back", back)
			c.all("what was lost is said", func(f *quota.FleetStatus) bool { return f.Lost > 0 })
		},
		"restart": func(c *callers) {
			c.server.Stop()
			c.all("all report the loss", away)
			c.lasts(10)
			c.server.Start()
			c.all("it is back", back)
		},
		"no answer": func(c *callers) {
			c.server.Pause()
			c.all("all report the loss", away)
			c.lasts(10)
			c.server.Resume()
			c.all("it is back", back)
		},
		"half are cut off": func(c *callers) {
			c.proxy.Stall(true)
			fleettest.Until(c.t, "half report the loss", func() bool { return c.members[0].Fleet().Away && c.members[1].Fleet().Away })
			c.lasts(20)
			c.proxy.Stall(false)
			c.all("it is back", back)
		},
		"memory is full": func(c *callers) {
			c.server.Must("CONFIG", "SET", "maxmemory", "1")
			c.lasts(60)
			c.all("nobody misses it", func(f *quota.FleetStatus) bool { return back(f) && f.Lost == 0 && !f.Evicts })
		},
		"keys are evicted": func(c *callers) {
			c.server.Must("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
			c.server.Must("CONFIG", "SET", "maxmemory", "1")
			c.all("all report the loss", away)
			c.lasts(10)
			c.server.Must("CONFIG", "SET", "maxmemory", "0")
			c.all("it is back", back)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCallers(t, map[bool]int{false: 4, true: 2}[name == "half are cut off"])
			c.all("all know all", back)
			c.lasts(100) // a quarter of which is in reserve
			test(c)
			c.goesOn(20)
			c.end()
			made, most := int64(len(c.made)), c.made.burst(time.Second/callsPerSecond)
			t.Logf("%d calls were made, in no window more than %.1f beyond the rate", made, most)
			if all := int64(time.Since(c.begun).Seconds()*callsPerSecond) + burst + 4; made > all || longtest.Long() && most > burst+4 {
				t.Errorf("%d calls were made, %d are allowed; %.1f at once", made, all, most)
			}
			for _, g := range c.members {
				fleettest.Until(t, "the day's use has all calls", func() bool {
					return *g.Snapshot().Global.DailyCallsRemaining <= dayOfCalls-made
				})
			}
		})
	}
}

// Two daemons with one Valkey have one cap for both, and the API shows where it is held. What
// cannot be shared is an error. A busy machine may answer a daemon too late: then it calls the
// Valkey away, its calls have to be made again, and what it would have got counts as used.
func TestDaemonsShareABudget(t *testing.T) {
	t.Parallel()
	v := valkeyserver.New(t)
	var log logged
	start := func(fleet string) (daemonAt, error) { return startDaemon(t, &log, fleet) }
	if _, err := start("none"); err == nil || !strings.Contains(err.Error(), "fleet is wait; want it left out, or fleet: valkey://") {
		t.Errorf("without a fleet: %v", err)
	}
	var all []daemonAt
	for range 2 {
		d, err := start("valkey://" + v.Address)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	approved := 0
	for _, d := range []daemonAt{all[0], all[1], all[0], all[1]} {
		fleettest.Until(t, "three calls are approved, or the day is used up", func() bool {
			status, text := d.approve(t)
			if status == http.StatusOK {
				approved++
				return approved%3 == 0
			}
			return strings.Contains(text, string(quota.CodeHardLimit))
		})
	}
	if lost := strings.Count(log.String(), "[RG][FLEET] the server that holds the shared budgets is away"); approved > 7 || approved < 7-lost {
		t.Errorf("%d calls were approved and %d answers lost, want 7 together", approved, lost)
	}
	fleettest.Until(t, "the API shows where the budget is held", func() bool {
		s, err := all[0].Snapshot(t.Context(), "")
		return err == nil && s.Fleet != nil && s.Fleet.Server == v.Address && s.Fleet.Members == 2 && !s.Fleet.Away && s.Fleet.Without == "wait"
	})
}

// daemonAt is a daemon with a cap of seven calls a day, at an address.
type daemonAt struct {
	*client.Client
	url string
}

func startDaemon(t *testing.T, log io.Writer, fleet string, env ...func(string) string) (at daemonAt, err error) {
	t.Helper()
	c, err := config.Read("headway.yaml", []byte("listen: 127.0.0.1:0\nfleet: "+fleet+"\nstate: "+t.TempDir()+
		"\nquota: {fleet: wait, global: {max_daily_calls: 7}, models: {m: {}}}\n"), append(env, os.Getenv)[0])
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(c, daemon.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		return at, err
	}
	t.Cleanup(func() { _ = d.Stop(context.Background()) })
	at.url = "http://" + d.Address().String()
	at.Client, err = client.New(client.Options{Server: at.url})
	return at, err
}

// approve asks for one call, and returns the answer.
func (d daemonAt) approve(t *testing.T) (status int, text string) {
	t.Helper()
	return d.answer(t)(http.Post(d.url+"/v1/quota/approve", "application/json", strings.NewReader(`{"model":"m","expected_input_tokens":1}`))) //nolint:noctx // The server is in this process.
}

func (d daemonAt) answer(t *testing.T) func(*http.Response, error) (status int, text string) {
	return func(r *http.Response, err error) (int, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, r.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
}

// A daemon that starts while the Valkey is away does not know its share: it approves nothing and
// says so, until the Valkey is there. One whose password is wrong does not start.
func TestADaemonStartsWithoutItsValkey(t *testing.T) {
	t.Parallel()
	v := valkeyserver.New(t)
	v.Stop()
	var log logged
	d, err := startDaemon(t, &log, "valkey://"+v.Address)
	if err != nil {
		t.Fatal(err)
	}
	if status, text := d.approve(t); status != http.StatusTooManyRequests {
		t.Errorf("without the Valkey: %d %s", status, text)
	}
	if s, err := d.Snapshot(t.Context(), ""); err != nil || !s.Fleet.New || !s.Fleet.Away {
		t.Errorf("the API says %+v, %v", s.Fleet, err)
	}
	for path, want := range map[string]string{
		"/metrics": `headway_quota_fleet_away{quota="default"} 1`, "/console/quotas": "has not been reached yet: nothing is approved",
	} {
		if _, text := d.answer(t)(http.Get(d.url + path)); !strings.Contains(text, want) { //nolint:noctx // The server is in this process.
			t.Errorf("%s has no %s:\n%s", path, want, text)
		}
	}
	events, err := http.Get(d.url + "/v1/events?since=0&type=" + string(quota.EventFleet)) //nolint:noctx // The server is in this process.
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(events.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"note":"away"`) {
	}
	if err := errors.Join(lines.Err(), events.Body.Close()); err != nil || lines.Text() == "" {
		t.Errorf("no event of it: %v", err)
	}
	if text := log.String(); !strings.Contains(text, "nothing is sent that is shared") {
		t.Errorf("the log says\n%s", text)
	}
	v.Start()
	fleettest.Until(t, "a call is approved", func() bool { status, _ := d.approve(t); return status == http.StatusOK })
	fleettest.Until(t, "the API knows the Valkey", func() bool {
		s, err := d.Snapshot(t.Context(), "")
		return err == nil && !s.Fleet.New && !s.Fleet.Away
	})
	v.Must("CONFIG", "SET", "requirepass", "canary")
	wrong := func(name string) string {
		return map[string]string{"FLEET_WITH_A_WRONG_PASSWORD": "valkey://:wrong@" + v.Address}[name]
	}
	if _, err := startDaemon(t, &log, "${FLEET_WITH_A_WRONG_PASSWORD}", wrong); err == nil || !strings.Contains(err.Error(), "refuses this user or password") {
		t.Errorf("with a wrong password: %v", err)
	}
}

// logged is a log in memory.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
