//go:build unix

package limits_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/valkeyserver"
	"github.com/headway-go/headway/transport"
)

// asMember makes the test's binary a member of a fleet: an http.Client whose transport is
// wrapped, and that asks for one document after another until it is stopped.
const asMember = "FLEET_MEMBER"

// member is what that process does. Its environment has the name, the address of its documents,
// such as http://127.0.0.1:80/m/m1/%d, the number of the first, and the fleet's address; and BURSTS
// if it has no ceiling and asks in bursts.
func member(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	documents, bursts := os.Getenv("DOCUMENTS"), os.Getenv("BURSTS") != ""
	host, _, _ := strings.Cut(strings.TrimPrefix(documents, "http://"), "/")
	from, err := strconv.Atoi(os.Getenv("FIRST"))
	if err != nil {
		return err
	}
	f, err := fleet.Open(ctx, os.Getenv("FLEET"))
	if err != nil {
		return err
	}
	config := transport.Config{Name: name, Ceiling: fleetCeiling, Initial: fleetInitial, Fleet: f.Member(host, harness.Token)}
	if bursts {
		config.Ceiling, config.Passive = 0, true
	}
	governor, err := transport.NewGovernor(config)
	if err != nil {
		return err
	}
	defer governor.Close()
	t, err := transport.New(governor, transport.Options{})
	if err != nil {
		return err
	}
	ask(ctx, &http.Client{Transport: t}, documents, from, 1, bursts)
	return nil
}

// ask asks for one document after another, from one number on, every so many, until the
// context ends; in bursts of 50, if it is to. What is refused too often stands in the provider's log.
func ask(ctx context.Context, client *http.Client, documents string, from, every int, bursts bool) {
	for n, asked := from, 1; ctx.Err() == nil; n, asked = n+every, asked+1 {
		if bursts && asked%50 == 0 {
			select {
			case <-time.After(rand.N(6 * time.Second)):
			case <-ctx.Done():
			}
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf(documents, n), http.NoBody)
		if err != nil {
			panic(err) // the test's address
		}
		if resp, err := client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
}

const (
	fleetCeiling = 2 * time.Millisecond
	fleetInitial = 100 * time.Millisecond
)

// front is a provider under a limit, with a list and documents for each member.
type front struct {
	host string
	// list is the path of a member's list and the rest of its query.
	list func(member int) (path, query string)
	// documents is the path of a member's documents for a format, and the number of the first.
	documents func(member int, format string) (path string, first int)
	// log is what was asked for so far. The path of a document is /m/NAME/..., whatever it was.
	log func() []request
}

// nginxUnder starts an nginx under a limit that serves anything.
func nginxUnder(t *testing.T, l limit) front {
	t.Helper()
	s := newNginx(t, requireNginx(t), "{serve}", `root {prefix}/www;
		{limit_req}
		location = /list { try_files /list.json =404; }
		location /m/ { try_files /one.json =404; }
		location / { return 404; }`,
		"{zone}", "limit_req_zone $server_name zone=api:1m rate="+l.rate+";", "{status}", fmt.Sprint(l.status), "{limit_req}", l.directive())
	if err := os.MkdirAll(filepath.Join(s.prefix, "www"), 0o755); err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&list, `,{"id":"k%d"}`, i)
	}
	harness.Write(t, filepath.Join(s.prefix, "www", "list.json"), `{"items":[`+list.String()[1:]+`]}`)
	harness.Write(t, filepath.Join(s.prefix, "www", "one.json"), `{"id":"one"}`)
	s.start(t)
	return front{
		host:      s.address,
		list:      func(int) (path, query string) { return "/list", "" },
		documents: func(i int, format string) (string, int) { return fmt.Sprintf("/m/m%d/%s", i, format), 0 },
		log:       func() []request { return records[request](t, filepath.Join(s.prefix, "access.log")) },
	}
}

// providerUnder starts "headway provider serve" under a limit.
func providerUnder(t *testing.T, l limit, members int) front {
	t.Helper()
	return providerOf(t, fmt.Sprintf("limits: [{kind: token_bucket, rate: %v/s, burst: %d}]", l.allowed, l.burst+1), members)
}

// providerOf starts a provider with limits. Of its conversations each of some members has as
// many, one after the other.
func providerOf(t *testing.T, limits string, members int) front {
	t.Helper()
	const conversations = 100_000
	each := conversations / members
	dir := t.TempDir()
	harness.Write(t, filepath.Join(dir, "limits.yaml"), "name: limits\nprovider:\n  latency: {p50: 2ms, p99: 8ms}\n  "+limits+"\n")
	ready := filepath.Join(dir, "url")
	harness.Launch(t, dir, nil, "provider", "serve", "limits.yaml", "--conversations", fmt.Sprint(conversations), "--messages", "1",
		"--listen", "127.0.0.1:0", "--ready-file", ready, "--log", "provider.log")
	return front{
		host: strings.TrimPrefix(awaitFile(t, ready), "http://"),
		list: func(i int) (path, query string) {
			from := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i*each) * 5 * time.Minute) // one every five minutes
			return "/conversations", fmt.Sprintf(", limit: %q, updated_after: %q", "1000", from.Format(time.RFC3339))
		},
		documents: func(i int, format string) (string, int) {
			return "/conversations/" + strings.Replace(format, "%d", "c%06d", 1), i * each
		},
		log: func() (all []request) {
			b, err := os.ReadFile(filepath.Join(dir, "provider.log"))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(b)) {
				var e struct {
					At     time.Time
					Path   string
					Status int
				}
				if json.Unmarshal([]byte(line), &e) != nil {
					continue // the last one, unfinished
				}
				r := request{At: float64(e.At.UnixMilli()) / 1000, Status: e.Status, URI: e.Path}
				if n, err := strconv.Atoi(strings.TrimPrefix(e.Path, "/conversations/c")); err == nil {
					r.URI = fmt.Sprintf("/m/m%d/%d", n/each, n)
				}
				all = append(all, r)
			}
			return all
		},
	}
}

// awaitFile waits until a program has written a line into a file.
func awaitFile(t *testing.T, path string) (line string) {
	t.Helper()
	harness.Eventually(t, path+" is written", func() bool {
		b, err := os.ReadFile(path)
		line = strings.TrimSpace(string(b))
		return err == nil && line != ""
	})
	return line
}

// crew is processes on one credential in front of a provider.
type crew struct {
	front
	dir    string
	fleet  string // the fleet's address; "" for one process alone
	bursts bool   // programs and daemons that have no ceiling and are asked in bursts
	all    []*harness.Process
	asking sync.WaitGroup
}

// newCrew makes a crew whose fleet is on a daemon's socket, in a Valkey, or nowhere.
func newCrew(t *testing.T, f front, by string) *crew {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleet") //nolint:usetesting // A socket's name must be short.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &crew{front: f, dir: dir}
	t.Cleanup(c.asking.Wait)
	switch by {
	case "socket":
		harness.Write(t, filepath.Join(dir, "headway.yaml"), "listen: 127.0.0.1:0\nproviders: {acme: {api: http, upstream: \"http://127.0.0.1:9\", pass_through: true}}\n")
		prompt(t, dir, nil, harness.Program(), "serve", "--ready-file", filepath.Join(dir, "url"))
		awaitFile(t, filepath.Join(dir, "url"))
		c.fleet = "unix://" + filepath.Join(dir, ".headway", fleet.Socket)
	case "valkey":
		c.fleet = "valkey://" + valkeyserver.New(t).Address
	}
	return c
}

// join starts one more process: a collection, a program of its own, or a daemon that
// proxies for four clients, in turn.
func (c *crew) join(t *testing.T) {
	t.Helper()
	i := len(c.all)
	name, at := fmt.Sprintf("m%d", i), "http://"+c.host
	path, query := c.list(i)
	documents, first := c.documents(i, "%d")
	kind, pacing, env := i%3, fmt.Sprintf("{start: conservative, ceiling: %s, initial: %s}", fleetCeiling, fleetInitial), ""
	if c.bursts {
		kind, pacing, env = 1+i%2, "{start: passive}", "yes"
	}
	switch kind {
	case 0:
		detail, _ := c.documents(i, "{key}")
		harness.Write(t, filepath.Join(c.dir, name+".yaml"), fmt.Sprintf(`connection: %[1]s
provider: {base_url: %[2]q, auth: {bearer: "${CHAT_TOKEN}"}, ceiling: %[3]s, pacing: {initial: %[4]s}}
streams:
  - name: things
    list: {path: %[5]s, query: {m: %[1]s%[6]s}}
    records: .items
    key: .id
    paginate: {cursor: .next_cursor, param: cursor}
    detail: {stream: details, path: %[7]q, records: ., key: .id}
run: {concurrency: 4}
sink: {jsonl: {dir: ./%[1]s}}
`, name, at, fleetCeiling, fleetInitial, path, query, detail))
		args := []string{"collect", name + ".yaml", "--quiet"}
		if c.fleet != "" { // a daemon on a socket in this folder is found without
			args = append(args, "--fleet", c.fleet)
		}
		c.all = append(c.all, harness.Launch(t, c.dir, []string{"CHAT_TOKEN=" + harness.Token}, args...))
	case 1:
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c.all = append(c.all, harness.LaunchAs(t, nil, c.dir, []string{
			asMember + "=" + name, "DOCUMENTS=" + at + documents, "FIRST=" + strconv.Itoa(first), "FLEET=" + c.fleet, "BURSTS=" + env,
		}, exe))
	case 2:
		dir := filepath.Join(c.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		harness.Write(t, filepath.Join(dir, "headway.yaml"), fmt.Sprintf(`listen: 127.0.0.1:0
fleet: %s
providers:
  acme: {api: http, upstream: %q, key: "${CHAT_TOKEN}", pacing: %s}
`, c.fleet, at, pacing))
		p := harness.Launch(t, dir, []string{"CHAT_TOKEN=" + harness.Token}, "serve", "--ready-file", filepath.Join(dir, "url"))
		c.all = append(c.all, p)
		served := awaitFile(t, filepath.Join(dir, "url")) + "/acme"
		for n := range 4 {
			c.asking.Go(func() { ask(t.Context(), http.DefaultClient, served+documents, first+n, 4, c.bursts) })
		}
	}
}

// stretch is what the provider saw in a stretch of time.
type stretch struct{ rate, per1000, jain float64 }

// between measures a stretch: the shares are those of so many members.
func between(log []request, from, to time.Time, members map[string]bool) (s stretch) {
	shares := map[string]float64{}
	admitted, refused := 0.0, 0.0
	for _, r := range log {
		at := time.UnixMilli(int64(r.At * 1000))
		if at.Before(from) || !at.Before(to) {
			continue
		}
		if !r.admitted() {
			refused++
			continue
		}
		admitted++
		if name := sender(r); members[name] {
			shares[name]++
		}
	}
	sum, squares := 0.0, 0.0
	for _, n := range shares {
		sum += n
		squares += n * n
	}
	return stretch{admitted / to.Sub(from).Seconds(), 1000 * refused / max(1, admitted+refused), sum * sum / (float64(len(members)) * max(1, squares))}
}

// sender is the member that asked for a document, "" for a list.
func sender(r request) string {
	rest, _ := strings.CutPrefix(r.URI, "/m/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// live are the names of members.
func live(from, to int, but ...string) map[string]bool {
	all := map[string]bool{}
	for i := from; i < to; i++ {
		all[fmt.Sprintf("m%d", i)] = true
	}
	for _, name := range but {
		delete(all, name)
	}
	return all
}

// pause lets a real nginx and real processes work for a while.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// TestFleetAgainstOne has collections, programs of their own and daemons share one credential
// at a real nginx and at "headway provider serve", by a daemon's socket and by a Valkey.
// Usually four do so for some seconds; in a long run two, four and sixteen, against one alone,
// and one is killed and another joins; and sixteen with permits ahead of need.
func TestFleetAgainstOne(t *testing.T) {
	for name, start := range map[string]func(*testing.T, limit, int) front{
		"nginx":    func(t *testing.T, l limit, _ int) front { return nginxUnder(t, l) },
		"provider": providerUnder,
	} {
		t.Run(name, func(t *testing.T) {
			if longtest.Long() {
				compare(t, start)
				return
			}
			t.Parallel()
			by := map[string]string{"nginx": "socket", "provider": "valkey"}[name]
			c := newCrew(t, start(t, limit{"50r/s", 50, 20, true, http.StatusTooManyRequests}, 4), by)
			for range 4 {
				c.join(t)
			}
			began := time.Now()
			var log []request
			harness.Eventually(t, "all are under way", func() bool {
				log = c.log()
				seen := map[string]bool{}
				for _, r := range log {
					if name := sender(r); name != "" && r.admitted() {
						seen[name] = true
					}
				}
				return len(seen) == 4 && len(log) > 60
			})
			end := time.Now()
			s := between(log, began, end, live(0, 4))
			t.Logf("4 processes: %.1f a second, %.1f refused of 1,000, fairness %.3f", s.rate, s.per1000, s.jain)
			if span := end.Sub(began).Seconds(); s.rate*span > 50*span+20+1 {
				t.Errorf("%.1f a second for %.1f s, 50 and a burst of 20 are allowed", s.rate, span)
			}
		})
	}
	if longtest.Long() {
		t.Run("ahead", ahead)
	}
}

// overshoot is how many attempts more than are allowed reached the provider in the worst window of a
// length, as a part of those.
func overshoot(log []request, window time.Duration, allowed float64) float64 {
	slices.SortFunc(log, func(a, b request) int { return cmp.Compare(a.At, b.At) })
	from, most := 0, 0
	for i, r := range log {
		for log[from].At <= r.At-window.Seconds() {
			from++
		}
		most = max(most, i-from+1)
	}
	return max(0, float64(most)/allowed-1)
}

// ahead has sixteen programs and daemons that have no ceiling, and are asked in bursts, share a
// limit that the provider advertises. They hold permits ahead of need, and exceed the limit by at
// most 1 % in any of its windows.
func ahead(t *testing.T) {
	const count, window = 4000, 10 * time.Second
	f := providerOf(t, fmt.Sprintf("limits: [{kind: sliding_window, limit: %d, window: %v}]\n  throttle: {retry_after: seconds, headers: ietf}", count, window), 16)
	for _, by := range []string{"socket", "valkey"} {
		t.Run(by, func(t *testing.T) {
			c := newCrew(t, f, by)
			c.bursts = true
			began := time.Now()
			for range 16 {
				c.join(t)
			}
			pause(t, time.Minute)
			s, over := between(f.log(), began, time.Now(), live(0, 16)), overshoot(f.log(), window, count)
			t.Logf("16 processes by %s: %.1f a second of 400, %.2f refused of 1,000, an overshoot of %.2f %%", by, s.rate, s.per1000, 100*over)
			if s.rate == 0 || over > 0.01 {
				t.Errorf("an overshoot of %.2f %%", 100*over)
			}
		})
	}
}

// compare measures fleets of several sizes against one process alone.
func compare(t *testing.T, start func(*testing.T, limit, int) front) {
	const warm, half = 45 * time.Second, 45 * time.Second
	l := limit{"100r/s", 100, 20, true, http.StatusTooManyRequests}
	measure := func(t *testing.T, by string, members int) (before, after stretch) {
		c := newCrew(t, start(t, l, members+1), by)
		for range members {
			c.join(t)
		}
		pause(t, warm)
		began := time.Now()
		pause(t, half)
		killed := time.Now()
		from := killed.Add(fleet.Lease)
		if members > 1 {
			c.all[0].Signal(t, os.Kill)
			<-c.all[0].Ended()
			c.join(t)
		}
		pause(t, half)
		end := time.Now()
		for i, p := range c.all {
			select {
			case <-p.Ended():
				if i > 0 || members == 1 { // the first was killed
					t.Errorf("process %d of %d ended: %s", i, members, p.Wait(t))
				}
			default:
			}
		}
		log := c.log()
		before = between(log, began, killed, live(0, members))
		names := live(0, members)
		if members > 1 {
			names = live(0, members+1, "m0")
		}
		after = between(log, from, end, names)
		over := overshoot(log, time.Minute, 60*l.allowed+float64(l.burst)+1)
		t.Logf("%2d processes by %s: %.2f a second of 100, %.2f refused of 1,000, fairness %.4f; after one was killed and one joined %.2f, %.2f, %.4f; an overshoot of %.2f %% in a minute",
			members, by, before.rate, before.per1000, before.jain, after.rate, after.per1000, after.jain, 100*over)
		if over > 0.01 {
			t.Errorf("an overshoot of %.2f %%", 100*over)
		}
		return before, after
	}
	var one stretch
	t.Run("1", func(t *testing.T) { one, _ = measure(t, "nothing", 1) })
	for _, by := range []string{"socket", "valkey"} {
		for _, members := range []int{2, 4, 16} {
			t.Run(fmt.Sprintf("%s-%d", by, members), func(t *testing.T) {
				before, after := measure(t, by, members)
				for when, s := range map[string]stretch{"before": before, "after": after} {
					if s.rate < 0.95*one.rate {
						t.Errorf("%s: %.3f of one's goodput", when, s.rate/one.rate)
					}
					if s.per1000 > one.per1000+0.5 {
						t.Errorf("%s: %.2f refused of 1,000, and %.2f of one", when, s.per1000, one.per1000)
					}
					if s.jain < 0.98 {
						t.Errorf("%s: a fairness of %.3f", when, s.jain)
					}
				}
			})
		}
	}
}
