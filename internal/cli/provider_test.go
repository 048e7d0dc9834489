package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

// served is a "provider serve" that runs in this process.
type served struct {
	url    string
	banner string
	client *http.Client
	stop   context.CancelFunc
	exit   chan int
	out    *pieces
	err    *pieces
}

// pieces is what was written, for readers on other goroutines; full is closed
// after the first piece.
type pieces struct {
	mu   sync.Mutex
	all  bytes.Buffer
	err  error
	once sync.Once
	full chan struct{}
}

// fail makes every later write fail.
func (p *pieces) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *pieces) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	defer p.once.Do(func() { close(p.full) })
	return p.all.Write(b)
}

func (p *pieces) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.String()
}

// provide starts one on a free port and waits for it to say where. As in a shell,
// the first argument may set the token's variable, which is empty otherwise.
func provide(t *testing.T, args ...string) *served {
	t.Helper()
	t.Setenv(tokenVariable, "")
	if len(args) > 0 {
		if value, ok := strings.CutPrefix(args[0], tokenVariable+"="); ok {
			t.Setenv(tokenVariable, value)
			args = args[1:]
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &served{
		stop: cancel, exit: make(chan int, 1), client: &http.Client{Transport: &http.Transport{}},
		out: &pieces{full: make(chan struct{})}, err: &pieces{full: make(chan struct{})},
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		s.exit <- run(ctx, append([]string{"provider", "serve", "--listen", ":0"}, args...), stdio{in: strings.NewReader(""), out: s.out, err: s.err})
	})
	t.Cleanup(func() {
		cancel()
		ended.Wait()
		s.client.CloseIdleConnections()
	})
	select {
	case <-s.err.full:
		s.banner = s.err.String()
	case code := <-s.exit:
		t.Fatalf("exit %d: %s", code, s.err)
	}
	s.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(s.banner)
	if s.url == "" {
		t.Fatalf("%q does not say where", s.banner)
	}
	return s
}

// get makes one request and gives its status and body.
func (s *served) get(t *testing.T, path, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// end stops it and gives the exit code and what it said last.
func (s *served) end() (int, string) {
	s.stop()
	code := <-s.exit
	return code, strings.TrimPrefix(s.err.String(), s.banner)
}

func TestServedProviderTellsWhatItServesAndWhatItDid(t *testing.T) {
	folder := t.TempDir()
	log, ready := filepath.Join(folder, "log.jsonl"), filepath.Join(folder, "url")
	for _, f := range []string{log, ready} { // left over from an earlier run
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := scenarioFile(t, "two.yaml", "name: two\nprovider: {latency: {p50: 1ms}, limits: [{kind: sliding_window, limit: 2, window: 1h}]}\n")
	s := provide(t, file, "--conversations", "5", "--log", log, "--ready-file", ready)
	if got, err := os.ReadFile(ready); err != nil || string(got) != s.url+"\n" {
		t.Errorf("ready file %q, %v, want the address %s", got, err, s.url)
	}
	if strings.Count(s.banner, "\n") != 1 {
		t.Errorf("%q is not one line", s.banner)
	}
	for _, want := range []string{"serving two at " + s.url, "sliding_window 2/1h", "5 conversations", "Ctrl-C", "curl -i '" + s.url + "/conversations?limit=2'"} {
		if !strings.Contains(s.banner, want) {
			t.Errorf("banner %q does not say %q", s.banner, want)
		}
	}
	var statuses []int
	for range 3 {
		status, _ := s.get(t, "/conversations?limit=2", "")
		statuses = append(statuses, status)
	}
	if diff := cmp.Diff([]int{200, 200, 429}, statuses); diff != "" {
		t.Error(diff)
	}
	code, last := s.end()
	if code != exitOK || !strings.Contains(last, "2 admitted, 1 refused (1 by sliding_window 2/1h)") {
		t.Errorf("exit %d, %q, want %d and the counts", code, last, exitOK)
	}
	if _, err := os.Stat(ready); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ready file outlives the server: %v", err)
	}
	if s.out.String() != "" {
		t.Errorf("standard output has %q", s.out)
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	logged := map[bool]int{}
	for e, err := range serve.ReadLog(f) {
		if err != nil {
			t.Fatal(err)
		}
		logged[e.Admitted]++
	}
	if want := (map[bool]int{true: 2, false: 1}); !maps.Equal(logged, want) {
		t.Errorf("log has %v, want %v", logged, want)
	}
}

func TestTheSameSeedServesTheSameData(t *testing.T) {
	serveOnce := func(args ...string) (page string) {
		s := provide(t, args...)
		_, page = s.get(t, "/conversations?limit=100", "")
		s.end()
		return page
	}
	first := serveOnce("--seed", "4", "--conversations", "20")
	if again := serveOnce("--seed", "4", "--conversations", "20"); again != first {
		t.Errorf("two starts serve %s and %s", first, again)
	}
	for _, other := range [][]string{
		{"--seed", "5", "--conversations", "20"},
		{"--seed", "4", "--conversations", "19"},
		{"--seed", "4", "--conversations", "20", "--messages", "3"},
		{"--seed", "4", "--conversations", "20", "--updated", "1"},
	} {
		if serveOnce(other...) == first {
			t.Errorf("%v serves the same", other)
		}
	}
}

func TestATokenIsAskedForAndNeverShown(t *testing.T) {
	const token = "sesame-0123"
	const all = "0.0.0.0:0" // with a token others may come
	for from, args := range map[string][]string{
		"flag":        {"--listen", all, "--token", token},
		"environment": {tokenVariable + "=" + token, "--listen", all},
		"both":        {tokenVariable + "=other", "--listen", all, "--token", token},
	} {
		t.Run(from, func(t *testing.T) {
			s := provide(t, args...)
			if !strings.HasPrefix(s.url, "http://127.0.0.1:") {
				t.Errorf("address %s, want one that clients here can use", s.url)
			}
			without, _ := s.get(t, "/conversations", "")
			with, _ := s.get(t, "/conversations", token)
			if without != 401 || with != 200 {
				t.Errorf("statuses %d without and %d with the token, want 401 and 200", without, with)
			}
			code, last := s.end()
			if code != exitOK || !strings.Contains(last, "1 admitted, 0 refused, 1 without the token") {
				t.Errorf("exit %d, %q, want both counted", code, last)
			}
			if strings.Contains(s.err.String(), token) || !strings.Contains(s.banner, "$"+tokenVariable) {
				t.Errorf("%q should name the variable and not the token", s.err)
			}
		})
	}
}

func TestTheLogIsForItsOwnerAndIsAppendedTo(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log.jsonl")
	for i := range 2 {
		s := provide(t, "--log", log)
		s.get(t, "/conversations?limit=1", "")
		if code, last := s.end(); code != exitOK {
			t.Fatalf("exit %d: %s", code, last)
		}
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(b, []byte("\n")); got != i+1 {
			t.Errorf("%d lines after %d requests", got, i+1)
		}
	}
	info, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
}

func TestTheLogCanGoToStandardOutput(t *testing.T) {
	s := provide(t, "demo", "--log", "-")
	s.get(t, "/conversations/c000000", "")
	s.end()
	var paths []string
	for e, err := range serve.ReadLog(strings.NewReader(s.out.String())) {
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, e.Path)
	}
	if !slices.Equal(paths, []string{"/conversations/c000000"}) {
		t.Errorf("standard output has entries for %q, want the one request", paths)
	}
}

func TestALogThatCannotBeWrittenIsAnError(t *testing.T) {
	s := provide(t, "--log", "-")
	s.out.fail(errors.New("no space"))
	s.get(t, "/conversations", "")
	if code, last := s.end(); code != exitInternal || !strings.Contains(last, "log: no space") {
		t.Errorf("exit %d, %q, want %d and why", code, last, exitInternal)
	}
}

// doorway is a listener whose connections are pipes, so that time can be virtual.
type doorway struct {
	conns chan net.Conn
	once  sync.Once
	shut  chan struct{}
}

func (d *doorway) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

func (d *doorway) Close() error   { d.once.Do(func() { close(d.shut) }); return nil }
func (d *doorway) Addr() net.Addr { return &net.TCPAddr{} }

func TestStoppingDrainsAndThenCuts(t *testing.T) {
	tests := []struct {
		name    string
		latency string
		status  int // of the request under way; 0 is cut
		after   time.Duration
	}{
		{"a short request is answered", "4s", 200, 3 * time.Second},
		{"a long one is cut", "1h", 0, drainTime},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := scenario.Parse("slow.yaml", []byte("name: slow\nprovider: {latency: {p50: "+tt.latency+", uplink_p50: 1ms, uplink_p99: 1ms}}\n"))
				if err != nil {
					t.Fatal(err)
				}
				var log bytes.Buffer
				handler, err := serve.New(s, serve.Options{Log: &log})
				if err != nil {
					t.Fatal(err)
				}
				door := &doorway{conns: make(chan net.Conn), shut: make(chan struct{})}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan error, 1)
				go func() { ended <- serveUntil(ctx, door, handler, io.Discard) }()
				transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
					here, there := net.Pipe()
					door.conns <- there
					return here, nil
				}}
				defer transport.CloseIdleConnections()
				status := make(chan int, 1)
				go func() {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://provider/conversations", nil)
					if err != nil {
						status <- -1
						return
					}
					res, err := transport.RoundTrip(r)
					if err != nil {
						status <- 0
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					status <- res.StatusCode
				}()
				time.Sleep(time.Second)
				stop()
				asked := time.Now()
				err = <-ended
				if took := time.Since(asked); err != nil || took < tt.after || took > tt.after+time.Second {
					t.Errorf("it ended with %v after %s, want no error after %s", err, took, tt.after)
				}
				if got := <-status; got != tt.status {
					t.Errorf("status %d, want %d", got, tt.status)
				}
				// Whole, whether it was answered or not.
				if got := bytes.Count(log.Bytes(), []byte("\n")); got != 1 || handler.Stats().Admitted != 1 {
					t.Errorf("%d lines in the log and %d admitted, want one each", got, handler.Stats().Admitted)
				}
			})
		})
	}
}

func TestSlowHeadersAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := &doorway{conns: make(chan net.Conn), shut: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serveUntil(ctx, door, http.NotFoundHandler(), io.Discard) }()
		here, there := net.Pipe()
		door.conns <- there
		began := time.Now()
		if _, err := io.WriteString(here, "GET / HTTP/1.1\r\nHost:"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, here); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != headerTimeout {
			t.Errorf("half a header is cut off after %s, want %s", took, headerTimeout)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
