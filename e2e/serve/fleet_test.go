//go:build unix

package serve_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/valkeyserver"
)

// crew is a folder with several connections to one provider by one credential.
type crew struct {
	dir, url string
	env      []string
}

// owner is what all connections of a crew have as their pacing.
const owner = "ceiling: 50ms, pacing: {initial: 50ms}"

// newCrew starts a provider with limits, in the words of a scenario.
func newCrew(t *testing.T, limits, pacing string, members int) *crew {
	t.Helper()
	dir := t.TempDir()
	harness.Write(t, filepath.Join(dir, "limits.yaml"), "name: limits\nprovider:\n  latency: {p50: 5ms, p99: 20ms}\n  limits:\n    - "+limits+"\n")
	ready := filepath.Join(dir, "provider.url")
	p := harness.Launch(t, dir, nil, "provider", "serve", "limits.yaml", "--conversations", "50000", "--listen", "127.0.0.1:0",
		"--ready-file", ready, "--log", "provider.log")
	c := &crew{dir: dir, url: announced(t, p, ready)}
	c.env = []string{"CHAT_URL=" + c.url, "CHAT_TOKEN=" + harness.Token}
	for i := range members {
		harness.Write(t, filepath.Join(dir, fmt.Sprintf("m%d.yaml", i)), fmt.Sprintf(`
connection: m%d
provider: {base_url: "${CHAT_URL}", auth: {bearer: "${CHAT_TOKEN}"}, %s}
streams:
  - name: conversations
    list: {path: /conversations, query: {limit: "100"}}
    records: .items
    key: .id
    paginate: {cursor: .next_cursor, param: cursor}
    detail: {stream: messages, path: "/conversations/{key}", records: .messages, key: .id}
sink: {jsonl: {dir: ./out%d}}
`, i, pacing, i))
	}
	return c
}

// serve starts the daemon in the folder that the members have their state in.
func (c *crew) serve(t *testing.T) *harness.Process {
	t.Helper()
	harness.Write(t, filepath.Join(c.dir, "headway.yaml"), "listen: 127.0.0.1:0\nstate: .headway\nproviders: {acme: {api: http, upstream: \"http://127.0.0.1:9\", pass_through: true}}\n")
	p, _ := serve(t, c.dir)
	return p
}

// collect starts a member.
func (c *crew) collect(t *testing.T, i int, args ...string) *harness.Process {
	t.Helper()
	return harness.Launch(t, c.dir, c.env, append([]string{"collect", fmt.Sprintf("m%d.yaml", i)}, args...)...)
}

// decision is a line of the provider's log.
type decision struct {
	At       time.Time
	Admitted bool
}

// decisions are those of the provider so far, in order.
func (c *crew) decisions(t *testing.T) (all []decision) {
	t.Helper()
	f, err := os.Open(filepath.Join(c.dir, "provider.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var d decision
		if json.Unmarshal(lines.Bytes(), &d) == nil { // the last one may be unfinished
			all = append(all, d)
		}
	}
	return all
}

// count counts admissions and refusals in a stretch of time.
func count(all []decision, from, to time.Time) (admitted, refused int) {
	for _, d := range all {
		switch {
		case d.At.Before(from) || !d.At.Before(to):
		case d.Admitted:
			admitted++
		default:
			refused++
		}
	}
	return admitted, refused
}

// TestMembersShareOnePace has several collections find the daemon in their state's
// folder. Alone each would go at 20 a second, and be refused beyond 30 together. The burst is
// for what a busy machine delays and then sends at once.
func TestMembersShareOnePace(t *testing.T) {
	for _, members := range []int{2, 4} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			c := newCrew(t, "{kind: token_bucket, rate: 30/s, burst: 30}", owner, members)
			c.serve(t)
			takes := 8 * time.Second
			if members == 4 {
				takes = 12 * time.Second
			}
			var all []*harness.Process
			for i := range members {
				all = append(all, c.collect(t, i, "--json", "--max-wall-clock", takes.String()))
			}
			harness.Eventually(t, "all are under way", func() bool { return len(c.decisions(t)) > 40 })
			from := time.Now()
			var killed time.Time
			if members == 4 {
				harness.Eventually(t, "they have all they need", func() bool { return len(c.decisions(t)) > 60 })
				killed = time.Now()
				all[3].Signal(t, syscall.SIGKILL)
				all[3].Wait(t)
				all = all[:3]
			}
			var sum, squares float64
			for i, p := range all {
				o := p.Wait(t)
				s := harness.Summary(t, o)
				if o.Code != harness.ExitDeferred || s.Throttled > 0 {
					t.Errorf("member %d: %d refused: %s", i, s.Throttled, o)
				}
				sum += float64(s.Attempts)
				squares += float64(s.Attempts) * float64(s.Attempts)
			}
			if jain := sum * sum / (float64(len(all)) * squares); jain < 0.98 {
				t.Errorf("a fairness of %.3f", jain)
			}
			log := c.decisions(t)
			to := log[len(log)-1].At.Add(-time.Second / 2)
			if !killed.IsZero() {
				from = killed.Add(2 * time.Second) // within a lease
			}
			admitted, _ := count(log, from, to)
			if _, refused := count(log, time.Time{}, time.Now()); refused > 0 {
				t.Errorf("%d attempts were refused", refused)
			}
			rate := float64(admitted) / to.Sub(from).Seconds()
			t.Logf("%d members: %.2f a second of 20 for %v", members, rate, to.Sub(from).Round(time.Millisecond))
			if float64(admitted) > 20*to.Sub(from).Seconds()+20 { // what was a second late may count here
				t.Errorf("%.2f a second together, and the owner allows 20", rate)
			}
			if rate < 10 { // a busy machine is late; what it can do says e2e/limits
				t.Errorf("%.2f a second together, 20 are allowed", rate)
			}
		})
	}
}

// TestFleetOutlivesItsServer kills the daemon under two collections, which go on at half
// the pace each, and starts it again.
func TestFleetOutlivesItsServer(t *testing.T) {
	t.Parallel()
	c := newCrew(t, "{kind: token_bucket, rate: 25/s, burst: 8}", owner, 2)
	o := c.collect(t, 0, "--fleet", "unix://"+filepath.Join(c.dir, ".headway", "headway.sock")).Wait(t)
	if o.Code != harness.ExitRefused || !strings.Contains(o.Stderr, "no server of a fleet is there") {
		t.Errorf("a fleet without a server: %s", o)
	}
	p := c.serve(t)
	first, second := c.collect(t, 0), c.collect(t, 1, "--fleet", "unix://"+filepath.Join(c.dir, ".headway", "headway.sock"))
	more := func(n int) {
		t.Helper()
		before := len(c.decisions(t))
		harness.Eventually(t, "attempts go on", func() bool { return len(c.decisions(t)) >= before+n })
	}
	more(40)
	p.Signal(t, syscall.SIGKILL)
	p.Wait(t)
	for _, m := range []*harness.Process{first, second} {
		m.Await(t, &m.Stderr, "the fleet's server is away: going on at 1 of 2 shares")
	}
	more(40)
	c.serve(t)
	for _, m := range []*harness.Process{first, second} {
		m.Await(t, &m.Stderr, "the fleet's server is back: sharing the pace of 2 processes")
	}
	more(40)
	for _, m := range []*harness.Process{first, second} {
		m.Signal(t, syscall.SIGTERM)
		if o := m.Wait(t); o.Code != harness.ExitDeferred || strings.Contains(o.Stderr+o.Stdout, harness.Token) {
			t.Errorf("stop: %s", o)
		}
	}
	if _, refused := count(c.decisions(t), time.Time{}, time.Now()); refused > 0 {
		t.Errorf("%d attempts were refused", refused)
	}
}

// TestFleetInValkey has collections meet in a Valkey, kills two of them,
// one of which may have the pace for all, and then the Valkey.
func TestFleetInValkey(t *testing.T) {
	t.Parallel()
	v := valkeyserver.New(t, "--requirepass", "canary")
	c := newCrew(t, "{kind: token_bucket, rate: 25/s, burst: 8}", owner, 4)
	address := "valkey://default:canary@" + v.Address
	o := c.collect(t, 0, "--fleet", "valkey://default:another@"+v.Address).Wait(t)
	if o.Code != harness.ExitRefused || !strings.Contains(o.Stderr, v.Address) || strings.Contains(o.Stderr, "another") {
		t.Errorf("a wrong password: %s", o)
	}
	var all []*harness.Process
	for i := range 4 {
		all = append(all, c.collect(t, i, "--fleet", address))
	}
	more := func(n int) {
		t.Helper()
		before := len(c.decisions(t))
		harness.Eventually(t, "attempts go on", func() bool { return len(c.decisions(t)) >= before+n })
	}
	more(80)
	for _, m := range all[:2] { // the first has the pace, as like as not
		m.Signal(t, syscall.SIGKILL)
		m.Wait(t)
		more(60)
	}
	all = all[2:]
	v.Stop()
	for _, m := range all {
		m.Await(t, &m.Stderr, "the fleet's server is away: going on at 1 of")
	}
	more(40)
	v.Start()
	for _, m := range all {
		m.Await(t, &m.Stderr, "the fleet's server is back: sharing the pace of 2 processes")
	}
	more(40)
	for _, m := range all {
		m.Signal(t, syscall.SIGTERM)
		if o := m.Wait(t); o.Code != harness.ExitDeferred || strings.Contains(o.Stderr+o.Stdout, harness.Token) || strings.Contains(o.Stderr+o.Stdout, "canary") {
			t.Errorf("stop: %s", o)
		}
	}
	if _, refused := count(c.decisions(t), time.Time{}, time.Now()); refused > 0 {
		t.Errorf("%d attempts were refused", refused)
	}
}
