//go:build unix

package run_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
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
	"github.com/headway-go/headway/internal/longtest"
)

const (
	streams     = 100                              // under way at once
	elsewhere   = "http://169.254.169.254/secrets" // where a redirect leads
	asOutcome   = "RUN_OUTCOMES"                   // makes the test's binary print what it gets of a host
	outcomeHTTP = "RUN_OUTCOMES_HTTP"              // 1 or 2
	asCost      = "RUN_COSTS"                      // has it print how long it takes instead

	asInterrupted = "RUN_INTERRUPTED" // makes the test's binary count the SIGINTs that it gets
)

// peculiar is a provider whose answers are the uncommon ones.
type peculiar struct {
	size  int
	mu    sync.Mutex
	there int           // requests that wait for others
	all   chan struct{} // closed when all are there
	acks  chan string
}

func (p *peculiar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := http.NewResponseController(w)
	switch w.Header()["Date"] = nil; r.URL.Path {
	case "/early":
		w.Header().Set("Link", "</a>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "late")
	case "/trailer":
		w.Header().Set("Trailer", "X-Sum")
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
		w.Header().Set("X-Sum", "of "+r.Trailer.Get("X-Sent"))
	case "/status":
		code, _ := strconv.Atoi(r.URL.RawQuery)
		w.WriteHeader(code)
	case "/packed":
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "not unpacked")
	case "/bare":
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html>")
	case "/part":
		http.ServeContent(w, r, "a.txt", time.Unix(1e9, 0), strings.NewReader("0123456789"))
	case "/away":
		http.Redirect(w, r, elsewhere, http.StatusFound)
	case "/short", "/cut":
		if r.URL.Path == "/short" {
			w.Header().Set("Content-Length", "1000")
		}
		_, _ = io.WriteString(w, "half")
		_ = to.Flush()
		panic(http.ErrAbortHandler)
	case "/none":
		panic(http.ErrAbortHandler)
	case "/up":
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		_, _ = fmt.Fprintf(w, "%d %x %v", n, h.Sum(nil), err)
	case "/down":
		_, _ = io.CopyN(w, &pattern{}, int64(p.size))
	case "/together": // none is answered before all are there
		p.mu.Lock()
		if p.there == 0 {
			p.all = make(chan struct{})
		}
		all := p.all
		if p.there++; strconv.Itoa(p.there) == r.URL.RawQuery {
			p.there = 0
			close(all)
		}
		p.mu.Unlock()
		<-all
	case "/events": // each is sent when the one before it was acknowledged
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range longtest.Size(30, 1800) {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", n)
			if to.Flush() != nil || <-p.acks != strconv.Itoa(n) {
				return
			}
		}
	case "/ack":
		p.acks <- r.URL.RawQuery
	default:
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s %q", r.Method, r.RequestURI, b, r.Header["X-Odd"])
	}
}

// pattern are bytes that repeat after a prime number of them.
type pattern struct{ at int }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(p.at * p.at >> 7)
		p.at = (p.at + 1) % 65_521
	}
	return len(b), nil
}

// newClient returns a client that speaks the version of HTTP that is asked for.
func newClient() *http.Client {
	through := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableCompression: true, ForceAttemptHTTP2: os.Getenv(outcomeHTTP) == "2",
		MaxIdleConnsPerHost: streams,
	}
	if !through.ForceAttemptHTTP2 {
		through.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return &http.Client{Transport: through, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// outcomes asks a host for everything, and prints what a program sees of the answers.
func outcomes(host string) {
	c := newClient()
	size, _ := strconv.Atoi(os.Getenv("N"))
	ask := func(method, path string, body io.Reader, change func(*http.Request)) string {
		var early []int
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if early = append(early, code); code == http.StatusEarlyHints && h.Get("Link") == "" {
				early = append(early, 0)
			}
			return nil
		}})
		r, _ := http.NewRequestWithContext(ctx, method, "https://"+host+path, body)
		if change != nil {
			change(r)
		}
		res, err := c.Do(r)
		if err != nil {
			return fmt.Sprintf("%s %s: no answer", method, path)
		}
		defer func() { _ = res.Body.Close() }()
		h := sha256.New()
		var head bytes.Buffer
		n, err := io.Copy(h, io.TeeReader(io.LimitReader(res.Body, 200), &head))
		if err == nil {
			var more int64
			more, err = io.Copy(h, res.Body)
			n += more
		}
		var fields bytes.Buffer
		_ = res.Header.Write(&fields)
		text := strings.ReplaceAll(fields.String(), "\r\n", " | ")
		if n <= 200 && n > 0 {
			text += strconv.Quote(head.String())
		}
		return fmt.Sprintf("%s %s: %v %d | %s %d bytes of %d, %s, ended well %v, trailer %v", method, path, early, res.StatusCode, text, n, res.ContentLength, hex.EncodeToString(h.Sum(nil))[:8], err == nil, res.Trailer)
	}
	say := func(method, path string, body io.Reader, change func(*http.Request)) {
		fmt.Println(ask(method, path, body, change))
	}
	say("GET", "/a%2Fb?x=%zz;y&&z", nil, func(r *http.Request) { r.Header["X-Odd"] = []string{"b", "", "a"} })
	say("DELETE", "/*", nil, nil)
	say("OPTIONS", "", nil, func(r *http.Request) { r.URL.Path = "*" })
	say("HEAD", "/part", nil, nil)
	say("GET", "/part", nil, func(r *http.Request) { r.Header.Set("Range", "bytes=2-4") })
	say("GET", "/packed", nil, func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
	say("GET", "/bare", nil, nil)
	say("GET", "/early", nil, nil)
	say("PUT", "/echo", strings.NewReader("expected"), func(r *http.Request) { r.Header.Set("Expect", "100-continue") })
	say("POST", "/trailer", struct{ io.Reader }{strings.NewReader("hello")}, func(r *http.Request) { r.Trailer = http.Header{"X-Sent": {"mine"}} })
	for _, code := range []string{"204", "304", "205", "404", "418", "500"} {
		say("GET", "/status?"+code, nil, nil)
	}
	say("GET", "/away", nil, nil)
	for _, path := range []string{"/short", "/cut", "/none"} {
		say("POST", path, strings.NewReader("x"), nil)
	}
	say("PUT", "/up", io.LimitReader(&pattern{}, int64(size)), nil)
	say("PUT", "/up", io.LimitReader(&pattern{}, int64(size)), func(r *http.Request) { r.ContentLength = int64(size) })
	say("GET", "/down", nil, nil)
	together := make([]string, streams)
	if os.Getenv(outcomeHTTP) == "1" {
		together = together[:10] // a connection each
	}
	var all sync.WaitGroup
	for i := range together {
		all.Go(func() { together[i] = ask("GET", fmt.Sprintf("/together?%d", len(together)), nil, nil) })
	}
	all.Wait()
	fmt.Println(slices.Compact(together))
	res, err := c.Get("https://" + host + "/events")
	if err != nil {
		fmt.Println("no events")
		return
	}
	defer func() { _ = res.Body.Close() }()
	seen := 0
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			seen++
			ask("POST", "/ack?"+n, nil, nil)
		}
	}
	fmt.Println(seen, "events of", res.Header.Get("Content-Type"))
}

// A program gets the same bytes and the same end through headway run as it does without, by
// either version of HTTP on either side, and the proxy follows no redirect.
func TestTheOutcomeIsThatOfADirectCall(t *testing.T) {
	w := newPlace(t)
	pair, err := tls.LoadX509KeyPair(filepath.Join(w.dir, "server.pem"), filepath.Join(w.dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	p := &peculiar{size: longtest.Size(1<<20, 200<<20), acks: make(chan string)}
	for host, two := range map[string]bool{"one.free.headway.test": false, "two.free.headway.test": true} {
		s := harness.NewServer(t, p)
		s.Config.DisableGeneralOptionsHandler = true
		s.EnableHTTP2, s.TLS = two, &tls.Config{Certificates: []tls.Certificate{pair}}
		s.StartTLS()
		w.at.Store(host+":443", s.Listener.Addr().String())
	}
	for _, host := range []string{"one.free.headway.test", "two.free.headway.test"} {
		for _, version := range []string{"1", "2"} {
			env := append(w.env(t), asOutcome+"="+host, outcomeHTTP+"="+version, "N="+strconv.Itoa(p.size))
			direct := harness.LaunchAs(t, nil, w.dir, env, os.Args[0]).Wait(t)
			run := harness.Launch(t, w.dir, env, "run", "--state", w.state, "--host", host, "--", os.Args[0]).Wait(t)
			want, got := strings.Split(direct.Stdout, "\n"), strings.Split(run.Stdout, "\n")
			if direct.Code != 0 || run.Code != 0 || len(want) < 20 || len(want) != len(got) || !strings.Contains(run.Stderr, "requests of") {
				t.Fatalf("%s by HTTP/%s:\ndirect: %s\nrun: %s", host, version, direct, run)
			}
			for i := range want {
				if want[i] != got[i] {
					t.Errorf("%s by HTTP/%s:\ndirect: %s\nrun:    %s", host, version, want[i], got[i])
				}
			}
		}
	}
	if asked, _ := w.asked.Load("169.254.169.254:80"); asked != nil {
		t.Error("the proxy followed a redirect")
	}
}

// costs prints the median time of a small request on a kept connection, and the times of a
// download and of an upload at 50 MB/s, in nanoseconds.
func costs(host string) {
	c := newClient()
	size, _ := strconv.Atoi(os.Getenv("N"))
	took := func(method, path string, body io.Reader) time.Duration {
		r, _ := http.NewRequestWithContext(context.Background(), method, "https://"+host+path, body)
		began := time.Now()
		res, err := c.Do(r)
		if err != nil || res.StatusCode != http.StatusOK {
			fmt.Fprintln(os.Stderr, res, err)
			os.Exit(1)
		}
		_, err = io.Copy(io.Discard, res.Body)
		if _ = res.Body.Close(); err != nil {
			os.Exit(1)
		}
		return time.Since(began)
	}
	small := make([]time.Duration, max(20, size/100_000))
	for i := range small {
		small[i] = took("GET", "/f/1", nil)
	}
	slices.Sort(small)
	began := time.Now()
	paced := &pacedReader{from: io.LimitReader(&pattern{}, int64(size)), rate: 50 << 20, began: began}
	fmt.Println(small[len(small)/2].Nanoseconds(), took("GET", "/slow", nil).Nanoseconds(), took("PUT", "/bucket/one", paced).Nanoseconds())
}

// pacedReader gives so many bytes a second, from the first read on.
type pacedReader struct {
	from  io.Reader
	rate  float64
	began time.Time
	n     int
}

func (p *pacedReader) Read(b []byte) (int, error) {
	if p.n == 0 {
		p.began = time.Now()
	}
	time.Sleep(time.Until(p.began.Add(time.Duration(float64(p.n) / p.rate * float64(time.Second)))))
	n, err := p.from.Read(b)
	p.n += n
	return n, err
}

// What the proxy adds is logged, since it depends on the machine: a long run takes turns with
// 200 MB from and to nginx, and with 2,000 small requests.
func TestWhatTheProxyAdds(t *testing.T) {
	w := newWorld(t)
	size, rounds := longtest.Size(1<<20, 200<<20), longtest.Size(1, 6)
	harness.Write(t, filepath.Join(w.dir, "www", "slow"), strings.Repeat("0123456789abcdef", size/16))
	const host = "cost.free.headway.test"
	for _, version := range []string{"1", "2"} {
		env := append(w.env(t), asOutcome+"="+host, asCost+"=1", outcomeHTTP+"="+version, "N="+strconv.Itoa(size))
		figures := map[bool][3][]time.Duration{}
		for i := range 2 * rounds {
			governed := i%2 == 1
			args := []string{os.Args[0]}
			if governed {
				args = []string{harness.Program(), "run", "--state", w.state, "--host", host, "-q", "--", os.Args[0]}
			}
			o := harness.LaunchAs(t, nil, w.dir, env, args...).Wait(t)
			cells, all := strings.Fields(o.Stdout), figures[governed]
			if o.Code != 0 || len(cells) != len(all) {
				t.Fatal(o)
			}
			for k, cell := range cells {
				ns, _ := strconv.Atoi(cell)
				all[k] = append(all[k], time.Duration(ns))
			}
			figures[governed] = all
		}
		for k, what := range []string{"a small request", "the download", "the upload"} {
			plain, run := figures[false][k], figures[true][k]
			slices.Sort(plain)
			slices.Sort(run)
			t.Logf("HTTP/%s, %s: %v direct, %v through headway run; at best %v and %v", version, what, plain[len(plain)/2], run[len(run)/2], plain[0], run[0])
		}
	}
}

// interrupted waits for a SIGINT, and then has its parent end it, which passes on a SIGINT of
// its own before that.
func interrupted() int {
	signals := make(chan os.Signal, 9)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	fmt.Println("ready")
	for n := 0; ; {
		switch s := <-signals; {
		case s == syscall.SIGTERM:
			fmt.Println("interrupted", n)
			return 7
		case n == 0:
			_ = syscall.Kill(os.Getppid(), syscall.SIGTERM)
			fallthrough
		default:
			n++
		}
	}
}

// A terminal sends Ctrl-C to headway and to its command: the command must not get it twice,
// and a script must end where it would without headway.
func TestCtrlCComesOnce(t *testing.T) {
	w := newPlace(t)
	press := func(what string, env ...string) harness.Outcome {
		keys := filepath.Join(t.TempDir(), "keys")
		if err := syscall.Mkfifo(keys, 0o600); err != nil {
			t.Fatal(err)
		}
		keyboard, err := os.OpenFile(keys, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = keyboard.Close() }()
		env = append(append(w.env(t), "HEADWAY="+harness.Program()+" run --state "+w.state+" --host a.test", "COMMAND="+what, "KEYS="+keys, "SHELL=/bin/bash"), env...)
		p := harness.LaunchAs(t, nil, w.dir, env, "sh", "-c", `exec script -qec "$COMMAND" /dev/null < "$KEYS"`)
		p.Await(t, &p.Stdout, "ready")
		if _, err := keyboard.WriteString("\x03"); err != nil {
			t.Fatal(err)
		}
		return p.Wait(t)
	}
	for _, input := range []string{"", " < /dev/null"} {
		if o := press(`$HEADWAY -- "$TEST_BINARY"`+input, asInterrupted+"=1"); o.Code != 7 || !strings.Contains(o.Stdout, "interrupted 1\r\n") || !strings.Contains(o.Stdout, "no request came through") {
			t.Errorf("a command%s: %s", input, o)
		}
	}
	if o := press(`for long in 1000 0; do $HEADWAY -- sh -c "echo ready; exec sleep $long"; echo went on; done`); strings.Contains(o.Stdout, "went on") || !strings.Contains(o.Stdout, "no request came through") {
		t.Errorf("a script: %s", o)
	}
}
