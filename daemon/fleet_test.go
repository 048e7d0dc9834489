package daemon_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/client"
)

// A daemon shares its pace through a socket that only its owner can use. It replaces a
// socket that a killed daemon left, and removes its own at the stop.
func TestSocketOfTheFleet(t *testing.T) {
	dir, err := os.MkdirTemp("", "fleet") //nolint:usetesting // A socket's name must be short.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, fleet.Socket)
	killed, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Open(t.Context(), "unix://"+path); !errors.Is(err, fleet.ErrAway) {
		t.Errorf("what a killed daemon left: %v", err)
	}
	c, err := config.Read("headway.yaml", []byte("listen: 127.0.0.1:0\nstate: "+dir+"\nquota: {global: {max_daily_calls: 1}}\n"), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(c, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", i, err)
	}
	f, err := fleet.Open(t.Context(), "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	g, err := headway.New(headway.Config{Name: "crawler", Fleet: f.Member("api.example.com", "key"), NoBreaker: true})
	if err != nil {
		t.Fatal(err)
	}
	p, err := g.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Settle(headway.Outcome{Class: headway.OK})
	all, err := f.Show(t.Context())
	if err != nil || len(all) != 1 || len(all[0].Members) != 1 || all[0].Members[0].Name != "crawler" || all[0].Members[0].Share != 1 || all[0].Members[0].Away {
		t.Errorf("the socket shows %+v, %v", all, err)
	}
	by, err := client.New(client.Options{Server: "http://" + d.Address().String()})
	if err != nil {
		t.Fatal(err)
	}
	if all, err = by.Fleet(t.Context()); err != nil || len(all) != 1 || len(all[0].Members) != 1 {
		t.Errorf("the API shows %+v, %v", all, err)
	}
	resp, err := http.Get("http://" + d.Address().String() + "/metrics") //nolint:noctx // It is on loopback.
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if !strings.Contains(string(text), `headway_fleet_members{away="false"} 1`) || errors.Join(err, resp.Body.Close()) != nil {
		t.Errorf("no member in the metrics: %v", err)
	}
	g.Close()
	for len(all) > 0 { // a socket stays for the next server while there are members
		if all, err = f.Show(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// Two daemons share the pace of a provider: one through its own socket, by default, the
// other through the address in its configuration. When the first has stopped, the second
// continues and reports it; a provider with fleet: wait then sends nothing.
func TestProxiedCallsShareAPace(t *testing.T) {
	dir, err := os.MkdirTemp("", "fleet") //nolint:usetesting // A socket's name must be short.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	sent := make(chan string, 100)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent <- r.Header.Get("Authorization")
		answers(w, r)
	}))
	t.Cleanup(up.Close)
	one, two := place(t), place(t)
	one.dir = dir
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	socket := "unix://" + filepath.Join(dir, "state", fleet.Socket)
	const pace = "    pacing: {ceiling: 1ms}\n"
	one.start(openai(up.URL, pace))
	c, err := two.read("fleet: unix:///nowhere/" + fleet.Socket + "\n" + openai(up.URL, pace+"    max_wait: 20ms\n"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(c, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatalf("without a server of the fleet: %v", err)
	}
	early, err := http.Post("http://"+d.Address().String()+"/openai/v1/chat/completions", "application/json", strings.NewReader(question)) //nolint:noctx // It is on loopback.
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(early.Body.Close(), d.Stop(t.Context())); err != nil || early.StatusCode != http.StatusTooManyRequests || len(sent) > 0 {
		t.Errorf("without a server of the fleet: %d, %d sent, %v", early.StatusCode, len(sent), err)
	}
	waits := strings.NewReplacer("openai:\n", "waits:\n", "providers:\n", "").Replace(openai(up.URL, pace))
	two.start("fleet: " + socket + "\n" + openai(up.URL, pace) + waits + "    fleet: wait\n    max_wait: 20ms\n")
	for range 3 { // they wait for the server, which listens at first
		for _, s := range []*site{one, two} {
			if status, header, body := s.call(""); status != http.StatusOK || header.Get("X-Headway-Fleet") != "" {
				t.Fatalf("%d %v %s", status, header, body)
			}
		}
	}
	shows := func(s *site, path, want string) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			_, _, body := s.do(http.MethodGet, path, "", "")
			if strings.Contains(body, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s has no %s:\n%s", path, want, body)
			}
		}
	}
	for _, s := range []*site{one, two} {
		shows(s, "/metrics", `headway_connection_fleet_members{connection="openai"} 3`)
		shows(s, "/v1/rate", `"fleet":{"members":3,"away":false}`)
	}
	shows(two, "/", "the pace is shared with all members at "+socket)
	deadline := time.Now().Add(5 * time.Minute)
	for _, _, body := two.do(http.MethodGet, "/v1/rate", "", ""); strings.Contains(body, `"new":true`); { // these have no share yet
		if time.Now().After(deadline) {
			t.Fatalf("a member still has no share:\n%s", body)
		}
		time.Sleep(20 * time.Millisecond)
		_, _, body = two.do(http.MethodGet, "/v1/rate", "", "")
	}
	one.stop()
	shows(two, "/metrics", `headway_connection_fleet_away{connection="openai"} 1`)
	shows(two, "/v1/rate", `,"away":true}`)
	shows(two, "/console/", "fleet away")
	status, header, body := two.call("")
	if status != http.StatusOK || header.Get("X-Headway-Fleet") != "away" {
		t.Errorf("while the server is away: %d %v %s", status, header, body)
	}
	for len(sent) > 0 {
		<-sent
	}
	status, header, _ = two.do(http.MethodPost, "/waits/v1/chat/completions", "", question)
	if status != http.StatusTooManyRequests || header.Get("X-Headway-Fleet") != "away" || len(sent) > 0 {
		t.Errorf("one that is to wait: %d %v, %d sent", status, header, len(sent))
	}
	resp, err := two.client.Get(two.base + "/v1/events?since=0&type=" + string(event.Fleet)) //nolint:noctx // It is on loopback.
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"note":"away"`) {
	}
	if err := errors.Join(lines.Err(), resp.Body.Close()); err != nil || lines.Text() == "" {
		t.Errorf("no event of it: %v", err)
	}
	if logged := two.log.String(); !strings.Contains(logged, "note=away") {
		t.Errorf("the log does not say so: %s", logged)
	}
}

// The daemon's forward proxy holds what a provider refuses, shows what it has learned of it,
// shares the pace with other processes, and starts the next time with what it knows.
func TestForwardProxy(t *testing.T) {
	s := place(t)
	dir, err := os.MkdirTemp("", "fleet") //nolint:usetesting // A socket's name must be short.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.dir = dir
	var calls atomic.Int64
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "100")
		w.Header().Set("X-RateLimit-Remaining", "50")
		w.Header().Set("X-RateLimit-Reset", "60")
		if calls.Add(1) == 2 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	host := strings.TrimPrefix(up, "http://")
	env := filepath.Join(dir, "proxy.env")
	file := "forward: {listen: 127.0.0.1:0, hosts: [127.0.0.1], env_file: " + env + ", authority: " + filepath.Join(dir, "user") + "}\n"
	through := func() (get func() bool) {
		s.start(file)
		text, err := os.ReadFile(env)
		at := regexp.MustCompile(`HTTP_PROXY='([^']*)'`).FindSubmatch(text)
		if i, _ := os.Stat(env); err != nil || at == nil || i.Mode().Perm() != 0o600 {
			t.Fatalf("%v %s", err, text)
		}
		proxy, err := url.Parse(string(at[1]))
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
		t.Cleanup(client.CloseIdleConnections)
		return func() bool {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, up, http.NoBody)
			r.Header.Set("Authorization", "Bearer sk-canary")
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			return res.Body.Close() == nil && res.StatusCode == http.StatusOK
		}
	}
	get := through()
	if first, second := get(), get(); !first || !second || calls.Load() != 3 {
		t.Fatalf("%d calls of the provider", calls.Load())
	}
	if _, _, rates := s.do(http.MethodGet, "/v1/rate", "", ""); !strings.Contains(rates, `"connection":"forward/127.0.0.1","source":"forward"`) || !strings.Contains(rates, `"provenance":"advertised"`) {
		t.Errorf("the rates: %s", rates)
	}
	if _, _, page := s.do(http.MethodGet, "/", "", ""); !strings.Contains(page, "for 127.0.0.1; a program gets it by: . "+env) {
		t.Errorf("the page: %s", page)
	}
	f, err := fleet.Open(t.Context(), "unix://"+filepath.Join(dir, "state", fleet.Socket))
	if err != nil {
		t.Fatal(err)
	}
	g, err := headway.New(headway.Config{Name: "run", Fleet: f.Member(host, "sk-canary"), NoBreaker: true})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "another process shares the pace", func() bool {
		all, err := f.Show(t.Context())
		return err == nil && len(all) == 1 && len(all[0].Members) == 2
	})
	g.Close()
	c, err := s.read(strings.Replace(file, "[127.0.0.1]", "[a.test]", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.daemon.Reload(c); err == nil || !strings.Contains(err.Error(), "daemon: forward is ") || !strings.Contains(err.Error(), "restart it") {
		t.Errorf("other hosts while it runs: %v", err)
	}
	resp, err := s.client.Get(s.base + "/v1/events?since=oldest&type=collection_rate") //nolint:noctx // It is on loopback.
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"connection":"forward/127.0.0.1"`) {
	}
	if err := errors.Join(lines.Err(), resp.Body.Close()); err != nil || lines.Text() == "" {
		t.Errorf("no event of the refusal: %v", err)
	}
	s.stop()
	if _, err := os.Stat(env); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the variables are left: %v", err)
	}
	if !strings.Contains(s.log.String(), "the forward proxy has ended") || !strings.Contains(s.log.String(), "requests=2 ") {
		t.Errorf("the log does not sum up: %s", s.log.String())
	}
	file = strings.Replace(file, "hosts: [127.0.0.1]", "all: true", 1)
	get = through()
	get()
	if _, _, page := s.do(http.MethodGet, "/", "", ""); !strings.Contains(page, "for every host; ") || !strings.Contains(page, "forward.all decrypts every connection") {
		t.Errorf("the page of a proxy for every host: %s", page)
	}
	if _, _, rates := s.do(http.MethodGet, "/v1/rate", "", ""); !strings.Contains(rates, `"provenance":"learned"`) {
		t.Errorf("the rates of the second start: %s", rates)
	}
	taken, err := s.read(strings.Replace(file, "127.0.0.1:0", s.daemon.Address().String(), 1))
	if err != nil {
		t.Fatal(err)
	}
	taken.State = filepath.Join(dir, "other")
	d, err := daemon.New(taken, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); !errors.Is(err, daemon.ErrListen) || !strings.Contains(err.Error(), "daemon: forward: ") {
		t.Errorf("an address that is taken: %v", err)
	}
	s.stop()
	if strings.Contains(s.log.String()+s.files(), "sk-canary") {
		t.Error("a credential is logged or stored")
	}
}
