package limits_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/transport"
)

// asMember makes the test's binary a member of a fleet: an http.Client whose transport is
// wrapped, and that asks for one document after another until it is stopped.
const asMember = "FLEET_MEMBER"

// member is what that process does: name, provider and socket are in its environment.
func member(name, provider, socket string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	f, err := fleet.Open(ctx, "unix://"+socket)
	if err != nil {
		return err
	}
	governor, err := transport.NewGovernor(transport.Config{
		Name: name, Ceiling: fleetCeiling, Initial: fleetInitial, Fleet: f.Member(strings.TrimPrefix(provider, "http://"), harness.Token),
	})
	if err != nil {
		return err
	}
	defer governor.Close()
	t, err := transport.New(governor, transport.Options{})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: t}
	for n := 0; ctx.Err() == nil; n++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/m/%s/%d", provider, name, n), http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			continue // refused too often, which the provider's log says
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return nil
}

const (
	fleetCeiling = 2 * time.Millisecond
	fleetInitial = 100 * time.Millisecond
)

// crew is processes on one credential in front of an nginx.
type crew struct {
	*server
	dir string
	all []*harness.Process
}

// newCrew starts an nginx under a limit that serves anything, and where there is to be a
// fleet a daemon on a socket.
func newCrew(t *testing.T, l limit, shared bool) *crew {
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
	harness.Write(t, filepath.Join(s.prefix, "www", "one.json"), `{"items":[{"id":"one"}]}`)
	dir, err := os.MkdirTemp("", "fleet") //nolint:usetesting // A socket's name must be short.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.start(t)
	c := &crew{server: s, dir: dir}
	if shared {
		harness.Write(t, filepath.Join(dir, "headway.yaml"), "listen: 127.0.0.1:0\nproviders: {acme: {api: http, upstream: \"http://127.0.0.1:9\", pass_through: true}}\n")
		prompt(t, dir, nil, harness.Program(), "serve", "--ready-file", filepath.Join(dir, "url"))
		harness.Eventually(t, "the daemon serves", func() bool {
			_, err := os.Stat(filepath.Join(dir, "url"))
			return err == nil
		})
	}
	return c
}

// join starts one more process: every second is a program of its own.
func (c *crew) join(t *testing.T) {
	t.Helper()
	i := len(c.all)
	name, url := fmt.Sprintf("m%d", i), "http://"+c.address
	if i%2 == 1 {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c.all = append(c.all, harness.LaunchAs(t, nil, c.dir, []string{
			asMember + "=" + name, "PROVIDER=" + url, "SOCKET=" + filepath.Join(c.dir, ".headway", fleet.Socket),
		}, exe))
		return
	}
	harness.Write(t, filepath.Join(c.dir, name+".yaml"), fmt.Sprintf(`connection: %[1]s
provider: {base_url: %[2]q, auth: {bearer: "${CHAT_TOKEN}"}, ceiling: %[3]s, pacing: {initial: %[4]s}}
streams:
  - name: things
    list: {path: /list, query: {m: %[1]s}}
    records: .items
    key: .id
    detail: {stream: details, path: "/m/%[1]s/{key}", records: .items, key: .id}
run: {concurrency: 4}
sink: {jsonl: {dir: ./%[1]s}}
`, name, url, fleetCeiling, fleetInitial))
	c.all = append(c.all, harness.Launch(t, c.dir, []string{"CHAT_TOKEN=" + harness.Token}, "collect", name+".yaml", "--quiet"))
}

// stretch is what nginx saw in a stretch of time.
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

// TestFleetAgainstNginx has collections and programs of their own share one credential at a
// real nginx. Usually four do so for some seconds; in a long run two, four and sixteen,
// against one alone, and one is killed and another joins.
func TestFleetAgainstNginx(t *testing.T) {
	l := limit{"100r/s", 100, 20, true, http.StatusTooManyRequests}
	if !longtest.Long() {
		t.Parallel()
		c := newCrew(t, limit{"50r/s", 50, 20, true, http.StatusTooManyRequests}, true)
		for range 4 {
			c.join(t)
		}
		began := time.Now()
		harness.Eventually(t, "all are under way", func() bool {
			log := records[request](t, filepath.Join(c.prefix, "access.log"))
			seen := map[string]bool{}
			for _, r := range log {
				if name := sender(r); name != "" && r.admitted() {
					seen[name] = true
				}
			}
			return len(seen) == 4 && len(log) > 60
		})
		end := time.Now()
		s := between(c.requests(t), began, end, live(0, 4))
		t.Logf("4 processes: %.1f a second, %.1f refused of 1,000, fairness %.3f", s.rate, s.per1000, s.jain)
		if span := end.Sub(began).Seconds(); s.rate*span > 50*span+20+1 {
			t.Errorf("%.1f a second for %.1f s, 50 and a burst of 20 are allowed", s.rate, span)
		}
		return
	}
	const warm, half = 45 * time.Second, 45 * time.Second
	measure := func(t *testing.T, members int) (before, after stretch) {
		c := newCrew(t, l, members > 1)
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
		log := c.requests(t)
		before = between(log, began, killed, live(0, members))
		names := live(0, members)
		if members > 1 {
			names = live(0, members+1, "m0")
		}
		after = between(log, from, end, names)
		t.Logf("%2d processes: %.2f a second of 100, %.2f refused of 1,000, fairness %.4f; after one was killed and one joined %.2f, %.2f, %.4f",
			members, before.rate, before.per1000, before.jain, after.rate, after.per1000, after.jain)
		return before, after
	}
	one, _ := measure(t, 1)
	for _, members := range []int{2, 4, 16} {
		before, after := measure(t, members)
		for when, s := range map[string]stretch{"before": before, "after": after} {
			if s.rate < 0.95*one.rate {
				t.Errorf("%d processes, %s: %.3f of one's goodput", members, when, s.rate/one.rate)
			}
			if s.per1000 > one.per1000+0.5 {
				t.Errorf("%d processes, %s: %.2f refused of 1,000, and %.2f of one", members, when, s.per1000, one.per1000)
			}
			if s.jain < 0.98 {
				t.Errorf("%d processes, %s: a fairness of %.3f", members, when, s.jain)
			}
		}
	}
}
