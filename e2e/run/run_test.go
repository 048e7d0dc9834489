//go:build unix

// Package run_test runs programs behind "headway run", as both are shipped: a provider with
// TLS, which is nginx with a limit, stands behind names that only the tests' own proxy
// knows.
package run_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
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
	"github.com/headway-go/headway/internal/debian"
	"github.com/headway-go/headway/internal/longtest"
)

// asClient makes the test's binary a Go program that knows nothing of Headway.
const asClient = "RUN_GO_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(asClient) != "" {
		os.Exit(client())
	}
	if os.Getenv(asInterrupted) != "" {
		os.Exit(interrupted())
	}
	if host := os.Getenv(asOutcome); host != "" {
		if os.Getenv(asCost) != "" {
			costs(host)
		} else {
			outcomes(host)
		}
		os.Exit(0)
	}
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(s) { // under nohup, or in the background of a script: what is started here would ignore it, too
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(harness.Run(m, harness.Setup{MaxWait: 15 * time.Minute, Parallel: 32}))
}

func client() int {
	n, _ := strconv.Atoi(os.Getenv("N"))
	for i := range n {
		res, err := http.Get(fmt.Sprintf("%s/f/%d", os.Getenv("URL"), i))
		if err != nil || res.StatusCode != http.StatusOK {
			fmt.Fprintln(os.Stderr, res, err)
			return 1
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	return 0
}

// world is the provider, and the way to it.
type world struct {
	dir, state, roots, proxy string
	front                    string   // nginx's address
	at                       sync.Map // addresses of other hosts, by HOST:PORT
	asked                    sync.Map // every HOST:PORT that headway asked for
}

const nginxConf = `daemon off; master_process off; pid nginx.pid; error_log error.log; events { worker_connections 1024; }
http {
	limit_req_zone $host zone=ten:1m rate=10r/s; limit_req_zone $host zone=minute:1m rate=60r/m; limit_req_status 429;
	log_format seen escape=json '{"At":$msec,"Status":$status,"Host":"$host"}'; access_log access.log seen;
	client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t; scgi_temp_path t;
	client_max_body_size 0; keepalive_requests 100000;
	ssl_certificate server.pem; ssl_certificate_key server.key; root www;
	server { listen {address} ssl http2; server_name *.ten.headway.test; limit_req zone=ten burst=5 nodelay; {places} }
	server { listen {address} ssl http2; server_name *.minute.headway.test; limit_req zone=minute burst=1 nodelay; {places} }
	server { listen {address} ssl http2; server_name *.free.headway.test; {places} }
}
`

const places = `
		location /f/ { try_files /one =404; }
		location = /slow { try_files /slow =404; limit_rate 50m; }
		location ~ ^/tree- { autoindex on; }
		location ~ ^/npm/p([0-9]+)$ { default_type application/json; try_files /npm/p$1.json =404; }
		location ~ ^/(bucket|full-|api/v3/pages/) { proxy_pass http://{bucket}; proxy_set_header Host $host; }
`

// newPlace makes the way to hosts, of which none is there yet.
func newPlace(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{dir: dir, state: filepath.Join(dir, "state"), roots: filepath.Join(dir, "roots.pem"), front: harness.FreeAddress(t)}
	w.certify(t)
	w.proxy = harness.Serve(t, http.HandlerFunc(w.names)).URL
	return w
}

// newWorld makes the way to nginx.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newPlace(t)
	dir := w.dir
	w.publish(t)
	store := harness.Serve(t, &bucket{held: map[string][]byte{}})
	conf := strings.NewReplacer("{places}", places, "{address}", w.front).Replace(nginxConf)
	harness.Write(t, filepath.Join(dir, "nginx.conf"), strings.ReplaceAll(conf, "{bucket}", store.Listener.Addr().String()))
	nginx := harness.LaunchAs(t, nil, dir, nil, debian.Require(t, "nginx-light", "nginx"), "-p", dir, "-c", filepath.Join(dir, "nginx.conf"), "-e", filepath.Join(dir, "error.log"))
	harness.Eventually(t, "nginx listens", func() bool {
		select {
		case <-nginx.Ended():
			t.Fatal(nginx.Wait(t))
		default:
		}
		c, err := net.Dial("tcp", w.front)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	return w
}

// names is a proxy for which every name is nginx's: that of the environment in which
// headway runs.
func (w *world) names(rw http.ResponseWriter, r *http.Request) {
	to := w.front
	w.asked.Store(r.Host, true)
	if at, ok := w.at.Load(r.Host); ok {
		to = at.(string)
	}
	far, err := net.Dial("tcp", to)
	if err != nil || r.Method != http.MethodConnect || to == w.front && !strings.Contains(r.Host, ".headway.test:") {
		rw.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = far.Close() }()
	near, in, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = near.Close() }()
	_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(far, in)
		_ = far.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(near, far)
}

// env is the environment in which headway runs.
func (w *world) env(t *testing.T) []string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"PATH=" + os.Getenv("PATH"), "HTTPS_PROXY=" + w.proxy, "SSL_CERT_FILE=" + w.roots, "NODE_EXTRA_CA_CERTS=" + w.roots,
		"TEST_BINARY=" + binary, "LANG=C.UTF-8",
	}
}

type logged struct {
	At     float64
	Status int
	Host   string
}

// log is what nginx saw of a host.
func (w *world) log(t *testing.T, host string) (all []logged) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.dir, "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var l logged
		if json.Unmarshal(line, &l) == nil && strings.EqualFold(l.Host, host) {
			all = append(all, l)
		}
	}
	return all
}

// certify makes the provider's authority and certificate.
func (w *world) certify(t *testing.T) {
	t.Helper()
	issue := func(c, by *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if by == nil {
			by, signer = c, key
		}
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		c, _ = x509.ParseCertificate(der)
		return c, key
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	root, rootKey := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "Provider"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	leaf, key := issue(&x509.Certificate{DNSNames: []string{"*.ten.headway.test", "*.minute.headway.test", "*.free.headway.test", "api.github.com"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature}, root, rootKey)
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	harness.Write(t, w.roots, text("CERTIFICATE", root.Raw))
	harness.Write(t, filepath.Join(w.dir, "server.pem"), text("CERTIFICATE", leaf.Raw))
	harness.Write(t, filepath.Join(w.dir, "server.key"), text("EC PRIVATE KEY", secret))
}

// publish writes what nginx serves, in the sizes that the tests ask for.
func (w *world) publish(t *testing.T) {
	t.Helper()
	www := filepath.Join(w.dir, "www")
	if err := os.MkdirAll(filepath.Join(www, "npm"), 0o755); err != nil {
		t.Fatal(err)
	}
	harness.Write(t, filepath.Join(www, "one"), "{}\n")
	script := "set -e; cd \"$1\"; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n" +
		"for n in 12 " + map[bool]string{true: "240 1200"}[longtest.Long()] + `; do
git init -q work-$n; i=0
while [ $i -lt $((n / 3)) ]; do echo $i > work-$n/file; git -C work-$n add .; git -C work-$n commit -q -m $i; i=$((i + 1)); done
git clone -q --bare work-$n repo-$n.git
mkdir -p objects; mv repo-$n.git/objects/pack/*.pack . 2>/dev/null && { for p in ./*.pack; do git -C repo-$n.git unpack-objects -q < $p; rm -f $p; done; rm -f repo-$n.git/objects/pack/*; } || true
git -C repo-$n.git update-server-info
mkdir tree-$n; i=0; while [ $i -lt $((n / 2)) ]; do echo $i > tree-$n/$i; i=$((i + 1)); done
done
mkdir npm/package; echo '{"name":"x","version":"1.0.0"}' > npm/package/package.json; tar -C npm -czf npm/p.tgz package
`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", www).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, n := range []int{240, 1200} {
		var depends []string
		for i := range n / 2 {
			name := fmt.Sprintf("p%d", i)
			depends = append(depends, fmt.Sprintf("%q: \"1.0.0\"", name))
			harness.Write(t, filepath.Join(www, "npm", name+".json"), fmt.Sprintf(`{"name":%q,"dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":%[1]q,"version":"1.0.0","dist":{"tarball":"https://localhost/npm/%[1]s/-/p.tgz"}}}}`, name))
			if err := os.MkdirAll(filepath.Join(www, "npm", name, "-"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(filepath.Join(www, "npm", "p.tgz"), filepath.Join(www, "npm", name, "-", "p.tgz")); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
		harness.Write(t, filepath.Join(www, fmt.Sprintf("npm-%d.json", n)), `{"name":"all","version":"1.0.0","dependencies":{`+strings.Join(depends, ",")+`}}`)
	}
}

// bucket is as much of S3 as its clients need: objects below /bucket, and some hundred
// in /full-N. Below /api/v3/pages are pages that name the next one, as GitHub does.
type bucket struct {
	mu   sync.Mutex
	held map[string][]byte
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	space := r.Host
	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	body, there := b.held[space+r.URL.Path]
	if n, ok := strings.CutPrefix(name, "full-"); ok && key != "" {
		body, there = []byte(n), true
	}
	if page, ok := strings.CutPrefix(key, "v3/pages/"); ok {
		at, _ := strconv.Atoi(page)
		if n, _ := strconv.Atoi(r.URL.Query().Get("of")); at < n {
			w.Header().Set("Link", fmt.Sprintf(`<https://%s/api/v3/pages/%d?of=%d>; rel="next"`, space, at+1, n))
		}
		_, _ = io.WriteString(w, "[]")
		return
	}
	w.Header().Set("ETag", `"e"`)
	w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
	switch {
	case r.URL.Query().Has("location"):
		_, _ = io.WriteString(w, `<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></LocationConstraint>`)
	case r.Method == http.MethodPut:
		b.held[space+r.URL.Path], _ = io.ReadAll(r.Body)
	case r.Method == http.MethodDelete:
		delete(b.held, space+r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case key == "" && r.Method == http.MethodHead:
	case key == "":
		b.list(w, space, name, r.URL.Query().Get("prefix"))
	case !there:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}
}

func (b *bucket) list(w io.Writer, space, name, prefix string) {
	type object struct{ Key, LastModified, ETag, Size, StorageClass string }
	answer := struct {
		XMLName      xml.Name `xml:"ListBucketResult"`
		Name, Prefix string
		IsTruncated  bool
		Contents     []object
	}{Name: name, Prefix: prefix}
	add := func(key string, size int) {
		if strings.HasPrefix(key, prefix) {
			answer.Contents = append(answer.Contents, object{key, "2006-01-02T15:04:05.000Z", `"e"`, strconv.Itoa(size), "STANDARD"})
		}
	}
	for path, body := range b.held {
		if key, ok := strings.CutPrefix(path, space+"/"+name+"/"); ok {
			add(key, len(body))
		}
	}
	if n, ok := strings.CutPrefix(name, "full-"); ok {
		for i := range func() int { n, _ := strconv.Atoi(n); return n }() {
			add(strconv.Itoa(i), len(n))
		}
	}
	_ = xml.NewEncoder(w).Encode(answer)
}

// governed starts a command behind headway run, for the free host.
func (w *world) governed(t *testing.T, args ...string) *harness.Process {
	t.Helper()
	return harness.Launch(t, w.dir, w.env(t), append([]string{"run", "--state", w.state, "--host", "*.free.headway.test"}, args...)...)
}

func TestSignalsGoOnToTheCommand(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		signal syscall.Signal
		trap   string
		code   int
	}{{syscall.SIGTERM, "", 143}, {syscall.SIGINT, "trap 'echo caught; exit 7' INT; ", 7}, {syscall.SIGHUP, "trap 'echo caught; exit 8' HUP; ", 8}} {
		p := w.governed(t, "--", "sh", "-c", s.trap+"echo ready; while :; do sleep 0.01; done")
		p.Await(t, &p.Stdout, "ready")
		p.Signal(t, s.signal)
		o := p.Wait(t)
		if o.Code != s.code || strings.Contains(o.Stdout, "caught") != (s.trap != "") || !strings.Contains(o.Stderr, "no request came through") {
			t.Errorf("%v: %s", s.signal, o)
		}
	}
	// What nohup has ignored stays so.
	p := harness.LaunchAs(t, nil, w.dir, w.env(t), "sh", "-c", `trap "" HUP; exec "$0" "$@"`, harness.Program(), "run", "--state", w.state, "--host", "a.test", "--", "sh", "-c", "echo ready; while :; do sleep 0.01; done")
	p.Await(t, &p.Stdout, "ready")
	p.Signal(t, syscall.SIGHUP)
	p.Signal(t, syscall.SIGTERM)
	if o := p.Wait(t); o.Code != 143 {
		t.Errorf("with SIGHUP ignored: %s", o)
	}
	// One that leaves another behind and goes away.
	o := w.governed(t, "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 </dev/null & echo $!; exit 5").Wait(t)
	if pid, err := strconv.Atoi(strings.TrimSpace(o.Stdout)); err != nil || o.Code != 5 || o.Took > time.Minute {
		t.Errorf("%v, %s", err, o)
	} else if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("what it left behind is gone: %v", err)
	}
}

// Without a network the program gets an error that says so, and the proxy goes on.
func TestNoNetwork(t *testing.T) {
	w := newWorld(t)
	env := append(w.env(t), "HTTPS_PROXY=http://"+harness.FreeAddress(t)) // of which the last one counts
	get := func(host, code string) string {
		return `test "$(curl -sS -o out -w '%{http_code}' https://` + host + `/f/1)" = ` + code + `; cat out; `
	}
	o := harness.Launch(t, w.dir, env, "run", "--state", w.state, "--host", "*.free.headway.test", "--json", "--", "sh", "-c",
		get("api.free.headway.test", "502")+get("api.free.headway.test", "502")+`curl -sS https://elsewhere.headway.test/ || exit 9`).Wait(t)
	if o.Code != 9 || strings.Count(o.Stdout, "headway: api.free.headway.test could not be reached: dial tcp ") != 2 ||
		!strings.Contains(o.Stderr, "502") || !strings.Contains(o.Stderr, `"requests": 2`) {
		t.Error(o)
	}
	// And where the proxy of the environment does not let it out.
	o = harness.Launch(t, w.dir, w.env(t), "run", "--state", w.state, "--host", "away.test", "-q", "--", "curl", "-sS", "-w", "%{http_code}", "https://away.test/").Wait(t)
	if o.Code != 0 || o.Stdout != "headway: away.test could not be reached: the proxy of the environment answered 502\n502" {
		t.Error(o)
	}
}

// Nobody else on the machine can use the proxy, and the key is in nothing that is said.
func TestTheProxyIsForItsUserOnly(t *testing.T) {
	w := newWorld(t)
	env := filepath.Join(w.dir, "proxy.env")
	p := harness.Launch(t, w.dir, w.env(t), "proxy", "--state", w.state, "--host", "*.free.headway.test", "--listen", "127.0.0.1:0", "--env-file", env)
	p.Await(t, &p.Stdout, "in the shell that starts a program")
	address := strings.Fields(p.Stdout.Text())[0]
	get := func(how *syscall.SysProcAttr, script string) harness.Outcome {
		return harness.LaunchAs(t, how, "/", []string{"PATH=" + os.Getenv("PATH"), "P=" + address}, "sh", "-c", script).Wait(t)
	}
	const plain = `curl -s -o /dev/null -w '%{http_code}' -x "$P" http://api.free.headway.test/f/1`
	if o := get(nil, ". "+env+`; curl -sS -o /dev/null -w '%{http_code}' https://api.free.headway.test/f/1`); o.Stdout != "200" {
		t.Errorf("with the variables: %s", o)
	}
	if os.Getuid() == 0 { // else there is no other user to be
		if o := get(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, plain+`; cat `+env); !strings.HasPrefix(o.Stdout, "407") || o.Code == 0 {
			t.Errorf("another user: %s", o)
		}
	}
	if o := get(nil, plain[:len(plain)-len("http://api.free.headway.test/f/1")]+"http://headway:guess@$(echo $P | cut -d/ -f3)/"); !strings.HasPrefix(o.Stdout, "4") {
		t.Errorf("it serves pages: %s", o)
	}
	busy := harness.Launch(t, w.dir, w.env(t), "proxy", "--state", w.state+"2", "--host", "a.test", "--listen", strings.TrimPrefix(address, "http://")).Wait(t)
	if busy.Code != harness.ExitRefused || !strings.Contains(busy.Stderr, "address already in use") {
		t.Errorf("a port that is taken: %s", busy)
	}
	// Runs on one credential share by the proxy's socket.
	var both []*harness.Process
	for range 2 {
		both = append(both, w.governed(t, "--", "sh", "-c", `curl -sS -H 'Authorization: Bearer canary' -o /dev/null -w '%{http_code} done' https://api.free.headway.test/f/1; while :; do sleep 0.01; done`))
	}
	for _, one := range both {
		one.Await(t, &one.Stdout, "200 done")
	}
	o := harness.Launch(t, w.dir, nil, "fleet", "--fleet", "unix://"+filepath.Join(w.state, "headway.sock"), "--json").Wait(t)
	type credential struct{ Members []json.RawMessage }
	var shared []credential // the proxy's own, and that of the runs
	if err := json.Unmarshal([]byte(o.Stdout), &shared); err != nil || !slices.ContainsFunc(shared, func(c credential) bool { return len(c.Members) == 2 }) {
		t.Errorf("two runs on one credential: %v, %s", err, o)
	}
	for _, one := range both {
		one.Signal(t, syscall.SIGTERM)
		one.Wait(t)
	}
	p.Signal(t, syscall.SIGTERM)
	o = p.Wait(t)
	if _, err := os.Stat(env); o.Code != 0 || !os.IsNotExist(err) {
		t.Errorf("%s, its file: %v", o, err)
	}
	key, err := os.ReadFile(filepath.Join(w.state, "ca.pem"))
	if line := strings.Split(string(key), "\n")[1]; err != nil || strings.Contains(o.Stdout+o.Stderr, line) || strings.Contains(o.Stdout+o.Stderr, "canary") {
		t.Errorf("a secret is said: %v, %s", err, o)
	}
}

// TestGuide runs the commands of the guide as they are written there, but for the port.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "run.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := strings.ReplaceAll(string(guide), "127.0.0.1:8080", harness.FreeAddress(t))
	env := []string{"PATH=" + filepath.Dir(harness.Program()) + ":" + os.Getenv("PATH")}
	var blocks []string
	for i, part := range strings.Split(text, "```") {
		if block, ok := strings.CutPrefix(part, "sh\n"); ok && i%2 == 1 {
			blocks = append(blocks, block)
		}
	}
	if len(blocks) != 4 {
		t.Fatalf("%d blocks of commands, want 4", len(blocks))
	}
	provider := harness.Launch(t, dir, env, strings.Fields(blocks[0])[1:]...)
	provider.Await(t, &provider.Stderr, "serving demo")
	var out []harness.Outcome
	for _, block := range blocks[1:] {
		o := harness.LaunchAs(t, nil, dir, env, "sh", "-ec", block).Wait(t)
		if o.Code != 0 {
			t.Fatalf("%s\n%s", block, o)
		}
		out = append(out, o)
	}
	if !strings.Contains(out[0].Stdout, "429") || strings.TrimSpace(out[1].Stdout) != "150 200" || !strings.Contains(out[1].Stderr, "requests of sh") {
		t.Errorf("without: %s\nwith: %s", out[0], out[1])
	}
	if b, err := os.ReadFile(filepath.Join(dir, "headway-ca.pem")); err != nil || !bytes.HasPrefix(b, []byte("-----BEGIN CERTIFICATE")) || !strings.Contains(out[2].Stdout, "sha256") {
		t.Errorf("%s, %v, %s", b, err, out[2])
	}
}
