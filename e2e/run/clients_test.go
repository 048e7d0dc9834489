//go:build unix

package run_test

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/debian"
	"github.com/headway-go/headway/internal/longtest"
)

var (
	write = flag.Bool("clients.write", false, "write the table of clients into the guide")
	only  = flag.String("clients.only", "", "try these programs only, separated by commas")
)

// program is a real client, untouched. Its script finds the address of the provider in $URL
// and its host in $HOST, makes about $N requests, and ends with 0 if all were answered well.
type program struct {
	name     string
	packages [][]string // Debian's package, and the programs in it
	files    []string   // or what else has to be there
	script   string
	reads    string // by which it finds the proxy and the certificate
	cheap    bool   // it is tried in every run of the tests
	blind    string // why it does not go through the proxy; empty for one that does
}

var programs = []program{
	{name: "curl", packages: [][]string{{"curl", "curl"}}, cheap: true, reads: "HTTPS_PROXY, CURL_CA_BUNDLE",
		script: `curl -sSf -o one.#1 "$URL/f/[1-$N]" && ls one.* | wc -l | grep -qx "$N"`},
	{name: "wget", packages: [][]string{{"wget", "wget"}}, reads: "https_proxy; the certificate by --ca-certificate",
		script: `for i in $(seq $N); do echo "$URL/f/$i"; done > list; wget -q -O all --ca-certificate="$SSL_CERT_FILE" -i list`},
	{name: "git", packages: [][]string{{"git", "git"}}, cheap: true, reads: "HTTPS_PROXY, GIT_SSL_CAINFO",
		script: `git clone -q "$URL/repo-$N.git" c && git -C c fsck --full`},
	{name: "gh", packages: [][]string{{"gh", "gh"}}, reads: "HTTPS_PROXY, SSL_CERT_FILE",
		script: `export GH_HOST=$HOST GH_ENTERPRISE_TOKEN=any; gh api --paginate "pages/1?of=$N" > out`},
	{name: "rclone", packages: [][]string{{"rclone", "rclone"}}, reads: "HTTPS_PROXY, SSL_CERT_FILE",
		script: `rclone copy --http-url "$URL/tree-$N/" :http: dst --transfers 8 --retries 1 --low-level-retries 1 && ls dst | wc -l | grep -qx "$((N / 2))"`},
	{name: "restic", packages: [][]string{{"restic", "restic"}}, reads: "HTTPS_PROXY, SSL_CERT_FILE",
		script: `export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b RESTIC_PASSWORD=c RESTIC_REPOSITORY="s3:$URL/bucket"
restic -q init && seq $((N / 60 + 6)) | xargs -P 4 -I % sh -c 'echo % > %.file; restic -q backup --no-cache %.file' && restic -q check --no-cache`},
	{name: "s3cmd", packages: [][]string{{"s3cmd", "s3cmd"}}, reads: "nothing", blind: "it has its own setting for a proxy (proxy_host) and reads no variable",
		script: `s3cmd --access_key a --secret_key b --host "$HOST" --host-bucket "$HOST" sync s3://full-$N/ dst/`},
	{name: "aws", packages: [][]string{{"awscli", "/usr/bin/aws"}}, reads: "HTTPS_PROXY, AWS_CA_BUNDLE",
		script: `export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_DEFAULT_REGION=us-east-1; /usr/bin/aws --endpoint-url "$URL" s3 sync --quiet s3://full-$N/ dst && ls dst | wc -l | grep -qx "$N"`},
	{name: "python3-requests", files: []string{"/usr/lib/python3/dist-packages/requests"}, cheap: true, reads: "HTTPS_PROXY, REQUESTS_CA_BUNDLE",
		script: `/usr/bin/python3 -c 'import os, requests
s = requests.Session()
for i in range(int(os.environ["N"])): s.get(os.environ["URL"] + "/f/%d" % i).raise_for_status()'`},
	{name: "python3-httpx", files: []string{"/usr/lib/python3/dist-packages/httpx"}, reads: "HTTPS_PROXY, SSL_CERT_FILE",
		script: `/usr/bin/python3 -c 'import os, httpx
with httpx.Client(timeout=900) as c:
    for i in range(int(os.environ["N"])): c.get(os.environ["URL"] + "/f/%d" % i).raise_for_status()'`},
	{name: "python3-aiohttp", files: []string{"/usr/lib/python3/dist-packages/aiohttp"}, reads: "HTTPS_PROXY (with trust_env=True), SSL_CERT_FILE",
		script: `/usr/bin/python3 -c 'import os, asyncio, aiohttp
async def main():
    async with aiohttp.ClientSession(trust_env=True, raise_for_status=True, timeout=aiohttp.ClientTimeout(900), connector=aiohttp.TCPConnector(limit=8)) as s:
        async def one(i):
            async with s.get(os.environ["URL"] + "/f/%d" % i) as r: await r.read()
        await asyncio.gather(*(one(i) for i in range(int(os.environ["N"]))))
asyncio.run(main())'`},
	{name: "python3 urllib", files: []string{"/usr/bin/python3"}, reads: "https_proxy, SSL_CERT_FILE",
		script: `/usr/bin/python3 -c 'import os, urllib.request
for i in range(int(os.environ["N"])): urllib.request.urlopen(os.environ["URL"] + "/f/%d" % i).read()'`},
	{name: "node fetch", packages: [][]string{{"nodejs", "node"}}, reads: "NODE_USE_ENV_PROXY, NODE_EXTRA_CA_CERTS", blind: "version 20 reads no proxy from the environment, version 24 does",
		script: `node -e '(async () => { for (let i = 0; i < +process.env.N; i++) { const r = await fetch(process.env.URL + "/f/" + i); await r.text(); if (!r.ok) process.exit(1) } })().catch(() => process.exit(2))'`},
	{name: "npm", packages: [][]string{{"npm", "npm"}}, reads: "HTTPS_PROXY, npm_config_cafile",
		script: `cp ../../www/npm-$N.json package.json; npm install --registry "$URL/npm/" --cache ./cache --replace-registry-host always --no-audit --no-fund --ignore-scripts --loglevel error && ls node_modules | wc -l | grep -qx "$((N / 2))"`},
	{name: "perl LWP", files: []string{"/usr/share/perl5/LWP/Protocol/https.pm"}, reads: "PERL_LWP_ENV_PROXY, PERL_LWP_SSL_CA_FILE",
		script: `/usr/bin/perl -MLWP::UserAgent -e '$u = LWP::UserAgent->new(timeout => 900); for (1..$ENV{N}) { $r = $u->get("$ENV{URL}/f/$_"); die $r->status_line unless $r->is_success }'`},
	{name: "ruby net/http", packages: [][]string{{"ruby", "ruby"}}, reads: "https_proxy, SSL_CERT_FILE",
		script: `ruby -rnet/http -e 'u = URI(ENV["URL"]); Net::HTTP.start(u.host, u.port, use_ssl: true, read_timeout: 900) { |h| ENV["N"].to_i.times { |i| h.get("/f/#{i}").value } }'`},
	{name: "php-curl", packages: [][]string{{"php-cli", "php"}}, files: []string{"/usr/lib/php/*/curl.so"}, reads: "HTTPS_PROXY, PHP_INI_SCAN_DIR",
		script: `php -r '$c = curl_init(); curl_setopt($c, CURLOPT_RETURNTRANSFER, 1); for ($i = 0; $i < getenv("N"); $i++) { curl_setopt($c, CURLOPT_URL, getenv("URL") . "/f/$i"); curl_exec($c); if (curl_getinfo($c, CURLINFO_RESPONSE_CODE) != 200) exit(1); }'`},
	{name: "a Go program", cheap: true, reads: "HTTPS_PROXY, SSL_CERT_FILE", script: asClient + `=1 "$TEST_BINARY"`},
	{name: "Java HttpClient", packages: [][]string{{"default-jdk-headless", "javac"}}, reads: "JAVA_TOOL_OPTIONS",
		script: `cat > C.java <<'END'
import java.net.URI; import java.net.http.*;
class C { public static void main(String[] a) throws Exception {
  var c = HttpClient.newHttpClient();
  for (int i = 0; i < Integer.parseInt(System.getenv("N")); i++)
    if (c.send(HttpRequest.newBuilder(URI.create(System.getenv("URL") + "/f/" + i)).build(), HttpResponse.BodyHandlers.ofString()).statusCode() != 200) System.exit(1);
} }
END
java C.java`},
}

// there has the programs installed.
func (p *program) there(t *testing.T) {
	t.Helper()
	for _, pkg := range p.packages {
		debian.Require(t, pkg[0], pkg[1:]...)
	}
	for _, file := range p.files {
		pkg := p.name
		switch pkg {
		case "perl LWP":
			pkg = "liblwp-protocol-https-perl"
		case "python3 urllib":
			pkg = "python3"
		}
		if _, err := debian.Install(pkg, func() string {
			found, _ := filepath.Glob(file)
			return strings.Join(found, " ")
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// result is the result of one program under one limit.
type result struct {
	code, served, refused int
	took                  time.Duration
	goodput               float64 // of the limit, after the first minute; 0 if too few answers came later
	summary               struct {
		Connections []struct{ Requests, Throttled, Passed, Refused, Held int }
		Tunneled    []struct{ Host string }
	}
	errs string
}

// try runs a program once. The zone is its limit's; unless it is governed, the proxy passes
// everything through unread.
func (w *world) try(t *testing.T, p *program, zone string, n int, governed bool) (r result) {
	t.Helper()
	host := map[bool]string{false: "plain-", true: "run-"}[governed] + strings.ReplaceAll(strings.ReplaceAll(p.name, " ", "-"), "/", "-") + "." + zone + ".headway.test"
	named := "*." + zone + ".headway.test"
	if !governed {
		named = "nothing.invalid"
	}
	dir := filepath.Join(w.dir, host, "work")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	env := append(w.env(t), "URL=https://"+host, "HOST="+host, "N="+strconv.Itoa(n))
	o := harness.Launch(t, dir, env, "run", "--state", w.state, "--host", named, "--json", "--", "sh", "-c", p.script).Wait(t)
	r.code, r.errs, r.took = o.Code, o.Stderr, o.Took
	at := strings.LastIndex("\n"+o.Stderr, "\n{\n")
	if at < 0 || json.Unmarshal([]byte(o.Stderr[at:]), &r.summary) != nil {
		t.Errorf("%s: no summary: %s", p.name, o)
	}
	var times []float64
	for _, l := range w.log(t, host) {
		switch {
		case l.Status == 429:
			r.refused++
		case l.Status < 400 || l.Status == 404: // which is an answer, too
			r.served++
			times = append(times, l.At)
		}
	}
	rate := map[string]float64{"ten": 10, "minute": 1}[zone]
	slices.Sort(times)
	if from, _ := slices.BinarySearch(times, times0(times)+60); len(times)-from > 10 {
		steady := times[from:]
		r.goodput = float64(len(steady)-1) / (steady[len(steady)-1] - steady[0]) / rate
	}
	return r
}

func times0(times []float64) float64 {
	if len(times) == 0 {
		return 0
	}
	return times[0]
}

// TestRealClients has programs that know nothing of Headway ask nginx for more than it
// allows. A few are tried in every run, all of them in a long one, which takes minutes.
func TestRealClients(t *testing.T) {
	w := newWorld(t)
	if !longtest.Long() {
		for i := range programs {
			if p := &programs[i]; p.cheap {
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					p.there(t)
					r := w.try(t, p, "ten", 12, true)
					r.good(t, p)
				})
			}
		}
		return
	}
	table := make([]string, len(programs))
	at := make(chan struct{}, 4) // programs at work at once
	t.Run("clients", func(t *testing.T) {
		for i := range programs {
			p := &programs[i]
			if *only != "" && !slices.Contains(strings.Split(*only, ","), p.name) {
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				p.there(t) // one after the other
				t.Parallel()
				at <- struct{}{}
				defer func() { <-at }()
				var plain, fast, slow result
				var both sync.WaitGroup
				both.Go(func() { slow = w.try(t, p, "minute", 240, true) }) // it waits nearly all the time
				plain = w.try(t, p, "ten", 240, false)
				fast = w.try(t, p, "ten", 1200, true)
				both.Wait()
				table[i] = fmt.Sprintf("| %s | %s | %s | %s | %s |", p.name, p.reads, plain.text(), fast.text(), slow.text())
				if p.blind != "" {
					table[i] = fmt.Sprintf("| %s | %s | | not governed: %s | |", p.name, p.reads, p.blind)
					if len(fast.summary.Connections) > 0 {
						t.Errorf("it goes through the proxy after all: %s", fast.errs)
					}
					return
				}
				for _, r := range []result{fast, slow} {
					r.good(t, p)
					t.Logf("%s: %.2f of the limit", p.name, r.goodput) // other work on the machine lowers it
				}
			})
		}
	})
	text := "| program | reads | 10 a second, burst 5: without | with | 60 a minute, burst 1: with |\n|---|---|---|---|---|\n" +
		strings.Join(slices.DeleteFunc(table, func(s string) bool { return s == "" }), "\n") + "\n"
	t.Logf("\n%s", text)
	if *write {
		guide := filepath.Join("..", "..", "docs", "guides", "run.md")
		b, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(string(b), "<!-- clients -->\n")
		_, tail, found := strings.Cut(rest, "<!-- end -->")
		if !found {
			t.Fatal("the guide has no place for the table")
		}
		harness.Write(t, guide, head+"<!-- clients -->\n"+text+"<!-- end -->"+tail)
	}
}

// good checks that the program ended well and saw no refusal.
func (r *result) good(t *testing.T, p *program) {
	t.Helper()
	c := r.summary.Connections
	if r.code != 0 || len(c) == 0 || c[0].Requests == 0 || c[0].Passed+c[0].Refused > 0 || len(r.summary.Tunneled) > 0 {
		t.Errorf("%s: exit %d, %+v, %s", p.name, r.code, r.summary, r.errs)
	}
}

// text is the result as cells of the table: how it ended, and its figures.
func (r *result) text() string {
	b := []string{fmt.Sprintf("%d answers in %s", r.served, r.took.Round(time.Second))}
	if r.code != 0 {
		b = append(b, fmt.Sprintf("**ends with %d**", r.code))
	}
	c := r.summary.Connections
	if len(c) == 0 {
		return strings.Join(append(b, fmt.Sprintf("%d refused", r.refused)), ", ")
	}
	if r.goodput > 0 {
		b = append(b, fmt.Sprintf("%.2f of the limit", r.goodput))
	}
	return strings.Join(append(b, fmt.Sprintf("%d held, %d seen", r.refused, c[0].Passed+c[0].Refused)), ", ")
}

// gitHub is as much of GitHub as the test below needs: core answers all, search refuses its
// first request for a second and all after the second one for an hour.
func (w *world) gitHub(t *testing.T) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(w.dir, "server.pem"), filepath.Join(w.dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	var searches atomic.Int64
	s := harness.NewServer(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		h.Set("Content-Type", "application/json")
		limit := func(resource string, size, left int, reset time.Duration) {
			h.Set("X-RateLimit-Resource", resource)
			h.Set("X-RateLimit-Limit", strconv.Itoa(size))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
			h.Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(reset).Unix(), 10))
		}
		if !strings.HasPrefix(r.URL.Path, "/search/") {
			limit("core", 5000, 4000, time.Hour)
			_, _ = io.WriteString(rw, `{"login":"octocat"}`)
			return
		}
		switch n := searches.Add(1); n {
		case 1:
			limit("search", 30, 0, time.Second)
		case 2:
			limit("search", 30, 29, time.Minute)
			_, _ = io.WriteString(rw, `{"items":[]}`)
			return
		default:
			limit("search", 30, 0, time.Hour)
		}
		rw.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(rw, `{"message":"API rate limit exceeded"}`)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	w.at.Store("api.github.com:443", s.Listener.Addr().String())
}

// GitHub's own program, under GitHub's profile: what is refused to a search is held, and a
// search that has to wait for an hour holds no other request.
func TestGitHubsPoolsAreApart(t *testing.T) {
	debian.Require(t, "gh", "gh")
	w := newWorld(t)
	w.gitHub(t)
	const script = `gh api 'search/issues?q=a' > /dev/null || exit 2
gh api 'search/issues?q=b' > /dev/null 2>&1 && exit 3
for i in 1 2 3 4 5; do gh api user --jq .login || exit 4; done`
	o := harness.Launch(t, w.dir, append(w.env(t), "GH_TOKEN=canary"), "run", "--state", w.state, "--profile", "github", "--json", "--", "sh", "-c", script).Wait(t)
	var s struct {
		Connections []struct {
			Name                                      string
			Requests, Attempts, Held, Passed, Refused int
			Pools                                     []struct{ Name string }
		}
	}
	at := strings.LastIndex("\n"+o.Stderr, "\n{\n")
	if o.Code != 0 || strings.Count(o.Stdout, "octocat") != 5 || at < 0 || json.Unmarshal([]byte(o.Stderr[at:]), &s) != nil || len(s.Connections) != 1 {
		t.Fatal(o)
	}
	c := s.Connections[0]
	if c.Name != "github" || c.Requests != 7 || c.Attempts != 8 || c.Held != 1 || c.Passed != 1 || c.Refused != 0 {
		t.Errorf("%+v", c)
	}
	for _, name := range []string{"core", "search"} {
		if !slices.ContainsFunc(c.Pools, func(p struct{ Name string }) bool { return p.Name == name }) {
			t.Errorf("no pool %s in %+v", name, c.Pools)
		}
	}
	if strings.Contains(o.Stderr, "canary") {
		t.Error("the summary says the credential")
	}
}

// A clone through the proxy is the same as one that passes through unread, byte for byte. How
// long each takes is logged: a long run clones 50 MB several times.
func TestACloneIsTheSame(t *testing.T) {
	w := newWorld(t)
	size, rounds := 2, 1
	if longtest.Long() {
		size, rounds = 50, 15
	}
	script := fmt.Sprintf(`set -e; cd www; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q big; head -c %d000000 /dev/urandom > big/file; git -C big add .; git -C big commit -q -m big
git clone -q --bare big big.git; git -C big.git repack -q -a -d; git -C big.git update-server-info; rm -rf big`, size)
	if o := harness.LaunchAs(t, nil, w.dir, []string{"PATH=" + os.Getenv("PATH")}, "sh", "-c", script).Wait(t); o.Code != 0 {
		t.Fatal(o)
	}
	const clone = `git clone -q https://big.free.headway.test/big.git "$1" && cat "$1"/.git/objects/pack/*.pack | sha256sum && sha256sum < "$1"/file`
	took := map[string][]time.Duration{}
	sums := map[string]bool{}
	for i := range rounds {
		for host, name := range map[string]string{"nothing.invalid": "plain", "*.free.headway.test": "run"} {
			to := fmt.Sprint(name, i)
			o := harness.Launch(t, w.dir, w.env(t), "run", "--state", w.state, "--host", host, "-q", "--", "sh", "-c", "date +%s%N >&2; "+clone+"; date +%s%N >&2", "sh", to).Wait(t)
			stamps := strings.Fields(o.Stderr)
			if o.Code != 0 || len(stamps) != 2 {
				t.Fatal(o)
			}
			begun, _ := strconv.ParseInt(stamps[0], 10, 64)
			ended, _ := strconv.ParseInt(stamps[1], 10, 64)
			took[name] = append(took[name], time.Duration(ended-begun))
			sums[o.Stdout] = true
			if err := os.RemoveAll(filepath.Join(w.dir, to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(sums) != 1 {
		t.Errorf("the clones differ: %v", sums)
	}
	for name, all := range took {
		slices.Sort(all)
		t.Logf("%s: %d MB in %v (median of %d)", name, size, all[len(all)/2].Round(time.Millisecond), len(all))
	}
}

// members are how many processes share each credential, by the socket in the state folder.
func (w *world) members(t *testing.T) (all []int) {
	t.Helper()
	o := harness.Launch(t, w.dir, nil, "fleet", "--fleet", "unix://"+filepath.Join(w.state, "headway.sock"), "--json").Wait(t)
	var shared []struct{ Members []json.RawMessage }
	if o.Code == 0 && json.Unmarshal([]byte(o.Stdout), &shared) != nil {
		t.Fatal(o)
	}
	for _, c := range shared {
		all = append(all, len(c.Members))
	}
	return all
}

// Runs on one credential share its limit with nothing else there: the first serves the others,
// and another takes over when it is killed.
func TestRunsShareALimit(t *testing.T) {
	w := newWorld(t)
	const host = "shared.ten.headway.test"
	begin := func(name, script string) *harness.Process {
		return harness.Launch(t, w.dir, append(w.env(t), "URL=https://"+host+"/f/1", "STOP="+filepath.Join(w.dir, name)), "run", "--state", w.state,
			"--host", host, "--json", "--", "sh", "-c", `get() { curl -sS -H 'Authorization: Bearer canary' -o /dev/null -o /dev/null -w '%{http_code}\n' "$URL" "$URL"; }; get; echo ready; `+script)
	}
	const untilStopped = `until [ -e "$STOP" ]; do get; done`
	first := begin("first", untilStopped)
	first.Await(t, &first.Stdout, "ready")
	if alone := w.members(t); slices.Max(append(alone, 0)) != 0 {
		t.Errorf("alone, it goes by a server: %v", alone)
	}
	second := begin("second", untilStopped)
	second.Await(t, &second.Stdout, "ready")
	harness.Eventually(t, "two runs share the credential", func() bool { return slices.Equal(w.members(t), []int{2}) })
	third := begin("third", untilStopped)
	third.Await(t, &third.Stdout, "ready")
	harness.Eventually(t, "three runs share the credential", func() bool { return slices.Equal(w.members(t), []int{3}) })

	first.Signal(t, syscall.SIGKILL)
	harness.Write(t, filepath.Join(w.dir, "first"), "") // its command goes on, without a proxy
	first.Wait(t)
	harness.Eventually(t, "another has taken over", func() bool { return slices.Equal(w.members(t), []int{2}) })
	late := begin("late", "get; get")
	harness.Write(t, filepath.Join(w.dir, "second"), "")
	harness.Write(t, filepath.Join(w.dir, "third"), "")
	served, refused := 0, 0
	for _, p := range []*harness.Process{second, third, late} {
		o := p.Wait(t)
		var s struct {
			Connections []struct{ Requests, Throttled, Passed, Refused int }
		}
		at := strings.LastIndex("\n"+o.Stderr, "\n{\n")
		if at < 0 || json.Unmarshal([]byte(o.Stderr[at:]), &s) != nil || o.Code != 0 || len(s.Connections) != 1 || s.Connections[0].Passed+s.Connections[0].Refused > 0 ||
			strings.Trim(strings.ReplaceAll(o.Stdout, "ready", ""), "20\n") != "" {
			t.Fatal(o)
		}
		served, refused = served+s.Connections[0].Requests, refused+s.Connections[0].Throttled
	}
	t.Logf("%d answers of the three, %d refused and held", served, refused)
	if refused > served/4 {
		t.Errorf("%d of %d were refused: they do not share", refused, served+refused)
	}
	// If all left at once, the socket is there for the next run to find, which removes it.
	if o := begin("last", ":").Wait(t); o.Code != 0 {
		t.Error(o)
	}
	if _, err := os.Stat(filepath.Join(w.state, "headway.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}
