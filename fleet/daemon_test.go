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
	"testing"

	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/fleettest"
	"github.com/headway-go/headway/internal/valkeyserver"
	"github.com/headway-go/headway/quota"
)

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
