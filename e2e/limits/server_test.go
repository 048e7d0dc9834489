//go:build unix

package limits_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/debian"
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

// files serves the packages under the limit.
const files = `root {prefix}/www;
		{limit_req}
		location = /packages { try_files /list/$arg_cursor.json =404; }
		location /packages/ { try_files $uri.json =404; }
		location / { return 404; }`

// configuration is one nginx of its own: nothing in it is shared with a service
// that may run on the machine. One process, so that its id is all there is to stop.
const configuration = `daemon off;
master_process off;
pid {prefix}/nginx.pid;
error_log {prefix}/error.log warn;
events { worker_connections 256; }
http {
	{zone}
	limit_req_status {status};
	limit_req_log_level notice;
	limit_conn_status {status};
	limit_conn_log_level notice;
	log_format served escape=json '{"at":$msec,"took":$request_time,"status":$status,"uri":"$request_uri","limit":"$limit_req_status"}';
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
		{serve}
	}
}
`

// server is one nginx or HAProxy, with a configuration and files of its own.
type server struct {
	program, prefix, address string
	args                     []string
	process                  *harness.Process // the newest
	stop                     func()           // ends it and waits for that; harmless when it is not running
}

// newServer prepares an nginx under the limit that serves the packages.
func newServer(t *testing.T, program string, l limit, packages []detail) *server {
	t.Helper()
	s := newNginx(t, program,
		"{serve}", files, "{zone}", "limit_req_zone $server_name zone=api:1m rate="+l.rate+";",
		"{status}", fmt.Sprint(l.status), "{limit_req}", l.directive())
	publish(t, filepath.Join(s.prefix, "www"), packages)
	return s
}

// newNginx prepares an nginx with what is to stand for each placeholder, in order.
func newNginx(t *testing.T, program string, placeholders ...string) *server {
	t.Helper()
	text := configuration
	for pair := range slices.Chunk(placeholders, 2) {
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	s := newFront(t, program, text)
	s.args = []string{"-p", s.prefix, "-c", s.config(), "-e", filepath.Join(s.prefix, "error.log")}
	return s
}

// newFront prepares a server with the text of its configuration, in which {prefix} and
// {address} are its own.
func newFront(t *testing.T, program, text string) *server {
	t.Helper()
	s := &server{program: program, prefix: t.TempDir(), address: harness.FreeAddress(t), stop: func() {}}
	harness.Write(t, s.config(), strings.NewReplacer("{prefix}", s.prefix, "{address}", s.address).Replace(text))
	t.Cleanup(func() { s.stop() })
	return s
}

// config is the path of its configuration.
func (s *server) config() string { return filepath.Join(s.prefix, "server.conf") }

// start starts the server and waits until it listens.
func (s *server) start(t *testing.T) {
	t.Helper()
	p := prompt(t, s.prefix, nil, append([]string{s.program}, s.args...)...)
	s.process = p
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
			t.Fatalf("%s ended instead of listening on %s: %s\n%s", s.program, s.address, p.Wait(t), s.errors())
		case <-tick.C:
		}
	}
	t.Fatalf("%s does not listen on %s after a minute\n%s", s.program, s.address, s.errors())
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

// request is one request as nginx or HAProxy logged it, when it was answered.
type request struct {
	At     float64 `json:"at"`   // seconds since the epoch, to the millisecond
	Took   float64 `json:"took"` // seconds since it had arrived
	Status int     `json:"status"`
	URI    string  `json:"uri"`
	Limit  string  `json:"limit"` // PASSED, DELAYED or REJECTED; of limit_req only
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

// requireNginx gives the path of nginx.
func requireNginx(t *testing.T) string {
	t.Helper()
	return debian.Require(t, "nginx-light", "nginx")
}

// requireHAProxy gives the path of HAProxy.
func requireHAProxy(t *testing.T) string {
	t.Helper()
	return debian.Require(t, "haproxy", "haproxy")
}

// statusFile is dpkg's database: what Debian has installed on this machine.
const statusFile = "/var/lib/dpkg/status"

// maxStatus bounds what is read of it; a full desktop has a tenth of this.
const maxStatus = 64 << 20

// pageSize is how many packages one page of the list holds.
const pageSize = 50

// listed is a package as the list shows it.
type listed struct {
	Package string `json:"package"`
	Version string `json:"version"`
}

// detail is a package's own document.
type detail struct {
	listed
	Architecture string   `json:"architecture"`
	Depends      []string `json:"depends"`
	Description  string   `json:"description"`
}

// installed reads the installed packages by name, at most limit of them, spread
// over the alphabet.
func installed(t *testing.T, limit int) []detail {
	t.Helper()
	f, err := os.Open(statusFile)
	if err != nil {
		t.Fatalf("this test serves dpkg's database, which only Debian and its kin have: %v", err)
	}
	defer func() { _ = f.Close() }()
	all, err := parseStatus(io.LimitReader(f, maxStatus))
	if err != nil {
		t.Fatalf("%s: %v", statusFile, err)
	}
	if len(all) <= limit {
		return all
	}
	some := make([]detail, limit)
	for i := range some {
		some[i] = all[i*len(all)/limit]
	}
	return some
}

// parseStatus reads stanzas of "Field: value" with continuation lines that begin
// with a space, as deb-control(5) has them.
func parseStatus(r io.Reader) ([]detail, error) {
	var all []detail
	fields := map[string]string{}
	field := ""
	flush := func() {
		if strings.HasSuffix(fields["Status"], " installed") {
			all = append(all, stanza(fields))
		}
		clear(fields)
		field = ""
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			flush()
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			fields[field] += "\n" + strings.TrimSpace(line)
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("a line after package %q is not a field", fields["Package"])
		}
		field = name
		fields[field] = strings.TrimSpace(value)
	}
	flush()
	slices.SortFunc(all, func(a, b detail) int { return cmp.Compare(a.Package, b.Package) })
	return all, lines.Err()
}

// stanza makes a document of one package's fields.
func stanza(fields map[string]string) detail {
	d := detail{
		listed:       listed{Package: fields["Package"], Version: fields["Version"]},
		Architecture: fields["Architecture"], Depends: []string{}, Description: fields["Description"],
	}
	if fields["Multi-Arch"] == "same" {
		// dpkg itself names these so: they can be there for several architectures.
		d.Package += ":" + d.Architecture
	}
	for dependency := range strings.SplitSeq(fields["Depends"], ",") {
		if dependency = strings.TrimSpace(dependency); dependency != "" {
			d.Depends = append(d.Depends, dependency)
		}
	}
	return d
}

// publish writes what nginx serves: packages/NAME.json for each detail, and the
// pages of the list as list/CURSOR.json. A cursor is opaque: the name after
// which the page begins, in hexadecimal; the first page's is empty.
func publish(t *testing.T, root string, packages []detail) {
	t.Helper()
	write := func(folder, name string, v any) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, folder, name+".json"), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cursor := ""
	for page := range slices.Chunk(packages, pageSize) {
		var body struct {
			Items      []listed `json:"items"`
			NextCursor *string  `json:"next_cursor"`
		}
		for _, d := range page {
			body.Items = append(body.Items, d.listed)
			write("packages", d.Package, d)
		}
		last := page[len(page)-1]
		if last.Package != packages[len(packages)-1].Package {
			body.NextCursor = new(hex.EncodeToString([]byte(last.Package)))
		}
		write("list", cursor, body)
		if body.NextCursor != nil {
			cursor = *body.NextCursor
		}
	}
}

// records reads a file of JSON lines.
func records[T any](t *testing.T, path string) []T {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	for line := range bytes.Lines(b) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%s, line %d: %v", path, len(all)+1, err)
		}
		all = append(all, v)
	}
	return all
}

func TestStatusFileIsReadAsDpkgReadsIt(t *testing.T) {
	const file = `Package: libstdc++6
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Version: 12.2.0-14
Depends: gcc-12-base (= 12.2.0-14), libc6 (>= 2.36)
Description: GNU Standard C++ Library v3
 The runtime.
 .
 More of it.

Package: gone
Status: deinstall ok config-files
Version: 1
Architecture: all

Package: adduser
Status: install ok installed
Architecture: all
Version: 3.134
Description: add users
`
	got, err := parseStatus(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []detail{
		{listed{"adduser", "3.134"}, "all", []string{}, "add users"},
		{
			listed{"libstdc++6:amd64", "12.2.0-14"}, "amd64",
			[]string{"gcc-12-base (= 12.2.0-14)", "libc6 (>= 2.36)"},
			"GNU Standard C++ Library v3\nThe runtime.\n.\nMore of it.",
		},
	}
	if !slices.EqualFunc(got, want, sameDetail) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func sameDetail(a, b detail) bool {
	return a.listed == b.listed && a.Architecture == b.Architecture &&
		a.Description == b.Description && slices.Equal(a.Depends, b.Depends)
}
