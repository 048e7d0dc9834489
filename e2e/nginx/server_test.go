package nginx_test

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
)

// limit is one setting of nginx's limit_req.
type limit struct {
	rate    string  // as nginx writes it: 40r/s, 600r/m
	allowed float64 // the same in requests a second
	burst   int
	nodelay bool
	status  int
}

// String is the limit as an nginx administrator would say it.
func (l limit) String() string {
	s := "rate=" + l.rate
	if l.burst > 0 {
		s += fmt.Sprintf(" burst=%d", l.burst)
	}
	if l.nodelay {
		s += " nodelay"
	}
	return fmt.Sprintf("%s status=%d", s, l.status)
}

// directive is the limit in nginx's own words.
func (l limit) directive() string {
	d := "limit_req zone=api"
	if l.burst > 0 {
		d += fmt.Sprintf(" burst=%d", l.burst)
	}
	if l.nodelay {
		d += " nodelay"
	}
	return d + ";"
}

// configuration is one nginx of its own: nothing in it is shared with a service
// that may run on the machine. One process, so that its id is all there is to stop.
const configuration = `daemon off;
master_process off;
pid {prefix}/nginx.pid;
error_log {prefix}/error.log warn;
events { worker_connections 64; }
http {
	limit_req_zone $server_name zone=api:1m rate={rate};
	limit_req_status {status};
	limit_req_log_level notice;
	log_format served escape=json '{"at":$msec,"status":$status,"uri":"$request_uri","limit":"$limit_req_status"}';
	access_log {prefix}/access.log served;
	client_body_temp_path {prefix}/temp;
	proxy_temp_path {prefix}/temp;
	fastcgi_temp_path {prefix}/temp;
	uwsgi_temp_path {prefix}/temp;
	scgi_temp_path {prefix}/temp;
	default_type application/json;
	keepalive_requests 100000;
	server {
		listen {address};
		server_name packages.test;
		root {prefix}/www;
		{limit_req}
		location = /packages { try_files /list/$arg_cursor.json =404; }
		location /packages/ { try_files $uri.json =404; }
		location / { return 404; }
	}
}
`

// server is one nginx, with a configuration and files of its own.
type server struct {
	program, prefix, address string
	stop                     func() // ends it and waits for that; harmless when it is not running
}

// newServer prepares an nginx under the limit that serves the packages.
func newServer(t *testing.T, program string, l limit, packages []detail) *server {
	t.Helper()
	s := &server{program: program, prefix: t.TempDir(), address: harness.FreeAddress(t), stop: func() {}}
	publish(t, filepath.Join(s.prefix, "www"), packages)
	text := strings.NewReplacer(
		"{prefix}", s.prefix, "{address}", s.address, "{rate}", l.rate,
		"{status}", fmt.Sprint(l.status), "{limit_req}", l.directive(),
	).Replace(configuration)
	harness.Write(t, filepath.Join(s.prefix, "nginx.conf"), text)
	t.Cleanup(func() { s.stop() })
	return s
}

// start starts nginx and waits until it listens.
func (s *server) start(t *testing.T) {
	t.Helper()
	p := prompt(t, s.prefix, nil, s.program, "-p", s.prefix, "-c", filepath.Join(s.prefix, "nginx.conf"), "-e", filepath.Join(s.prefix, "error.log"))
	s.stop = func() {
		p.Signal(t, syscall.SIGTERM)
		select {
		case <-p.Ended():
		case <-time.After(time.Minute):
			p.Signal(t, os.Kill)
			<-p.Ended()
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = conn.Close() // a connection without a request is neither limited nor logged
			return
		}
		select {
		case <-p.Ended():
			t.Fatalf("nginx ended instead of listening on %s: %s\n%s", s.address, p.Wait(t), s.errors())
		case <-tick.C:
		}
	}
	t.Fatalf("nginx does not listen on %s after a minute\n%s", s.address, s.errors())
}

// prompt starts a program that is scheduled before others where that is allowed
// (as root); elsewhere it runs all the same. A limit of 20 a second without a
// burst is a matter of single milliseconds, and other tests may run meanwhile.
func prompt(t *testing.T, dir string, env []string, args ...string) *harness.Process {
	t.Helper()
	return harness.LaunchAs(t, nil, dir, env, slices.Concat([]string{"nice", "-n", "-20"}, args)...)
}

// errors is nginx's error log, for people.
func (s *server) errors() []byte {
	b, err := os.ReadFile(filepath.Join(s.prefix, "error.log"))
	if err != nil {
		return fmt.Appendf(nil, "(it has left no error log: %v)", err)
	}
	return b
}

// request is one request as nginx logged it, when it was answered.
type request struct {
	At     float64 `json:"at"` // seconds since the epoch, to the millisecond
	Status int     `json:"status"`
	URI    string  `json:"uri"`
	Limit  string  `json:"limit"` // PASSED, DELAYED or REJECTED
}

// admitted reports whether the limit let it through.
func (r request) admitted() bool { return r.Status == http.StatusOK }

// pkg is the package whose detail was asked for; ok is false for the list.
func (r request) pkg(t *testing.T) (name string, ok bool) {
	t.Helper()
	u, err := url.ParseRequestURI(r.URI)
	if err != nil {
		t.Fatal(err)
	}
	return strings.CutPrefix(u.Path, "/packages/")
}

// requests stops nginx, which completes its log, and reads the log of all its
// runs.
func (s *server) requests(t *testing.T) []request {
	t.Helper()
	s.stop()
	return records[request](t, filepath.Join(s.prefix, "access.log"))
}

// requireNginx gives the path of nginx, installed first where it is missing.
func requireNginx(t *testing.T) string {
	t.Helper()
	path, err := findNginx()
	if err != nil {
		t.Fatalf("this test needs nginx (Debian: apt-get install nginx-light): %v", err)
	}
	return path
}

// findNginx looks once for all tests.
var findNginx = sync.OnceValues(func() (string, error) {
	if path, err := lookNginx(); err == nil {
		return path, nil
	}
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "nginx-light"}} {
		cmd := exec.Command("apt-get", args...)
		// In runlevel 1 init scripts leave the service that comes with the package
		// alone: the test wants the program, not a server on port 80.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("it is not installed, and \"apt-get %s\" failed: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return lookNginx()
})

// lookNginx finds nginx also where the path of an ordinary user does not lead.
func lookNginx() (string, error) {
	path, err := exec.LookPath("nginx")
	if err == nil {
		return path, nil
	}
	const sbin = "/usr/sbin/nginx"
	if _, statErr := os.Stat(sbin); statErr == nil {
		return sbin, nil
	}
	return "", err
}
